"""OUT and what lies beside it: where rejected lines go, and which files a stage may write over."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from text2grad.errors import InvalidData, UsageError
from text2grad.runs import encode_row, read_jsonl, write_atomic


def rejects_of(target: Path) -> Path:
    """`out.jsonl` → `out.rejected.jsonl`."""
    return target.with_name(f"{target.name.removesuffix('.jsonl')}.rejected.jsonl")


def check_target(source: Path | None, target: Path) -> None:
    """Refuse an OUT that would write over the input, or whose rejects would write over what is not ours."""
    if not target.name or target.is_dir():
        raise UsageError(f"{target}: should be a file to write to, got a folder")
    beside = rejects_of(target)
    for path in (target, beside):
        if source is not None and path.exists() and source.exists() and path.samefile(source):
            raise UsageError(f"would write over its own input {source}: name another OUT")
    if beside.exists() and not (beside.is_file() and _ours(beside)):
        raise UsageError(f"{beside} is in the way: it should be rejected lines of an earlier run; name another OUT")


def write_rejects(target: Path, rows: Iterable[dict[str, Any]]) -> None:
    """The rejected lines; without any, those of an earlier run go, for they speak of lines that have been mended."""
    lines = map(encode_row, rows)
    first = next(lines, None)
    if first is None:
        rejects_of(target).unlink(missing_ok=True)
    else:
        write_atomic(rejects_of(target), chain([first], lines))


def _ours(path: Path) -> bool:
    try:
        first = next(iter(read_jsonl(path)), None)
    except (InvalidData, OSError):
        return False
    return first is None or set(first) == {"line", "id", "reason"}
