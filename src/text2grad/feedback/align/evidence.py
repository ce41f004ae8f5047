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

from text2grad.feedback.lexicon import SWAPS, content_stems
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import COMPOUND, ENGLISH, FUNCTION_WORDS, pattern, pieces, stem, word_set

# ---- Kinds of things that critics name instead of the words themselves -----------------------------------------------

_NAMED = {kind: pattern(words) for kind, words in ENGLISH["kinds"].items()}
"""Kind → how a clause names it."""
_KINDS = re.compile("|".join(rf"(?P<{kind}>\b(?:{words})\b)" for kind, words in _NAMED.items()), re.IGNORECASE)
_MEMBERS = {kind: word_set(words) for kind, words in ENGLISH["members"].items()}


def kinds_in(words: str) -> set[str]:
    """The kinds that a clause names.

    >>> sorted(kinds_in("his first name and the number of dead"))
    ['first_name', 'number']
    """
    return {match.lastgroup for match in _KINDS.finditer(words) if match.lastgroup}


_CLASSES = {name: word_set(words) for name, words in ENGLISH["classes"].items()}
_CUES = {cue: re.compile(rf"\b(?:{pattern(words)})\b", re.IGNORECASE) for cue, words in ENGLISH["cues"].items()}


@lru_cache(maxsize=1024)
def cues_in(words: str) -> frozenset[str]:
    """What a critique speaks of, where that means a whole sentence: its style or place, relevance, repetition.

    >>> sorted(cues_in("This sentence is redundant."))
    ['repeats', 'sentence']
    """
    return frozenset(cue for cue, said in _CUES.items() if said.search(words))


