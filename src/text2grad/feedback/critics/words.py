"""What the program critics share: words with stems and places, sentences, remarks on stretches, and columns as texts.

Enters: texts and columns as they come. Leaves: words that can be compared, places that are exact, and quotes of
stretches of words with one label. Words, stems and sentences are those of `feedback.text`; added is that scripts
written without spaces are compared character by character.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.text import FUNCTION_WORDS, Text, stem
from text2grad.types import Critique, Quote, Verdict
from text2grad.writing import ONE_UNSPACED, UNSPACED

_PIECE = re.compile(f"[{UNSPACED}]|[^{UNSPACED}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAK = re.compile(r"[.!?…:;。！？；\n]")
"""Between two words: what a quote does not reach across."""


class Word(NamedTuple):
    start: int
    end: int
    stem: str
    content: bool
    """Whether it says something by itself; "the" and "of" do not."""


def words_of(text: Text) -> list[Word]:
    """The words in order.

    >>> [(word.stem, word.content) for word in words_of(Text("The ships left 港口."))]
    [('the', False), ('ship', True), ('left', True), ('港', True), ('口', True)]
    """
    words: list[Word] = []
    ascii_only = text.raw.isascii()
    for start, end, word in text.words:
        if ascii_only or not ONE_UNSPACED.search(text.raw, start, end):
            words.append(Word(start, end, stem(word), word not in FUNCTION_WORDS))
        else:
            pieces = ((match.span(), match[0].lower()) for match in _PIECE.finditer(text.raw, start, end))
            words += [Word(a, b, stem(piece), piece not in FUNCTION_WORDS) for (a, b), piece in pieces]
    return words


def unspaced(raw: str) -> bool:
    """Whether most of a text is in a script without spaces, so that a "word" of it is a character."""
    return not raw.isascii() and 2 * len(ONE_UNSPACED.findall(raw)) > len(raw)


def sentences_of(text: Text) -> list[tuple[int, int]]:
    """Places of the sentences, with the closing marks behind them and without the white space around them.

    >>> [text[a:b] for text in ["“Dr. Ada Low wrote it.” It sold."] for a, b in sentences_of(Text(text))]
    ['“Dr. Ada Low wrote it.”', 'It sold.']
    """
    places = []
    for start, end in text.sentences:
        while end < len(text.raw) and text.raw[end] in "\"'”’)]":
            end += 1
        sentence = text.raw[start:end]
        places.append((start + len(sentence) - len(sentence.lstrip()), start + len(sentence.rstrip())))
    return places


def ngrams(words: Sequence[Word], length: int) -> Iterator[tuple[str, ...]]:
    """The stems of every `length` words in a row."""
    stems = [word.stem for word in words]
    return (tuple(stems[index : index + length]) for index in range(len(stems) - length + 1))


def repeated(raw: str, words: Sequence[Word], length: int, reference: Sequence[Word] = ()) -> Iterator[int]:
    """Indices of words in stretches that were said before, oftener than the reference says them; and doubled words."""
    length = 2 * length if unspaced(raw) else length
    allowed = Counter(ngrams(reference, length))
    seen: Counter[tuple[str, ...]] = Counter()
    for index, stretch in enumerate(ngrams(words, length)):
        if seen[stretch] >= max(1, allowed[stretch]) and any(word.content for word in words[index : index + length]):
            yield from range(index, index + length)
        seen[stretch] += 1
    doubled = {(a.stem, b.stem) for a, b in pairwise(reference) if a.stem == b.stem}
    for index, (a, b) in enumerate(pairwise(words), 1):
        spaced = a.end < b.start and raw[a.end : b.start].isspace()
        if spaced and b.content and raw[a.start : a.end] == raw[b.start : b.end] and (a.stem, b.stem) not in doubled:
            yield index


class Stretch(NamedTuple):
    """A stretch of words with one label."""

    label: str
    start: int
    end: int


def stretches_of(
    raw: str, words: Sequence[Word], labels: Sequence[str | None], bridged: Collection[str]
) -> Iterator[Stretch]:
    """Stretches of words with one label, from content word to content word. A function word between two words with a
    `bridged` label goes with them; a sentence end goes with nothing."""
    first = last = -1
    current: str | None = None
    for index, word in enumerate(words):
        label = labels[index]
        ends = index > 0 and _BREAK.search(raw, words[index - 1].end, word.start)
        bridge = current in bridged and not word.content and label != "repeated"
        if current is not None and (ends or (label != current and not bridge)):
            yield Stretch(current, words[first].start, words[last].end)
            current = None
        if current is None and label is not None and word.content:
            current, first = label, index
        if current is not None and word.content:
            last = index
    if current is not None:
        yield Stretch(current, words[first].start, words[last].end)


class Remark(NamedTuple):
    """What a critic says of stretches with one label."""

    verdict: Verdict
    singular: str
    plural: str
    severity: float | None = None


def quotes_of(raw: str, stretches: Sequence[Stretch], remarks: Mapping[str, Remark]) -> tuple[Quote, ...]:
    """Each stretch as a quote, with its remark as the comment."""
    quotes = []
    for label, start, end in stretches:
        said, text = remarks[label], raw[start:end]
        quotes.append(Quote(text, said.verdict, said.severity, f"{cite(text)} {said.singular}.", start))
    return tuple(quotes)


def sentences_about(raw: str, stretches: Sequence[Stretch], remarks: Mapping[str, Remark]) -> list[str]:
    """One sentence for each label that occurs."""
    cited: dict[str, list[str]] = {label: [] for label in remarks}
    for label, start, end in stretches:
        cited[label].append(cite(raw[start:end]))
    return [
        f"{listed(texts)} {remarks[label].singular if len(texts) == 1 else remarks[label].plural}."
        for label, texts in cited.items()
        if texts
    ]


def cite(text: str) -> str:
    """Words in quotation marks, as a sentence about them gives them; never changed, only enclosed."""
    return f"“{text}”"


def listed(items: Sequence[str], most: int = 6) -> str:
    """Items as a sentence has them: `a, b and c`; beyond `most` their number is said instead."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def texts_in(value: Any, column: str, item: int) -> list[str]:
    """A column's value as texts: none, one, a list of them, or a list of lists (a passage as its sentences)."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence):
        return ["\n".join(texts_in(part, column, item)) for part in value]
    raise InvalidData(
        f"item {item}: {column} should be a text, a list of texts or a list of such lists, got {shorten(value)}"
    )


Column = Callable[[str], list[str]]
"""Name of a column → the texts that an item has there."""


def judge_items(
    prompts: Sequence[Prompt],
    completions: Sequence[str],
    columns: dict[str, Sequence[Any]],
    judge: Callable[[str, str, Column], tuple[Critique | None, str]],
) -> Critiques:
    """`judge`: completion, prompt, what the item's columns hold → critique, and the reason if that is None."""
    critiques = Critiques()
    for item, completion in enumerate(completions):

        def column(name: str, item: int = item) -> list[str]:
            return texts_in(column_at(columns, name, item), name, item)

        critiques.add(*judge(completion, prompt_text(prompts[item]), column))
    return critiques


def prompt_text(prompt: Prompt) -> str:
    """What the prompt says, whoever says it."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)


UNENCODABLE = "it holds half of a surrogate pair, which cannot be written down"
"""Why a text that is not `encodable` is not scored."""


def encodable(*texts: str) -> bool:
    """Whether texts can be written down at all; half a surrogate pair cannot, and so cannot be quoted either."""
    return not any(_SURROGATE.search(text) for text in texts)


def column_at(columns: dict[str, Sequence[Any]], name: str, item: int) -> Any:
    """The value of a column for one item; None if the column is missing or empty."""
    values = columns.get(name)
    if values is None or len(values) == 0:
        return None
    if item >= len(values):
        raise InvalidData(f"item {item}: {name} should have a value for each completion, got {len(values)}")
    return values[item]
