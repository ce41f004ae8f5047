"""The tests' side: runs each test against the program and reports what happened.

Enters: a job as JSON on stdin (programs, tests), and the wire to the candidate process. Leaves: one line of JSON per
event: a test starts, has a result, is skipped, or needs the program's objects. Asserts are run one by one, and test
functions are called or run by pytest, on the same program. Without a wire, program and tests share this process
(`in_process`).

One rule separates the tests' faults from the program's: a test that ends before it asked the program says nothing about
it, and is skipped. From the first question on, whatever happens is a result.
"""

import ast
import json
import os
import signal
import sys
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from text2grad.sandbox.inside.asserts import CHECKS, Checks, Mismatch, rewrite
from text2grad.sandbox.inside.candidate import Candidate
from text2grad.sandbox.inside.program import Stop, frames, out_of_time
from text2grad.sandbox.inside.remote import FILE, NeedsObjects, Remote
from text2grad.sandbox.inside.wire import plain_attributes

_NOTHING = "nothing was checked: the test ended without reaching one of its asserts"
_NO_PYTEST = "pytest runs such tests, and it is not installed: `pip install pytest`"


class Local(Remote):
    """The program in this very process. The wire is a call, and the program can reach everything here."""

    shares_process = True

    def __init__(self, source: str, seconds: float, wall: float) -> None:
        super().__init__(source, -1, -1, seconds, wall)
        self.candidate = Candidate()
        signal.signal(signal.SIGPROF, out_of_time)
        with suppress(Stop):
            self.load()

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.candidate.answer(request)

    def begin(self) -> None:
        super().begin()
        self.load()
        self.asked = 1  # nobody can tell here
        signal.setitimer(signal.ITIMER_PROF, self.seconds, 0.05)

    def end(self) -> list[int]:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return super().end()

    def find(self, name: str) -> Any:
        names = self.module().__dict__
        if name not in names:
            raise NameError(f"name {name!r} is not defined")
        return names[name]

    def module(self) -> types.ModuleType:
        return self.candidate.program.module


class _Names(dict[str, Any]):
    """The names of a test. Those of the program are looked up when they are first used."""

    def __init__(self, taken: dict[str, str], program: Remote, **known: Any) -> None:
        super().__init__(known)
        self.taken, self.program = taken, program

    def __missing__(self, name: str) -> Any:
        if name not in self.taken:
            raise KeyError(name)
        self.program.asked += 1
        self[name] = self.program.find(self.taken[name])
        return self[name]


@lru_cache(maxsize=64)
def _rewritten(source: str, names: frozenset[str], own: frozenset[str]) -> Any:
    return rewrite(source, names, own, FILE)


class Tester:
    def __init__(self, job: dict[str, Any], program: Remote, say: Callable[..., None]) -> None:
        self.job, self.program, self.say = job, program, say
        self.checks = Checks()
        self.late = 0
        self.cut = False
        sources = [job["setup"], job["module"], *(unit["source"] for unit in job["units"])]
        parts = [part for source in sources for part in ast.walk(ast.parse(source))]
        self.own = {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}

    def compiled(self, source: str) -> Any:
        names = frozenset([*self.job["wanted"], *self.job["names"], "solution"])
        return _rewritten(source, names, frozenset(self.own))

    @property
    def over(self) -> bool:
        """Whether this pair of processes is done for: the program is gone, or ran out of time too often."""
        return self.cut or self.program.lost or self.late >= self.job["chances"]

    def run(self) -> None:
        setup = self.compiled(self.job["setup"])
        for unit in self.job["units"]:
            if not unit["function"] and not self.over:
                self.say(start=unit["index"])
                self._tell([unit["index"]], *self._tried(self._code, setup, unit["source"]))
        functions = {unit["function"]: unit["index"] for unit in self.job["units"] if unit["function"]}
        if functions and not self.over:
            self._functions(functions)

    def _code(self, setup: Any, source: str) -> None:
        names = _Names(self.job["names"], self.program, __name__="tests", **{CHECKS: self.checks})
        exec(setup, names)
        exec(self.compiled(source), names)

    def _functions(self, functions: dict[str, int]) -> None:
        """Import the test file, and call its functions, or let pytest run them."""
        indexes = [*functions.values()]
        self.say(start=indexes[0])
        module = types.ModuleType("tests")
        module.__dict__.update({"__file__": FILE, CHECKS: self.checks})
        sys.modules["tests"] = module
        problem, _ = self._tried(lambda: exec(self.compiled(self.job["module"]), module.__dict__))
        if problem is not None or self.program.fault is not None or self.program.need is not None:
            self._tell(indexes, problem, True)
            return
        asked = self.program.asked
        if not self.job["by_pytest"]:
            for name, index in functions.items():
                if not self.over:
                    self.say(start=index)
                    self._tell([index], *self._tried(vars(module).get(name)), asked)
            return
        try:
            from text2grad.sandbox.inside.plugin import run
        except ModuleNotFoundError:
            for index in indexes:
                self.say(skipped=index, reason=_NO_PYTEST)
            return
        self.cut = not run(self, module, functions, asked)

    def _tried(self, work: Any, *args: Any) -> tuple[BaseException | None, bool]:
        """(what it raised, whether it checked anything)."""
        before = self.checks.count
        try:
            self.program.begin()
            work(*args)
        except BaseException as problem:  # noqa: BLE001 - everything a test or a program can raise is a result
            return problem, self.checks.count > before
        return None, self.checks.count > before

    def _tell(self, indexes: Iterable[int], problem: BaseException | None, checked: bool, asked: int = 0) -> None:
        """Tests that ended together, and what they say. `asked`: how often the program was asked before they began."""
        kind, words = self.outcome(problem, checked, asked + self.program.asked)
        for index in indexes:
            self.say(**{kind: index, **words})

    def outcome(self, problem: BaseException | None, checked: bool, asked: int) -> tuple[str, dict[str, Any]]:
        """(event, words) for a test that ended this way."""
        program, ran = self.program, self.program.end()
        need = problem if isinstance(problem, NeedsObjects) else program.need
        if program.shares_process:
            if isinstance(problem, ModuleNotFoundError):
                asked = len(frames(problem.__traceback__))  # an import of the test's own is not the program's fault
        elif need is None and asked:
            need = _unplain(problem)
        if need is not None and need.by_test and not program.lost:
            return "objects", {"reason": str(need)[:300]}
        if not (asked or need or program.fault or isinstance(problem, AssertionError)):
            return "skipped", {"reason": _reason(problem, checked)}
        fault = program.fault or (Stop("not_plain", str(need)[:300]) if need is not None else None)
        result = _result(problem, checked, fault)
        self.late += result["kind"] == "timeout"
        return "result", {"ran": ran, **result}


