"""Guard rails: does a rising score go with text that falls apart? Is anything learned at all?

Enters: the metrics of each update, which are the same in every process. Leaves: warnings in words, and the reason to
end a run in which nothing can be learned. While the score rises, completions should not shrink to nothing, never end,
become alike, copy their prompts or turn into lists of words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from text2grad.feedback.critics.protocol import name_of
from text2grad.feedback.judge import RewardFunction, columns_of
from text2grad.feedback.settings import MANY_MISSED
from text2grad.training.settings import GuardSettings
from text2grad.types import Example, MetricInfo

METRICS = {
    "critic/without_baseline_frac": MetricInfo(
        "Without a baseline", "Share of tokens left out because their prompt had no other scored completion.", "lower"
    ),
    "advantage/size": MetricInfo("Size of advantages", "Mean absolute advantage of the tokens that are learned from."),
}
SEEN = (
    "align/missed_frac",
    "score/mean",
    "length/mean",
    "length/truncated_frac",
    "text/diversity",
    "text/repetition",
    "text/copied",
    "text/linking",
    "reward/residual_ratio",
    "held_out/score",
    "held_out/std",
)


@dataclass(slots=True)
class Guard:
    """Compares the last updates with the first ones. Its state is plain, and part of a checkpoint."""

    options: GuardSettings
    first: dict[str, list[float]] = field(default_factory=dict)
    last: dict[str, list[float]] = field(default_factory=dict)
    scored: int = 0
    """Updates with a score so far."""
    said: list[str] = field(default_factory=list)
    learned: bool = False
    """Whether any update had something to learn from."""
    idle: int = 0
    """Updates before the first that had something to learn from."""
    nothing: str | None = None
    """Why the last update had nothing to learn from, as a key of `_NOTHING`; None where it had."""

    def see(self, metrics: Mapping[str, Any]) -> list[str]:
        """One update's metrics → warnings that are new."""
        self.scored += "score/mean" in metrics
        for key in SEEN:
            # An update without a score says nothing about what a score goes with.
            if key in metrics and ("score/mean" in metrics or key.startswith("held_out")):
                start, now = self.first.setdefault(key, []), self.last.setdefault(key, [])
                if len(start) < self.options.window:
                    start.append(float(metrics[key]))
                now.append(float(metrics[key]))
                del now[: -self.options.window]
        if self.options.action == "off" or self.scored < 2 * self.options.window:
            return []
        return [words for size in (self.options.window, 1) if self._risen(size) for words in self._told(size)]

    def recent(self, key: str) -> float:
        """Mean of the last window; 0 until there is one."""
        seen = self.last.get(key, [])
        return float(np.mean(seen)) if len(seen) == self.options.window else 0.0

    def first_time(self, kind: str) -> bool:
        """Whether this was never said before; it is now."""
        if kind in self.said:
            return False
        self.said.append(kind)
        return True

    def complaints(
        self,
        metrics: Mapping[str, Any],
        reward_function: RewardFunction,
        examples: Sequence[Example],
        *,
        over: bool = False,
    ) -> list[str]:
        """What the metrics say about the critic, the rewards and the update; each is said once. `over`: it is the last
        update, so there is nothing to wait for."""
        complaints = []
        self.nothing = nothing = _nothing(metrics, scalar=reward_function.scalar)
        self.learned |= nothing is None
        self.idle += not self.learned
        if nothing == "unscored":
            if self.first_time(nothing):
                complaints.append(_unscored(reward_function, examples))
        elif nothing and self._waited(over) and self.first_time("nothing"):
            why, do = _NOTHING[nothing]
            complaints.append(f"nothing could be learned from {self._of_updates()}: {why}. {do}")
        if self.recent("reward/residual_ratio") > 1 and self.first_time("residual"):
            complaints.append(
                "span rewards add variance instead of removing it; set advantage.anchor higher, or scoring.scale lower "
                "if you set it; scoring.slopes=two and scoring.by_length=true may fit this critic better"
            )
        seen = self.last.get("align/missed_frac", [])
        missed = float(np.mean(seen)) if seen and (over or len(seen) == self.options.window) else 0.0
        # Where all were missed, that is said above.
        if missed > MANY_MISSED and nothing != "missed" and self.first_time("quotes"):
            complaints.append(
                f"{missed:.0%} of the critic's quotes were not found in their completions, so their words were not "
                f"learned from: look at `missed` in rollouts.jsonl (docs/alignment.md)"
            )
        if metrics.get("update/skipped") and self.first_time("skipped"):
            complaints.append(
                f"{metrics['update/skipped']:.0f} optimizer steps were skipped, because their gradients were not "
                f"finite: lower update.learning_rate, or look for scores that are out of all proportion"
            )
        return complaints

    def _waited(self, over: bool = False) -> bool:
        return not self.learned and (over or self.idle >= self.options.patience)

    def _of_updates(self) -> str:
        updates = "the first update" if self.idle == 1 else f"the first {self.idle} updates"
        return f"the words of {updates}" if self.nothing == "missed" else updates

    def hopeless(self) -> str | None:
        """Why a run should end in which nothing was ever learned, after `complaints` has seen this update: at once if
        its first update is not scored at all, otherwise after `patience` updates. A run that has learned before may
        just be done, or its critic may come back; it continues."""
        if self.nothing is None or self.learned or self.options.nothing_learned == "warn":
            return None
        if not self._waited() and not (self.nothing == "unscored" and self.idle == 1):
            return None
        return (
            f"nothing could be learned from {self._of_updates()}: {_NOTHING[self.nothing][0]} (the warning above says "
            f"what to do; guard.nothing_learned=warn in a new folder continues all the same)"
        )

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in _STATE:
            setattr(self, name, state[name])

    def _told(self, start: int) -> Iterator[str]:
        """What fell apart since the first `start` updates and was not said before. A collapse within the first window
        spoils its means: then the very first update is what counts, where noise does not explain the difference."""
        rise = "the score rose from {:.3g} to {:.3g} while".format(*self._means("score/mean", start))
        for kind, key, words in self._collapses(start):
            if (start > 1 or (self._clear(key) and self._early(key))) and self.first_time(kind):
                yield f"{rise} {words}; {_DO}"

    def _collapses(self, start: int) -> Iterator[tuple[str, str, str]]:
        """(kind, its key, what happened) of everything that fell apart since the first `start` updates."""
        chosen = self.options
        long_before, long = self._means("length/mean", start)
        if long < chosen.shrink * long_before:
            yield "short", "length/mean", f"completions shrank from {long_before:.3g} to {long:.3g} tokens"
        if long > chosen.grow * long_before:
            yield "long", "length/mean", f"completions grew from {long_before:.3g} to {long:.3g} tokens"
        before, after = self._means("length/truncated_frac", start)
        # From 60 % there is no way up by 50 points: what counts is the share of those that ended before.
        if after - before > max(chosen.truncated * (1 - before), 0.1):
            yield (
                "endless",
                "length/truncated_frac",
                f"completions stopped ending (cut off: {before:.0%}, now {after:.0%})",
            )
        before, after = self._means("text/diversity", start)
        # More text has fewer new pairs of words in it, by about the root of its length, however varied it is.
        expected = before * min(1.0, (long_before / max(long, 1e-9)) ** 0.5)
        if after < chosen.shrink * expected:
            yield "alike", "text/diversity", f"completions became alike (diversity {before:.3g}, now {after:.3g})"
        before, after = self._means("text/repetition", start)
        if after - before > chosen.repetition:
            yield (
                "repeats",
                "text/repetition",
                f"completions began to repeat themselves ({before:.0%} of their tokens, now {after:.0%})",
            )
        yield from self._tricks(start)
        held = self.last.get("held_out/score", [])
        if len(held) > 2:
            begin = self.first["held_out/score"][0]
            floor = begin - chosen.held_out * max(self.first["held_out/std"][0], 1e-9)
            if held[-1] < floor and held[-2] < floor:
                yield "held_out", "held_out/score", f"the held-out score fell from {begin:.3g} to {held[-1]:.3g}"

    def _tricks(self, start: int) -> Iterator[tuple[str, str, str]]:
        """Ways to please a critic without writing. A completion of code has to repeat its signature, an answer some of
        its question: what counts is the difference from the start."""
        chosen = self.options
        if "text/copied" in self.first:
            before, after = self._means("text/copied", start)
            if after - before > max(chosen.copied * (1 - before), 0.1):
                words = f"completions began to copy their prompts ({before:.0%} of their words, now {after:.0%})"
                yield "copies", "text/copied", words
        if "text/linking" in self.first:
            before, after = self._means("text/linking", start)
            if after < chosen.linking * before and before > 0.1:
                words = f"completions became lists of words (linking words {before:.0%}, now {after:.0%})"
                yield "lists", "text/linking", words

    def _means(self, key: str, start: int) -> tuple[float, float]:
        return float(np.mean(self.first[key][:start])), float(np.mean(self.last[key]))

    def _risen(self, start: int) -> bool:
        """By more than two standard errors of the difference between two windows; since a single update, by more than
        noise explains."""
        was, now = self.first["score/mean"][:start], self.last["score/mean"]
        if start == 1:
            return bool(now[-1] > was[0]) and self._clear("score/mean")
        error = ((np.var(was, ddof=1) + np.var(now, ddof=1)) / len(was)) ** 0.5
        return float(np.mean(now) - np.mean(was)) > max(2 * float(error), 1e-9)

    def _early(self, key: str) -> bool:
        """Whether most of the way from the first update to now was gone within the first window."""
        before, after = self._means(key, 1)
        return abs(self.first[key][-1] - before) > abs(after - before) / 2

    def _clear(self, key: str) -> bool:
        """Whether the first update lies further from the last ones than four times what they differ by."""
        before, after = self._means(key, 1)
        noise = float(np.std(self.last[key], ddof=1)) * (1 + 1 / len(self.last[key])) ** 0.5
        return bool(abs(after - before) > max(4 * noise, 1e-9))


