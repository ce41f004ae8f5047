"""How much of a reference a growing text has: the quality Q on prefixes that return-equivalent
rewards are cut from.

Enters: the words of a reference, then those of a text one by one. Leaves: after each word, the F-measure of the text so
far. Constant work a word. Knows nothing of characters or sentences.

Q is the mean of two F-measures, over words and over pairs of neighbouring words, both stemmed and clipped: a word
counts as often as the reference has it, so saying it again lowers precision. It is ROUGE-1 and ROUGE-2 with two
differences: stems, and a lower weight for function words, which every text shares with every other. They keep some
weight because at none at all, padding with them would be free.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from text2grad.feedback.critics.words import Word


class Overlap:
    """The overlap of a growing text with one reference.

    >>> from text2grad.feedback.text import Text
    >>> from text2grad.feedback.critics.words import words_of
    >>> growing = Overlap(words_of(Text("Nine ships left.")), beta=1.0, pairs=0.5, function_weight=0.25)
    >>> [(growing.add(word), round(growing.quality, 3)) for word in words_of(Text("Nine ships sank."))]
    [(True, 0.25), (True, 0.733), (False, 0.583)]
    """

    def __init__(self, reference: Sequence[Word], beta: float, pairs: float, function_weight: float) -> None:
        self._squared = beta * beta
        self._function_weight = function_weight
        self._words = Counter(word.stem for word in reference)
        self._pairs = Counter(pairwise(word.stem for word in reference))
        weights = [self._weight(word) for word in reference]
        self._wanted = sum(weights)
        self._wanted_pairs = sum(a + b for a, b in pairwise(weights)) / 2
        self._share = pairs if self._wanted_pairs > 0 else 0.0
        self._said = self._right = self._said_pairs = self._right_pairs = 0.0
        self._last: tuple[str, float] | None = None

    def add(self, word: Word) -> bool:
        """Take in the next word; whether the reference has it (once more)."""
        weight = self._weight(word)
        matched = self._words.get(word.stem, 0) > 0
        self._said += weight
        if matched:
            self._words[word.stem] -= 1
            self._right += weight
        if self._last is not None:
            pair, pair_weight = (self._last[0], word.stem), (self._last[1] + weight) / 2
            self._said_pairs += pair_weight
            if self._pairs.get(pair, 0) > 0:
                self._pairs[pair] -= 1
                self._right_pairs += pair_weight
        self._last = (word.stem, weight)
        return matched

    @property
    def quality(self) -> float:
        """Q of the words so far: 0 for none, 1 for the reference itself."""
        words = self._measure(self._right, self._said, self._wanted)
        pairs = self._measure(self._right_pairs, self._said_pairs, self._wanted_pairs)
        return (1 - self._share) * words + self._share * pairs

    def _measure(self, right: float, said: float, wanted: float) -> float:
        """F with precision right/said and recall right/wanted."""
        below = self._squared * wanted + said
        # Sums of the same weights in another order may differ in the last bit: the reference itself is 1.0.
        return min(1.0, (1 + self._squared) * right / below) if below > 0 else 0.0

    def _weight(self, word: Word) -> float:
        return 1.0 if word.content else self._function_weight
