"""Language facts that every room of feedback shares."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.text import PIECE, Text, sentences, splits_word
from text2grad.writing import UNSPACED


@pytest.mark.parametrize("character", ["ไ", "ລ", "မ", "ខ", "の", "ア", "漢", "서", "ﾊ", "𠀋"])
def test_scripts_without_spaces(character: str) -> None:
    assert re.fullmatch(f"[{UNSPACED}]", character)
    assert PIECE.findall(character * 3) == [character] * 3
    assert not splits_word(character * 3, 1)


@pytest.mark.parametrize("character", ["a", "é", "я", "ह", "ש", "ﷲ", "。", "🙂", "1"])
def test_other_characters(character: str) -> None:
    assert not re.fullmatch(f"[{UNSPACED}]", character)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rained. Dr. Low spoke. Nobody came.", ["It rained.", "Dr. Low spoke.", "Nobody came."]),
        ("He lives in the U.S. now.", ["He lives in the U.S. now."]),
        ("雨が降った。誰も来なかった。", ["雨が降った。", "誰も来なかった。"]),
        ("One line\nand another", ["One line", "and another"]),
        ("“Stop!” she said.", ["“Stop!", "she said."]),
        ("  \n ", []),
    ],
)
def test_sentences(text: str, found: list[str]) -> None:
    assert [text[start:end].strip() for start, end in sentences(text)] == found


@given(st.text(max_size=80))
def test_sentences_and_words_lie_in_order(raw: str) -> None:
    text = Text(raw)
    for places in (text.sentences, [word[:2] for word in text.words]):
        assert all(0 <= start < end <= len(raw) for start, end in places)
        assert places == sorted(places)
