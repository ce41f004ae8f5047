"""The books of an output file that is made row by row: what is done, and whether the files there are ours to resume.

OUT.jsonl.partial    a header, then one entry per input item, in order; appended durably
OUT.rejected.jsonl   written when all is done, if anything was rejected: {"line", "id", "reason"}
OUT.receipt.json     what made OUT.jsonl, and its hash: a rerun of the same finds nothing to do
OUT.jsonl            written last, whole

The ledger keeps books. It knows no critics and does no work.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from text2grad import __version__, config
from text2grad.errors import InvalidData, RunError, UsageError
from text2grad.runs.folder import Closable, Jsonl, Lock, encode_row, file_digest, write_atomic
from text2grad.runs.jsonl import read_jsonl

Entry = dict[str, Any]
"""`{"line": n, "row": {…}}` or `{"line": n, "rejected": {…}}`; n is the item's number in the input."""


class Ledger(Closable):
    """One output made from one input, by one process at a time. `identity` is what the result depends on."""

    def __init__(self, source: Path | None, target: Path, identity: Mapping[str, Any]) -> None:
        """`source`: the input's file; None where the identity says what the input is."""
        self.target = target
        self.partial = target.with_name(f"{target.name}.partial")
        for path in (target, self.partial, receipt_of(target)):
            # A pipe would be waited for, for ever.
            if path.exists() and not path.is_file():
                raise UsageError(f"{path}: should be a file, for it is read again; name another OUT, or move this away")
        self.header = {
            "text2grad": "annotate",
            **({"input_sha256": _digest(source)} if source is not None else {}),
            **identity,
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        busy = f"{target} is being written by another process; wait for it, or name another OUT"
        try:
            self._lock = Lock(target.with_name(f".{target.name}.lock"), busy)
        except OSError as problem:
            raise RunError(f"{target.parent}: cannot be written to ({problem.strerror}); name another OUT") from None
        self._rows: Jsonl | None = None
        self.last = self.done = self.rejected = 0
        """Number of the last item that is done; items done; items rejected, among these."""
        try:
            self.finished = self._is_finished()
            if not self.finished:
                self._resume()
        except BaseException:
            self.close()
            raise

    def append(self, entries: list[Entry]) -> None:
        """Results of the next items, in order. They stay, whatever happens after this call."""
        assert self._rows is not None
        self._rows.append(entries)
        self._count(entries)

    def finish(self, notes: Mapping[str, Any]) -> None:
        """Write the finished files. Killed in between, the next run does it again: OUT comes last."""
        digest = hashlib.sha256()
        for line in self._lines():
            digest.update(line)
        counts = {"annotated": self.done - self.rejected, "rejected": self.rejected}
        receipt = self.header | {"version": __version__} | counts | {"output_sha256": digest.hexdigest()} | dict(notes)
        write_rejects(self.target, (entry["rejected"] for entry in self._entries() if "rejected" in entry))
        write_atomic(receipt_of(self.target), json.dumps(receipt, indent=2, ensure_ascii=False).encode() + b"\n")
        write_atomic(self.target, self._lines())
        self.close_partial()
        self.partial.unlink()

    def close_partial(self) -> None:
        if self._rows is not None:
            self._rows.close()

    def close(self) -> None:
        self.close_partial()
        self._lock.close()

    def _is_finished(self) -> bool:
        """Whether OUT is this very result, finished. Anything else in the way is refused, never written over."""
        path = receipt_of(self.target)
        receipt = _header(path.read_bytes()) if path.exists() else None
        if receipt is None and path.exists():
            raise RunError(f"{path} is in the way: it is no receipt of an annotation; name another OUT")
        if not self.target.exists():
            return False
        if receipt is None or receipt | self.header != receipt or receipt.get("output_sha256") != _digest(self.target):
            raise RunError(
                f"{self.target} exists, and is not the result of this input with these settings"
                f"{_changed(receipt, self.header)}; name another OUT, or delete it together with {path.name}"
            )
        self.partial.unlink(missing_ok=True)
        self.done, self.rejected = receipt["annotated"] + receipt["rejected"], receipt["rejected"]
        return True

    def _resume(self) -> None:
        """Count what the partial file holds, and open it for more; one of anything else is refused."""
        first, more = b"", False
        if self.partial.exists():
            with self.partial.open("rb") as file:
                first, more = file.readline(), bool(file.readline())
        # What a kill left of our own header is a beginning of it.
        if not encode_row(self.header).startswith(first):
            header = _header(first)
            foreign = RunError(
                f"{self.partial} is what another annotation left unfinished{_changed(header, self.header)}; finish "
                f"that one as it was begun, delete the file to begin anew, or name another OUT"
            )
            if header is None or more:
                raise foreign
            self.partial.unlink()  # a header is all there is: nothing is lost
        elif first:
            self._count(self._entries())
        self._rows = Jsonl(self.partial)
        if self._rows.size == 0:
            self._rows.append([self.header])

    def _count(self, entries: Iterable[Entry]) -> None:
        try:
            for entry in entries:
                self.last, self.done = entry["line"], self.done + 1
                self.rejected += "rejected" in entry
        except (InvalidData, KeyError) as problem:
            raise RunError(
                f"{self.partial} cannot be resumed: {problem}; delete the file to begin anew, or name another OUT"
            ) from None

    def _entries(self) -> Iterator[Entry]:
        return islice(read_jsonl(self.partial), 1, None)

    def _lines(self) -> Iterator[bytes]:
        return (encode_row(entry["row"]) for entry in self._entries() if "row" in entry)


def receipt_of(target: Path) -> Path:
    """`out.jsonl` → `out.receipt.json`."""
    return target.with_name(f"{target.name.removesuffix('.jsonl')}.receipt.json")


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
    if beside.exists() and not (beside.is_file() and _are_rejects(beside)):
        raise UsageError(f"{beside} is in the way: it should be rejected lines of an earlier run; name another OUT")


def write_rejects(target: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the rejected rows. If there are none, those of an earlier run are deleted: they no longer hold."""
    lines = map(encode_row, rows)
    first = next(lines, None)
    if first is None:
        rejects_of(target).unlink(missing_ok=True)
    else:
        write_atomic(rejects_of(target), chain([first], lines))


def _are_rejects(path: Path) -> bool:
    try:
        first = next(read_jsonl(path), None)
    except (InvalidData, OSError):
        return False
    return first is None or set(first) == {"line", "id", "reason"}


def _header(data: bytes) -> dict[str, Any] | None:
    """What a receipt or the first line of a partial file says; None where it is none of ours."""
    try:
        header = json.loads(data)
    except ValueError:
        return None
    return header if isinstance(header, dict) and header.get("text2grad") == "annotate" else None


def _changed(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    """In brackets, what differs between two headers; nothing where one of them is not known."""
    if before is None:
        return ""
    kept = ("settings", "critics")
    old, new = (config.flat({key: header.get(key) or {} for key in kept}) for header in (before, now))
    differing = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    parts = ["another input"] if before.get("input_sha256") != now.get("input_sha256") else []
    if "settings.task" not in differing and before.get("task_sha256") != now.get("task_sha256"):
        parts.append(f"the rows of the task {new.get('settings.task')} have changed")
    if "settings.critic" in differing:
        differing.remove("settings.critic")
        parts.append(f"another critic: {old.get('settings.critic')} then, {new.get('settings.critic')} now")
    # Of one that only one of them has, nothing has changed: it is another critic.
    sources = [key for key in differing if key.startswith("critics.") and key in old and key in new]
    parts += [f"the source of the critic {key[8:]} has changed" for key in sources]
    parts += [f"other {key}" for key in differing if key.startswith("settings.")]
    return f" ({', '.join(parts)})" if parts else ""


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as problem:
        raise InvalidData(f"{path}: should be a readable file of JSON lines: {problem.strerror}") from None
