"""The pages of docs/engines say what the code does."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from text2grad import TrainingRow, read_training_rows
from text2grad.engines.advantages import NAMES
from text2grad.optim.estimators import ESTIMATORS

PAGES = Path(__file__).parents[2] / "docs" / "engines"
SCRIPTS = PAGES.parents[1] / "scripts"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_the_contract_is_the_noun() -> None:
    contract = page("README").partition("### The contract")[2]
    (line,) = re.findall(r"```json\n(.*?)\n```", contract)
    assert set(TrainingRow.from_json(json.loads(line)).to_json()) == set(json.loads(line))
    assert re.findall(r"^\| `(\w+)` \|", contract, re.MULTILINE) == [each.name for each in fields(TrainingRow)]


def test_the_rows_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (script,) = re.findall(r"```python\n(.*?)```", page("README"), re.DOTALL)
    exec(compile(script, "README.md", "exec"), {})
    (row,) = read_training_rows("rows.parquet")
    assert row.scored and row.prompt_ids == (5, 6) and row.advantages is not None


@pytest.mark.parametrize("absolute", [False, True])
def test_the_environment_of_vllm_may_lie_anywhere(absolute: bool, tmp_path: Path) -> None:
    """It is there already, so nothing is installed."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".vllm").write_text("1")
    venv = str(tmp_path / "venv") if absolute else "venv"
    told = subprocess.run(
        ["sh", str(SCRIPTS / "vllm.sh"), venv, "sh", "-c", "echo $TEXT2GRAD_VLLM"],
        cwd=tmp_path, env=os.environ | {"VLLM_VERSION": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == str((tmp_path / "venv").resolve() / "bin" / "python")
    assert "torch==2" not in (SCRIPTS / "vllm.sh").read_text()


def test_a_kept_environment_gets_our_code_anew(tmp_path: Path) -> None:
    """A stand-in for the environment's Python writes down what it is asked."""
    (tmp_path / "prime_rl" / "bin").mkdir(parents=True)
    (tmp_path / "prime_rl" / ".ready").touch()
    python = tmp_path / "prime_rl" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/asked"\n')
    python.chmod(0o755)
    given = os.environ | {"ENVS": str(tmp_path), "PYTHON": sys.executable}
    subprocess.run(["sh", str(SCRIPTS / "engines" / "run.sh"), "prime_rl"], env=given, check=True, capture_output=True)
    installed, checked = (tmp_path / "asked").read_text().splitlines()
    assert installed.endswith(f"--force-reinstall --no-deps {SCRIPTS.parent}") and checked.endswith("check_prime_rl.py")


def test_the_page_of_prime_rl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = re.findall(r"```json\n(.*?)\n```", page("README"))
    rows = [json.loads(line) | {"update": 1, "group": group} for group in "abc"]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    made: dict[str, object] = {}
    (script,) = re.findall(r"```python\n(.*?)```", page("prime-rl"), re.DOTALL)
    exec(compile(script, "prime-rl.md", "exec"), made)
    assert made["count"] == len(list(read_training_rows("rows.jsonl"))) == 3
    assert sorted(file.name for file in (tmp_path / "output" / "rollouts" / "step_0").iterdir()) == [
        "rank_0.bin",
        "rank_1.bin",
    ]


def test_every_estimator_without_values_is_offered() -> None:
    assert set(NAMES) == {"anchored", "rloo", "grpo", "span_rloo", "local"}
    assert all(not ESTIMATORS[name].needs_values for name in NAMES)
    for name in ("verl", "skyrl"):
        assert {f"text2grad_{each}" for each in NAMES} <= set(re.findall(r"text2grad_\w+", page(name)))


@pytest.mark.parametrize("name", ["trl", "verl", "skyrl", "tinker", "prime-rl"])
def test_a_page_says_what_was_run_and_what_was_not(name: str) -> None:
    text = page(name)
    assert "**What was run**" in text and "**Not run**" in text and "pip install" in text
    for script in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(script, name, "exec")


def test_recipes_are_marked() -> None:
    assert "read, not run" in page("recipes").splitlines()[0]


def test_what_needs_no_engine_brings_neither_torch_nor_an_engine() -> None:
    modules = [f"text2grad.engines.{name}" for name in ("rows", "scorer", "tinker", "prime_rl")]
    heavy = {"torch", "transformers", "trl", "verl", "skyrl", "tinker", "msgspec", "pyarrow"}
    code = (
        f"import importlib, sys\n[importlib.import_module(m) for m in {modules}]\nprint(set(sys.modules) & {heavy!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
