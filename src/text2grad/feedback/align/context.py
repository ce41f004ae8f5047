"""More evidence for the sentence scorer: where the words of a sentence stand in the source, and how the critique
speaks of them.

Enters: the words of a sentence, the clauses about it, the source where there is one. Leaves: one row of numbers per
word, one column per name in `CONTEXT`. The gate and the word scorer do not see them; they are made only for a critique
that the gate has let through.
"""

import math
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align.evidence import (
    Aim,
    Flags,
    Rows,
    Token,
    content_words,
    kinds_in,
    nearness,
    stems_of,
    tokens_of,
)
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.text import COMPOUND, ENGLISH, FUNCTION_WORDS, pattern, stem, word_set

_HEAD = 5
"""Words that begin with the same so many letters are alike, where their stems are not the same."""
_PLACES = 6
"""Of a word in the source that are looked at."""
_BESIDE, _TOGETHER = 4, 8
"""Content words: how far apart words of the completion are neighbours, and words of the source stand together."""
_DENIES, _GRANTS = (
    re.compile(rf"\b(?:{pattern(ENGLISH['mentions'][cue])})\b{more}", re.IGNORECASE)
    for cue, more in (("denies", "|n['’]t\\b"), ("grants", ""))
)
_LEADS, _PREPOSITIONS, _BEFORE, _BEHIND = (
    word_set(ENGLISH["mentions"][name]) for name in ("leads", "behind_which", "before", "behind")
)
_NATION, _ASKS_NATION = (
    re.compile(pattern(ENGLISH["mentions"][name]), re.IGNORECASE) for name in ("nation", "asks_nation")
)
_PARTS = re.compile(r"(?<=[.;!?])\s+| \. ")
_STOP = re.compile(r"[.;!?]")


class SourceWords:
    """What a completion was written from, as far as its words are looked up."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.stems = stems_of(text)

    @cached_property
    def words(self) -> list[str]:
        """The stems of its content words, in their order."""
        words = (match[0] for match in COMPOUND.finditer(self._text.lower()))
        return [stem(word) for word in words if word not in FUNCTION_WORDS]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Stem → where it stands among the words; that of a word with hyphens also by its parts."""
        found: dict[str, list[int]] = {}
        for place, word in enumerate(self.words):
            for form in (word, *(word.split("-") if "-" in word else ())):
                found.setdefault(form, []).append(place)
        return found

    @cached_property
    def heads(self) -> frozenset[str]:
        return frozenset(word[:_HEAD] for word in self.words if len(word) >= _HEAD)


def context(tokens: Sequence[Token], aim: Aim, source: SourceWords | None) -> Rows:
    """One row per word of a sentence, one column per name in `CONTEXT`."""
    columns = _columns(tokens, aim, source)
    rows = np.empty((len(tokens), len(columns)), dtype=np.float32)
    for index, column in enumerate(columns.values()):
        rows[:, index] = column
    return rows


def _columns(tokens: Sequence[Token], aim: Aim, source: SourceWords | None) -> dict[str, Any]:
    """Name → one number per word, or one for all of them."""
    said = " . ".join(clause.plain for clause in aim.clauses)
    content = content_words(tokens)
    own = {part for token in tokens for part in token.stems}
    new = content_stems(said) - own
    told = len(new & source.stems) if source else 0
    mentions = _Mentions(said)
    return {
        **_in_source(tokens, content, new, source),
        **mentions.columns(tokens, content),
        "told": min(told, 6) / 3,
        "new_words": min(len(new), 12) / 6,
        "denials": min(sum(mentions.denies), 4) / 2,
        "clauses": min(len(aim.clauses), 6) / 3,
        **_of_part(tokens, content, said, own, source),
        **_in_stretch(tokens, content, content_stems(said), source),
    }


def _in_source(tokens: Sequence[Token], content: Flags, new: set[str], source: SourceWords | None) -> dict[str, Rows]:
    """Where and how often each content word stands in the source, beside which other words of the sentence, and
    whether beside words that the critique says and the sentence does not."""
    names = ("source_left", "source_right", "source_near", "source_count", "source_first", "source_new", "source_alike")
    columns = {name: np.zeros(len(tokens), dtype=np.float32) for name in names}
    if source is None:
        return columns
    places = np.flatnonzero(content).tolist()
    forms = [tokens[k].stems[-1] for k in places]
    found = [source.places.get(form, []) for form in forms]
    told = [place for form in new for place in source.places.get(form, ())]
    beside = {place + step for place in told for step in range(-_BESIDE, _BESIDE + 1) if step}
    for n, (k, here) in enumerate(zip(places, found, strict=True)):
        if not here:
            columns["source_alike"][k] = len(forms[n]) >= _HEAD and forms[n][:_HEAD] in source.heads
            continue
        columns["source_count"][k] = min(math.log1p(len(here)), 2)
        columns["source_first"][k] = 1 - here[0] / max(1, len(source.words))
        if n and found[n - 1] and not {place + 1 for place in found[n - 1]}.isdisjoint(here):
            columns["source_left"][k] = columns["source_right"][places[n - 1]] = 1
        others = [there for there in (*found[max(0, n - _BESIDE) : n], *found[n + 1 : n + 1 + _BESIDE]) if there]
        if others:
            near = (
                sum(any(abs(at - place) <= _TOGETHER for at in there) for there in others) for place in here[:_PLACES]
            )
            columns["source_near"][k] = max(near) / len(others)
        columns["source_new"][k] = not beside.isdisjoint(here[:_PLACES])
    return columns


