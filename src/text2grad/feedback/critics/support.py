"""The critic `support`: sentence by sentence, what source passages support, what they do not, and what they contradict.

Enters: `passages` (texts, or lists of sentences), else `source`, else the prompt. Leaves: a `Critique` whose quotes are
supported sentences (good), and the numbers, dates, names and words that no passage has (poor); where a passage has
another number or date in their place, the comment cites it. Score: (supported − poor) / sentences, from −1 to 1; a
completion that says nothing has −1, so that silence is never the better choice. Too little source: None.

It compares words, not meanings. What it cannot see: a right name in a wrong role, a negation, and a fact that the
passages tell of somebody else. Between "supported" and "not" it abstains: such a sentence gets no quote.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import numpy as np
from annotated_types import Ge, Le

from text2grad._checked import Real
from text2grad.feedback.critics.facts import Date, Fact, Number, facts_of, same_value
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.words import (
    UNENCODABLE,
    Word,
    cite,
    column_at,
    encodable,
    listed,
    prompt_text,
    sentences_of,
    texts_in,
    words_of,
)
from text2grad.feedback.settings import SupportSettings
from text2grad.feedback.text import Text, stem
from text2grad.types import Critique, Quote

Share = Annotated[Real, Ge(0), Le(1)]
T = TypeVar("T", Word, Number | Date)
_BEFORE = 24
"""Characters before a number in which "about" is looked for."""
_ROUNDED = re.compile(
    r"\b(?:about|around|almost|nearly|over|under|roughly|approximately|some|more than|less than|up to|at least|"
    r"an estimated|close to)\s*[£$€]?$",
    re.IGNORECASE,
)
_MOST_FACTS = 40
"""A sentence with more numbers than this is a table: what a passage says instead of one of them is not looked for."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A stretch that the passages do not have, and what they have instead: (number of the passage, its words)."""

    start: int
    end: int
    instead: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Assessed:
    """A sentence of the completion. Neither supported nor with problems: no verdict."""

    start: int
    end: int
    supported: bool
    problems: tuple[Problem, ...]


class SupportCritic:
    """`critic(prompts, completions, passages=[…])`.

    >>> passage = "Fjord is the second album by the singer Jorun Vekas, released on 23 April 2016 by Tern Norway."
    >>> critic = SupportCritic()
    >>> (critique,) = critic([""], ["The album Fjord was released on 23 April 2017."], passages=[[passage]])
    >>> critique.feedback
    '“23 April 2017” is not supported: passage 1 says “23 April 2016”.'
    """

    __name__ = "support"

    def __init__(self, settings: SupportSettings | None = None) -> None:
        self.settings = settings or SupportSettings()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        critiques = Critiques()
        for item, completion in enumerate(completions):
            prompt = prompt_text(prompts[item])
            passages = texts_in(column_at(columns, "passages", item), "passages", item)
            passages = passages or texts_in(column_at(columns, "source", item), "source", item)
            if not passages and len(prompt.split()) >= self.settings.thin:
                passages, prompt = [prompt], ""
            critiques.add(self.judge(completion, passages, prompt), self._why_not(completion, passages))
        return critiques

    def _why_not(self, completion: str, passages: Sequence[str]) -> str:
        """Why `judge` has nothing to say, where it has nothing."""
        if not encodable(completion, *passages):
            return UNENCODABLE
        if passages:
            return "its passages hold no word to compare with"
        return f"it has no passages and no source, and its prompt has fewer than {self.settings.thin} words"

    def judge(self, completion: str, passages: Sequence[str], prompt: str = "") -> Critique | None:
        """One completion against its passages; None where they say nothing."""
        evidence = evidence_in(tuple(passages))
        if not evidence.sentences or not encodable(completion, *passages):
            return None
        asked = evidence_in((prompt,)) if prompt and self.settings.prompt_known else None
        sentences = list(self._sentences(completion, evidence, asked))
        if not sentences:
            return Critique("The completion says nothing.", score=-1.0, quotes_only=True)
        quotes = [quote for sentence in sentences for quote in _quotes(completion, sentence)]
        supported = sum(sentence.supported for sentence in sentences)
        poor = sum(bool(sentence.problems) for sentence in sentences)
        score = (supported - poor) / len(sentences)
        return Critique(_feedback(completion, sentences), quotes=tuple(quotes), score=score, quotes_only=True)

    def _sentences(self, completion: str, evidence: "Evidence", asked: "Evidence | None") -> Iterator[Assessed]:
        text = Text(completion)
        all_words, all_facts = words_of(text), facts_of(completion)
        known_in = [evidence] if asked is None else [evidence, asked]
        for start, end in sentences_of(text):
            raw = completion[start:end]
            words, facts = list(_shifted(all_words, start, end)), list(_shifted(all_facts, start, end))
            if not words:
                continue
            content = _outside(words, facts)
            absent = [w for w in content if not any(known.has_word(raw[w.start : w.end]) for known in known_in)]
            share = 1 - len(absent) / len(content) if content else 1.0
            problems = list(_absent_facts(raw, words, facts, known_in))
            if len(content) < self.settings.least or share >= self.settings.unsupported:
                absent = [w for w in absent if is_name(raw, w) and (w is not words[0] or _two_names(raw, words))]
            problems += _stretches(words, absent)
            supported = (
                not problems
                and len(content) >= self.settings.least
                and share >= self.settings.supported
                and _together(content, evidence) >= self.settings.together
            )
            yield Assessed(start, end, supported, tuple(_merged(raw, start, problems)))


