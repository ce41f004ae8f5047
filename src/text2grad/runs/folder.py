"""Files that survive a kill: atomic writes, JSONL that heals, and the run folder made of them.

    RUN/
      config.yaml        the resolved settings
      metrics.jsonl      one row an update
      rollouts.jsonl     `Rollout` rows
      checkpoints/
        step-00000012/   complete, or not there at all; checksums.json has the sha256 of every file
      report.html        written by `text2grad report`
      .lock              held by the process that writes here

Enters: settings, plain rows, functions that write a checkpoint's files. Leaves: files. Knows nothing of what is in a
row or a checkpoint. A file is written aside, flushed to the disk and renamed, so a reader sees the old one or the new
one. A JSONL file grows by whole lines; what a kill leaves of the last line is cut off when the file is opened again.
"""

import errno
import glob
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from filelock import FileLock, Timeout

from text2grad import config
from text2grad.errors import InvalidData, RunError, RunLocked
from text2grad.runs.jsonl import parse_object

ASIDE = ".aside-"
"""Prefix of what is not finished; anything that carries it after a kill is rubbish."""
OURS = ("config.yaml", "run.json", "metrics.jsonl", "rollouts.jsonl")
"""What a run writes before its first update."""
CHECKSUMS = "checksums.json"
MOST_SHOWN = 20
"""Settings that a refusal lists at most."""


ALL = slice(None)


def write_atomic(path: str | Path, data: bytes | Iterable[bytes]) -> None:
    """Replace `path` by `data`, whole or not at all; the old content stays on any failure, a full disk included.

    A link stays a link: the file that it leads to is replaced. What is no file (a pipe, `/dev/stdout`) is written to as
    it is: there is nothing to replace.
    """
    path = Path(os.path.realpath(path))
    pieces = [data] if isinstance(data, bytes) else data
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as stream:
            stream.writelines(pieces)
        return
    if path.is_dir():
        raise RunError(f"{path}: should be a file to write to, but it is a folder")
    with aside(path) as scratch, scratch.open("wb") as file:
        file.writelines(pieces)
        _sync(file)


