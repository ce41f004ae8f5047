"""The critic `support`: what of a summary its source supports, what is invented or copied, and what is left out.

Enters: `passages` (texts, or lists of sentences), else `source`, else the prompt; `reference`, if there is one, says
what should be mentioned. Leaves: a `Critique`. Good: supported words that matter. Poor: names and numbers that the
source does not have, other words that it does not have (half as severe), stretches copied from it, or nearly, lists of
words, repetitions. Too little source: None.

The score is the F-measure of two shares, from 0 to 1. Precision: of the content words, those that are supported and the
writer's own; an invented name or number counts as four. Coverage: of what matters, what is said in such words.
So an empty text, a copied one and a list of names have 0, the least there is.

It compares words, not meanings; what it cannot see, and how often people agree: docs/critics.md.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from text2grad.feedback.critics.facts import Number, numbers_of, same_value
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.words import (
    UNENCODABLE,
    Column,
    Remark,
    Word,
    cite,
    encodable,
    judge_items,
    listed,
    ngrams,
    quotes_of,
    repeated,
    sentences_about,
    sentences_of,
    stretches_of,
    unspaced,
    words_of,
)
from text2grad.feedback.settings import SupportSettings
from text2grad.feedback.text import ENGLISH, Text, word_set
from text2grad.types import Critique

_REMARKS = {
    "fact": Remark("poor", "is not in the source", "are not in the source", 1.0),
    "word": Remark("poor", "is not in the words of the source", "are not in the words of the source", 0.5),
    "copied": Remark("poor", "is copied from the source", "are copied from the source", 0.5),
    "list": Remark("poor", "is a list of words, not a sentence", "are lists of words, not sentences", 0.5),
    "repeated": Remark("poor", "repeats what was said before", "repeat what was said before", 0.5),
    "wanted": Remark("good", "is supported, and matters", "are supported, and matter"),
}
_FACT_WEIGHT = 4.0
"""Of an invented name or number, in words. People's corrections remove 85 % of them, and 46 % of other absent words."""
_TOPICS, _ENOUGH = 20, 4
"""Without a reference, the most frequent words of the source are what matters, and mentioning so many is enough. With
one, half of its words are: the rest may be said otherwise."""
_REPEAT = 4
_MOST_REMARKS = 40
"""A completion with more invented numbers than this is a table: for the rest, what the source says is not looked up."""
_LIST = 4
"""A sentence of so many content words and next to no function words is a list."""
_COPIED_SENTENCE = 4
_GAP, _SAME = 2, 0.8
"""A sentence is nearly copied if this share of it stands in a sentence of the source, with at most so many other words
between: as many words as count as copied, or this share of that sentence, too. Chosen on DeFacto's training file."""
_WHOLE, _LONG = 80, 6000
"""Characters of a passage that is taken out of a prompt which shows it, so that it is not indexed twice; of a source of
which fewer are kept."""
_ENGLISH = 0.2
"""Of a source in English, more than this share are function words. Verbs of other languages are not known."""
_ARTICLES = word_set(ENGLISH["classes"]["determiner"])
_VERBS = word_set(ENGLISH["classes"]["verb"])
_BETWEEN_THINGS = frozenset({"and", "or", "of"})
_BEFORE_THINGS = _ARTICLES | _BETWEEN_THINGS
_ROUNDED = re.compile(
    r"\b(?:about|around|almost|nearly|over|under|roughly|approximately|some|more than|less than|up to|at least|"
    r"an estimated|close to)\s*$",
    re.IGNORECASE,
)


