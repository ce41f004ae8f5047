"""Guard rails: what the completions look like, and whether a rising score goes with text that falls apart.

Enters: token ids of an update's completions, and the metrics of each update. Leaves: numbers, and warnings in words.
METHOD's two failures are what it looks for: answers that shrink to nothing and answers that never end, while the critic
is ever happier. Length, repetition, diversity, KL and score are read together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Lt

from text2grad._checked import Int, Real
from text2grad.config import settings

GRAM = 4
"""Tokens in a row that count as a repetition when they come back in the same completion."""


@settings
class GuardSettings:
    """When a run looks as if it hacks its critic: the score has risen, and the text has fallen apart."""

    action: Literal["warn", "stop", "off"] = "warn"
    """warn: say so once, and in metrics.jsonl. stop: end the run there, with a checkpoint. off: do not look."""
    window: Annotated[Int, Gt(0)] = 5
    """Updates at the start, and now, whose means are compared."""
    shrink: Annotated[Real, Gt(0), Lt(1)] = 0.5
    """Length or diversity below this times that of the start is a collapse."""
    truncated: Annotated[Real, Gt(0)] = 0.5
    """So much more of the completions hitting the length limit than at the start means that they no longer end."""
    repetition: Annotated[Real, Gt(0)] = 0.2
    """So much more of the tokens in repeated stretches than at the start is a collapse."""


def text_stats(completions: Sequence[Sequence[int]]) -> dict[str, float]:
    """Repetition within completions, diversity over all of them; by token ids.

    >>> text_stats([[1, 2, 3, 4, 1, 2, 3, 4], [5, 6]])
    {'text/repetition': 0.2, 'text/diversity': 0.625}
    """
    repeated = stretches = 0
    pairs: list[np.ndarray[Any, Any]] = []
    for ids in completions:
        row = np.asarray(ids, dtype=np.int64)
        if len(row) > 1:
            pairs.append(np.stack([row[:-1], row[1:]], axis=1))
        if len(row) >= GRAM:
            grams = np.lib.stride_tricks.sliding_window_view(row, GRAM)
            stretches += len(grams)
            repeated += len(grams) - len(np.unique(grams, axis=0))
    every = np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64)
    return {
        "text/repetition": repeated / max(stretches, 1),
        "text/diversity": len(np.unique(every, axis=0)) / max(len(every), 1) if len(every) else 1.0,
    }


SEEN = ("score/mean", "length/mean", "length/truncated_frac", "text/diversity", "text/repetition", "held_out/score")


@dataclass(slots=True)
class Watch:
    """Compares the last updates with the first ones. Its state is plain, and part of a checkpoint."""

    options: GuardSettings
    first: dict[str, list[float]] = field(default_factory=dict)
    last: dict[str, list[float]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def see(self, metrics: Mapping[str, Any]) -> list[str]:
        """One update's metrics → warnings that are new."""
        if self.options.action == "off":
            return []
        for key in SEEN:
            if key in metrics:
                start, now = self.first.setdefault(key, []), self.last.setdefault(key, [])
                if len(start) < self.options.window:
                    start.append(float(metrics[key]))
                now.append(float(metrics[key]))
                del now[: -self.options.window]
        found = {kind: words for kind, words in self._look() if kind not in self.said}
        self.said.extend(found)
        return list(found.values())

    def state(self) -> dict[str, Any]:
        return {"first": self.first, "last": self.last, "said": self.said}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.first, self.last, self.said = dict(state["first"]), dict(state["last"]), list(state["said"])

    def _look(self) -> list[tuple[str, str]]:
        scores = self.last.get("score/mean", [])
        if len(scores) < self.options.window or not self._risen("score/mean"):
            return []
        (was, now), chosen = self._means("score/mean"), self.options
        rise = f"the score rose from {was:.3g} to {now:.3g} while"
        found = []
        for key, name in (("length/mean", "length"), ("text/diversity", "diversity")):
            before, after = self._means(key)
            if after < chosen.shrink * before:
                found.append((key, f"{rise} {name} fell from {before:.3g} to {after:.3g}: read the completions; {_DO}"))
        before, after = self._means("length/truncated_frac")
        if after > before + chosen.truncated:
            found.append(
                ("length/truncated_frac", f"{rise} completions stopped ending ({after:.0%} are cut off): {_DO}")
            )
        before, after = self._means("text/repetition")
        if after > before + chosen.repetition:
            found.append(("text/repetition", f"{rise} completions repeat themselves ({after:.0%} of them): {_DO}"))
        if self._fallen("held_out/score"):
            before, after = self._means("held_out/score")
            found.append(("held_out/score", f"{rise} the held-out score fell from {before:.3g} to {after:.3g}: {_DO}"))
        return found

    def _means(self, key: str) -> tuple[float, float]:
        start, now = self.first.get(key, [0.0]), self.last.get(key, [0.0])
        return float(np.mean(start)), float(np.mean(now))

    def _risen(self, key: str) -> bool:
        """More than the updates of a window differ among themselves."""
        was, now = self._means(key)
        spread = float(np.std(self.first[key]) + np.std(self.last[key])) / 2
        return now - was > max(spread, 1e-9)

    def _fallen(self, key: str) -> bool:
        start, now = self.first.get(key, []), self.last.get(key, [])
        return len(now) >= 3 and now[-1] < start[0] and now[-1] < now[-2] < now[-3]


_DO = "the critic may be gamed. Raise kl.coefficient, or give omissions their cost"
