"""Words of a text and the tokens that are theirs: by hand, and as laws."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from text2grad.feedback.labels import Words


def pairs(*places: tuple[int, int]) -> NDArray[np.int64]:
    return np.array(places, dtype=np.int64).reshape(-1, 2)


def words(text: str) -> list[str]:
    return [text[a:b] for a, b in Words.of(text, pairs()).places.tolist()]


def test_words_signs_and_characters() -> None:
    assert words("It's 3.5 km — 港口, ok?") == ["It's", "3.5", "km", "—", "港", "口", ",", "ok", "?"]
    assert words("x += f(y)") == ["x", "+=", "f", "(", "y", ")"]
    assert words(" \n") == words("") == []


def test_marks_and_joiners_are_of_the_letter_before_them_and_numbers_are_whole() -> None:
    for word in (
        "e\u0301le\u0301ment",
        "हिन्दी",
        "தமிழ்",
        "می\u200cخواهم",
        "co\u00adope\u00adrate",
        "1,200.50",
        "12:30",
        "١٬٢٠٠٫٥",
        "מִלָּה",
    ):
        assert words(f"{word} {word}.") == [word, word, "."]
    assert words("ที่นั่น") == ["ที่", "นั่", "น"], "in scripts without spaces, a letter with its marks"
    assert words("3. 4") == ["3", ".", "4"] and words("a.b") == ["a", ".", "b"] and words("3: 4") == ["3", ":", "4"]


def test_a_word_has_the_mean_of_its_tokens_and_they_have_it_back() -> None:
    text, offsets = "Nine cars!", pairs((0, 2), (2, 4), (4, 9), (9, 10))
    found = Words.of(text, offsets)
    assert found.mean(np.array([0.2, 0.6, 1.0, 0.0])).tolist() == [0.4, 1.0, 0.0]
    assert found.pooled(np.array([0.2, 0.6, 1.0, 0.0])).tolist() == [0.4, 0.4, 1.0, 0.0]


def test_tokens_that_share_a_character_or_span_several_words() -> None:
    emoji = Words.of("a🙂", pairs((0, 1), (1, 2), (1, 2), (1, 2)))
    assert emoji.mean(np.array([0.0, 0.25, 0.5, 0.75])).tolist() == [0.0, 0.5]
    wide = Words.of("of the sea", pairs((0, 6), (6, 10)))
    assert wide.mean(np.array([0.25, 1.0])).tolist() == [0.25, 0.25, 1.0]
    assert wide.pooled(np.array([0.25, 1.0])).tolist() == [0.25, 1.0]


def test_blank_tokens_are_no_words_and_a_word_that_was_cut_off_has_nothing() -> None:
    found = Words.of("Nine  cars", pairs((0, 4), (4, 5), (5, 6)))
    assert found.mean(np.array([1.0, 0.5, 0.5])).tolist() == [1.0, 0.0]
    blank = Words.of("  ", pairs((0, 1), (1, 2)))
    assert blank.pooled(np.array([0.5, 0.25])).tolist() == [0.5, 0.25]


def test_what_says_nothing_by_itself_joins_its_neighbours_on_one_line_only() -> None:
    for text, called, wanted in (
        ("rest of season", [0, 1, 0], [0, 0, 0]),
        ("rest, season", [2, 1, 2], [2, 2, 2]),
        ("rest good season", [0, 1, 0], [0, 1, 0]),
        ("rest of season", [0, 2, 0], [0, 2, 0]),
        ("rest of season", [0, 1, 2], [0, 1, 2]),
        ("rest of the season", [0, 1, 1, 0], [0, 1, 1, 0]),
        ("rest\nof season", [0, 1, 0], [0, 1, 0]),
        ("rest. season", [0, 1, 0], [0, 1, 0]),
    ):
        assert Words.of(text, pairs()).linked(text, np.array(called)).tolist() == wanted


@given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=8), st.integers(0, 2**32 - 1))
def test_any_text_cut_anywhere(text: str, cuts: list[int], seed: int) -> None:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    offsets = pairs(*pairwise(edges))
    numbers = np.random.default_rng(seed).random((len(offsets), 3))
    found = Words.of(text, offsets)
    covered = "".join(text[a:b] for a, b in found.places.tolist())
    assert covered == "".join(text.split()), "every sign is somebody's, white space is nobody's"
    mean = found.mean(numbers)
    for (a, b), mine_mean in zip(found.places.tolist(), mean, strict=True):
        mine = [number for (x, y), number in zip(offsets.tolist(), numbers, strict=True) if x < b and a < y]
        assert np.allclose(mine_mean, np.mean(mine, axis=0))
    assert found.pooled(numbers).shape == numbers.shape
