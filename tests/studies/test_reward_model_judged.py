"""What makes the study's numbers: what is chosen never sees the rows that are measured on."""

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from studies.reward_model.judged import by_head, by_writing
from studies.reward_model.run import Part

from text2grad.tasks.defacto import read_defacto

SHIPS = ("Nine ships", "Two boats", "Forty cars", "Ten trains", "Six planes", "Three carts")
LABELS = {"poor": 0, "neutral": 1, "good": 2}


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Part:
    """Corrected summaries of invented articles: twelve to choose by, twelve to measure on."""
    made = []
    for number in range(24):
        right, wrong = SHIPS[number % 6], SHIPS[(number + 1) % 6]
        article = f"Report {number}: {right} left the quay of Marl at noon, the harbour master Ada Low said."
        feedback = {"summary": f"{right} left Marl.", "explanation": f"It was {right}."}
        made.append(
            {"doc_id": number, "article": article, "abstract": "-", "candidate": f"{wrong} left Marl at night."}
            | {"has_error": True, "feedback": feedback}
        )
    path = tmp_path_factory.mktemp("news") / "defacto_val.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    rows: list[Any] = list(read_defacto(path))
    assert len(rows) == 24 and all(row["spans"] for row in rows)
    return Part([], rows[:12], rows[12:], 0, 0)


def head(rows: list[Any], seed: int, wrong: float = 0.0) -> list[dict[str, Any]]:
    """A span head that mostly knows what people marked."""
    draw, said = random.Random(seed), []
    for row in rows:
        words = [match.span() for match in re.finditer(r"\S+", row["completion"])]
        outs = []
        for start, end in [*words, (0, 0)]:
            poor = any(s["start"] < end and start < s["end"] and s["verdict"] == "poor" for s in row["spans"])
            level = draw.gauss(2.0 if poor != (draw.random() < wrong) else -2.0, 1.0)
            outs.append([round(level, 4), 0.0, -3.0, 0.0, 0.0])
        said.append({"offsets": [list(word) for word in words], "out": outs})
    return said


def said(part: Part, **more: Any) -> dict[str, Any]:
    return {
        "class_weights": [1.0, 1.0, 1.0],
        "calibration": {},
        "choosing": head(part.choosing, 0, 0.1),
        "held_out": head(part.held_out, 1, 0.1),
    } | more


def chosen(found: dict[str, Any]) -> dict[str, Any]:
    """Everything that is chosen: calibration, and thresholds for the precision of `support`."""
    thresholds = {name: one["chosen_threshold"] for name, one in found["as_support"].items()}
    return {"calibration": found["calibration"], **thresholds}


def test_nothing_that_is_chosen_depends_on_the_rows_that_are_measured_on(part: Part) -> None:
    found = by_head(said(part), part)
    others = by_head(said(part, held_out=head(part.held_out, 7, 0.9)), part)
    assert others["content"] != found["content"] and chosen(others) == chosen(found)
    unmarked = [{**row, "spans": []} for row in part.held_out[:6]] + part.held_out[6:]
    relabelled = by_head(said(part), replace(part, held_out=unmarked))
    assert relabelled["content"] != found["content"] and chosen(relabelled) == chosen(found)
    elsewhere = by_head(said(part, choosing=head(part.choosing, 5, 0.4)), part)
    assert chosen(elsewhere) != chosen(found), "it depends on those that are chosen by"


def test_a_head_that_knows_all_finds_all_and_one_without_room_nothing(part: Part) -> None:
    sides = ("choosing", "held_out")
    knowing = by_head(said(part, **{side: head(getattr(part, side), 2) for side in sides}), part)
    assert knowing["average_precision"] > 0.95 and knowing["as_support"]["content"]["read_off_recall"] > 0.9
    half = by_head(said(part, held_out=[None] * 6 + head(part.held_out, 2)[6:]), part)
    assert half["unscored"] == 6 and half["content"]["poor"]["recall"] < 0.6


def test_what_is_written_is_measured_as_it_is_and_what_cannot_be_read_is_wrong(part: Part) -> None:
    words = [row["completion"][row["spans"][0]["start"] : row["spans"][0]["end"]] for row in part.held_out]
    replies = [
        {"text": json.dumps({"critique": "No.", "quotes": [{"text": word, "verdict": "poor"}]}), "cut": False}
        for word in words
    ]
    found = by_writing({"held_out": replies}, part)
    assert found["parse_rate"] == found["quote_found_rate"] == 1
    broken = [{"text": "{", "cut": True}] * 6 + replies[6:]
    half = by_writing({"held_out": broken}, part)
    assert half["parse_rate"] == 0.5 and half["spans"]["poor"]["recall"] == found["spans"]["poor"]["recall"] / 2
