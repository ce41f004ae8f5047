"""A system-call filter for bubblewrap: no second process, no sockets but UNIX ones, no tracing, no new namespaces, no
memory that escapes its limit.

Leaves: the filter as the bytes that `bwrap --seccomp` takes, for the machine's architecture; empty where its numbers
are not known here, and then the other walls stand alone.

The classic BPF of seccomp(2): each instruction is a code, two jumps (if true, if false) and a constant.
"""

import errno
import platform
import struct

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_THREAD = 0x00010000

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_SOCKETS = {"x86_64": (41, 53), "aarch64": (198, 199)}
"""socket, socketpair. A namespace holds no network of its own, but AF_VSOCK reaches the machine's host all the same."""
_AF_UNIX = 1
_REFUSED = {
    # fork, vfork, ptrace, unshare, setns, mount, umount2, pivot_root, keyctl, add_key, request_key, bpf,
    # perf_event_open, userfaultfd, process_vm_readv, process_vm_writev, io_uring_setup, kexec_load, init_module,
    # pidfd_getfd
    "x86_64": (57, 58, 101, 272, 308, 165, 166, 155, 250, 248, 249, 321, 298, 323, 310, 311, 425, 246, 175, 438),
    "aarch64": (117, 97, 268, 40, 39, 41, 219, 217, 218, 280, 241, 282, 270, 271, 425, 104, 105, 438),
}
_HOARDS = {
    # Memory that outlives its mapping, so the limit on address space does not bound it: shmget, shmat, shmctl, shmdt,
    # semget, semop, semctl, semtimedop, msgget, msgsnd, msgrcv, msgctl, memfd_create, memfd_secret, mq_open
    "x86_64": (29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71, 319, 447, 240),
    "aarch64": (194, 196, 195, 197, 190, 193, 191, 192, 186, 189, 188, 187, 279, 447, 180),
}
_X32 = 0x40000000
"""Numbers from here on are x86_64's other table of calls."""


def program(machine: str | None = None, threads: bool = True) -> bytes:
    """The filter for this machine, or b"" where none is known. Without `threads`, a second one is refused, too."""
    machine = machine or platform.machine()
    if machine not in _AUDIT:
        return b""
    refuse = _ERRNO | errno.EPERM
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, refuse),
        # "There is no such call" makes the C library fall back to `clone`, whose flags can be read here.
        (_JUMP_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for number in (*_REFUSED[machine], *_HOARDS[machine]):
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    clone, (socket, pair) = _CLONE[machine], _SOCKETS[machine]
    code += [
        (_JUMP_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_SET, 6, 0, _CLONE_THREAD if threads else 0),
        (_RETURN, 0, 0, refuse),
        (_JUMP_EQUAL, 1, 0, socket),
        (_JUMP_EQUAL, 0, 3, pair),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
