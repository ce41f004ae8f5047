"""An alignment on a terminal: completion and critique side by side in words and colours, numbered where they meet.

Enters: a completion's text, a critique's, their alignment. Leaves: something `rich` prints. Blue is good and orange
is poor, which colour-blind readers can tell apart; poor is also bold, good also underlined; and where there is no
styling at all (a pipe) brackets and numbers carry it. Text is shown as it is: markup is not obeyed, control
characters become pictures."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from text2grad.report.phrases import phrases
from text2grad.types import Alignment, Span, Verdict

_STYLES: dict[Verdict, Style] = {
    "good": Style(color="#5ab4f0", underline=True),
    "poor": Style(color="#f0a030", bold=True),
    "neutral": Style(italic=True),
}
_SIGNS: dict[Verdict, str] = {"good": "+", "poor": "−", "neutral": "·"}
_QUIET = Style(dim=True)
_LABEL = Style(dim=True, italic=True)


def visible(text: str) -> str:
    """Text that is safe to print: no escape sequence reaches the terminal, no override turns the line around.

    >>> visible("a\\x1b[31mb\\u202ec")
    'a␛[31mb‹202E›c'
    """
    if text.isprintable():
        return text
    return "".join(_picture(character) if _unprintable(character) else character for character in text)


def _unprintable(character: str) -> bool:
    # Format characters (Cf) hold the bidirectional overrides, but also joiners that emoji and Indic scripts need.
    category = unicodedata.category(character)
    return (
        (category in ("Cc", "Cs", "Zl", "Zp") and character not in "\n\t")
        or "\u202a" <= character <= "\u202e"
        or "\u2066" <= character <= "\u2069"
    )


def _picture(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"‹{code:04X}›"


@dataclass(frozen=True, slots=True)
class _Mark:
    """A stretch of a shown text: where, which number, in whose style."""

    start: int
    end: int
    label: str
    style: Style
    closing: bool = True


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the caller say what a reader that has gone means; rich would end the program with status 1."""
        raise BrokenPipeError


def plain_console() -> Console:
    """Standard output for text that is shown as it is."""
    return _Console(markup=False, emoji=False, highlight=False)


Segment = tuple[int, int, int]
"""(start, end, index of the span that the characters belong to): overlaps are settled before they come here."""


def view(
    title: str,
    completion: str,
    critique: str,
    alignment: Alignment,
    segments: Sequence[Segment],
    *,
    plain: bool = False,
) -> RenderableType:
    """One row, from its title to what was missed. `plain` puts brackets around spans, for where styles do not show."""
    numbers = {index: number for number, index in enumerate(_reading_order(alignment.spans), 1)}
    parts: list[RenderableType] = [Rule(Text(visible(title)), align="left", style=_QUIET)]
    parts.append(
        _labelled("completion", _marked(completion, list(_span_marks(alignment.spans, segments, numbers)), plain))
    )
    parts.append(
        _labelled("critique", _marked(critique, _critique_marks(critique, completion, alignment, numbers), plain))
    )
    parts.append(_legend(completion, alignment, numbers))
    return Group(*parts)


def show(
    console: Console, title: str, completion: str, critique: str, alignment: Alignment, segments: Sequence[Segment]
) -> None:
    """Print one row."""
    plain = console.color_system is None
    console.print(view(title, completion, critique, alignment, segments, plain=plain), highlight=False)
    console.print()


def _reading_order(spans: tuple[Span, ...]) -> list[int]:
    return sorted(range(len(spans)), key=lambda index: (spans[index].start, spans[index].end))


def _labelled(label: str, text: Text) -> RenderableType:
    return Group(Text(label, style=_LABEL), Padding(text, (0, 0, 0, 2)))


def _span_marks(spans: tuple[Span, ...], segments: Sequence[Segment], numbers: dict[int, int]) -> Iterator[_Mark]:
    for start, end, index in segments:
        span = spans[index]
        # A span that a shorter one interrupts shows its number once, at its end.
        yield _Mark(start, end, f"{_SIGNS[span.verdict]}{numbers[index]}", _STYLES[span.verdict], end == span.end)


def _critique_marks(critique: str, completion: str, alignment: Alignment, numbers: dict[int, int]) -> list[_Mark]:
    marks = []
    for phrase in phrases(critique, completion, alignment):
        if phrase.kind == "span":
            verdicts = [alignment.spans[index].verdict for index in phrase.indices]
            pairs = zip(verdicts, phrase.indices, strict=True)
            label = "".join(f"{_SIGNS[verdict]}{numbers[index]}" for verdict, index in pairs)
            marks.append(_Mark(phrase.start, phrase.end, label, _STYLES[verdicts[-1]]))
        else:
            marks.append(_Mark(phrase.start, phrase.end, "✗" if phrase.kind == "missed" else "○", _QUIET))
    return marks


def _marked(text: str, marks: list[_Mark], plain: bool) -> Text:
    made = Text()
    position = 0
    for mark in marks:
        made.append(visible(text[position : mark.start]))
        body = visible(text[mark.start : mark.end])
        made.append(f"⟦{body}⟧" if plain else body, style=mark.style)
        if mark.closing:
            made.append(f"⟨{mark.label}⟩", style=mark.style.without_color + Style(dim=True, underline=False))
        position = mark.end
    made.append(visible(text[position:]))
    return made


def _legend(completion: str, alignment: Alignment, numbers: dict[int, int]) -> RenderableType:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for index, span in sorted(enumerate(alignment.spans), key=lambda item: numbers[item[0]]):
        style = _STYLES[span.verdict]
        words = " ".join(visible(span.slice(completion)).split())
        note = [f"{span.provenance} {span.confidence:.2f}"]
        note += [f"severity {span.severity:g}"] if span.severity is not None else []
        note += [span.occurrence] if span.occurrence != "only" else []
        # Styles go on the words, not on the cells: a cell's style would underline its padding too.
        body = Text.assemble((_shorten(words), style), (f"   {', '.join(note)}", _QUIET))
        sign = f"{_SIGNS[span.verdict]}{numbers[index]}"
        table.add_row(Text.assemble((sign, style)), Text.assemble((span.verdict, style)), body)
    for missed in alignment.missed:
        body = Text(_shorten(" ".join(visible(missed.quote).split())))
        body.append(f"   {missed.reason}", style=_QUIET)
        table.add_row(Text("✗"), Text("missed"), body)
    for omission in alignment.omissions:
        body = Text(_shorten(" ".join(visible(omission).split())))
        body.append("   belongs to the decision to stop, not to a span", style=_QUIET)
        table.add_row(Text("○"), Text("omission"), body)
    if not (alignment.spans or alignment.missed or alignment.omissions):
        table.add_row(Text("–"), Text("nothing"), Text("the critique points at nothing in particular", style=_QUIET))
    return Padding(table, (0, 0, 0, 2))


def _shorten(text: str, width: int = 70) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
