"""What the program critics share: words with stems and places, sentences, quoting, and the source a completion is held
to.

Enters: texts and columns as they come. Leaves: words that can be compared, and places that are exact. Knows nothing of
verdicts. Words and stems are `feedback.align`'s; what is added is that scripts written without spaces are compared
character by character, and that "Mr." ends no sentence.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.critics.protocol import Prompt
from text2grad.feedback.text import FUNCTION_WORDS, Text, stem

UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, kana and Han: scripts without spaces between words."""
_UNSPACED = re.compile(UNSPACED)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:Mr|Mrs|Ms|Dr|St|Prof|Rev|Hon|vs|e\.g|i\.e|cf|No|Fig|approx|Sgt|Gen|Col|Capt|Lt|Sen|Rep|Gov|Jr|"
    r"Sr|Jan|Feb|Aug|Sept|Oct|Nov|Dec|[A-Z]|(?:[A-Z]\.)+[A-Z])\.$"
)


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
    found: list[Word] = []
    ascii_only = text.raw.isascii()
    for start, end, word in text.words:
        if ascii_only or not _UNSPACED.search(text.raw, start, end):
            found.append(Word(start, end, stem(word), word not in FUNCTION_WORDS))
        else:
            for a, b in _pieces(text.raw, start, end):
                piece = text.raw[a:b].lower()
                found.append(Word(a, b, stem(piece), piece not in FUNCTION_WORDS))
    return found


def unspaced(raw: str) -> bool:
    """Whether most of a text is in a script without spaces, so that a "word" of it is a character."""
    return not raw.isascii() and 2 * len(_UNSPACED.findall(raw)) > len(raw)


def sentences_of(text: Text) -> list[tuple[int, int]]:
    """Places of the sentences, white space around them left out; an abbreviation ends none.

    >>> [text[a:b] for text in ["Dr. Ada Low wrote it. It sold."] for a, b in sentences_of(Text(text))]
    ['Dr. Ada Low wrote it.', 'It sold.']
    """
    found: list[tuple[int, int]] = []
    for start, end in text.sentences:
        joined = found and _ABBREVIATION.search(text.raw, *found[-1]) and "\n" not in text.raw[found[-1][1] : start]
        if joined:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    # `Text.sentences` leaves closing marks behind a sentence out of it; they belong to what is said.
    return [trim(text.raw, start, _closed(text.raw, end)) for start, end in found]


def trim(raw: str, start: int, end: int) -> tuple[int, int]:
    """The place without white space at its ends."""
    while start < end and raw[start].isspace():
        start += 1
    while end > start and raw[end - 1].isspace():
        end -= 1
    return start, end


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
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return list(value)
    if isinstance(value, Sequence):
        joined = [texts_in(part, column, item) for part in value]
        return ["\n".join(parts) for parts in joined]
    raise InvalidData(
        f"item {item}: {column} should be a text, a list of texts or a list of such lists, got {shorten(value)}"
    )


def prompt_text(prompt: Prompt) -> str:
    """What the prompt says, whoever says it."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)


UNENCODABLE = "it holds half of a surrogate pair, which cannot be written down"
"""Why a text that is not `encodable` is not scored."""


def encodable(*texts: str) -> bool:
    """Whether texts can be written down at all; half a surrogate pair cannot, and so cannot be quoted either."""
    return not any(_SURROGATE.search(text) for text in texts)


def column_at(columns: dict[str, Sequence[Any]], name: str, item: int) -> Any:
    """The value of a column for one item; None where there is no such column."""
    values = columns.get(name)
    return None if values is None else values[item]


def _pieces(raw: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begun = start
    for match in _UNSPACED.finditer(raw, start, end):
        if match.start() > begun:
            yield begun, match.start()
        yield match.span()
        begun = match.end()
    if begun < end:
        yield begun, end


def _closed(raw: str, end: int) -> int:
    while end < len(raw) and raw[end] in "\"'”’)]":
        end += 1
    return end