_HEAD = 5
"""Words that begin with the same so many letters are alike, where their stems are not the same."""
_RIVALS = ("name", "time", "number")
"""Kinds of which a critique says what should stand there."""
_LONGEST_SWAP = 5
"""Words on one side of a turn of phrase for replacing something."""
_DENIES = re.compile(
    r"\b(?:not?|never|nowhere|un(?:supported|verified|mentioned)|absent|makes? up|made up|adds?|"
    r"hallucinat\w+|fabricat\w+|invent\w+)\b|n['’]t\b",
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
    """The words of a stretch, hyphenated ones whole, with their currency and per cent signs; single characters where
    words run together."""
    tokens = []
    for match in COMPOUND.finditer(raw, start, len(raw) if end is None else end):
        word, at = match[0], match.start()
        if word.isascii():
            tokens.append(Token(at, match.end(), word, word.lower(), _stems(word.lower())))
            continue
        for first, last, forms in pieces(word):
            part = word[first:last]
            stems = _stems(part.lower()) if forms == (part,) else forms
            tokens.append(Token(at + first, at + last, part, part.lower(), stems))
    return tokens


def stems_of(text: str) -> frozenset[str]:
    """The stems of all words of a text, and of their parts.

    >>> [token.stands_in(stems_of("Nine ships sailed.")) for token in tokens_of("nine ship sails seven")]
    [True, True, True, False]
    """
    if text.isascii():
        return frozenset(part for word in COMPOUND.findall(text.lower()) for part in _stems(word))
    return frozenset(part for token in tokens_of(text) for part in token.stems)


# ---- Rows ------------------------------------------------------------------------------------------------------------

Rows = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Aim:
    """How clauses point at one sentence among the others."""

    clauses: Sequence[Clause]
    """The clauses that are about the sentence."""
    share: float = 1.0
    """Of the clauses' content, weighed by rarity, what the sentence holds."""
    relative: float = 1.0
    """The same over that of the best sentence."""
    named: bool = False
    """By number or order ("the last sentence")."""
    sentences: int = 1
    """Of the whole text."""


def evidence(raw: str, tokens: Sequence[Token], aim: Aim, source: Collection[str] | None) -> Rows:
    """One row per word of a sentence, one column per name in `COLUMNS`. `source`: the stems of the source."""
    columns = _columns(raw, tokens, aim, source)
    rows = np.empty((len(tokens), len(columns)), dtype=np.float32)
    for index, column in enumerate(columns.values()):
        rows[:, index] = column
    return rows


def _columns(raw: str, tokens: Sequence[Token], aim: Aim, source: Collection[str] | None) -> dict[str, Any]:
    """Name → one number per word, or one for all of them."""
    lower = [token.lower for token in tokens]
    content = ~_among(lower, FUNCTION_WORDS)
    said = " . ".join(clause.plain for clause in aim.clauses)
    words = [match[0].lower() for match in COMPOUND.finditer(said)]
    meant = Counter(word for clause in aim.clauses for word in content_stems(clause.plain))
    count = content * [max((meant[part] for part in token.stems), default=0) for token in tokens]
    met = count > 0
    heads = {word[:_HEAD] for word in words if len(word) >= _HEAD}
    alike = content & ~met & [token.lower[:_HEAD] in heads for token in tokens]
    lone = content & [source is not None and not token.stands_in(source) for token in tokens]
    looks, kinds, named = _looks(raw, tokens, lower), _kinds(raw, tokens, lower), kinds_in(said)
    of_kind = {f"kind_{kind}": flags & (kind in named) for kind, flags in kinds.items()}
    rivals = _rivals(said, tokens)
    swap = _swapped(lower, aim.clauses)
    total = max(1, int(content.sum()))
    before, behind = _pairs(tokens, content, aim.clauses)
    return {
        "meant": met,
        "meant_count": np.minimum(count, 4),
        "surface": content & _among(lower, words),
        "alike": alike,
        "pair_left": before,
        "pair_right": behind,
        "unsupported": lone,
        "supported": content & ~lone & (source is not None),
        "no_source": source is None,
        "function": ~content,
        **looks,
        **{f"is_{kind}": kinds[kind] for kind in ("role", "time", "number")},
        **of_kind,
        **{f"cue_{kind}": kind in named for kind in kinds},
        **{f"rival_{kind}": kinds[kind] & (kind in rivals) for kind in _RIVALS},
        "swapped": swap,
        "any_kind": any(flags.any() for flags in of_kind.values()),
        "left_meant": nearness(met),
        "right_meant": nearness(met[::-1])[::-1],
        "left_unsupported": nearness(lone),
        "right_unsupported": nearness(lone[::-1])[::-1],
        "meant_near": np.convolve(met, np.ones(7))[3 : 3 + len(tokens)],
        "matched": min(met.sum(), 8) / 4,
        "matched_share": met.sum() / total,
        "unsupported_share": lone.sum() / total,
        "unsupported_matched": min((met & lone).sum(), 4) / 2,
        "said_found": met.sum() / max(1, len(meant)),
        "denies_source": bool(_DENIES.search(said)),
        "share": aim.share,
        "relative": aim.relative,
        "named": aim.named,
        # For the sentence scorer alone: where a word stands, and how it looks.
        "said_words": min(len(words), 40) / 20,
        "first": np.arange(len(tokens)) == 0,
        "last": np.arange(len(tokens)) == len(tokens) - 1,
        **{f"ends_{ending}": [word.endswith(ending) for word in lower] for ending in ("ed", "ing", "ly", "s")},
        "length": [min(len(word), 12) / 6 for word in lower],
        "words": min(len(tokens), 60) / 30,
    }


def _rivals(said: str, tokens: Sequence[Token]) -> set[str]:
    """Kinds of which the critique has words that the sentence has not."""
    own = {token.lower for token in tokens}
    given = tokens_of(said)
    if not given:
        return set()
    new = np.array([token.lower not in own for token in given], dtype=bool)
    kinds = _kinds(said, given, [token.lower for token in given])
    return {kind for kind in _RIVALS if (kinds[kind] & new).any()}


def _swapped(lower: Sequence[str], clauses: Sequence[Clause]) -> Flags:
    """The words of a sentence that a clause would have replaced: what it names as it stands there, right beside a turn
    of phrase for replacing ("nine, not seven"; "seven should be nine")."""
    flags = np.zeros(len(lower), dtype=bool)
    for clause in clauses:
        for cue in SWAPS.finditer(clause.plain):
            left = [] if cue["behind"] else _spoken(clause.plain[: cue.start()])[-_LONGEST_SWAP:]
            right = [] if cue["before"] else _spoken(clause.plain[cue.end() :])[:_LONGEST_SWAP]
            right = right[1:] if right[:1] and right[0] in _CLASSES["determiner"] else right
            # The longest stretch that touches the turn of phrase and stands in the sentence.
            runs = [left[k:] for k in range(len(left))] + [right[:k] for k in range(len(right), 0, -1)]
            for run in runs:
                places = [k for k in range(len(lower)) if list(lower[k : k + len(run)]) == run]
                if places and not FUNCTION_WORDS.issuperset(run):
                    flags[[k + step for k in places for step in range(len(run))]] = True
                    break
    return flags


def _spoken(words: str) -> list[str]:
    return [match[0].lower() for match in COMPOUND.finditer(words)]


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


def content_words(tokens: Sequence[Token]) -> Flags:
    """Which words carry content."""
    return ~_among([token.lower for token in tokens], FUNCTION_WORDS)


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
        "comma_before": [False, *commas],
        "comma_after": [*commas, False],
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
        "polarity": _polarity(lower),
    }


