"""Executions a second in the sandbox: warm interpreters, processes started anew, and plain Python without any walls.

An execution is one program with its three tests, two at a time on two cores. Asserts equal verdicts first, then times
the ways in turns, so that a busy machine is as busy for each. Ends with `executions_per_second=… against_cold=…
against_subprocess=…`: the rate of the sandbox, how many times that of processes started anew, and its time over that of
the plain run, which is one process and can be cheated; an execution in the sandbox is two processes, each inside
namespaces of its own. Processor time, of the host and of the warm interpreters with what they forked, is printed too:
other work on the machine hardly changes it. Asserted, of asserts, of test functions that are called and of those that
pytest runs: at least 60 a second, or, where others use the machine, processor time for 60.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from text2grad.errors import SandboxError
from text2grad.sandbox import Job, Sandbox

WANTED = 60.0
ROUNDS = 4


def jobs(count: int) -> list[Job]:
    """Small programs of the size of MBPP's, every third one wrong."""
    made = []
    for index in range(count):
        sign = "-" if index % 3 == 2 else "+"
        program = (
            f"def total(items):\n    found = {index} * 0\n    for item in items:\n        found = found {sign} item\n"
        )
        program += "    return found\n"
        tests = ["assert total([1, 2, 3]) == 6", "assert total([]) == 0", "assert total([5] * 100) == 500"]
        made.append(Job(program, tests))
    return made


def as_functions(job: Job, start: str = "") -> Job:
    """The same tests as functions. `start`: what their file begins with."""
    functions = [f"def test_{index}():\n    {test}\n" for index, test in enumerate(job.tests)]
    return Job(job.program, f"{start}from solution import total\n" + "\n".join(functions))


def for_pytest(job: Job) -> Job:
    """The same functions in a file that imports pytest, which runs them then."""
    return as_functions(job, "import pytest\n")


def plain(job: Job) -> bool:
    source = "\n".join([job.program, *job.tests])
    return subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, check=False).returncode == 0


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def used_below(pid: int) -> float:
    """Processor seconds of the processes that this one started and that still run, their ended children included."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + used_below(int(path.parent.name))
    return total


def main() -> None:
    workers = min(2, os.cpu_count() or 1)
    try:
        warm, cold = Sandbox(workers=workers + 1), Sandbox(workers=workers + 1, warm=False)
    except SandboxError as problem:
        print(f"skipped: {problem}")
        return
    few, many = jobs(12), jobs(60)
    wanted = [plain(job) for job in few]
    for sandbox in (warm, cold):
        for asked in (few, [as_functions(job) for job in few], [for_pytest(job) for job in few]):
            verdicts = [report.score == 1.0 for report in sandbox.run_many(asked)]
            assert verdicts == wanted, "unequal work: the sandbox and plain runs disagree"
    if warm.cold:
        print(f"no warm interpreters on this machine: {warm.cold}")

    def without() -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(plain, many))

    functions, by_pytest = [as_functions(job) for job in many], [for_pytest(job) for job in many]
    ways = {"warm": lambda: warm.run_many(many), "cold": lambda: cold.run_many(many), "plain subprocess": without}
    ways |= {"warm, functions": lambda: warm.run_many(functions), "warm, by pytest": lambda: warm.run_many(by_pytest)}
    best, used = dict.fromkeys(ways, float("inf")), dict.fromkeys(ways, 0.0)
    for _ in range(ROUNDS):
        for way, work in ways.items():
            before = used_below(os.getpid()) + time.process_time()
            best[way] = min(best[way], timed(work))
            used[way] += used_below(os.getpid()) + time.process_time() - before
    for way, spent in best.items():
        print(f"{way:<18} {len(many) / spent:6.1f} executions/s   {1000 * spent / len(many):6.1f} ms each")
    rate = len(many) / best["warm"]
    for way in ("warm", "warm, functions", "warm, by pytest"):
        each = used[way] / ROUNDS / len(many)
        print(f"{way:<18} {1000 * each:6.1f} ms of processor time each (load {os.getloadavg()[0]:.1f})")
        could = max(len(many) / best[way], workers / each)
        assert could >= WANTED, f"{way}: wanted at least {WANTED:.0f} executions a second, got {could:.1f}"
    against, plainly = best["cold"] / best["warm"], best["warm"] / best["plain subprocess"]
    print(f"executions_per_second={rate:.1f} against_cold={against:.1f} against_subprocess={plainly:.1f}")


if __name__ == "__main__":
    main()
