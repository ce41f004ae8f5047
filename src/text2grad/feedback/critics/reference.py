"""The critic `reference`: what of a reference text a completion captures, invents, repeats and leaves out.

Enters: `reference`, a text or several (then the nearest one counts); optionally `source` or `passages`, else the prompt
is the source. Leaves: a `Critique` whose score is Q(completion) and whose `quality` is Q at 0, at the ends of its
sentences and at the boundaries of its quotes, so that rewards can be cut there. No reference, no score: None.

Q is the mean of two F-measures, over words and over pairs of neighbouring words, stemmed and clipped: a word counts as
often as the reference has it, so saying it again lowers precision. That is ROUGE-1 and ROUGE-2 with stems, and with a
lower weight for function words, which every text shares with every other. The empty completion has 0, the least there
is, and a copied source loses precision. Q cannot see that "mutiny" means "revolt", nor that right words are in a wrong
order beyond their neighbours; a negation that is left out costs one word.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

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
    unspaced,
    words_of,
)
from text2grad.feedback.settings import ReferenceSettings
from text2grad.feedback.text import Text
from text2grad.types import Critique, Quote, Verdict

Label = Literal["captured", "unsupported", "repeated"]
_VERDICTS: dict[Label, Verdict] = {"captured": "good", "unsupported": "poor", "repeated": "poor"}
_SAID: dict[Label, tuple[str, str]] = {
    "captured": ("is in the reference", "are in the reference"),
    "unsupported": ("is in neither the reference nor the source", "are in neither the reference nor the source"),
    "repeated": ("repeats what was said before", "repeat what was said before"),
}
_FUNCTION_WEIGHT = 0.25
"""Of "the", "of" and the like, against 1 for a content word. At 0, padding with them would cost nothing."""
_BREAK = re.compile(r"[.!?…:;。！？；\n]")
"""Between two words: what a quote does not reach across."""


class ReferenceCritic:
    """`critic(prompts, completions, reference=[…])`.

    >>> critic = ReferenceCritic()
    >>> reference = ["Nine ships left the harbour on Monday."]
    >>> (critique,) = critic([""], ["Seven ships left the harbour."], reference=reference)
    >>> critique.quotes[0].text, critique.quotes[0].verdict, critique.omissions
    ('ships left the harbour', 'good', ('Nine', 'Monday'))
    """

    __name__ = "reference"

    def __init__(self, settings: ReferenceSettings | None = None) -> None:
        self.settings = settings or ReferenceSettings()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        critiques = Critiques()
        for item, completion in enumerate(completions):
            references = texts_in(column_at(columns, "reference", item), "reference", item)
            source = [
                text for name in ("source", "passages") for text in texts_in(column_at(columns, name, item), name, item)
            ] or [prompt_text(prompts[item])]
            critiques.add(self.judge(completion, references, "\n".join(source)), _why_not(completion, references))
        return critiques

    def judge(self, completion: str, references: Sequence[str], source: str = "") -> Critique | None:
        """One completion against its references; None where there is none with a word in it."""
        texts = [Text(reference) for reference in references]
        wanted = [(text, words) for text in texts if (words := words_of(text))]
        if not wanted or not encodable(completion, *references):
            return None
        text = Text(completion)
        words = words_of(text)
        qualities, best = self._qualities(words, [reference for _, reference in wanted])
        labels = self._labels(text.raw, words, wanted[best][1], source)
        runs = list(_runs(completion, words, labels))
        quotes = [
            Quote(completion[a:b], _VERDICTS[label], comment=f"{cite(completion[a:b])} {_SAID[label][0]}.", start=a)
            for label, a, b in runs
        ]
        omissions = tuple(_omitted(wanted[best][0], wanted[best][1], words))
        cuts = {0, len(completion), *(end for _, end in sentences_of(text)), *(cut for _, *ab in runs for cut in ab)}
        return Critique(
            _feedback(completion, runs, omissions, bool(words)),
            quotes=tuple(quotes),
            omissions=omissions,
            score=qualities[-1],
            quality=tuple(_at(words, qualities, sorted(cuts))),
            quotes_only=True,
        )

    def _qualities(self, words: Sequence[Word], references: Sequence[Sequence[Word]]) -> tuple[list[float], int]:
        """Q after no word, after the first, …, and which reference is nearest to the whole (the first of equals)."""
        overlaps = [Overlap(reference) for reference in references]
        qualities = [0.0]
        for word in words:
            for overlap in overlaps:
                overlap.add(word)
            qualities.append(max(overlap.quality for overlap in overlaps))
        return qualities, max(range(len(overlaps)), key=lambda index: (overlaps[index].quality, -index))

    def _labels(self, raw: str, words: Sequence[Word], reference: Sequence[Word], source: str) -> list[Label | None]:
        """What is said of each word; repetition comes before the other two."""
        left = Counter(word.stem for word in reference)
        from_source = stems_of(source)
        known = left.keys() | from_source
        judge_source = len(from_source) >= self.settings.thin
        labels: list[Label | None] = []
        for word in words:
            if left[word.stem] > 0:
                left[word.stem] -= 1
                labels.append("captured")
            else:
                foreign = judge_source and word.content and word.stem not in known
                labels.append("unsupported" if foreign else None)
        for index in _repeated(raw, words, reference, self.settings.repeat):
            labels[index] = "repeated"
        return labels


class Overlap:
    """Q of a growing text against one reference, at constant work per word.

    >>> growing = Overlap(words_of(Text("Nine ships left.")))
    >>> [(growing.add(word), round(growing.quality, 3))[1] for word in words_of(Text("Nine ships sank."))]
    [0.25, 0.733, 0.583]
    """

    def __init__(self, reference: Sequence[Word]) -> None:
        self._words = _Shared((word.stem, _weight(word)) for word in reference)
        self._pairs = _Shared(_pair(a, b) for a, b in pairwise(reference))
        self._last: Word | None = None

    def add(self, word: Word) -> None:
        """Take in the next word."""
        self._words.add(word.stem, _weight(word))
        if self._last is not None:
            self._pairs.add(*_pair(self._last, word))
        self._last = word

    @property
    def quality(self) -> float:
        """Q of the words so far: 0 for none, 1 for the reference itself. A reference of one word has no pairs."""
        return (self._words.measure + self._pairs.measure) / 2 if self._pairs.wanted > 0 else self._words.measure


class _Shared:
    """The F-measure between weighted items that come one by one and those that are wanted, each as often as wanted."""

    def __init__(self, wanted: Iterable[tuple[object, float]]) -> None:
        items = list(wanted)
        self._left = Counter(item for item, _ in items)
        self.wanted = sum(weight for _, weight in items)
        self._said = self._right = 0.0

    def add(self, item: object, weight: float) -> None:
        self._said += weight
        if self._left.get(item, 0) > 0:
            self._left[item] -= 1
            self._right += weight

    @property
    def measure(self) -> float:
        below = self.wanted + self._said
        # Sums of the same weights in another order may differ in the last bit: the reference itself is 1.0.
        return min(1.0, 2 * self._right / below) if below > 0 else 0.0


def _weight(word: Word) -> float:
    return 1.0 if word.content else _FUNCTION_WEIGHT


def _pair(a: Word, b: Word) -> tuple[tuple[str, str], float]:
    return (a.stem, b.stem), (_weight(a) + _weight(b)) / 2


@lru_cache(maxsize=256)
def stems_of(text: str) -> frozenset[str]:
    """Stems of a source; kept, because the completions of a batch share their prompts."""
    return frozenset(word.stem for word in words_of(Text(text)))


def _why_not(completion: str, references: Sequence[str]) -> str:
    """Why `judge` has nothing to say, where it has nothing."""
    if not encodable(completion, *references):
        return UNENCODABLE
    return "its reference holds no word" if any(references) else "it has no reference"


def _repeated(raw: str, words: Sequence[Word], reference: Sequence[Word], repeat: int) -> Iterator[int]:
    """Indices of words in stretches that were said before, oftener than the reference says them; and doubled words."""
    length = 2 * repeat if unspaced(raw) else repeat
    allowed = Counter(_stretches(reference, length))
    seen: Counter[tuple[str, ...]] = Counter()
    for index, stretch in enumerate(_stretches(words, length)):
        if seen[stretch] >= max(1, allowed[stretch]) and any(word.content for word in words[index : index + length]):
            yield from range(index, index + length)
        seen[stretch] += 1
    doubled = {(a.stem, b.stem) for a, b in pairwise(reference) if a.stem == b.stem}
    for index, (a, b) in enumerate(pairwise(words), 1):
        spaced = a.end < b.start and raw[a.end : b.start].isspace()
        if spaced and b.content and raw[a.start : a.end] == raw[b.start : b.end] and (a.stem, b.stem) not in doubled:
            yield index


def _stretches(words: Sequence[Word], length: int) -> Iterator[tuple[str, ...]]:
    stems = [word.stem for word in words]
    return (tuple(stems[index : index + length]) for index in range(len(stems) - length + 1))


def _runs(raw: str, words: Sequence[Word], labels: Sequence[Label | None]) -> Iterator[tuple[Label, int, int]]:
    """Stretches of words with one label, from content word to content word. A function word between two unsupported
    words goes with them; a sentence end goes with nothing."""
    first = last = -1
    current: Label | None = None
    for index, word in enumerate(words):
        label = labels[index]
        ends = index > 0 and _BREAK.search(raw, words[index - 1].end, word.start)
        bridge = current == "unsupported" and not word.content and label != "repeated"
        if current is not None and (ends or (label != current and not bridge)):
            yield current, words[first].start, words[last].end
            current = None
        if current is None and label is not None and word.content:
            current, first = label, index
        if current is not None and word.content:
            last = index
    if current is not None:
        yield current, words[first].start, words[last].end


def _omitted(text: Text, reference: Sequence[Word], words: Sequence[Word]) -> Iterator[str]:
    """Stretches of the reference that the completion does not have, from content word to content word."""
    there = Counter(word.stem for word in words)
    labels: list[Label | None] = []
    for word in reference:
        labels.append(None if there[word.stem] > 0 else "unsupported")
        there[word.stem] -= 1
    for _, start, end in _runs(text.raw, reference, labels):
        yield text.raw[start:end]


def _at(words: Sequence[Word], qualities: Sequence[float], cuts: Sequence[int]) -> Iterator[tuple[int, float]]:
    done = 0
    for cut in cuts:
        while done < len(words) and words[done].end <= cut:
            done += 1
        yield cut, qualities[done]


def _feedback(raw: str, runs: Sequence[tuple[Label, int, int]], omissions: Sequence[str], any_words: bool) -> str:
    sentences = []
    for label, (singular, plural) in _SAID.items():
        texts = [cite(raw[start:end]) for each, start, end in runs if each == label]
        if texts:
            sentences.append(f"{listed(texts)} {singular if len(texts) == 1 else plural}.")
    if not any_words:
        sentences.append("The completion says nothing.")
    if omissions:
        sentences.append(f"The reference also has {listed([cite(text) for text in omissions])}, missing here.")
    return " ".join(sentences) or "Only words without content are shared with the reference."


reference = ReferenceCritic()
"""With the default settings: `--critic reference`."""
