"""The critic `reference`: what of a reference text a completion captures, invents, repeats and leaves out.

Enters: `reference`, a text or several (then the nearest one counts); optionally `source` or `passages`, else the prompt
is the source. Leaves: a `Critique` whose score is Q(completion) and whose `quality` is Q at 0, at the ends of its
sentences and at the boundaries of its quotes, so that rewards can be cut there. No reference, no score: None.

Q is the mean of two F-measures, over words and over pairs of neighbouring words, stemmed and clipped: ROUGE-1 and
ROUGE-2, with a lower weight for function words. What it cannot see: docs/critics.md.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.words import (
    UNENCODABLE,
    Column,
    Remark,
    Stretch,
    Word,
    cite,
    encodable,
    judge_items,
    listed,
    quotes_of,
    repeated,
    sentences_about,
    sentences_of,
    stretches_of,
    words_of,
)
from text2grad.feedback.settings import ReferenceSettings
from text2grad.feedback.text import Text
from text2grad.types import Critique

_REMARKS = {
    "captured": Remark("good", "is in the reference", "are in the reference"),
    "unsupported": Remark(
        "poor", "is in neither the reference nor the source", "are in neither the reference nor the source"
    ),
    "repeated": Remark("poor", "repeats what was said before", "repeat what was said before"),
    "beside": Remark("poor", "is not in the reference", "are not in the reference"),
}
_FUNCTION_WEIGHT = 0.25
"""Of "the", "of" and the like, against 1 for a content word. At 0, padding with them would cost nothing."""


class ReferenceCritic:
    """`critic(prompts, completions, reference=[…])`.

    >>> critic = ReferenceCritic()
    >>> reference = ["Nine ships left the harbour on Monday."]
    >>> (critique,) = critic([""], ["Seven ships left the harbour."], reference=reference)
    >>> critique.quotes[0].text, critique.quotes[0].verdict, critique.omissions
    ('ships left the harbour', 'good', ('Nine', 'Monday'))
    """

    __name__ = "reference"
    needs = "reference"
    """The column without which nothing is scored."""

    def __init__(self, settings: ReferenceSettings | None = None) -> None:
        self.settings = settings or ReferenceSettings()
        beside = _REMARKS["beside"]._replace(severity=self.settings.beside or None)
        self._remarks = {**_REMARKS, "beside": beside}

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        return judge_items(prompts, completions, columns, self._judge_item)

    def _judge_item(self, completion: str, prompt: str, column: Column) -> tuple[Critique | None, str]:
        references = column("reference")
        source = column("source") + column("passages") or [prompt]
        return self.judge(completion, references, "\n".join(source)), _why_not(completion, references)

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
        found = list(stretches_of(completion, words, labels, ("unsupported",)))
        omissions = tuple(_omitted(wanted[best][0], wanted[best][1], words))
        cuts = {0, len(completion), *(end for _, end in sentences_of(text)), *(cut for _, *ab in found for cut in ab)}
        return Critique(
            _feedback(completion, found, omissions, bool(words)),
            quotes=quotes_of(completion, found, self._remarks),
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

    def _labels(self, raw: str, words: Sequence[Word], reference: Sequence[Word], source: str) -> list[str | None]:
        """What is said of each word; repetition comes before the other two."""
        left = Counter(word.stem for word in reference)
        from_source = stems_of(source)
        known = left.keys() | from_source
        judge_source = len(from_source) >= self.settings.thin
        labels: list[str | None] = []
        for word in words:
            foreign = judge_source and word.content and word.stem not in known
            beside = self.settings.beside > 0 and word.content and word.stem not in left
            absent = "unsupported" if foreign else "beside" if beside else None
            labels.append("captured" if left[word.stem] > 0 else absent)
            if word.stem in left:
                left[word.stem] -= 1
        for index in repeated(raw, words, self.settings.repeat, reference):
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
    if not encodable(completion, *references):
        return UNENCODABLE
    return "its reference holds no word" if any(references) else "it has no reference"


def _omitted(text: Text, reference: Sequence[Word], words: Sequence[Word]) -> Iterator[str]:
    """Stretches of the reference that the completion does not have, from content word to content word."""
    there = Counter(word.stem for word in words)
    labels: list[str | None] = []
    for word in reference:
        labels.append(None if there[word.stem] > 0 else "unsupported")
        there[word.stem] -= 1
    for _, start, end in stretches_of(text.raw, reference, labels, ("unsupported",)):
        yield text.raw[start:end]


def _at(words: Sequence[Word], qualities: Sequence[float], cuts: Sequence[int]) -> Iterator[tuple[int, float]]:
    done = 0
    for cut in cuts:
        while done < len(words) and words[done].end <= cut:
            done += 1
        yield cut, qualities[done]


def _feedback(raw: str, stretches: Sequence[Stretch], omissions: Sequence[str], any_words: bool) -> str:
    sentences = sentences_about(raw, stretches, _REMARKS)
    if not any_words:
        sentences.append("The completion says nothing.")
    if omissions:
        sentences.append(f"The reference also has {listed([cite(text) for text in omissions])}, missing here.")
    return " ".join(sentences) or "Only words without content are shared with the reference."


reference = ReferenceCritic()
"""With the default settings: `--critic reference`."""
