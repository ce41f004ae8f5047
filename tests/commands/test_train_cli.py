"""`text2grad train` by its words: what is refused, with which words, and what a first look shows."""

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.training.trainings import metrics_of
from text2grad.cli import main
from text2grad.commands import parsing
from text2grad.commands.training import tell_end
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs.display import Display

SMALL = ["device=cpu", "updates=2", "prompts=2", "completions=2", "sampling.max_new_tokens=6", "policy.lora.rank=2"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and data files, good and bad."""
    folder = tmp_path_factory.mktemp("given")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows: list[dict[str, Any]] = [{"prompt": f"Which river {n}?", "reference": f"The Drava {n}."} for n in range(4)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "bare.jsonl").write_text("".join(json.dumps({"prompt": row["prompt"]}) + "\n" for row in rows))
    (folder / "empty.jsonl").write_text("")
    (folder / "bad.jsonl").write_text('{"prompt": "a"}\n{"prompt: b}\n')
    (folder / "file").write_text("no folder")
    return folder


@pytest.fixture
def here(given: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(given)
    return given


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "wants examples to train on: data=FILE.jsonl"),
        (["data=data.jsonl"], "wants one run folder, got 0"),
        (["", "data=data.jsonl"], "the name of the run folder is empty"),
        (["run", "data=none.jsonl"], "none.jsonl: should be a file of examples, and there is no such file"),
        (["run", "data=empty.jsonl"], "empty.jsonl: should hold rows, got none"),
        (["run", "data=bad.jsonl"], "bad.jsonl, line 2: should be one JSON object"),
        (["run", "data=data.jsonl", "held_out=none.jsonl"], "none.jsonl: should be a file"),
        (["run", "data=data.jsonl", "critic=referense"], "no critic 'referense'; did you mean `reference`?"),
        (["run", "data=data.jsonl", "critic=people"], "critic=people: what people wrote in a file is about the"),
        (["run", "data=data.jsonl", "evaluation.critic=first(people, code)"], "text that a model has just written"),
        (["run", "data=data.jsonl", "crtic=reference"], "no setting `crtic`; did you mean `critic`?"),
        (["run", "data=data.jsonl", "credit.kind=group", "completions=1"], "completions should be at least 2, got 1"),
        (["run", "data=data.jsonl", "updates=0"], "updates: should be greater than 0, got 0"),
        (["run", "data=data.jsonl", "log.trackers=[tensorbord]"], "did you mean tensorboard?"),
        (["run", "data=data.jsonl", "log.trackers=[swanlab]"], "swanlab is not installed; pip install swanlab"),
        (["run", "data=data.jsonl", "policy.lora.targets=[nowhere]"], "lora.targets: Target modules {'nowhere'} not"),
        (["run", "data=data.jsonl", "sampling.max_new_tokens=600"], "the model has room for 0 before a completion"),
        (["file", "data=data.jsonl"], "file: should be a folder for the run, but it is a file"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_refused_and_why(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "model=model", *SMALL, *words]) == 2
    assert told in capsys.readouterr().err


def test_a_model_that_does_not_load_leaves_no_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second try with the right name would meet the settings of the first."""
    (here / "broken").mkdir()
    assert main(["train", "second", "data=data.jsonl", *SMALL, "model=broken"]) == 2
    assert "broken" in capsys.readouterr().err
    assert not (here / "second").exists()
    assert main(["train", "second", "data=data.jsonl", *SMALL, "model=model", "--quiet"]) == 0
    assert (here / "second" / "model" / "model.safetensors").is_file()


def test_a_failed_start_keeps_the_users_own_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also a second time, and with a file that names a few settings only."""
    assert main(["train", "--print-config", "data=data.jsonl", *SMALL, "model=/nonexistent/model"]) == 0
    whole = capsys.readouterr().out
    mine = here / "mine"
    mine.mkdir()
    for text in (whole, "# Mine.\ndata: data.jsonl\ndevice: cpu\nmodel: /nonexistent/model\n"):
        (mine / "config.yaml").write_text(text)
        for _ in range(2):
            assert main(["train", "mine", "--config", "mine/config.yaml"]) == 2
            assert "/nonexistent/model" in capsys.readouterr().err
            assert [path.name for path in mine.iterdir()] == ["config.yaml"]
            assert (mine / "config.yaml").read_text() == text


def test_a_folder_of_another_command_is_said_so_in_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "policy", "data=data.jsonl", *SMALL, "model=model", "--quiet"]) == 0
    assert json.loads((here / "policy/run.json").read_bytes())["stage"] == "train"
    capsys.readouterr()
    assert main(["sft", "policy", "data=data.jsonl", "device=cpu", "model=model"]) == 2
    told = capsys.readouterr().err
    assert "policy holds a run of `train`; choose another folder" in told and told.count("\n") == 1


def test_a_critic_that_lacks_its_column_is_told_at_the_first_update(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "bare", "data=bare.jsonl", *SMALL, "model=model", "--quiet"]) == 1
    told = capsys.readouterr().err
    assert "the run ended after 1 update: nothing could be learned from the first update" in told
    assert told.count("update 1: the critic reference scored no completion") == 1
    assert "the columns that the examples bring it are: none" in told
    assert [row["critic/unscored_frac"] for row in metrics_of(here / "bare")] == [1]


def test_what_a_run_is_made_of_is_written_down(here: Path) -> None:
    main(["train", "facts", "data=data.jsonl", *SMALL, "model=model", "--quiet", "seed=3"])
    facts = json.loads((here / "facts" / "run.json").read_text())
    assert facts["seed"] == 3 and facts["device"] == "cpu"
    assert len(facts["data"]["data.jsonl"]) == 64
    assert {"text2grad", "torch", "transformers", "python", "platform", "command", "started"} <= facts.keys()


def test_help_comes_without_torch() -> None:
    code = (
        "import sys\nfrom text2grad.cli import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "print('loaded:', sorted({'torch', 'transformers', 'accelerate', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"
    assert "advantage.estimator=anchored" in done.stdout and "--help-all lists every setting" in done.stdout


def test_notes_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is markup, and a long command stays in one line to be copied."""
    with Display("train", 2, 0, show=False) as display:
        display.note("[bold]x[/bold] :smile: " + "word " * 60)
        display.step(1, {"score/mean": 1.0})
    assert capsys.readouterr().err == "[bold]x[/bold] :smile: " + "word " * 60 + "\n"
    with Display("train", 2, 0, show=True) as display:
        display.step(1, {"score/mean": 0.25, "kl/reference": 0.01, "length/mean": 8.0, "other": 1.0})
    assert capsys.readouterr().err == "train 1/2  score 0.25  KL 0.01  length 8\n"


def test_the_time_left_is_there_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    numbers = {"score/mean": 0.123, "kl/reference": 0.00123, "length/mean": 123.4, "held_out/score": 0.123}
    with Display("reward-model", 1000, 0, show=False) as display:
        display.step(10, numbers)
        paper = io.StringIO()
        console = Console(file=paper, width=80, force_terminal=True, color_system=None)
        console.print(display._progress.make_tasks_table(display._progress.tasks))
    (line,) = [line for line in paper.getvalue().splitlines() if line.strip()]
    assert len(line) <= 80 and " left " in line and "10/1000" in line and "score 0.123" in line


def test_the_last_lines_say_what_changed_and_how_to_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"update": at, "held_out/score": 0.1, "held_out/std": 0.5, "held_out/n": 4.0} for at in (0, 3)]
    rows[1]["held_out/score"] = 0.2
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    tell_end(tmp_path / "run", tmp_path / "run" / "model")
    change, model, look = capsys.readouterr().err.splitlines()
    assert change.endswith("+0.100 ± 0.693 (95 %, n = 4, critic reference), within noise.") and "went from" in change
    assert model == f"the model is in {tmp_path}/run/model"
    assert f"text2grad report {tmp_path}/run" in look and f"text2grad generate {tmp_path}/run/model" in look


