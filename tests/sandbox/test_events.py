"""What comes out of the walls is untrusted bytes: whatever it is, the host keeps results of the right types."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.sandbox import Limits, Sandbox
from text2grad.sandbox.results import Kind
from text2grad.sandbox.run import _Round

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(get_args(Kind)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
KEYS = [
    "start",
    "result",
    "skipped",
    "objects",
    "kind",
    "message",
    "frames",
    "ran",
    "reason",
    "expected",
    "got",
    "done",
]
EVENTS = st.dictionaries(st.sampled_from(KEYS), VALUES | st.integers(0, 2), max_size=5).map(
    lambda e: json.dumps(e).encode()
)


@given(st.lists(EVENTS | st.binary(max_size=20), max_size=6), st.sampled_from(["isolated", "in_process"]))
def test_whatever_is_said_a_round_settles_something(lines: list[bytes], isolation: Any) -> None:
    heard = _Round(isolation, {0: "a", 1: "b"})
    for line in lines:
        heard.hear(line)
    heard.settle()
    assert heard.results or heard.skipped or heard.objects
    assert {*heard.results, *heard.skipped, *heard.objects} <= {0, 1}
    assert not (isolation == "in_process" and heard.objects)
    for result in heard.results.values():
        assert result.passed == (result.kind == "passed") and result.kind in get_args(Kind)
        assert all(type(line) is int for line in result.frames)
        assert all(type(line) is int for line in result.lines)
        assert all(len(text or "") <= 400 for text in (result.message, result.expected, result.got))


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b"9" * 10_000, b'{"result": 0, "kind": "\\ud800"}', b"\xff\xfe", b"null"]
)
def test_odd_lines_are_survived(line: bytes) -> None:
    heard = _Round("in_process", {0: "a"})
    heard.hear(line)
    heard.settle()
    assert not heard.results[0].passed


@pytest.mark.system("bwrap")
def test_a_flood_of_events_ends() -> None:
    flood = "import os\nclass Box:\n    def size(self):\n        while True: os.write(4, b'x' * 65536 + b'\\n')\n"
    report = Sandbox(Limits(seconds=0.5, wall=3.0), in_process=True).run(flood, ["assert Box().size() == 1"])
    assert [(result.passed, result.isolation) for result in report.results] == [(False, "in_process")]
