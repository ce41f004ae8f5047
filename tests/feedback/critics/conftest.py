"""A chat server on loopback that fails as asked, and settings to reach it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).with_name("fault_server.py")
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
