"""Rows for the round-trip tests: any Unicode, any spans."""

from typing import Any

from hypothesis import strategies as st

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=40) | st.lists(
    st.sampled_from(
        ["🦩", "a", " ", "\r\n", "\n", "e\u0301", "👩‍👩‍👧", "漢", "b b ", "“q”", "\\n", "\u2028", "\ufeff"]
    ),
    min_size=1,
).map("".join)


@st.composite
def marked_rows(draw: st.DrawFn) -> dict[str, Any]:
    completion = draw(TEXTS.filter(str.strip))
    spans = []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(completion) - 1))
        end = draw(st.integers(start + 1, len(completion)))
        span = {"start": start, "end": end, "verdict": draw(st.sampled_from(["good", "poor", "neutral"]))}
        if comment := draw(st.none() | TEXTS):
            span["comment"] = comment
        spans.append(span)
    return {"id": draw(st.integers(0, 9) | st.text("ab#", min_size=1)), "completion": completion, "spans": spans}


def places(row: Any) -> list[tuple[int, int, str]]:
    return [(span["start"], span["end"], span["verdict"]) for span in row["spans"]]


def to_utf16(text: str, place: tuple[int, int]) -> tuple[int, int]:
    """A place in characters → in UTF-16 units, as browsers count."""
    start, end = (len(text[:position].encode("utf-16-le", "surrogatepass")) // 2 for position in place)
    return start, end
