"""Programs against their tests, many at a time.

Enters: a program's source, tests in any published format. Leaves: a `Report`. Each execution is one or more rounds: a
tester and a candidate process, each inside walls of its own, joined by two pipes; warm interpreters fork them
(`warm.py`). When the candidate dies or hangs, the tests after that one get a new pair. With `in_process=True`, tests
that need live objects come last, in a round where program and tests share one process. Nothing that a program does
raises here; only a sandbox that does not work is a `SandboxError`. What comes from inside the walls is untrusted bytes.
"""

import json
import os
import select
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import FileIO
from typing import Any, get_args

from text2grad.errors import SandboxError
from text2grad.sandbox.bubble import Launcher
from text2grad.sandbox.formats import Plan, UnusableTests, plan
from text2grad.sandbox.results import Kind, Limits, Report, TestResult
from text2grad.sandbox.warm import Process, Processes
from text2grad.types import Isolation

_MOST_EVENTS = 32 << 20
"""Bytes that a tester may report."""
_LONGEST = 400
"""Characters of a text that is reported."""
_START = 30.0
"""Seconds that a process may take to come up, on a busy machine."""
_TRIAL, _TRIALS = 0.05, 2.0
"""Seconds of the processor for a test of a variant, and by the clock for all of them."""
_KINDS = get_args(Kind)
_NEEDS = "needs live objects ({}), and such tests count only with in_process=true"


@dataclass(frozen=True, slots=True)
class Job:
    """One execution: a program and its tests."""

    program: str
    tests: str | Sequence[str]
    setup: str = ""
    entry_point: str | None = None


@dataclass(slots=True)
class _Round:
    """What came out of one pair of processes."""

    isolation: Isolation
    names: dict[int, str]
    """Tests of this round."""
    results: dict[int, TestResult] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)
    objects: dict[int, str] = field(default_factory=dict)
    """Tests that need live objects, and why."""
    started: int | None = None
    """The test that was running when the stream ended."""
    ready: bool = False
    """Whether the tester came up; before that the program has no part in what happens."""
    done: bool = False
    late: bool = False
    lost: bool = False
    """Whether somebody else ended an interpreter of it, as the kernel does for lack of memory."""
    problem: str = ""
    """Why the tester did not come up."""

    def hear(self, line: bytes) -> None:
        """One event. Whatever is not exactly one is ignored: a program that shares the process can write here."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return
        if type(event) is not dict:
            return
        self.ready = True
        self.done = self.done or "done" in event
        index = next((event[key] for key in ("start", "result", "skipped", "objects") if key in event), None)
        if type(index) is not int or index not in self.names:
            return
        self.started = index if "start" in event else None
        if "result" in event:
            self.results[index] = _result(self.names[index], event, self.isolation)
        elif "skipped" in event:
            self.skipped[index] = _text(event.get("reason")) or ""
        elif "objects" in event and self.isolation == "isolated":
            self.objects[index] = _text(event.get("reason")) or ""

    def settle(self) -> None:
        """The test that the end came upon has failed; where nothing at all happened, all have. So each round settles
        something, and a test that nobody spoke of again never passes."""
        kind: Kind = "timeout" if self.late else "died"
        message = "did not end in time" if self.late else "the program ended its own process"
        ended = [self.started] if self.started is not None else []
        if not (ended or self.results or self.skipped or self.objects):
            ended = list(self.names)
        for index in ended:
            self.results.setdefault(index, TestResult(self.names[index], False, kind, self.isolation, message))


class Sandbox:
    """Runs programs. `unsafe` leaves bubblewrap out, and says so loudly.

    `packages` are folders that programs and tests may import from besides the standard library; they can be read, not
    written. `workers` executions run at a time. `in_process` runs tests that need live objects, in one process with the
    program, which can then cheat (docs/sandbox.md); without it they are skipped. `warm` keeps interpreters between
    executions, where the machine allows it; False starts each process anew.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        packages: Sequence[str] = (),
        workers: int | None = None,
        unsafe: bool = False,
        in_process: bool = False,
        warm: bool = True,
    ) -> None:
        self.limits, self.in_process = limits or Limits(), in_process
        self.workers = workers or max(2, (os.cpu_count() or 1) + 1)
        self._launcher = Launcher(self.limits, packages, unsafe)
        self._processes = Processes(self._launcher, warm)

    @property
    def cold(self) -> str | None:
        """Why processes are started anew each time; None while interpreters are kept warm."""
        return self._processes.cold

    def close(self) -> None:
        """End the warm interpreters; a later execution starts new ones. Happens by itself when nobody holds this."""
        self._processes.close()

    def run(self, program: str, tests: str | Sequence[str], setup: str = "", entry_point: str | None = None) -> Report:
        """Run one program against its tests."""
        return self.execute(Job(program, tests, setup, entry_point))

    def execute(self, job: Job) -> Report:
        try:
            job.program.encode()
            parts = plan(job.tests, job.setup, job.entry_point)
        except UnusableTests as reason:
            return Report(unusable=str(reason))
        except UnicodeEncodeError:
            return Report(unusable="the program: should be text that can be written as UTF-8")
        return _Execution(self, job.program, parts).report()

    def run_many(self, jobs: Iterable[Job]) -> list[Report]:
        """Run them all, `workers` at a time, in order."""
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(self.execute, jobs))

    def try_variants(self, job: Job, variants: Sequence[str]) -> list[frozenset[str]]:
        """Variants of a program in one pair of processes, one after another: names of the tests that each passes.
        Quick, and less strict than `run`: a variant may see what one before it left behind, one that dies ends the
        others, and test functions are not run. For finding faults, not for scores."""
        parts = plan(job.tests, job.setup, job.entry_point)
        return _Execution(self, job.program, parts).tried(variants) if variants else []


