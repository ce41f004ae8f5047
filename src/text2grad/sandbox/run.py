"""Programs against their tests, many at a time.

Enters: a program's source, tests in any published format. Leaves: a `Report`. Each execution is one or more rounds: a
tester and a candidate process, each inside walls of its own, joined by two pipes; when the candidate dies or hangs, the
tests after that one get a new pair. Tests that need live objects come last, in a round where program and tests share
one process; so do those in which the program gave something that is not plain data. Nothing that a program does raises
here; only a sandbox that does not work is a `SandboxError`.
"""

import hashlib
import json
import os
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from io import FileIO
from typing import Any, get_args

from text2grad.errors import SandboxError
from text2grad.sandbox.bubble import Launcher
from text2grad.sandbox.formats import Plan, UnusableTests, plan
from text2grad.sandbox.inside.wire import SIGNATURE
from text2grad.sandbox.results import Frame, Kind, Limits, Report, TestResult, Verdict

_MOST_EVENTS = 32 << 20
"""Bytes that a tester may report."""
_START = 30.0
"""Seconds that a process may take to come up, on a busy machine."""
_KINDS = get_args(Kind)


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

    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)
    live: dict[int, str] = field(default_factory=dict)
    """Tests that need live objects after all; where it was the program that gave one, what it gave."""
    load: dict[str, Any] | None = None
    unusable: str | None = None
    started: int | None = None
    """The test that was running when the stream ended."""
    heard: int = 0
    """Events so far."""
    ready: bool = False
    """Whether the tester came up; before that the program has no part in what happens."""
    done: bool = False
    late: bool = False


class Sandbox:
    """Runs programs. `unsafe` leaves bubblewrap out, and says so loudly.

    `packages` are folders that programs and tests may import from besides the standard library; they can be read, not
    written. `workers` executions run at a time.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        packages: Sequence[str] = (),
        workers: int | None = None,
        unsafe: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        self.workers = workers or max(2, (os.cpu_count() or 1) + 1)
        self._launcher = Launcher(self.limits, packages, unsafe)

    def run(self, program: str, tests: str | Sequence[str], setup: str = "", entry_point: str | None = None) -> Report:
        """Run one program against its tests."""
        try:
            program.encode()
            parts = plan(tests, setup, entry_point)
        except UnusableTests as reason:
            return Report(unusable=str(reason))
        except UnicodeEncodeError:
            return Report(unusable="the program: should be text that can be written as UTF-8")
        return self._execute(program, parts)

    def run_many(self, jobs: Iterable[Job]) -> list[Report]:
        """Run them all, `workers` at a time, in order."""
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda job: self.run(job.program, job.tests, job.setup, job.entry_point), jobs))

    def _execute(self, program: str, parts: Plan) -> Report:
        results: dict[int, TestResult] = {}
        skipped: dict[int, str] = {}
        live = {index: "" for index, unit in enumerate(parts.units) if unit.live}
        left = [index for index, unit in enumerate(parts.units) if not unit.live]
        deadline = time.monotonic() + self.limits.wall
        chances = self.limits.chances
        for verdict in get_args(Verdict):
            left = left if verdict == "isolated" else sorted(live)
            while left:
                if chances <= 0 or time.monotonic() >= deadline:
                    said = "not run: too many tests before it did not end or ended the process"
                    results.update({i: TestResult(parts.units[i].name, False, "not_run", verdict, said) for i in left})
                    break
                found = self._round(program, parts, {i: live.get(i, "") for i in left}, verdict, deadline, chances)
                if found.unusable is not None:
                    return Report(unusable=found.unusable)
                settled = _settled(found, parts, left, verdict)
                results |= {i: replace(result, unplain=live.get(i, "")) for i, result in settled.items()}
                skipped |= found.skipped
                live |= found.live
                chances -= sum(result.kind in ("timeout", "died") for result in settled.values())
                left = [i for i in left if i not in results and i not in skipped and i not in live]
                if verdict == "in_process":
                    left = [i for i in sorted(live) if i not in results and i not in skipped]
        return _report(parts, results, skipped)

    def _round(
        self, program: str, parts: Plan, left: dict[int, str], verdict: Verdict, deadline: float, chances: int
    ) -> _Round:
        """Start the processes, hand over the job, listen until the end or the deadline, leave nothing running."""
        key = secrets.token_hex(16)
        units = [
            {"index": i, "source": parts.units[i].source, "function": parts.units[i].function, "chosen": bool(said)}
            for i, said in left.items()
        ]
        job = {
            "key": key,
            "program": program,
            "setup": parts.setup,
            "names": parts.names,
            "wanted": [*parts.wanted, "candidate", "solution"],
            "imports": parts.imports,
            "units": units,
            "seconds": self.limits.seconds,
            "chances": chances,
            "wall": min(self.limits.wall / 2, max(0.1, deadline - time.monotonic())),
        }
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory()) if self._launcher.unsafe else None
            processes: list[subprocess.Popen[bytes]] = []
            stack.callback(_end, processes)
            channel = self._candidate(stack, processes, folder) if verdict == "isolated" else ()
            job_out, job_in = _pipe(stack)
            events_out, events_in = _pipe(stack)
            role = "tester" if channel else "live"
            wire = [end.fileno() for end in channel]
            tester = self._launcher.start(role, job_out.fileno(), events_in.fileno(), wire, folder)
            processes.append(tester)
            for end in (job_out, events_in, *channel):
                end.close()
            found = _listen(events_out, job_in, json.dumps(job).encode(), key.encode(), deadline)
            if not found.ready:
                raise SandboxError(f"a process of the sandbox did not come up: {_said(tester)}")
        return found

    def _candidate(
        self, stack: ExitStack, processes: list[subprocess.Popen[bytes]], folder: str | None
    ) -> tuple[FileIO, FileIO]:
        """Start the program's process; the tester's ends of the two pipes."""
        requests_out, requests_in = _pipe(stack)
        replies_out, replies_in = _pipe(stack)
        processes.append(self._launcher.start("candidate", requests_out.fileno(), replies_in.fileno(), (), folder))
        requests_out.close()
        replies_in.close()
        return replies_out, requests_in


def _pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    """Both ends as objects, which know whether they are closed; a bare number may be another thread's file by then."""
    out, into = os.pipe()
    return stack.enter_context(FileIO(out, "rb")), stack.enter_context(FileIO(into, "wb"))


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill each process with its group and take it off the table; a pid namespace dies with its first process."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr is not None and not process.stderr.closed:
            process.stderr.close()


