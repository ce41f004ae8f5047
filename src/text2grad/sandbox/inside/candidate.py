"""The program's side of the wire: loads it, calls its functions when asked, answers with plain data.

Enters: requests of the tester (`load`, `kind`, `begin`, `call`, `end`). Leaves: one reply each. This process holds
nothing worth stealing: not the tests, not the expected values, no way to the outside but the wire, on which it can
say nothing but what a function returned.
"""

import signal
import sys
from collections.abc import Callable
from signal import setitimer as _set_timer
from time import process_time as _used
from typing import Any

from text2grad.sandbox.inside.program import Program, Stop, frames, out_of_time
from text2grad.sandbox.inside.wire import Unplain, decode, encode, receive, send

_LEEWAY = 0.25
"""Of a test's time: what the timer's second ring and the encoding of a result may take on top."""


class Candidate:
    def __init__(self) -> None:
        self.program = Program("")
        self.left = self.leeway = 0.0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request of the tester."""
        reply: dict[str, Any] = getattr(self, request["op"])(request)
        return reply

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        self._allow(request["seconds"])

        def run() -> dict[str, Any]:
            try:
                self.program = Program(request["source"])
            except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
                line = getattr(problem, "lineno", None)
                return {"syntax": [type(problem).__name__, getattr(problem, "msg", str(problem)), line]}
            self.program.run()
            return {"ran": self.program.ran()}

        return self._guarded(run)

    def kind(self, request: dict[str, Any]) -> dict[str, Any]:
        """Is the name a function, a value that can be sent, or nothing?"""
        names = self.program.module.__dict__
        if request["name"] not in names:
            return {"kind": "missing"}
        value = names[request["name"]]
        if callable(value):
            return {"kind": "callable"}
        return self._guarded(lambda: {"kind": "value", "value": encode(value, lenient=True)})

    def begin(self, request: dict[str, Any]) -> dict[str, Any]:
        self._allow(request["seconds"])
        self.program.reset()
        return {}

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        function = self.program.module.__dict__.get(request["name"])
        values, names = decode(request["given"]), request["keywords"]
        plain = len(values) - len(names)

        def run() -> dict[str, Any]:
            if function is None:
                raise NameError(f"name {request['name']!r} is not defined")
            value = encode(function(*values[:plain], **dict(zip(names, values[plain:], strict=True))), lenient=True)
            after = encode(values, lenient=True)  # for functions that change their arguments in place
            return {"value": value, "after": None if after == request["given"] else after}

        return self._guarded(run)

    def end(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"ran": self.program.ran()}

    def _allow(self, seconds: float) -> None:
        self.left, self.leeway = seconds, max(0.1, _LEEWAY * seconds)

    def _guarded(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run the program's code under what is left of its time (of the processor: a busy machine changes no verdict);
        the timer rings again, should the first ring be swallowed. A program can silence the timer; so what it used is
        measured afterwards, too."""
        before = _used()
        reply = self._timed(work)
        self.left -= _used() - before
        late = self.left < -self.leeway and "timeout" not in reply
        return {"timeout": reply.get("error", {}).get("frames", [])} if late else reply

    def _timed(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            _set_timer(signal.ITIMER_PROF, max(self.left, 0.001), 0.05)
            try:
                return work()
            finally:
                _set_timer(signal.ITIMER_PROF, 0)
        except Stop as problem:
            _set_timer(signal.ITIMER_PROF, 0)
            return {"timeout": frames(problem.__traceback__)}
        except BaseException as problem:  # noqa: BLE001 - everything a program can raise is a result
            return {"error": described(problem)}


def described(problem: BaseException) -> dict[str, Any]:
    """An exception as plain data: the names of its classes, its message, its arguments where they are plain."""
    try:
        message = str(problem)
    except Exception:  # noqa: BLE001 - a message that cannot be had is no message
        message = ""
    try:
        args = encode(list(problem.args)) if len(message) < 10_000 else []
    except (Unplain, RecursionError):
        args = []
    names = [kind.__name__ for kind in type(problem).__mro__]
    return {"names": names, "message": message[:10_000], "args": args, "frames": frames(problem.__traceback__)}


def serve(requests: int, replies: int) -> None:
    signal.signal(signal.SIGPROF, out_of_time)
    sys.setrecursionlimit(1000)
    candidate = Candidate()
    while True:
        send(replies, candidate.answer(receive(requests)))
