"""The cache of responses: what was paid for is there for everybody, and the same question is paid once."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import Start
from text2grad.feedback.critics.cache import ResponseCache, key_of
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.protocol import ask_now
from text2grad.feedback.settings import OpenAISettings

QUESTION = key_of({"model": "m", "messages": []})


def test_what_one_puts_another_gets_and_the_first_reply_stays(tmp_path: Path) -> None:
    with ResponseCache(tmp_path / "r.sqlite") as one, ResponseCache(tmp_path / "r.sqlite") as two:
        assert one.get(QUESTION) is None
        two.put(QUESTION, {"text": "Fine."})
        one.put(QUESTION, {"text": "Bad."})
        assert one.get(QUESTION) == two.get(QUESTION) == {"text": "Fine."}


def test_a_reply_outlives_the_process_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom text2grad.feedback.critics.cache import ResponseCache, key_of\n"
        "ResponseCache(sys.argv[1]).put(key_of({'model': 'm', 'messages': []}), {'text': 'Fine.'})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "r.sqlite")])
    with ResponseCache(tmp_path / "r.sqlite") as cache:
        assert cache.get(QUESTION) == {"text": "Fine."}


def test_the_same_question_twice_at_once_is_paid_once(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=0.1)
    critic = OpenAICritic("m", OpenAISettings(concurrency=8))
    found = ask_now(critic, ["p"] * 8, ["Ship number 1 left the harbour."] * 8, {})
    assert all(critique is not None for critique in found)
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    assert (critic.budget.requests, critic.budget.recalled) == (1, 7)
