"""What a learned critic has to beat: ways to give spans that learn nothing, or next to nothing.

Enters: an annotated row (docs/formats.md) with its `passages`; the spans in it are people's and are not looked at, but
by `majority`, which counts those of other rows. Leaves: spans. `supported` is the program critic `support` through the
aligner, as `text2grad annotate` runs it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from studies.reward_model.measures import content_words

from text2grad.feedback.align.ladder import align
from text2grad.feedback.align.overlap import SIGN, project
from text2grad.feedback.critics.reference import stems_of
from text2grad.feedback.critics.support import support
from text2grad.feedback.critics.words import texts_in, words_of
from text2grad.feedback.text import Text
from text2grad.types import Span

Spans = tuple[Span, ...]
Marker = Callable[[Mapping[str, Any]], Spans]
"""A row → the spans that are given in its completion."""


def majority(rows: Iterable[Mapping[str, Any]]) -> Marker:
    """The verdict that most content words of these rows have, for every word there is.

    >>> row = {"completion": "Seven ships left.", "spans": [{"start": 0, "end": 11, "verdict": "poor"}]}
    >>> [(span.start, span.end, span.verdict) for span in majority([row])({"completion": "Nine left."})]
    [(0, 10, 'poor')]
    """
    counts: Counter[float] = Counter()
    for row in rows:
        spans = [Span.from_json(span) for span in row["spans"]]
        counts.update(project(spans, content_words(row["completion"])).tolist())
    sign = counts.most_common(1)[0][0] if counts else SIGN["neutral"]

    def mark(row: Mapping[str, Any]) -> Spans:
        if sign == SIGN["neutral"]:
            return ()
        return (Span(0, len(row["completion"]), "poor" if sign == SIGN["poor"] else "good", provenance="learned"),)

    return mark


def supported(row: Mapping[str, Any]) -> Spans:
    """What `support` says, located by the aligner. Where it does not score, nothing. Words of the question, where the
    row has one, are never held against the completion."""
    (critique,) = support([row.get("question") or ""], [row["completion"]], passages=[row["passages"]])
    return align(row["completion"], critique).spans if critique is not None else ()


def absent(row: Mapping[str, Any]) -> Spans:
    """Every content word that no passage has is poor."""
    known = stems_of("\n".join(texts_in(row["passages"], "passages", 0)))
    words = words_of(Text(row["completion"]))
    return tuple(Span(word.start, word.end, "poor") for word in words if word.content and word.stem not in known)