def test_the_last_lines_say_where_the_start_was_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, scores in (("worse", (0.9, 0.2, 0.4, 0.3)), ("same", (0.4, 0.2, 0.4, 0.3))):
        rows = [{"update": at, "held_out/score": score} for at, score in enumerate(scores)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        tell_end(tmp_path / name, tmp_path / name / "model")
        told = "the start had a better held-out score (0.900) than every update (the best: 0.400, update 2)"
        assert (told in capsys.readouterr().err) == (name == "worse")


@pytest.mark.parametrize("command", ["train", "dpo", "evaluate", "annotate"])
def test_the_critic_is_a_setting_and_a_flag_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--critic", "first(code)"], ["critic=first(code)"]):
        assert main([command, *words, "--print-config"]) == 0
        assert "\ncritic: first(code)\n" in capsys.readouterr().out
    assert main([command, "--critic", "code", "critic=code", "--print-config"]) == 0
    assert main([command, "--critic", "code", "critic=support", "--print-config"]) == 2
    assert "--critic code and critic=support say different things" in capsys.readouterr().err


def test_the_flag_reaches_the_processes_that_are_launched() -> None:
    args = argparse.Namespace(critic="code", unsafe_no_sandbox=True)
    assert parsing.flags_again(args) == ["--unsafe-no-sandbox", "--critic", "code"]


def test_settings_by_the_names_that_others_give_them(capsys: pytest.CaptureFixture[str]) -> None:
    for command, word, ours in (
        ("train", "lr=1e-4", "update.learning_rate"),
        ("train", "beta=0.1", "kl.coefficient"),
        ("sft", "lr=1e-4", "update.learning_rate"),
        ("train", "max_steps=3", "updates"),
        ("train", "num_generations=4", "completions"),
        ("sft", "batch_size=4", "update.micro_batch"),
    ):
        assert main([command, "run", word]) == 2
        assert f"did you mean `{ours}`?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "run", "--learning-rate", "1e-4"])
    assert "settings are written without dashes: learning_rate=VALUE" in capsys.readouterr().err
