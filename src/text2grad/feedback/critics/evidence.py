"""Source passages, made ready to be asked: which words, names, numbers and dates they hold, and which of their
sentences is about the same thing as a sentence of the completion.

Enters: passages. Leaves: findings with the number of the passage and its own words, for a comment to cite. Knows
nothing of verdicts.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from text2grad.feedback.critics.facts import Date, Fact, Number, facts_of, same_value
from text2grad.feedback.critics.words import Word, sentences_of, words_of
from text2grad.feedback.text import FUNCTION_WORDS, Text, stem

_MOST_FACTS = 100
_TITLES = frozenset(
    {
        "mr", "mrs", "ms", "miss", "dr", "sir", "dame", "lord", "lady", "president", "prime", "secretary", "chancellor",
        "king", "queen", "prince", "princess", "pope", "bishop", "judge", "justice", "professor", "captain", "sergeant",
        "constable", "inspector", "councillor", "mayor", "senator", "governor", "chief", "north", "south", "east",
        "west", "new", "great",
    }
)  # fmt: skip
"""Words before a name that are no part of it, so that "Mr Carr" is no other name than "Jimmy Carr"."""
T = TypeVar("T", Word, Number | Date)
F = TypeVar("F", Number, Date)
_ROUNDED = re.compile(
    r"\b(?:about|around|almost|nearly|over|under|roughly|approximately|some|more than|less than|up to|at least|"
    r"an estimated|close to)\s*[£$€]?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    passage: int
    """Counted from 1, as a person would."""
    text: str
    words: tuple[Word, ...]
    stems: frozenset[str]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Cited:
    """Words of a passage."""

    passage: int
    text: str


class Evidence:
    """What the passages hold. Use `evidence_in`, which keeps the latest ones."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.sentences = [sentence for number, text in enumerate(passages, 1) for sentence in _read(number, text)]
        self.stems = frozenset(stem for sentence in self.sentences for stem in sentence.stems)
        self.size = sum(len(sentence.words) for sentence in self.sentences)
        self._beginnings = {stem[:5] for stem in self.stems} | {f"{stem}$" for stem in self.stems if len(stem) == 4}
        self._initials = " ".join(_initials(sentence) for sentence in self.sentences)
        facts = [fact for sentence in self.sentences for fact in sentence.facts]
        numbers = [fact for fact in facts if isinstance(fact, Number)]
        dates = [fact for fact in facts if isinstance(fact, Date)]
        self._years = {date.year for date in dates} | {int(number.value) for number in numbers if number.year}
        # Each once, and numbers in order: a long text is asked as often as it has sentences.
        self._numbers = sorted(_once(numbers), key=lambda number: number.value)
        self._in_order = [number.value for number in self._numbers]
        self._values = set(self._in_order)
        self._dates = _once(dates)
        self._days = {float(date.day) for date in self._dates if date.day is not None}
        self._full_names: dict[str, Cited] = {}
        where: dict[str, list[int]] = {}
        for index, sentence in enumerate(self.sentences):
            for first, last in _name_pairs(sentence):
                cited = Cited(sentence.passage, sentence.text[first.start : last.end])
                self._full_names.setdefault(last.stem, cited)
            for each in sentence.stems:
                where.setdefault(each, []).append(index)
        self._where = {each: np.array(found) for each, found in where.items()}

    def has_word(self, word: str) -> bool:
        """Whether a word is there, or one that begins alike ("Scottish" for "Scotland"), or what it abbreviates."""
        root = stem(word)
        if root in self.stems:
            return True
        if len(root) >= 5 and root[:5] in self._beginnings:
            return True
        if len(root) >= 5 and f"{root[:4]}$" in self._beginnings:
            return True
        return len(word) >= 2 and word.isupper() and word in self._initials

    def has_fact(self, fact: Fact, before: str) -> bool:
        """Whether a number or date is there; `before` are the words before it, which may say that it is rounded."""
        if isinstance(fact, Date):
            found = any(fact.agrees(date) and (fact.day is None or date.day is not None) for date in self._dates)
            return found and (fact.year is None or fact.year in self._years)
        if fact.year and int(fact.value) in self._years:
            return True
        if fact.value not in self._values and fact.value in self._days:
            return True
        if fact.value in self._values and fact.measure is None:
            return True
        loose = _ROUNDED.search(before) is not None or (fact.value >= 1000 and not fact.year)
        if not loose and fact.value not in self._values:
            return False
        # Nothing further away rounds to it: `same_value` allows a tenth.
        first = bisect_left(self._in_order, fact.value / 1.12)
        end = bisect_right(self._in_order, fact.value / 0.88)
        return any(same_value(fact, number, loose) for number in self._numbers[first:end])

    def nearest(self, stems: Collection[str], least: int) -> Sentence | None:
        """The sentence that shares most of these stems, at least so many; the first of equals."""
        places = [self._where[each] for each in stems if each in self._where]
        if not places:
            return None
        counts = np.bincount(np.concatenate(places))
        best = int(counts.argmax())
        return self.sentences[best] if counts[best] >= least else None

    def instead_of(
        self, fact: Fact, nearest: Sentence, next_word: Word | None, stated: Collection[Fact]
    ) -> Cited | None:
        """What the nearest sentence says where the completion has this fact: one of its own kind, said there alone."""
        for other in nearest.facts[:_MOST_FACTS]:
            end = other.end
            if isinstance(fact, Date):
                alike = isinstance(other, Date) or (other.year and fact.year is not None)
            elif isinstance(other, Date):
                alike = fact.year and other.year is not None
            elif fact.measure or other.measure:
                alike = fact.measure == other.measure
            else:
                counted = word_after(nearest.words, other)
                same_noun = next_word is not None and counted is not None and counted.stem == next_word.stem
                alike = (fact.year and other.year) or (same_noun and not other.year)
                end = counted.end if counted is not None and same_noun else other.end
            if alike and not any(_same(other, said) for said in stated):
                return Cited(nearest.passage, nearest.text[other.start : end])
        return None

    def full_name(self, last: str) -> Cited | None:
        """The full name that the passages have first for a last name, by its stem."""
        return self._full_names.get(last)