def _said(process: subprocess.Popen[bytes]) -> str:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, said = process.communicate()
    return said.decode(errors="replace").strip()[-500:] or f"exit status {process.returncode}, no message"


def _listen(events: FileIO, job_in: FileIO, job: bytes, key: bytes, deadline: float) -> _Round:
    """Write the job while reading events; a line that is not signed with the key, or not the next one, is ignored. How
    long a process takes to come up is not the program's doing, and does not count."""
    found, begun = _Round(), time.monotonic()
    os.set_blocking(job_in.fileno(), False)
    poll = select.poll()
    poll.register(events, select.POLLIN)
    poll.register(job_in, select.POLLOUT)
    writing, pending, rest, total = job_in.fileno(), memoryview(job), b"", 0
    while not found.done:
        left = (deadline if found.ready else max(deadline, begun + _START)) - time.monotonic()
        ready = dict(poll.poll(left * 1000)) if left > 0 else {}
        if not ready:
            found.late = True
            break
        if writing in ready:
            try:
                pending = pending[os.write(writing, pending) :]
            except BrokenPipeError:
                pending = memoryview(b"")
            if not pending:
                poll.unregister(writing)
                job_in.close()
                writing = -1
        if events.fileno() in ready:
            part = os.read(events.fileno(), 1 << 16)
            total += len(part)
            if not part or total > _MOST_EVENTS:
                break
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                _hear(found, line, key)
    return found


def _hear(found: _Round, line: bytes, key: bytes) -> None:
    signature, said = line[: 2 * SIGNATURE], line[2 * SIGNATURE :]
    ours = hashlib.blake2b(said, key=key, digest_size=SIGNATURE).hexdigest().encode()
    if not secrets.compare_digest(signature, ours):
        return
    event = json.loads(said)
    if event["count"] != found.heard:
        return
    found.heard += 1
    found.ready = True
    if "start" in event:
        found.started = event["start"]
    elif "result" in event:
        found.results[event["result"]["index"]] = event["result"]
        found.started = None
    elif "skipped" in event:
        found.skipped[event["skipped"]] = str(event["reason"])
        found.started = None
    elif "live" in event:
        found.live[event["live"]] = str(event["unplain"])
        found.started = None
    elif "load" in event:
        found.load, found.done = event["load"], True
    elif "unusable" in event:
        found.unusable, found.done = str(event["unusable"]), True
    elif "done" in event:
        found.done = True


def _settled(found: _Round, parts: Plan, left: list[int], verdict: Verdict) -> dict[int, TestResult]:
    """Results of a round: those reported, the test that the end came upon, and, where nothing at all happened, the
    failure of all. A test that nobody spoke of again never passes."""
    names = {index: parts.units[index].name for index in left}
    settled = {i: _result(names[i], raw, verdict) for i, raw in found.results.items() if i in names}
    ended = "timeout" if found.late else "died"
    said = "did not end in time" if found.late else "the program ended its own process"
    if found.load is not None:
        settled |= {i: _result(names[i], {**found.load, "passed": False}, verdict) for i in left if i not in settled}
    elif found.started in names and found.started not in settled:
        settled[found.started] = _result(names[found.started], {"kind": ended, "message": said}, verdict)
    elif not (settled or found.skipped or found.live):
        settled = {i: _result(names[i], {"kind": ended, "message": said}, verdict) for i in left}
    return settled


def _result(name: str, raw: dict[str, Any], verdict: Verdict) -> TestResult:
    passed = raw.get("passed") is True and raw.get("kind") == "passed"
    kind: Any = raw["kind"] if raw.get("kind") in _KINDS and (passed or raw["kind"] != "passed") else "died"
    return TestResult(
        name=name,
        passed=passed,
        kind=kind,
        verdict=verdict,
        message=_writable(raw.get("message")) or "",
        expected=_writable(raw.get("expected")),
        got=_writable(raw.get("got")),
        frames=tuple(Frame(int(line), _writable(function) or "") for line, function in raw.get("frames") or ()),
        lines=frozenset(raw.get("ran") or ()),
    )


def _writable(text: Any) -> str | None:
    """Text that can go into a file: a program may raise half a surrogate pair."""
    return None if text is None else str(text).encode("utf-8", "replace").decode()


def _report(parts: Plan, results: dict[int, TestResult], skipped: dict[int, str]) -> Report:
    reasons = (*parts.skipped, *((parts.units[index].name, reason) for index, reason in sorted(skipped.items())))
    if not results:
        return Report(skipped=reasons, unusable="; ".join(dict.fromkeys(reason for _, reason in reasons)))
    return Report(tuple(results[index] for index in sorted(results)), reasons)
