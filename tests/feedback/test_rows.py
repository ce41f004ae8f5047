"""Lines of a data file: whatever comes, a row or a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.feedback.align import AlignSettings
from text2grad.feedback.rows import Row, identity

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("id", "completion", "critique", "prompt", "source", "revision", "spans", "verdict"), _JSON),
)


def test_a_conversation_is_the_source() -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Nine ships left."}]
    row = Row.of({"id": "a", "completion": "x", "critique": "y", "prompt": prompt})
    assert row.source == "Be brief.\n\nNine ships left."


def test_the_source_goes_before_the_prompt() -> None:
    row = Row.of({"id": 1, "completion": "x", "critique": "y", "prompt": "p", "source": "s"})
    assert (row.id, row.source) == (1, "s")


def test_a_critique_object_keeps_its_quotes() -> None:
    critique = {"feedback": "f", "quotes": [{"text": "ships", "verdict": "good"}], "omissions": ["the cause"]}
    row = Row.of({"id": "a", "completion": "Nine ships.", "critique": critique})
    found = row.align(AlignSettings())
    assert [span.slice("Nine ships.") for span in found.spans] == ["ships"]
    assert found.omissions == ("the cause",)


def test_spans_that_were_given_stay_as_they_are_and_what_is_found_of_the_same_words_is_no_other() -> None:
    marked = [
        {"start": 0, "end": 4, "verdict": "poor", "comment": "no"},
        {"start": 0, "end": 4, "verdict": "poor", "comment": "not nine", "severity": 0.5},
        {"start": 5, "end": 10, "verdict": "good", "provenance": "revision"},
    ]
    row = {"id": 1, "completion": "Nine ships left.", "critique": '"Nine" is wrong.', "spans": marked}
    once = Row.of(row).align(AlignSettings())
    assert [(s.start, s.end, s.comment) for s in once.spans] == [(0, 4, "no"), (0, 4, "not nine"), (5, 10, "")]
    assert Row.of({**row, **once.to_json()}).align(AlignSettings()).spans == once.spans
    found = Row.of({**row, "spans": None}).align(AlignSettings())
    assert [(s.start, s.end, s.provenance) for s in found.spans] == [(0, 4, "exact")]
    assert Row.of({**row, "spans": found.to_json()["spans"]}).align(AlignSettings()).spans == found.spans


def test_quality_ends_within_the_completion() -> None:
    row = {"id": 1, "completion": "Nine ships.", "critique": {"feedback": "x", "quality": [[0, 0.0], [11, 1.0]]}}
    assert Row.of(row).critique.quality == ((0, 0.0), (11, 1.0))
    row["critique"] = {"feedback": "x", "quality": [[0, 0.0], [12, 1.0]]}
    with pytest.raises(
        InvalidData, match=r"critique\.quality: should end within the completion's 11 characters, got 12"
    ):
        Row.of(row)


@given(_FIELDS)
def test_any_fields_are_a_row_or_a_reason(fields: dict[str, object]) -> None:
    try:
        row = Row.of(fields)
    except InvalidData as problem:
        assert str(problem)
        assert identity(fields) is None or identity(fields) == fields["id"]
    else:
        for span in row.align(AlignSettings()).spans:
            span.slice(row.completion)
