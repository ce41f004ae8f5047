"""Evidence, word by word, that a critique is about a word of the completion: named numbers, nothing decided yet.

Enters: the words of a sentence, the clauses about it, the source where there is one. Leaves: one row of numbers per
word: whether the clauses' words meet it (as meant, or as compared with it), whether the source supports it, whether it
is of a kind that is named ("the first name", "the number of dead"), and how it stands among its neighbours.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback import lexicon
from text2grad.feedback.lexicon import CRITIC_WORDS
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import COMPOUND, FUNCTION_WORDS, WORD, Place, stem, word_set

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


def without_kinds(words: str) -> str:
    """A clause without the words that only name a kind."""
    return _KINDS.sub(" ", words)


# ---- What a clause talks about ---------------------------------------------------------------------------------------

_TO_MEANT = re.compile(
    rf"\b(?:instead of|rather than|as opposed to|not just|as stated in the|,? not(?! only))\b|"
    rf"{lexicon.COMPLETION_SAYS.pattern}",
    re.IGNORECASE,
)
_TO_COMPARED = re.compile(
    r"\b(?:should (?:actually |really |instead |rather |probably )?(?:be|have been|say|read|have said|state|use|return)"
    r"|but (?:rather|actually|in fact)|in fact|in reality|actually|the correct \w+ (?:is|are|was|would be|being)"
    r"|only (?:that|says|states|mentions|said|mentioned)|(?:whereas|when) in \w+"
    r"|(?:replace|replaced|replacing|change|changed|changing|modify|correct)\b[^.]{0,120}?\b(?:with|to|by)\b"
    r"(?! the summary)|instead(?! of)|to say|to read|to be|it (?:is|was) (?:really|actually|just|only))\b",
    re.IGNORECASE,
)
_ALL = re.compile(
    r"\b(?:everything|entire(?:ly)?|whole|completely|totally|all of|none of|nothing|any of|most of|the summary is "
    r"(?:not|wrong|incorrect)|rest of)\b",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"\b(?:not?|n['’]t|never|nowhere|un(?:supported|verified|mentioned)|absent|makes? up|made up|adds?|"
    r"hallucinat\w+|fabricat\w+|invent\w+)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A content word of a clause."""

    stem: str
    meant: bool
    """Not a word of the source, or of a better version, that the completion is compared with."""


def mentions_of(text: str) -> list[Mention]:
    """Read a clause from left to right; each turn of phrase says what the words behind it are there for.

    >>> [(m.stem, m.meant) for m in mentions_of("It says seven ships, but the source says nine.")]
    [('seven', True), ('ship', True), ('nine', False)]
    """
    sources = list(lexicon.SOURCE_SAYS.finditer(text))
    spoken = {match.end() for match in sources}
    # "The source text says": the source speaks, although a text speaks too.
    turns = [(match.end(), True) for match in _TO_MEANT.finditer(text) if match.end() not in spoken]
    turns += [(match.end(), False) for match in _TO_COMPARED.finditer(text)]
    turns += [(match.end(), False) for match in sources if not lexicon.negated(text, match)]
    turns.sort(reverse=True)
    mentions = []
    meant = True
    for match in WORD.finditer(text):
        word = match[0].lower()
        if word not in FUNCTION_WORDS and word not in CRITIC_WORDS:
            while turns and turns[-1][0] <= match.start():
                meant = turns.pop()[1]
            mentions.append(Mention(stem(word), meant))
    return mentions


@dataclass(frozen=True, slots=True)
class _Talk:
    """What the clauses about one sentence say together."""

    meant: dict[str, set[int]]
    """Stem → the clauses that mean it."""
    compared: set[str]
    surfaces: set[str]
    pairs: set[tuple[str, str]]
    """Stems that follow each other in the critique, function words apart."""
    kinds: set[str]
    says_all: bool
    denies: bool
    words: int

    @classmethod
    def of(cls, clauses: Sequence[Clause]) -> "_Talk":
        meant: dict[str, set[int]] = {}
        compared: set[str] = set()
        pairs: set[tuple[str, str]] = set()
        surfaces: list[str] = []
        for number, clause in enumerate(clauses):
            for mention in mentions_of(clause.plain):
                if mention.meant:
                    meant.setdefault(mention.stem, set()).add(number)
                else:
                    compared.add(mention.stem)
            words = [match[0].lower() for match in COMPOUND.finditer(clause.plain)]
            surfaces += words
            pairs.update(pairwise(stem(word) for word in words if word not in FUNCTION_WORDS))
        text = " . ".join(clause.plain for clause in clauses)
        flags = bool(_ALL.search(text)), bool(_DENIES.search(text))
        return cls(meant, compared, set(surfaces), pairs, kinds_in(text), *flags, len(surfaces))


