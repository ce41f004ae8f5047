"""Executions a second in the sandbox, against plain `subprocess` Python without any: two at a time on two cores.

An execution is one program with its three tests. Asserts equal verdicts first, then times both; ends with
`executions_per_second=… against_subprocess=…`. The ratio is the time of the sandbox over the time of the plain run. A
plain run is one process and can be cheated; an execution in the sandbox is two processes inside bubblewrap. Asserted:
at least 15 a second.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from text2grad.errors import SandboxError
from text2grad.sandbox import Job, Sandbox

WANTED = 15.0


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


def plain(job: Job) -> bool:
    source = "\n".join([job.program, *job.tests])
    return subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, check=False).returncode == 0


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    workers = min(2, os.cpu_count() or 1)
    try:
        sandbox = Sandbox(workers=workers + 1)
    except SandboxError as problem:
        print(f"skipped: {problem}")
        return
    few, many = jobs(12), jobs(60)
    verdicts = [report.score == 1.0 for report in sandbox.run_many(few)]
    assert verdicts == [plain(job) for job in few], "unequal work: the sandbox and plain runs disagree"

    def without() -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(plain, many))

    ours, theirs = seconds(lambda: sandbox.run_many(many)), seconds(without)
    rate = len(many) / ours
    print(f"in the sandbox     {rate:6.1f} executions/s   {1000 * ours / len(many):6.1f} ms each")
    print(f"plain subprocess   {len(many) / theirs:6.1f} executions/s   {1000 * theirs / len(many):6.1f} ms each")
    assert rate >= WANTED, f"wanted at least {WANTED:.0f} executions a second, got {rate:.1f}"
    print(f"executions_per_second={rate:.1f} against_subprocess={ours / theirs:.1f}")


if __name__ == "__main__":
    main()
