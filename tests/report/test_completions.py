"""Rollouts as the page gets them: tokens, spans, phrases; and which of too many are chosen."""

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.made_runs import odd_row, rewarded, row, tokens, write_rows, write_run
from text2grad.errors import InvalidData
from text2grad.report.completions import _evenly, embedded, encode, pieces, read_completions
from text2grad.types import Alignment, Critique, Example, Missed, Span

TEXT = "Nine ships 🦩 left.\nFine."


def made(spans: tuple[Span, ...], said: str, **parts: Any) -> dict[str, Any]:
    alignment = Alignment(spans, parts.get("missed", ()), parts.get("omissions", ()))
    critique = Critique(said, omissions=parts.get("omissions", ()), score=parts.get("score"))
    noun = rewarded(Example("a", "Say."), parts.get("text", TEXT), critique, alignment, random.Random(1))
    return encode({"update": 3, **noun.to_json()})


def test_a_token_belongs_to_a_span_if_they_share_a_character() -> None:
    # "Nine", " ships", " 🦩", two more bytes of it, " left", ".", "\nFine", ".", end
    spans = (Span(7, 10, "poor"), Span(11, 12, "good"), Span(0, len(TEXT), "neutral"))
    found = made(spans, "x")["spans"]
    assert [span[:3] for span in found] == [[1, 2, "poor"], [2, 5, "good"], [0, 9, "neutral"]]


def test_the_end_token_belongs_to_no_span() -> None:
    row = made((Span(0, len(TEXT), "poor"),), "x")
    assert row["empty"] == [9] and row["spans"][0][1] == 9


def test_the_critique_is_cut_at_its_phrases() -> None:
    said = "“Nine” is wrong, “ten” is not there, and the cause is missing."
    spans = (Span(0, 4, "poor", comment="“Nine” is wrong"),)
    row = made(spans, said, missed=(Missed("ten", "not there"),), omissions=("the cause",))
    assert row["critique"] == [
        ["“"],
        ["Nine", "span", [0]],
        ["” is wrong, “"],
        ["ten", "missed", [0]],
        ["” is not there, and the cause is missing."],
    ]
    assert row["missed"] == [["ten", "not there"]] and row["omissions"] == ["the cause"]


def test_control_characters_become_pictures() -> None:
    assert "".join(encode(odd_row(1, "Nine\x1b[31m ships\u202e.", "x"))["pieces"]) == "Nine␛[31m ships‹202E›."


def test_without_a_score_it_is_the_sum_of_the_rewards() -> None:
    assert made((Span(0, 4, "good"), Span(5, 10, "good")), "x")["score"] == 0.6667
    assert made((Span(0, 4, "good"),), "x", score=0.25)["score"] == 0.25


def test_rows_of_older_runs_are_read() -> None:
    new = row(1, random.Random(2), 0.5)
    old = {key: new[key] for key in ("update", "example", "completion", "critique", "alignment", "token_rewards")}
    old |= {"index": 0, "truncated": False, "advantages": new["advantages"], "logprobs_after": new["logprobs_after"]}
    old["logprobs_before"] = new["logprobs"]
    assert encode(old) == encode(new)


def test_an_unscored_row_has_no_critique_and_no_score() -> None:
    made = encode(row(1, random.Random(2), 0.5, unscored=True))
    assert "critique" not in made and "score" not in made and "rewards" not in made and "before" in made


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])).map(lambda text: "".join(text.split())))
def test_the_pieces_are_the_text(text: str) -> None:
    completion = tokens(text)
    assert "".join(pieces(completion)) == text and len(pieces(completion)) == len(completion.token_ids)


@given(st.integers(0, 300))
def test_evenly_is_every_index_once_and_its_beginnings_are_spread(count: int) -> None:
    order = list(_evenly(count))
    assert sorted(order) == list(range(count))
    if count >= 8:
        first = sorted(order[:4])
        assert max(b - a for a, b in pairwise(first)) <= count // 2 + 1


def test_a_row_that_breaks_the_contract_is_refused() -> None:
    broken = row(1, random.Random(1), 0.5)
    broken["token_rewards"] = [0.0]
    with pytest.raises(InvalidData, match="token_rewards should hold one number per token"):
        encode(broken)


