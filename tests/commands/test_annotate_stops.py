"""A run that ends early: what was paid for is kept and counted, in this run and the next ones."""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from text2grad.errors import CriticError
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.protocol import ask_now
from text2grad.feedback.settings import OpenAISettings
from text2grad.runs import encode_row, read_jsonl

MAIN = (
    "import signal, sys\nfrom text2grad.cli import main\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have started us deaf to it
    "sys.exit(main(sys.argv[1:]))\n"
)


def command(folder: Path, *more: str, rows: int = 20) -> list[str]:
    source = folder / "in.jsonl"
    if not source.exists():
        made = ({"id": n, "prompt": "p", "completion": f"Ship number {n} left the harbour."} for n in range(rows))
        source.write_bytes(b"".join(map(encode_row, made)))
    words = ["annotate", str(source), str(folder / "out.jsonl"), "--critic", "openai:m", "critics.openai.concurrency=4"]
    return [sys.executable, "-c", MAIN, *words, *more]


def run(words: list[str]) -> Any:
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def asked(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def started(words: list[str], folder: Path, requests: int) -> "subprocess.Popen[str]":
    """A run of which the server has been asked this often."""
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while asked(folder) < requests and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert asked(folder) >= requests
    return process


def test_a_budget_is_for_the_file_whatever_the_number_of_runs(fault_server: Start, tmp_path: Path) -> None:
    fault_server()
    limit = "critics.openai.budget.requests={}"
    first = run(command(tmp_path, limit.format(9)))
    assert first.returncode == 2 and "the budget is spent: 9 of 9 requests" in first.stderr
    again = run(command(tmp_path, limit.format(9)))
    assert again.returncode == 2 and asked(tmp_path) == 9, "a rerun has no fresh budget"
    assert "9 requests of earlier runs included" in again.stderr
    assert "raise critics.openai.budget.requests to at least 10 and run the same command again" in again.stderr
    assert run(command(tmp_path, limit.format(15))).returncode == 2
    assert asked(tmp_path) == 15
    last = run(command(tmp_path))
    assert last.returncode == 0 and asked(tmp_path) == 20
    assert "20 requests" in last.stderr and "15 of the requests in earlier runs" in last.stderr
    receipt = json.loads((tmp_path / "out.receipt.json").read_text())
    assert receipt["tally"]["openai:m"].startswith("20 requests") and "2,000 tokens in" in receipt["tally"]["openai:m"]
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out.jsonl", "out.receipt.json"]


def test_several_models_share_the_budget_of_their_file(fault_server: Start, tmp_path: Path) -> None:
    fault_server()
    words = command(tmp_path, "critics.openai.budget.requests=9")
    words[words.index("openai:m")] = "merge(openai:m, openai:n)"
    done = run(words)
    assert done.returncode == 2 and asked(tmp_path) == 9
    assert "openai:m + openai:n: 9 requests" in done.stderr


def test_a_kill_forgets_no_request_that_was_sent(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=0.1)
    words = command(tmp_path, "critics.openai.budget.requests=14")
    for requests in (3, 7, 10):
        process = started(words, tmp_path, requests)
        process.kill()
        process.communicate()
    end = run(words)
    assert end.returncode == 2 and "the budget is spent: 14 of 14 requests" in end.stderr
    assert 10 <= asked(tmp_path) <= 14
    assert re.search(r"[1-9]\d* lost and counted in full", end.stderr), "what was under way may have been paid"
    assert run(command(tmp_path)).returncode == 0
    assert len(list(read_jsonl(tmp_path / "out.jsonl"))) == 20


@pytest.mark.parametrize("content", [b"my novel\n", b'{"id": 1}\n', b'{"text2grad": "spent"}\n{"novel": 1}\n'])
def test_somebody_elses_file_in_the_place_of_the_count_is_refused(
    fault_server: Start, tmp_path: Path, content: bytes
) -> None:
    fault_server()
    (tmp_path / "out.jsonl.spent").write_bytes(content)
    done = run(command(tmp_path))
    assert done.returncode == 2 and "out.jsonl.spent is in the way" in done.stderr
    assert (tmp_path / "out.jsonl.spent").read_bytes() == content and asked(tmp_path) == 0


def test_ctrl_c_waits_for_replies_that_are_paid_for(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=0.5)
    process = started(command(tmp_path), tmp_path, 5)  # the first goes alone
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said, said
    assert "for 4 requests under way" in said and "5 requests" in said and "lost" not in said
    assert "0 of 20 rows are written" in said and "more are remembered; the same command resumes there" in said
    assert asked(tmp_path) == 5
    assert run(command(tmp_path)).returncode == 0
    assert asked(tmp_path) == 20, "none of the replies is asked for again"


def test_a_second_ctrl_c_stops_at_once(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=50)
    process = started(command(tmp_path), tmp_path, 1)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = ""
    while "requests under way" not in said:
        said += process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=40)  # less than the server takes, and less than would be waited
    assert process.returncode == 130
    assert "1 lost and counted in full" in said + rest


def test_the_wait_has_an_end(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=50)
    process = started(command(tmp_path, "critics.openai.drain=0.2"), tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130 and "waiting up to 0.2 s" in said


def test_an_error_that_ends_the_run_loses_no_reply_under_way(fault_server: Start, tmp_path: Path) -> None:
    """Number 3 is forbidden while the five others are being answered."""
    fault_server("forbid-3", delay=0.5)
    critic = OpenAICritic("m", OpenAISettings(cache=str(tmp_path / "r.sqlite")))
    with pytest.raises(CriticError, match="not this one"):
        ask_now(critic, ["p"] * 6, [f"Ship number {index} left." for index in range(6)], {})
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        assert base.execute("SELECT count(*) FROM replies").fetchone() == (5,)
    assert (critic.budget.requests, critic.budget.lost, critic.budget.tokens_in) == (6, 0, 500)


def test_a_critic_that_is_stopped_can_be_asked_again(fault_server: Start) -> None:
    """As where another critic of the same row refuses a column, and the rows are asked about one by one."""
    fault_server(delay=0.3)
    critic = OpenAICritic("m", OpenAISettings(drain=0.0))

    async def twice() -> Any:
        async with critic:
            first = asyncio.ensure_future(critic(["p"], ["Ship number 1 left."]))
            await asyncio.sleep(0.15)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            return await asyncio.wait_for(critic(["p"], ["Ship number 1 left."]), 20)

    (found,) = asyncio.run(twice())
    assert found is not None and (critic.budget.requests, critic.budget.lost) == (2, 1)
