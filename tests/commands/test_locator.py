"""`locator=openai:MODEL` from the command line: in align, annotate and train; budgets, kills and resumes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from text2grad.cli import main
from text2grad.runs import encode_row, read_jsonl

MAIN = "import sys\nfrom text2grad.cli import main\nsys.exit(main(sys.argv[1:]))\n"


def source(folder: Path, rows: int = 12) -> str:
    made = (
        {"id": n, "prompt": "p", "completion": f"Ship number {n} left at noon.", "critique": "That hour is wrong."}
        for n in range(rows)
    )
    path = folder / "in.jsonl"
    path.write_bytes(b"".join(map(encode_row, made)))
    return str(path)


def asked(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def located(path: Path) -> list[bool]:
    return [any(span["provenance"] == "located" for span in row["spans"]) for row in read_jsonl(path)]


def test_align_says_what_was_spent_and_located(fault_server: Start, tmp_path: Path, capsys: Any) -> None:
    fault_server()
    out = tmp_path / "out.jsonl"
    assert main(["align", source(tmp_path), str(out), "locator=openai:m", "critics.openai.budget.requests=5"]) == 0
    assert sorted(located(out)) == [False] * 7 + [True] * 5
    said = capsys.readouterr().err
    assert "openai:m: 5 requests, 0 remembered, 500 tokens in and 250 out" in said
    assert "located 5 of 12 critiques; left to the ladder: 7 because the budget was spent" in said
    assert not list(tmp_path.glob("*.spent")), "the output is complete"
    assert main(["align", source(tmp_path), str(out), "locator=openai:m"]) == 0
    assert located(out) == [True] * 12 and asked(tmp_path) == 12, "what was answered is remembered"


def killed(words: list[str], folder: Path, requests: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", MAIN, *words], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while asked(folder) < requests and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert asked(folder) >= requests


@pytest.mark.parametrize("command", ["align", "annotate"])
def test_a_killed_run_resumes_within_its_budget(fault_server: Start, tmp_path: Path, command: str) -> None:
    fault_server(delay=0.2)
    out, dotted = tmp_path / "out.jsonl", "align." if command == "annotate" else ""
    words = [command, source(tmp_path), str(out), f"{dotted}locator=openai:m", "critics.openai.concurrency=2"]
    words += ["critics.openai.budget.requests=14"]  # 12, and the two that may be lost
    killed(words, tmp_path, requests=5)
    sent = asked(tmp_path)
    spent = [row for row in read_jsonl(tmp_path / "out.jsonl.spent") if "sent" in row]
    assert len(spent) >= sent, "each request is written down before it is sent"
    done = subprocess.run([sys.executable, "-c", MAIN, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert located(out) == [True] * 12
    # At most those in flight when it was killed are asked for again.
    assert asked(tmp_path) <= 12 + 2
    assert f"{len(spent)} of the requests in earlier runs" in done.stderr
    assert "located 12 of 12 critiques" in done.stderr


def test_annotate_shares_one_budget_between_critic_and_locator(
    fault_server: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault_server()
    out = tmp_path / "out.jsonl"
    words = ["annotate", source(tmp_path), str(out), "align.locator=openai:m", "critics.openai.budget.requests=20"]
    assert main(words) == 0
    assert located(out) == [True] * 12
    assert "openai:m: 12 requests" in capsys.readouterr().err
    receipt = json.loads((tmp_path / "out.receipt.json").read_text())
    assert receipt["tally"]["openai:m"].startswith("12 requests")


def test_another_server_is_another_annotation(
    fault_server: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault_server("always-403")
    out = tmp_path / "out.jsonl"
    words = ["annotate", source(tmp_path), str(out), "align.locator=openai:m"]
    assert main([*words, "critics.openai.budget.requests=1"]) == 0
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert main(words) == 2
    assert "base_url" in capsys.readouterr().err
