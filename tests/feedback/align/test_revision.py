"""A corrected version points at what it removed or replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad import align
from text2grad.feedback.align.revision import changed


@pytest.mark.parametrize(
    ("completion", "revision", "removed", "added"),
    [
        ("Boil it for forty minutes.", "Boil it for eight minutes.", ["forty"], []),
        ("A Canadian broadcaster spoke.", "The broadcaster spoke.", ["A Canadian"], []),
        ("The dam broke.", "The old dam broke at noon.", [], ["old", "at noon"]),
        ("The dam broke on a Monday.", "A dam broke on a Tuesday.", ["Monday"], []),
        ("The dam broke.", "A dam broke.", ["The"], []),
        ("for i in range(1, n):", "for i in range(1, n + 1):", [], ["1"]),
        ("Same.", "Same.", [], []),
        ("他说今天天气很好。", "他说明天天气很好。", ["今"], []),
        ("東京は 2019 年に", "東京は 2020 年に", ["2019"], []),
        ("One text.", "Wholly other words here", [], []),
    ],
)
def test_changes(completion: str, revision: str, removed: list[str], added: list[str]) -> None:
    places, inserted = changed(completion, revision)
    assert [completion[start:end] for start, end in places] == removed
    assert [text.strip("+ ") for text in inserted] == added


def test_a_revision_span_carries_the_clause_about_it() -> None:
    text = "Seven ships left on Tuesday."
    found = align(text, "The ships are miscounted. Tuesday is not the day.", revision="Nine ships left on Monday.")
    assert [(s.slice(text), s.comment) for s in found.spans if s.provenance == "revision"] == [
        ("Seven", ""),
        ("Tuesday", "Tuesday is not the day."),
    ]


def test_long_texts_take_the_other_road_with_the_same_answer() -> None:
    words = [f"w{i}" for i in range(9_000)]
    other = ["x", *words[1:5_000], "y", *words[5_001:-1], "z"]
    places, _ = changed(" ".join(words), " ".join(other))
    assert [" ".join(words)[a:b] for a, b in places] == ["w0", "w5000", "w8999"]


@given(st.text(max_size=80), st.text(max_size=80))
def test_places_lie_inside_in_order(completion: str, revision: str) -> None:
    position = 0
    for start, end in changed(completion, revision)[0]:
        assert position <= start < end <= len(completion)
        position = end