def check_target(path: str | Path) -> None:
    """Refuse a file that `write_atomic` could not write, before the work that makes its content."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise RunError(f"{path}: should be a file to write to, but it is a folder")
    if real.exists() and not real.is_file():
        return
    # Folders that are missing are made.
    parent = next(folder for folder in real.parents if folder.exists())
    if not parent.is_dir():
        raise RunError(f"{path}: cannot be written, because {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"{path}: cannot be written, because {parent} may not be written to")


def file_digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_checkpoint(folder: Path, part: slice = ALL) -> None:
    """Refuse a checkpoint of which a bit has changed since it was written. `part`: read these of its files only. That
    none is missing is checked in any case."""
    remedy = "delete this checkpoint folder to resume from the one before it"
    files = {file.name: file for file in folder.iterdir()}
    if CHECKSUMS not in files:
        raise RunError(
            f"{folder}: has no {CHECKSUMS}, so it is of an earlier version of text2grad, or the file was lost; resume "
            f"with that version, or {remedy}"
        )
    # What is no file, such as a pipe, would be waited for.
    damaged = sorted(name for name, file in files.items() if not file.is_file())
    if not damaged:
        try:
            sums: dict[str, str] = json.loads(files.pop(CHECKSUMS).read_bytes())
            damaged = sorted(sums.keys() ^ files.keys())
            damaged += [name for name in sorted(sums.keys() & files)[part] if sums[name] != file_digest(files[name])]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            damaged = [CHECKSUMS]
    if damaged:
        raise RunError(f"{folder}: is damaged, for {', '.join(damaged)} is not what was written; {remedy}")


def cache_folder() -> Path:
    """`TEXT2GRAD_CACHE`, else the user's cache folder."""
    if named := os.environ.get("TEXT2GRAD_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "text2grad"


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A scratch path beside `path` that takes its place when the block ends well, and is removed when it does not.

    The block makes a file or a folder there; it is flushed to the disk before the rename. A folder takes the place of
    nothing or of an empty folder only: what is complete is never replaced half by half.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_rubbish(path.parent, path.name)
    holder = Path(tempfile.mkdtemp(prefix=f"{ASIDE}{path.name}-{MACHINE}-{os.getpid()}-", dir=path.parent))
    try:
        with no_space_named(path):
            yield holder / path.name
            _sync_tree(holder / path.name)
            (holder / path.name).replace(path)
            _sync_folder(path.parent)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def clear_rubbish(folder: Path, name: str = "") -> None:
    """Remove what processes of this machine that are no more left unfinished in a folder, of one name or of any."""
    clear_left(folder, f"{ASIDE}{glob.escape(name) or '*'}")


def clear_left(folder: Path, names: str) -> None:
    """Remove folders `NAME-MACHINE-PROCESS-…` whose process was on this machine and is no more."""
    for left in folder.glob(f"{names}-{MACHINE}-*-*"):
        number = left.name.split("-")[-2]
        if number.isdecimal() and not alive(int(number)):
            shutil.rmtree(left, ignore_errors=True)


MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
"""Processes are known by their numbers on their own machine only; a folder may be shared by several."""


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def no_space_named(path: Path) -> Iterator[None]:
    """Turn the disk's refusals into an error that says where, and what is still intact."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(next(folder for folder in path.absolute().parents if folder.exists())).free
        raise RunError(
            f"the disk is full: could not write {path} ({free / 2**20:.0f} MiB free there). What was there before is "
            f"unchanged; free some space and run the same command again"
        ) from problem


class Closable:
    """Something that `with` closes."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lock(Closable):
    """One process at a time, by the kernel's lock on a file: gone when the process is. Closing removes the file."""

    def __init__(self, path: Path, busy: str | None) -> None:
        """`busy`: the words of the `RunLocked` that is raised where another process holds it; None: wait for it. A file
        that cannot be made is another matter: an `OSError`."""
        self._lock = FileLock(path, blocking=busy is None)
        try:
            self._lock.acquire()
        except Timeout:
            # Also raised where there is no making the file: see whether it can be opened.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT))
            raise RunLocked(busy) from None

    @property
    def held(self) -> bool:
        return self._lock.is_locked

    def close(self) -> None:
        if self.held:
            # Removed while it is held: filelock starts over where what it has locked is no longer there.
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()


class Jsonl(Closable):
    """A JSONL file that is appended to, one object a line.

    Opening it for appending cuts off a torn last line (a kill in the middle of a write) and remembers how many bytes
    that were in `healed`. `size` is a position to come back to with `rewind`, as a resume from a checkpoint must.

    >>> import tempfile, pathlib
    >>> from text2grad.runs import read_jsonl
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> _ = path.write_text('{"step": 1}\\n{"st')
    >>> with Jsonl(path) as rows:
    ...     rows.append([{"step": 2}])
    ...     rows.healed
    4
    >>> list(read_jsonl(path))
    [{'step': 1}, {'step': 2}]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        self.size = self._whole_lines()
        self.healed = self.path.stat().st_size - self.size
        if self.healed and _is_row(self._read(self.size)):
            # Whole but for its line end, as editors leave it: a row is never cut off.
            self._file.write(b"\n")
            _sync(self._file)
            self.size, self.healed = self.size + self.healed + 1, 0
        elif self.healed:
            self._cut(self.size)

    def append(self, rows: Iterable[Mapping[str, Any]], sync: bool = True) -> None:
        """Add whole lines and flush them to the disk; on a failure the file is as it was before the call. Without
        `sync` they are left to the system: that outlives the process, but not a power cut. `sync()` comes later."""
        data = b"".join(encode_row(row) for row in rows)
        try:
            with no_space_named(self.path):
                self._file.write(data)
                _sync(self._file) if sync else self._file.flush()
        except BaseException:
            with suppress(OSError):  # closing tries to write what is left
                self._file.close()
            self._file = self.path.open("a+b")
            self._cut(self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Flush to the disk what was appended without."""
        with no_space_named(self.path):
            _sync(self._file)

    def rewind(self, size: int) -> None:
        """Forget everything after the first `size` bytes, which must be a position that `size` once gave."""
        if not 0 <= size <= self.size or (size and self._read(size - 1, 1) != b"\n"):
            raise RunError(
                f"{self.path}: cannot go back to byte {size}: the file has {self.size} bytes, or no line ends there, "
                f"so it was changed; put it back, or choose another folder"
            )
        if size < self.size:
            self._cut(size)
        self.size = size

    def close(self) -> None:
        self._file.close()

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        _sync(self._file)

    def _read(self, start: int, count: int = -1) -> bytes:
        self._file.seek(start)
        return self._file.read(count)

    def _whole_lines(self) -> int:
        """Bytes up to the last line end, looked for from the end: reopening a large file is quick."""
        end = self._file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            found = self._read(start, end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0


def encode_row(row: Mapping[str, Any]) -> bytes:
    """One line of JSON in UTF-8. Characters that JSON allows but editors take for line ends are escaped."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as problem:
        raise InvalidData(f"a row should hold finite numbers and plain values only: {problem}") from None
    for character in "\x85\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair, from somebody's file: UTF-8 cannot hold it, JSON's escapes can.
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def _is_row(line: bytes) -> bool:
    try:
        parse_object(line)
    except InvalidData:
        return False
    return True


class RunFolder(Closable):
    """A run folder, held by this process until it is closed or the process ends, however it ends.

    Opening an existing folder resumes it if the settings match.
    """

    def __init__(self, path: str | Path, settings: Any, keep_checkpoints: int = 3, free: Collection[str] = ()) -> None:
        """`free`: dotted keys of settings that may differ from those that the run began with."""
        self.path, self.keep_checkpoints = Path(path), keep_checkpoints
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: should be a folder for the run, but it is a file; choose another name")
        self._made_folder = not self.path.exists()
        self._holder = self.path / ".lock-holder"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            holder = self._holder.read_text(encoding="utf-8") if self._holder.exists() else "another process"
            self._lock = Lock(
                self.path / ".lock",
                f"{self.path} is in use by {holder}; wait for it, stop it, or choose another folder for this run",
            )
            self._open(settings, free)
        except OSError as problem:
            raise RunError(f"{self.path}: cannot be used as a run folder ({problem}); choose another one") from problem

    def _open(self, settings: Any, free: Collection[str]) -> None:
        # Looked at under the lock: another process may have written here until then.
        self._found = {name for name in OURS if os.path.lexists(self.path / name)}
        self._config: bytes | None = None
        try:
            write_atomic(self._holder, f"process {os.getpid()} on {socket.gethostname()}".encode())
            if "config.yaml" in self._found:
                self._config = (self.path / "config.yaml").read_bytes()
            clear_rubbish(self.path)
            clear_rubbish(self.path / "checkpoints")
            self._settle(settings, free)
            self.metrics = Jsonl(self.path / "metrics.jsonl")
            self.rollouts = Jsonl(self.path / "rollouts.jsonl")
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        """Leave the folder as it was found, and let go of it. What was there before is somebody's."""
        config_file = self.path / "config.yaml"
        if self._config is not None and config_file.read_bytes() != self._config:
            write_atomic(config_file, self._config)
        for name in OURS:
            if name not in self._found:
                (self.path / name).unlink(missing_ok=True)
        self._let_go()
        if self._made_folder:
            # What else lies there is not ours.
            with suppress(OSError):
                self.path.rmdir()

    def _let_go(self) -> None:
        if self._lock.held:
            self._holder.unlink(missing_ok=True)
            self._lock.close()

    def save_checkpoint(self, step: int, write: Callable[[Path], Mapping[str, str] | None]) -> Path:
        """Let `write` fill a folder; it appears under its name only when complete. Then drop the oldest ones. What
        `write` gives are checksums that it has taken already."""
        if step < 0 or not self._lock.held:
            raise RunError(f"{self.path}: a checkpoint wants a step from 0 on and an open run folder, got step {step}")
        path = self.path / "checkpoints" / f"step-{step:08d}"
        if path.exists():
            raise RunError(f"{path}: this checkpoint exists already; a step is saved once")
        with aside(path) as scratch:
            scratch.mkdir()
            known = write(scratch) or {}
            sums = {file.name: known.get(file.name) or file_digest(file) for file in sorted(scratch.iterdir())}
            (scratch / CHECKSUMS).write_text(json.dumps(sums))
        self.prune(path)
        return path

    def prune(self, newest: Path | None = None) -> None:
        """Drop all checkpoints but the last ones and the `newest`."""
        for old in self.checkpoints()[: -self.keep_checkpoints]:
            if old != newest:
                shutil.rmtree(old)

    def checkpoints(self) -> list[Path]:
        """The complete ones, oldest first."""
        found = [path for path in (self.path / "checkpoints").glob("step-*") if path.name[5:].isdecimal()]
        return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name[5:]))

    def latest_checkpoint(self) -> Path | None:
        return next(reversed(self.checkpoints()), None)

    def close(self) -> None:
        self.metrics.close()
        self.rollouts.close()
        self._let_go()

    def abandon(self) -> None:
        """Close it as if it had never been opened: only what this run made is removed."""
        self.metrics.close()
        self.rollouts.close()
        if self._lock.held:
            self._undo()

    def _settle(self, settings: Any, free: Collection[str]) -> None:
        """Write the settings of a new run; of an old one, insist that they are the same, but for the free ones."""
        path = self.path / "config.yaml"
        wanted = config.plain(settings)
        if not path.exists():
            write_atomic(path, config.dump(settings).encode())
            return
        # A setting that an older version did not know was what its default says.
        there = config.flat(config.plain(type(settings)())) | config.flat(config.read(path, type(settings)))
        changed = [
            f"  {key}: {there.get(key)!r} there, {value!r} now"
            for key, value in config.flat(wanted).items()
            if there.get(key) != value and key not in free
        ]
        changed += [
            f"  {key}: {value!r} there, unknown now" for key, value in there.items() if key not in config.flat(wanted)
        ]
        if len(changed) > MOST_SHOWN:
            changed[MOST_SHOWN:] = [f"  … and {len(changed) - MOST_SHOWN} more"]
        if changed:
            raise RunError(
                f"{self.path} holds a run with other settings; choose another folder, or the settings it began with:\n"
                + "\n".join(changed)
            )
        if config.flat(config.read(path)) != config.flat(wanted):
            write_atomic(path, config.dump(settings).encode())


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for below in path.iterdir():
            _sync_tree(below)
        _sync_folder(path)
    else:
        with path.open("rb+") as file:
            _sync(file)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