def _unplain(problem: BaseException | None) -> NeedsObjects | None:
    """A test that asks plain data for an attribute that no plain data has wants an object: `point.x` of a tuple."""
    if not isinstance(problem, AttributeError) or problem.name in plain_attributes() or frames(problem.__traceback__):
        return None
    if hasattr(problem, "__frames__") or type(problem.obj).__module__ not in ("builtins", "collections"):
        return None
    if isinstance(problem.obj, type | types.ModuleType | types.FunctionType):
        return None
    return NeedsObjects(f"the test asks for `.{problem.name}`, which plain data does not have", True)


def is_skip(problem: BaseException | None) -> bool:
    """Raised by `pytest.skip`, `pytest.xfail` or unittest."""
    return type(problem).__name__ in ("Skipped", "XFailed", "SkipTest")


def _reason(problem: BaseException | None, checked: bool) -> str:
    """Why a test that never asked the program counts for nothing."""
    if problem is None:
        return "never uses the program" if checked else "checks nothing, and never asks the program"
    if is_skip(problem):
        return f"skips itself: {problem}"
    if isinstance(problem, ModuleNotFoundError) and problem.name == "pytest":
        return _NO_PYTEST
    if type(problem).__name__ == "FixtureLookupError":
        return f"needs the fixture {getattr(problem, 'argname', '')!r}, which there is not"
    return f"raises {type(problem).__name__} before it asks the program: {problem}"[:300]


def _result(problem: BaseException | None, checked: bool, fault: Stop | None) -> dict[str, Any]:
    where = getattr(problem, "__frames__", None) or frames(problem.__traceback__ if problem is not None else None)
    stop = fault or (problem if isinstance(problem, Stop) else None)
    if stop is not None:
        return {"kind": stop.kind, "message": stop.message, "frames": stop.frames or where}
    if problem is None:
        return {"kind": "passed"} if checked else {"kind": "assertion", "message": _NOTHING}
    if isinstance(problem, Mismatch):
        return {"kind": "mismatch", "message": problem.message, "expected": problem.expected, "got": problem.got}
    if is_skip(problem):
        return {"kind": "assertion", "message": "skips itself after it asked the program"}
    title = str(getattr(problem, "__title__", f"{type(problem).__name__}: {problem}"))[:300]
    if where:
        return {"kind": "error", "message": title, "frames": where}
    failed = isinstance(problem, AssertionError) or type(problem).__name__ == "Failed"  # of pytest
    return {"kind": "assertion" if failed else "test_error", "message": title}


def conduct(job_fd: int, events: int, *wire: int) -> None:
    """Run the whole job."""

    def say(**event: Any) -> None:
        left = memoryview(json.dumps(event).encode() + b"\n")
        while left:
            left = left[os.write(events, left) :]

    parts = []
    while part := os.read(job_fd, 1 << 16):
        parts.append(part)
    job = json.loads(b"".join(parts))
    say(ready=True)
    for number, source in enumerate(job["programs"]):
        given = source, *wire, job["seconds"], job["wall"]
        program = Remote(*given) if wire else Local(*given)
        sys.modules["solution"] = program.module()
        units = [{**unit, "index": number * job["count"] + unit["index"]} for unit in job["units"]]
        Tester({**job, "units": units}, program, say).run()
        if program.lost:
            break
    say(done=True)  # what is not told by now is for the next pair of processes
