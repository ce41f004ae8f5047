"""The wheel, built and installed without extras in an environment of its own: the light core works there."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from text2grad import __version__

ROOT = Path(__file__).parent.parent
DRIVER = Path(__file__).with_name("wheel_driver.py")
pytestmark = pytest.mark.slow


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Isolated from this environment: neither its PYTHONPATH nor the checkout may lend the installation anything.
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "LANG": "C.UTF-8", "OPENAI_API_KEY": "none"}
    return subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and its core dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True, capture_output=True)
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
    subprocess.run(list(map(str, install)), check=True, capture_output=True)
    return python.parent


def test_the_core_works_without_torch_and_transformers(bare: Path, tmp_path: Path) -> None:
    done = run(bare / "python", "-I", DRIVER, tmp_path / "run", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("used\n", 0), done.stderr
    reported = run(bare / "text2grad", "report", "run", cwd=tmp_path)
    assert reported.returncode == 0, reported.stderr
    assert "🦩" in (tmp_path / "run" / "report.html").read_text()
    exported = run(bare / "text2grad", "export", "run", "--format", "jsonl", cwd=tmp_path)
    assert exported.returncode == 0 and "2 rows of 1 updates, 1 of them not scored" in exported.stderr, exported.stderr
    checked = run(bare / "text2grad", "export", "run/rows.jsonl", "--check", cwd=tmp_path)
    assert checked.returncode == 0 and "1 not scored, 1 without advantages" in checked.stdout, checked.stderr
    parquet = run(bare / "text2grad", "export", "run", "--format", "parquet", cwd=tmp_path)
    assert parquet.returncode == 2 and "pip install 'text2grad[parquet]'" in parquet.stderr


def test_commands_of_the_core(bare: Path, tmp_path: Path) -> None:
    shown = run(bare / "text2grad", "align", "--examples", "--show", cwd=tmp_path)
    assert shown.returncode == 0 and shown.stdout, shown.stderr
    (tmp_path / "in.jsonl").write_text(
        '{"id": "a", "prompt": "Where?", "completion": "At sea.", "reference": "At sea."}\n'
    )
    done = run(bare / "text2grad", "annotate", "in.jsonl", "out.jsonl", "--critic", "reference", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"spans"' in (tmp_path / "out.jsonl").read_text()
    told = run(bare / "text2grad", "env", cwd=tmp_path)
    assert told.returncode == 0 and "PyTorch is not installed" in told.stdout and __version__ in told.stdout


@pytest.mark.parametrize("command", ["train", "sft", "dpo", "reward-model"])
def test_a_command_that_needs_an_extra_names_it(bare: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "Where?", "reference": "At sea."}\n')
    assert run(bare / "text2grad", command, "--help", cwd=tmp_path).returncode == 0
    done = run(bare / "text2grad", command, "run", "data=data.jsonl", cwd=tmp_path)
    told = f"text2grad {command} needs PyTorch and transformers: pip install 'text2grad[train]'"
    assert done.returncode == 2 and done.stderr.startswith(told) and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_model_critic_names_its_extra(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "a", "prompt": "Where?", "completion": "At sea."}\n')
    done = run(bare / "text2grad", "annotate", "in.jsonl", "out.jsonl", "--critic", "openai:some", cwd=tmp_path)
    assert done.returncode == 2 and "pip install 'text2grad[api]'" in done.stderr, done.stderr