# ---- The completion's words, and what the source supports ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    start: int
    end: int
    text: str
    lower: str
    stems: tuple[str, ...]
    """Of its parts, then of the whole."""


@lru_cache(maxsize=32_768)
def _stems(lower: str) -> tuple[str, ...]:
    parts = tuple(stem(part) for part in re.findall(r"[^\W_]+", lower))
    whole = stem(lower)
    return parts if parts == (whole,) else (*parts, whole)


def tokens_of(raw: str, start: int = 0, end: int | None = None) -> list[Token]:
    """The words of a stretch, hyphenated ones whole, with their currency and per cent signs."""
    matches = COMPOUND.finditer(raw, start, len(raw) if end is None else end)
    return [Token(m.start(), m.end(), m[0], m[0].lower(), _stems(m[0].lower())) for m in matches]


@dataclass(frozen=True, slots=True)
class Support:
    """The source, ready to be asked whether it supports a word, or two words in a row."""

    stems: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, source: str) -> "Support":
        words = [_stems(word) for word in COMPOUND.findall(source.lower())]
        content = [parts[-1] for parts in words if parts[-1] not in FUNCTION_WORDS]
        return cls(frozenset(part for parts in words for part in parts), frozenset(pairwise(content)))

    def holds(self, token: Token) -> bool:
        return token.stems[-1] in self.stems or all(part in self.stems for part in token.stems[:-1] or token.stems)


# ---- Rows ------------------------------------------------------------------------------------------------------------

Flags = NDArray[np.bool_]
Columns = dict[str, Any]
"""Name → one number per word, or one for all of them."""

_CLASSES = {
    "determiner": word_set("a an the his her its their this that these those some any"),
    "preposition": word_set(
        "in on at to for from by with of into over after before during against about between under through as"
    ),
    "verb": word_set(
        "is are was were be been being has have had will would can could may might says said say did does do"
    ),
    "critic_word": CRITIC_WORDS,
}


