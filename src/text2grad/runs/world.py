"""The processes of a run, as far as everybody but their owner needs to know them. No torch."""

from collections.abc import Callable
from typing import Any, TypeVar

from text2grad.errors import Text2GradError

T = TypeVar("T")


class World:
    """A run of one process; `models/parallel.py` has the one of several. All methods are collective: every process
    calls them in the same order."""

    rank: int = 0
    size: int = 1
    sharded: bool = False
    """Whether each process holds a part of the weights."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def all_sum(self, numbers: Any) -> Any:
        """Sum of a small tensor over all processes."""
        return numbers

    def all_max(self, number: int) -> int:
        """The largest of the processes' numbers."""
        return max(self.all_gather(number))

    def all_gather(self, mine: T) -> list[T]:
        """Everybody's object, in the order of the ranks."""
        return [mine]

    def broadcast(self, mine: T) -> T:
        """The main process's object, for everybody."""
        return mine

    def on_main(self, work: Callable[[], T]) -> T:
        """Done by the main process. What comes of it, a refusal too, is everybody's, so that nobody waits for a process
        that has given up."""
        done: T | None = None
        problem: Exception | None = None
        if self.is_main:
            try:
                done = work()
            except (Text2GradError, OSError) as refusal:
                problem = refusal
        done, problem = self.broadcast((done, problem))
        if problem is not None:
            raise problem
        return done  # type: ignore[return-value]


ALONE = World()
