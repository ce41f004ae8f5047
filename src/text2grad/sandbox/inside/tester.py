"""The tests' side: runs each test against the program and reports what happened.

Enters: a job as JSON on stdin (the program, set-up code, tests, a key), and for isolated runs the wire to the candidate
process. Leaves: one line of JSON an event, each signed with the key. Without a wire, program and tests share this
process (`in_process`), which only tests that need live objects ask for.
"""

import ast
import importlib.util
import json
import os
import signal
import sys
import types
from _blake2 import blake2b
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii
from signal import ITIMER_PROF as _PROCESSOR
from signal import setitimer as _set_timer
from time import process_time as _used
from types import FrameType
from typing import Any

from text2grad.sandbox.inside import fakepytest, guard, runner
from text2grad.sandbox.inside.asserts import rewrite
from text2grad.sandbox.inside.judge import Mismatch, checks
from text2grad.sandbox.inside.program import LEEWAY, Program, frames, inside
from text2grad.sandbox.inside.remote import NeedsLive, Remote, Stop, stand_in
from text2grad.sandbox.inside.wire import SIGNATURE

_TESTS = "tests.py"
_NOTHING = "nothing was checked: the test ended without reaching one of its asserts"
_SKIPS = "skips itself after it asked the program"
Result = dict[str, Any]


class Local:
    """The program in this very process, behind the same face as `Remote`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.fault: Stop | None = None
        self.need: NeedsLive | None = None
        self.lost = False
        self.asked = 0
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, _signal: int, frame: FrameType | None) -> None:
        if not inside(frame):
            return
        self.fault = Stop("timeout", "did not end in time")
        raise self.fault

    def load(self, source: str) -> Stop | None:
        _set_timer(_PROCESSOR, self.seconds, 0.05)
        try:
            self.program = Program(source)
            self.program.run(guard.close_doors())
        except SyntaxError as problem:
            line = [[problem.lineno, ""]] if problem.lineno else []
            return Stop("syntax", f"{type(problem).__name__}: {problem.msg}"[:300], line)
        except BaseException as problem:  # noqa: BLE001 - everything a program can raise is a result
            where = frames(problem.__traceback__)
            timeout = isinstance(problem, Stop)
            return Stop("timeout" if timeout else "load", f"{type(problem).__name__}: {problem}"[:300], where)
        finally:
            _set_timer(_PROCESSOR, 0)
        return None

    def begin(self) -> None:
        self.fault = None
        self.program.reset()
        self.began = _used()
        _set_timer(_PROCESSOR, self.seconds, 0.05)

    def end(self) -> list[int]:
        """A program can silence the timer; so what it used is measured, too."""
        _set_timer(_PROCESSOR, 0)
        if self.fault is None and _used() - self.began > self.seconds + max(0.1, LEEWAY * self.seconds):
            self.fault = Stop("timeout", "did not end in time")
        return self.program.ran()

    def find(self, name: str) -> Any:
        try:
            return self.program.module.__dict__[name]
        except KeyError:
            return _missing(name)

    def module(self) -> types.ModuleType:
        return self.program.module


def _imported(source: str) -> list[str]:
    """Names that imports at the top bind, other than the program's."""
    found = [part for part in ast.parse(source).body if isinstance(part, ast.Import | ast.ImportFrom)]
    foreign = [part for part in found if getattr(part, "module", "") not in ("solution", "__future__")]
    aliases = [alias for part in foreign for alias in part.names if alias.name not in ("*", "solution")]
    return [alias.asname or alias.name.partition(".")[0] for alias in aliases]


def _functions(sources: Iterable[str]) -> set[str]:
    """Names of the functions that the tests define."""
    parts = [part for source in sources for part in ast.walk(ast.parse(source))]
    return {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}


def _missing(name: str) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise NameError(f"name {name!r} is not defined")

    return function


