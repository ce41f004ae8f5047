"""Neutral rows: what goes in comes out, in JSONL and Parquet; what breaks the contract is named with file and line."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import text2grad
from tests.training.trainings import HELD_OUT, rows_of, trainer, vowels
from text2grad import Completion, Critique, Example, Quote, TrainingRow, judge
from text2grad.cli import main
from text2grad.engines.rows import read_training_rows, rows_of_run, write_training_rows
from text2grad.errors import InvalidData, RunError

GOOD = {
    "id": "a", "group": "1-0", "prompt_ids": [5, 6], "completion_ids": [7, 8, 0], "mask": [1, 1, 1],
    "logprobs": [-0.5, -1.0, -0.1], "token_rewards": [0.0, -1.0, 0.0], "verdicts": [0.0, -1.0, 0.0],
    "advantages": [0.0, -1.5, 0.0], "score": -1.0,
}  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> TrainingRow:
    length = draw(st.integers(1, 5))
    reals = st.floats(allow_nan=False, allow_infinity=False)
    scored = draw(st.booleans())
    mask = [int(scored and bit) for bit in draw(st.lists(st.booleans(), min_size=length, max_size=length))]

    def stream(values: st.SearchStrategy[float]) -> tuple[float, ...] | None:
        drawn = draw(st.none() | st.lists(values, min_size=length, max_size=length))
        return None if drawn is None else tuple(each if bit else 0.0 for each, bit in zip(drawn, mask, strict=True))

    return TrainingRow(
        draw(st.text(min_size=1)),
        draw(st.text(min_size=1)),
        tuple(draw(st.lists(st.integers(0, 2**40), min_size=1, max_size=4))),
        tuple(draw(st.lists(st.integers(0, 2**40), min_size=length, max_size=length))),
        tuple(mask),
        stream(st.floats(-1e6, 0)),
        (stream(reals) or (0.0,) * length) if scored else None,
        stream(st.sampled_from((-1.0, 0.0, 1.0))),
        stream(reals) if scored else None,
        draw(st.none() | reals) if scored else None,
        draw(st.booleans()),
        draw(st.none() | st.integers(0, 10**6)),
    )


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@settings(max_examples=40, deadline=None)
@given(some=st.lists(rows(), min_size=1, max_size=5))
def test_rows_come_back_as_they_went(
    tmp_path_factory: pytest.TempPathFactory, form: Any, some: list[TrainingRow]
) -> None:
    path = tmp_path_factory.mktemp("rows") / f"rows.{form}"
    assert write_training_rows(path, some) == len(some)
    assert list(read_training_rows(path)) == some
    found = text2grad.check_training_rows(path)
    assert (found.rows, found.unscored) == (len(some), sum(not row.scored for row in some))
    for row in read_training_rows(path):
        streams = [
            each for name in ("logprobs", "token_rewards", "verdicts", "advantages") if (each := getattr(row, name))
        ]
        assert {len(row.completion_ids)} == {len(row.mask), *map(len, streams)}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(tmp_path: Path, form: str, number: float) -> None:
    path, row = tmp_path / f"rows.{form}", GOOD | {"advantages": [0.0, number, 0.0]}
    if form == "jsonl":
        path.write_text(json.dumps(GOOD) + "\n" + json.dumps(row) + "\n")
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist([GOOD, row]), path)
    (problem,) = text2grad.check_training_rows(path).problems
    assert problem.startswith(f"{path}, line 2: TrainingRow.advantages[1]: should be a finite number")
    with pytest.raises(InvalidData, match="line 2"):
        list(read_training_rows(path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": [1, 1]}, "mask should hold one entry per completion id, got 2 for 3 ids"),
        ({"logprobs": [-1.0]}, "logprobs should hold one entry per completion id, got 1 for 3 ids; or leave"),
        ({"mask": [1, 2, 1]}, "mask should hold 0 and 1, got 2"),
        ({"mask": [1, 0, 1]}, "token_rewards[1] should be 0 because mask[1] is 0, got -1.0; move what it holds"),
        ({"mask": [0, 1, 1], "advantages": [2.0, 0.0, 0.0]}, "advantages[0] should be 0 because mask[0] is 0"),
        ({"logprobs": [0.5, -1.0, -0.1]}, "logprobs should be at most 0, got 0.5; are these probabilities?"),
        ({"token_rewards": None}, "token_rewards is missing, so the row is unscored: then mask should be all 0"),
        (
            {"token_rewards": None, "verdicts": None, "advantages": None, "mask": [0, 0, 0], "score": 5.0},
            "then mask should be all 0, advantages and score null",
        ),
        ({"verdicts": [0.0, 7.0, 0.0]}, "verdicts should hold 1, -1 and 0, got 7.0; amounts belong into token_rewards"),
        ({"prompt_ids": []}, "prompt_ids should hold at least one id, got none; leave the row out"),
        ({"completion_ids": [7, -8, 0]}, "TrainingRow.completion_ids[1]: should be greater than or equal to 0, got -8"),
        ({"rewards": [1.0]}, "TrainingRow.rewards: there is no such field; the fields are id, group"),
    ],
)
def test_a_broken_row_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD | change) + "\n")
    assert main(["export", str(path), "--check"]) == 1
    said = capsys.readouterr().out
    assert f"{path}, line 2: TrainingRow" in said and words in said
    assert "2 rows in 1 groups: 0 not scored, 0 without advantages; with problems" in said


def test_a_file_that_cannot_be_read_is_not_as_it_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_training_rows(tmp_path / "whole.parquet", [TrainingRow.from_json(GOOD)] * 9)
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-40])
    for name in ("empty.jsonl", "empty.parquet"):
        (tmp_path / name).touch()
    for name in ("empty.jsonl", "empty.parquet", "cut.parquet"):
        assert main(["export", str(tmp_path / name), "--check"]) == 1
        said = capsys.readouterr().out
        assert said.startswith(f"{tmp_path / name}: ") and "0 rows in 0 groups" in said and "with problems" in said
    assert main(["export", str(tmp_path / "missing.jsonl"), "--check"]) == 2


def test_a_group_has_one_prompt_and_all_problems_are_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [
        json.dumps(GOOD),
        "{",
        json.dumps(GOOD | {"prompt_ids": [5]}),
        json.dumps(GOOD | {"group": "2", "score": "1"}),
    ]
    path.write_text("\n".join(lines) + "\n")
    found = text2grad.check_training_rows(path)
    assert [problem.partition(": ")[0] for problem in found.problems] == [f"{path}, line {n}" for n in (2, 3, 4)]
    assert "line 1 has other prompt_ids; give each prompt of each update its own group" in found.problems[1]


def test_judge_gives_rows() -> None:
    """Two completions of one example and one of another, of which the critic scores two."""

    def critic(prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        assert len(prompts) == len(completions)
        return [Critique("Wrong.", quotes=(Quote("red", "poor"),)) if "red" in text else None for text in completions]

    red = Completion("a red car", (1, 2, 3, 0), ((0, 1), (1, 5), (5, 9), (9, 9)))
    blue = Completion("blue", (4, 0), ((0, 4), (4, 4)))
    examples = [Example("a", "Which?"), Example("b", "And?"), Example("a", "Which?")]
    logprobs = [[-1.0] * 4, [-2.0] * 2, [-3.0] * 4]
    rollouts = judge(examples, [red, blue, red], critic, prompt_ids=[[9], [8, 9], [9]], logprobs=logprobs)
    found = text2grad.training_rows(rollouts)
    assert [row.group for row in found] == ["0", "1", "0"] and found[1].prompt_ids == (8, 9)
    assert found[0].token_rewards == (0.0, -1.0, 0.0, 0.0) and found[0].mask == (1, 1, 1, 1)
    assert (found[1].scored, found[1].mask, found[1].logprobs) == (False, (0, 0), (-2.0, -2.0))
    with pytest.raises(InvalidData, match="has no prompt_ids"):
        text2grad.training_rows(judge(examples[:1], [red], critic))
    with pytest.raises(InvalidData, match="logprobs should have one entry per completion, got 1"):
        judge(examples, [red, blue, red], critic, logprobs=[[-1.0]])


def test_a_folder_without_rollouts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no rollouts\.jsonl"):
        list(rows_of_run(tmp_path))


def most(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
    said = vowels(prompts, completions, **columns)
    return [None if place < 2 else each for place, each in enumerate(said)]


def test_a_run_gives_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 updates of 6 completions, of which the critic scores all but the first two."""
    trainer(tmp_path / "run", "updates=2", "log.rollouts=6", critic=most, held_out=HELD_OUT).train()
    logged = rows_of(tmp_path / "run")
    for form in ("jsonl", "parquet"):
        assert main(["export", str(tmp_path / "run"), "--format", form]) == 0
        assert "12 rows of 2 updates, 4 of them not scored" in capsys.readouterr().err
        rows = list(read_training_rows(tmp_path / "run" / f"rows.{form}"))
        for row, rollout in zip(rows, logged, strict=True):
            assert list(row.prompt_ids) == rollout["prompt_ids"]
            assert list(row.completion_ids) == rollout["completion"]["token_ids"]
            for name in ("logprobs", "token_rewards", "verdicts", "advantages", "score", "update"):
                held = getattr(row, name)
                assert (list(held) if isinstance(held, tuple) else held) == rollout[name]
        assert len({row.group for row in rows}) == 6 and any(any(row.advantages or ()) for row in rows)
    assert main(["export", str(tmp_path / "run" / "rows.parquet"), "--check"]) == 0
    assert "12 rows in 6 groups: 4 not scored, 0 without advantages; no problems" in capsys.readouterr().out


