"""docs/training.md says what is so: its ten lines run, its metrics are those that are written, its settings exist."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.training.trainings import HELD_OUT, trainer, vowels
from text2grad import config
from text2grad.runs import read_jsonl
from text2grad.training.settings import TrainSettings
from text2grad.training.setup import FREE
from text2grad.types import Critique, Example

TEXT = (Path(__file__).parent.parent.parent / "docs" / "training.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if " Trainer(" in block)
    assert len([line for line in code.splitlines() if line]) <= 10
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["outcome"].status == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]
    assert (tmp_path / "runs" / "no-e" / "model" / "model.safetensors").is_file()


def test_every_metric_is_explained_and_exists(tmp_path: Path) -> None:
    calls = itertools.count(1)

    def silent_first(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
        said = vowels(prompts, completions, **columns)
        return [None] * len(said) if next(calls) == 2 else said

    trainer(tmp_path / "gae", "updates=3", "scoring.scale=0.1", critic=silent_first, held_out=HELD_OUT).train()
    priced = ("scoring.slopes=two", "scoring.by_length=true")
    trainer(tmp_path / "group", "updates=1", "advantage.estimator=rloo", *priced).train()
    words = ("updates=1", "evaluation.critic=reference")
    trainer(tmp_path / "examined", *words, held_out=[Example("h", "Name it.", reference="The crane.")]).train()
    written = {
        key
        for run in ("gae", "group", "examined")
        for row in read_jsonl(tmp_path / run / "metrics.jsonl")
        for key in row
    }
    rows = re.findall(r"^\| (`.*?) \| (.+) \|$", section("Metrics"), re.MULTILINE)
    explained = [key for keys, _ in rows for key in re.findall(r"`(.+?)`", keys)]
    assert len(explained) == len(set(explained))
    assert set(explained) == written


def test_every_setting_that_is_named_exists() -> None:
    known = {leaf.key for leaf in config.describe(TrainSettings)}
    groups = {key.split(".")[0] for key in known}
    named = {word for word in re.findall(r"`([a-z_]+\.[a-z_.]+)(?:=[^`]*)?`", TEXT) if word.split(".")[0] in groups}
    named.discard("metrics.jsonl")  # a file
    assert named and not named - known
    table = re.findall(r"^\| (`.*?) \|", section("Settings"), re.MULTILINE)
    assert {word.removesuffix(".*") for row in table for word in re.findall(r"`(.+?)`", row)} == groups


def test_the_settings_that_may_change_are_listed() -> None:
    free = (
        section("Resume")
        .split("they affect memory, disk, and how critics are asked and paid:")[1]
        .split(". Changed data")[0]
    )
    assert tuple(re.findall(r"`(.+?)`", free)) == FREE