class _Stage(types.ModuleType):
    """Stands in for the program while the set-up is rehearsed: every name is a class to call and to derive from, and a
    decorator, with arguments or without."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__new__": _staged, "__init__": _ignored, "__call__": _staged})


def _staged(made: Any, *args: Any, **_: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], types.FunctionType):
        return args[0]
    return object.__new__(made) if isinstance(made, type) else made


def _ignored(*_: Any, **__: Any) -> None:
    return None


class Tester:
    def __init__(self, job: dict[str, Any], program: Remote | Local) -> None:
        self.job, self.program = job, program
        self.names = job["names"]
        self.guarded = isinstance(program, Local)
        self.sound: Callable[[], bool] = lambda: True
        self.checks, self.checked = checks(self.guarded, (lambda: self.sound()) if self.guarded else None)
        late = [line for line in job["setup"].splitlines() if line[:1].isspace()]
        self.imports_late = any("pytest" in line for line in (*late, *(unit["source"] for unit in job["units"])))

    def setup(self) -> None:
        """Compile everything, and rehearse the set-up code before the program is loaded: what fails here is the tests'
        own fault, and they are unusable."""
        absent = [name for name in self.job["imports"] if importlib.util.find_spec(name) is None]
        if absent:
            raise fakepytest.Unusable(f"the tests import {', '.join(absent)}, which the sandbox does not have")
        for name in guard.PURE.intersection(self.job["imports"]) if self.guarded else ():
            importlib.import_module(name)
        try:
            known, guarded = self.job["wanted"], self.guarded
            sources = {unit["index"]: unit["source"] for unit in self.job["units"]}
            own = _functions([self.job["setup"], *sources.values()])
            how: Any = (known, _TESTS, self.checks, guarded, own)
            self.code = rewrite(self.job["setup"], *how)
            self.bodies = {index: rewrite(text, *how) for index, text in sources.items()}
        except (SyntaxError, ValueError, RecursionError) as problem:
            raise fakepytest.Unusable(f"the tests are not Python: {problem}") from None
        sys.modules["solution"] = _Stage("solution")
        names: dict[str, Any] = {"__name__": "tests", "__builtins__": __builtins__}
        names.update({name: getattr(sys.modules["solution"], name) for name in self.names})
        fakepytest.install()
        try:
            exec(self.code, names)
        except BaseException as problem:  # noqa: BLE001 - whatever published tests may raise
            raise fakepytest.Unusable(f"the tests' set-up raises {type(problem).__name__}: {problem}") from None
        self.lent = (
            guard.lend({n: names[n] for n in _imported(self.job["setup"]) if n in names}) if self.guarded else {}
        )
        runner.keep_unittest()
        functions = {unit["index"]: unit["function"] for unit in self.job["units"] if unit["function"]}
        reasons = {index: runner.refusal(function, names) for index, function in functions.items()}
        self.refused = {index: reason for index, reason in reasons.items() if reason}
        if self.guarded and "skip" in f"{self.job['setup']} {sources}".lower():
            left = [unit for unit in self.job["units"] if unit["index"] not in self.refused]
            reasons = {unit["index"]: self._skips_before(unit) for unit in left}
            self.refused |= {index: reason for index, reason in reasons.items() if reason}

    def _skips_before(self, unit: dict[str, Any]) -> str | None:
        """Why a test skips itself before it comes to the program, which is not there yet: to do anything with it ends
        this. Once the program is there, a test in its process that skips itself has failed."""
        absent: Any = types.ModuleType("solution")
        absent.__getattr__ = lambda _: stand_in(lambda: Stop("", ""))
        sys.modules["solution"] = absent
        names: dict[str, Any] = {"__name__": "tests", "__builtins__": guard.copied_builtins()}
        names.update({name: absent.__getattr__(name) for name in self.names})
        try:
            exec(self.code, names)
            exec(self.bodies[unit["index"]], names)
            if unit["function"]:
                runner.call(unit["function"], names, None)
        except BaseException as problem:  # noqa: BLE001 - a rehearsal: what else goes wrong is seen when it is run
            return runner.said(problem) if runner.is_skip(problem) else None
        return None

    def namespace(self) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "tests", "__builtins__": guard.copied_builtins()}
        for name in self.names:
            names[name] = self.program.find(name)
        fakepytest.install()
        exec(self.code, names)
        names.update(self.lent)
        if self.guarded and not self.imports_late:
            del sys.modules["pytest"]  # the program has no business with it
        return names

    def run(self, unit: dict[str, Any]) -> Result:
        """One test's result: passed only if it ran to its end and nothing was wrong on the way."""
        result: Result = {"index": unit["index"], "kind": "passed"}
        passed = False
        try:
            self.program.begin()
            before, asked = self.checked(), self.program.asked
            self.checks["choose"](unit["chosen"])
            names = self.namespace()
            exec(self.bodies[unit["index"]], names)
            if unit["function"]:
                runner.call(unit["function"], names, self.checks["compare"] if self.guarded else None)
            passed = self.checked() > before
            if not passed:
                if not self.guarded and self.program.asked == asked:
                    raise fakepytest.skipped("checks nothing, and never asks the program")
                result.update(kind="assertion", message=_NOTHING)
        except BaseException as problem:  # noqa: BLE001 - everything a test or a program can raise is a result
            passed = False
            skips = not self.guarded and runner.is_skip(problem)
            if skips and self.program.asked == asked:
                self.program.end()
                raise fakepytest.skipped(runner.said(problem)) from None
            result.update({"kind": "assertion", "message": _SKIPS} if skips else _failure(problem))
        result["ran"] = self.program.end()
        if (need := self.program.need) is not None and not self.program.lost:
            raise need
        if (fault := self.program.fault) is not None:
            passed = False
            where = fault.frames or result.get("frames", [])
            result.update(kind=fault.kind, message=fault.message, frames=where)
        result["passed"] = passed
        return result


