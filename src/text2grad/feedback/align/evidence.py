"""Evidence, word by word, that a critique is about a word of the completion: named numbers, nothing decided yet.

Enters: the words of a sentence, the clauses about it, the source where there is one. Leaves: one row of numbers per
word: whether the clauses' words meet it, whether the source supports it, whether it is of a kind that is named ("the
first name", "the number of dead"), and how it stands among its neighbours.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import COMPOUND, ENGLISH, FUNCTION_WORDS, pattern, stem, word_set

# ---- Kinds of things that critics name instead of the words themselves -----------------------------------------------

_NAMED = {kind: pattern(words) for kind, words in ENGLISH["kinds"].items()}
"""Kind → how a clause names it."""
_KINDS = re.compile("|".join(rf"(?P<{kind}>\b(?:{words})\b)" for kind, words in _NAMED.items()), re.IGNORECASE)
_MEMBERS = {kind: word_set(words) for kind, words in ENGLISH["members"].items()}
_CLASSES = {name: word_set(words) for name, words in ENGLISH["classes"].items()}


def kinds_in(words: str) -> set[str]:
    """The kinds that a clause names.

    >>> sorted(kinds_in("his first name and the number of dead"))
    ['first_name', 'number']
    """
    return {match.lastgroup for match in _KINDS.finditer(words) if match.lastgroup}


_DENIES = re.compile(
    r"\b(?:not?|n['’]t|never|nowhere|un(?:supported|verified|mentioned)|absent|makes? up|made up|adds?|"
    r"hallucinat\w+|fabricat\w+|invent\w+)\b",
    re.IGNORECASE,
)
"""Denies that something is in the source."""


# ---- The completion's words, and what the source supports ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    start: int
    end: int
    text: str
    lower: str
    stems: tuple[str, ...]
    """Of its parts, then of the whole."""

    def stands_in(self, stems: Collection[str]) -> bool:
        """Whether a text of these stems has the word, or all parts of it."""
        return self.stems[-1] in stems or all(part in stems for part in self.stems[:-1] or self.stems)


@lru_cache(maxsize=32_768)
def _stems(lower: str) -> tuple[str, ...]:
    parts = tuple(stem(part) for part in re.findall(r"[^\W_]+", lower))
    whole = stem(lower)
    return parts if parts == (whole,) else (*parts, whole)


def tokens_of(raw: str, start: int = 0, end: int | None = None) -> list[Token]:
    """The words of a stretch, hyphenated ones whole, with their currency and per cent signs."""
    matches = COMPOUND.finditer(raw, start, len(raw) if end is None else end)
    return [Token(m.start(), m.end(), m[0], m[0].lower(), _stems(m[0].lower())) for m in matches]


def stems_of(text: str) -> frozenset[str]:
    """The stems of all words of a text, and of their parts.

    >>> [token.stands_in(stems_of("Nine ships sailed.")) for token in tokens_of("nine ship sails seven")]
    [True, True, True, False]
    """
    return frozenset(part for word in COMPOUND.findall(text.lower()) for part in _stems(word))


# ---- Rows ------------------------------------------------------------------------------------------------------------

Rows = NDArray[np.float32]
Flags = NDArray[np.bool_]


def evidence(raw: str, tokens: Sequence[Token], clauses: Sequence[Clause], source: Collection[str] | None) -> Rows:
    """One row per word of a sentence, one column per name in `COLUMNS`. `source`: the stems of the source."""
    columns = _columns(raw, tokens, clauses, source)
    rows = np.empty((len(tokens), len(columns)), dtype=np.float32)
    for index, column in enumerate(columns.values()):
        rows[:, index] = column
    return rows


def _columns(
    raw: str, tokens: Sequence[Token], clauses: Sequence[Clause], source: Collection[str] | None
) -> dict[str, Any]:
    """Name → one number per word, or one for all of them."""
    lower = [token.lower for token in tokens]
    content = ~_among(lower, FUNCTION_WORDS)
    said = " . ".join(clause.plain for clause in clauses)
    words = [match[0].lower() for match in COMPOUND.finditer(said)]
    meant = Counter(word for clause in clauses for word in content_stems(clause.plain))
    count = content * [max((meant[part] for part in token.stems), default=0) for token in tokens]
    met = count > 0
    lone = content & [source is not None and not token.stands_in(source) for token in tokens]
    looks, kinds, cues = _looks(raw, tokens, lower), _kinds(raw, tokens, lower), kinds_in(said)
    named = {f"kind_{kind}": flags & (kind in cues) for kind, flags in kinds.items()}
    total = max(1, int(content.sum()))
    before, behind = _pairs(tokens, content, clauses)
    return {
        "meant": met,
        "meant_count": count,
        "surface": content & _among(lower, words),
        "pair_left": before,
        "pair_right": behind,
        "unsupported": lone,
        "supported": content & ~lone & (source is not None),
        "no_source": source is None,
        "function": ~content,
        **looks,
        **{f"is_{kind}": kinds[kind] for kind in ("role", "time", "number")},
        **named,
        **{f"cue_{kind}": kind in cues for kind in kinds},
        "any_kind": any(flags.any() for flags in named.values()),
        "left_meant": _nearness(met),
        "right_meant": _nearness(met[::-1])[::-1],
        "left_unsupported": _nearness(lone),
        "right_unsupported": _nearness(lone[::-1])[::-1],
        "meant_near": np.convolve(met, np.ones(7))[3 : 3 + len(tokens)],
        "matched": min(met.sum(), 8) / 4,
        "matched_share": met.sum() / total,
        "unsupported_share": lone.sum() / total,
        "unsupported_matched": min((met & lone).sum(), 4) / 2,
        "said_words": min(len(words), 40) / 20,
        "denies_source": bool(_DENIES.search(said)),
    }


def _pairs(tokens: Sequence[Token], content: Flags, clauses: Sequence[Clause]) -> tuple[Flags, Flags]:
    """Whether each content word and the one before it, or behind it, follow each other in the critique, too."""
    said: set[tuple[str, str]] = set()
    for clause in clauses:
        words = COMPOUND.findall(clause.plain.lower())
        said.update(pairwise(stem(word) for word in words if word not in FUNCTION_WORDS))
    before, behind = np.zeros((2, len(tokens)), dtype=bool)
    for left, right in pairwise(np.flatnonzero(content).tolist()):
        behind[left] = before[right] = (tokens[left].stems[-1], tokens[right].stems[-1]) in said
    return before, behind


def _among(words: Sequence[str], known: Collection[str]) -> Flags:
    return np.array([word in known for word in words], dtype=bool)


def _capitals(raw: str, tokens: Sequence[Token]) -> tuple[Flags, Flags, Flags]:
    """Whether each word begins with a capital, and so do the words right before and right behind it."""
    capital = np.array([token.text[0].isupper() for token in tokens], dtype=bool)
    joined = np.array([False, *(raw[a.end : b.start] == " " for a, b in pairwise(tokens)), False])
    return capital, np.append(False, capital[:-1]) & joined[:-1], np.append(capital[1:], False) & joined[1:]


def _looks(raw: str, tokens: Sequence[Token], lower: Sequence[str]) -> dict[str, Any]:
    """How the words look and stand, whatever the critique says."""
    first = np.arange(len(tokens)) == 0
    capital = _capitals(raw, tokens)[0]
    commas = ["," in raw[a.end : b.start] for a, b in pairwise(tokens)]
    return {
        **{name: _among(lower, words) for name, words in _CLASSES.items()},
        "capital": capital & ~first,
        "first_capital": capital & first,
        "first": first,
        "last": first[::-1],
        "comma_before": [False, *commas],
        "comma_after": [*commas, False],
        **{f"ends_{ending}": [word.endswith(ending) for word in lower] for ending in ("ed", "ing", "ly", "s")},
        "length": [min(len(word), 12) / 6 for word in lower],
        "words": min(len(tokens), 60) / 30,
    }


def _kinds(raw: str, tokens: Sequence[Token], lower: Sequence[str]) -> dict[str, Flags]:
    """Kind → which words are of it."""
    capital, after_capital, before_capital = _capitals(raw, tokens)
    content = ~_among(lower, FUNCTION_WORDS)
    hyphen_behind = [*("-" in raw[a.end : b.start] for a, b in pairwise(tokens)), False]
    in_place = capital & np.append(False, _among(lower, _MEMBERS["in_place"])[:-1])
    year = np.array([bool(re.fullmatch(r"(?:18|19|20)\d\d", word)) for word in lower], dtype=bool)
    digits = np.array([word[0].isdigit() or word[0] in "£$€" for word in lower], dtype=bool)
    number = (digits & ~year) | _among(lower, _MEMBERS["number"])
    name = capital & ((np.arange(len(tokens)) > 0) | before_capital | after_capital)
    return {
        "first_name": capital & before_capital & ~after_capital,
        "name": name,
        "role": ~capital & (_among(lower, _MEMBERS["role"]) | (before_capital & content)),
        "place": in_place | name,
        "time": year | _among(lower, _MEMBERS["time"]),
        "number": number,
        "age": ["year-old" in word for word in lower] | (number & hyphen_behind),
        "group": capital,
        "cause": _among(lower, _MEMBERS["cause"]),
    }


def _nearness(hits: Flags) -> Rows:
    """1 for the word behind a hit, fading to 0 with the distance to the last one."""
    places = np.arange(len(hits))
    last = np.maximum.accumulate(np.where(hits, places, -np.inf))
    near: Rows = 1 / np.minimum(places - np.append(-np.inf, last[:-1]), 1e6)
    return near


COLUMNS = tuple(_columns("a", tokens_of("a"), [], None))
_MET, _LONE, _DENIED = (COLUMNS.index(name) for name in ("meant", "unsupported", "denies_source"))
_POINTING = [_MET, *(COLUMNS.index(f"kind_{kind}") for kind in _NAMED)]


def points(rows: Rows, *, praise: bool) -> bool:
    """Whether anything in a sentence is met by the critique's words, is of a kind that it names, or is what it denies
    the source. Without any of that the scorer would only guess. For praise only words count."""
    if praise:
        return bool(rows[:, _MET].any())
    return bool(rows[:, _POINTING].any() or (rows[:, _LONE] * rows[:, _DENIED]).any())
