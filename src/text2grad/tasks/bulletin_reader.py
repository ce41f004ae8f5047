"""Reads a text as a bulletin: the facts it states, where, and the words that do not fit.

Enters: any text. Leaves: a `Reading`. It reads once from left to right and never looks ahead, so what it says about a
prefix is what it would say about that prefix alone. It does not know which facts are right. Of grammar it knows three
words in a row: a word fits if some template has it after the two words before it. A sentence is whole if it has an
incident and a verb, and if its end fits.

Each word becomes one character: its class, or one of its own. Facts are found by one regular expression over these
characters; what fits is looked up in a set.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from text2grad.tasks import bulletin_world as world
from text2grad.tasks.bulletin_world import CAUSES, KINDS, State, article, capital, closed_phrase, people_phrase

SLOTS = ("what", "where", "day", "part", "damage", "people", "cause", "closed")
UNKNOWN, START = "?", "^"
_CODES: dict[str, str] = {
    **{name: "V" if article(name) == "an" else "K" for names, _ in KINDS for name in names},
    **dict.fromkeys(world.PLACES, "P"),
    **dict.fromkeys(world.DAYS, "D"),
    **dict.fromkeys(world.PARTS, "T"),
    **dict.fromkeys(world.THINGS, "G"),
    **dict.fromkeys(world.SITES, "S"),
}
"""A word → its class; K and V are what happened, apart by their article. Other words of bulletins join as their own."""
_HOLES = {
    "{place}": "P",
    "{day}": "D",
    "{part}": "T",
    "{count}": "N",
    "{thing}": "G",
    "{n}": "N",
    "{site}": "S",
    "{reason}": "C",
    "{Reason}": "B",
    "K": "K",
    "V": "V",
}
"""A hole of the templates → its class. C and B are causes, without and with a capital; their words take their place."""
_FIRST_OWN = 0x100
"""Words of the templates themselves get characters from here on."""
_STATES: dict[str, State] = {
    "killed": "killed",
    "dead": "killed",
    "hurt": "hurt",
    "injured": "hurt",
    "missing": "missing",
    "trapped": "trapped",
}


def _own_code(word: str) -> str:
    return _CODES.setdefault(word, chr(_FIRST_OWN + len(_CODES)))


def _coded_templates() -> Iterator[str]:
    """The templates as strings of codes, with both articles."""
    for text in world.SENTENCES:
        for a, name in (("a", "K"), ("an", "V")):
            words = text.replace("{a what}", f"{a} {name}").replace("{A what}", f"{capital(a)} {name}").split()
            yield "".join(_HOLES.get(word) or _own_code(word) for word in words)


def _cause_codes(spelt: Callable[[str], str] = str) -> list[str]:
    return ["".join(_own_code(word) for word in spelt(cause).split()) for cause in CAUSES]


def _triples() -> Iterator[str]:
    """Every three words that a template has in a row; those around a cause, for every cause."""
    causes = {"C": _cause_codes(), "B": _cause_codes(capital)}
    around = set()
    for code in set(_coded_templates()):
        padded = START * 2 + code
        yield from (padded[i : i + 3] for i in range(len(code)))
        around |= {(padded[i - 2 : i], hole, padded[i + 1 : i + 3]) for i, hole in enumerate(padded) if hole in causes}
    for before, hole, behind in around:
        for cause in causes[hole]:
            whole = before + cause + behind
            yield from (whole[i : i + 3] for i in range(len(whole) - 2))


TRIPLES = frozenset(_triples())
PAIRS = frozenset(triple[1:] for triple in TRIPLES)
STOP = _CODES["."]


def _codes(words: str) -> str:
    """Alternatives as a class of characters: `_codes("is are")` matches either word."""
    return f"[{''.join(_CODES[word] for word in words.split())}]"


_HARM, _WERE_HARMED = _codes("killed hurt injured trapped"), f"{_codes('were')}{_codes('killed hurt injured trapped')}"
_BETWEEN = f"[{_CODES['and']}{_CODES[',']}{re.escape(UNKNOWN)}]{{0,2}}"
_COUNT = f"N(?:{_BETWEEN}N){{0,3}}"
"""A number, or several: "9 or 14 houses" is one claim, and a wrong one."""
_FACTS = re.compile(
    "|".join(
        f"(?P<{slot}>{pattern})"
        for slot, pattern in {
            "what": "[KV]",
            "where": "P",
            "day": "D",
            "part": "T",
            "damage": f"{_COUNT}G",
            "people": "|".join(
                (
                    f"(?:{_HARM}{_BETWEEN}){{0,3}}{_HARM}{_COUNT}{_codes('people')}",
                    f"{_codes('left')}{_COUNT}{_codes('people')}{_codes('dead missing')}",
                    f"{_COUNT}{_codes('people')}(?:{_WERE_HARMED}|{_codes('are')}{_codes('missing')})",
                    f"{_codes('hurt')}{_codes('nobody')}|{_codes('nobody')}{_codes('was')}{_codes('hurt')}",
                )
            ),
            "cause": "|".join((*_cause_codes(), *_cause_codes(capital))),
            "closed": "S",
        }.items()
    )
)
_SUBJECTS = re.compile("[KV]")
_VERBS = re.compile(f"{_HARM}|{_codes('damaged left')}")


_WORD = re.compile(r"\w+|[^\w\s]")
_NUMBER = re.compile(r"[0-9]+")


class Mention(NamedTuple):
    """A fact that the text states: words `first` to `last`, half open."""

    first: int
    last: int
    slot: str
    value: str
    """As `Incident.facts` writes it."""


class Reading(NamedTuple):
    """A text as the reader sees it. Lists run over words; a mark like a comma counts as one."""

    starts: list[int]
    ends: list[int]
    codes: str
    misfits: list[bool]
    whole: set[int]
    """After how many words a whole sentence has just ended."""
    mentions: list[Mention]


def read(text: str) -> Reading:
    """The words of a text, which of them do not fit, and the facts they state.

    >>> [(mention.slot, mention.value) for mention in read("A fire in Norwick hurt nobody.").mentions]
    [('what', 'fire'), ('where', 'Norwick'), ('people', 'nobody was hurt')]
    """
    starts: list[int] = []
    ends: list[int] = []
    words: list[str] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        starts.append(start)
        ends.append(end)
        words.append(text[start:end])
    codes = "".join([_CODES.get(word) or ("N" if _NUMBER.fullmatch(word) else UNKNOWN) for word in words])
    mentions = []
    for match in _FACTS.finditer(codes):
        first, last = match.span()
        slot = match.lastgroup or ""
        mentions.append(Mention(first, last, slot, _value(slot, words[first:last])))
    return Reading(starts, ends, codes, _misfits(codes), _whole(codes), mentions)


def _misfits(codes: str) -> list[bool]:
    """Which words do not fit after the two before them. After a misfit the one word before decides, and after an
    unknown word any known one fits: so one slip counts once."""
    padded = START * 2 + codes
    misfits: list[bool] = []
    misfit = False
    for index, code in enumerate(codes):
        if not misfit:
            misfit = padded[index : index + 3] not in TRIPLES
        else:
            misfit = code == UNKNOWN or (padded[index + 1] != UNKNOWN and padded[index + 1 : index + 3] not in PAIRS)
        misfits.append(misfit)
    return misfits


def _whole(codes: str) -> set[int]:
    ends = set()
    begin = 0
    while (end := codes.find(STOP, begin)) >= 0:
        if (
            _VERBS.search(codes, begin, end)
            and _SUBJECTS.search(codes, begin, end)
            and codes[end - 2 : end + 1] in TRIPLES
        ):
            ends.add(end + 1)
        begin = end + 1
    return ends


def _value(slot: str, words: list[str]) -> str:
    if slot == "people":
        if "nobody" in words:
            return people_phrase("", "nobody")
        at = words.index("people")
        count = [word for word in words[:at] if word not in _STATES and word != "left"]
        states = [word for word in words if word in _STATES]
        if len(count) > 1 or len(states) > 1:
            return " ".join(words)
        return people_phrase(count[0], _STATES[states[0]])
    if slot == "closed":
        return closed_phrase(words[0])
    if slot == "cause":
        cause = " ".join(words)
        return cause[0].lower() + cause[1:]
    return " ".join(words)
