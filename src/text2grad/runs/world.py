"""The processes of a run, as far as everybody but their owner needs to know them. No torch.

`models/parallel.py` implements `World` for several processes; `ALONE` is a run of one.
"""

from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class World(Protocol):
    """All methods are collective: every process calls them in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks."""
        ...

    def all_sum(self, numbers: Any) -> Any:
        """Sum of a small tensor over all processes."""
        ...

    def all_max(self, number: int) -> int:
        """The largest of the processes' numbers."""
        ...

    def all_gather(self, mine: T) -> list[T]:
        """Everybody's object, in the order of the ranks."""
        ...

    def broadcast(self, mine: T) -> T:
        """The main process's object, for everybody."""
        ...


class Alone:
    """A run of one process."""

    rank, size, is_main = 0, 1, True

    def all_sum(self, numbers: Any) -> Any:
        return numbers

    def all_max(self, number: int) -> int:
        return number

    def all_gather(self, mine: T) -> list[T]:
        return [mine]

    def broadcast(self, mine: T) -> T:
        return mine


ALONE = Alone()
