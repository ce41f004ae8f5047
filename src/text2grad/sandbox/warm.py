"""Processes for programs and tests: forked by warm interpreters inside the walls, or each started anew.

Enters: a role, file descriptors. Leaves: a process that has them, to be ended. An interpreter serves one process at a
time and is kept for the next; `inside/warm.py` says what separates them. Where the machine does not allow warm
interpreters (no namespaces inside namespaces, an old kernel), every process is started anew, and `cold` says why.
"""

import os
import signal
import socket
import subprocess
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Lock

from text2grad.errors import SandboxError
from text2grad.sandbox.bubble import Launcher

_PATIENCE = 30.0
"""Seconds that an interpreter may take to come up, or to end a process, on a busy machine."""


class Process:
    """A process of its own. `lost`: at its end, the interpreter that forked it was gone, which no program can bring
    about."""

    lost = False

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def end(self) -> None:
        """Kill it and whatever it started: its group, and its pid namespace, which dies with its first process."""
        self._kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def last_words(self) -> str:
        """Why it did not come up; it is ended, too."""
        self._kill()
        _, words = self.process.communicate()
        return words.decode(errors="replace").strip()[-500:] or f"exit status {self.process.returncode}, no message"

    def _kill(self) -> None:
        if self.process.returncode is None:  # once it is waited for, its number may be another's
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class _Warm(Process):
    """A warm interpreter."""

    def __init__(self, launcher: Launcher, role: str) -> None:
        self.host, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.host.settimeout(_PATIENCE)
        with ExitStack() as on_failure:
            on_failure.callback(self.host.close)
            with theirs:
                super().__init__(launcher.start_warm(role, theirs.fileno()))
            if not self.heard(b"ready"):
                raise SandboxError(f"a warm interpreter did not come up: {self.last_words()}")
            on_failure.pop_all()

    def heard(self, word: bytes) -> bool:
        try:
            return self.host.recv(16) == word
        except OSError:
            return False

    def end(self) -> None:
        self.host.close()
        super().end()


class _Forked(Process):
    """A process of a warm interpreter, which goes back to the others at its end."""

    def __init__(self, warm: _Warm, idle: list[_Warm], given: Sequence[int]) -> None:
        super().__init__(warm.process)
        self.warm, self.idle = warm, idle
        with suppress(OSError):  # it died since it was last used: nothing comes up, and the caller asks for last words
            socket.send_fds(warm.host, [b"begin"], given)

    def end(self) -> None:
        with suppress(OSError):
            self.warm.host.send(b"end")
        if self.warm.heard(b"ended"):
            self.idle.append(self.warm)
        else:
            self.lost = True
            self.warm.end()


class _Pool:
    """Idle interpreters by role. One thread starts them all: the kernel ends them with the thread that started them."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.idle: dict[str, list[_Warm]] = {}
        self.starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox")

    def take(self, launcher: Launcher, role: str) -> _Warm:
        idle = self.idle.setdefault(role, [])
        while idle:
            with suppress(IndexError):  # another thread took the last one
                if (warm := idle.pop()).process.poll() is None:
                    return warm
                warm.end()
        return self.starter.submit(_Warm, launcher, role).result()

    def close(self) -> None:
        """A copy of this in a forked process leaves alone what is not its own."""
        if self.owner == os.getpid():
            for idle in self.idle.values():
                while idle:
                    idle.pop().end()
            self.starter.shutdown(wait=False)


class Processes:
    """Starts processes in the quickest way that the machine allows."""

    def __init__(self, launcher: Launcher, warm: bool = True) -> None:
        self.launcher, self._lock = launcher, Lock()
        self.cold = launcher.cold if warm else "no warm interpreters are wanted"
        self._pool = self._made()

    def _made(self) -> _Pool:
        pool = _Pool()
        weakref.finalize(self, pool.close)
        return pool

    def start(self, role: str, given: Sequence[int], folder: str | None) -> Process:
        """A process in `role` (`candidate`, `tester`, or `functions` for pytest) with these descriptors; the first two
        are its stdin and stdout."""
        if self.cold is None:
            with self._lock:
                if self._pool.owner != os.getpid():
                    self._pool = self._made()
                pool = self._pool
            try:
                return _Forked(pool.take(self.launcher, role), pool.idle[role], given)
            except (SandboxError, OSError) as problem:
                self.cold = str(problem)
        return Process(self.launcher.start(role, given[0], given[1], given[2:], folder))

    def close(self) -> None:
        with self._lock:
            self._pool.close()
            self._pool = self._made()