_DO = "the critic may be gamed: read the completions, raise kl.coefficient, or give omissions their cost"
_STATE = ("first", "last", "scored", "said", "learned", "idle")
_NOTHING = {
    "unscored": ("the critic scored no completion", ""),  # `_unscored` says what to do
    "missed": (
        "none of the critic's quotes was located in its completion",
        "Quotes should be words of the completion: look at `missed` in rollouts.jsonl (docs/alignment.md). To learn "
        "from its score alone: reward=scalar",
    ),
    "zero": (
        "every token reward was 0: no score differs from 0, and no span was located before the last token",
        "The critic should give a score, or quote the words that it means (docs/critics.md)",
    ),
    "same": (
        "the critic gave every completion the same score, and no span was located",
        "Is this the right critic, and do the examples bring it the columns that it needs (docs/critics.md)?",
    ),
    "advantages": (
        "every advantage was 0: the completions of each prompt were rewarded alike, or only one of them was scored",
        "Raise completions or sampling.temperature, or begin with prompts that are solved sometimes",
    ),
}
"""Kind → why nothing could be learned, and what to do."""


def _unscored(reward_function: RewardFunction, examples: Sequence[Example]) -> str:
    columns = ", ".join(f"`{name}`" for name in columns_of(examples)) or "none"
    reason = reward_function.reason and f" It says: {reward_function.reason}."
    return (
        f"the critic {name_of(reward_function.critic)} scored no completion of this update, so nothing was "
        f"learned.{reason} If it lacks what it judges by: the columns that the examples bring it are: "
        f"{columns} (docs/critics.md says what each critic needs)"
    )


def _nothing(metrics: Mapping[str, Any], *, scalar: bool) -> str | None:
    """Why an update had nothing to learn from; None where it had. `scalar`: rewards need no spans."""
    if metrics["critic/unscored_frac"] == 1:
        return "unscored"
    zero = metrics.get("reward/zero_frac") == 1
    if metrics.get("align/missed_frac") == 1 and (zero or not scalar):
        return "missed"
    if zero:
        return "zero"
    if metrics.get("score/std") == 0 and not metrics.get("align/labelled_frac"):
        return "same"
    return "advantages" if metrics.get("advantage/size") == 0 else None