@dataclass(frozen=True, slots=True)
class Sentence:
    """Of a passage."""

    passage: int
    """Counted from 1, as a person would."""
    text: str
    words: tuple[Word, ...]
    stems: frozenset[str]
    facts: tuple[Fact, ...]


class Evidence:
    """Which words, numbers and dates the passages hold, and which of their sentences is about the same thing as a
    sentence of the completion. Use `evidence_in`, which keeps the latest ones."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.sentences = [sentence for number, text in enumerate(passages, 1) for sentence in _read(number, text)]
        self.stems = frozenset(stem for sentence in self.sentences for stem in sentence.stems)
        self._beginnings = {stem[:5] for stem in self.stems} | {f"{stem}$" for stem in self.stems if len(stem) == 4}
        # Each fact once, and numbers in order: a long text is asked as often as it has sentences.
        facts = {fact[2:]: fact for sentence in self.sentences for fact in sentence.facts}.values()
        self._dates = [fact for fact in facts if isinstance(fact, Date)]
        self._numbers = sorted((fact for fact in facts if isinstance(fact, Number)), key=lambda number: number.value)
        self._in_order = [number.value for number in self._numbers]
        self._values = set(self._in_order)
        self._days = {float(date.day) for date in self._dates if date.day is not None}
        self._years = {date.year for date in self._dates} | {int(n.value) for n in self._numbers if n.year}
        where: dict[str, list[int]] = {}
        for index, sentence in enumerate(self.sentences):
            for each in sentence.stems:
                where.setdefault(each, []).append(index)
        self._where = {each: np.array(indices) for each, indices in where.items()}

    def has_word(self, word: str) -> bool:
        """Whether a word is there, or one that begins alike ("Scottish" for "Scotland")."""
        root = stem(word)
        return root in self.stems or (
            len(root) >= 5 and (root[:5] in self._beginnings or f"{root[:4]}$" in self._beginnings)
        )

    def has_fact(self, fact: Fact, before: str) -> bool:
        """Whether a number or date is there; `before` are the words before it, which may say that it is rounded."""
        if isinstance(fact, Date):
            there = any(fact.agrees(date) and (fact.day is None or date.day is not None) for date in self._dates)
            return there and (fact.year is None or fact.year in self._years)
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


@lru_cache(maxsize=128)
def evidence_in(passages: tuple[str, ...]) -> Evidence:
    """Evidence, kept, because the completions of a batch share their passages."""
    return Evidence(passages)


def _read(passage: int, raw: str) -> Iterator[Sentence]:
    text = Text(raw)
    words, facts = words_of(text), facts_of(raw)
    for start, end in sentences_of(text):
        inside = tuple(_shifted(words, start, end))
        if inside:
            stems = frozenset(word.stem for word in inside)
            yield Sentence(passage, raw[start:end], inside, stems, tuple(_shifted(facts, start, end)))


def _shifted(items: Sequence[T], start: int, end: int) -> Iterator[T]:
    """The words or facts of a stretch, with places counted from its start."""
    for index in range(bisect_left(items, (start,)), len(items)):
        item = items[index]
        if item.end > end:
            return
        yield type(item)(item.start - start, item.end - start, *item[2:])


def _absent_facts(
    raw: str, words: Sequence[Word], facts: Sequence[Fact], known_in: Sequence[Evidence]
) -> Iterator[Problem]:
    """Numbers and dates that nothing has, each with what the nearest sentence of the passages says in its place."""
    evidence = known_in[0]
    nearest: Sentence | None = None
    for fact in facts:
        before = raw[max(0, fact.start - _BEFORE) : fact.start]
        if any(known.has_fact(fact, before) for known in known_in):
            continue
        nearest = nearest or evidence.nearest({word.stem for word in words if word.content}, 2)
        instead = None
        if nearest is not None and len(facts) <= _MOST_FACTS:
            instead = _instead_of(fact, nearest, _word_after(words, fact), facts)
        yield Problem(fact.start, fact.end, instead)


def _instead_of(
    fact: Fact, nearest: Sentence, counted: Word | None, stated: Collection[Fact]
) -> tuple[int, str] | None:
    """What the nearest sentence says where the completion has this fact: one of its own kind, said there alone."""
    for other in nearest.facts[: 2 * _MOST_FACTS]:
        end = other.end
        if isinstance(fact, Date):
            alike = isinstance(other, Date) or (other.year and fact.year is not None)
        elif isinstance(other, Date):
            alike = fact.year and other.year is not None
        elif fact.measure or other.measure:
            alike = fact.measure == other.measure
        else:
            noun = _word_after(nearest.words, other)
            same_noun = counted is not None and noun is not None and noun.stem == counted.stem
            alike = (fact.year and other.year) or (same_noun and not other.year)
            end = noun.end if noun is not None and same_noun else other.end
        if alike and not any(_same(other, each) for each in stated):
            return nearest.passage, nearest.text[other.start : end]
    return None


def _same(a: Fact, b: Fact) -> bool:
    if isinstance(a, Date) and isinstance(b, Date):
        return a.agrees(b)
    return isinstance(a, Number) and isinstance(b, Number) and a.value == b.value


def _word_after(words: Sequence[Word], fact: Fact) -> Word | None:
    """The word that follows a fact: what it counts."""
    index = bisect_left(words, (fact.end,))
    return words[index] if index < len(words) else None


def _outside(words: Sequence[Word], facts: Sequence[Fact]) -> list[Word]:
    """The content words that are no part of a number or date: those are judged as what they mean."""
    outside, index = [], 0
    for word in words:
        while index < len(facts) and facts[index].end <= word.start:
            index += 1
        if word.content and (index == len(facts) or word.start < facts[index].start):
            outside.append(word)
    return outside


def _together(content: Sequence[Word], evidence: Evidence) -> float:
    """The largest share of these words that one sentence of the passages has."""
    stems = {word.stem for word in content}
    nearest = evidence.nearest(stems, 1)
    return len(stems & nearest.stems) / len(stems) if nearest is not None else 0.0


def is_name(raw: str, word: Word) -> bool:
    """Whether a word is written with a capital."""
    return raw[word.start].isupper() and word.content


def _two_names(raw: str, words: Sequence[Word]) -> bool:
    """Whether the first two words are a name: the first alone has its capital from the sentence."""
    return len(words) > 1 and raw[words[0].end : words[1].start] == " " and is_name(raw, words[1])


def _stretches(words: Sequence[Word], chosen: Sequence[Word]) -> Iterator[Problem]:
    """Chosen words that stand together, with function words between them, as one stretch."""
    wanted = {word.start for word in chosen}
    current: Problem | None = None
    for word in words:
        if word.start in wanted:
            current = Problem(word.start, word.end) if current is None else replace(current, end=word.end)
        elif word.content and current is not None:
            yield current
            current = None
    if current is not None:
        yield current


def _merged(raw: str, offset: int, problems: Sequence[Problem]) -> list[Problem]:
    """Problems in order, at their places in the completion; neighbouring ones as one, unless a passage says something
    else instead of one of them."""
    merged: list[Problem] = []
    for problem in sorted(problems, key=lambda each: (each.start, each.end)):
        last = merged[-1] if merged else None
        touching = last is not None and not raw[last.end : problem.start].strip(" -'’")
        plain = last is not None and last.instead is None and problem.instead is None
        if last is not None and (problem.start < last.end or (touching and plain)):
            merged[-1] = replace(last, end=max(last.end, problem.end), instead=last.instead or problem.instead)
        else:
            merged.append(problem)
    return [replace(each, start=each.start + offset, end=each.end + offset) for each in merged]


def _quotes(completion: str, sentence: Assessed) -> Iterator[Quote]:
    if sentence.supported:
        words = completion[sentence.start : sentence.end]
        yield Quote(words, "good", comment=f"{cite(words)} is supported.", start=sentence.start)
    for problem in sentence.problems:
        words = completion[problem.start : problem.end]
        yield Quote(words, "poor", comment=_comment(words, problem), start=problem.start)


def _comment(words: str, problem: Problem) -> str:
    if problem.instead is None:
        return f"{cite(words)} is in no passage."
    passage, instead = problem.instead
    return f"{cite(words)} is not supported: passage {passage} says {cite(instead)}."


def _feedback(completion: str, sentences: Sequence[Assessed]) -> str:
    problems = [problem for sentence in sentences for problem in sentence.problems]
    remarks = [_comment(completion[p.start : p.end], p) for p in problems if p.instead is not None]
    absent = [cite(completion[p.start : p.end]) for p in problems if p.instead is None]
    if absent:
        remarks.append(f"{listed(absent)} {'is' if len(absent) == 1 else 'are'} in no passage.")
    supported = sum(sentence.supported for sentence in sentences)
    if supported == len(sentences):
        remarks.append("Every sentence is supported." if len(sentences) > 1 else "The sentence is supported.")
    elif supported:
        remarks.append(f"{supported} of {len(sentences)} sentences {'is' if supported == 1 else 'are'} supported.")
    return " ".join(remarks) or "The passages neither support it nor speak against it."


support = SupportCritic()
"""With the default settings: `--critic support`."""
