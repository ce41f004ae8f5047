"""Evidence, word by word, that a critique is about a word of the completion: numbers with names, nothing decided yet.

Enters: the completion, the parsed critique, the source where there is one. Leaves: the words with their places, and
one row of numbers per word. The numbers: whether the critique's words meet it (as meant, or as held against it),
whether the source supports it, of which kind it is and whether that kind is named, and how it stands among its
neighbours.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from text2grad.feedback.align import cues
from text2grad.feedback.align.said import Mention
from text2grad.feedback.align.stems import CRITIC_WORDS, FUNCTION_WORDS, stem, wordset

TOKEN = re.compile(r"[£$€#@]?[^\W_]+(?:[-'’.,/:&][^\W_]+)*%?")
_PART = re.compile(r"[^\W_]+")
_DETERMINERS = wordset("a an the his her its their this that these those some any")
_PREPOSITIONS = wordset(
    "in on at to for from by with of into over after before during against about between under through as"
)
_VERBS = wordset("is are was were be been being has have had will would can could may might says said say did does do")

BASE = (
    "meant", "meant_count", "surface", "against", "good", "quoted", "unsupported", "supported", "no_source",
    "phrase_unsupported", "function", "critic_word", "capital", "first_capital", "number", "time", "role",
    "determiner", "preposition", "verb", "pair_left", "pair_right", "comma_before", "comma_after", "first", "last",
    "name_start", "name_inside", "after_place", "hyphen", "kind_first_name", "kind_name", "kind_role", "kind_place",
    "kind_time", "kind_number", "kind_age", "kind_group", "kind_cause", "rare", "place_said", "negated", "demanded",
    "claimed", "alias", "rival", "abbreviated", "ed", "ing", "ly", "plural", "length",
)  # fmt: skip
DISTANT = ("left_meant", "right_meant", "left_unsupported", "right_unsupported", "meant_near")
WHOLE = (
    "matched", "matched_share", "unsupported_share", "unsupported_matched", "words", "said_words", "says_all",
    "denies_source", "cue_first_name", "cue_name", "cue_role", "cue_place", "cue_time", "cue_number", "cue_age",
    "cue_group", "cue_cause", "any_kind",
)  # fmt: skip
COLUMNS = (*BASE, *DISTANT, *WHOLE)

_AT = {name: index for index, name in enumerate(BASE)}
MET = [_AT[name] for name in ("meant", "alias")]
POINTING = [*MET, _AT["quoted"], *(_AT[f"kind_{kind}"] for kind in cues.KINDS)]
UNSUPPORTED = _AT["unsupported"]
DENIES = COLUMNS.index("denies_source")


@dataclass(frozen=True, slots=True)
class Token:
    start: int
    end: int
    text: str
    lower: str
    stems: tuple[str, ...]


@dataclass(slots=True)
class Met:
    """How a critique brings up one stem, over all clauses that mean it."""

    clauses: set[int] = field(default_factory=set)
    place: float = 0.0
    negated: bool = False
    demanded: bool = False
    claimed: bool = False

    def add(self, clause: int, mention: Mention) -> None:
        self.clauses.add(clause)
        self.place = max(self.place, mention.place)
        self.negated = self.negated or mention.negated
        self.demanded = self.demanded or mention.demanded
        self.claimed = self.claimed or mention.claimed


@dataclass(frozen=True, slots=True)
class Said:
    """What the clauses that concern one stretch say together."""

    meant: dict[str, Met]
    """Stem → how it is meant."""
    against: frozenset[str]
    good: frozenset[str]
    surfaces: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    """Stems that follow each other in the critique, small words apart."""
    kinds: frozenset[str]
    says_all: bool
    denies_source: bool
    words: int


@lru_cache(maxsize=32_768)
def _stems(lower: str) -> tuple[str, ...]:
    parts = tuple(stem(part) for part in _PART.findall(lower))
    whole = stem(lower)
    return parts if len(parts) == 1 and parts[0] == whole else (*parts, whole)


def tokens_of(raw: str, start: int = 0, end: int | None = None) -> list[Token]:
    """The words of a stretch, hyphenated ones whole, with their currency and per cent signs."""
    found = []
    for match in TOKEN.finditer(raw, start, len(raw) if end is None else end):
        lower = match[0].lower()
        found.append(Token(match.start(), match.end(), match[0], lower, _stems(lower)))
    return found


@dataclass(frozen=True, slots=True)
class Support:
    """The source, ready to be asked whether it supports a word or two words in a row."""

    stems: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, source: str) -> "Support":
        words = [_stems(word) for word in TOKEN.findall(source.lower())]
        stems = frozenset(part for parts in words for part in parts)
        content = [parts[-1] for parts in words if parts[-1] not in FUNCTION_WORDS]
        return cls(stems, frozenset(pairwise(content)))

    def holds(self, token: Token) -> bool:
        return token.stems[-1] in self.stems or all(part in self.stems for part in token.stems[:-1] or token.stems)


def evidence(
    raw: str, tokens: Sequence[Token], said: Said, support: Support | None, quoted: Sequence[tuple[int, int]] = ()
) -> NDArray[np.float32]:
    """One row per token, one column per name in `COLUMNS`."""
    scene = _Scene.of(raw, tokens, said, support)
    base = np.array([_row(scene, index, quoted) for index in range(len(tokens))], dtype=np.float32).reshape(
        -1, len(BASE)
    )
    return np.hstack([base, _distant(base), np.tile(_whole(base, said), (len(tokens), 1))])


@dataclass(frozen=True, slots=True)
class _Scene:
    """All that the rows of one stretch share."""

    raw: str
    tokens: Sequence[Token]
    said: Said
    support: Support | None
    met: list[Met | None]
    unsupported: list[bool]
    aliased: list[bool]
    decided: set[int]
    """Clauses that meet an unsupported word: their supported words are more likely context."""
    expansions: set[int]
    """Tokens that an abbreviation in brackets behind them stands for."""

    @classmethod
    def of(cls, raw: str, tokens: Sequence[Token], said: Said, support: Support | None) -> "_Scene":
        aliases = _aliases(tokens, said)
        met: list[Met | None] = []
        aliased = []
        for token in tokens:
            direct = aliases_met = None
            if token.lower not in FUNCTION_WORDS:
                direct = next((said.meant[part] for part in token.stems if part in said.meant), None)
                if direct is None:
                    aliases_met = next((said.meant[aliases[part]] for part in token.stems if part in aliases), None)
            met.append(direct or aliases_met)
            aliased.append(aliases_met is not None)
        unsupported = [
            support is not None and token.lower not in FUNCTION_WORDS and not support.holds(token) for token in tokens
        ]
        decided = {clause for hit, lone in zip(met, unsupported, strict=True) if hit and lone for clause in hit.clauses}
        return cls(raw, tokens, said, support, met, unsupported, aliased, decided, _expansions(raw, tokens))


def _aliases(tokens: Sequence[Token], said: Said) -> dict[str, str]:
    """Stem of the completion → stem of the critique that is the same word misspelt, or of the same family."""
    ours = {part for token in tokens for part in token.stems if len(part) >= 5}
    by_head: dict[str, list[str]] = {}
    for part in ours:
        by_head.setdefault(part[:2], []).append(part)
    found = {}
    for wanted in said.meant:
        if len(wanted) < 5 or wanted in ours:
            continue
        for part in by_head.get(wanted[:2], ()):
            shared = 5 if len(wanted) < 8 else 6
            if part[:shared] == wanted[:shared] or Levenshtein.distance(part, wanted, score_cutoff=2) <= (
                1 if len(wanted) < 8 else 2
            ):
                found[part] = wanted
    return found


def _expansions(raw: str, tokens: Sequence[Token]) -> set[int]:
    """Indices of the words whose initials stand in brackets behind them: "British Transport Police (BTP)"."""
    found: set[int] = set()
    for index, token in enumerate(tokens):
        if index >= 2 and token.text.isupper() and len(token.text) >= 2 and raw[token.start - 1] == "(":
            reach = range(max(0, index - len(token.text) - 2), index)
            initials = "".join(tokens[k].text[0] for k in reach if tokens[k].text[0].isupper())
            if initials.endswith((token.text, token.text[:-1])):
                start = next((k for k in reversed(reach) if _initials(tokens, k, index) == token.text), None)
                found.update(range(start if start is not None else index - len(token.text), index))
    return found


def _initials(tokens: Sequence[Token], start: int, end: int) -> str:
    return "".join(tokens[k].text[0] for k in range(start, end) if tokens[k].text[0].isupper())


def _row(scene: _Scene, index: int, quoted: Sequence[tuple[int, int]]) -> list[float]:
    raw, tokens, said, support = scene.raw, scene.tokens, scene.said, scene.support
    token = tokens[index]
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    small = token.lower in FUNCTION_WORDS
    gap_before = raw[before.end : token.start] if before else "."
    gap_after = raw[token.end : after.start] if after else "."
    capital = token.text[0].isupper()
    met = scene.met[index]
    year = len(token.text) == 4 and token.text.isdigit() and token.text[:2] in ("18", "19", "20")
    number = (token.text[0].isdigit() and not year) or token.text[0] in "£$€" or token.lower in cues.NUMBER_WORDS
    next_capital = after is not None and after.text[0].isupper() and gap_after == " "
    last_capital = before is not None and before.text[0].isupper() and gap_before == " "
    time = year or token.lower in cues.TIME_WORDS
    role = not capital and (token.lower in cues.ROLE_WORDS or (next_capital and not small))
    named = capital and (index > 0 or next_capital or last_capital)
    after_place = before is not None and before.lower in cues.PLACE_PREPOSITIONS and capital
    unsupported = scene.unsupported[index]
    pair = (_previous_content(tokens, index), token.stems[-1])
    kinds = said.kinds
    expansion = index in scene.expansions
    rival = met is not None and not unsupported and bool(met.clauses & scene.decided)
    return [
        met is not None, len(met.clauses) if met else 0, not small and token.lower in said.surfaces,
        not small and met is None and any(p in said.against for p in token.stems),
        not small and met is None and any(p in said.good for p in token.stems),
        any(a <= token.start and token.end <= b for a, b in quoted),
        unsupported, support is not None and not small and not unsupported, support is None,
        support is not None and not small and not unsupported and pair[0] is not None and pair not in support.pairs,
        small, token.lower in CRITIC_WORDS, capital and index > 0, capital and index == 0, number, time, role,
        token.lower in _DETERMINERS, token.lower in _PREPOSITIONS, token.lower in _VERBS,
        not small and pair in said.pairs, not small and (token.stems[-1], _next_content(tokens, index)) in said.pairs,
        "," in gap_before, "," in gap_after, index == 0, after is None, capital and next_capital and not last_capital,
        capital and last_capital, after_place, "-" in token.text,
        "first_name" in kinds and (expansion or (capital and next_capital and not last_capital)),
        "name" in kinds and named,
        "role" in kinds and role, "place" in kinds and (after_place or named), "time" in kinds and time,
        "number" in kinds and number, "age" in kinds and ("year-old" in token.lower or (number and "-" in gap_after)),
        "group" in kinds and capital, "cause" in kinds and token.lower in cues.CAUSE_WORDS,
        not small and token.lower not in CRITIC_WORDS and len(token.lower) > 6,
        met.place if met else 0, bool(met and met.negated), bool(met and met.demanded), bool(met and met.claimed),
        scene.aliased[index], rival, expansion, token.lower.endswith("ed"), token.lower.endswith("ing"),
        token.lower.endswith("ly"), token.lower.endswith("s"), min(len(token.text), 12) / 6,
    ]  # fmt: skip


def _previous_content(tokens: Sequence[Token], index: int) -> str | None:
    for token in reversed(tokens[max(0, index - 3) : index]):
        if token.lower not in FUNCTION_WORDS:
            return token.stems[-1]
    return None


def _next_content(tokens: Sequence[Token], index: int) -> str | None:
    for token in tokens[index + 1 : index + 4]:
        if token.lower not in FUNCTION_WORDS:
            return token.stems[-1]
    return None


def _distant(base: NDArray[np.float32]) -> NDArray[np.float32]:
    """How near the nearest meant and unsupported words are, 1 for the next word, fading to 0."""
    length = len(base)
    columns = []
    for name in ("meant", "unsupported"):
        hits = base[:, _AT[name]] > 0
        for order in (slice(None), slice(None, None, -1)):
            distance = np.full(length, np.inf)
            last = -np.inf
            for index, hit in enumerate(hits[order]):
                distance[index] = index - last
                if hit:
                    last = index
            columns.append(1.0 / np.minimum(distance, 1e6)[order])
    meant = base[:, _AT["meant"]]
    near = (
        np.convolve(meant, np.ones(7, dtype=np.float32), mode="same")[:length]
        if length >= 7
        else np.full(length, meant.sum())
    )
    return np.stack([*columns, near], axis=1).astype(np.float32)


def _whole(base: NDArray[np.float32], said: Said) -> NDArray[np.float32]:
    content = max(1.0, float((1 - base[:, _AT["function"]]).sum()))
    matched, unsupported = base[:, _AT["meant"]], base[:, _AT["unsupported"]]
    kinds = base[:, _AT["kind_first_name"] : _AT["kind_cause"] + 1]
    return np.array(
        [
            min(matched.sum(), 8) / 4, matched.sum() / content, unsupported.sum() / content,
            min((matched * unsupported).sum(), 4) / 2,
            min(len(base), 60) / 30, min(said.words, 40) / 20, said.says_all, said.denies_source,
            *(kind in said.kinds for kind in cues.KINDS), kinds.any(),
        ],
        dtype=np.float32,
    )  # fmt: skip
