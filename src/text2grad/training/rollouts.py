"""Rollouts of an update: sampled and judged, or taken from what a killed run kept.

Enters: the number of an update. Leaves: everybody's rollouts and this process's own, in the same order for any number
of processes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from text2grad._checked import shorten
from text2grad.errors import RunError, first_line
from text2grad.evaluation.evaluator import Evaluator, judged
from text2grad.evaluation.metrics import each_of
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.rewards import Scale, earned_by_spans, kind_of, prices_of
from text2grad.feedback.scales import among_prompts
from text2grad.feedback.settings import Scoring
from text2grad.models.sampling import Seed
from text2grad.models.writer import Writer
from text2grad.runs.run import Run
from text2grad.runs.world import World
from text2grad.tasks.examples import Stream
from text2grad.training.setup import Clock
from text2grad.training.state import random_states, restore_random_states
from text2grad.types import Example, MetricInfo, Rollout

METRICS = {
    "reward/scale_poor": MetricInfo(
        "Cost of a poor verdict", "With `scoring.slopes=two`: what one poor span costs, in the units of the score."
    ),
    "reward/scale_length": MetricInfo(
        "Reward of length",
        "With `scoring.by_length=true`: what a span over the whole text would earn for its length; with "
        "`scoring.slopes=two`, a good one.",
    ),
    "reward/scale_poor_length": MetricInfo(
        "Cost of a poor length",
        "With `scoring.by_length=true` and `scoring.slopes=two`: what a poor span over the whole text would cost for "
        "its length.",
    ),
    "reward/scale": MetricInfo(
        "Reward of a verdict",
        "What one good or poor span earns, in the units of the score; with `scoring.slopes=two`, a good one.",
    ),
    "reward/spread": MetricInfo("Reward unit", "Running standard deviation of the score: rewards are divided by it."),
    "reward/residual_ratio": MetricInfo(
        "Residual ratio",
        "Variance of the score that spans leave unexplained, divided by its variance, both among the completions of a "
        "prompt. Above 1 the spans add noise.",
        "lower",
    ),
}


class Meanwhile(Protocol):
    """What a GPU can begin with while completions are judged."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]], groups: Sequence[int], valued: bool
    ) -> object:
        """Ids of prompts and completions, the prompt's number of each, and whether all have values already."""


