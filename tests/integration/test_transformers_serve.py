"""The model critic against a server that we did not write: `transformers serve` with a small model on loopback.

The model is random, so what it says is no critique: every item must come back unscored, after one repair each, and the
budget must count what the server counted.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.protocol import ask_now
from text2grad.feedback.settings import OpenAISettings


@pytest.fixture
def server(model: Any, tokenizer: Any, tmp_path: Path) -> Iterator[tuple[str, str]]:
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("transformers")), *words], stdout=log, stderr=log, env=environment
        )
    try:
        _wait_for(port, process, tmp_path / "server.log")
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not come up: {log.read_text()[-2000:]}")


def test_noise_from_a_real_server_is_unscored(server: tuple[str, str], tmp_path: Path) -> None:
    address, name = server
    options = OpenAISettings(
        base_url=address,
        api_key="anything",  # type: ignore[arg-type]
        max_tokens=8,
        concurrency=2,
        cache=str(tmp_path / "replies.sqlite"),
        retries=1,
    )
    critic = OpenAICritic(name, options)
    found = ask_now(critic, ["Greet.", "Greet."], ["Hello.", "Hi there."], {})
    assert found == [None, None]
    assert critic.budget.tokens_out > 0 and critic.budget.requests >= 4
    assert ask_now(critic, ["Greet."], ["Hello."], {}) == [None]
    assert critic.budget.recalled == 2, "the reply and its repair were remembered"
