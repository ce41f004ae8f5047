"""Critics made of critics: the first that answers, all of them merged, or a weighted mean.

Each is a critic itself, so they nest. Critics are asked at the same time where the order does not matter. An item that
none of them scores is not scored, and the reason is that of each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from text2grad.errors import CriticError
from text2grad.feedback.critics.protocol import Critic, Critiques, Prompt, ask, ask_all, name_of
from text2grad.types import Critique, Isolation, Quote

_DOUBTFUL = get_args(Isolation)
"""Verdicts about tests, the most doubtful last; several critics' critiques have the most doubtful of theirs."""


@dataclass(frozen=True)
class FirstThatAnswers:
    """The first critic's critique; where it has none, the next one's, and so on. Later critics see what is left."""

    critics: tuple[Critic, ...]

    async def __call__(
        self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]
    ) -> Critiques:
        critiques = Critiques([None] * len(completions))
        for critic in self.critics:
            left = [index for index, critique in enumerate(critiques) if critique is None]
            if not left:
                break
            part = {name: [values[index] for index in left] for name, values in columns.items()}
            new = await ask(critic, [prompts[i] for i in left], [completions[i] for i in left], part)
            for place, (index, critique) in enumerate(zip(left, new, strict=True)):
                critiques[index] = critique
                if critique is None:
                    before = critiques.reasons.get(index, "")
                    critiques.reasons[index] = _reason(before, critic, new.reasons.get(place))
                else:
                    critiques.reasons.pop(index, None)
                    critiques.brought |= {index} if place in new.brought else set()
        return critiques


@dataclass(frozen=True)
class Weighted:
    """Everything that was said; the score is the weighted mean of the critics that gave one.

    A critic that does not answer an item loses its weight for that item only. Severities shrink with the weight: the
    heaviest critic's stay as they are. Prefix quality is kept where a single critic answered, for it is measured at
    that critic's own places.
    """

    critics: tuple[Critic, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        usable = all(math.isfinite(weight) and weight > 0 for weight in self.weights)
        if len(self.critics) != len(self.weights) or not self.critics or not usable:
            raise CriticError(
                f"weighted: wants a weight above 0, and a finite one, for each of its critics, got {self.weights}"
            )

    async def __call__(
        self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]
    ) -> Critiques:
        by_critic = await ask_all(self.critics, prompts, completions, columns)
        joined = Critiques()
        for index, critiques in enumerate(zip(*by_critic, strict=True)):
            reason = ""
            for critic, own in zip(self.critics, by_critic, strict=True):
                reason = _reason(reason, critic, own.reasons.get(index))
            joined.add(self._join(critiques), reason)
        joined.brought = set().union(*(own.brought for own in by_critic))
        return joined

    def _join(self, critiques: tuple[Critique | None, ...]) -> Critique | None:
        pairs = [(critique, weight) for critique, weight in zip(critiques, self.weights, strict=True) if critique]
        if len(pairs) < 2:
            return pairs[0][0] if pairs else None
        heaviest = max(weight for _, weight in pairs)
        scored = [(critique.score, weight) for critique, weight in pairs if critique.score is not None]
        total = sum(weight for _, weight in scored)
        return Critique(
            "\n".join(critique.feedback for critique, _ in pairs),
            _without_doubles([(quote, weight / heaviest) for c, weight in pairs for quote in c.quotes]),
            tuple(dict.fromkeys(omission for critique, _ in pairs for omission in critique.omissions)),
            sum(score * weight for score, weight in scored) / total if scored else None,
            revision=next((critique.revision for critique, _ in pairs if critique.revision), None),
            verdict=max((c.verdict for c, _ in pairs if c.verdict), key=_DOUBTFUL.index, default=None),
            quotes_only=all(critique.quotes_only for critique, _ in pairs),
        )


def merged(*critics: Critic) -> Weighted:
    """Everything that any of them says, all with the same weight."""
    return Weighted(critics, (1.0,) * len(critics))


def _reason(before: str, critic: Critic, reason: str | None) -> str:
    """The reasons of the critics before, and why this one has no critique."""
    return "; ".join(filter(None, (before, f"{name_of(critic)}: {reason or 'gives no reason'}")))


def _without_doubles(quotes: list[tuple[Quote, float]]) -> tuple[Quote, ...]:
    """Quotes, each with its severity times its critic's share of the weight. The same words with the same verdict count
    once, with the highest severity."""
    kept: dict[tuple[object, ...], Quote] = {}
    for quote, share in quotes:
        place, severity = (quote.text, quote.start, quote.verdict), (quote.severity or 1.0) * share
        if place not in kept or severity > (kept[place].severity or 1.0):
            kept[place] = quote if share == 1.0 else replace(quote, severity=severity)
    return tuple(kept.values())