def test_pairs_are_the_first_and_the_last_of_a_held_out_prompt(tmp_path: Path) -> None:
    shown = read_completions(write_run(tmp_path / "a", updates=10, held_out=3) / "rollouts.jsonl")
    assert [(a["id"], a["update"], b["update"]) for a, b in shown.pairs] == [(f"held-out-{n}", 0, 10) for n in range(3)]
    assert all(a["prompt"] == b["prompt"] for a, b in shown.pairs)
    assert (shown.during_total, len(shown.during), shown.pairs_total) == (23, 23, 3)


def test_a_held_out_prompt_that_was_completed_once_stands_alone(tmp_path: Path) -> None:
    write_rows(tmp_path / "rollouts.jsonl", [row(0, random.Random(1), 0.5, held_out=True)])
    shown = read_completions(tmp_path / "rollouts.jsonl")
    assert [len(pair) for pair in shown.pairs] == [1] and shown.pairs_total == 1


def test_unreadable_rows_are_counted_with_a_reason(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=4, held_out=0)
    good = (folder / "rollouts.jsonl").read_bytes()
    (folder / "rollouts.jsonl").write_bytes(
        b"rubbish\n" + good + b'{"update": 4, "example": {}}\n' + b'{"update": 4, "torn'
    )
    shown = read_completions(folder / "rollouts.jsonl")
    assert (len(shown.during), shown.unreadable) == (11, 2)
    assert "line 1" in shown.reason


def test_too_many_rows_are_thinned_evenly(tmp_path: Path) -> None:
    chance = random.Random(5)
    write_rows(tmp_path / "rollouts.jsonl", [row(update, chance, 0.9, words=60) for update in range(1, 401)])
    shown = read_completions(tmp_path / "rollouts.jsonl", budget=100_000)
    updates = [made["update"] for made in shown.during]
    assert shown.during_total == 400 and 20 < len(updates) < 100
    assert updates == sorted(updates)
    assert all(any(low < update <= low + 50 for update in updates) for low in range(0, 400, 50))


def test_text_that_grows_when_it_is_escaped_stays_within_the_budget(tmp_path: Path) -> None:
    write_rows(tmp_path / "rollouts.jsonl", [odd_row(n, "word" + "<" * 500, f"x{n}") for n in range(1, 50)])
    shown = read_completions(tmp_path / "rollouts.jsonl", budget=60_000)
    assert 0 < len(embedded(shown.during)) <= 62_000 and len(shown.during) < 49


BIG = 10**400


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("score", BIG),
        ("score", 1e308),
        ("token_rewards", [BIG]),
        ("token_rewards", [1e308, 1e308]),
        ("token_rewards", [math.inf, -math.inf]),
        ("logprobs", [BIG]),
        ("logprobs", [-math.inf]),
        ("logprobs_after", [-1.7e308]),
    ],
)
def test_a_row_with_numbers_that_nobody_can_reckon_with_is_said_not_to_be_read(
    tmp_path: Path, field: str, values: Any
) -> None:
    good, bad = row(1, random.Random(1), 0.5), row(2, random.Random(2), 0.5)
    if field == "score":
        bad["critique"]["score"] = values
    else:
        bad["critique"].pop("score")
        bad[field][: len(values)] = values
    path = tmp_path / "rollouts.jsonl"
    path.write_text(f"{json.dumps(bad)}\n{json.dumps(good)}\n")
    shown = read_completions(path)
    assert [one["update"] for one in shown.during] == [1]
    assert shown.unreadable == 1 and field in shown.reason


def test_a_span_whose_tokens_all_have_another_verdict_says_so() -> None:
    # "Nine" (good) lies in the poor "Nine ships": the verdicts of the tokens are poor.
    noun = rewarded(
        Example("a", "Say."),
        TEXT,
        Critique("x"),
        Alignment((Span(0, 10, "poor"), Span(0, 4, "good"))),
        random.Random(1),
    )
    spans = encode({"update": 3, **replace(noun, verdicts=(-1.0, -1.0, *[0.0] * 8)).to_json()})["spans"]
    assert [span[5:] for span in spans] == [[], [1]]
    spans = encode({"update": 3, **replace(noun, verdicts=None).to_json()})["spans"]
    assert [span[5:] for span in spans] == [[], []]
