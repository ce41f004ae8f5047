"""The coloured view: safe, honest about markup, readable without colour and in narrow terminals."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from text2grad import Alignment, Missed, Span
from text2grad.feedback.align.overlap import segments
from text2grad.report.terminal import show


def shown(completion: str, critique: str, alignment: Alignment, *, width: int = 100, colour: bool = False) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        markup=False,
        emoji=False,
    )
    show(console, "a row", completion, critique, alignment, segments(alignment.spans))
    return stream.getvalue()


def test_without_styles_brackets_and_numbers_carry_the_spans() -> None:
    found = Alignment(
        (
            Span(0, 4, "good", comment='"Nine" is right'),
            Span(16, 26, "poor", provenance="exact", confidence=0.5),
        )
    )
    text = shown("Nine ships left on Tuesday.", '"Nine" is right', found)
    assert "⟦Nine⟧⟨+1⟩ ships left ⟦on Tuesday⟧⟨−2⟩." in text
    assert '"⟦Nine⟧⟨+1⟩" is right' in text
    assert "exact 0.50" in text


def test_missed_and_omitted_are_shown_as_such() -> None:
    found = Alignment((), (Missed("seven gulls", "not in the completion"),), ("the cause",))
    text = shown("Nine ships.", 'It says "seven gulls" and leaves out the cause.', found)
    assert '"⟦seven gulls⟧⟨✗⟩"' in text
    assert "missed    seven gulls   not in the completion" in text
    assert "omission  the cause" in text


def test_colour_comes_with_bold_or_underline() -> None:
    text = shown("ab", "x", Alignment((Span(0, 1, "good"), Span(1, 2, "poor"))), colour=True)
    assert "\x1b[4;38;2;90;180;240ma\x1b[0m" in text
    assert "\x1b[1;38;2;240;160;48mb\x1b[0m" in text


def test_an_interrupted_span_is_numbered_once() -> None:
    text = shown("abcdef", "x", Alignment((Span(0, 6, "good"), Span(2, 4, "poor"))))
    assert "⟦ab⟧⟦cd⟧⟨−2⟩⟦ef⟧⟨+1⟩" in text


def test_markup_and_escape_sequences_are_shown_not_obeyed() -> None:
    text = shown("[red]no[/red] \x1b[31mred\x07\x9b", "[bold]x[/]", Alignment((Span(0, 5, "poor"),)))
    assert "⟦[red]⟧⟨−1⟩no[/red] ␛[31mred␇‹009B›" in text
    assert "[bold]x[/]" in text
    assert "\x1b" not in text


@settings(deadline=None)
@given(st.text(min_size=1, max_size=60), st.text(max_size=60), st.integers(8, 60), st.data())
def test_any_text_at_any_width(completion: str, critique: str, width: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(completion) - 1))
    end = data.draw(st.integers(start + 1, len(completion)))
    found = Alignment((Span(start, end, "poor", comment=critique),), (Missed(completion, "x"),))
    text = shown(completion, critique, found, width=width)
    assert not any(ord(character) < 32 and character != "\n" for character in text)
