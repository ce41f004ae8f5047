"""The system-call filter, read by a small interpreter of its own."""

import platform
import struct
import sys

import pytest

from text2grad.sandbox import seccomp


class TestFilter:
    def test_known_machines_have_one_and_others_none(self) -> None:
        assert len(seccomp.program("x86_64")) % 8 == 0
        assert len(seccomp.program("aarch64")) % 8 == 0
        assert seccomp.program("vax") == b""

    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    @pytest.mark.parametrize(
        ("call", "flags", "allowed"), [("clone", 0x11, False), ("clone", 0x10000, True), ("read", 0, True)]
    )
    def test_threads_may_start_and_processes_may_not(self, machine: str, call: str, flags: int, allowed: bool) -> None:
        number = {"clone": {"x86_64": 56, "aarch64": 220}, "read": {"x86_64": 0, "aarch64": 63}}[call][machine]
        architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
        assert (_interpret(seccomp.program(machine), number, architecture, flags) == 0x7FFF0000) is allowed
        alone = _interpret(seccomp.program(machine, threads=False), number, architecture, flags)
        assert (alone == 0x7FFF0000) is (call == "read")

    @pytest.mark.parametrize(("machine", "calls"), [("x86_64", (41, 53)), ("aarch64", (198, 199))])
    def test_unix_sockets_alone(self, machine: str, calls: tuple[int, int]) -> None:
        architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
        for call in calls:
            allowed = [_interpret(seccomp.program(machine), call, architecture, n) == 0x7FFF0000 for n in range(64)]
            assert [number for number, answer in enumerate(allowed) if answer] == [1]

    def test_another_architecture_is_killed(self) -> None:
        assert _interpret(seccomp.program("x86_64"), 0, 0x40000003, 0) == 0x80000000


def _interpret(program: bytes, number: int, architecture: int, first: int) -> int:
    """The five instructions of classic BPF that the filter uses."""
    code = list(struct.iter_unpack("HBBI", program))
    memory = {0: number, 4: architecture, 16: first}
    value = place = 0
    while True:
        operation, yes, no, constant = code[place]
        place += 1
        if operation == 0x20:
            value = memory[constant]
        elif operation == 0x06:
            return int(constant)
        else:
            holds = {0x15: value == constant, 0x45: bool(value & constant), 0x35: value >= constant}[operation]
            place += yes if holds else no


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_the_machine_has_a_filter() -> None:
    assert bool(seccomp.program()) == (platform.machine() in ("x86_64", "aarch64"))
