"""An input that can be read more than once: files as they are, pipes by way of a temporary copy.

Enters: the path of IN. Leaves: a path that gives the same bytes each time. What never ends, or is no stream of bytes,
is refused.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from text2grad.errors import InvalidData, UsageError
from text2grad.runs import no_space_named


@contextmanager
def rereadable(source: Path) -> Iterator[Path]:
    """`source` itself; of a pipe (`<(…)`, /dev/stdin, a FIFO) a copy of the same name, which goes with the block."""
    try:
        mode = source.stat().st_mode
    except OSError as problem:
        raise InvalidData(f"{source}: should be a readable file of JSON lines: {problem.strerror}") from None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or source.resolve() == Path(os.devnull):
        yield source
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or _is_terminal(source)):
        raise UsageError(f"{source}: should be a file or a pipe, got a device; copy what it holds to a file first")
    with tempfile.TemporaryDirectory(prefix="text2grad-") as folder:
        copy = Path(folder) / source.name
        with no_space_named(copy), source.open("rb") as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file)
        yield copy


def _is_terminal(path: Path) -> bool:
    with path.open("rb", buffering=0) as stream:
        return stream.isatty()