class SupportCritic:
    """`critic(prompts, completions, passages=[…])`.

    >>> passage = "Fjord is the second album by the singer Jorun Vekas, released on 23 April 2016 by Tern Norway."
    >>> (critique,) = SupportCritic()([""], ["The album Fjord came in April 2017."], passages=[[passage]])
    >>> [quote.comment for quote in critique.quotes if quote.verdict == "poor"]
    ['“came” is not in the words of the source.', '“2017” is not in the source: passage 1 says “2016”.']
    """

    __name__ = "support"

    def __init__(self, settings: SupportSettings | None = None) -> None:
        self.settings = settings or SupportSettings()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        return judge_items(prompts, completions, columns, self._judge_item)

    def _judge_item(self, completion: str, prompt: str, column: Column) -> tuple[Critique | None, str]:
        passages, references = column("passages") or column("source"), column("reference")
        if not passages and len(prompt.split()) >= self.settings.thin:
            passages, prompt = [prompt], ""
        critique = self.judge(completion, passages, prompt, references)
        return critique, self._why_not(completion, passages, references)

    def _why_not(self, completion: str, passages: Sequence[str], references: Sequence[str]) -> str:
        if not encodable(completion, *passages, *references):
            return UNENCODABLE
        if passages:
            return "its passages hold no word to compare with"
        return f"it has no passages and no source, and its prompt has fewer than {self.settings.thin} words"

    def judge(
        self, completion: str, passages: Sequence[str], prompt: str = "", references: Sequence[str] = ()
    ) -> Critique | None:
        """One completion against its source; None where that says nothing. Words of the prompt are never unsupported:
        a question may use words that the passages do not."""
        source = source_of(tuple(passages))
        if not source.words or not encodable(completion, *passages, *references):
            return None
        text = Labelled(completion)
        remarks: dict[str, Remark] = {}
        self._mark_absent(text, [source, asked_of(prompt, passages)] if prompt else [source], remarks)
        self._mark_copied(text, source, [word for reference in references for word in Labelled(reference).words])
        own = text.own
        wanted, enough = _wanted(source, references, own)
        covered = wanted.keys() & own
        coverage = min(1.0, len(covered) / enough) if enough else 0.0
        precision = text.precision
        score = 2 * precision * coverage / (precision + coverage) if precision and coverage else 0.0
        text.label((i for i, word in enumerate(text.words) if _key(word) in covered), "wanted", free_only=True)
        left = [written for key, written in wanted.items() if key not in covered] if coverage < 1 else []
        omissions = tuple(dict.fromkeys(left))[:_ENOUGH]
        remarks |= _REMARKS
        stretches = list(stretches_of(completion, text.words, text.labels, ("fact", "word")))
        said = sentences_about(completion, stretches, remarks) or ["The completion says nothing."]
        if omissions:
            said.append(f"It should say, in its own words, something about {listed([*map(cite, omissions)])}.")
        quotes = quotes_of(completion, stretches, remarks)
        return Critique(" ".join(said), quotes=quotes, omissions=omissions, score=score, quotes_only=True)

    def _mark_absent(self, text: "Labelled", known_in: Sequence["SourceIndex"], remarks: dict[str, Remark]) -> None:
        """Words that nothing has: names and numbers as facts, a number with what the source says in its place."""
        for first, end in text.sentences:
            stems = {word.stem for word in text.words[first:end] if word.content}
            nearest = known_in[0].nearest(stems) if text.numbers else None
            for index in range(first, end):
                word = text.words[index]
                if not word.content or any(known.has(text, word) for known in known_in):
                    continue
                number = text.numbers.get(word.start)
                text.labels[index] = "fact" if number or text.is_name(index, first) else "word"
                if number is None or nearest is None or len(remarks) >= _MOST_REMARKS:
                    continue
                counted = text.words[index + 1].stem if index + 1 < end else ""
                if (instead := nearest.instead_of(number, counted, text.stems)) is not None:
                    remark = f"is not in the source: passage {nearest.number} says {cite(instead)}"
                    text.labels[index] = f"fact {index}"
                    remarks[f"fact {index}"] = Remark("poor", remark, remark, 1.0)

    def _mark_copied(self, text: "Labelled", source: "SourceIndex", reference: Sequence[Word]) -> None:
        """What is not the writer's own: copied from the source, listed without a sentence, or said before."""
        if self.settings.copied:
            factor = 2 if unspaced(text.raw) else 1
            longest = self.settings.copied * factor
            told = {word.stem for word in reference}
            lengths = range(_COPIED_SENTENCE * factor, longest + 1)
            allowed = {length: set(ngrams(reference, length)) for length in lengths}
            for index, stretch in enumerate(ngrams(text.words, longest)):
                if stretch in source.ngrams(longest) and stretch not in allowed[longest]:
                    text.label(range(index, index + longest), "copied")
            for first, end in text.sentences:
                whole = tuple(word.stem for word in text.words[first:end])
                if len(whole) in allowed and whole in source.ngrams(len(whole)) and whole not in allowed[len(whole)]:
                    text.label(range(first, end), "copied")
                nearly = source.nearly(whole, longest)
                if sum(whole[index] in told for index in nearly) < _SAME * len(nearly):
                    text.label((first + index for index in nearly), "copied")
        self._mark_lists(text, source)
        text.label(repeated(text.raw, text.words, _REPEAT, reference), "repeated")

    def _mark_lists(self, text: "Labelled", source: "SourceIndex") -> None:
        """Sentences of next to no function words; and things named one after the other, with articles or one to a
        sentence, without a verb."""
        without_verb = []
        for first, end in text.sentences:
            content = sum(word.content for word in text.words[first:end])
            if content >= _LIST and end - first - content < source.function_share / 3 * (end - first):
                text.label(range(first, end), "list")
            elif source.function_share >= _ENGLISH and text.only_names_things(first, end):
                without_verb.append((first, end))
        named = [index for first, end in without_verb for index in range(first, end)]
        if sum(text.words[index].content for index in named) >= _LIST:
            text.label(named, "list")


