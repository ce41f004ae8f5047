"""The soak's own judgement: what it calls flat, and where it says that two runs differ."""

import json
from pathlib import Path

import pytest
from scripts.soak import Watched, bits_of, first_difference, flat, judged, updates_of


def test_growth_is_seen_and_noise_is_not() -> None:
    assert flat([100] * 20 + [104] * 5, 0.05) == (100, 104, True)
    assert flat([100] * 20 + [106] * 5, 0.05) == (100, 106, False)
    assert flat([500, 100, 100, 100, 100, 100, 100, 100, 100, 100], 0.05) == (100, 100, True)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs a and b differ in what may differ; c in its metrics, too."""
    monkeypatch.chdir(tmp_path)
    for run, seconds, score in (("a", 1.0, 0.5), ("b", 2.0, 0.5), ("c", 1.0, 0.6)):
        (tmp_path / run / "model").mkdir(parents=True)
        rows = [{"update": 1, "score/mean": 0.1}, {"update": 2, "time/update": seconds, "score/mean": score}]
        rows[0] |= {"critic/requests": seconds, "critic/tokens_in": seconds, "critic/tokens_out": seconds}
        (tmp_path / run / "model" / "README.md").write_text(f"# {run}")
        (tmp_path / run / "model" / "model.safetensors").write_text("weights")
        (tmp_path / run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / run / "rollouts.jsonl").write_text("")
    return tmp_path


@pytest.mark.usefixtures("three")
def test_times_and_spending_are_no_difference_and_everything_else_is() -> None:
    assert updates_of("a") == 2 and updates_of("none") == 0
    assert bits_of("a") == bits_of("b") != bits_of("c")
    assert first_difference("a", "c") == "at update 2: score/mean 0.5 and 0.6"


def test_weights_and_rollouts_are_compared_apart(three: Path) -> None:
    (three / "b" / "model" / "model.safetensors").write_text("others")
    one, other = bits_of("a"), bits_of("b")
    assert [what for what in one if one[what] != other[what]] == ["weights"]
    (three / "b" / "rollouts.jsonl").write_text("{}")
    assert [what for what in one if one[what] != bits_of("b")[what]] == ["weights", "rollouts"]


@pytest.mark.parametrize(
    ("kills", "filled", "told", "broken"),
    [
        (2, 1, 1, []),
        (1, 1, 1, ["1 of 2 planned kills"]),
        (2, 0, 0, ["0 of 1 planned full disks"]),
        (2, 1, 0, ["1 of 1 full disks not told as such"]),
    ],
)
@pytest.mark.usefixtures("three")
def test_what_was_planned_has_to_take_place_and_be_told(kills: int, filled: int, told: int, broken: list[str]) -> None:
    done = {"kills": kills, "full disks": filled, "told as such": told}
    runs = [Watched("a", []), Watched("b", [])]
    measured = judged(runs, {"a": 0, "b": 0}, done, {"kills": 2, "full disks": 1})
    assert measured["broken"] == broken
    assert measured["a: memory and files"] == "not measured: 0 looks, 20 needed"
