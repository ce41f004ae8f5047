"""The critic of bulletins: it knows the facts, and says in plain English what is right, wrong, left out and garbled.
And the task `bulletin`, which puts examples, critic and metric together.

Enters: the column `facts` (slot → values that are right; a slot that is not there has no right value). Leaves: a
`Critique`: sentences and a score, which is Q of the completion. The aligner finds out what each sentence is about.
Two more are there to compare with: `bulletin_places` gives the exact place of every quote as well, `bulletin_quality`
also Q of prefixes. What Q gives and takes, and why nothing but a right bulletin pays: docs/demo-task.md.

`read` reads a text once from left to right and never looks ahead, so what it says about a prefix is what it would say
about that prefix alone. It does not know which facts are right. Of grammar it knows three words in a row: a word fits
if some template has it after the two words before it. Each word becomes one character: its class, or one of its own.
Facts are found by one regular expression over these characters; what fits is looked up in a set.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple

from text2grad._checked import shorten
from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.words import cite, column_at, encodable, listed
from text2grad.feedback.text import WORD_OR_SIGN
from text2grad.tasks.bulletin import (
    CAUSES,
    DATA,
    DAYS,
    KINDS,
    PARTS,
    PLACES,
    SENTENCES,
    SITES,
    STATES,
    THINGS,
    PersonState,
    article,
    bulletins,
    capital,
    closed_phrase,
    people_phrase,
)
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Critique, Quote, Verdict

Facts = Mapping[str, Sequence[str]]
TRAINING_SEEDS, VALIDATION_SEED, TEST_SEED = 100, 8, 9
"""Of the generator. A run's seed is added to the first; the embedded model was trained with the seeds 1 and 2."""
_QUESTIONS: dict[str, str] = DATA["questions"]
SLOTS = tuple(_QUESTIONS)
UNKNOWN, START = "?", "^"
_CLASSES = {
    "place": ("P", PLACES),
    "day": ("D", DAYS),
    "part": ("T", PARTS),
    "thing": ("G", THINGS),
    "site": ("S", SITES),
}
_NUMBERS_AND_CAUSES = {"{count}": "N", "{n}": "N", "{reason}": "C", "{Reason}": "B"}
"""C and B are causes, without and with a capital; their words take their place."""
_CODES = {name: "V" if article(name) == "an" else "K" for names, _ in KINDS for name in names}
"""A word → its class; K and V are what happened, apart by their article. Other words of bulletins join as their own."""
_CODES |= {word: code for code, words in _CLASSES.values() for word in words}
_HOLES = {f"{{{hole}}}": code for hole, (code, _) in _CLASSES.items()} | _NUMBERS_AND_CAUSES | {"K": "K", "V": "V"}
"""A hole of the templates → its class."""
_FIRST_OWN = 0x100
"""Words of the templates themselves get characters from here on."""
_STATES: dict[str, PersonState] = {state: state for state in STATES} | {"dead": "killed", "injured": "hurt"}


def _own_code(word: str) -> str:
    return _CODES.setdefault(word, chr(_FIRST_OWN + len(_CODES)))


def _coded_templates() -> Iterator[str]:
    """The templates as strings of codes, with both articles."""
    for text in SENTENCES:
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


_HARM = _codes("killed hurt injured trapped")
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
                    f"{_COUNT}{_codes('people')}(?:{_codes('were')}{_HARM}|{_codes('are')}{_codes('missing')})",
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

    def slips(self, word: int) -> bool:
        """Whether what begins at this word is no part of a sentence. After an unknown word every word fits, so a list
        with a dash between its values is one as well."""
        return self.misfits[word] or self.codes[word - 1 : word] == UNKNOWN


def read(text: str) -> Reading:
    """The words of a text, which of them do not fit, and the facts they state.

    >>> [(mention.slot, mention.value) for mention in read("A fire in Norwick hurt nobody.").mentions]
    [('what', 'fire'), ('where', 'Norwick'), ('people', 'nobody was hurt')]
    """
    places = [match.span() for match in WORD_OR_SIGN.finditer(text)]
    words = [text[start:end] for start, end in places]
    codes = "".join([_CODES.get(word) or ("N" if _NUMBER.fullmatch(word) else UNKNOWN) for word in words])
    mentions = []
    for match in _FACTS.finditer(codes):
        first, last = match.span()
        slot = match.lastgroup or ""
        mentions.append(Mention(first, last, slot, _value(slot, words[first:last])))
    starts, ends = [start for start, _ in places], [end for _, end in places]
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
        sentence = _VERBS.search(codes, begin, end) and _SUBJECTS.search(codes, begin, end)
        if sentence and codes[end - 2 : end + 1] in TRIPLES:
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


_MILD = 0.25
"""Severity of words that do not fit, where severities are used instead of Q."""
_LONGEST = 60
"""Characters of a quote that a sentence about it repeats."""
_MOST = 8
"""Sentences about single quotes in the feedback; each quote keeps its own as its comment."""