class Labelled:
    """A text as words, of which a number is one, and what is said of each."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        text = Text(raw)
        self.numbers = {number.start: number for number in numbers_of(raw)}
        self.words = list(_with_numbers(words_of(text), list(self.numbers.values())))
        self.stems = {word.stem for word in self.words}
        self.labels: list[str | None] = [None] * len(self.words)
        starts = [word.start for word in self.words]
        places = [(bisect_left(starts, start), bisect_left(starts, end)) for start, end in sentences_of(text)]
        self.sentences = [(first, end) for first, end in places if first < end]

    def label(self, indices: Iterable[int], label: str, free_only: bool = False) -> None:
        for index in indices:
            if self.labels[index] is None or not free_only:
                self.labels[index] = label

    @property
    def own(self) -> set[str]:
        """The supported words that nothing else is said of."""
        return {_key(word) for word, label in zip(self.words, self.labels, strict=True) if word.content and not label}

    @property
    def precision(self) -> float:
        content = [label for word, label in zip(self.words, self.labels, strict=True) if word.content]
        weights = [_FACT_WEIGHT if label and label.startswith("fact") else 1.0 for label in content]
        return content.count(None) / sum(weights) if content else 0.0

    def only_names_things(self, first: int, end: int) -> bool:
        """Whether no word of a sentence looks like a verb and most content words stand where a list names a thing:
        behind an article, a comma, "and" or "of"."""
        named = content = 0
        for index in range(first, end):
            word = self._lower(index)
            before = self._lower(index - 1) if index > first else ""
            gap = self.raw[self.words[index - 1].end : self.words[index].start] if index > first else ","
            begins = before in _BEFORE_THINGS or not gap.isspace()
            verb = word in _VERBS or (self.words[index].content and not begins and self._verb_like(index, end))
            if verb and before not in _ARTICLES:
                return False
            content += self.words[index].content
            named += self.words[index].content and begins
        return content > 0 and 2 * named >= content

    def _verb_like(self, index: int, end: int) -> bool:
        word = self._lower(index)
        followed = index + 1 < end and self.raw[self.words[index].end : self.words[index + 1].start].isspace()
        third_person = followed and word.endswith("s") and self._lower(index + 1) not in _BETWEEN_THINGS
        return third_person or word.endswith(("ed", "ing"))

    def _lower(self, index: int) -> str:
        return self.raw[self.words[index].start : self.words[index].end].lower()

    def is_name(self, index: int, first: int) -> bool:
        """Whether a word has a capital, and not from being the first one of its sentence."""
        two = index + 1 < len(self.words) and self._capital(index + 1)
        return self._capital(index) and (index != first or two)

    def _capital(self, index: int) -> bool:
        return self.raw[self.words[index].start].isupper() and self.words[index].content


class Sentence(NamedTuple):
    """Of the source: the words from `first` to `end` of a passage, which has its number as a person would count."""

    number: int
    text: Labelled
    first: int
    end: int

    def instead_of(self, number: Number, counted: str, stated: Collection[str]) -> str | None:
        """What it says where the completion has this number: one of the same kind (a year, the same unit, or counting
        the same things) that the completion does not state."""
        words = self.text.words
        for index in range(self.first, self.end):
            word, other = words[index], self.text.numbers.get(words[index].start)
            if other is None or word.stem in stated or (other.measure, other.year) != (number.measure, number.year):
                continue
            same = index + 1 < self.end and words[index + 1].stem == counted
            if other.measure or other.year or same:
                return self.text.raw[word.start : words[index + 1].end if same else word.end]
        return None


class SourceIndex:
    """Which words and numbers a source has, in which order, and what it is about. `source_of` keeps the latest ones."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.passages = [Labelled(passage) for passage in passages]
        self.words = [word for passage in self.passages for word in passage.words]
        self.stems = {stem for passage in self.passages for stem in passage.stems}
        self._beginnings = {stem[:5] for stem in self.stems} | {f"{stem}$" for stem in self.stems if len(stem) == 4}
        numbers = {number[2:]: number for passage in self.passages for number in passage.numbers.values()}
        self._numbers = list(numbers.values())
        self.function_share = sum(not word.content for word in self.words) / max(1, len(self.words))
        self._ngrams: dict[int, set[tuple[str, ...]]] = {}
        self.sentences = [Sentence(n, text, *at) for n, text in enumerate(self.passages, 1) for at in text.sentences]
        self._stems = [{word.stem for word in text.words[first:end]} for _, text, first, end in self.sentences]

    @cached_property
    def topics(self) -> dict[str, str]:
        """The most frequent content words, the first of equals first: key → as it is written."""
        counts: Counter[str] = Counter()
        written: dict[str, str] = {}
        for passage in self.passages:
            for word in passage.words:
                if word.content:
                    counts[_key(word)] += 1
                    written.setdefault(_key(word), passage.raw[word.start : word.end])
        return {key: written[key] for key, _ in counts.most_common(_TOPICS)}

    def ngrams(self, length: int) -> set[tuple[str, ...]]:
        if length not in self._ngrams:
            self._ngrams[length] = {each for passage in self.passages for each in ngrams(passage.words, length)}
        return self._ngrams[length]

    def nearly(self, stems: Sequence[str], least: int) -> list[int]:
        """Indices of these stems, a sentence's, that the nearest sentence of the source has in the same order: a copy
        with words changed, added or left out. Empty where it is none; `least` words of a longer sentence are one."""
        if len(stems) < _COPIED_SENTENCE or (near := self.nearest(set(stems))) is None:
            return []
        theirs = [word.stem for word in near.text.words[near.first : near.end]]
        blocks = SequenceMatcher(None, stems, theirs, autojunk=False).get_matching_blocks()[:-1]
        chains: list[list[int]] = []
        ends = (-9, -9)
        for mine, other, size in blocks:
            if max(mine - ends[0], other - ends[1]) > _GAP:
                chains.append([])
            chains[-1] += range(mine, mine + size)
            ends = (mine + size, other + size)
        longest = max(chains, key=len, default=[])
        whole = len(theirs) <= len(longest) / _SAME and len(longest) >= _COPIED_SENTENCE
        return longest if len(longest) >= _SAME * len(stems) and (whole or len(longest) >= least) else []

    def has(self, text: Labelled, word: Word) -> bool:
        """Whether the source has a word, or one that begins alike ("Norwegians" for "Norway"); or a number, or one that
        rounds to it, where the text says "about" or the number is large."""
        if word.stem in self.stems:
            return True
        if number := text.numbers.get(word.start):
            loose = bool(_ROUNDED.search(text.raw[max(0, number.start - 24) : number.start]))
            loose |= number.value >= 1000 and not number.year
            return any(same_value(number, known, loose) for known in self._numbers)
        root = word.stem
        return len(root) >= 5 and (root[:5] in self._beginnings or f"{root[:4]}$" in self._beginnings)

    def nearest(self, stems: Collection[str]) -> Sentence | None:
        """The sentence that shares most of these stems, at least two; the first of equals."""
        shared = [len(each.intersection(stems)) for each in self._stems]
        best = max(range(len(shared)), key=shared.__getitem__, default=None)
        return self.sentences[best] if best is not None and shared[best] >= 2 else None


