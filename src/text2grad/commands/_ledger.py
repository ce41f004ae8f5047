"""The books of an annotation: which line is done, where its result lies, and whether a file is ours to go on with.

OUT.jsonl.partial    a header, then one entry a line of the input, in order; appended durably
OUT.jsonl.spent      what model critics have cost so far, in all runs (`_spent.py`)
OUT.jsonl            written whole when all is done
OUT.rejected.jsonl   likewise, where there is anything to put into it
OUT.receipt.json     what made them, and their hashes: a rerun of the same finds nothing to do
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from text2grad import __version__, config
from text2grad.commands._lock import Lock
from text2grad.commands._rejects import rejects_of, write_rejects
from text2grad.errors import InvalidData, RunError, RunLocked, UsageError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.annotate import Unannotated, annotate, reject
from text2grad.feedback.critics.named import models_in
from text2grad.feedback.critics.protocol import Critic
from text2grad.runs import Closable, Jsonl, encode_row, read_jsonl, write_atomic

Items = Callable[[], Iterator[tuple[int, bytes | Unannotated]]]
"""Reads the input from its beginning: (ascending number, line or why it is none)."""
Entry = dict[str, Any]
"""`{"line": n, "row": {…}}` or `{"line": n, "rejected": {…}}`."""


def receipt_of(target: Path) -> Path:
    """`out.jsonl` → `out.receipt.json`."""
    return target.with_name(f"{target.name.removesuffix('.jsonl')}.receipt.json")


def check_files(target: Path) -> None:
    """Refuse an OUT, or something in the place of its books, that is no file: a pipe would be waited for, for ever."""
    beside = (f"{target.name}.partial", f"{target.name}.spent", rejects_of(target).name, receipt_of(target).name)
    for path in (target, *map(target.with_name, beside)):
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: should be a file, for it is read again; name another OUT, or move this away")


class Ledger(Closable):
    """One annotation of one file, held by one process. `identity` is what its result depends on."""

    def __init__(self, source: Path, target: Path, identity: Mapping[str, Any], items: Items) -> None:
        self.target, self.items = target, items
        digest, self.characters = _survey(source)
        self.lines = sum(1 for _ in items())
        self.header = {"text2grad": "annotate", "input_sha256": digest, **identity}
        self.partial = target.with_name(f"{target.name}.partial")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = Lock(target.with_name(f".{target.name}.lock"))
        except BlockingIOError:
            raise RunLocked(f"{target} is being written by another process; wait for it, or name another OUT") from None
        try:
            self.finished = self._check_target()
            self.last_line, self.done, self.rejected = self._count_partial()
            self._rows = None if self.finished else self._open_partial()
        except BaseException:
            self._lock.close()
            raise

    async def work(self, critic: Critic, settings: AlignSettings, batch: int, told: Callable[[int], None]) -> None:
        """Judge what is left, batch by batch. What is done when this stops, however it stops, stays done."""
        assert self._rows is not None
        async with AsyncExitStack() as stack:
            for model in models_in(critic):
                await stack.enter_async_context(model)
            left = ((number, item) for number, item in self.items() if number > self.last_line)
            while lines := list(islice(left, batch)):
                entries = await _entries(lines, critic, settings)
                self._rows.append(entries)
                self.done += len(entries)
                self.rejected += sum("rejected" in entry for entry in entries)
                told(self.done)

    def finish(self, notes: Mapping[str, Any]) -> None:
        """Write the finished files from the partial one. Killed in between, the next run does it again."""
        write_atomic(self.target, (encode_row(entry["row"]) for entry in self._entries() if "row" in entry))
        write_rejects(self.target, (entry["rejected"] for entry in self._entries() if "rejected" in entry))
        receipt = {
            **self.header,
            "version": __version__,
            "annotated": self.done - self.rejected,
            "rejected": self.rejected,
            "output_sha256": _survey(self.target)[0],
            **notes,
        }
        write_atomic(receipt_of(self.target), json.dumps(receipt, indent=2, ensure_ascii=False).encode() + b"\n")
        self.close_partial()
        self.partial.unlink()

    def close_partial(self) -> None:
        if self._rows is not None:
            self._rows.close()

    def close(self) -> None:
        self.close_partial()
        self._lock.close()

    def _check_target(self) -> bool:
        """Whether OUT is this very annotation, finished. Anything else that is in the way is refused, never written
        over."""
        receipt = receipt_of(self.target)
        said = _read_receipt(receipt)
        if receipt.exists() and said is None:
            raise RunError(f"{receipt} is in the way: it is no receipt of an annotation; name another OUT")
        if not self.target.exists():
            return False
        found = _survey(self.target)[0]
        if said and {**said, **self.header} == said and said.get("output_sha256") == found:
            self.partial.unlink(missing_ok=True)
            return True
        if self.partial.exists() and self._made_from_partial(found):
            # Killed after OUT was written and before its receipt was: both are made again.
            return False
        raise RunError(
            f"{self.target} exists, and is not the result of this input with these settings"
            f"{_changed(said, self.header)}; name another OUT, or delete it together with {receipt.name}"
        )

    def _made_from_partial(self, found: str) -> bool:
        digest = hashlib.sha256()
        try:
            for entry in self._entries():
                digest.update(encode_row(entry["row"]) if "row" in entry else b"")
        except (InvalidData, OSError):
            return False
        return digest.hexdigest() == found

    def _count_partial(self) -> tuple[int, int, int]:
        """(last line done, lines done, lines rejected); a partial file of anything else is refused."""
        if self.finished:
            said = json.loads(receipt_of(self.target).read_text(encoding="utf-8"))
            return 0, said["annotated"] + said["rejected"], said["rejected"]
        if not self.partial.exists() or not self.partial.stat().st_size:
            return 0, 0, 0
        with self.partial.open("rb") as file:
            first = file.readline()
            begun = bool(file.readline())
        there = _read_header(first)
        foreign = RunError(
            f"{self.partial} is what another annotation left unfinished{_changed(there, self.header)}; finish that one "
            f"as it was begun, delete the file to begin anew, or name another OUT"
        )
        if there is not None and not begun and there != self.header:
            # Its header is all there is: nothing is lost by beginning anew.
            self.partial.unlink()
            return 0, 0, 0
        if not encode_row(self.header).startswith(first):
            raise foreign
        last = done = rejected = 0
        try:
            for entry in self._entries():
                last, done, rejected = entry["line"], done + 1, rejected + ("rejected" in entry)
        except (InvalidData, KeyError, OSError):
            raise foreign from None
        return last, done, rejected

    def _open_partial(self) -> Jsonl:
        rows = Jsonl(self.partial)
        if rows.size == 0:
            rows.append([self.header])
        return rows

    def _entries(self) -> Iterator[Entry]:
        return islice(read_jsonl(self.partial), 1, None)


def _read_receipt(path: Path) -> dict[str, Any] | None:
    try:
        return _read_header(path.read_bytes())
    except OSError:
        return None


def _read_header(data: bytes) -> dict[str, Any] | None:
    """What a receipt or the first line of a partial file says; None where it is none of ours."""
    try:
        said = json.loads(data)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("text2grad") == "annotate" else None


def _changed(there: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    """In brackets, what differs between two annotations; nothing where one of them is not known."""
    if there is None:
        return ""
    before, after = (
        config.flat({key: said.get(key) or {} for key in ("settings", "critics")}) for said in (there, now)
    )
    differing = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    parts = ["another input"] if there.get("input_sha256") != now.get("input_sha256") else []
    parts += [f"the source of the critic {key[8:]} has changed" for key in differing if key.startswith("critics.")]
    parts += [f"other {key}" for key in differing if key.startswith("settings.")]
    return f" ({', '.join(parts)})" if parts else ""


async def _entries(
    lines: Sequence[tuple[int, bytes | Unannotated]], critic: Critic, settings: AlignSettings
) -> list[Entry]:
    found = await annotate([line for _, line in lines], critic, settings)
    return [
        {"line": number, "row": result}
        if isinstance(result, dict)
        else {"line": number, "rejected": reject(number, result)}
        for (number, _), result in zip(lines, found, strict=True)
    ]


def identity_of(options: Any, free: Sequence[str], sources: Mapping[str, str]) -> dict[str, Any]:
    """What a result depends on beside the input: the settings as plain values, without those that change only how, not
    what (a rerun may change them), and the hashes of the critics' own `sources`, where there are any."""
    tree = config.plain(options)
    for key in free:
        *above, last = key.split(".")
        branch = tree
        for part in above:
            branch = branch[part]
        branch.pop(last)
    return {"settings": tree} | ({"critics": dict(sources)} if sources else {})


def _survey(path: Path) -> tuple[str, int]:
    """(sha256, bytes) of a file."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size
    except OSError as problem:
        raise InvalidData(f"{path}: should be a readable file of JSON lines: {problem.strerror}") from None
