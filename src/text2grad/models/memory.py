"""Out of memory, said with the setting to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from text2grad.errors import RunError


@contextmanager
def memory_named(doing: str, setting: str) -> Iterator[None]:
    """Turn running out of memory in this block into an error that names the setting."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as problem:
        raise RunError(_message(doing, setting, problem)) from problem
    except RuntimeError as problem:
        if type(problem).__module__.startswith(("torch._dynamo", "torch._inductor")):
            first = (str(problem).strip().splitlines() or [""])[0][:160]
            raise RunError(
                f"policy.compile=true: torch could not compile the layers ({first}); set it to false and run the same "
                f"command again, or install a C++ compiler"
            ) from problem
        if "can't allocate memory" not in str(problem) and "not enough memory" not in str(problem):
            raise
        raise RunError(_message(doing, setting, problem)) from problem


def _message(doing: str, setting: str, problem: BaseException) -> str:
    first = (str(problem).splitlines() or [""])[0][:160]
    return f"ran out of memory in {doing}: lower {setting}, and run the same command again ({first})"
