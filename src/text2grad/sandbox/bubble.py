"""The walls: how a Python process is started inside bubblewrap, or, where the user insists, without it.

Enters: a role for `inside/`, limits, file descriptors to hand on. Leaves: a process. Inside there is Python's own
library, the C library, an empty /tmp of bounded size, and nothing else: no home, no /etc, no /proc, no shell, no
network, no environment. Processes that run tests see pytest, too, where it is installed.
"""

import compileall
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from text2grad.errors import SandboxError
from text2grad.sandbox import seccomp
from text2grad.sandbox.results import Limits

INSIDE = Path(__file__).parent / "inside"
_PLACE, _PYTEST_PLACE = "/inside", "/pytest"
_PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
"""pytest, and what it imports."""
_MAIN = "__main__.py"
_FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8")
_LAST = ("--remount-ro", "/", "--chdir", "/tmp")
MISSING = (
    "model-written code runs inside bubblewrap, and there is no `bwrap` on this machine. Install it: "
    "`apt-get install bubblewrap` (Debian, Ubuntu), `dnf install bubblewrap` (Fedora), `pacman -S bubblewrap` (Arch). "
    "It needs Linux. To run such code with no protection at all, say `--unsafe-no-sandbox` (in Python: unsafe=True)"
)
UNSAFE = (
    "UNSAFE: model-written code runs WITHOUT a sandbox, as you, with your files and your network. "
    "Limits on time and memory hold; nothing else does."
)


class UnsafeWarning(UserWarning):
    """Model-written code runs without a sandbox."""


class Launcher:
    """Starts processes in one way: inside bubblewrap, or `unsafe`."""

    def __init__(self, limits: Limits, packages: Sequence[str] = (), unsafe: bool = False) -> None:
        self.limits, self.packages, self.unsafe = limits, tuple(packages), unsafe
        for folder in self.packages:
            if not Path(folder).is_absolute() or not Path(folder).is_dir():
                raise SandboxError(f"packages: should be folders with absolute paths, got {folder!r}")
        self._rlimits = self._resources()
        # Read as bytecode, the files in there start in half the time; where they cannot be written, they just start.
        compileall.compile_dir(INSIDE, quiet=2)
        if unsafe:
            _warn_once()
        else:
            self._bwrap = shutil.which("bwrap")
            if self._bwrap is None:
                raise SandboxError(MISSING)
            self._walls = [self._bwrap, *_walls(limits, self.packages, _knows_size(self._bwrap))]
            self._filter = seccomp.program()
            self._settle()

    def start(
        self, role: str, stdin: int, stdout: int, hand_on: Sequence[int] = (), folder: str | None = None
    ) -> subprocess.Popen[bytes]:
        """A process in `role`; it gets these descriptors and no others. `folder`: where it may write if unsafe."""
        words = [role, *self._words(role), *map(str, hand_on)]
        streams: Any = {"stdin": stdin, "stdout": stdout, "stderr": subprocess.PIPE, "start_new_session": True}
        if self.unsafe:
            command = [_python(), *_FLAGS, str(INSIDE / _MAIN), *words]
            env = {"PYTHONHASHSEED": "0"}
            return subprocess.Popen(command, pass_fds=hand_on, cwd=folder or "/", env=env, **streams)
        with FileIO(os.memfd_create("rules"), "r+b") as rules:
            rules.write(self._filter)
            rules.seek(0)
            extra = ["--seccomp", str(rules.fileno())] if self._filter else []
            command = self._inside(role, extra, words)
            return subprocess.Popen(command, pass_fds=[*hand_on, rules.fileno()], cwd="/", env={}, **streams)

    @property
    def cold(self) -> str | None:
        """Why there can be no warm interpreters; None: they are worth trying. They put the filter on each process
        themselves, so there has to be one, and an empty /tmp in front of the old one."""
        if self.unsafe or not self._filter:
            return "there is no sandbox" if self.unsafe else "no system-call filter is known for this processor"
        below = [place for place in (*_needed(), *self.packages) if Path(place).is_relative_to("/tmp")]
        return f"{below[0]} is below /tmp, which each program has empty" if below else None

    def start_warm(self, role: str, control: int) -> subprocess.Popen[bytes]:
        """A warm interpreter (`inside/warm.py`) for processes in `role`. It may make namespaces inside its own; they
        may not."""
        extra = ["--cap-add", "CAP_SYS_ADMIN"]
        words = ["warm", *self._words(role), role, str(control), str(self.limits.disk), self._filter.hex()]
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        command = self._inside(role, extra, words)
        return subprocess.Popen(command, pass_fds=[control], cwd="/", env={}, start_new_session=True, **streams)

    def _words(self, role: str) -> list[str]:
        """The limits, and the folders to import from."""
        pytest = [] if role == "candidate" else _pytest_files()
        shown = [str(place.parent) if self.unsafe else _PYTEST_PLACE for place in pytest]
        return [json.dumps(self._rlimits), json.dumps([*self.packages, *dict.fromkeys(shown)])]

    def _inside(self, role: str, extra: Sequence[str], words: Sequence[str]) -> list[str]:
        pytest = [] if role == "candidate" else _pytest_files()
        shown = [word for place in pytest for word in ("--ro-bind", str(place), f"{_PYTEST_PLACE}/{place.name}")]
        python = [_python(), *_FLAGS, f"{_PLACE}/{_MAIN}"]
        return [*self._walls, *extra, *shown, *_LAST, "--", *python, *words]

    def _resources(self) -> dict[str, int]:
        limits = self.limits
        cpu = max(1, round(limits.wall) + 1)
        known = {"CPU": cpu, "AS": limits.memory, "FSIZE": limits.file, "NOFILE": 64, "CORE": 0}
        if not self.unsafe:
            # Without a user namespace it would count all processes of the user.
            known["NPROC"] = limits.processes
        return known

    def _settle(self) -> None:
        """Start once, to say now and clearly what would fail later. The kernel does not bind the machine's root user by
        a number of threads; there a second one is refused."""
        process = self.start("probe", subprocess.DEVNULL, subprocess.PIPE)
        try:
            said, problem = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            said, problem = process.communicate()
        if said.strip() == b"unbound":
            self._filter = seccomp.program(threads=False)
        elif said.strip() != b"ready":
            raise SandboxError(_explained(problem.decode(errors="replace").strip()))


