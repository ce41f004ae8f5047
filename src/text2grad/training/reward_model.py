"""The loop that trains a reward model: annotated completions in, a critic out; watched, early stopped, resumed exactly.

From Python: `RewardTrainer(settings, folder, model=…, tokenizer=…, rows=…).train()`; from the shell: `text2grad
reward-model`. At the end temperature, thresholds and the floor of confidence are chosen on the held-out prompts.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.learned import is_checkpoint
from text2grad.feedback.lessons import Calibration, Lesson, kind_for, lesson_of, unit_for
from text2grad.feedback.rewards import kind_of
from text2grad.feedback.units import Units, units_of
from text2grad.models.modes import evaluating
from text2grad.models.reward.calibrate import calibrated, complaint, token_metrics
from text2grad.models.reward.model import RewardModel, read_card
from text2grad.models.reward.template import Encoded, continued
from text2grad.optim.batch import Batch, blank, collate, micro_batches
from text2grad.optim.reward import Weighing, counts_of, losses_of, reward_update
from text2grad.optim.spans import Marks, class_weights, collate_marks
from text2grad.runs.display import Display
from text2grad.tasks.annotated import Annotated, digest_of, load_annotated, prompt_key, split_by_prompt
from text2grad.tasks.examples import Stream
from text2grad.training._loop import Callback, Outcome, Stop
from text2grad.training._run import digests, memory_named
from text2grad.training._setup import make_optimizer
from text2grad.training._supervised import Supervised
from text2grad.training.settings import NO_BEST, RewardModelSettings
from text2grad.types import Rollout


@dataclass(frozen=True, slots=True)
class Item:
    """One completion as ids, with its labels and its critique."""

    encoded: Encoded
    lesson: Lesson
    critique: tuple[int, ...] | None
    """None: there was no room for it, or nobody learns it; the span head learns all the same."""
    units: Units
    """Its words."""


class RewardTrainer(Supervised):
    """One run. Everything that is not given is loaded by the names in the settings."""

    stage = "reward-model"
    watched = "held_out/watched"
    settings: RewardModelSettings
    policy: RewardModel

    def __init__(
        self,
        settings: RewardModelSettings,
        folder: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        rows: Sequence[Annotated] | None = None,
        held_out: Sequence[Annotated] | None = None,
        callbacks: Sequence[Callback] = (),
        show: bool = False,
    ) -> None:
        if not (settings.loss.span or settings.loss.worth or settings.loss.language):
            raise ConfigError("loss.span, loss.worth and loss.language are all 0, so there is nothing to learn")
        given = list(rows) if rows is not None else load_annotated(settings.data)
        if not given:
            raise InvalidData("`rows` should hold at least one annotated completion, got none")
        if held_out is not None or settings.held_out:
            self.rows = given
            self.held_out = list(held_out) if held_out is not None else load_annotated(settings.held_out)
        else:
            self.rows, self.held_out = split_by_prompt(given, settings.validation, settings.seed)
        self._began: Calibration | None = None
        """Of the reward model that training goes on from, if it is one."""
        if model is None and is_checkpoint(settings.model):
            stored, self._began = read_card(settings.model)
            settings = replace(settings, template=continued(settings.template, stored, settings.model))
        self.best: dict[str, Tensor] | None = None
        """The trained weights as they were then, where they are kept."""
        self.best_at = 0
        """The update after which they were so."""
        data = digests(("rows", settings.data, None), ("held-out", settings.held_out, None))
        data |= {name: digest_of(part) for name, part in (("rows", rows), ("held-out", held_out)) if part}
        super().__init__(
            settings,
            folder,
            model=model,
            tokenizer=tokenizer,
            data=data,
            callbacks=callbacks,
            show=show,
            by_names=rows is None and held_out is None,
        )

    def _build(self, model: Any) -> None:
        settings = self.settings
        if self.others.sharded and settings.keep == "best":
            raise ConfigError(NO_BEST)
        template = settings.template.within(model)
        self.policy = RewardModel(model, settings.policy, template)
        if self._began is not None:
            self.policy.adopt(settings.model)
        self.reader = self.policy.reader(self.tokenizer)
        self.kind = kind_for([row.critique for row in (*self.rows, *self.held_out)])
        self.unit = unit_for([(row.critique, row.alignment) for row in self.rows])
        self.skipped = 0
        """Completions that had no room in the template."""
        self.items, self.held_items = self._items(self.rows), self._items(self.held_out)
        if settings.loss.language and all(item.critique is None for item in self.items):
            raise InvalidData(
                f"none of {len(self.items)} critiques has room in template.critique_tokens="
                f"{template.critique_tokens}: raise it, or set loss.language=0 to do without a writer"
            )
        self.scale = _scale([item.lesson for item in self.items])
        counts_3 = np.bincount(np.concatenate([item.lesson.verdicts for item in self.items]), minlength=3)
        weights_3 = class_weights(torch.tensor(counts_3, dtype=torch.float32), settings.loss.imbalance)
        if self._began is not None:
            self.policy.reweigh(weights_3)
        else:
            self.policy.class_weights_3.copy_(weights_3)
        start = float(np.mean([item.lesson.start for item in self.items]))
        self.policy.calibration = Calibration(kind=self.kind, scale=self.scale, start=start)
        self.stream = Stream(self.items, settings.seed)
        self.updates = settings.updates or math.ceil(settings.epochs * len(self.items) / settings.update.batch)
        self.policy.eval()
        self.module = self.others.prepare(self.policy)
        self.optimizer = make_optimizer(self.policy, settings.update, settings.head_learning_rate)
        self.weighing = Weighing(settings.loss.span, settings.loss.worth, settings.loss.language)

    # ------------------------------------------------------------------------------------------------ the data

    def _items(self, rows: Sequence[Annotated]) -> list[Item]:
        found = []
        read = self.reader.encode_all([row.prompt for row in rows], [row.completion for row in rows])
        for row, encoded in zip(rows, read, strict=True):
            if isinstance(encoded, InvalidData):
                if self.settings.too_long == "error":
                    raise InvalidData(f"row {row.id!r}: {encoded}; set too_long=skip to leave such rows out")
                self.skipped += 1
                continue
            lesson = lesson_of(row.critique, row.alignment, encoded.offsets, self.kind, self.unit)
            written = None
            if self.settings.loss.language:
                written = self.reader.critique_ids(row.critique, row.alignment, row.completion)
            found.append(Item(encoded, lesson, written, units_of(row.completion, encoded.offsets)))
        if not found:
            raise InvalidData(
                f"none of {len(rows)} completions has room in template.max_tokens={self.policy.template.max_tokens}: "
                f"the critique has template.critique_tokens={self.policy.template.critique_tokens} of that"
            )
        return found

    def _batch(self, items: Sequence[Item]) -> tuple[Batch, Marks]:
        device = self.others.device
        if not items:
            return blank(device), collate_marks([[0]], [[1]], [[0.0]], device)
        rollouts = []
        for item in items:
            written = item.critique or (self.tokenizer.eos_token_id,)
            # What counts of the critique: all of it, or, where there was no room for it, nothing.
            counts = (float(item.critique is not None),) * len(written)
            rollouts.append(Rollout(item.encoded.ids, written, logprobs=(0.0,) * len(written), token_rewards=counts))
        return collate(rollouts, device), collate_marks(
            [item.encoded.positions for item in items],
            [item.lesson.verdicts.tolist() for item in items],
            [(item.lesson.worths / self.scale).tolist() for item in items],
            device,
        )

    # ------------------------------------------------------------------------------------------------ the loop

    def _counts(self) -> dict[str, int]:
        return {
            "data/rows": len(self.items),
            "data/held_out": len(self.held_items),
            "data/skipped": self.skipped,
            "data/without_critique": sum(item.critique is None for item in self.items if self.settings.loss.language),
        }

    def _remarks(self) -> Iterator[str]:
        held = {prompt_key(row) for row in self.held_out}
        if both := sum(prompt_key(row) in held for row in self.rows):
            yield (
                f"{both} of {len(self.rows)} completions to learn from have a prompt that is held out, too, so what is "
                f"measured there flatters, and thresholds are chosen on it; leave those prompts out of one of the files"
            )
        every = (*self.rows, *self.held_out)
        unscored = sum(kind_of(row.critique) == "verdicts" for row in every)
        if unscored and any(kind_of(row.critique) != "verdicts" for row in self.rows):
            yield (
                f"{unscored} of {len(every)} completions, to learn from and held out, have no score, so no score is "
                f"learned from: the model will say verdicts and severities; leave those out to have it learn scores"
            )
        if self.skipped:
            room, critique = self.policy.template.max_tokens, self.policy.template.critique_tokens
            more = f"raise template.max_tokens={room}, or "
            if room < self.settings.template.max_tokens:
                more = f"the model has {room} positions, so shorten them or "
            yield (
                f"{self.skipped} of {len(every)} completions have no room and are left out; {more}lower "
                f"template.critique_tokens={critique}"
            )

    def _learn(self, items: Sequence[Item]) -> dict[str, float]:
        options = self.settings.update
        return reward_update(
            self.module,
            self.optimizer,
            *self._batch(items),
            self.weighing,
            micro_batch=options.micro_batch,
            max_grad_norm=options.max_grad_norm,
            among=self.others,
        )

    def _evaluate(self) -> dict[str, float]:
        """Losses on the held-out prompts, and how well their tokens are told apart."""
        began = time.perf_counter()
        sums_3, counts_3, outs = self._look(self.held_items[self.others.rank :: self.others.processes])
        sums_3, counts_3 = self.others.total(sums_3), self.others.total(counts_3)
        gathered = [out for part in self.others.gathered([out.cpu() for out in outs]) for out in part]
        verdicts = [
            torch.from_numpy(item.lesson.verdicts)
            for rank in range(self.others.processes)
            for item in self.held_items[rank :: self.others.processes]
        ]
        found = losses_of(sums_3, counts_3, self.weighing)
        # A critique that is written better makes no better judge: where there is a span head, it is what is watched.
        judging = self.weighing.span * found["loss/span"] + self.weighing.worth * found["loss/worth"]
        found["watched"] = judging if self.weighing.span or self.weighing.worth else found["loss/joint"]
        if self.weighing.span:
            found |= token_metrics(self.policy, gathered, verdicts)
        renamed = {f"held_out/{name.removeprefix('loss/')}": value for name, value in found.items()}
        return renamed | {"time/evaluate": time.perf_counter() - began}

    @torch.no_grad()
    def _look(self, items: Sequence[Item]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Summed losses, the tokens they are sums over, and what the span head says of each item."""
        batch, marks = self._batch(items)
        rows = torch.arange(len(items), device=batch.ids_BS.device)
        size = self.settings.update.micro_batch
        parts = list(micro_batches(batch, rows, size)) if items else []
        spare = self.others.most(len(parts)) - len(parts)
        sums_3 = torch.zeros(3, dtype=torch.float64)
        found: list[Tensor] = [torch.empty(0)] * len(items)
        with memory_named("reading held-out completions", "update.micro_batch"), evaluating(self.policy):
            for index in parts:
                some = marks.rows(index)
                out = self.policy(batch.rows(index), some, self.weighing)
                sums_3 += out.sums_3.double().cpu()
                pieces = out.out_N5.float().split(some.mask_BL.sum(1).tolist())
                for place, piece in zip(index.tolist(), pieces, strict=True):
                    found[place] = piece
            for _ in range(spare):
                self.policy(*self._batch([]), self.weighing)
        counts_3 = counts_of(batch, marks).double().cpu() if items else torch.zeros(3, dtype=torch.float64)
        return sums_3, counts_3, found

    def _see(self, metrics: Mapping[str, Any]) -> None:
        before = self.lowest
        super()._see(metrics)
        if self.lowest < before and self.settings.keep == "best":
            self.best_at = metrics["update"]
            self.best = {name: weight.detach().clone() for name, weight in self.policy.trainable().items()}

    def _ran_away(self, what: str) -> Stop:
        if not self.best_at:
            return super()._ran_away(what)
        rate = self.settings.update.learning_rate
        return Stop(f"{what}. The model is that of update {self.best_at}; lower update.learning_rate={rate:g}")

    def _own_state(self) -> dict[str, Any]:
        return {**super()._own_state(), "best": self.best, "best_at": self.best_at}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self.best, self.best_at = state["best"], state["best_at"]

    def _end(self, display: Display, *, again: bool = False) -> Outcome:
        """The best weights, calibrated on the held-out prompts."""
        if self.best is not None:
            weights = dict(self.policy.named_parameters())
            with torch.no_grad():
                for name, weight in self.best.items():
                    weights[name].copy_(weight)
        _, _, outs = self._look(self.held_items)
        verdicts = [torch.from_numpy(item.lesson.verdicts) for item in self.held_items]
        outs = [out.cpu() for out in outs]
        as_begun = self.best is not None and not self.best_at
        if as_begun and self._began is not None:
            # Its worths are in the unit that they were learned in.
            self.policy.calibration = self._began
        else:
            self.policy.calibration = calibrated(self.policy, outs, verdicts, [item.units for item in self.held_items])
        self.policy.settle()
        if as_begun:
            display.note(
                "no look found the held-out loss below where it began, so the model is the one that it began with; "
                "lower update.learning_rate, or give it more completions"
            )
        elif self.settings.loss.span and (told := complaint(self.policy, outs, verdicts)):
            display.note(told)
        return super()._end(display, again=again)


def _scale(lessons: Sequence[Lesson]) -> float:
    """The mean worth of a token that is worth something: the head's unit."""
    worths = np.concatenate([lesson.worths for lesson in lessons])
    worths = worths[worths > 0]
    return float(worths.mean()) if len(worths) else 1.0
