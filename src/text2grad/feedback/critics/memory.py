"""Replies that have been paid for, in SQLite: the question's hash → the reply. Written as each arrives.

Enters: keys of questions (`key_of`). Leaves: replies. In write-ahead mode a commit survives `kill -9` of the process,
and several processes may share the file: whoever is about to ask `claim`s the question, so that the others wait for the
reply instead of paying for it, too. A claim ends with the reply, with the process that holds it, and at the latest
`LEASE` seconds after it was last renewed. Knows nothing of servers, prices or API keys; none comes near it.
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


class ReplyMemory(Closable):
    """A content-addressed store of replies.

    >>> import tempfile, pathlib
    >>> with ReplyMemory(pathlib.Path(tempfile.mkdtemp()) / "replies.sqlite") as memory:
    ...     key = key_of({"model": "m"})
    ...     memory.claim(key), memory.claim(key)
    ...     memory.keep(key, {"text": "Fine."})
    ...     memory.recall(key), memory.recall(key_of({"model": "n"}))
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

    def recall(self, key: str) -> dict[str, Any] | None:
        row = self._base.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def keep(self, key: str, reply: dict[str, Any]) -> None:
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
