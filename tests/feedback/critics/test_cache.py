"""The memory of replies: who asks a question asks it for everybody, and a claim does not outlive its holder."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Start
from text2grad.feedback.critics.cache import LEASE, ResponseCache, key_of
from text2grad.feedback.critics.openai import OpenAICritic, OpenAISettings
from text2grad.feedback.critics.protocol import ask_now

QUESTION = key_of({"model": "m", "messages": []})


def test_one_of_two_may_ask_until_the_reply_is_there(tmp_path: Path) -> None:
    with ResponseCache(tmp_path / "r.sqlite") as one, ResponseCache(tmp_path / "r.sqlite") as two:
        assert one.claim(QUESTION) and not two.claim(QUESTION) and not one.claim(QUESTION)
        two.release(QUESTION)
        assert not two.claim(QUESTION), "only the holder gives it up"
        one.release(QUESTION)
        assert two.claim(QUESTION)
        two.put(QUESTION, {"text": "Fine."})
        assert one.get(QUESTION) == {"text": "Fine."}
        two.release()


def test_what_is_closed_holds_nothing(tmp_path: Path) -> None:
    with ResponseCache(tmp_path / "r.sqlite") as one:
        assert one.claim(QUESTION)
    with ResponseCache(tmp_path / "r.sqlite") as two:
        assert two.claim(QUESTION)


def test_the_claim_of_a_killed_process_is_over_at_once(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom text2grad.feedback.critics.cache import ResponseCache, key_of\n"
        "assert ResponseCache(sys.argv[1]).claim(key_of({'model': 'm', 'messages': []}))\n"
        "print('claimed', flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "r.sqlite")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"claimed\n"
    with ResponseCache(tmp_path / "r.sqlite") as memory:
        assert not memory.claim(QUESTION)
        process.kill()
        process.communicate()
        assert memory.claim(QUESTION)


@pytest.mark.parametrize(("age", "over"), [(0.0, False), (LEASE + 1, True)])
def test_a_claim_of_another_machine_is_over_when_its_time_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, over: bool
) -> None:
    with ResponseCache(tmp_path / "r.sqlite") as theirs, ResponseCache(tmp_path / "r.sqlite") as ours:
        theirs._holder = f"elsewhere-{os.getpid()}-x"
        assert theirs.claim(QUESTION)
        now = time.time() + age
        monkeypatch.setattr(time, "time", lambda: now)
        assert ours.claim(QUESTION) is over


def test_a_claim_that_is_renewed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResponseCache(tmp_path / "r.sqlite") as theirs, ResponseCache(tmp_path / "r.sqlite") as ours:
        assert theirs.claim(QUESTION)
        now = time.time() + LEASE - 1
        monkeypatch.setattr(time, "time", lambda: now)
        theirs.renew()
        monkeypatch.setattr(time, "time", lambda: now + LEASE - 1)
        assert not ours.claim(QUESTION)


def test_the_same_question_twice_at_once_is_paid_once(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=0.1)
    critic = OpenAICritic("m", OpenAISettings(concurrency=8))
    found = ask_now(critic, ["p"] * 8, ["Ship number 1 left the harbour."] * 8, {})
    assert all(critique is not None for critique in found)
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    assert (critic.budget.requests, critic.budget.recalled) == (1, 7)


def test_two_processes_that_ask_the_same_pay_once(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=0.1)
    rows = "".join(f'{{"id": {n}, "prompt": "p", "completion": "Ship number {n} left."}}\n' for n in range(24))
    (tmp_path / "in.jsonl").write_text(rows)
    words = [sys.executable, "-m", "text2grad", "annotate", str(tmp_path / "in.jsonl")]
    running = [
        subprocess.Popen(
            [*words, str(tmp_path / f"{n}.jsonl"), "--critic", "openai:m", "critics.openai.concurrency=4"],
            stderr=subprocess.PIPE,
        )
        for n in range(2)
    ]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    assert len((tmp_path / "log").read_text().splitlines()) == 24
    assert (tmp_path / "0.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()