class _Execution:
    """One program against its tests."""

    def __init__(self, sandbox: Sandbox, program: str, parts: Plan) -> None:
        self.limits, self.processes, self.in_process = sandbox.limits, sandbox._processes, sandbox.in_process
        self.unsafe = sandbox._launcher.unsafe
        self.program, self.parts = program, parts
        self.deadline = time.monotonic() + self.limits.wall
        self.chances = self.limits.chances
        self.results: dict[int, TestResult] = {}
        self.skipped: dict[int, str] = {}
        self.objects = {index: unit.objects for index, unit in enumerate(parts.units) if unit.objects}

    def report(self) -> Report:
        units = self.parts.units
        self._run("isolated", lambda: [index for index in range(len(units)) if index not in self.objects])
        if self.in_process:
            self._run("in_process", lambda: sorted(self.objects))
        else:
            self.skipped |= {index: _NEEDS.format(reason) for index, reason in self.objects.items()}
        reasons = (*self.parts.skipped, *((units[index].name, why) for index, why in sorted(self.skipped.items())))
        if not self.results:
            return Report(skipped=reasons, unusable="; ".join(dict.fromkeys(reason for _, reason in reasons)))
        return Report(tuple(self.results[index] for index in sorted(self.results)), reasons)

    def _run(self, isolation: Isolation, wanted: Callable[[], list[int]]) -> None:
        """Rounds until nothing that is wanted is left."""
        while left := [index for index in wanted() if index not in self.results and index not in self.skipped]:
            names = {index: self.parts.units[index].name for index in left}
            if self.chances <= 0 or time.monotonic() >= self.deadline:
                message = "not run: too many tests before it did not end or ended the process"
                self.results |= {i: TestResult(name, False, "not_run", isolation, message) for i, name in names.items()}
                return
            ended = self._round(isolation, names, [self.program], self.limits.seconds)
            self.results |= ended.results
            self.skipped |= ended.skipped
            self.objects |= ended.objects if isolation == "isolated" else {}
            self.chances -= sum(result.kind in ("timeout", "died") for result in ended.results.values())

    def tried(self, variants: Sequence[str]) -> list[frozenset[str]]:
        count = len(self.parts.units)
        plain = [(at, unit.name) for at, unit in enumerate(self.parts.units) if not (unit.function or unit.objects)]
        names = {number * count + at: name for number in range(len(variants)) for at, name in plain}
        if not names:
            return [frozenset()] * len(variants)
        self.chances, self.deadline = 1, min(self.deadline, time.monotonic() + _TRIALS)
        results = self._round("isolated", names, variants, min(self.limits.seconds, _TRIAL)).results
        passed = [index for index, result in results.items() if result.passed]
        return [frozenset(names[i] for i in passed if i // count == number) for number in range(len(variants))]

    def _round(self, isolation: Isolation, names: dict[int, str], programs: Sequence[str], seconds: float) -> _Round:
        """One round; a second one where an interpreter was lost in the first, which is not the program's doing."""
        heard = self._heard(_Round(isolation, names), programs, seconds)
        if heard.lost:
            heard = self._heard(_Round(isolation, names), programs, seconds)
        if not heard.ready:
            raise SandboxError(f"a process of the sandbox did not come up: {heard.problem}")
        return heard

    def _heard(self, heard: _Round, programs: Sequence[str], seconds: float) -> _Round:
        """Start the processes, hand over the job, listen until the end or the deadline, leave nothing running. The
        tests of the second program are counted on from those of the first."""
        parts = self.parts
        units = [
            {"index": i, "source": parts.units[i].source, "function": parts.units[i].function}
            for i in heard.names
            if i < len(parts.units)
        ]
        job = {
            "programs": programs,
            "count": len(parts.units),
            "setup": parts.setup,
            "module": parts.module,
            "by_pytest": parts.by_pytest,
            "names": dict(parts.names),
            "wanted": parts.wanted,
            "units": units,
            "seconds": seconds,
            "chances": self.chances,
            "wall": min(self.limits.wall / 2, max(0.1, self.deadline - time.monotonic())),
        }
        processes: list[Process] = []
        with ExitStack() as stack:
            wire: list[FileIO] = []
            if heard.isolation == "isolated":
                (requests_out, requests_in), (replies_out, replies_in) = _pipe(stack), _pipe(stack)
                processes.append(self._start(stack, "candidate", [requests_out, replies_in]))
                wire = [replies_out, requests_in]
            given, (events_out, events_in) = _readable(stack, json.dumps(job).encode()), _pipe(stack)
            role = "functions" if parts.by_pytest and any(unit["function"] for unit in units) else "tester"
            processes.append(self._start(stack, role, [given, events_in, *wire]))
            _listen(heard, events_out, self.deadline)
            if not heard.ready:
                heard.problem = processes[-1].last_words()
        heard.lost = any(process.lost for process in processes)
        heard.settle()
        return heard

    def _start(self, stack: ExitStack, role: str, ends: list[FileIO]) -> Process:
        """A process that has these descriptors from now on, and not the host."""
        # Where no walls give it a folder of its own:
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if self.unsafe else None
        process = self.processes.start(role, [end.fileno() for end in ends], folder)
        stack.callback(process.end)
        for end in ends:
            end.close()
        return process


def _pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    """Both ends as objects, which know whether they are closed; a bare number may be another thread's file by then."""
    out, into = os.pipe()
    return stack.enter_context(FileIO(out, "rb")), stack.enter_context(FileIO(into, "wb"))


def _readable(stack: ExitStack, data: bytes) -> FileIO:
    """A file in memory that can be read and not written."""
    with FileIO(os.memfd_create("job"), "wb") as file:
        file.write(data)
        return stack.enter_context(FileIO(f"/proc/self/fd/{file.fileno()}", "rb"))


def _listen(heard: _Round, events: FileIO, deadline: float) -> None:
    """Read events until the end or the deadline. How long a process takes to come up is not the program's doing, and
    does not count."""
    begun, rest, total = time.monotonic(), b"", 0
    poll = select.poll()
    poll.register(events, select.POLLIN)
    while not heard.done:
        left = (deadline if heard.ready else max(deadline, begun + _START)) - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            heard.late = True
            return
        part = os.read(events.fileno(), 1 << 16)
        total += len(part)
        if not part or total > _MOST_EVENTS:
            return
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            heard.hear(line)


def _result(name: str, event: dict[str, Any], isolation: Isolation) -> TestResult:
    """A result as it was reported, with everything that is not of the right type left out."""
    kind: Kind = event["kind"] if event.get("kind") in _KINDS else "died"
    given = event.get("frames"), event.get("ran")
    frames, ran = (value[:100_000] if type(value) is list else [] for value in given)
    return TestResult(
        name=name,
        passed=kind == "passed",
        kind=kind,
        isolation=isolation,
        message=_text(event.get("message")) or "",
        expected=_text(event.get("expected")),
        got=_text(event.get("got")),
        frames=tuple(line for line in frames if type(line) is int),
        lines=frozenset(line for line in ran if type(line) is int),
    )


def _text(value: Any) -> str | None:
    """Text that can go into a file: a program may raise half a surrogate pair."""
    return value[:_LONGEST].encode("utf-8", "replace").decode() if type(value) is str else None
