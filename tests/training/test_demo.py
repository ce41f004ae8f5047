"""The demo: real, small enough for a test, and honest about what it found."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from text2grad.cli import main
from text2grad.models.load import load_model
from text2grad.models.sampling import SamplingSettings
from text2grad.models.writer import Loaded, Writer
from text2grad.tasks.bulletin import bulletins
from text2grad.tasks.bulletin_critic import FACTS_RIGHT, bulletin
from text2grad.training.demo import curve, settle, verdict
from text2grad.training.settings import DemoSettings

SHORT = ["start_updates=1", "updates=2", "evaluate_every=1", "held_out=6", "prompts=2", "completions=2", "--quiet"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo of two updates."""
    out = tmp_path_factory.mktemp("demo") / "out"
    assert main(["demo", "--out", str(out), *SHORT]) == 0
    return out


def test_it_leaves_runs_a_summary_and_a_page(shown: Path) -> None:
    assert {path.name for path in shown.iterdir()} >= {"start", "text2grad", "scalar", "summary.json", "report.html"}
    page = (shown / "report.html").read_text()
    assert "<script" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "KL to the reference" in page


def test_the_summary_holds_the_numbers_of_the_runs(shown: Path) -> None:
    summary = json.loads((shown / "summary.json").read_text())
    for name in ("text2grad", "scalar"):
        points = curve(shown / name)
        assert [point["update"] for point in points] == [0, 1, 2]
        assert summary["arms"][name]["curve"] == points
        assert summary["arms"][name]["facts_right"] == points[-1]["facts_right"]
    assert summary["goal"]["score"] == curve(shown / "scalar")[-1]["score"]


def test_both_arms_start_alike_and_differ_in_the_switch_and_the_estimator_alone(shown: Path) -> None:
    rows = {name: _rows(shown / name / "rollouts.jsonl") for name in ("text2grad", "scalar")}
    first = {name: [r for r in found if r["update"] == 1 and not r.get("held_out")] for name, found in rows.items()}
    assert first["text2grad"] and len(first["text2grad"]) == len(first["scalar"])
    for span, scalar in zip(first["text2grad"], first["scalar"], strict=True):
        assert span["completion"] == scalar["completion"]
        assert sum(span["token_rewards"]) == pytest.approx(sum(scalar["token_rewards"]))
        assert not any(scalar["token_rewards"][:-1])
    configs = [(shown / name / "config.yaml").read_text().splitlines() for name in rows]
    changed = {a.strip().split(":")[0] for a, b in zip(*configs, strict=True) if a != b}
    assert changed == {"reward", "estimator"}


def test_the_data_of_both_arms_are_written_down_and_the_same(shown: Path) -> None:
    facts = [json.loads((shown / name / "run.json").read_text()) for name in ("text2grad", "scalar")]
    assert facts[0]["data"] == facts[1]["data"] and facts[0]["data"].keys() == {"examples", "held-out"}


def test_a_second_time_nothing_is_trained_again(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (shown / "text2grad" / "metrics.jsonl").read_bytes()
    assert main(["demo", "--out", str(shown), *SHORT]) == 0
    assert (shown / "text2grad" / "metrics.jsonl").read_bytes() == before
    said = capsys.readouterr().out
    assert "Facts right on 6 reports" in said
    assert "text2grad after 2 updates: best and worst change of score of 6 held-out" in said and "\nbefore  " in said


def test_after_ctrl_c_the_command_that_is_printed_resumes(
    shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, asked = tmp_path / "my demo", []

    def stopped(*args: Any, **columns: Any) -> Any:
        # The first call is of the held-out reports, the second of the first update.
        asked.append(1)
        if len(asked) == 2:
            signal.raise_signal(signal.SIGINT)
        return bulletin(*args, **columns)

    with monkeypatch.context() as patch:
        patch.setattr("text2grad.training.demo.bulletin", stopped)
        assert main(["demo", "--out", str(out), *SHORT]) == 130
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "resume with" in line]
    assert said.startswith("saved at update 1 of 2; resume with: text2grad demo --out ")
    words = shlex.split(said.split("resume with: ")[1])
    assert main([*words[1:], "--quiet"]) == 0
    summary, undisturbed = (json.loads((folder / "summary.json").read_text()) for folder in (out, shown))
    assert summary == undisturbed


def test_ctrl_c_in_the_last_update_of_an_arm_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, asked = tmp_path / "out", []

    def stopped(*args: Any, **columns: Any) -> Any:
        # Held-out reports, then each of two updates, completions written anew, and the reports after it: the fifth call
        # is the last update's.
        asked.append(1)
        if len(asked) == 5:
            signal.raise_signal(signal.SIGINT)
        return bulletin(*args, **columns)

    with monkeypatch.context() as patch:
        patch.setattr("text2grad.training.demo.bulletin", stopped)
        assert main(["demo", "--out", str(out), *SHORT]) == 130
    assert (out / "text2grad" / "model").is_dir() and not (out / "scalar").exists()
    assert f"resume with: text2grad demo --out {out}" in capsys.readouterr().err


def test_a_folder_in_which_nothing_was_begun_is_held_to_nothing(tmp_path: Path) -> None:
    """As a kill leaves it while the model is loaded."""
    (tmp_path / "settings.yaml").write_text("updates: 77\n")
    settle(DemoSettings(updates=2), tmp_path)
    assert yaml.safe_load((tmp_path / "settings.yaml").read_text())["updates"] == 2


@pytest.mark.parametrize("name", ["x[/foo]", "123", "null", "a b: c", ""])
def test_odd_names_of_models_are_names(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "out"), "--model", name, "--device", "cpu", *SHORT[:-1]]) == 2
    said = capsys.readouterr().err
    assert "valid string" not in said and (name or "the empty name") in said


