"""An alignment on a terminal: completion and critique side by side in words and colours, numbered where they meet.

Enters: a completion's text, a critique's, their alignment. Leaves: something `rich` prints. Blue is good and orange
is poor, which colour-blind readers can tell apart; poor is also bold, good also underlined; and where there is no
styling at all (a pipe) brackets and numbers carry it. Text is shown as it is: markup is not obeyed, control
characters become pictures."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from text2grad.report.phrases import phrases
from text2grad.types import Alignment, Span, Verdict

STYLES: dict[Verdict, Style] = {
    "good": Style(color="#5ab4f0", underline=True),
    "poor": Style(color="#f0a030", bold=True),
    "neutral": Style(italic=True),
}
SIGNS: dict[Verdict, str] = {"good": "+", "poor": "−", "neutral": "·"}
_NO_STYLE, _QUIET = Style(), Style(dim=True)
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


def show(
    console: Console, title: str, completion: str, critique: str, alignment: Alignment, segments: Sequence[Segment]
) -> None:
    """Print one row, from its title to what was missed. Where styles do not show, brackets mark the spans."""
    plain = console.color_system is None
    order = sorted(range(len(alignment.spans)), key=lambda i: (alignment.spans[i].start, alignment.spans[i].end))
    numbers = {index: number for number, index in enumerate(order, 1)}
    parts: list[RenderableType] = [Rule(Text(visible(title)), align="left", style=_QUIET)]
    for label, text, marks in (
        ("completion", completion, _span_marks(alignment.spans, segments, numbers)),
        ("critique", critique, _critique_marks(critique, completion, alignment, numbers)),
    ):
        parts += [Text(label, style=_LABEL), Padding(_marked(text, marks, plain), (0, 0, 0, 2))]
    console.print(Group(*parts, _legend(completion, alignment, numbers)), highlight=False)
    console.print()


def evidence(span: Span, confidence: str = "") -> str:
    """Why these characters are the ones meant; `confidence`: what to say before that number."""
    severity = f", severity {span.severity:g}" if span.severity is not None else ""
    occurrence = f", {span.occurrence}" if span.occurrence != "only" else ""
    return f"{span.provenance}{confidence} {span.confidence:.2f}{severity}{occurrence}"


def _span_marks(spans: tuple[Span, ...], segments: Sequence[Segment], numbers: dict[int, int]) -> Iterator[_Mark]:
    for start, end, index in segments:
        span = spans[index]
        # A span that a shorter one interrupts shows its number once, at its end.
        yield _Mark(start, end, f"{SIGNS[span.verdict]}{numbers[index]}", STYLES[span.verdict], end == span.end)


def _critique_marks(critique: str, completion: str, alignment: Alignment, numbers: dict[int, int]) -> Iterator[_Mark]:
    for phrase in phrases(critique, completion, alignment):
        if phrase.kind != "span":
            yield _Mark(phrase.start, phrase.end, "✗", _QUIET)
            continue
        verdicts = {index: alignment.spans[index].verdict for index in phrase.indices}
        label = "".join(f"{SIGNS[verdict]}{numbers[index]}" for index, verdict in verdicts.items())
        yield _Mark(phrase.start, phrase.end, label, STYLES[verdicts[phrase.indices[-1]]])


def _marked(text: str, marks: Iterable[_Mark], plain: bool) -> Text:
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

    def row(sign: str, kind: str, words: str, note: str, style: Style = _NO_STYLE) -> None:
        # Styles go on the words, not on the cells: a cell's style would underline its padding too.
        words = " ".join(visible(words).split())
        words = words if len(words) <= 70 else f"{words[:69]}…"
        body = Text.assemble((words, style), (f"   {note}" if words else note, _QUIET))
        table.add_row(Text.assemble((sign, style)), Text.assemble((kind, style)), body)

    for index in numbers:
        span = alignment.spans[index]
        sign = f"{SIGNS[span.verdict]}{numbers[index]}"
        row(sign, span.verdict, span.slice(completion), evidence(span), STYLES[span.verdict])
    for missed in alignment.missed:
        row("✗", "missed", missed.quote, missed.reason)
    for omission in alignment.omissions:
        row("○", "omission", omission, "belongs to the decision to stop, not to a span")
    if not table.row_count:
        row("–", "nothing", "", "the critique points at nothing in particular")
    return Padding(table, (0, 0, 0, 2))