def _explained(reason: str) -> str:
    advice = "the reason above is bubblewrap's own"
    if "namespace" in reason or "permission" in reason.lower() or "not permitted" in reason.lower():
        advice = (
            "unprivileged user namespaces seem to be forbidden here: in a container, start it with "
            "`--security-opt seccomp=unconfined` or `--privileged`; on Ubuntu 24.04 and later allow them with "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`; elsewhere with "
            "`sysctl user.max_user_namespaces=10000`"
        )
    return (
        f"bubblewrap is installed, but a Python process does not start inside it: {reason or 'no message'}; "
        f"{advice}. To run model-written code with no protection at all, say `--unsafe-no-sandbox`"
    )


def _walls(limits: Limits, packages: Sequence[str], sized: bool) -> list[str]:
    words = ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    # Texts hash the same in every run, so that a verdict does not depend on the order of a set.
    words += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0"]
    words += ["--size", str(limits.disk)] if sized else []
    words += ["--tmpfs", "/tmp"]
    for place in _needed():
        words += ["--ro-bind-try", place, place]
    for folder in packages:
        words += ["--ro-bind", folder, folder]
    words += ["--ro-bind", str(INSIDE), _PLACE, "--dev-bind", "/dev/null", "/dev/null"]
    return words


def _needed() -> list[str]:
    """What Python needs of the machine: itself, its library, the C library and the loader's index."""
    prefixes = dict.fromkeys([sys.base_prefix, sys.base_exec_prefix])
    libraries = [f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64")]
    system = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache", "/nix/store"]
    return list(dict.fromkeys([_python(), *libraries, *system]))


@functools.cache
def _pytest_files() -> list[Path]:
    """Packages of pytest as they are installed here; none where it is not."""
    specs = [importlib.util.find_spec(name) for name in _PYTEST]
    places = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [place.parent if place.name == "__init__.py" else place for place in places] if specs[0] else []


@functools.cache
def _python() -> str:
    """The interpreter itself, not the link that a virtual environment holds."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@functools.cache
def _knows_size(bwrap: str) -> bool:
    """`--size` came with bubblewrap 0.7; before it, /tmp is bounded by the machine's memory alone."""
    return "--size" in subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False).stdout


@functools.cache
def _warn_once() -> None:
    print(UNSAFE, file=sys.stderr, flush=True)
    warnings.warn(UNSAFE, UnsafeWarning, stacklevel=4)