def test_no_file_is_written_over_and_none_under_a_wrong_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, mine = tmp_path / "run", tmp_path / "mine.jsonl"
    trainer(run, "updates=1", "log.rollouts=6").train()
    mine.write_text("my training data\n")
    logged = (run / "rollouts.jsonl").read_bytes()
    for target in (mine, run / "rollouts.jsonl"):
        assert main(["export", str(run), str(target), "--format", "jsonl"]) == 2
        assert f"{target} exists already; name another file, or delete it" in capsys.readouterr().err
    assert mine.read_text() == "my training data\n" and (run / "rollouts.jsonl").read_bytes() == logged
    for ending, form in (("parquet", "jsonl"), ("jsonl", "parquet")):
        target = tmp_path / f"new.{ending}"
        assert main(["export", str(run), str(target), "--format", form]) == 2 and not target.exists()
        assert f"its ending says {ending}, --format says {form}" in capsys.readouterr().err
    for _ in range(2):
        code = main(["export", str(run), "--format", "jsonl"])
    assert code == 2 and "rows.jsonl exists already" in capsys.readouterr().err


def test_a_run_that_logged_a_part_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer(tmp_path / "run", "updates=1", "log.rollouts=3").train()
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "some.jsonl"), "--format", "jsonl"]) == 0
    assert "the run logged 3 of 6 completions; log.rollouts=6 logs all" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "run"), "--format", "jsonl", "--adapter"]) == 2
    assert main(["export", "--check"]) == 2 and main(["export", "--format", "jsonl"]) == 2
