"""Examples from files: what a line becomes, and what is said about lines that are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import InvalidData
from text2grad.feedback.judge import columns_of
from text2grad.tasks.examples import Stream, example_of, load_examples
from text2grad.types import Example, Message


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_line_becomes_an_example(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"id": "a", "prompt": "Hi", "reference": "Ho", "tests": [1]}, {"prompt": "Yo"})
    assert load_examples(path) == [Example("a", "Hi", "Ho", {"tests": [1]}), Example("line-2", "Yo")]


def test_the_last_assistant_turn_is_to_be_written_anew() -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    asked = (Message("user", "Hi"),)
    assert example_of({"messages": turns}, "x") == Example("x", asked, "Ho")
    assert example_of({"prompt": turns, "reference": "mine"}, "x") == Example("x", asked, "mine")
    more = [*turns, {"role": "user", "content": "And?"}]
    assert example_of({"prompt": more}, "x").reference is None
    assert len(example_of({"prompt": more}, "x").prompt) == 3


def test_several_references_go_to_the_critic() -> None:
    example = example_of({"prompt": "Hi", "reference": ["a", "b"]}, "x")
    assert (example.reference, example.columns) == (None, {"reference": ["a", "b"]})


def test_columns_have_a_place_for_every_example() -> None:
    examples = [
        Example("a", "x", "r"),
        Example("b", "x", None, {"reference": ["s", "t"], "tests": 1}),
        Example("c", "x"),
    ]
    assert columns_of(examples) == {"reference": ["r", ["s", "t"], None], "tests": [None, 1, None]}
    assert columns_of([Example("a", "x")]) == {}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "should hold rows, got none"),
        ([{"prompt": "Hi"}, '{"prompt": "Ho'], "line 2: .*is not JSON"),
        ([{"prompt": "Hi"}, "[1]"], r"line 2: should be a JSON object, got .*\[1\]"),
        (
            [{"question": "Hi", "reference": "Ho"}],
            "line 1: should have a `prompt`.*the columns are question, reference; try columns.prompt=question",
        ),
        ([{"prompt": ""}], "line 1.*prompt: should be a non-empty text"),
        ([{"prompt": [{"role": "bot", "content": "x"}]}], "line 1.*role"),
        ([{"prompt": [{"role": "assistant", "content": "x"}]}], "line 1.*prompt: should be a non-empty"),
        ([{"prompt": "Hi", "completions": ["Ho"]}], "line 1: `completions` is what critics call"),
        ([{"id": "a", "prompt": "Hi"}, {"id": "a", "prompt": "Ho"}], "line 2: the id 'a' is already in line 1"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, rows: list[Any], words: str) -> None:
    with pytest.raises(InvalidData, match=words) as told:
        load_examples(written(tmp_path / "a.jsonl", *rows))
    assert str(tmp_path / "a.jsonl") in str(told.value)


def test_a_last_line_that_was_cut_off_is_not_lost_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "Hi"}\n{"prompt": "H')
    with pytest.raises(InvalidData, match="line 2"):
        load_examples(path)
    path.write_text('{"prompt": "Hi"}\n\n{"prompt": "Ho"}')
    assert [example.id for example in load_examples(path)] == ["line-1", "line-3"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"none\.jsonl: should be a file of examples, and there is no such"):
        load_examples(tmp_path / "none.jsonl")


def test_the_stream_goes_round_in_new_orders_from_any_place() -> None:
    examples = [Example(str(n), "x") for n in range(5)]
    whole = [Stream(examples, 3).at(place).id for place in range(15)]
    turns = [whole[start : start + 5] for start in (0, 5, 10)]
    assert all(sorted(turn) == list("01234") for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    backwards = Stream(examples, 3)
    assert [backwards.at(place).id for place in reversed(range(15))] == whole[::-1]
    assert [Stream(examples, 4).at(place).id for place in range(15)] != whole