class _Sentence:
    """The words of a sentence as arrays, made once for all columns."""

    def __init__(self, raw: str, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.lower = [token.lower for token in tokens]
        self.content = ~self.among(FUNCTION_WORDS)
        self.gaps = [".", *(raw[a.end : b.start] for a, b in pairwise(tokens)), "."]
        self.capital = np.array([token.text[0].isupper() for token in tokens], dtype=bool)
        joined = np.array([gap == " " for gap in self.gaps])
        self.after_capital = np.append(False, self.capital[:-1]) & joined[:-1]
        self.before_capital = np.append(self.capital[1:], False) & joined[1:]
        self.in_place = self.capital & np.append(False, self.among(_IN_PLACE)[:-1])
        self.first = np.arange(len(tokens)) == 0

    def among(self, words: frozenset[str]) -> Flags:
        return np.array([word in words for word in self.lower], dtype=bool)

    def looks(self) -> Columns:
        """How the words look and stand, whatever the critique says."""
        return {
            "function": ~self.content,
            **{name: self.among(words) for name, words in _CLASSES.items()},
            "capital": self.capital & ~self.first,
            "first_capital": self.capital & self.first,
            "first": self.first,
            "last": self.first[::-1],
            "comma_before": ["," in gap for gap in self.gaps[:-1]],
            "comma_after": ["," in gap for gap in self.gaps[1:]],
            "name_start": self.capital & self.before_capital & ~self.after_capital,
            "name_inside": self.capital & self.after_capital,
            "in_place": self.in_place,
            **{f"ends_{ending}": [word.endswith(ending) for word in self.lower] for ending in ("ed", "ing", "ly", "s")},
            "hyphen": ["-" in word for word in self.lower],
            "length": [min(len(word), 12) / 6 for word in self.lower],
            "words": min(len(self.tokens), 60) / 30,
        }

    def kinds(self) -> dict[str, Flags]:
        """Kind → which words are of it."""
        year = np.array([bool(re.fullmatch(r"(?:18|19|20)\d\d", word)) for word in self.lower], dtype=bool)
        digits = np.array([word[0].isdigit() or word[0] in "£$€" for word in self.lower], dtype=bool)
        number = (digits & ~year) | self.among(_NUMBERS)
        name = self.capital & (~self.first | self.before_capital | self.after_capital)
        return {
            "first_name": self.capital & self.before_capital & ~self.after_capital,
            "name": name,
            "role": ~self.capital & (self.among(_ROLES) | (self.before_capital & self.content)),
            "place": self.in_place | name,
            "time": year | self.among(_TIMES),
            "number": number,
            "age": ["year-old" in word for word in self.lower] | (number & ["-" in gap for gap in self.gaps[1:]]),
            "group": self.capital,
            "cause": self.among(_CAUSES),
        }

    def pairs(self, step: int) -> list[tuple[str, str] | None]:
        """Each word with the nearest content word on one side, at most three away, in the order of the text."""
        found: list[tuple[str, str] | None] = []
        for index, token in enumerate(self.tokens):
            near = range(index + step, index + 4 * step, step)
            other = next((k for k in near if 0 <= k < len(self.tokens) and self.content[k]), None)
            stems = (token.stems[-1], self.tokens[other].stems[-1]) if other is not None else None
            found.append(stems[::step] if stems else None)  # type: ignore[arg-type]
        return found


def evidence(
    raw: str, tokens: Sequence[Token], clauses: Sequence[Clause], support: Support | None, quoted: Sequence[Place] = ()
) -> NDArray[np.float32]:
    """One row per word of a sentence, one column per name in `COLUMNS`."""
    columns = _columns(_Sentence(raw, tokens), _Talk.of(clauses), support, quoted)
    rows = np.empty((len(tokens), len(columns)), dtype=np.float32)
    for index, column in enumerate(columns.values()):
        rows[:, index] = column
    return rows


def _columns(words: _Sentence, talk: _Talk, support: Support | None, quoted: Sequence[Place]) -> Columns:
    tokens, content = words.tokens, words.content
    meant = content * [max((len(talk.meant.get(part, ())) for part in token.stems), default=0) for token in tokens]
    met = meant > 0
    lone = content & [support is not None and not support.holds(token) for token in tokens]
    held = content & ~lone & (support is not None)
    left, right, kinds = words.pairs(-1), words.pairs(1), words.kinds()
    named = {f"kind_{kind}": flags & (kind in talk.kinds) for kind, flags in kinds.items()}
    count = max(1, int(content.sum()))
    return {
        "meant": met,
        "meant_count": meant,
        "surface": content & [word in talk.surfaces for word in words.lower],
        "compared": content & ~met & [any(part in talk.compared for part in token.stems) for token in tokens],
        "pair_left": content & [pair in talk.pairs for pair in left],
        "pair_right": content & [pair in talk.pairs for pair in right],
        "quoted": [any(a <= token.start and token.end <= b for a, b in quoted) for token in tokens],
        "unsupported": lone,
        "supported": held,
        "no_source": support is None,
        "pair_unsupported": held
        & [support is not None and pair is not None and pair not in support.pairs for pair in left],
        **words.looks(),
        **{f"is_{kind}": kinds[kind] for kind in ("role", "time", "number")},
        **named,
        **{f"cue_{kind}": kind in talk.kinds for kind in kinds},
        "any_kind": any(flags.any() for flags in named.values()),
        "left_meant": _nearness(met),
        "right_meant": _nearness(met[::-1])[::-1],
        "left_unsupported": _nearness(lone),
        "right_unsupported": _nearness(lone[::-1])[::-1],
        "meant_near": np.convolve(met, np.ones(7))[3 : 3 + len(tokens)],
        "matched": min(met.sum(), 8) / 4,
        "matched_share": met.sum() / count,
        "unsupported_share": lone.sum() / count,
        "unsupported_matched": min((met & lone).sum(), 4) / 2,
        "said_words": min(talk.words, 40) / 20,
        "says_all": talk.says_all,
        "denies_source": talk.denies,
    }


def _nearness(hits: Flags) -> NDArray[np.float32]:
    """1 for the word behind a hit, fading to 0 with the distance to the last one."""
    places = np.arange(len(hits))
    last = np.maximum.accumulate(np.where(hits, places, -np.inf))
    near: NDArray[np.float32] = 1 / np.minimum(places - np.append(-np.inf, last[:-1]), 1e6)
    return near


COLUMNS = tuple(_columns(_Sentence("a", tokens_of("a")), _Talk.of([]), None, ()))
_MET, _QUOTED, _LONE, _DENIED = (COLUMNS.index(name) for name in ("meant", "quoted", "unsupported", "denies_source"))
_POINTING = [_MET, _QUOTED, *(COLUMNS.index(f"kind_{kind}") for kind in _NAMED)]


def points(rows: NDArray[np.float32], *, praise: bool) -> bool:
    """Whether anything in a sentence is met by the critique's words, is of a kind that it names, or is what it denies
    the source. Without any of that the scorer would only guess. For praise only words count."""
    if praise:
        return bool(rows[:, _MET].any())
    return bool(rows[:, _POINTING].any() or (rows[:, _LONE] * rows[:, _DENIED]).any())