def source_of(passages: tuple[str, ...]) -> SourceIndex:
    """A source, kept, because the completions of a batch share it, and evaluations come back to it. Per 1,000
    characters it takes about 0.1 MB, so fewer long ones are kept."""
    return (_short if sum(map(len, passages)) <= _LONG else _long)(passages)


_short = lru_cache(maxsize=1024)(SourceIndex)
_long = lru_cache(maxsize=64)(SourceIndex)


def asked_of(prompt: str, passages: Sequence[str]) -> SourceIndex:
    """What a prompt says beside the passages that it shows: the question, or an instruction that many prompts share.

    >>> passage = "Seven ships left the harbour of Brindlemoor on Monday, after a storm that had lasted for three days."
    >>> [word.stem for word in asked_of(f"When did they leave? {passage}", [passage]).words]
    ['when', 'did', 'they', 'leav']
    """
    for passage in passages:
        start = prompt.find(passage) if len(passage) >= _WHOLE else -1
        end = start + len(passage)
        # A passage that was cut off inside a word leaves the word to the prompt.
        if start >= 0 and not prompt[:start][-1:].isalnum() and not prompt[end : end + 1].isalnum():
            prompt = f"{prompt[:start]}\n{prompt[end:]}"
    return source_of((prompt,))


def _with_numbers(words: Sequence[Word], numbers: Sequence[Number]) -> Iterator[Word]:
    """Words in which a number is one word, whatever it is made of, with its value for a stem."""
    left = iter(numbers)
    number = next(left, None)
    end = -1
    for word in words:
        while number is not None and number.end <= word.start:
            number = next(left, None)
        if number is not None and number.start < word.end:
            if number.start >= end:
                stem = f"#{number.value:.15g}{number.measure or ''}"
                yield Word(number.start, max(number.end, word.end), stem, True)
            end = max(number.end, word.end)
        else:
            yield word


def _key(word: Word) -> str:
    """What a word is covered by: one that begins alike, or the same number."""
    return word.stem if word.stem.startswith("#") else word.stem[:5]


def _wanted(source: SourceIndex, references: Sequence[str], own: set[str]) -> tuple[dict[str, str], int]:
    """What should be said, as key → how it is written, and how much of it is enough: what the nearest reference says,
    as far as the source says it too, or else what the source is about."""
    told = []
    for reference in map(Labelled, references):
        words = [word for word in reference.words if word.content and source.has(reference, word)]
        told.append({_key(word): reference.raw[word.start : word.end] for word in reversed(words)})
    if not any(told):
        return source.topics, min(_ENOUGH, len(source.topics))
    nearest = max(filter(None, told), key=lambda wanted: len(wanted.keys() & own) / len(wanted))
    return dict(reversed(nearest.items())), (len(nearest) + 1) // 2


support = SupportCritic()
"""With the default settings: `--critic support`."""
