"""What running a program against its tests gives: plain, frozen records."""

from dataclasses import dataclass
from typing import Literal

from text2grad.types import Isolation

Kind = Literal[
    "passed", "mismatch", "assertion", "error", "test_error", "timeout", "died", "not_plain",
    "syntax", "load", "not_run",
]  # fmt: skip
"""Why a test failed:

- mismatch: another value than expected; assertion: another failed check
- error: the program raised; test_error: the test raised on what it got
- timeout, died: the process did not end in time, or ended
- not_plain: the program gave an object where the test wants data
- syntax, load: the program does not parse, or raises while it is loaded
- not_run: the program had used up its chances
"""


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test."""

    __test__ = False  # not a test of pytest's

    name: str
    """The assert, or the name of the test function."""
    passed: bool
    kind: Kind
    isolation: Isolation
    message: str = ""
    expected: str | None = None
    got: str | None = None
    frames: tuple[int, ...] = ()
    """Lines of the program that the exception passed through, outermost first."""
    lines: frozenset[int] = frozenset()
    """First lines of the program's statements that this test ran, as the program's own process reports them: a hint for
    finding faults, no evidence of passing."""


@dataclass(frozen=True, slots=True)
class Report:
    """All tests of one program. Without results the tests are `unusable` and say nothing about the program."""

    results: tuple[TestResult, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """(name, reason) of tests that do not count."""
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
    """Processor time of one test."""
    wall: float = 10.0
    """Clock time of all tests of one program; one test may take half of it."""
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
