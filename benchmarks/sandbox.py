"""Executions a second in the sandbox: warm interpreters, processes started anew, and plain Python without any walls.

An execution is one program with its three tests, two at a time on two cores. Asserts equal verdicts first, then times
the ways in turns, so that a busy machine is as busy for each. Ends with `executions_per_second=… against_cold=…
against_subprocess=…`: the rate of the sandbox, how many times that of processes started anew, and its time over that of
the plain run, which is one process and can be cheated; an execution in the sandbox is two processes, each inside
namespaces of its own. `inside` is processor time of the warm interpreters and what they forked, which other work on the
machine hardly changes. Asserted: at least 60 a second, or, where others use the machine, processor time for 60.
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


def as_functions(job: Job) -> Job:
    """The same tests as functions, which pytest runs."""
    functions = [f"def test_{index}():\n    {test}\n" for index, test in enumerate(job.tests)]
    return Job(job.program, "from solution import total\n" + "\n".join(functions))


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
        for asked in (few, [as_functions(job) for job in few]):
            verdicts = [report.score == 1.0 for report in sandbox.run_many(asked)]
            assert verdicts == wanted, "unequal work: the sandbox and plain runs disagree"
    if warm.cold:
        print(f"no warm interpreters on this machine: {warm.cold}")

    def without() -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(plain, many))

    by_pytest = [as_functions(job) for job in many]
    ways = {"warm": lambda: warm.run_many(many), "cold": lambda: cold.run_many(many), "plain subprocess": without}
    ways["warm, by pytest"] = lambda: warm.run_many(by_pytest)
    best = dict.fromkeys(ways, float("inf"))
    inside = own = 0.0
    for _ in range(ROUNDS):
        for way, work in ways.items():
            before, mine = used_below(os.getpid()), time.process_time()
            best[way] = min(best[way], timed(work))
            if way == "warm":
                inside += used_below(os.getpid()) - before
                own += time.process_time() - mine
    for way, spent in best.items():
        print(f"{way:<18} {len(many) / spent:6.1f} executions/s   {1000 * spent / len(many):6.1f} ms each")
    each = (inside + own) / ROUNDS / len(many)
    rate, could = len(many) / best["warm"], workers / each
    print(
        f"processor time of a warm execution: {1000 * each:.1f} ms, {1000 * own / ROUNDS / len(many):.1f} of them the "
        f"host's; {could:.0f} executions/s if {workers} cores did nothing else (load {os.getloadavg()[0]:.1f})"
    )
    assert max(rate, could) >= WANTED, f"wanted at least {WANTED:.0f} executions a second, got {rate:.1f}"
    against, plainly = best["cold"] / best["warm"], best["warm"] / best["plain subprocess"]
    print(f"executions_per_second={rate:.1f} against_cold={against:.1f} against_subprocess={plainly:.1f}")


if __name__ == "__main__":
    main()
