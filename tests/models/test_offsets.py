"""Offsets of sampled ids: the tokenizer decides what the text is, coverage is the law for the ranges."""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.models.conftest import converted_tokenizer, trained_sentencepiece
from text2grad.errors import InvalidData, UnsupportedTokenizer
from text2grad.models.offsets import completion_of, decode, decode_all
from text2grad.models.tiny import tiny_tokenizer
from text2grad.types import Completion

PASSAGES = [
    "The crane fell at noon.",
    "Naïve café, cafe\u0301 with a combining mark",
    "漢字かな交じり文 and 한국어",
    "🙂🚒 family: 👩‍👩‍👧‍👦, flag: 🇦🇹, skin: 👍🏽",
    "def f(a):\n\tif a:\n\t\treturn  a  # two  spaces\n\r\n",
    "שלום עולם, مرحبا",
    "  leading and trailing  ",
    "▁ is not a space, <0x41> is not A, Ġ is not one either",
    "zero\u200bwidth \ufeff and \x00 control \x7f",
    "\U0001f9d1\U0001f3fd\u200d\U0001f680",
    "",
]


def pieces(completion: Completion) -> list[str]:
    """What each token adds to the text: a character shared by several tokens is the first one's."""
    found, covered = [], 0
    for start, end in completion.offsets:
        found.append(completion.text[max(start, covered) : end])
        covered = max(covered, end)
    return found


def check_laws(tokenizer: Any, ids: list[int]) -> Completion:
    completion = completion_of(tokenizer, ids)  # its construction checks that the tokens cover the text in order
    wanted = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert completion.text == wanted
    assert "".join(pieces(completion)) == completion.text
    covering = np.zeros(len(completion.text), dtype=int)
    for start, end in completion.offsets:
        covering[start:end] += 1
    assert (covering >= 1).all()
    special = set(tokenizer.all_special_ids)
    assert all(start == end for i, (start, end) in zip(ids, completion.offsets, strict=True) if i in special)
    return completion


@pytest.mark.parametrize("passage", PASSAGES, ids=range(len(PASSAGES)))
def test_encoded_text_comes_back_with_its_offsets(any_tokenizer: Any, passage: str) -> None:
    check_laws(any_tokenizer, any_tokenizer(passage)["input_ids"])


@pytest.mark.parametrize("passage", PASSAGES, ids=range(len(PASSAGES)))
def test_a_completion_cut_off_anywhere_even_inside_a_character(any_tokenizer: Any, passage: str) -> None:
    ids = any_tokenizer(passage, add_special_tokens=False)["input_ids"]
    for length in range(len(ids)):
        check_laws(any_tokenizer, ids[:length])
        check_laws(any_tokenizer, ids[length:])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_many_texts_are_decoded_as_each_alone(any_tokenizer: Any, data: st.DataObject) -> None:
    """Broken bytes at the end of one and the beginning of the next are no character."""
    ids = any_tokenizer("".join(PASSAGES), add_special_tokens=False)["input_ids"]
    some = st.one_of(st.integers(0, len(any_tokenizer) + 5), st.sampled_from(ids))
    cuts = st.slices(len(ids)).map(lambda part: ids[part])
    many = data.draw(st.lists(st.one_of(cuts, st.lists(some, max_size=8)), max_size=5))
    found = decode_all(any_tokenizer, many)
    assert len(found) == len(many)
    for ids, (text, ranges) in zip(many, found, strict=True):
        alone, places = decode(any_tokenizer, ids)
        assert text == alone and ranges.tolist() == places.tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=st.data())
def test_any_ids_that_a_policy_may_sample(any_tokenizer: Any, data: st.DataObject) -> None:
    """Policies sample ids that no text encodes to: broken bytes, special tokens anywhere, ids beyond the vocabulary."""
    ids = data.draw(st.lists(st.integers(0, len(any_tokenizer) + 5), max_size=30))
    special = st.sampled_from(sorted(any_tokenizer.all_special_ids))
    ids = data.draw(st.permutations(ids + data.draw(st.lists(special, max_size=4))))
    check_laws(any_tokenizer, ids)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(values=st.lists(st.integers(0, 255), max_size=12), at=st.integers(0, 12))
def test_any_bytes_with_a_special_token_among_them(any_tokenizer: Any, values: list[int], at: int) -> None:
    vocabulary = vocabulary_of(any_tokenizer)
    ids = [vocabulary[f"<0x{value:02X}>"] for value in values if f"<0x{value:02X}>" in vocabulary]
    ids = ids or [index for value in values if (index := vocabulary.get(BYTE_CHARACTERS[value])) is not None]
    ids.insert(min(at, len(ids)), any_tokenizer.all_special_ids[0])
    check_laws(any_tokenizer, ids)


@cache
def vocabulary_of(tokenizer: Any) -> dict[str, int]:
    return dict(tokenizer.get_vocab())


def _byte_characters() -> list[str]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = bytes_to_unicode()
    return [table[value] for value in range(256)]


BYTE_CHARACTERS = _byte_characters()


