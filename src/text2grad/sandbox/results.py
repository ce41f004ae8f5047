"""What running a program against its tests gives. Plain, frozen records; no behaviour but counting."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "passed",
    "mismatch",
    "assertion",
    "error",
    "test_error",
    "timeout",
    "died",
    "not_plain",
    "syntax",
    "load",
    "not_run",
]
"""Why a test failed: another value than expected; another failed assert; the program raised; the test code raised on
what it got; time; the process ended; the result is no plain data; the program does not parse; it fails while it is
loaded; it was not started, since the program had used up its chances."""
Verdict = Literal["isolated", "in_process"]
"""Whether program and test ran in processes that cannot reach each other, or shared one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of the program that an exception passed through, and the function it stands in."""

    line: int
    function: str


@dataclass(frozen=True, slots=True)
class TestResult:
    """What one test said."""

    __test__ = False  # not a test of pytest's

    name: str
    """The assert, or the name of the test function."""
    passed: bool
    kind: Kind
    verdict: Verdict
    message: str = ""
    expected: str | None = None
    got: str | None = None
    frames: tuple[Frame, ...] = ()
    """Outermost first, in the program only."""
    lines: frozenset[int] = frozenset()
    """First lines of the program's statements that this test ran. Told by the program's process: a hint for finding
    faults, no evidence of passing."""
    unplain: str = ""
    """Why an isolated run came to no verdict: what the program gave is no plain data. The test was then run again in
    one process, by the program's choice rather than the test's."""


@dataclass(frozen=True, slots=True)
class Report:
    """All tests of one program. No results: the tests are `unusable`, and say nothing about the program."""

    results: tuple[TestResult, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """(name, reason) of tests that cannot be run here."""
    unusable: str | None = None

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)

    @property
    def score(self) -> float | None:
        """The fraction of tests passed; None where there is no test."""
        return self.passed / len(self.results) if self.results else None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. Sizes in bytes."""

    seconds: float = 2.0
    """Of the processor, for one test."""
    wall: float = 10.0
    """Seconds by the clock, for all tests of one program; half of it for one test."""
    memory: int = 512 << 20
    """Address space of a process."""
    processes: int = 32
    """Threads; a second process is refused outright."""
    file: int = 4 << 20
    """Size of a file, and of everything that is printed."""
    disk: int = 16 << 20
    """All files in /tmp."""
    chances: int = 2
    """Tests that may run out of time or kill the process before the rest is not started."""