# What Q gives and takes. A right fact is worth 1, so a bulletin that states all facts and no more has Q = 1.
WRONG, UNSAID = 1.0, 0.6
"""Costs of a wrong fact, and of one that is left out. The first is more, or lying would cost nothing. Not much more, or
silence would be best for a policy that is right less than half of the time: so a guess pays from one chance in five."""
UNFINISHED = 0.05
"""Cost of a text that does not end with a whole sentence; the empty text does not either."""
LANGUAGE, PATIENCE = 2.0, 40.0
"""What all words that do not fit cost together at most, more than all facts give; and how many cost half of it."""


class BulletinCritic:
    """`critic(prompts, completions, facts=[…])`.

    >>> facts = {"what": ["fire", "blaze"], "where": ["Norwick"], "damage": ["7 houses"], "cause": ["a candle"]}
    >>> (critique,) = BulletinCritic()([""], ["A fire in Norwick damaged 9 houses."], facts=[facts])
    >>> critique.feedback
    '“fire” and “Norwick” are right. “9 houses” is wrong: the report says 7 houses. It does not say why.'
    """

    __name__ = "bulletin"

    def __init__(self, gives: Literal["words", "places", "quality"] = "words") -> None:
        self.gives = gives

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:  # noqa: ARG002
        facts = [column_at(columns, "facts", item) for item in range(len(completions))]
        return Critiques(
            None if truth is None else self.judge(completion, _checked_facts(truth, item))
            for item, (completion, truth) in enumerate(zip(completions, facts, strict=True))
        )

    def judge(self, completion: str, facts: Facts) -> Critique | None:
        """One completion against its facts; None where it holds half a surrogate pair, which cannot be quoted."""
        if not encodable(completion):
            return None
        reading = read(completion)
        tally = Tally(facts)
        quotes: list[Quote] = []
        quality: dict[int, float] = {0: tally.quality(reading, 0)}
        for first, last, mention in _stretches(reading):
            start, end = reading.starts[first], reading.ends[last - 1]
            quality[start] = tally.quality(reading, first)
            quoted = completion[start:end]
            if mention is None:
                tally.misfits += last - first
                quotes.append(Quote(quoted, "poor", _MILD, f"{_cited(quoted)} does not make a sentence.", start))
            else:
                verdict, comment = tally.add(mention, quoted, sum(reading.misfits[first:last]), reading.slips(first))
                quotes.append(Quote(quoted, verdict, None, comment, start))
            quality[end] = tally.quality(reading, last)
        score = quality[len(completion)] = tally.quality(reading, len(reading.starts))
        omissions = [_QUESTIONS[slot] for slot in SLOTS if slot in facts and slot not in tally.stated]
        finished = len(reading.starts) in reading.whole
        feedback = _feedback(quotes, omissions, finished)
        if self.gives == "words":
            return Critique(feedback, score=score)
        return Critique(
            feedback,
            quotes=tuple(quotes),
            omissions=(*omissions, *(() if finished else ("the end of a whole sentence",))),
            score=score,
            quality=tuple(quality.items()) if self.gives == "quality" else None,
            quotes_only=True,
        )


