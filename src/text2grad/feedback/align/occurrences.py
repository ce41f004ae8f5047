"""Which of several places of a quote is meant.

Enters: the places, the clause around the quote. Leaves: the chosen places and whether the choice has a reason. The
evidence, in order: the critique says so ("the second", "in line 3", "in the last sentence", "every"); the words around
one place are those of the clause, and of no other place as much. Otherwise the policy `quotes.ambiguous` decides, and
the span says so.
"""

import re
from bisect import bisect_right

from text2grad.feedback.align.ordinals import ORDINAL, ordinal, picks
from text2grad.feedback.align.places import Place
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.align.stems import content_stems, stem
from text2grad.feedback.align.text import Text
from text2grad.types import Occurrence

_NAMED = re.compile(
    rf"\b(?P<ordinal>{ORDINAL})\s+(?:(?:time|use|usage|instance|occurrence|mention|appearance|"
    rf"one)\s*(?:of\s+)?(?:the\s+)?(?:word\s+|phrase\s+)?|word\s+|phrase\s+)?\x00"
    rf"|\x00\s*(?:,\s*)?(?:the\s+)?(?P<after>{ORDINAL})\s+(?:time|use|usage|instance|occurrence|"
    rf"mention|one|appearance)\b",
    re.IGNORECASE,
)
_MOST = 64
"""Places whose surroundings are compared; among more, no clause has words enough to tell them apart."""
_EVERY = re.compile(
    r"\b(?:every|each|all|both|any|repeated(?:ly)?|repeats?|repetition|overus\w+|throughout|again and again|twice|"
    r"times|too often|everywhere|always)\b",
    re.IGNORECASE,
)
_UNITS = "sentence|line|paragraph|stanza|verse"
_EDGE = re.compile(
    r"\bat the (?P<edge>start|beginning|end)\b|\bin the (?P<part>opening|conclusion|ending|intro\w*)\b",
    re.IGNORECASE,
)


def choose(
    text: Text, places: list[Place], clause: str, quote: str, settings: QuoteSettings, hint: int | None = None
) -> tuple[list[Place], Occurrence]:
    """The meant places; an empty list where the policy is `none` and nothing tells them apart. `clause` has \\x00 for
    the quote, so that "the second" in front of it can be told from the same words elsewhere."""
    if len(places) == 1:
        return places, "only"
    if hint is not None:
        return [min(places, key=lambda place: abs(place[0] - hint))], "resolved"
    if match := _NAMED.search(clause):
        # "The fifth" of two is none of them.
        index = ordinal(match["ordinal"] or match["after"])
        exists = -len(places) <= index < len(places)
        return ([places[index]], "resolved") if exists else ([], "ambiguous")
    named = _by_unit(text, places, clause)
    if named:
        return named, "resolved"
    near = _by_context(text, places, clause, quote)
    if near is not None:
        return [near], "resolved"
    if settings.ambiguous == "none":
        return [], "ambiguous"
    return (places if settings.ambiguous == "all" else places[:1]), "ambiguous"


def _by_unit(text: Text, places: list[Place], clause: str) -> list[Place]:
    for pick in picks(clause, _UNITS):
        in_lines = pick.unit in ("line", "verse")
        units = _lines(text.raw) if in_lines else text.sentences if pick.unit == "sentence" else _blocks(text.raw)
        inside = [place for index in pick.of(len(units)) for place in _within(places, units[index])]
        if inside:
            return inside[:1]
    if match := _EDGE.search(clause):
        name = (match["edge"] or match["part"]).lower()
        return [places[-1] if name in ("end", "ending", "conclusion") else places[0]]
    return places if _EVERY.search(clause) else []


def _by_context(text: Text, places: list[Place], clause: str, quote: str) -> Place | None:
    """The one place whose sentence shares more content words with the clause than any other's."""
    wanted = content_stems(clause.replace("\x00", " ")) - content_stems(quote)
    if not wanted or len(places) > _MOST:
        return None
    starts = [start for start, _ in text.sentences]
    scores: list[tuple[int, int]] = []
    for index, (start, _) in enumerate(places):
        sentence = text.sentences[max(0, bisect_right(starts, start) - 1)]
        # Nearer words count more: two places may share one sentence.
        words = [text.words[k] for k in text.words_between(*sentence)]
        score = sum(3 if abs(word_start - start) < 40 else 1 for word_start, _, word in words if stem(word) in wanted)
        scores.append((score, -index))
    best = sorted(scores, reverse=True)
    if best[0][0] > 0 and best[0][0] > best[1][0]:
        return places[-best[0][1]]
    return None


def _within(places: list[Place], unit: Place) -> list[Place]:
    return [place for place in places if unit[0] <= place[0] < unit[1]]


def _lines(raw: str) -> list[Place]:
    found = []
    start = 0
    for line in raw.splitlines(keepends=True):
        found.append((start, start + len(line)))
        start += len(line)
    return found


def _blocks(raw: str) -> list[Place]:
    return [(match.start(), match.end()) for match in re.finditer(r"(?:[^\n]*\S[^\n]*\n?)+", raw)]
