"""What may help alignment: two callables, and a memory that asks each of them about many pairs at once.

Enters: questions that a critique leaves open. Leaves: answers, and for a locator's quotes the spans that they earn.
What a helper says is checked here and in `locate`: a quote that is not in the completion lands nowhere, and no helper
turns blame into praise.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align import locate as rungs
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import Place, Text
from text2grad.types import Missed, Quote, Span, Verdict

Q = TypeVar("Q")
A = TypeVar("A")

INVENTED = "quoted by the locator, not in the completion"
_TRUST = 0.9
"""Confidence of an exact quote that a model picked: its place is certain, that it is the one meant is not."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a critique leaves open once its own quotes are located."""

    completion: str
    critique: str
    source: str | None = None


Embedder = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → one row each, of length one. Lives in `models`; here it is only called."""
Locate = Callable[[Sequence[Question]], Sequence[Sequence[Quote]]]
"""Questions → for each, quotes of its completion, with words of the critique as their comment. Where there are none,
the ladder aligns the critique by itself."""


@dataclass(frozen=True, slots=True)
class Helpers:
    """Each may be left out."""

    embed: Embedder | None = None
    locate: Locate | None = None


NO_HELP = Helpers()


@dataclass
class _Memo(Generic[Q, A]):
    """Answers by question. What is not known yet is noted, and answered with `nothing`."""

    ask: Callable[[Sequence[Q]], Iterable[A]]
    nothing: A
    known: dict[Q, A] = field(default_factory=dict)
    wanted: dict[Q, None] = field(default_factory=dict)
    unanswered: int = 0
    """Times that `nothing` was the answer for want of a better one."""

    def __call__(self, questions: Sequence[Q]) -> list[A]:
        new = [question for question in questions if question not in self.known]
        self.wanted.update(dict.fromkeys(new))
        self.unanswered += len(new)
        return [self.known.get(question, self.nothing) for question in questions]

    def learn(self, answers: Iterable[A]) -> None:
        self.known.update(zip(self.wanted, answers, strict=True))
        self.wanted.clear()

    def settle(self) -> None:
        if self.wanted:
            self.learn(self.ask(list(self.wanted)))

    async def settle_async(self) -> None:
        """A helper with an async `ask` is awaited, so that whoever waits can be interrupted."""
        later: Callable[[Sequence[Q]], Awaitable[Iterable[A]]] | None = getattr(self.ask, "ask", None)
        if later is None:
            self.settle()
        elif self.wanted:
            self.learn(await later(list(self.wanted)))


class Memory:
    """Helpers that note what they are asked. `settle` asks the real ones about all of it at once."""

    def __init__(self, helpers: Helpers) -> None:
        embed = _Memo(helpers.embed, np.zeros(1, dtype=np.float32)) if helpers.embed else None
        locate = _Memo[Question, Sequence[Quote]](helpers.locate, ()) if helpers.locate else None
        self.helpers = Helpers(_stacked(embed) if embed else None, locate)
        self._memos: list[_Memo[Any, Any]] = [memo for memo in (embed, locate) if memo is not None]

    @property
    def asked(self) -> int:
        """Grows with every question that could not be answered at once."""
        return sum(memo.unanswered for memo in self._memos)

    def settle(self) -> None:
        for memo in self._memos:
            memo.settle()

    async def settle_async(self) -> None:
        for memo in self._memos:
            await memo.settle_async()


def _stacked(memo: "_Memo[str, NDArray[np.float32]]") -> Embedder:
    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = memo(texts)
        known = all(text in memo.known for text in texts)
        return np.stack(rows) if known else np.zeros((len(texts), 1), dtype=np.float32)

    return embed


# ---- What a locator's quotes earn ------------------------------------------------------------------------------------


def located(
    text: Text, quotes: Sequence[Quote], critique: str, parsed: Sequence[Clause], settings: QuoteSettings
) -> tuple[list[Span], list[Missed]]:
    """(spans of the quotes that stand in the completion, the others). `parsed`: the critique's clauses."""
    spans: list[Span] = []
    invented: list[Missed] = []
    said = Text(critique)
    for quote in quotes:
        clause = _clause_of(said, quote.comment, parsed, settings)
        comment = clause.text if clause is not None else ""
        verdict = _verdict(quote.verdict, [clause] if clause is not None else parsed)
        severity = clause.severity if clause is not None else None
        wanted = rungs.Wanted(quote.text, verdict, severity, comment, f"{comment} \x00")
        for found in rungs.place(text, wanted, settings, None):
            if isinstance(found, Missed):
                invented.append(Missed(found.quote, INVENTED if found.reason == rungs.NOT_THERE else found.reason))
            else:
                spans.append(_trusted(found))
    # One span per place: of two that a model gives, blame stands.
    kept: dict[Place, Span] = {}
    for span in sorted(spans, key=lambda span: span.verdict == "poor"):
        kept[span.start, span.end] = span
    return list(kept.values()), invented


def _trusted(span: Span) -> Span:
    return Span(
        span.start,
        span.end,
        span.verdict,
        severity=span.severity,
        provenance="located",
        confidence=round(_TRUST * span.confidence, 4),
        comment=span.comment,
        occurrence=span.occurrence,
    )


def _clause_of(said: Text, words: str, parsed: Sequence[Clause], settings: QuoteSettings) -> Clause | None:
    """The clause that holds most of the words which a helper gives as its reason, if the critique has these words."""
    if not words.strip():
        return None
    for start, end in rungs.locate(said, words, settings)[0][:1]:
        shared = [min(clause.end, end) - max(clause.start, start) for clause in parsed]
        if shared and max(shared) > 0:
            return parsed[shared.index(max(shared))]
    return None


def _verdict(given: Verdict, clauses: Sequence[Clause]) -> Verdict:
    """What the model says, but no praise where the critique's own words blame: the completion may have asked for it."""
    return "poor" if given == "good" and any(clause.verdict == "poor" for clause in clauses) else given
