"""The cache of responses: the hash of a question → the reply that was paid for, in SQLite, written as each arrives.

In write-ahead mode a commit survives `kill -9` of the process. Several processes may share the file: whoever is about
to ask `claim`s the question, so that the others wait for the reply instead of paying for it, too. A claim ends with the
reply, with the process that holds it, and at the latest `LEASE` seconds after it was last renewed. No API key comes
near the cache.
"""

import hashlib
import json
import os
import sqlite3
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from text2grad.errors import CriticError
from text2grad.runs import MACHINE, Closable, alive

LEASE = 120.0
"""Seconds that a claim holds without being renewed: longer than a process at work is ever silent."""
_SCHEMA_VERSION = 1
_TABLES = (
    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL) STRICT",
)


class ResponseCache(Closable):
    """A content-addressed store.

    >>> import tempfile, pathlib
    >>> with ResponseCache(pathlib.Path(tempfile.mkdtemp()) / "replies.sqlite") as cache:
    ...     key = key_of({"model": "m"})
    ...     cache.claim(key), cache.claim(key)
    ...     cache.put(key, {"text": "Fine."})
    ...     cache.get(key), cache.get(key_of({"model": "n"}))
    (True, False)
    ({'text': 'Fine.'}, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._holder = f"{MACHINE}-{os.getpid()}-{uuid.uuid4().hex}"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            for table in _TABLES:
                self._base.execute(table)
            version = self._base.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise CriticError(f"{self.path}: was written by another version of text2grad; name another file")
            if version == 0:
                self._base.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        except (sqlite3.Error, OSError) as problem:
            if hasattr(self, "_base"):
                self._base.close()
            raise CriticError(
                f"{self.path}: should be a cache of replies, or a place where one can be made: {problem}. Name another "
                f"file, or delete this one if it is not needed"
            ) from problem

    def get(self, key: str) -> dict[str, Any] | None:
        row = self._base.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Durable when it returns; the first reply to a question stays, and its claim ends."""
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            text = json.dumps(reply, ensure_ascii=True)
            self._base.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, text))
            self._base.execute("DELETE FROM claims WHERE key = ?", (key,))

    def claim(self, key: str) -> bool:
        """Whether the question is now ours to ask. Where it is not, somebody is asking it: look again a little later,
        for their reply first."""
        until = time.time() + LEASE
        held = self._base.execute("SELECT holder, until FROM claims WHERE key = ?", (key,)).fetchone()
        if held is None:
            taken = "INSERT OR IGNORE INTO claims VALUES (?, ?, ?)"
            return self._base.execute(taken, (key, self._holder, until)).rowcount == 1
        if not _stale(*held):
            return False
        over = "UPDATE claims SET holder = ?, until = ? WHERE key = ? AND holder = ? AND until = ?"
        return self._base.execute(over, (self._holder, until, key, *held)).rowcount == 1

    def renew(self) -> None:
        """Hold on to what is claimed. A base that is busy or full may end a claim early: somebody may pay twice."""
        with suppress(sqlite3.Error):
            self._base.execute("UPDATE claims SET until = ? WHERE holder = ?", (time.time() + LEASE, self._holder))

    def release(self, key: str | None = None) -> None:
        """Give up the claim on a question, or on all of them: nobody is asking any more."""
        if key is None:
            self._base.execute("DELETE FROM claims WHERE holder = ?", (self._holder,))
        else:
            self._base.execute("DELETE FROM claims WHERE key = ? AND holder = ?", (key, self._holder))

    def close(self) -> None:
        with suppress(sqlite3.Error):  # a disk that is full keeps no claim alive: they end with the process
            self.release()
        self._base.close()


def key_of(question: dict[str, Any]) -> str:
    """The same for the same content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(question, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _stale(holder: str, until: float) -> bool:
    """Whether who claimed is gone: known at once of a process of this machine, else when its time has run out."""
    machine, process, _ = holder.split("-")
    return until < time.time() or (machine == MACHINE and not alive(int(process)))
