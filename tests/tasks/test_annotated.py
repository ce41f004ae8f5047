"""Annotated completions: what is read, what is refused with its line, and a split by prompt."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.tasks.annotated import Annotated, load_annotated, prompt_key, rows_digest, split_by_prompt
from text2grad.types import Alignment, Critique, Message, Span

ROW: dict[str, Any] = {
    "id": 7,
    "prompt": "Summarise.",
    "completion": "Seven ships left.",
    "critique": {"feedback": "It is nine.", "omissions": ["when"], "score": 0.5},
    "spans": [{"start": 0, "end": 5, "verdict": "poor"}],
}


def load(folder: Path, *rows: Any) -> list[Annotated]:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return load_annotated(path)


def test_a_row_as_annotate_writes_it(tmp_path: Path) -> None:
    (row,) = load(tmp_path, ROW, "")
    assert (row.id, row.prompt, row.completion) == ("7", "Summarise.", "Seven ships left.")
    assert row.critique.score == 0.5
    assert row.alignment == Alignment((Span(0, 5, "poor"),), omissions=("when",))


def test_prompts_may_be_conversations_or_absent_and_critiques_plain_text(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Summarise."}]
    first, second = load(tmp_path, ROW | {"prompt": turns}, ROW | {"id": 8, "prompt": None, "critique": "Fine."})
    assert first.prompt == (Message("user", "Summarise."),)
    assert (second.prompt, second.critique.feedback) == ("", "Fine.")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({key: value for key, value in ROW.items() if key != "spans"}, "line 2: has no `spans`: run it through"),
        (ROW | {"spans": None}, "line 2: has no `spans`"),
        (ROW | {"spans": [{"start": 0, "end": 99, "verdict": "poor"}]}, "line 2: .*should end within its text"),
        (ROW | {"spans": {"start": 0}}, "line 2: spans: should be a list"),
        (ROW | {"completion": " "}, "line 2: completion: should hold"),
        (ROW | {"critique": 3}, "line 2: critique: should be"),
        (ROW | {"prompt": [{"role": "robot", "content": "x"}]}, "line 2: .*role"),
        (ROW | {"prompt": 3}, "line 2: prompt: should be a text"),
        (ROW | {"critique": {"feedback": "x", "score": -1e300}}, r"line 2: row '7': a score .* ±1e\+12 .*got -1e\+300"),
        (ROW | {"critique": {"feedback": "x", "quality": [[0, 1e13]]}}, r"line 2: row '7': a score .*got 1e\+13"),
        ("{", "line 2: .*is not JSON"),
        ("[]", "line 2: should be a JSON object"),
        ('{"id": "\\ud800"}', "line 2: id: holds half of a surrogate pair"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(tmp_path: Path, line: Any, complaint: str) -> None:
    with pytest.raises(InvalidData, match=complaint):
        load(tmp_path, ROW, line)


def test_files_that_are_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="there is no such file"):
        load_annotated(tmp_path / "none.jsonl")
    with pytest.raises(InvalidData, match="there is no such file"):
        load_annotated(tmp_path)
    with pytest.raises(InvalidData, match="should hold rows, got none"):
        load(tmp_path, "", "")


def rows(prompts: list[str]) -> list[Annotated]:
    return [Annotated(str(n), prompt, "x", Critique(""), Alignment()) for n, prompt in enumerate(prompts)]


@given(st.lists(st.text(max_size=3), min_size=2, max_size=40), st.floats(0.01, 0.99), st.integers(0, 5))
def test_no_prompt_is_on_both_sides_and_no_row_is_lost(prompts: list[str], share: float, seed: int) -> None:
    made = rows(prompts)
    if len(set(prompts)) == 1:
        with pytest.raises(InvalidData, match="all completions have the same prompt"):
            split_by_prompt(made, share, seed)
        return
    learned, held = split_by_prompt(made, share, seed)
    assert learned and held
    assert not {row.prompt for row in learned} & {row.prompt for row in held}
    assert sorted([*learned, *held], key=lambda row: int(row.id)) == made
    assert (learned, held) == split_by_prompt(made, share, seed)


def test_about_the_share_is_held_out_another_seed_holds_out_others_and_more_data_moves_none() -> None:
    made = rows([f"prompt {n}" for n in range(600)])
    learned, held = split_by_prompt(made[:300], 0.2, 0)
    assert 40 <= len(held) <= 80
    assert {row.id for row in held} != {row.id for row in split_by_prompt(made[:300], 0.2, 1)[1]}
    more, more_held = split_by_prompt(made, 0.2, 0)
    assert {row.id for row in held} <= {row.id for row in more_held}
    assert {row.id for row in learned} <= {row.id for row in more}


def test_the_digest_sees_every_field() -> None:
    plain = rows(["a", "b"])
    assert rows_digest(plain) == rows_digest(rows(["a", "b"]))
    assert (
        len({rows_digest(plain), rows_digest(plain[::-1]), rows_digest(plain[:1]), rows_digest(rows(["a", "c"]))}) == 4
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_prompt_is_the_same_as_a_text_and_as_a_chat_of_one_message(seed: int) -> None:
    texts = rows([f"Q{n}" for n in range(6)])
    chats = [replace(row, prompt=(Message("user", str(row.prompt)),)) for row in texts]
    twice = [replace(row, prompt=(Message("system", "Judge."), Message("user", str(row.prompt)))) for row in texts]
    learn, held = split_by_prompt([*texts, *chats], 0.5, seed)
    assert {row.id for row in learn}.isdisjoint({row.id for row in held}) and len(learn) + len(held) == 12
    assert len({prompt_key(row) for row in [*texts, *chats, *twice]}) == 12
