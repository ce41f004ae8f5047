"""Where a span begins and ends: whole words, whole characters, whatever the script."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.align.locate import settle


@pytest.mark.parametrize(
    ("raw", "inside", "expected"),
    [
        ("two cafe\u0301s.", "caf", "cafe\u0301s"),
        ("हिन्दी में", "हिन", "हिन्दी"),
        ("les cafés", "caf", "cafés"),
        ("东京都", "京", "京"),
        ("ที่นี่", "น", "นี่"),
        ("on Tuesday noon", "uesday n", "Tuesday noon"),
    ],
)
def test_expand_ends_where_words_and_characters_end(raw: str, inside: str, expected: str) -> None:
    start = raw.index(inside)
    found = settle(raw, (start, start + len(inside)), "expand")
    assert raw[slice(*found)] == expected


@given(st.text(st.sampled_from("aé e\u0301\u0902हि्न漢ก็🙂.-_1\n"), min_size=1, max_size=20), st.data())
def test_expand_only_widens_and_contract_only_narrows(raw: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(raw) - 1))
    end = data.draw(st.integers(start + 1, len(raw)))
    wide, narrow = settle(raw, (start, end), "expand"), settle(raw, (start, end), "contract")
    assert 0 <= wide[0] <= start <= narrow[0] < narrow[1] <= end <= wide[1] <= len(raw)
    after = raw[wide[1] : wide[1] + 1]
    assert not after or unicodedata.category(after)[0] != "M" or raw[wide[1] - 1].isspace()
