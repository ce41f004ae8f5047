"""The preference loop: of two completions of a prompt, the chosen one becomes likelier than the rejected one (DPO).

    for step in run.steps():
        pairs = from a file, or the best and the worst of the policy's own samples by a critic's score
        stats = preference_update(policy, batch of both, reference log-probs)

From Python: `DPOTrainer(settings, folder, model=…, tokenizer=…, examples=…, critic=…).train()`; from the shell:
`text2grad dpo`. The baseline that uses of a critique only which completion is better.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from text2grad.errors import ConfigError, InvalidData
from text2grad.evaluation.evaluator import Evaluator
from text2grad.evaluation.metrics import RUNNING, describe, metric_infos
from text2grad.evaluation.named import metrics_named
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.judge import columns_of
from text2grad.models.modes import evaluating, memory_named
from text2grad.models.parallel import shard
from text2grad.models.policy import Policy
from text2grad.models.writer import Writer
from text2grad.optim import update as optim_update
from text2grad.optim.batch import Batch, blank, collate_ids
from text2grad.optim.losses import find_preference_loss
from text2grad.optim.update import preference_update
from text2grad.runs import Closable
from text2grad.runs.run import Outcome
from text2grad.tasks.examples import Stream
from text2grad.tasks.task import Metric
from text2grad.training.losswatch import LossWatch
from text2grad.training.rollouts import SampleAndJudge, evaluate_once, evenly
from text2grad.training.saving import BestWeights, writers_for
from text2grad.training.settings import DPOSettings
from text2grad.training.setup import (
    Callback,
    Clock,
    RewardFunctions,
    learning,
    load_data,
    make_optimizer,
    sampling_of,
    set_rate,
    share_of,
    spent_by,
    start,
)
from text2grad.training.sft import Encoded, Encoder
from text2grad.training.state import TrainingState
from text2grad.types import Example, MetricInfo, Rollout

METRICS = {
    **optim_update.METRICS,
    "held_out/loss": MetricInfo("Held-out loss", "Mean preference loss of the held-out pairs.", "lower"),
    "held_out/accuracy": MetricInfo(
        "Held-out accuracy",
        "Share of held-out pairs whose chosen completion gained more than the rejected one.",
        "higher",
    ),
    "pairs/frac": MetricInfo("Prompts with a pair", "Share of prompts with two different scores among its samples."),
}
Pair = tuple[Encoded, ...]
"""The chosen and the rejected completion of a prompt."""


NO_PAIR = "no prompt of update {} gave a pair: all scores of a prompt are equal, or nothing was scored"


class Warned:
    """What has been said, and is not said again. Part of a checkpoint."""

    def __init__(self) -> None:
        self.without_pairs = False

    def state(self) -> dict[str, Any]:
        return {"without_pairs": self.without_pairs}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.without_pairs = state["without_pairs"]


class DPOTrainer(Closable):
    """One preference run. Everything that is not given is loaded by the names in the settings."""

    def __init__(
        self,
        settings: DPOSettings,
        folder: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        examples: Sequence[Example] | None = None,
        held_out: Sequence[Example] | None = None,
        critic: Critic | None = None,
        metrics: Sequence[Metric] = (),
        callbacks: Sequence[Callback] = (),
        show: bool = False,
        resume_with: str = "",
    ) -> None:
        self.settings, self.loss = settings, find_preference_loss(settings.loss)
        if settings.pairs == "samples" and settings.completions < 2:
            raise ConfigError(f"pairs=samples wants completions of at least 2, got {settings.completions}")
        data = load_data(settings, examples, held_out)
        self.examples, self.held_out = data.examples, data.held_out
        self.metrics = (*data.task.metrics, *metrics_named(settings.metrics), *metrics)
        self.judges: RewardFunctions | None = None
        """Of the policy's own samples; None where pairs are given."""
        if settings.pairs == "samples":
            named = critic if critic is not None else settings.critic or data.task.critic
            self.judges = RewardFunctions(settings, named, settings.evaluate_critic)
        from_python = data.from_python or critic is not None or bool(metrics)
        session = start(
            settings,
            folder,
            command="dpo",
            model=model,
            tokenizer=tokenizer,
            data=data.digests | (self.judges.digests if self.judges else {}),
            metrics=RUNNING | METRICS | metric_infos(self.metrics),
            callbacks=[partial(callback, self) for callback in callbacks],
            show=show,
            resume_with=resume_with or (None if from_python else ""),
        )
        self.world, self.run, self.tokenizer = session.world, session.run, session.tokenizer
        with self.run.abandoned_on_failure():
            self._build(session.model)

    def _build(self, model: Any) -> None:
        settings, world = self.settings, self.world
        # Given pairs were not sampled here: they are compared under the plain model.
        temperature = settings.sampling.temperature if self.judges else 1.0
        self.policy = Policy(model, settings.policy, value_head=False, temperature=temperature)
        self.reference = self.policy.reference()
        self.policy.eval()
        self.module = world.prepare(self.policy)
        if world.sharded and self.reference.copy is not None:
            shard(self.reference.copy)
        self.optimizer = make_optimizer(self.policy, settings.update)
        self.evaluator: Evaluator | None = None
        self.pairs: list[Pair] = []
        self.held_pairs: list[Pair] = []
        self.skipped = 0
        if self.judges is None:
            self._encode(model)
        else:
            self._sample_with(self.judges)
        number = len(self.pairs) or len(self.examples)
        self.updates = settings.updates or math.ceil(settings.epochs * number / settings.update.batch)
        self.watch = LossWatch("held_out/loss", settings.patience)
        self.warned = Warned()
        self.best = BestWeights(self.policy, wanted=settings.save_best and not world.sharded)
        parts: dict[str, Any] = {"watch": self.watch, "warned": self.warned, "best": self.best}
        if self.judges is not None:
            parts["scale"] = self.judges.training.running_scale
            parts["spread"] = self.judges.training.running_spread
        self.state = TrainingState(self.policy, self.optimizer, world, parts)

    def _encode(self, model: Any) -> None:
        """Pairs from the examples' columns."""
        settings = self.settings
        encoder = Encoder(self.tokenizer, model, settings.format, settings.max_tokens, settings.too_long)
        self.pairs = encoder.all(self.examples, chosen_and_rejected)
        self.held_pairs = encoder.all(self.held_out, chosen_and_rejected)
        self.skipped, self.stream = encoder.skipped, Stream(self.pairs, settings.seed)

    def _sample_with(self, judges: RewardFunctions) -> None:
        """Pairs from the policy's own samples, and an evaluation by the same critic, or another."""
        settings, world = self.settings, self.world
        sampling = sampling_of(self.run, self.policy, settings.sampling)
        self.writer = Writer(self.policy, self.tokenizer, sampling, settings.format, world=world)
        self.sample_and_judge = SampleAndJudge(
            Stream(self.examples, settings.seed),
            self.writer,
            judges.training,
            self.run,
            prompts=settings.update.batch,
            completions=settings.completions,
            seed=settings.seed,
        )
        held_out = self.held_out[: settings.evaluate_examples]
        for example in (*self.examples, *held_out):
            self.writer.prompt(example)
        self.evaluator = judges.evaluator(held_out, self.metrics, world)

    def train(self) -> Outcome:
        """From where the folder stands to the end; once."""
        run, options = self.run, self.settings.update
        counted = self.judges.counted(run) if self.judges else nullcontext()
        with closing(self), run.working(self.state, self.updates), counted:
            if run.done == 0 and not run.over:
                measured, held_out = self.evaluate(0)
                metrics = {"update": 0, **self._counts(), **measured}
                self.watch.start(metrics)
                self.best.see(metrics)
                run.log(metrics | spent_by(self.judges, run), held_out=held_out)
            for step in run.steps():
                clock = Clock("sample", "critic", "align", "update")
                rate = set_rate(self.optimizer, step, self.updates, options)
                pairs, metrics, logged = self.next_pairs(step, clock)
                with clock("update"):
                    metrics |= self.update(pairs) | rate
                held_out = []
                if step % self.settings.evaluate_every == 0 or step == self.updates:
                    with clock("evaluate"):
                        measured, held_out = self.evaluate(step)
                    metrics |= measured
                if self.watch.after(metrics, run, options.learning_rate):
                    self.best.keep(step)
                self.best.see(metrics)
                if metrics.get("pairs/frac") == 0 and not self.warned.without_pairs:
                    self.warned.without_pairs = True
                    metrics["warnings"] = [NO_PAIR.format(step)]
                    run.note(NO_PAIR.format(step))
                run.log(metrics | clock.metrics() | spent_by(self.judges, run), logged, held_out)
            return run.finish(partial(writers_for, self))

    def next_pairs(self, step: int, clock: Clock) -> tuple[list[Pair], dict[str, Any], list[Rollout]]:
        """(this process's pairs, metrics of what they were made from, rollouts to log)."""
        size, each = self.settings.update.batch, self.settings.completions
        if self.judges is None:
            return share_of(self.stream, step, size, self.world), {"update": step}, []
        everybody, mine = self.sample_and_judge(step, clock)
        pairs = best_and_worst(mine)
        number = sum(self.world.all_gather(len(pairs)))
        metrics = {"update": step, **describe(everybody), "pairs/frac": number / size}
        chosen = evenly([rollout.index for rollout in everybody], self.settings.log.rollouts, each)
        return pairs, metrics, [rollout for rollout in everybody if rollout.index in chosen]

    def update(self, pairs: Sequence[Pair]) -> dict[str, float]:
        if not self.world.all_max(len(pairs)):
            # Every prompt's samples have the same score: nothing to prefer.
            return {"update/pairs": 0.0}
        options = self.settings.update
        batch = self._batch(pairs)
        with learning(self.module):
            return preference_update(
                self.module,
                self.optimizer,
                batch,
                self.loss,
                beta=self.settings.beta,
                micro_batch=options.micro_batch,
                max_grad_norm=options.max_grad_norm,
                world=self.world,
            )

    def evaluate(self, step: int) -> tuple[dict[str, Any], list[Rollout]]:
        """Held-out pairs: loss and accuracy. Or held-out examples, completed greedily and judged."""
        if self.evaluator is not None:
            most, each = self.settings.log.rollouts, self.settings.evaluate_each
            return evaluate_once(self.run, step, self.evaluator, self.writer, most, each=each)
        if not self.held_pairs:
            return {}, []
        batch, size = self._batch(self.held_pairs[self.world.rank :: self.world.size]), self.settings.update.micro_batch
        with memory_named("reading held-out pairs", "update.micro_batch"), evaluating(self.policy):
            own_BT, _ = self.policy.logprobs_and_values(batch, size, self.world)
        assert batch.reference_BT is not None
        moved_B = ((own_BT - batch.reference_BT) * batch.loss_weights_BT).sum(1)
        count = len(moved_B) // 2  # a blank batch, of a process that has no pair, has one row
        moved_P2 = moved_B[: 2 * count].view(count, 2)
        margin_P = moved_P2[:, 0] - moved_P2[:, 1]
        sums_3 = torch.stack(
            [
                self.loss(margin_P, self.settings.beta).sum(),
                (margin_P > 0).sum().float(),
                torch.tensor(float(len(margin_P)), device=margin_P.device),
            ]
        )
        loss, right, number = self.world.all_sum(sums_3).tolist()
        return {"held_out/loss": loss / max(number, 1), "held_out/accuracy": right / max(number, 1)}, []

    def close(self) -> None:
        """Let go of the run folder and of the critic; `train` does so by itself."""
        self.run.close()
        if self.judges is not None:
            self.judges.close()

    def _batch(self, pairs: Sequence[Pair]) -> Batch:
        """Chosen and rejected in turn, with the reference's log-probs."""
        rows = [row for pair in pairs for row in pair]
        batch = collate_ids([row.prompt for row in rows], [row.completion for row in rows]) if rows else blank()
        with memory_named("reading completions", "update.micro_batch"), evaluating(self.policy):
            reference_BT = self.reference.logprobs(batch, self.settings.update.micro_batch, self.world)
        return replace(batch, reference_BT=reference_BT)

    def _counts(self) -> dict[str, int]:
        counted = self.pairs or self.examples
        held = self.evaluator.examples if self.evaluator is not None else self.held_pairs
        return {"data/examples": len(counted), "data/held_out": len(held), "data/skipped": self.skipped}