def _failure(problem: BaseException) -> Result:
    where = getattr(problem, "__frames__", None) or frames(problem.__traceback__)
    if isinstance(problem, Mismatch):
        return {"kind": "mismatch", "message": problem.said, "expected": problem.expected, "got": problem.got}
    if isinstance(problem, Stop):
        return {"kind": problem.kind, "message": problem.message, "frames": problem.frames or where}
    title = str(getattr(problem, "__title__", f"{type(problem).__name__}: {problem}"))[:300]
    if where:
        return {"kind": "error", "message": title, "frames": where}
    return {"kind": "assertion" if isinstance(problem, AssertionError) else "test_error", "message": title}


def conduct(job_fd: int, events: int, *wire: int) -> None:
    """Run the whole job."""
    parts = []
    while part := os.read(job_fd, 1 << 16):
        parts.append(part)
    job = json.loads(b"".join(parts))
    parts.clear()
    say = _speaker(events, job.pop("key").encode())
    say(ready=True)
    program = Remote(wire[0], wire[1], job["seconds"], job["wall"]) if wire else Local(job["seconds"])
    tester = Tester(job, program)
    try:
        tester.setup()
    except fakepytest.Unusable as reason:
        say(unusable=str(reason))
        return
    # In a process of its own no program can change anything.
    tester.sound, whole = (tester.sound, tester.sound) if wire else guard.seal()
    run = tester.run
    changed = {"passed": False, "kind": "test_error", "message": "the program changed what judges it"}
    problem = program.load(job["program"])
    if problem is not None:
        say(load={"kind": problem.kind, "message": problem.message, "frames": problem.frames})
        return
    sys.modules["solution"] = program.module()
    late = 0
    for unit in job["units"]:
        if unit["index"] in tester.refused:
            say(skipped=unit["index"], reason=tester.refused[unit["index"]])
            continue
        say(start=unit["index"])
        try:
            result = run(unit) if whole() else {}
            if not (result and whole()):
                result = {"index": unit["index"], **changed}
            say(result=result)
            late += result["kind"] == "timeout"
        except NeedsLive as need:
            say(live=unit["index"], unplain=need.unplain)
        except fakepytest.Unusable as reason:
            if not wire:
                raise
            say(skipped=unit["index"], reason=str(reason))
        if program.lost or late == job["chances"]:
            return
    say(done=True)


def _speaker(events: int, key: bytes) -> Callable[..., None]:
    """What reports events, by nothing that a program can patch: no module is looked up after this. Dicts, lists, texts,
    whole numbers and None. Each line is signed and numbered; the key never leaves this function, so whoever gets hold
    of the pipe can read what is said, and neither change nor repeat it."""
    count = 0
    write, text, kind, view, quoted, sign = os.write, str, type, memoryview, encode_basestring_ascii, blake2b
    whole_number, items, pairs = int, list, dict

    def as_json(value: Any) -> str:
        if value is None:
            return "null"
        if value is True or value is False:
            return "true" if value else "false"
        if kind(value) is whole_number:
            return text(value)
        if kind(value) is items:
            return f"[{', '.join([as_json(item) for item in value])}]"
        if kind(value) is pairs:
            return f"{{{', '.join([f'{quoted(key)}: {as_json(item)}' for key, item in value.items()])}}}"
        return quoted(value)

    def say(**event: Any) -> None:
        nonlocal count
        line = as_json({"count": count, **event}).encode()
        count += 1
        left = view(sign(line, key=key, digest_size=SIGNATURE).hexdigest().encode() + line + b"\n")
        while left:
            left = left[write(events, left) :]

    return say