@lru_cache(maxsize=128)
def evidence_in(passages: tuple[str, ...]) -> Evidence:
    """Evidence, kept, because the completions of a batch share their passages."""
    return Evidence(passages)


def word_after(words: Sequence[Word], fact: Fact) -> Word | None:
    """The word that follows a fact: what it counts."""
    index = bisect_left(words, (fact.end,))
    return words[index] if index < len(words) else None


def shifted(items: Sequence[T], start: int, end: int) -> Iterator[T]:
    """The words or facts of a stretch, with places counted from its start."""
    first = bisect_left(items, (start,))
    for index in range(first, len(items)):
        item = items[index]
        if item.end > end:
            return
        yield type(item)(item.start - start, item.end - start, *item[2:])


def is_name(raw: str, word: Word) -> bool:
    """Whether a word is written with a capital."""
    return raw[word.start].isupper() and word.content


def _once(facts: Sequence[F]) -> list[F]:
    """Facts without those that say the same elsewhere."""
    return list({fact[2:]: fact for fact in facts}.values())


def _same(a: Fact, b: Fact) -> bool:
    if isinstance(a, Date) and isinstance(b, Date):
        return a.agrees(b)
    return isinstance(a, Number) and isinstance(b, Number) and a.value == b.value


def _read(passage: int, raw: str) -> Iterator[Sentence]:
    text = Text(raw)
    words, facts = words_of(text), facts_of(raw)
    for start, end in sentences_of(text):
        inside = tuple(shifted(words, start, end))
        if inside:
            stems = frozenset(word.stem for word in inside)
            yield Sentence(passage, raw[start:end], inside, stems, tuple(shifted(facts, start, end)))


def _name_pairs(sentence: Sentence) -> Iterator[tuple[Word, Word]]:
    """Two capitalised words in a row that look like a first and a last name: neither begins the sentence, the first is
    no title, and no third one goes with them."""
    raw, words = sentence.text, sentence.words
    for index in range(1, len(words) - 1):
        first, last = words[index], words[index + 1]
        if not (is_name(raw, first) and is_name(raw, last)) or raw[first.end : last.start] != " ":
            continue
        neighbours = [words[index - 1]] if index > 1 else []
        neighbours += [words[index + 2]] if index + 2 < len(words) else []
        if sentence.text[first.start : first.end].lower() in _TITLES or any(is_name(raw, word) for word in neighbours):
            continue
        yield first, last


def _initials(sentence: Sentence) -> str:
    """Initials of neighbouring capitalised words, function words between them left out: "World Health Organization" →
    WHO."""
    return "".join(
        sentence.text[word.start] if sentence.text[word.start].isupper() else " "
        for word in sentence.words
        if word.stem not in FUNCTION_WORDS
    )
