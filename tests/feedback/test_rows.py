"""Lines of a data file: whatever comes, a row or a reason."""

import json

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
    row = Row.read(json.dumps({"id": "a", "completion": "x", "critique": "y", "prompt": prompt}).encode())
    assert row.source == "Be brief.\n\nNine ships left."


def test_the_source_goes_before_the_prompt() -> None:
    row = Row.read(b'{"id": 1, "completion": "x", "critique": "y", "prompt": "p", "source": "s"}')
    assert (row.id, row.source) == (1, "s")


def test_a_critique_object_keeps_its_quotes() -> None:
    critique = {"feedback": "f", "quotes": [{"text": "ships", "verdict": "good"}], "omissions": ["the cause"]}
    row = Row.read(json.dumps({"id": "a", "completion": "Nine ships.", "critique": critique}).encode())
    found = row.align(AlignSettings())
    assert [span.slice("Nine ships.") for span in found.spans] == ["ships"]
    assert found.omissions == ("the cause",)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_or_a_reason(line: bytes) -> None:
    with pytest.raises(InvalidData):
        Row.read(line)
    identity(line)


@given(_FIELDS)
def test_any_fields_are_a_row_or_a_reason(fields: dict[str, object]) -> None:
    line = json.dumps(fields).encode()
    try:
        row = Row.read(line)
    except InvalidData as problem:
        assert str(problem)
        assert identity(line) is None or identity(line) == fields["id"]
    else:
        for span in row.align(AlignSettings()).spans:
            span.slice(row.completion)
