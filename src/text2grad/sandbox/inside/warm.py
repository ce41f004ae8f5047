"""A warm interpreter: it has started, imported what a role needs, and forks a process for each program.

Enters: on a socket from the host, one message a program, with the file descriptors that its process gets; then one
that ends it. Leaves: processes that share nothing with each other. This process never runs a line of a program, and
none can reach it: each has a pid namespace, a mount namespace with an empty /tmp, an ipc namespace, a session, its own
descriptors, no capability and the system-call filter before its first line runs.

The capability to make namespaces stays with this process. At the end the first process of the pid namespace is killed,
and the kernel kills whatever else is in there before `waitpid` returns.
"""

import ctypes
import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

_MOUNTS, _IPC, _PIDS = 0x00020000, 0x08000000, 0x20000000
_NO_SETUID, _NO_DEVICES, _RECURSIVE, _PRIVATE = 2, 4, 1 << 14, 1 << 18
_SET_FILTER, _BY_PROGRAM = 22, 2
_CAPABILITIES = 0x20080522
_FILES = 4096
"""Files in a /tmp: each takes kernel memory that its size does not count."""
_C = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _must(returned: int, what: str) -> None:
    """A wall that cannot be built ends the process before the program begins."""
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def keep(control: int, disk: int, rules: bytes, work: Callable[..., None]) -> None:
    """Answer the host until it is gone. `work` is called in the new process, with its descriptors; 0 and 1 are the
    first two of them."""
    gc.collect()
    gc.freeze()
    home = os.pidfd_open(os.getpid())
    host = socket.socket(fileno=control)
    host.send(b"ready")
    while True:
        word, given, _, _ = socket.recv_fds(host, 16, 8)
        if not word:
            return
        _must(_C.unshare(_PIDS), "a pid namespace")
        first = os.fork()
        if first == 0:
            _alone(_first, host, disk, rules, given, work)
        _must(_C.setns(home, _PIDS), "back to the first pid namespace")
        for descriptor in given:
            os.close(descriptor)
        host.recv(16)
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        host.send(b"ended")


def _alone(work: Callable[..., None], *args: Any) -> None:
    """Run and end here, whatever happens: nothing of a fork returns into the loop."""
    try:
        work(*args)
    except BaseException as problem:  # noqa: BLE001 - told to the host, which reads it if the process does not come up
        os.write(2, f"{type(problem).__name__}: {problem}\n".encode())
        os._exit(1)
    os._exit(0)


def _first(host: socket.socket, disk: int, rules: bytes, given: list[int], work: Callable[..., None]) -> None:
    """The first process of the new pid namespace: builds the walls, starts the second and waits for it."""
    host.detach()  # its number is closed with the others
    os.setsid()  # a signal to the process group reaches nobody outside
    _must(_C.unshare(_MOUNTS | _IPC), "namespaces")
    _must(_C.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "private mounts")
    options = f"size={disk},nr_inodes={_FILES},mode=700".encode()
    _must(_C.mount(b"tmpfs", b"/tmp", b"tmpfs", _NO_SETUID | _NO_DEVICES, options), "/tmp")
    os.chdir("/tmp")
    _drop()
    second = os.fork()
    if second == 0:
        _alone(_second, rules, given, work)
    os.closerange(0, 1 << 16)
    os.waitpid(second, 0)


def _drop() -> None:
    """Give up every capability; without new privileges nothing brings one back."""
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    _must(_C.capset(header, none), "no capabilities")


def _second(rules: bytes, given: list[int], work: Callable[..., None]) -> None:
    """The process that runs the program: with its descriptors and no others, behind the filter."""
    for place, descriptor in enumerate(given[:2]):
        os.dup2(descriptor, place)
    kept = sorted(given[2:])
    for low, high in zip([2, *kept], [*kept, 1 << 16], strict=True):
        os.closerange(low + 1, high)
    filtered = _Filter(len(rules) // 8, rules)
    _must(_C.prctl(_SET_FILTER, _BY_PROGRAM, ctypes.byref(filtered), 0, 0), "the system-call filter")
    work(*given[2:])
