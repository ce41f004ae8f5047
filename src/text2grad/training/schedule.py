"""Several runs share one machine: the jobs of a comparison as processes, side by side as memory allows.

Enters: jobs, how many may run at once, and what each takes of memory. Leaves: run folders, a mark beside each that has
ended well, and how the others ended. A run that ends for want of memory is tried again alone. A signal, or the end of
the time, lets every run save its state. Knows nothing of what a run computes, and imports no torch.
"""

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from text2grad.errors import Text2GradError
from text2grad.runs import write_atomic
from text2grad.training.compare import ArmJob

_FULL = re.compile("out of memory|can't allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
_TURN = 0.1
"""Seconds between two looks at the processes."""
_GRACE = 60.0
"""Seconds that the runs have to save their state when the time is up."""


@dataclass
class Outcomes:
    """How the runs ended."""

    failed: dict[str, str] = field(default_factory=dict)
    """Name of a run → its last error, or the last line that it wrote."""
    interrupted: int = 0
    """The signal that ended the comparison."""
    late: bool = False
    """Its time was up before its runs were done."""


class Scheduler:
    """Starts what may be started, and waits."""

    def __init__(
        self,
        jobs: Sequence[ArmJob],
        workers: int,
        memory: float,
        *,
        tell: Callable[[str], None] = print,
        record: Callable[[ArmJob], bytes] = lambda _: b"{}",
        seconds: float = math.inf,
    ) -> None:
        """`memory`: GiB of a run; 0: not looked at. `record`: what the mark of a run that has ended well shall hold.
        `seconds`: then every run saves its state and ends."""
        self.workers, self.memory, self.tell, self.record = workers, memory, tell, record
        self.ends = time.monotonic() + seconds
        self.waiting: list[ArmJob] = []
        for job in reversed(jobs):
            # A finished run without its model, as where only its mark was carried here, runs again for those that
            # start from it.
            needed = not job.model.exists() and any(job in other.needs for other in self.waiting)
            if needed or not job.done:
                self.waiting.insert(0, job)
        # The first seeds of all arms, then the second ones: a table that is not finished has pairs to compare.
        self.waiting.sort(key=lambda job: job.turn)
        self.running: dict[ArmJob, subprocess.Popen[bytes]] = {}
        self._said: dict[str, int] = {}
        """Bytes in a run's log before its latest try."""
        self.alone: set[str] = set()
        """Runs that have failed for want of memory, and run alone now."""
        self.outcomes = Outcomes()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = str(max(1, cores // workers))
        self.capacity = free_memory() if memory else 0.0

    def run(self) -> Outcomes:
        before = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while (self.waiting and not self.stopping) or self.running:
                for job in [job for job, process in self.running.items() if process.poll() is not None]:
                    self._end(job, self.running.pop(job).returncode)
                while not self.stopping and (ready := self._next()) is not None:
                    self._begin(ready)
                self._look_at_the_clock()
                time.sleep(_TURN)
        finally:
            for process in self.running.values():
                process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self.outcomes

    @property
    def stopping(self) -> bool:
        return bool(self.outcomes.interrupted or self.outcomes.late)

    def _look_at_the_clock(self) -> None:
        """When the time is up, ask the runs to end; a little later, end them."""
        left = self.ends - time.monotonic()
        if left <= 0 and not self.stopping and (self.running or self.waiting):
            self.tell("the time is up: every run saves its state after its update; the same command resumes")
            self.outcomes.late = True
            for process in self.running.values():
                process.terminate()
        elif left < -_GRACE and self.outcomes.late:
            for process in self.running.values():
                process.kill()

    def _next(self) -> ArmJob | None:
        """A run that can begin now. One that has to run alone waits until nothing else runs, and comes last."""
        for job in list(self.waiting):
            if failed := next((need.name for need in job.needs if need.name in self.outcomes.failed), None):
                self.waiting.remove(job)
                self.outcomes.failed[job.name] = f"not begun, because {failed} failed"
        if self.alone & {job.name for job in self.running} or len(self.running) >= self.workers:
            return None
        unfinished = {*self.waiting, *self.running}
        ready = [job for job in self.waiting if not unfinished.intersection(job.needs)]
        together = [job for job in ready if job.name not in self.alone]
        if together and (not self.running or self._room()):
            return together[0]
        return ready[0] if ready and not together and not self.running else None

    def _room(self) -> bool:
        """Whether there is memory for one more. Runs that have just begun have not taken theirs yet, so those that run
        count in full, too."""
        return not self.memory or (
            self.memory * (len(self.running) + 1) <= self.capacity and free_memory() >= self.memory
        )

    def _begin(self, job: ArmJob) -> None:
        self.waiting.remove(job)
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        if job.kind.command == "evaluate":
            job.folder.mkdir(exist_ok=True)
        self.tell(f"begins: {job.name}" + (" (alone)" if job.name in self.alone else ""))
        environment = {"OMP_NUM_THREADS": self.threads} | os.environ | ({"OPENAI_API_KEY": job.key} if job.key else {})
        if self.memory:  # no run takes what was counted for another
            environment["TEXT2GRAD_GPU_GIB"] = str(self.capacity if job.name in self.alone else self.memory)
        with job.log.open("ab") as log:
            self._said[job.name] = log.tell()
            self.running[job] = subprocess.Popen(
                [sys.executable, "-m", "text2grad", *job.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,
                preexec_fn=_dies_with(os.getpid()),
            )

    def _end(self, job: ArmJob, status: int) -> None:
        problem = job.problem(since=self._said.get(job.name, 0)) if status else ""
        if status == 0:
            try:
                write_atomic(job.mark, f"{job.digest}\n".encode() + self.record(job) + b"\n")
            except Text2GradError as failure:
                self.outcomes.failed[job.name] = str(failure)
                self.tell(f"failed: {job.name}: {failure}")
            else:
                self.tell(f"done: {job.name}")
        elif self.stopping:
            return
        elif job.name not in self.alone and (status == -signal.SIGKILL or _FULL.search(problem)):
            self.alone.add(job.name)
            self.waiting.append(job)
            self.tell(f"out of memory: {job.name}; it is tried again alone")
        else:
            self.outcomes.failed[job.name] = problem
            self.tell(f"failed (status {status}): {job.name}: {problem}; see {job.log}")

    def _interrupt(self, number: int, _: object) -> None:
        """The runs save a checkpoint after their update, and end; a second signal ends them at once."""
        for process in self.running.values():
            process.kill() if self.outcomes.interrupted else process.terminate()
        if not self.outcomes.interrupted:
            self.tell("stopping: every run saves its state after its update; the same command resumes")
        self.outcomes.interrupted = number


def _dies_with(parent: int) -> Callable[[], None] | None:
    """Called in a child before its program begins: it is killed when this process is, so that the run's folder is free
    for the next one. Linux alone can do that; elsewhere a run that is left over ends by itself."""
    if sys.platform != "linux":
        return None
    library, dies = ctypes.CDLL(None), 1  # PR_SET_PDEATHSIG

    def ask() -> None:
        library.prctl(dies, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def free_memory() -> float:
    """GiB that are free: on the GPU with the most, else of the machine."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        words = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.split()
        return max(map(float, said)) / 1024
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("MemAvailable"))) / 2**20
    return math.inf
