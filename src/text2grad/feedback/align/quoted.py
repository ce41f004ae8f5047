"""Quotes → spans: the rungs for quoted text, and the reasons why a quote lands nowhere.

Enters: the completion, quotes with their clauses, the source. Leaves: `Span`s and `Missed`; every quote in exactly
one of the two. Quoted text never falls through to paraphrase: a quote that nobody wrote lands nowhere, and is counted.
"""

from dataclasses import dataclass

from text2grad.feedback.align.boundaries import settle
from text2grad.feedback.align.fuzzy import fuzzy
from text2grad.feedback.align.occurrences import choose
from text2grad.feedback.align.places import Place, exact, normalised
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.align.text import Text
from text2grad.feedback.parse import CitedQuote, Clause
from text2grad.types import Missed, Provenance, Span, Verdict

QUOTES_SOURCE = "quotes the source"
OFFERED = "offered instead, not quoted from the completion"
NOT_THERE = "not in the completion"
_NEAR = 300
"""Characters of the clause on each side of a quote that help to tell its places apart."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One quote to be located, with all that helps."""

    text: str
    verdict: Verdict
    severity: float | None
    comment: str
    context: str
    """The clause, with \\x00 where the quote stands."""
    hint: int | None = None
    """Where the critique says it begins."""


def wanted_of(clause: Clause, quote: CitedQuote, verdict: Verdict) -> Wanted:
    left, right = quote.start - clause.start, quote.end - clause.start
    body = clause.text
    context = f"{body[max(0, left - _NEAR) : max(0, left)]} \x00 {body[right : right + _NEAR]}"
    return Wanted(quote.text, verdict, clause.severity, clause.text, context)


Located = tuple[list[Place], Provenance, float]


def locate(text: Text, quote: str, settings: QuoteSettings) -> Located:
    """All places of the quote on the strongest rung that has any, with the confidence of that rung. Looked for once,
    however often a critique comes back to it."""
    key = (quote, settings.normalise, settings.fuzzy, settings.shortest_fuzzy)
    found: Located | None = text.located.get(key)
    if found is None:
        found = text.located[key] = _locate(text, quote, settings)
    return found


def _locate(text: Text, quote: str, settings: QuoteSettings) -> Located:
    if places := exact(text, quote):
        return places, "exact", 1.0
    if settings.normalise and (places := normalised(text, quote)):
        return places, "normalised", 0.97
    if settings.fuzzy > 0:
        places, right = fuzzy(text, quote, settings)
        if places:
            return places, "fuzzy", right * 0.95
    return [], "exact", 0.0


def place(text: Text, wanted: Wanted, settings: QuoteSettings, source: Text | None) -> list[Span] | Missed:
    """The quote's spans, or why there are none."""
    places, provenance, confidence = locate(text, wanted.text, settings)
    if not places:
        in_source = source is not None and locate(source, wanted.text, settings)[0]
        return Missed(wanted.text, QUOTES_SOURCE if in_source else NOT_THERE)
    chosen, occurrence = choose(text, places, wanted.context, wanted.text, settings, wanted.hint)
    if not chosen:
        return Missed(wanted.text, f"occurs {len(places)} times, and nothing says which is meant")
    if occurrence == "ambiguous":
        # All places are equally likely; the policy picks, the confidence admits it.
        confidence /= len(places) if settings.ambiguous == "first" else 1.0
    return [
        Span(
            *settle(text.raw, spot, settings.boundary),
            verdict=wanted.verdict,
            severity=wanted.severity,
            provenance=provenance,
            confidence=confidence,
            comment=wanted.comment,
            occurrence=occurrence,
        )
        for spot in chosen
    ]