def test_numbers_worked_by_hand(tokenizer: Any) -> None:
    """An emoji of four bytes, one token each, with an end token inside it and a stray byte after it."""
    vocabulary = tokenizer.get_vocab()
    four = [vocabulary[BYTE_CHARACTERS[value]] for value in "🙂".encode()]
    ids = [
        vocabulary["a"],
        *four[:2],
        tokenizer.eos_token_id,
        *four[2:],
        vocabulary[BYTE_CHARACTERS[0xE2]],
        vocabulary["b"],
    ]
    text, ranges = decode(tokenizer, ids)
    assert text == "a🙂\ufffdb"
    assert ranges.tolist() == [[0, 1], [1, 2], [1, 2], [1, 1], [1, 2], [1, 2], [2, 3], [3, 4]]


def test_special_tokens_are_empty_ranges_where_they_stand(tokenizer: Any) -> None:
    ids = tokenizer("<|im_start|>Hi<|im_end|>")["input_ids"]
    completion = completion_of(tokenizer, ids)
    assert completion.text == "Hi"
    assert completion.offsets[0] == (0, 0) and completion.offsets[-1] == (2, 2)


def test_no_ids_at_all(any_tokenizer: Any) -> None:
    assert completion_of(any_tokenizer, []) == Completion("", (), ())


@pytest.mark.parametrize("ids", [[-1], [[1, 2]], [[]], [1.7], ["5"], [True], [2**63], [2**40], [None], "ab", 5])
def test_what_is_no_sequence_of_ids_is_refused(tokenizer: Any, ids: Any) -> None:
    with pytest.raises(InvalidData, match="one sequence of whole numbers from 0"):
        decode(tokenizer, ids)


def test_an_unknown_kind_of_decoder_is_refused_by_name() -> None:
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedTokenizer, match=r"its decoder is made of \['WordPiece'\]"):
        decode(PreTrainedTokenizerFast(tokenizer_object=backend), [0])


def test_tokens_added_later_are_decoded_too() -> None:
    tokenizer = tiny_tokenizer()
    before = decode(tokenizer, [5])[0]
    tokenizer.add_tokens(["<new>"])
    added = tokenizer.convert_tokens_to_ids("<new>")
    assert decode(tokenizer, [5, added])[0] == f"{before}<new>" == tokenizer.decode([5, added])


def test_a_chain_before_byte_level_that_would_do_something_is_refused() -> None:
    tokenizer = converted_tokenizer()
    tokenizer.add_tokens(["<two words>"])  # a space: fused with its neighbours, it makes all of them literal
    with pytest.raises(UnsupportedTokenizer, match="its decoder is made of"):
        decode(tokenizer, [5])


@pytest.mark.parametrize(
    "steps",
    [
        ["Replace", "Fuse", "ByteFallback"],
        ["Replace", "Fuse", "Strip", "Strip"],
        ["Replace", "Strip"],
        ["Fuse", "Replace"],
    ],
)
def test_a_chain_in_another_order_is_refused_rather_than_approximated(tmp_path: Path, steps: list[str]) -> None:
    from tokenizers import decoders
    from transformers import LlamaTokenizer

    trained_sentencepiece(tmp_path, "bpe")
    tokenizer = LlamaTokenizer.from_pretrained(tmp_path)
    made = {
        "Replace": decoders.Replace("▁", " "),
        "Fuse": decoders.Fuse(),
        "ByteFallback": decoders.ByteFallback(),
        "Strip": decoders.Strip(" ", 1, 0),
    }
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([made[step] for step in steps])
    with pytest.raises(UnsupportedTokenizer, match="its decoder is made of"):
        decode(tokenizer, [5])


def calls_made(tokenizer: Any, ids: list[int]) -> int:
    count = 0

    def watch(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(watch)
    try:
        decode(tokenizer, ids)
    finally:
        sys.setprofile(None)
    return count


def test_work_grows_linearly_and_not_per_token_in_python(any_tokenizer: Any) -> None:
    """Counted in calls: real text costs a number of calls that does not depend on its length; broken bytes at most
    a few each."""
    ids = any_tokenizer("The crane fell at noon. " * 50, add_special_tokens=False)["input_ids"]
    calls_made(any_tokenizer, ids)
    assert calls_made(any_tokenizer, ids * 20) <= calls_made(any_tokenizer, ids) + 5
    broken = any_tokenizer("🙂漢", add_special_tokens=False)["input_ids"][1:-1] * 100
    if broken:
        assert calls_made(any_tokenizer, broken * 10) <= 10 * calls_made(any_tokenizer, broken) + 50


@pytest.mark.parametrize("passage", PASSAGES, ids=range(len(PASSAGES)))
def test_a_bare_tokenizer_of_the_library_below_gives_the_same(any_tokenizer: Any, passage: str) -> None:
    bare = any_tokenizer.backend_tokenizer
    ids = any_tokenizer(passage)["input_ids"]
    assert completion_of(bare, ids) == completion_of(any_tokenizer, ids)


def test_tokens_added_to_a_bare_tokenizer_are_read() -> None:
    bare = Tokenizer.from_str(tiny_tokenizer().backend_tokenizer.to_str())
    number = bare.get_vocab_size()
    assert completion_of(bare, [number]).text == ""
    bare.add_tokens(["<crane>"])
    assert completion_of(bare, [number]).text == "<crane>"
    bare.add_special_tokens(["<end>"])
    assert completion_of(bare, [number, number + 1]).text == "<crane>"


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(UnsupportedTokenizer, match="exact offsets need a tokenizer"):
        completion_of(object(), [1])
