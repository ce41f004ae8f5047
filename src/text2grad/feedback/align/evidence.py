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
from text2grad.feedback.text import COMPOUND, FUNCTION_WORDS, stem, word_set

# ---- Kinds of things that critics name instead of the words themselves -----------------------------------------------

_NAMED = {
    "first_name": r"(?:first|fore|given|full|christian|whole|complete)[- ]?names?|forenames?|names? in full",
    "name": r"names?|named|identity|who (?:he|she|they|it)|title",
    "role": r"position|job|titles?|roles?|occupation|profession|rank|status|career|former|ex-\w+|works? as|designation",
    "place": r"locations?|located|places?|where|countr\w+|cit(?:y|ies)|towns?|count(?:y|ies)|regions?|areas?|venues?|"
    r"nationalit\w+|province|address|set in|takes? place|geograph\w+|setting",
    "time": r"when|dates?|days?|years?|months?|weeks?|times?|timing|seasons?|duration|how long|lengths?|periods?|"
    r"centur\w+|hours?|minutes?|decades?|time ?frame|deadline",
    "number": r"numbers?|how many|how much|amounts?|figures?|scores?|percent\w*|costs?|prices?|totals?|counts?|values?|"
    r"statistics?|sizes?|sums?|quantit\w+|rate|margin|number of \w+|lengths?|distances?|measurements?",
    "age": r"ages?|aged|years? old|how old|year-old",
    "group": r"clubs?|teams?|part(?:y|ies)|compan\w+|organi[sz]ations?|leagues?|competitions?|tournaments?|events?|"
    r"cups?|festivals?|shows?|programmes?|programs?|bands?|agenc\w+|division|affiliation|opponents?|brand|publisher",
    "cause": r"why|reasons?|causes?|caused|motives?|because|due to|circumstances",
}
"""Kind → how a clause names it. General English: a kind that is missing here only means that a critique has to use the
words themselves."""
_KINDS = re.compile("|".join(rf"(?P<{kind}>\b(?:{words})\b)" for kind, words in _NAMED.items()), re.IGNORECASE)
_ROLES = word_set("""
actor actress ambassador analyst artist author ballerina bishop boss bowler boxer broadcaster businessman
businesswoman captain chairman chairwoman champion chancellor chef chief coach columnist comedian commander
commissioner conductor constable councillor cricketer critic cyclist dancer defender deputy designer director doctor
driver editor engineer executive ex fighter fisherman flanker footballer former forward founder fullback full-back
gardener general goalkeeper golfer governor guard guitarist head host hooker inspector inventor jockey journalist
judge keeper king lawyer lead leader lieutenant lock magician maker manager mayor midfielder minister model musician
nurse officer official opener owner painter peer photographer pilot player poet politician presenter president
priest prime prince princess principal producer professor prop queen racer rapper reporter researcher scientist
scrum-half secretary senator sergeant singer singer-songwriter skipper soldier spinner spokesman spokeswoman star
stowaway striker student superintendent swimmer teacher teenager trainer veteran vice winger winner writer
centre-back full-time left-back right-back fly-half
""")
_TIMES = word_set("""
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december today yesterday tomorrow tonight week weeks month months year years day days hour hours
minute minutes second seconds decade decades century season seasons weekend morning evening afternoon night noon
midnight spring summer autumn winter annual daily weekly monthly yearly last next this ago since recent recently
previous previously late early end start ever
""")
_NUMBERS = word_set("""
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million
millions billion billions dozen dozens half third quarter first second fourth fifth sixth seventh eighth ninth tenth
once twice several many few more most least record number
""")
_IN_PLACE = word_set("in at near from outside inside around across off into to")
_CAUSES = word_set("because due over after following since amid as for by")


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

_CLASSES = {
    "determiner": word_set("a an the his her its their this that these those some any"),
    "preposition": word_set(
        "in on at to for from by with of into over after before during against about between under through as"
    ),
    "verb": word_set(
        "is are was were be been being has have had will would can could may might says said say did does do"
    ),
}


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
    return {
        "meant": met,
        "meant_count": count,
        "surface": content & _among(lower, words),
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
    in_place = capital & np.append(False, _among(lower, _IN_PLACE)[:-1])
    year = np.array([bool(re.fullmatch(r"(?:18|19|20)\d\d", word)) for word in lower], dtype=bool)
    digits = np.array([word[0].isdigit() or word[0] in "£$€" for word in lower], dtype=bool)
    number = (digits & ~year) | _among(lower, _NUMBERS)
    name = capital & ((np.arange(len(tokens)) > 0) | before_capital | after_capital)
    return {
        "first_name": capital & before_capital & ~after_capital,
        "name": name,
        "role": ~capital & (_among(lower, _ROLES) | (before_capital & content)),
        "place": in_place | name,
        "time": year | _among(lower, _TIMES),
        "number": number,
        "age": ["year-old" in word for word in lower] | (number & hyphen_behind),
        "group": capital,
        "cause": _among(lower, _CAUSES),
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