def _polarity(lower: Sequence[str]) -> Flags:
    """Words that turn a statement round, "not" with its verb."""
    flags, denies = _among(lower, _MEMBERS["polarity"]), _among(lower, ("not", "never"))
    flags[:-1] |= _among(lower, _CLASSES["verb"])[:-1] & denies[1:]
    return flags


def nearness(hits: Flags) -> Rows:
    """1 for the word behind a hit, fading to 0 with the distance to the last one."""
    places = np.arange(len(hits))
    last = np.maximum.accumulate(np.where(hits, places, -np.inf))
    near: Rows = 1 / np.minimum(places - np.append(-np.inf, last[:-1]), 1e6)
    return near


COLUMNS = tuple(_columns("a", tokens_of("a"), Aim([]), None))
GENERAL = COLUMNS.index("named") + 1
"""The word scorer reads so many columns. On kinds that it has not seen it does better without the others."""
_MET, _LONE, _DENIED = (COLUMNS.index(name) for name in ("meant", "unsupported", "denies_source"))
_POINTING = [_MET, *(COLUMNS.index(f"kind_{kind}") for kind in _NAMED)]


_SWAPPED, _TURNED, _NAMED_PLACE = (COLUMNS.index(name) for name in ("swapped", "kind_polarity", "named"))
_PLAIN = [_TURNED, *(COLUMNS.index(f"kind_{kind}") for kind in ("first_name", "time", "number", "age"))]
_OF_KIND, _SAID = 0.75, 0.9
"""The least chance of a word of a kind that is named and plain to see; of one that is to be replaced."""
_BESIDE_SWAP, _BESIDE_TURN, _WITHOUT_WORDS = 0.25, 0.3, 0.4
"""By what the chances of the other words shrink then; last, where a kind is all that the critique shares with them."""


def met(rows: Rows) -> Flags:
    """Which words of a sentence the critique says, too."""
    return np.asarray(rows[:, _MET] > 0)


def points(rows: Rows, *, praise: bool) -> bool:
    """Whether anything in a sentence is met by the critique's words, is of a kind that it names, is what it denies
    the source, or stands where it points. Without any of that the scorer would only guess. For praise only words and
    places count."""
    if praise:
        return bool(rows[:, [_MET, _NAMED_PLACE]].any())
    pointed = rows[:, [*_POINTING, _NAMED_PLACE, _SWAPPED]].any()
    return bool(pointed or (rows[:, _LONE] * rows[:, _DENIED]).any())


def sharpened(rows: Rows, chances: Rows) -> Rows:
    """The chances of a sentence, where the critique says outright which words it would have replaced, or by a kind that
    is plain to see what is wrong ("the day is wrong", "the opposite is true"): these words before all others."""
    swapped, turned, kind = rows[:, _SWAPPED] > 0, rows[:, _TURNED] > 0, rows[:, _PLAIN].any(axis=1)
    if swapped.any():
        return np.where(swapped, np.maximum(chances, _SAID), chances * _BESIDE_SWAP)
    if kind.any() and not rows[:, _MET].any():
        return np.where(kind, np.maximum(chances, _OF_KIND), chances * _WITHOUT_WORDS)
    if turned.any():
        return np.where(turned, np.maximum(chances, _OF_KIND), chances * _BESIDE_TURN)
    return chances
