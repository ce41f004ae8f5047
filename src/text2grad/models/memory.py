"""Out of memory, said with the setting to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from text2grad.errors import RunError, first_line


@contextmanager
def memory_named(doing: str, setting: str) -> Iterator[None]:
    """Turn running out of memory in this block into an error that names the setting."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        if type(problem).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise RunError(
                f"policy.compile=true: torch could not compile the layers ({first_line(problem)}); set it to false and "
                f"run the same command again, or install a C++ compiler"
            ) from problem
        kinds = isinstance(problem, torch.OutOfMemoryError | MemoryError)
        if not kinds and "can't allocate memory" not in str(problem) and "not enough memory" not in str(problem):
            raise
        raise RunError(
            f"ran out of memory in {doing}: lower {setting}, and run the same command again ({first_line(problem)})"
        ) from problem
