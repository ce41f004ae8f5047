"""The critic of bulletins: it knows the facts, and says in plain English what is right, wrong, left out and garbled.

Enters: the column `facts` (slot → values that are right; a slot that is not there has no right value). Leaves: a
`Critique` that quotes the completion at exact places. Its score is Q of the completion; its quality is Q of the
prefixes that end at 0, at every boundary of a quote, and at the end. Facts of None: not scored.

Q = mean over the facts (right 1, unsaid −`unsaid`, wrong −`wrong`; an invented fact costs as much as a wrong one)
    − `unfinished`, unless a whole sentence has just ended
    − `language` · x / (x + `patience`), for x words that do not fit

The first statement about a slot counts. Stating it again earns nothing and its words count as not fitting; stating
something else makes the slot wrong for good. So silence, guessing twice and babble do not pay (docs/demo-task.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Gt

from text2grad._checked import Real, shorten
from text2grad.config import settings
from text2grad.errors import InvalidData
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.words import cite, column_at, encodable, listed
from text2grad.tasks.bulletin_reader import SLOTS, Mention, Reading, read
from text2grad.types import Critique, Quote, Verdict

Facts = Mapping[str, Sequence[str]]

_QUESTIONS = {
    "what": "what happened",
    "where": "where",
    "day": "on which day",
    "part": "at what time of day",
    "damage": "what was damaged",
    "people": "what became of people",
    "cause": "why",
    "closed": "what is closed",
}
_MILD = 0.25
"""Severity of words that do not fit, where severities are used instead of Q."""
_LONGEST = 60
"""Characters of a quote that a sentence about it repeats."""
_MOST = 8
"""Sentences about single quotes in the feedback; each quote keeps its own as its comment."""


@settings
class BulletinSettings:
    """What Q gives and takes. A right fact is worth 1, so a bulletin that states all facts and no more has Q = 1."""

    wrong: Annotated[Real, Ge(0)] = 1.0
    """Cost of a wrong fact. More than `unsaid`, or lying would cost nothing. Not much more, or silence would be best
    for a policy that is right less than half of the time: with 1 and 0.6, a guess pays from one chance in five."""
    unsaid: Annotated[Real, Ge(0)] = 0.6
    """Cost of a fact that is left out."""
    unfinished: Annotated[Real, Ge(0)] = 0.05
    """Cost of a text that does not end with a whole sentence; the empty text does not either."""
    language: Annotated[Real, Ge(0)] = 2.0
    """Upper limit of what all words that do not fit cost together: more than all right facts give."""
    patience: Annotated[Real, Gt(0)] = 40.0
    """This many words that do not fit cost half of `language`; the first costs `language` / (`patience` + 1)."""


class BulletinCritic:
    """`critic(prompts, completions, facts=[…])`.

    >>> facts = {"what": ["fire", "blaze"], "where": ["Norwick"], "damage": ["7 houses"], "cause": ["a candle"]}
    >>> (critique,) = BulletinCritic()([""], ["A fire in Norwick damaged 9 houses."], facts=[facts])
    >>> critique.feedback
    '“fire” and “Norwick” are right. “9 houses” is wrong: the report says 7 houses. It does not say why.'
    """

    __name__ = "bulletin"

    def __init__(self, settings: BulletinSettings | None = None) -> None:
        self.settings = settings or BulletinSettings()

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
        tally = Tally(facts, self.settings)
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
                verdict, comment = tally.add(mention, quoted, sum(reading.misfits[first:last]))
                quotes.append(Quote(quoted, verdict, None, comment, start))
            quality[end] = tally.quality(reading, last)
        score = quality[len(completion)] = tally.quality(reading, len(reading.starts))
        omissions = [_QUESTIONS[slot] for slot in SLOTS if slot in facts and slot not in tally.stated]
        finished = len(reading.starts) in reading.whole
        return Critique(
            _feedback(quotes, omissions, finished),
            quotes=tuple(quotes),
            omissions=(*omissions, *(() if finished else ("the end of a whole sentence",))),
            score=score,
            quality=tuple(quality.items()),
            quotes_only=True,
        )


class Tally:
    """What has been said so far, and what it is worth."""

    def __init__(self, facts: Facts, settings: BulletinSettings) -> None:
        self.facts = facts
        self.settings = settings
        self.stated: dict[str, tuple[str, str]] = {}
        """Slot → value and words of its first mention."""
        self.right: set[str] = set()
        self.wrong: set[str] = set()
        self.unsaid = len(facts)
        self.misfits = 0

    def add(self, mention: Mention, quoted: str, misfits: int) -> tuple[Verdict, str]:
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
            self.wrong.add(slot)
            if value in accepted:
                return "poor", f"{_cited(quoted)} comes too late: {_cited(words)} was said before."
            return "poor", f"{_cited(quoted)} contradicts {_cited(words)}: {truth}."
        self.stated[slot] = value, quoted
        self.unsaid -= slot in self.facts
        self.misfits += misfits
        if value in accepted:
            self.right.add(slot)
            return "good", f"{_cited(quoted)} is right{', but does not fit where it stands' if misfits else ''}."
        self.wrong.add(slot)
        return "poor", f"{_cited(quoted)} is wrong: {truth}."

    def quality(self, reading: Reading, words: int) -> float:
        """Q of the prefix of so many words, all of which have been counted."""
        chosen = self.settings
        taken = chosen.wrong * len(self.wrong) + chosen.unsaid * self.unsaid
        worth = (len(self.right) - taken) / max(1, len(self.facts))
        garbled = chosen.language * self.misfits / (self.misfits + chosen.patience)
        return worth - garbled - (0.0 if words in reading.whole else chosen.unfinished)


def facts_right(completion: str, facts: Facts) -> float:
    """The share of the facts that a completion says, right and without contradicting itself: the demo's measure.

    >>> facts_right("A fire in Norwick hurt nobody.", {"what": ["fire"], "where": ["Halden"]})
    0.5
    """
    tally = Tally(facts, BulletinSettings())
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
    first = start
    for index in range(start, end):
        if not misfits[index]:
            if first < index:
                yield first, index
            first = index + 1
    if first < end:
        yield first, end


def _feedback(quotes: Sequence[Quote], omissions: Sequence[str], finished: bool) -> str:
    """The critique as a person would write it: praise first, then each fault, then what is missing."""
    if not quotes:
        return "It says nothing."
    plain = [cite(quote.text) for quote in quotes if quote.verdict == "good"]
    sentences = []
    if plain:
        sentences.append(f"{listed(plain, len(SLOTS))} {'is' if len(plain) == 1 else 'are'} right.")
    faults = list(dict.fromkeys(quote.comment for quote in quotes if not quote.comment.endswith("is right.")))
    sentences += faults[:_MOST]
    if (more := len(faults) - _MOST) > 0:
        sentences.append("There is one more fault." if more == 1 else f"There are {more} more faults.")
    if omissions:
        sentences.append(
            f"It does not say {', '.join(omissions[:-1])}{' or ' if omissions[1:] else ''}{omissions[-1]}."
        )
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
"""With the default settings: `--critic text2grad.tasks.bulletin_critic:bulletin`."""