class Tally:
    """What has been said so far, and what it is worth."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.stated: dict[str, tuple[str, str]] = {}
        """Slot → value and words of its first mention."""
        self.right: set[str] = set()
        self.slips: set[str] = set()
        """Right ones that do not fit where they stand."""
        self.wrong: set[str] = set()
        self.unsaid = len(facts)
        self.misfits = 0

    def add(self, mention: Mention, quoted: str, misfits: int, slips: bool = False) -> tuple[Verdict, str]:
        """Count a mention; its verdict, and the sentence that explains it."""
        slot, value = mention.slot, mention.value
        accepted = self.facts.get(slot, ())
        truth = f"the report says {accepted[0]}" if accepted else f"the report does not say {_QUESTIONS[slot]}"
        if slot in self.stated:
            before, words = self.stated[slot]
            self.misfits += mention.last - mention.first
            if value == before or (slot in self.right and value in accepted):
                return "poor", f"{_cited(quoted)} is said again."
            self.right.discard(slot)
            self.slips.discard(slot)
            self.wrong.add(slot)
            if value in accepted:
                return "poor", f"{_cited(quoted)} comes too late: {_cited(words)} was said before."
            return "poor", f"{_cited(quoted)} contradicts {_cited(words)}: {truth}."
        self.stated[slot] = value, quoted
        self.unsaid -= slot in self.facts
        self.misfits += misfits
        if value in accepted:
            self.right.add(slot)
            if slips:
                self.slips.add(slot)
            return "good", f"{_cited(quoted)} is right{', but does not fit where it stands' if misfits else ''}."
        self.wrong.add(slot)
        return "poor", f"{_cited(quoted)} is wrong: {truth}."

    def quality(self, reading: Reading, words: int) -> float:
        """Q of the prefix of so many words, all of which have been counted."""
        # A slip is forgiven once: from the second on, a right fact that does not fit where it stands earns nothing.
        earned = len(self.right) - max(0, len(self.slips) - 1)
        worth = (earned - (WRONG * len(self.wrong) + UNSAID * self.unsaid)) / max(1, len(self.facts))
        garbled = LANGUAGE * self.misfits / (self.misfits + PATIENCE)
        return worth - garbled - (0.0 if words in reading.whole else UNFINISHED)


def facts_right(completion: str, facts: Facts) -> float:
    """The share of the facts that a completion says, right and without contradicting itself: the demo's measure.

    >>> facts_right("A fire in Norwick hurt nobody.", {"what": ["fire"], "where": ["Halden"]})
    0.5
    """
    tally = Tally(facts)
    for mention in read(completion).mentions:
        tally.add(mention, str(mention.first), 0)
    return len(tally.right) / max(1, len(facts))


def _stretches(reading: Reading) -> Iterator[tuple[int, int, Mention | None]]:
    """Mentions, and runs of words that do not fit between them, in order: what is quoted. They never overlap."""
    at = 0
    for mention in (*reading.mentions, None):
        until = mention.first if mention else len(reading.starts)
        yield from ((first, last, None) for first, last in _runs(reading.misfits, at, until))
        if mention:
            yield mention.first, mention.last, mention
            at = mention.last


def _runs(misfits: Sequence[bool], start: int, end: int) -> Iterator[tuple[int, int]]:
    for misfit, run in groupby(range(start, end), key=misfits.__getitem__):
        if misfit:
            first, *others = run
            yield first, first + 1 + len(others)


def _feedback(quotes: Sequence[Quote], omissions: Sequence[str], finished: bool) -> str:
    """The critique as a person would write it: praise first, then each fault, then what is missing."""
    if not quotes:
        return "It says nothing."
    right = [cite(quote.text) for quote in quotes if quote.verdict == "good"]
    sentences = [f"{listed(right, len(SLOTS))} {'is' if len(right) == 1 else 'are'} right."] if right else []
    faults = list(dict.fromkeys(quote.comment for quote in quotes if not quote.comment.endswith("is right.")))
    sentences += faults[:_MOST]
    if (more := len(faults) - _MOST) > 0:
        sentences.append("There is one more fault." if more == 1 else f"There are {more} more faults.")
    if omissions:
        before = f"{', '.join(omissions[:-1])} or " if omissions[1:] else ""
        sentences.append(f"It does not say {before}{omissions[-1]}.")
    if not finished:
        sentences.append("It is not a whole sentence.")
    return " ".join(sentences)


def _cited(quoted: str) -> str:
    return cite(quoted if len(quoted) <= _LONGEST else f"{quoted[:_LONGEST]}…")


def _checked_facts(facts: Any, item: int) -> Facts:
    """The column's value, or an error that says what it should be."""
    known = isinstance(facts, Mapping) and all(
        slot in _QUESTIONS and values and isinstance(values, list | tuple) and all(isinstance(v, str) for v in values)
        for slot, values in facts.items()
    )
    if not known:
        raise InvalidData(
            f"item {item}: facts should map some of {', '.join(SLOTS)} to lists of the values that are right, "
            f"got {shorten(facts)}"
        )
    return facts  # type: ignore[no-any-return]


bulletin = BulletinCritic()
"""`--critic text2grad.tasks.bulletin_critic:bulletin`."""
bulletin_places = BulletinCritic(gives="places")
bulletin_quality = BulletinCritic(gives="quality")


FACTS_RIGHT = Metric(
    "facts_right",
    "Facts right",
    "Share of the report's facts that the bulletin states correctly and does not contradict.",
    "higher",
    mean_of(lambda example, text: facts_right(text, example.columns["facts"])),  # type: ignore[arg-type]
)


def bulletin_task(*, seed: int = 0, count: int = 2000, held_out_count: int = 128, plain: bool = False) -> Task:
    """`task=bulletin`. Training examples are those of the demo with this seed; validation and test examples do not
    depend on it, so that runs with different seeds are measured on the same reports."""
    for name, value in (("seed", seed), ("count", count), ("held_out_count", held_out_count)):
        if not isinstance(value, int) or value < (name != "seed"):
            raise ConfigError(f"task_options.{name}: should be a whole number above 0, got {value!r}")
    return Task(
        "bulletin",
        {
            "train": partial(bulletins, TRAINING_SEEDS + seed, count, plain=plain),
            "validation": partial(bulletins, VALIDATION_SEED, held_out_count, "held_out", plain=plain),
            "test": partial(bulletins, TEST_SEED, held_out_count, "held_out", plain=plain),
        },
        critic="text2grad.tasks.bulletin_critic:bulletin",
        metrics=(FACTS_RIGHT,),
    )
