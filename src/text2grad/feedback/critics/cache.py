"""The cache of responses: the hash of a question → the reply that was paid for, in SQLite, written as each arrives.

In write-ahead mode a commit survives `kill -9` of the process, and several processes may share the file. No API key
comes near it.
"""

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from text2grad.errors import CriticError, RunError
from text2grad.runs import Closable

_SCHEMA_VERSION = 1
_LEAST_SPACE = 1 << 16
"""Bytes: SQLite's shared memory takes the half of it."""


class ResponseCache(Closable):
    """
    >>> import tempfile, pathlib
    >>> with ResponseCache(pathlib.Path(tempfile.mkdtemp()) / "replies.sqlite") as cache:
    ...     cache.put(key_of({"model": "m"}), {"text": "Fine."})
    ...     cache.get(key_of({"model": "m"})), cache.get(key_of({"model": "n"}))
    ({'text': 'Fine.'}, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) STRICT")
            version = self._base.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise CriticError(f"{self.path}: was written by another version of text2grad; name another file")
            if version == 0:
                self._base.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        # A path of a thousand folders is too deep for `mkdir`.
        except (sqlite3.Error, OSError, RecursionError) as problem:
            if hasattr(self, "_base"):
                self._base.close()
            if self._full():
                raise RunError(
                    f"{self.path}: the disk is full, so the cache of replies cannot be opened ({problem}). Free some "
                    f"space there, or name another file with critics.openai.cache; then run the same command again"
                ) from problem
            raise CriticError(
                f"{str(self.path)[:300]}: should be a cache of replies, or a place where one can be made: {problem}. "
                f"Name another file, or delete this one if it is not needed"
            ) from problem

    def get(self, key: str) -> dict[str, Any] | None:
        row = self._base.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Durable when it returns; the first reply to a question stays."""
        try:
            self._base.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, json.dumps(reply)))
        except sqlite3.OperationalError as problem:
            # Not a `CriticError`: a reply that cannot be kept is not asked for again.
            why = "database or disk is full" if self._full() else str(problem)
            raise RunError(
                f"{self.path}: a reply that is paid for could not be kept ({why}). Free some space there, or name "
                f"another file with critics.openai.cache; then run the same command again"
            ) from problem

    def _full(self) -> bool:
        """SQLite calls some failures for want of space a `disk I/O error`."""
        try:
            return shutil.disk_usage(self.path.parent).free < _LEAST_SPACE
        except OSError:
            return False

    def close(self) -> None:
        self._base.close()


def key_of(question: dict[str, Any]) -> str:
    """The same for the same content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
