"""The command line as a shell sees it: exit status, stdout, stderr, and nothing heavy before it is needed."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

import text2grad
from tests.test_architecture import HEAVY
from text2grad import config
from text2grad.cli import COMMANDS, main
from text2grad.commands import parsing
from text2grad.training.settings import TrainSettings


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "text2grad", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | environment,
    )


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys, text2grad.cli\n"
        "try:\n    text2grad.cli.main(['--help'])\n"
        f"finally:\n    print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0
    for name, line in COMMANDS.items():
        assert f"{name:<5}" in done.stdout and line in done.stdout
    assert "HEAVY []" in done.stdout


@pytest.fixture(scope="module")
def helps() -> dict[str, dict[str, str]]:
    """Of every command: what its help prints, and what of torch has been imported by then; in one process."""
    code = (
        "import contextlib, io, json, sys, text2grad.cli\nsaid = {}\n"
        f"for name in {[*COMMANDS]!r}:\n    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):\n"
        "        text2grad.cli.main([name, '--help'])\n"
        "    said[name] = {'out': out.getvalue(), 'heavy': str({'torch', 'transformers'} & set(sys.modules))}\n"
        "print(json.dumps(said))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    said: dict[str, dict[str, str]] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_imports_no_torch(command: str, helps: dict[str, dict[str, str]]) -> None:
    assert f"usage: text2grad {command}" in helps[command]["out"]
    assert helps[command]["heavy"] == "set()"


def test_the_help_of_training_commands_imports_no_numpy_and_no_critic() -> None:
    code = (
        "import contextlib, io, sys, text2grad.cli\n"
        "for name in ('train', 'sft', 'dpo', 'reward-model', 'evaluate', 'generate'):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        text2grad.cli.main([name, '--help'])\n"
        "    print(name, sorted({'numpy', 'torch', 'text2grad.feedback.critics.named'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert [line.partition(" ")[2] for line in done.stdout.splitlines()] == ["[]"] * 6


def helped(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_help_shows_the_settings_that_people_change_first(capsys: pytest.CaptureFixture[str]) -> None:
    common, every = helped("train", "--help", capsys=capsys), helped("train", "--help-all", capsys=capsys)
    count = len(list(config.describe(TrainSettings)))
    assert common.endswith(f"--help-all lists every setting ({count})\n")
    listed = [len(re.findall(r"^  [a-z_.\d]+=", text, re.MULTILINE)) for text in (common, every)]
    assert listed == [len(TrainSettings.COMMON), count]
    assert listed[0] == 20 < count
    assert "  reward=span   (span | scalar)\n" in common, "the values of a choice are shown"


def test_a_short_list_of_settings_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help-all" not in helped("agree", "--help", capsys=capsys)


def test_a_command_without_its_packages_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "Where?", "reference": "Here."}\n')
    code = (
        "import sys\nsys.modules['torch'] = None\nimport text2grad, text2grad.cli\n"
        "print(text2grad.cli.main(['train', 'run', 'data=data.jsonl']))\n"
        "try:\n    text2grad.Trainer\nexcept ImportError as problem:\n    print(problem)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    needs = "needs PyTorch and transformers: pip install 'text2grad[train]' (there is no module `torch`)"
    assert done.stderr == f"text2grad train {needs}\n"
    assert done.stdout == f"2\ntext2grad.Trainer {needs}\n"
    assert not (tmp_path / "run").exists()


def test_a_command_that_needs_two_extras_names_both_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("text2grad.errors.find_spec", lambda _: None)
    assert main(["studio", "--out", str(tmp_path / "studio")]) == 2
    needs = "Starlette and uvicorn, PyTorch and transformers: pip install 'text2grad[studio,train]'"
    gone = "(there is no module `starlette`, `uvicorn`, `torch`, `transformers`)"
    assert f"text2grad studio needs {needs} {gone}" in capsys.readouterr().err
    assert main(["studio", "--out", str(tmp_path / "studio"), "--store", "postgresql://host/studio"]) == 2
    assert "pip install 'text2grad[studio,train,postgres]'" in capsys.readouterr().err


def test_an_old_key_is_told_in_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    @config.settings
    class Settings:
        RENAMED: ClassVar = {"old": "new"}
        new: str = ""
        """A text."""

    parser = argparse.ArgumentParser()
    parsing.add_settings(parser, Settings)
    resolved = parsing.resolve(parser.parse_args([]), Settings, ["old=x"])
    assert resolved == Settings("x")
    assert capsys.readouterr().err == (
        "text2grad: overrides: `old` is now `new`; the old form works in this version only\n"
    )


def test_version_and_no_words() -> None:
    assert shell("--version").stdout == f"text2grad {text2grad.__version__}\n"
    nothing = shell()
    assert nothing.returncode == 2 and "commands:" in nothing.stdout


@pytest.mark.parametrize(
    ("word", "hint"), [("algin", "did you mean `align`?"), ("fly", f"the commands are {', '.join(COMMANDS)}")]
)
def test_an_unknown_command_is_refused_with_a_hint(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert capsys.readouterr().err == f"text2grad: there is no command {word!r}; {hint}\n"


def test_a_terminal_without_unicode_gets_question_marks_instead_of_a_traceback() -> None:
    done = shell("--help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "critiques ? spans" in done.stdout


ENV = pytest.param("env", marks=pytest.mark.slow)  # imports torch


@pytest.mark.parametrize("words", [ENV, "align --examples --show", "align --print-config"])
def test_a_reader_that_goes_away_is_no_error(words: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "text2grad", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert complaint == b""


@pytest.mark.parametrize("words", [ENV, "align --examples --show", "align --print-config"])
def test_a_closed_or_full_stdout_is_no_traceback(words: str) -> None:
    for redirection, status in ((">&-", 0), ("> /dev/full", 2)):
        shelled = f"{sys.executable} -m text2grad {words} {redirection}"
        done = subprocess.run(["sh", "-c", shelled], capture_output=True, text=True)
        assert done.returncode == status
        assert "Traceback" not in done.stderr and "ignored" not in done.stderr


def test_public_names_are_all_there_and_nothing_else_is() -> None:
    for name in text2grad.__all__:
        assert getattr(text2grad, name).__name__ == name
        assert name in dir(text2grad)
    with pytest.raises(AttributeError, match="no attribute 'Spam'"):
        _ = text2grad.Spam  # type: ignore[attr-defined]
