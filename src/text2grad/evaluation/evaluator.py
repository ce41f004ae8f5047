"""Examples → completions → critiques → metrics: how good a policy is. The training loop and `text2grad evaluate` share
this code.

    evaluator = Evaluator(task.examples("validation"), reward_function, metrics=task.metrics)
    greedy    = evaluator.greedy(write)                    # one completion per example, the likeliest tokens
    samples   = evaluator.samples(write, 8, seed=0)        # eight per example
    best      = evaluator.best_of(samples, 8)              # of each eight the one that a critic scores highest

Enters: `write(examples, seed)`, which completes examples and knows models and tokenizers. Leaves: an `Evaluation`. No
torch, and nothing is learned here. With several processes each one completes and judges its share; all of them get the
same result, which does not depend on their number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from text2grad.errors import InvalidData
from text2grad.evaluation.metrics import check_metrics, measured
from text2grad.feedback.judge import RewardFunction
from text2grad.models.sampling import Seed
from text2grad.runs.world import ALONE, World
from text2grad.tasks.task import Metric
from text2grad.types import Example, Rollout

Write = Callable[[Sequence[Example], Seed | None], list[Rollout]]
"""Examples → one rollout for each, not judged yet. No seed: greedy."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured, and what it was measured on."""

    metrics: Mapping[str, float]
    rollouts: list[Rollout]
    """Of all processes, in the order of the examples; `group` is the number of the example."""


class Evaluator:
    """Measures completions of the same examples, again and again."""

    def __init__(
        self,
        examples: Sequence[Example],
        reward_function: RewardFunction,
        *,
        metrics: Sequence[Metric] = (),
        training_critic: RewardFunction | None = None,
        chooser: RewardFunction | None = None,
        world: World = ALONE,
    ) -> None:
        """`reward_function`: the critic that measures. `training_critic`: where it is another one, its mean score is
        reported as `critic_score`. `chooser`: the critic that picks in `best_of`; None: the one that measures."""
        if not examples:
            raise InvalidData("an evaluation wants at least one example, got none")
        check_metrics(metrics)
        self.examples = list(examples)
        self.reward_function, self.training_critic, self.chooser = reward_function, training_critic, chooser
        self.metrics, self.world = tuple(metrics), world

    def greedy(self, write: Write, prefix: str = "held_out") -> Evaluation:
        """One completion per example."""
        return self._evaluated(self._written(write, 1, None), prefix)

    def samples(self, write: Write, count: int, *, seed: int) -> Evaluation:
        """`count` sampled completions per example. The same seed gives the same ones."""
        return self._evaluated(self._written(write, count, seed), "samples")

    def best_of(self, samples: Evaluation, count: int) -> Evaluation:
        """Of the first `count` completions of each example, the one that the choosing critic scores highest; the first
        of them where several are equal. One without a score is chosen only where none has one."""
        groups: dict[int, list[Rollout]] = {}
        for rollout in samples.rollouts:
            groups.setdefault(rollout.group, []).append(rollout)
        if (fewest := min(map(len, groups.values()))) < count:
            raise InvalidData(f"the best of {count} wants so many completions of each example, got {fewest}")
        candidates = [rollout for group in groups.values() for rollout in group[:count]]
        scores = self._scores(self.chooser, candidates) if self.chooser else [rollout.score for rollout in candidates]
        worth = [-np.inf if score is None else score for score in scores]
        starts = range(0, len(candidates), count)
        best = [candidates[start + int(np.argmax(worth[start : start + count]))] for start in starts]
        return self._measured(best, "best_of")

    def reflection(
        self, first: Evaluation, again: Callable[[Sequence[Rollout]], list[Rollout]], prefix: str = "reflection"
    ) -> Evaluation:
        """Every completion of `first` written again in sight of its critique, by `again`; judged like any other."""
        mine = first.rollouts[self.world.rank :: self.world.size]
        places = [(rollout.group, rollout.index) for rollout in mine]
        written = [
            replace(rollout, group=group, index=index)
            for (group, index), rollout in zip(places, again(mine), strict=True)
        ]
        return self._evaluated(written, prefix)

    def _written(self, write: Write, count: int, seed: int | None) -> list[Rollout]:
        """This process's share, not judged; the completions of an example stay together."""
        groups = range(self.world.rank, len(self.examples), self.world.size)
        numbers = [(group, group * count + turn) for group in groups for turn in range(count)]
        drawn = None if seed is None else Seed(seed, 0, [index for _, index in numbers])
        written = write([self.examples[group] for group, _ in numbers], drawn)
        return [
            replace(rollout, group=group, index=index) for (group, index), rollout in zip(numbers, written, strict=True)
        ]

    def _evaluated(self, mine: Sequence[Rollout], prefix: str) -> Evaluation:
        judged_here = judged(self.reward_function, mine)
        everybody = [rollout for part in self.world.all_gather(judged_here) for rollout in part]
        return self._measured(sorted(everybody, key=lambda rollout: rollout.index), prefix)

    def _measured(self, rollouts: list[Rollout], prefix: str) -> Evaluation:
        numbers = measured(rollouts, self.metrics, prefix)
        if self.training_critic is not None:
            scores = [score for score in self._scores(self.training_critic, rollouts) if score is not None]
            if scores:
                numbers[f"{prefix}/critic_score"] = float(np.mean(scores))
        return Evaluation(numbers, rollouts)

    def _scores(self, critic: RewardFunction, rollouts: Sequence[Rollout]) -> list[float | None]:
        """What another critic says of these; each process asks about its share."""
        mine = range(self.world.rank, len(rollouts), self.world.size)
        verdicts = judged(critic, [rollouts[place] for place in mine])
        scores: dict[int, float | None] = {}
        for part in self.world.all_gather({place: said.score for place, said in zip(mine, verdicts, strict=True)}):
            scores |= part
        return [scores[place] for place in range(len(rollouts))]


def judged(
    critic: RewardFunction, rollouts: Sequence[Rollout], *, learn: bool = False, world: World = ALONE
) -> list[Rollout]:
    """The same rollouts with critique, spans and rewards. `learn`: let the scale of verdicts see them."""
    verdicts = critic(
        [rollout.example for rollout in rollouts],
        [rollout.completion for rollout in rollouts],
        truncated=[rollout.truncated for rollout in rollouts],
        learn=learn,
        world=world,
    )
    return [
        replace(
            rollout,
            critique=said.critique,
            alignment=said.alignment,
            token_rewards=said.token_rewards,
            verdicts=said.verdicts,
            score=said.score,
        )
        for rollout, said in zip(rollouts, verdicts, strict=True)
    ]