def best_and_worst(rollouts: Sequence[Rollout]) -> list[Pair]:
    """Of each prompt the completion with the highest score and the one with the lowest, where they differ; the first of
    several with the same score."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.score is not None:
            groups.setdefault(rollout.group, []).append(rollout)
    pairs = []
    for group in groups.values():
        best = max(group, key=lambda rollout: (rollout.score, -rollout.index))
        worst = min(group, key=lambda rollout: (rollout.score, rollout.index))
        if best.score != worst.score:
            pairs.append(tuple(Encoded(list(r.prompt_ids), list(r.completion.token_ids)) for r in (best, worst)))
    return pairs


def chosen_and_rejected(example: Example) -> tuple[str, str]:
    """The two completions of a pair: texts, or message lists that end with the assistant's turn."""
    texts = []
    for name in ("chosen", "rejected"):
        given = example.columns.get(name)
        if isinstance(given, list) and given and isinstance(given[-1], dict):
            given = given[-1].get("content")
        if not isinstance(given, str) or not given.strip():
            there = ", ".join(f"`{column}`" for column in columns_of([example])) or "none"
            raise InvalidData(
                f"example {example.id!r} should have a text in `{name}`; its columns are: {there}. To make pairs from "
                f"a critic's scores instead: pairs=samples critic=NAME"
            )
        texts.append(given)
    if texts[0] == texts[1]:
        raise InvalidData(f"example {example.id!r} has the same text in `chosen` and `rejected`: nothing is preferred")
    return texts[0], texts[1]
