"""The processes of a run, as far as everybody but their owner needs to know them. No torch."""

from typing import Any, TypeVar

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


ALONE = World()
