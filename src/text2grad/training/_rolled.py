"""One completion of an update with everything known about it, as it is buffered, trained on, counted and logged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from text2grad.feedback.rewards import kind_of, verdict_sum
from text2grad.models.sampling.types import Sampled
from text2grad.training._judge import Judge, score_of, verdicts_of
from text2grad.training.guard import text_stats
from text2grad.types import RewardedCompletion, Rollout


@dataclass(frozen=True, slots=True)
class Rolled:
    """A completion among those of its update."""

    number: int
    """Among all of the update, over all processes."""
    row: RewardedCompletion
    truncated: bool
    rollout: Rollout | None
    """What the optimizer receives; none: not scored, so it is in no loss and in no baseline."""

    @classmethod
    def of(
        cls, number: int, row: RewardedCompletion, sampled: Sampled, prompt_ids: Sequence[int], group: int
    ) -> "Rolled":
        row = replace(row, logprobs_before=sampled.logprobs)
        if not row.scored or row.token_rewards is None:
            return cls(number, row, sampled.truncated, None)
        rollout = Rollout(
            tuple(prompt_ids),
            sampled.token_ids,
            logprobs=sampled.logprobs,
            token_rewards=row.token_rewards,
            values=sampled.values,
            verdicts=verdicts_of(row, ended=not sampled.truncated),
            group=group,
            truncated=sampled.truncated,
        )
        return cls(number, row, sampled.truncated, rollout)

    def seen(self, advantages: Sequence[float], after: Sequence[float]) -> "Rolled":
        """The same, after its update."""
        return replace(self, row=replace(self.row, advantages=tuple(advantages), logprobs_after=tuple(after)))

    def to_json(self) -> dict[str, Any]:
        rollout = None if self.rollout is None else self.rollout.to_json()
        return {"number": self.number, "truncated": self.truncated, "rollout": rollout, "row": self.row.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Rolled":
        rollout = None if data["rollout"] is None else Rollout.from_json(data["rollout"])
        return cls(data["number"], RewardedCompletion.from_json(data["row"]), data["truncated"], rollout)

    def logged(self, update: int) -> dict[str, Any]:
        """The line of rollouts.jsonl."""
        return {"update": update, "index": self.number, "truncated": self.truncated, **self.row.to_json()}


def explained(rolled: Sequence[Rolled], judge: Judge) -> list[Rolled]:
    """Those that are logged, with the words of a critic that writes on demand."""
    rows = judge.explained([one.row for one in rolled])
    return [replace(one, row=row) for one, row in zip(rolled, rows, strict=True)]


def describe(rolled: Sequence[Rolled]) -> dict[str, float]:
    """Numbers about the completions of an update: what was not scored, what was missed, how long and how varied."""
    count = max(len(rolled), 1)
    scored = [one.row for one in rolled if one.row.scored]
    scores = np.array([score_of(row) for row in scored])
    lengths = [len(one.row.completion.token_ids) for one in rolled]
    missed = sum(len(row.alignment.missed) for row in scored if row.alignment)
    located = sum(len(row.alignment.spans) for row in scored if row.alignment)
    labelled = [verdict != 0 for one in rolled if one.rollout for verdict in one.rollout.verdicts or ()]
    found = {
        "critic/unscored_frac": 1 - len(scored) / count,
        "align/missed_frac": missed / max(missed + located, 1),
        "align/labelled_frac": float(np.mean(labelled)) if labelled else 0.0,
        "length/mean": float(np.mean(lengths)) if lengths else 0.0,
        "length/truncated_frac": sum(one.truncated for one in rolled) / count,
        "length/empty_frac": sum(not one.row.completion.text.strip() for one in rolled) / count,
        **text_stats([one.row.completion.token_ids for one in rolled]),
    }
    if scored:
        sums = np.array([sum(row.token_rewards or ()) for row in scored])
        found |= {
            "score/mean": float(scores.mean()),
            "score/std": float(scores.std()),
            "reward/mean": float(sums.mean()),
        }
    return found


def held_out_metrics(everybody: Sequence[Rolled]) -> dict[str, float]:
    """The same numbers about completions of held-out examples."""
    numbers = describe(everybody)
    return {f"held_out/{new}": numbers[old] for old, new in _HELD_OUT.items() if old in numbers}


_HELD_OUT = {
    "score/mean": "score",
    "score/std": "std",
    "length/mean": "length",
    "length/truncated_frac": "truncated_frac",
    "text/diversity": "diversity",
    "text/repetition": "repetition",
    "critic/unscored_frac": "unscored_frac",
}


def residual_ratio(rolled: Sequence[Rolled], unit: float) -> float | None:
    """var(residual) / var(score) where rewards are verdicts times `unit` and the residual, which goes to the last
    token: above 1 the spans add noise, not signal."""
    rows = [o.row for o in rolled if o.row.critique and kind_of(o.row.critique) == "score"]
    if len(rows) < 2:
        return None
    scores = np.array([score_of(row) for row in rows])
    verdicts = np.array([verdict_sum(row.alignment) for row in rows if row.alignment])
    return float((scores - unit * verdicts).var() / scores.var()) if scores.var() > 0 else None


def evenly(numbers: Sequence[int], wanted: int, each: int = 1) -> set[int]:
    """So many of these at most, spread over them; those of a prompt, `each` numbers in a row, stay together: they are
    read side by side, and looked at again for the price of one prompt.

    >>> sorted(evenly(range(10), 3))
    [0, 4, 9]
    >>> sorted(evenly(range(12), 6, each=3))
    [0, 1, 2, 9, 10, 11]
    """
    if wanted >= len(numbers):
        return set(numbers)
    groups = sorted({number // each for number in numbers})
    places = np.linspace(0, len(groups) - 1, min(len(groups), -(-wanted // each)))
    chosen = {groups[int(place)] for place in places}
    return set([number for number in numbers if number // each in chosen][:wanted])
