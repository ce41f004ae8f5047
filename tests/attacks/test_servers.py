"""Servers that answer oddly: a row is lost at most, the back-off stays, and a full disk is told as such."""

import sqlite3
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.feedback.critics.test_openai import COMPLETIONS, judge, quick
from text2grad.errors import RunError
from text2grad.feedback.critics.cache import ResponseCache
from text2grad.feedback.critics.openai import OpenAICritic

ODD = [
    "0",
    "-5",
    "0.0",
    "",
    "soon",
    "nan",
    "1e9",
    formatdate(0, usegmt=True),
    formatdate(time.time() - 60, usegmt=True),
]
ODD += ["Fri, 99 Nov 9999999 99:99:99 GMT", "-0", "٣"]


@pytest.mark.parametrize("said", ODD)
def test_retry_after_that_asks_for_nothing_keeps_the_back_off(fault_server: Start, said: str) -> None:
    fault_server()
    critic = OpenAICritic("m", quick(longest_wait=60))
    assert critic._wait(1, _asking(said)) >= 0.25 * 2 * 0.75
    assert critic._wait(5, _asking(said)) >= 0.25 * 32 * 0.75


def test_retry_after_as_a_date_is_honoured(fault_server: Start) -> None:
    fault_server()
    critic = OpenAICritic("m", quick(longest_wait=60))
    assert 25 < critic._wait(1, _asking(formatdate(time.time() + 30, usegmt=True))) <= 30
    assert critic._wait(1, _asking(formatdate(time.time() + 9999, usegmt=True))) == 60


def _asking(seconds: str) -> Exception:
    class Asked(Exception):
        class response:  # noqa: N801
            headers = {"retry-after": seconds}  # noqa: RUF012

    return Asked()


@pytest.mark.parametrize(
    ("faults", "lost", "requests"),
    [("half-pair-3", {3}, 7), ("half-pair", set(), 12), ("always-half-pair", {*range(len(COMPLETIONS))}, 12)],
)
def test_half_a_surrogate_pair_costs_its_own_row_at_most(
    fault_server: Start, faults: str, lost: set[int], requests: int
) -> None:
    """Each is asked for a second time, and then is not scored."""
    fault_server(faults)
    found, critic = judge(quick())
    assert {index for index, critique in enumerate(found) if critique is None} == lost
    assert {(critique.score, critique.feedback) for critique in found if critique} <= {
        (0.75, "It begins well and ends badly.")
    }
    assert critic.budget.requests == requests


@pytest.mark.parametrize("faults", ["always-no-header", "always-plain-header"])
def test_json_without_its_header_is_read(fault_server: Start, faults: str) -> None:
    fault_server(faults)
    found, critic = judge(quick())
    assert [critique.score for critique in found if critique] == [0.75] * 6
    assert critic.budget.requests == 6


def test_a_full_cache_disk_is_told_as_such_and_nothing_is_asked_again(
    fault_server: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault_server()
    made = ResponseCache.__init__

    def small(cache: ResponseCache, path: Any) -> None:
        made(cache, path)
        pages = cache._base.execute("PRAGMA page_count").fetchone()[0]
        cache._base.execute(f"PRAGMA max_page_count={pages}")

    monkeypatch.setattr(ResponseCache, "__init__", small)
    long = [f"Ship number {index} " + "x" * 50 for index in range(6)]
    with pytest.raises(RunError, match=r"critiques.sqlite: .* could not be kept \(database or disk is full\). Free"):
        for _ in range(60):
            judge(quick(concurrency=1), long)
            long = [text + "y" for text in long]
    asked = len((tmp_path / "log").read_text().splitlines())
    kept = (
        sqlite3.connect(tmp_path / "cache" / "critiques.sqlite").execute("SELECT count(*) FROM replies").fetchone()[0]
    )
    assert asked <= kept + 2  # one may have been under way