def test_what_is_no_folder_is_said_of_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for out in (str(tmp_path / "file"), str(tmp_path / ("x" * 300))):
        assert main(["demo", "--out", out, *SHORT]) == 2
        assert "--out should name a folder that can be written to" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["held_out_seed=9", "start_updates=3", "model=no-such-model"])
def test_other_settings_are_not_mixed_into_a_demo(shown: Path, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(shown), *SHORT, other]) == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--model", "no/such.gguf"], ["--device", "cuda:77"]])
def test_what_cannot_begin_leaves_the_folder_to_the_mended_command(tmp_path: Path, wrong: list[str]) -> None:
    out = tmp_path / "out"
    assert main(["demo", "--out", str(out), *SHORT, *wrong]) == 2
    assert not out.exists(), "what it made itself"
    out.mkdir()
    assert main(["demo", "--out", str(out), *SHORT, *wrong]) == 2
    assert not list(out.iterdir()), "what was there stays"


def test_a_start_of_unknown_making_is_not_used(shown: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(shown / "start", tmp_path / "out" / "start")
    assert main(["demo", "--out", str(tmp_path / "out"), *SHORT]) == 2
    assert "not the settings of a demo" in capsys.readouterr().err


def test_the_embedded_model_is_small_fluent_and_often_wrong() -> None:
    folder = Path(str(files("text2grad.models") / "embedded"))
    assert sum(file.stat().st_size for file in folder.iterdir()) < 8_000_000
    model, tokenizer = load_model("embedded")
    examples = bulletins(2, 48, "held_out")
    rollouts = Writer(Loaded(model, model), tokenizer, SamplingSettings(max_new_tokens=40), "plain")(examples)
    assert sum(not rollout.truncated for rollout in rollouts) >= 44
    right = FACTS_RIGHT.measure(rollouts)
    assert right is not None and 0.3 < right < 0.8


@pytest.mark.parametrize(
    ("scalar", "span", "expected"),
    [
        ([0.1, 0.3], [0.1, 0.4], "was reached by Text2Grad at update 1 and by RLOO at update 1"),
        ([0.1, 0.3], [0.1, 0.2], "did not reach"),
        ([0.1, 0.0], [0.1, 0.4], "did not get better than it began"),
    ],
)
def test_the_verdict_says_what_happened(scalar: list[float], span: list[float], expected: str) -> None:
    def arm(scores: list[float]) -> dict[str, Any]:
        reached = next((update for update, score in enumerate(scores) if score >= scalar[-1]), None)
        return {"facts_right": 0.5, "reached_goal_at_update": reached}

    said = verdict(
        {
            "seed": 0,
            "updates": 1,
            "held_out_reports": 8,
            "before": {"score": scalar[0], "facts_right": 0.5},
            "goal": {"score": scalar[-1]},
            "arms": {"text2grad": arm(span), "scalar": arm(scalar)},
        }
    )
    assert expected in said and "One seed (0)" in said


def test_a_larger_model_on_a_cpu_does_less_unless_it_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def counts(*words: str) -> tuple[int, ...]:
        assert main(["demo", "--print-config", *words]) == 0
        tree = yaml.safe_load(capsys.readouterr().out)
        return tuple(tree[key] for key in ("start_updates", "updates", "prompts", "held_out", "evaluate_every"))

    usual, smaller = (40, 56, 16, 128, 8), (8, 4, 4, 16, 2)
    assert counts() == counts("--device", "cpu") == counts("--model", "smollm2-135m", "--device", "cuda") == usual
    assert counts("--model", "smollm2-135m", "--device", "cpu") == smaller
    assert counts("--model", "smollm2-135m", "device=cpu", "updates=48") == (8, 48, 4, 16, 2)
    given = tmp_path / "all.yaml"
    given.write_text("model: smollm2-135m\ndevice: cpu\nupdates: 48\n")
    assert counts("--config", str(given)) == (8, 48, 4, 16, 2)


def test_help_answers_without_torch_and_stray_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from text2grad.commands import demo; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
    for words in (["somewhere"], ["--out", ""]):
        assert main(["demo", *words]) == 2
        assert "--out" in capsys.readouterr().err


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