class SampleAndJudge:
    """Samples and judges; what was paid for is kept until the next checkpoint."""

    def __init__(
        self,
        stream: Stream[Example],
        writer: Writer,
        reward_function: RewardFunction,
        run: Run,
        *,
        prompts: int,
        completions: int,
        seed: int,
    ) -> None:
        self.stream, self.writer, self.reward_function, self.run = stream, writer, reward_function, run
        self.prompts, self.completions, self.seed = prompts, completions, seed
        self.world: World = run.world

    def __call__(
        self, step: int, clock: Clock, meanwhile: Meanwhile = lambda *_: None
    ) -> tuple[list[Rollout], list[Rollout]]:
        """The rollouts of an update: (everybody's, this process's). `meanwhile` is called with this process's once they
        are sampled."""
        kept, indices = self.run.kept(step), set(self._indices())
        if kept is None:
            rollouts = self._anew(step, clock, meanwhile)
        else:
            with _usable(self.run, f"update {step}"):
                rollouts = self._read(step, kept)
                self.reward_function.running_scale.restore(_numbers(kept["scale"]))
                self.reward_function.running_spread.restore(_numbers(kept["spread"]))
                self.reward_function.reason = kept["reason"]
                restore_random_states(kept["random"][self.world.rank])
        mine = [rollout for rollout in rollouts if rollout.index in indices]
        if kept is not None:
            texts = [one.completion.token_ids for one in mine]
            valued = all(one.values is not None for one in mine)
            meanwhile([one.prompt_ids for one in mine], texts, [one.group for one in mine], valued)
        return rollouts, mine

    def _read(self, step: int, kept: Mapping[str, Any]) -> list[Rollout]:
        """What was kept; it has to be of this very update."""
        rollouts = [Rollout.from_json(row) for row in kept["rollouts"]]
        wanted = [(index, index // self.completions) for index in range(self.prompts * self.completions)]
        if [(rollout.index, rollout.group) for rollout in rollouts] != wanted:
            raise RunError(
                f"{self.run.path}/buffer: what was kept of update {step} holds {len(rollouts)} completions in other "
                f"groups than {self.prompts} x {self.completions}; delete it to sample and judge this update again"
            )
        return rollouts

    def _anew(self, step: int, clock: Clock, meanwhile: Meanwhile) -> list[Rollout]:
        indices = self._indices()
        first, groups = (step - 1) * self.prompts, [index // self.completions for index in indices]
        examples = [self.stream.at(first + group) for group in groups]
        with clock("sample"):
            # Tests run beside sampling, on what has ended.
            begin = self.reward_function.begin if self.reward_function.begins else None
            prompts, samples = self.writer.sample(examples, Seed(self.seed, step, indices), begin)
        valued = all(sample.values is not None for sample in samples)
        meanwhile(prompts, [sample.token_ids for sample in samples], groups, valued)
        with clock("sample"):
            written = self.writer.rollouts(examples, prompts, samples)
        written = [
            replace(rollout, index=index, group=group)
            for index, group, rollout in zip(indices, groups, written, strict=True)
        ]
        mine = judged(self.reward_function, written, learn=True, world=self.world)
        clock.add(self.reward_function.seconds)
        everybody = [rollout for part in self.world.all_gather(mine) for rollout in part]
        everybody.sort(key=lambda rollout: rollout.index)
        self.reward_function.reason = self.world.broadcast(self.reward_function.reason)
        random = self.world.all_gather(random_states())
        if self.world.is_main:
            self.run.keep(
                step,
                {
                    "rollouts": [rollout.to_json() for rollout in everybody],
                    "scale": self.reward_function.running_scale.state(),
                    "spread": self.reward_function.running_spread.state(),
                    "reason": self.reward_function.reason,
                    "random": random,
                },
            )
        return everybody

    def _indices(self) -> list[int]:
        """Of the completions that this process samples; the completions of a prompt stay together."""
        prompts = range(self.world.rank, self.prompts, self.world.size)
        return [prompt * self.completions + turn for prompt in prompts for turn in range(self.completions)]


def evaluate_once(
    run: Run,
    step: int,
    evaluator: Evaluator,
    writer: Writer,
    most: int,
    explain: Callable[[list[Rollout]], list[Rollout]] = list,
    *,
    each: bool = False,
) -> tuple[dict[str, Any], list[Rollout]]:
    """Held-out examples, completed greedily and judged: metrics, and at most so many rollouts to log, explained. Kept
    until the next checkpoint: a resume does not pay for them again. `each`: with the numbers of every completion."""
    reward, world, kept = evaluator.reward_function, run.world, run.kept(step, "evaluation")
    if kept is not None:
        with _usable(run, f"the evaluation at update {step}"):
            reward.reason = kept["reason"]
            restore_random_states(kept["random"][world.rank])
            return {**kept["metrics"]}, [Rollout.from_json(row) for row in kept["rollouts"]]
    evaluation = evaluator.greedy(writer)
    metrics: dict[str, Any] = dict(evaluation.metrics)
    if each:
        metrics["held_out/each"] = each_of(evaluation.rollouts, evaluator.metrics)
    logged = explain(evaluation.rollouts[:most]) if world.is_main else []
    kept = {"metrics": metrics, "rollouts": [rollout.to_json() for rollout in logged], "reason": reward.reason}
    run.keep(step, kept | {"random": world.all_gather(random_states())}, "evaluation")
    return metrics, logged


@contextmanager
def _usable(run: Run, what: str) -> Iterator[None]:
    """Refuse what was kept, in one line, where it is not of the shape that is written."""
    try:
        yield
    except RunError:
        raise
    # Rollouts, and the states of three random generators: each refuses in its own way.
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as problem:
        raise RunError(
            f"{run.path}/buffer: what was kept of {what} cannot be used ({first_line(problem, named=True)}); delete it "
            f"to sample and judge again"
        ) from problem


def _numbers(values: Any) -> list[float]:
    if not (isinstance(values, list) and all(isinstance(value, int | float) for value in values)):
        raise TypeError(f"should be a list of numbers, got {shorten(values)}")
    return values


def price_metrics(scale: Scale, scoring: Scoring) -> dict[str, float]:
    """What verdicts are worth: each number that these settings learn."""
    good, poor, good_length, poor_length = prices_of(scale)
    found = {"reward/scale": good}
    if scoring.slopes == "two":
        found["reward/scale_poor"] = poor
    if scoring.by_length:
        found["reward/scale_length"] = good_length
        if scoring.slopes == "two":
            found["reward/scale_poor_length"] = poor_length
    return found


def residual_ratio(rollouts: Sequence[Rollout], scale: Scale) -> float | None:
    """var(residual) / var(score), among the completions of a prompt, where rewards are verdicts times `scale` and the
    residual goes to the last token. Above 1 the spans add noise, not signal."""
    pairs, prompts = [], []
    for rollout in rollouts:
        critique, alignment = rollout.critique, rollout.alignment
        if critique and alignment and rollout.score is not None and kind_of(critique) == "score":
            pairs.append((rollout.score, earned_by_spans(alignment, scale, len(rollout.completion.text))))
            prompts.append(rollout.example.id)
    if len(pairs) < 2:
        return None
    # Where every prompt has one completion, all are taken together, as for the prices.
    scores, earned = np.array(among_prompts(pairs, prompts) or pairs).T
    return float((scores - earned).var() / scores.var()) if scores.var() > 0 else None


def evenly(indices: Sequence[int], wanted: int, each: int = 1) -> set[int]:
    """At most this many of the indices, spread over them. Those of a prompt, `each` in a row, stay together: they are
    read side by side, and looked at again for the price of one prompt.

    >>> sorted(evenly(range(10), 3))
    [0, 4, 9]
    >>> sorted(evenly(range(12), 6, each=3))
    [0, 1, 2, 9, 10, 11]
    """
    if wanted >= len(indices):
        return set(indices)
    groups = sorted({index // each for index in indices})
    places = np.linspace(0, len(groups) - 1, min(len(groups), -(-wanted // each)))
    chosen = {groups[int(place)] for place in places}
    return set([index for index in indices if index // each in chosen][:wanted])
