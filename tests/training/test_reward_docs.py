"""docs/reward-model.md says what is so: its Python runs, its metrics are those that are written, its settings exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.models.reward.made import rows
from tests.training.test_reward_model import one_thread, settings, start  # noqa: F401
from text2grad import config
from text2grad.feedback.labels import Calibration
from text2grad.runs import read_jsonl
from text2grad.training.settings import RewardModelSettings, TrainSettings
from text2grad.types import Critique

TEXT = (Path(__file__).parent.parent.parent / "docs" / "reward-model.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]


def named_in(table: str) -> list[str]:
    found = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [name for names in found for name in re.findall(r"`(.+?)`", names)]


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 11
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["outcome"].status == 0 and isinstance(names["critique"], Critique)
    assert (tmp_path / "runs" / "judge" / "model" / "reward_model.json").is_file()


def test_every_metric_is_explained_and_exists(tmp_path: Path) -> None:
    start(tmp_path, settings(updates=1), rows=rows(24)).train()
    written = {key for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") for key in row}
    explained = named_in(section("Metrics"))
    assert len(explained) == len(set(explained)) and set(explained) == written
    card = json.loads((tmp_path / "run" / "model" / "reward_model.json").read_text())
    assert set(named_in(section("Calibration"))) == set(card["calibration"]) == set(config.plain(Calibration()))


def test_every_setting_that_is_named_exists_and_has_the_value_that_is_said() -> None:
    known = config.flat(config.plain(TrainSettings())) | config.flat(config.plain(RewardModelSettings()))
    groups = {key.split(".")[0] for key in known}
    words = re.findall(r"`([a-z_]+\.[a-z_.]+)(?:=[^`]*)?`", TEXT) + re.findall(r" ([a-z_]+\.[a-z_.]+)=", TEXT)
    named = {word for word in words if word.split(".")[0] in groups}
    assert len(named) > 10 and not named - known.keys()
    learned = {key for key in known if key.startswith("critics.learned.")}
    assert set(named_in(section("As a critic"))) == learned
    said = re.findall(r"`(loss\.\w+)`\s+\(([\d.]+)", TEXT)
    assert {name: float(value) for name, value in said} == {key: known[key] for key in known if key.startswith("loss.")}