class _Mentions:
    """The words of a critique, and what stands around each of them."""

    def __init__(self, said: str) -> None:
        matches = list(COMPOUND.finditer(said))
        self.words = [match[0].lower() for match in matches]
        gaps = [said[a.end() : b.start()] for a, b in pairwise(matches)]
        self.comma = [*("," in gap for gap in gaps), False]
        self.part = list(accumulate((bool(_STOP.search(gap)) for gap in gaps), initial=0)) if matches else []
        """Number of the sentence that each word is in."""
        self.denies = [bool(_DENIES.fullmatch(word)) or word.endswith(("n't", "n’t")) for word in self.words]
        self.grants = [bool(_GRANTS.fullmatch(word)) for word in self.words]
        self.at: dict[str, list[int]] = {}
        for place, word in enumerate(self.words):
            self.at.setdefault(stem(word), []).append(place)

    def columns(self, tokens: Sequence[Token], content: Flags) -> dict[str, Rows]:
        """Of each content word that the critique says: where, near which denial or grant, and between which words."""
        words, last = self.words, len(self.words) - 1
        near: dict[str, Sequence[float]] = {
            "denied_before": self._near(self.denies, 1),
            "denied_behind": self._near(self.denies, -1),
            "granted_before": self._near(self.grants, 1),
            "granted_behind": self._near(self.grants, -1),
            "determined": [k > 0 and words[k - 1] in _BEFORE for k in range(last + 1)],
            "preposition": [k > 0 and words[k - 1] in _PREPOSITIONS for k in range(last + 1)],
            "verb_behind": [k < last and words[k + 1] in _BEHIND for k in range(last + 1)],
            "listed": [k < last and (self.comma[k] or words[k + 1] in ("and", "or")) for k in range(last + 1)],
            "in_last": [part == self.part[-1] for part in self.part],
        }
        made = {name: np.zeros(len(tokens), dtype=np.float32) for name in ("said_at", "said_again", *near)}
        for k in np.flatnonzero(content).tolist():
            places = [place for part in tokens[k].stems for place in self.at.get(part, ())]
            if places:
                made["said_at"][k] = 1 - places[0] / len(words)
                made["said_again"][k] = len(places) > 1
                for name, values in near.items():
                    made[name][k] = max(values[place] for place in places)
        return made

    def _near(self, cues: Sequence[bool], step: int) -> list[float]:
        """1 for a word right behind a cue of its sentence (with −1: right before), fading with the distance."""
        near = [0.0] * len(cues)
        last: int | None = None
        for k in range(len(cues))[::step]:
            if last is not None and self.part[last] == self.part[k]:
                near[k] = 1 / abs(k - last)
            last = k if cues[k] else last
        return near


def _of_part(
    tokens: Sequence[Token], content: Flags, said: str, own: set[str], source: SourceWords | None
) -> dict[str, Rows]:
    """Of each content word, what the first sentence of the critique that says it does: denies, grants, tells what the
    source says, names kinds; how long it is, and how much of it the completion has, too."""
    parts = []
    for part in _PARTS.split(said):
        stems = content_stems(part)
        told = len((stems - own) & source.stems) if source else 0
        numbers = (
            float(bool(_DENIES.search(part))),
            float(bool(_GRANTS.search(part))),
            min(told, 4) / 2,
            min(len(stems), 12) / 6,
            min(len(stems & own), 6) / 3,
            float(min(len(kinds_in(part)), 3)),
        )
        parts.append((stems, numbers))
    rows = np.zeros((6, len(tokens)), dtype=np.float32)
    for k in np.flatnonzero(content).tolist():
        for stems, numbers in parts:
            if not stems.isdisjoint(tokens[k].stems):
                rows[:, k] = numbers
                break
    names = ("part_denies", "part_grants", "part_told", "part_words", "part_met", "part_kinds")
    nations = np.array([token.text[0].isupper() and bool(_NATION.match(token.lower)) for token in tokens], dtype=bool)
    asked = bool(_ASKS_NATION.search(said))
    return {**dict(zip(names, rows, strict=True)), "nation": nations, "kind_nation": nations & asked}


def _in_stretch(tokens: Sequence[Token], content: Flags, said: set[str], source: SourceWords | None) -> dict[str, Rows]:
    """How many words that follow each other are said by the critique, or not in the source, function words between
    them apart; how near a preposition is on either side."""
    met = np.array([not said.isdisjoint(token.stems) for token in tokens], dtype=bool) & content
    lone = content & [source is not None and not token.stands_in(source.stems) for token in tokens]
    leads = np.array([token.lower in _LEADS for token in tokens], dtype=bool)
    return {
        "run_met": _runs(met, content),
        "run_unsupported": _runs(lone, content),
        "left_preposition": nearness(leads),
        "right_preposition": nearness(leads[::-1])[::-1],
    }


def _runs(flags: Flags, content: Flags) -> NDArray[np.float32]:
    """Of each word in a stretch of flagged words, how many these are.

    >>> _runs(np.array([True, False, True, False]), np.array([True, False, True, True])).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    sizes = np.zeros(len(flags), dtype=np.float32)
    stretch: list[int] = []
    for k in [*np.flatnonzero(flags | content).tolist(), -1]:
        if k >= 0 and flags[k]:
            stretch.append(k)
        elif stretch:
            sizes[stretch[0] : stretch[-1] + 1] = min(len(stretch), 5) / 2
            stretch = []
    return sizes


CONTEXT = tuple(_columns(tokens_of("a"), Aim([]), None))
