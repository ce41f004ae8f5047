"""The soak's own judgement: what it calls flat, and where it says that two runs differ."""

import json
from pathlib import Path

import pytest
from scripts.soak import bits_of, first_difference, flat, updates_of


def test_growth_is_seen_and_noise_is_not() -> None:
    assert flat([100] * 20 + [104] * 5, 0.05) == (100, 104, True)
    assert flat([100] * 20 + [106] * 5, 0.05) == (100, 106, False)
    assert flat([500, 100, 100, 100, 100, 100, 100, 100, 100, 100], 0.05) == (100, 100, True)


def test_times_are_no_difference_and_everything_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run, seconds, score in (("a", 1.0, 0.5), ("b", 2.0, 0.5), ("c", 1.0, 0.6)):
        (tmp_path / run / "model").mkdir(parents=True)
        rows = [{"update": 1, "score/mean": 0.1}, {"update": 2, "time/update": seconds, "score/mean": score}]
        (tmp_path / run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / run / "rollouts.jsonl").write_text("")
    assert updates_of("a") == 2 and updates_of("none") == 0
    assert bits_of("a") == bits_of("b") != bits_of("c")
    assert first_difference("a", "c") == "at update 2: score/mean 0.5 and 0.6"
