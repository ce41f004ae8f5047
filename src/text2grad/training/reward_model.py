"""The reward model's loop: annotated completions → a model that labels every token and writes the critique.

    for step in run.steps():
        losses = reward_update(model, items of this step)     # span head and language head together
        losses |= evaluate()                                  # every so often, on held-out prompts
    best weights → calibration on held-out prompts → RUN/model

From Python: `RewardModelTrainer(settings, folder, rows=…).train()`; from the shell: `text2grad reward-model`. The model
is a critic: `critic=RUN/model`.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.learned import is_checkpoint
from text2grad.feedback.labels import Calibration, TokenLabels, Words, kind_for, label_tokens
from text2grad.feedback.people import Rejected
from text2grad.feedback.rewards import kind_of, slope_of
from text2grad.models.modes import evaluating, memory_named
from text2grad.models.reward.calibrate import calibrated, complaint, token_metrics
from text2grad.models.reward.model import RewardModel, label_batch, read_card
from text2grad.models.reward.template import FilledTemplate, Reader, continued
from text2grad.optim import update as optim_update
from text2grad.optim.batch import Batch, blank, collate_ids, micro_batches
from text2grad.optim.labels import LabelBatch, LossWeights, class_weights, counts_of, reward_update
from text2grad.runs import Closable
from text2grad.runs.run import Outcome
from text2grad.tasks.annotated import Annotated, prompt_key, rows_digest, split_by_prompt
from text2grad.tasks.examples import Stream
from text2grad.tasks.task import Task, task_of
from text2grad.training.losswatch import LossWatch
from text2grad.training.saving import BestWeights, Writers, card_of, writers_of
from text2grad.training.settings import NO_BEST, RewardModelSettings
from text2grad.training.setup import (
    Callback,
    Clock,
    file_digests,
    learning,
    make_optimizer,
    set_rate,
    share_of,
    start,
)
from text2grad.training.state import TrainingState
from text2grad.types import MetricInfo

_LOSSES = {
    "joint": ("joint loss", "The weighted sum of span, reward and language loss."),
    "span": ("span loss", "Cross entropy of the tokens' verdicts, rare classes weighted up."),
    "reward": ("reward loss", "Error of the reward sizes of poor and good tokens."),
    "language": ("language loss", "Mean loss per token of the critiques."),
}
METRICS = {
    **{key: info for key, info in optim_update.METRICS.items() if key.startswith("update/")},
    **{f"loss/{key}": MetricInfo(title.capitalize(), text, "lower") for key, (title, text) in _LOSSES.items()},
    **{f"held_out/{key}": MetricInfo(f"Held-out {title}", text, "lower") for key, (title, text) in _LOSSES.items()},
    "held_out/watched": MetricInfo(
        "Held-out loss", "Chooses the best weights: weighted span and reward loss; without a span head, joint.", "lower"
    ),
    **{
        f"held_out/{name}_{key}": MetricInfo(f"{title} on {name} tokens", text, "higher")
        for name in ("poor", "good")
        for key, title, text in (
            ("ap", "Average precision", f"Held-out average precision; 1.0 ranks every {name} token first."),
            ("f1", "Best F1", "Held-out F1 at the best threshold, chosen on the same tokens."),
        )
    },
    "held_out/accuracy": MetricInfo("Token accuracy", "Share of tokens whose likeliest class is right.", "higher"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One completion as ids, with its labels and its critique."""

    encoded: FilledTemplate
    labels: TokenLabels
    critique: tuple[int, ...] | None
    """None: it does not fit, or loss.language is 0. The span head learns from the item all the same."""
    words: Words


