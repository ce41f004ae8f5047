"""The supervised loop: given completions become likelier; the held-out loss is watched.

From Python: `SFTTrainer(settings, folder, model=…, tokenizer=…, examples=…).train()`; from the shell: `text2grad sft`.
Only completions are trained, their end token included: never a prompt, never an earlier assistant turn.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from text2grad.errors import InvalidData
from text2grad.evaluation.evaluator import Evaluator
from text2grad.evaluation.metrics import metric_infos
from text2grad.evaluation.named import metrics_named
from text2grad.models.chat import Format, completion_ids, end_ids, prompt_ids, turn_end
from text2grad.models.modes import evaluating, memory_named
from text2grad.models.policy import Policy
from text2grad.models.writer import Writer
from text2grad.optim import update as optim_update
from text2grad.optim.batch import Batch, blank, collate_ids
from text2grad.optim.reduce import masked_mean
from text2grad.optim.update import supervised_update
from text2grad.runs import Closable
from text2grad.runs.run import Outcome
from text2grad.tasks.examples import Stream
from text2grad.training.losswatch import LossWatch
from text2grad.training.rollouts import evaluate_once
from text2grad.training.saving import BestWeights, writers_for
from text2grad.training.settings import SFTSettings
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
from text2grad.training.state import Part, TrainingState
from text2grad.types import Example, Message, MetricInfo, Rollout

METRICS = {
    **optim_update.METRICS,
    "held_out/loss": MetricInfo("Held-out loss", "Mean loss per token of the held-out completions.", "lower"),
}


LOGGED = 16
"""Held-out completions per evaluation that go to rollouts.jsonl."""


class Encoded(NamedTuple):
    """A given completion as ids."""

    prompt: list[int]
    completion: list[int]


class SFTTrainer(Closable):
    """One supervised run. Everything that is not given is loaded by the names in the settings."""

    def __init__(
        self,
        settings: SFTSettings,
        folder: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        examples: Sequence[Example] | None = None,
        held_out: Sequence[Example] | None = None,
        callbacks: Sequence[Callback] = (),
        show: bool = False,
        resume_with: str = "",
    ) -> None:
        self.settings = settings
        data = load_data(settings, examples, held_out)
        self.examples, self.held_out = data.examples, data.held_out
        self.metrics = (*data.task.metrics, *metrics_named(settings.metrics))
        self.judges: RewardFunctions | None = None
        """Of held-out completions, where any are asked for."""
        if self.held_out and settings.evaluate_examples:
            self.judges = RewardFunctions(settings, settings.evaluate_critic or data.task.critic, None)
        session = start(
            settings,
            folder,
            command="sft",
            model=model,
            tokenizer=tokenizer,
            data=data.digests | (self.judges.digests if self.judges else {}),
            metrics=METRICS if self.judges is None else METRICS | metric_infos(self.metrics),
            callbacks=[partial(callback, self) for callback in callbacks],
            show=show,
            resume_with=resume_with or (None if data.from_python else ""),
        )
        self.world, self.run, self.tokenizer = session.world, session.run, session.tokenizer
        with self.run.abandoned_on_failure():
            self._build(session.model)

    def _build(self, model: Any) -> None:
        settings = self.settings
        encoder = Encoder(self.tokenizer, model, settings.format, settings.max_tokens, settings.too_long)
        self.rows = [row for (row,) in encoder.all(self.examples, lambda example: (target_of(example),))]
        self.held_rows = [row for (row,) in encoder.all(self.held_out, lambda example: (target_of(example),))]
        self.skipped = encoder.skipped
        self.stream = Stream(self.rows, settings.seed)
        self.updates = settings.updates or math.ceil(settings.epochs * len(self.rows) / settings.update.batch)
        self.policy = Policy(model, settings.policy, value_head=False)
        self.policy.eval()
        self.module = self.world.prepare(self.policy)
        self.optimizer = make_optimizer(self.policy, settings.update)
        self.watch = LossWatch("held_out/loss", settings.patience)
        self.best = BestWeights(self.policy, wanted=settings.save_best and not self.world.sharded)
        parts: dict[str, Part] = {"watch": self.watch, "best": self.best}
        self.evaluator: Evaluator | None = None
        if self.judges is not None:
            held_out = self.held_out[: settings.evaluate_examples]
            self.evaluator = self.judges.evaluator(held_out, self.metrics, self.world)
            sampling = sampling_of(self.run, self.policy, settings.sampling)
            self.writer = Writer(self.policy, self.tokenizer, sampling, settings.format, world=self.world)
        self.state = TrainingState(self.policy, self.optimizer, self.world, parts)

    def train(self) -> Outcome:
        """From where the folder stands to the end; once."""
        run, options = self.run, self.settings.update
        counted = self.judges.counted(run) if self.judges else nullcontext()
        with closing(self), run.working(self.state, self.updates), counted:
            if run.done == 0 and not run.over:
                measured, held_out = self.evaluate(0)
                metrics = {"update": 0, **self._counts(), **measured}
                self.watch.start(metrics)
                run.log(metrics | spent_by(self.judges, run), held_out=held_out)
            for step in run.steps():
                clock = Clock("update")
                rate = set_rate(self.optimizer, step, self.updates, options)
                with clock("update"):
                    rows = share_of(self.stream, step, options.batch, self.world)
                    metrics = {"update": step, **self.update(rows), **rate}
                held_out = []
                if step % self.settings.evaluate_every == 0 or step == self.updates:
                    with clock("evaluate"):
                        measured, held_out = self.evaluate(step)
                    metrics |= measured
                if self.watch.after(metrics, run, options.learning_rate):
                    self.best.keep(step)
                run.log(metrics | clock.metrics() | spent_by(self.judges, run), held_out=held_out)
            return run.finish(partial(writers_for, self))

    def update(self, rows: Sequence[Encoded]) -> dict[str, float]:
        options = self.settings.update
        with learning(self.module):
            return supervised_update(
                self.module,
                self.optimizer,
                self._batch(rows),
                micro_batch=options.micro_batch,
                max_grad_norm=options.max_grad_norm,
                world=self.world,
            )

    def evaluate(self, step: int) -> tuple[dict[str, Any], list[Rollout]]:
        """The mean loss per token of the held-out examples; their greedy completions, judged, where that is asked."""
        measured: dict[str, Any] = {}
        held_out: list[Rollout] = []
        if self.evaluator is not None:
            each = self.settings.evaluate_each
            measured, held_out = evaluate_once(self.run, step, self.evaluator, self.writer, LOGGED, each=each)
        if not self.held_rows:
            return measured, held_out
        batch = self._batch(self.held_rows[self.world.rank :: self.world.size])
        with memory_named("reading held-out examples", "update.micro_batch"), evaluating(self.policy):
            logprobs_BT, _ = self.policy.logprobs_and_values(batch, self.settings.update.micro_batch, self.world)
        return {"held_out/loss": float(masked_mean(-logprobs_BT, batch.mask_BT, self.world)), **measured}, held_out

    def close(self) -> None:
        """Let go of the run folder and of the critic; `train` does so by itself."""
        self.run.close()
        if self.judges is not None:
            self.judges.close()

    def _batch(self, rows: Sequence[Encoded]) -> Batch:
        if not rows:
            return blank()
        return collate_ids([row.prompt for row in rows], [row.completion for row in rows])

    def _counts(self) -> dict[str, int]:
        return {"data/examples": len(self.rows), "data/held_out": len(self.held_rows), "data/skipped": self.skipped}


class Encoder:
    """Prompts and given completions → ids. Nothing is ever cut off: what is too long is an error, or left out."""

    def __init__(self, tokenizer: Any, model: Any, form: Format, max_tokens: int, too_long: str) -> None:
        self.tokenizer, self.form, self.too_long = tokenizer, form, too_long
        self.positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.limit = min(max_tokens, self.positions or max_tokens)
        self.ends = end_ids(tokenizer, model)
        self.skipped = 0
        """Examples that were too long."""
        self._closing: dict[bool, int] = {}

    def all(
        self, examples: Sequence[Example], targets_of: Callable[[Example], Sequence[str]]
    ) -> list[tuple[Encoded, ...]]:
        """One `Encoded` for each target of each example, without the examples that are too long."""
        rows = [row for example in examples if (row := self(example, targets_of(example)))]
        if examples and not rows:
            raise InvalidData(
                f"all {len(examples)} examples are over the limit of {self.limit} tokens; raise max_tokens"
            )
        return rows

    def __call__(self, example: Example, targets: Sequence[str]) -> tuple[Encoded, ...]:
        """One for each target; none where one of them is too long."""
        prompt = prompt_ids(self.tokenizer, example.prompt, self.form)
        end = self._end(example.prompt)
        encoded = tuple(Encoded(prompt, completion_ids(self.tokenizer, target, end)) for target in targets)
        length = len(prompt) + max(len(row.completion) for row in encoded)
        if length <= self.limit:
            return encoded
        if self.too_long == "error":
            raise InvalidData(
                f"example {example.id!r} has {length} tokens and the limit is {self.limit}: raise max_tokens (the "
                f"model has {self.positions} positions), shorten it, or set too_long=skip to leave out all longer ones"
            )
        self.skipped += 1
        return ()

    def _end(self, prompt: str | Sequence[Message]) -> int:
        """The token that closes a completion: asked of the template once for texts and once for conversations."""
        kind = isinstance(prompt, str)
        if kind not in self._closing:
            self._closing[kind] = turn_end(self.tokenizer, prompt, self.ends, self.form)
        return self._closing[kind]


def target_of(example: Example) -> str:
    """What the model should have written."""
    given = example.columns.get("completion", example.reference)
    if not isinstance(given, str) or not given.strip():
        raise InvalidData(
            f"example {example.id!r} should say what the model is to write: a text in `completion` or `reference`, or "
            f"messages that end with an assistant turn; got {given!r:.60}"
        )
    return given