class RewardModelTrainer(Closable):
    """One run. Everything that is not given is loaded by the names in the settings."""

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
        self.weights = LossWeights(settings.loss.span, settings.loss.reward, settings.loss.language)
        if not any(self.weights):
            raise ConfigError("loss.span, loss.reward and loss.language are all 0, so there is nothing to learn")
        self.rejected = 0
        """Rows that the task could not read."""
        self.rows, self.held_out = self._split(settings, rows, held_out)
        self._previous: Calibration | None = None
        """The calibration of the reward model that training continues from, if it does."""
        if model is None and is_checkpoint(settings.model):
            template, self._previous = read_card(settings.model)
            settings = replace(settings, template=continued(settings.template, template, settings.model))
        self.settings = settings
        data = file_digests(settings.data if rows is None else "", settings.held_out if held_out is None else "")
        # What did not come from files that can be read again.
        others = rows if settings.task == "jsonl" else (*self.rows, *self.held_out)
        data |= {name: rows_digest(given) for name, given in (("rows", others), ("held-out", held_out)) if given}
        session = start(
            settings,
            folder,
            command="reward-model",
            model=model,
            tokenizer=tokenizer,
            data=data,
            metrics=METRICS,
            callbacks=[partial(callback, self) for callback in callbacks],
            show=show,
            resume_with=None if rows is not None or held_out is not None else "",
        )
        self.world, self.run, self.tokenizer = session.world, session.run, session.tokenizer
        with self.run.abandoned_on_failure():
            self._build(session.model)

    def _build(self, base: Any) -> None:
        settings = self.settings
        if self.world.sharded and settings.keep == "best":
            raise ConfigError(NO_BEST)
        self.model = RewardModel(base, settings.policy, settings.template.within(base))
        # ---- items
        self.kind = kind_for([row.critique for row in (*self.rows, *self.held_out)])
        self.skipped = 0
        """Completions that do not fit the template."""
        reader = self.model.reader(self.tokenizer)
        slope = slope_of((row.critique, row.alignment) for row in self.rows)
        self.items = self._items(self.rows, reader, slope)
        self.held_items = self._items(self.held_out, reader, slope)
        if settings.loss.language and all(item.critique is None for item in self.items):
            raise InvalidData(
                f"none of {len(self.items)} critiques has room in {self._room()}; loss.language=0 trains no writer"
            )
        # ---- what the labels say about the head
        sizes = np.abs(np.concatenate([item.labels.rewards for item in self.items]))
        size = float(sizes[sizes > 0].mean()) if sizes.any() else 1.0
        mean_start = float(np.mean([item.labels.start for item in self.items]))
        self.model.calibration = Calibration(kind=self.kind, scale=size, start=mean_start)
        counts_3 = np.bincount(np.concatenate([item.labels.verdicts for item in self.items]), minlength=3)
        weights_3 = class_weights(torch.tensor(counts_3, dtype=torch.float32), settings.loss.imbalance)
        if self._previous is None:
            self.model.class_weights_3.copy_(weights_3)
        else:
            self.model.load_head(settings.model)
            self.model.reweigh(weights_3)
        # ---- the loop's collaborators
        self.stream = Stream(self.items, settings.seed)
        self.updates = settings.updates or math.ceil(settings.epochs * len(self.items) / settings.update.batch)
        self.model.eval()
        self.module = self.world.prepare(self.model)
        self.optimizer = make_optimizer(self.model, settings.update, settings.head_learning_rate)
        self.watch, self.best = LossWatch("held_out/watched", settings.patience), BestWeights(self.model)
        self.state = TrainingState(self.model, self.optimizer, self.world, {"watch": self.watch, "best": self.best})

    # ------------------------------------------------------------------------------------------------------ the loop

    def train(self) -> Outcome:
        """From where the folder stands to the end; once."""
        run, settings, options = self.run, self.settings, self.settings.update
        with closing(self), run.working(self.state, self.updates):
            if run.done == 0 and not run.over:
                for note in self._notes():
                    run.note(note)
                metrics = {"update": 0, **self._counts(), **self.evaluate()}
                self.watch.start(metrics)
                if settings.keep == "best":
                    self.best.keep(0)
                run.log(metrics)
            for step in run.steps():
                clock = Clock("update")
                rate = set_rate(self.optimizer, step, self.updates, options)
                with clock("update"):
                    items = share_of(self.stream, step, options.batch, self.world)
                    metrics = {"update": step, **self.update(items), **rate}
                if step % settings.evaluate_every == 0 or step == self.updates:
                    with clock("evaluate"):
                        metrics |= self.evaluate()
                lower = self.watch.after(metrics, run, options.learning_rate, self.best.update)
                if lower and settings.keep == "best":
                    self.best.keep(step)
                run.log(metrics | clock.metrics())
            return run.finish(self._finished)

    def update(self, items: Sequence[Item]) -> dict[str, float]:
        options = self.settings.update
        with learning(self.module):
            return reward_update(
                self.module,
                self.optimizer,
                *self._batch(items),
                self.weights,
                micro_batch=options.micro_batch,
                max_grad_norm=options.max_grad_norm,
                world=self.world,
            )

    def evaluate(self) -> dict[str, float]:
        """Losses on the held-out prompts, and how well their tokens are told apart."""
        world = self.world
        shares = [self.held_items[rank :: world.size] for rank in range(world.size)]
        sums_3, counts_3, outs = self._predict(shares[world.rank])
        losses = self.weights.metrics(world.all_sum(sums_3), world.all_sum(counts_3))
        # A better written critique makes no better judge: where there is a span head, its loss is watched.
        judging = self.weights.span * losses["loss/span"] + self.weights.reward * losses["loss/reward"]
        losses["watched"] = judging if self.weights.span or self.weights.reward else losses["loss/joint"]
        if self.weights.span:
            gathered = [out for part in world.all_gather(outs) for out in part]
            losses |= token_metrics(self.model, gathered, _verdicts([item for share in shares for item in share]))
        return {f"held_out/{name.removeprefix('loss/')}": value for name, value in losses.items()}

    def _finished(self) -> Writers:
        """The best weights, calibrated on the held-out prompts."""
        self.best.put_back()
        _, _, outs = self._predict(self.held_items)
        verdicts, words = _verdicts(self.held_items), [item.words for item in self.held_items]
        unchanged = self.best.weights is not None and not self.best.update
        if unchanged and self._previous is not None:
            # Its reward sizes are in the units that they were learned in.
            self.model.calibration = self._previous
        else:
            self.model.calibration = calibrated(self.model, outs, verdicts, words)
        if unchanged:
            self.run.note(
                "the held-out loss never fell below its start, so the model is the one that the run started from; "
                "lower update.learning_rate, or train on more completions"
            )
        elif self.settings.loss.span and (warning := complaint(self.model, outs, verdicts)):
            self.run.note(warning)
        self.model.gather_head()
        card = card_of(self.run.path, self.settings, "reward-model", self.best.update or self.run.done)
        return writers_of(self.model, self.tokenizer, self.world, card)

    @torch.no_grad()
    def _predict(self, items: Sequence[Item]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """(summed losses, the tokens they are sums over, the span head's numbers for each item)."""
        batch, labels = self._batch(items)
        rows = torch.arange(len(items), device=batch.ids_BS.device)
        parts = list(micro_batches(batch, rows, self.settings.update.micro_batch)) if items else []
        # Where weights are gathered from other processes, all must go through the model equally often. Asked before the
        # first pass: a question in between would meet another process's pass.
        spare = self.world.all_max(len(parts)) - len(parts)
        sums_3, counts_3 = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        outs: list[Tensor] = [torch.empty(0)] * len(items)
        with memory_named("reading held-out completions", "update.micro_batch"), evaluating(self.model):
            for index in parts:
                out = self.model(batch.rows(index), labels.rows(index), self.weights)
                sums_3 += out.sums_3.double().cpu()
                pieces = out.out_N5.float().cpu().split([len(items[i].labels.verdicts) for i in index.tolist()])
                for i, piece in zip(index.tolist(), pieces, strict=True):
                    outs[i] = piece
            for _ in range(spare):
                self.model(*self._batch([]), self.weights)
        if items:
            counts_3 = counts_of(batch, labels).double().cpu()
        return sums_3, counts_3, outs

    # ------------------------------------------------------------------------------------------------------ the data

    def _split(
        self,
        settings: RewardModelSettings,
        rows: Sequence[Annotated] | None,
        held_out: Sequence[Annotated] | None,
    ) -> tuple[list[Annotated], list[Annotated]]:
        """(rows to learn from, held-out rows)."""
        task = None
        if rows is None or (held_out is None and settings.held_out):
            task = task_of(settings)
        given = list(rows) if rows is not None else self._load(task, "train")
        if not given:
            raise InvalidData("`rows` should hold at least one annotated completion, got none")
        if held_out is not None:
            return given, list(held_out)
        own = settings.held_out_by == "task" or bool(settings.held_out)
        if task is not None and "validation" in task.annotations and own:
            return given, self._load(task, "validation")
        return split_by_prompt(given, settings.validation, settings.seed)

    def _load(self, task: Task | None, split: str) -> list[Annotated]:
        assert task is not None
        loaded = list(task.annotated(split))
        rows = [row for row in loaded if not isinstance(row, Rejected)]
        self.rejected += len(loaded) - len(rows)
        return rows

    def _items(self, rows: Sequence[Annotated], reader: Reader, scale: float) -> list[Item]:
        items, settings = [], self.settings
        encoded = reader.encode_all([row.prompt for row in rows], [row.completion for row in rows])
        for row, text in zip(rows, encoded, strict=True):
            if isinstance(text, InvalidData):
                if settings.too_long == "error":
                    raise InvalidData(f"row {row.id!r}: {text}; set too_long=skip to leave such rows out")
                self.skipped += 1
                continue
            labels = label_tokens(row.critique, row.alignment, text.offsets, self.kind, scale)
            critique = None
            if settings.loss.language:
                critique = reader.critique_ids(row.critique, row.alignment, row.completion)
            items.append(Item(text, labels, critique, Words.of(row.completion, text.offsets)))
        if not items:
            raise InvalidData(f"none of {len(rows)} completions has room in {self._room()}")
        return items

    def _batch(self, items: Sequence[Item]) -> tuple[Batch, LabelBatch]:
        device = self.world.device
        if not items:
            first = torch.zeros(1, dtype=torch.long, device=device)
            return blank(device), LabelBatch(first, first, first + 1, first.float())
        # A critique that does not fit is replaced by an end token that counts nothing.
        critiques = [item.critique or (self.tokenizer.eos_token_id,) for item in items]
        weights = [[float(item.critique is not None)] * len(ids) for item, ids in zip(items, critiques, strict=True)]
        encoded, labels = [item.encoded for item in items], [item.labels for item in items]
        batch = collate_ids([text.ids for text in encoded], critiques, device, loss_weights=weights)
        return batch, label_batch(encoded, device, labels, self.model.calibration.scale)

    def _counts(self) -> dict[str, int]:
        return {
            "data/rows": len(self.items),
            "data/held_out": len(self.held_items),
            "data/skipped": self.skipped,
            "data/without_critique": sum(item.critique is None for item in self.items if self.settings.loss.language),
        }

    def _notes(self) -> Iterator[str]:
        """What a person should know about the data before the first update."""
        rows = (*self.rows, *self.held_out)
        if self.rejected:
            yield f"{self.rejected} rows of task={self.settings.task} could not be read and are left out"
        held = {prompt_key(row) for row in self.held_out}
        if both := sum(prompt_key(row) in held for row in self.rows):
            yield (
                f"{both} of {len(self.rows)} completions to learn from have a prompt that is also held out, so the "
                f"held-out metrics flatter, and thresholds are chosen on them; leave those prompts out of one file"
            )
        unscored = sum(kind_of(row.critique) == "verdicts" for row in rows)
        if unscored and any(kind_of(row.critique) != "verdicts" for row in self.rows):
            yield (
                f"{unscored} of {len(rows)} completions, held-out ones included, have no score, so no scores are "
                f"learned: the model will predict verdicts and severities; leave those rows out to learn scores"
            )
        if self.skipped:
            yield f"{self.skipped} of {len(rows)} completions have no room in {self._room()} and are left out"

    def _room(self) -> str:
        """The settings to change where something does not fit."""
        template = self.model.template
        full = " (all that the model has)" if template.max_tokens < self.settings.template.max_tokens else ""
        return (
            f"template.max_tokens={template.max_tokens}{full} and template.critique_tokens={template.critique_tokens}"
        )

    def close(self) -> None:
        """Let go of the run folder; `train` does so by itself."""
        self.run.close()


def _verdicts(items: Sequence[Item]) -> list[Tensor]:
    return [torch.from_numpy(item.labels.verdicts) for item in items]
