"""Everything people do, in one database: SQLite in the studio's folder, or PostgreSQL by its URL; the same SQL.

Enters: plain values. Leaves: rows as dicts. A change and the events that tell of it are one transaction; transactions
that write come one after the other, so event numbers grow in the order in which changes become visible. Texts of people
and models lie in `body` as JSON with escapes, so that no character of theirs can trouble a database. Knows neither HTTP
nor models.
"""

import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import EllipsisType
from typing import Any

from text2grad.errors import InvalidData, MissingExtra, RunError, UsageError, first_line
from text2grad.secrets import hidden

Row = dict[str, Any]
KEPT_EVENTS = 2000
LASTS = 90 * 86400
"""Seconds that a session lasts."""
TRIES = 2
"""How often a job is begun before a dying worker is taken to be the job's fault."""
_LOCK = 0x7E2796AD
"""PostgreSQL's advisory lock under which a studio writes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, name TEXT, time DOUBLE PRECISION NOT NULL);
CREATE TABLE IF NOT EXISTS prompts (
  id SERIAL, place BIGINT NOT NULL, shuffled DOUBLE PRECISION NOT NULL, author TEXT,
  uncertainty DOUBLE PRECISION, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS completions (
  id SERIAL, prompt BIGINT NOT NULL, version BIGINT NOT NULL, time DOUBLE PRECISION NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS completions_of ON completions (prompt, version);
CREATE TABLE IF NOT EXISTS critiques (
  id SERIAL, completion BIGINT NOT NULL, prompt BIGINT NOT NULL, author TEXT NOT NULL, version BIGINT NOT NULL,
  place BIGINT NOT NULL, deleted BIGINT NOT NULL, time DOUBLE PRECISION NOT NULL, body TEXT NOT NULL,
  UNIQUE (completion, author));
CREATE INDEX IF NOT EXISTS critiques_of ON critiques (prompt);
CREATE TABLE IF NOT EXISTS edits (
  critique BIGINT NOT NULL, place BIGINT NOT NULL, deleted BIGINT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (critique, place));
CREATE TABLE IF NOT EXISTS jobs (
  id SERIAL, kind TEXT NOT NULL, state TEXT NOT NULL, author TEXT, prompt BIGINT, tries BIGINT NOT NULL,
  cancel BIGINT NOT NULL, time DOUBLE PRECISION NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_in ON jobs (state);
CREATE TABLE IF NOT EXISTS versions (
  version BIGINT PRIMARY KEY, parent BIGINT, time DOUBLE PRECISION NOT NULL, body TEXT NOT NULL,
  comparison TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (id SERIAL, kind TEXT NOT NULL, body TEXT NOT NULL)
"""

_VERSIONS = "SELECT version, parent, time, body FROM versions"


class Store:
    """One database, used from any thread and from several processes."""

    def __init__(self, place: str | Path, *, new: bool = True) -> None:
        """`place`: a file of SQLite's, or a URL of PostgreSQL's. `new`: whether what is not there is made."""
        self.place = str(place)
        self.postgres = self.place.startswith(("postgresql:", "postgres:"))
        self._mine = threading.local()
        """The connection of this thread's transaction."""
        self._free: list[Any] = []
        """Connections that nobody uses now."""
        self._new = new
        if new:
            self._make_tables()

    # ------------------------------------------------------------------------------------------ the two databases

    def _make_tables(self) -> None:
        serial = (
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY" if self.postgres else "INTEGER PRIMARY KEY AUTOINCREMENT"
        )
        with self.writing():
            for statement in _SCHEMA.split(";"):
                self._run(statement.replace("SERIAL", serial))

    @contextmanager
    def _borrowed(self) -> Iterator[Any]:
        """A connection for one statement; inside `writing`, that of the transaction. One that was lost is dropped."""
        if (mine := getattr(self._mine, "connection", None)) is not None:
            yield mine
            return
        link = self._free.pop() if self._free else self._connect()
        try:
            yield link
        finally:
            if not getattr(link, "closed", False):
                self._free.append(link)

    def _connect(self) -> Any:
        if not self.postgres:
            try:
                made = sqlite3.connect(self.place, timeout=60, isolation_level=None, check_same_thread=False)
                made.row_factory = sqlite3.Row
                made.execute("PRAGMA journal_mode=WAL")
                made.execute("PRAGMA synchronous=FULL")
            except sqlite3.Error as problem:
                raise RunError(f"{self.place}: cannot be used as the studio's store ({problem})") from None
            return made
        try:
            import psycopg
            from psycopg.rows import dict_row
        except ModuleNotFoundError as problem:
            raise MissingExtra.of(problem, "a store in PostgreSQL") or problem from None
        try:
            link = psycopg.connect(self.place, autocommit=True, row_factory=dict_row, connect_timeout=10)
            if self._new:
                link.execute("CREATE SCHEMA IF NOT EXISTS text2grad_studio")
            link.execute("SET search_path TO text2grad_studio")
        except psycopg.Error as problem:
            raise UsageError(
                f"--store should name a PostgreSQL server that answers, as postgresql://user@host/name; it says: "
                f"{hidden(first_line(problem), message=True)}"
            ) from None
        return link

    def _run(self, statement: str, *values: Any) -> list[Row]:
        with self._borrowed() as link:
            if self.postgres:
                found = link.execute(statement.replace("?", "%s"), values)
                return list(found.fetchall()) if found.description else []
            return [dict(row) for row in link.execute(statement, values).fetchall()]

    def _retried(self, statement: str, *values: Any) -> list[Row]:
        """PostgreSQL was started again, or a proxy has closed idle connections: these are dropped, one after the
        other, until a new one is made."""
        while True:
            idle = len(self._free)
            try:
                return self._run(statement, *values)
            except Exception:
                if not self.postgres or not idle or len(self._free) == idle:
                    raise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All or nothing; no other writer in between. One inside another is part of it."""
        if getattr(self._mine, "connection", None) is not None:
            yield
            return
        self._retried("SELECT 1")  # leaves a connection that answers on top
        with self._borrowed() as link:
            self._mine.connection = link
            try:
                self._run("BEGIN" if self.postgres else "BEGIN IMMEDIATE")
                if self.postgres:
                    self._run("SELECT pg_advisory_xact_lock(?)", _LOCK)
                yield
                self._run("COMMIT")
            except BaseException:
                if self._in_transaction(link):
                    self._run("ROLLBACK")
                raise
            finally:
                self._mine.connection = None

    def _in_transaction(self, link: Any) -> bool:
        if self.postgres:
            return not link.closed
        return bool(link.in_transaction)

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Rows with their `body` opened."""
        inside = getattr(self._mine, "connection", None) is not None
        found = (self._run if inside else self._retried)(statement, *values)
        return [row | json.loads(row.pop("body")) if "body" in row else row for row in found]

    def one(self, statement: str, *values: Any) -> Row | None:
        return next(iter(self.rows(statement, *values)), None)

    def tell(self, kind: str, **data: Any) -> None:
        """An event for everybody's page; inside `writing`."""
        ((event),) = self._run("INSERT INTO events (kind, body) VALUES (?, ?) RETURNING id", kind, json.dumps(data))
        if event["id"] % 100 == 0:
            self._run("DELETE FROM events WHERE id <= ?", event["id"] - KEPT_EVENTS)

    def events(self, after: int) -> list[Row]:
        return self._run("SELECT id, kind, body FROM events WHERE id > ? ORDER BY id LIMIT 500", after)

    def last_event(self) -> int:
        return int(self._run("SELECT COALESCE(MAX(id), 0) AS id FROM events")[0]["id"])

    # ------------------------------------------------------------------------------------------ small facts

    def get(self, name: str, default: Any = None) -> Any:
        row = self.one("SELECT body FROM meta WHERE name = ?", name)
        return default if row is None else row["value"]

    def studio(self) -> str | None:
        """The id of the studio that this store is of; None where it is of none, or has no tables."""
        there = (
            "SELECT 1 FROM information_schema.tables WHERE table_schema = 'text2grad_studio' AND table_name = 'meta'"
            if self.postgres
            else "SELECT 1 FROM sqlite_master WHERE name = 'meta'"
        )
        return self.get("studio") if self._run(there) else None

    def put(self, name: str, value: Any) -> None:
        self._run(
            "INSERT INTO meta (name, body) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET body = excluded.body",
            name,
            json.dumps({"value": value}),
        )

    # ------------------------------------------------------------------------------------------ prompts, completions

    def add_prompts(self, examples: Sequence[Mapping[str, Any]], author: str | None = None) -> list[int]:
        """Examples as JSON, with `given` completions where there are any; gives their ids."""
        drawn = random.Random()
        made = []
        with self.writing():
            place = self._run("SELECT COALESCE(MAX(place), 0) AS place FROM prompts")[0]["place"]
            for number, example in enumerate(examples, 1):
                (row,) = self._run(
                    "INSERT INTO prompts (place, shuffled, author, body) VALUES (?, ?, ?, ?) RETURNING id",
                    *(place + number, drawn.random(), author, json.dumps(example)),
                )
                made.append(int(row["id"]))
            self.tell("queue", added=len(made))
        return made

    def prompt(self, number: int) -> Row:
        return self._there(self.one("SELECT * FROM prompts WHERE id = ?", number), "prompt", number)

    def remove_prompts(self, first: int, last: int, author: str) -> tuple[int, int]:
        """(prompts taken out, prompts left) of those that this person brought, by their ids. What somebody has written
        about stays, also what was deleted: that can be undone."""
        mine = "FROM prompts WHERE id BETWEEN ? AND ? AND author = ?"
        free = f"{mine} AND id NOT IN (SELECT prompt FROM critiques)"
        with self.writing():
            asked = (first, last, author)
            gone = int(self._run(f"SELECT COUNT(*) AS count {free}", *asked)[0]["count"])
            self._run(f"DELETE FROM completions WHERE prompt IN (SELECT id {free})", *asked)
            self._run(f"DELETE FROM jobs WHERE state = 'queued' AND prompt IN (SELECT id {free})", *asked)
            self._run(f"DELETE {free}", *asked)
            left = int(self._run(f"SELECT COUNT(*) AS count {mine}", *asked)[0]["count"])
            self.tell("queue", removed=gone)
        return gone, left

    def completion(self, number: int) -> Row:
        return self._there(self.one("SELECT * FROM completions WHERE id = ?", number), "completion", number)

    def completions(self, prompt: int, version: int) -> list[Row]:
        return self.rows("SELECT * FROM completions WHERE prompt = ? AND version = ? ORDER BY id", prompt, version)

    def add_completions(self, found: Mapping[int, Sequence[Mapping[str, Any]]], version: int) -> None:
        """Prompt → its completions; inside `writing`. A prompt's uncertainty is that of its latest completions."""
        for prompt, bodies in found.items():
            if self.one("SELECT id FROM prompts WHERE id = ?", prompt) is None:
                continue  # taken out of the queue meanwhile
            for body in bodies:
                self._run(
                    "INSERT INTO completions (prompt, version, time, body) VALUES (?, ?, ?, ?)",
                    *(prompt, version, time.time(), json.dumps(body)),
                )
            numbers = [-number for body in bodies for number in body["logprobs"]]
            if numbers:
                self._run("UPDATE prompts SET uncertainty = ? WHERE id = ?", sum(numbers) / len(numbers), prompt)
        self.tell("queue", prompts=list(found)[:50])

    def unsampled(self, version: int, most: int) -> list[Row]:
        """Prompts without completions of this version, in the order of the queue."""
        return self.rows(
            "SELECT * FROM prompts p WHERE NOT EXISTS "
            "(SELECT 1 FROM completions c WHERE c.prompt = p.id AND c.version = ?) ORDER BY p.place LIMIT ?",
            version,
            most,
        )

    def queue(self, me: str | None, order: str, only: str, offset: int, limit: int) -> tuple[int, list[Row]]:
        """(how many there are, some of them), with counts of what was written about each."""
        live = "SELECT 1 FROM critiques q WHERE q.prompt = p.id AND q.deleted = 0"
        where = {"all": "CAST(? AS TEXT) IS NOT NULL", "mine": f"EXISTS ({live} AND q.author = ?)"}.get(
            only, f"NOT EXISTS ({live}) AND CAST(? AS TEXT) IS NOT NULL"
        )
        by = {"random": "p.shuffled", "uncertain": "p.uncertainty IS NULL, p.uncertainty DESC, p.place"}.get(
            order, "p.place"
        )
        count = self._run(f"SELECT COUNT(*) AS count FROM prompts p WHERE {where}", me or "")[0]["count"]
        counted = "SELECT COUNT({}) FROM critiques q WHERE q.prompt = p.id AND q.deleted = 0"
        found = self.rows(
            f"SELECT p.id, p.uncertainty, p.body, ({counted.format('*')}) AS critiques, "
            f"({counted.format('*')} AND q.author = ?) AS mine, ({counted.format('DISTINCT q.author')}) AS people, "
            f"(SELECT COUNT(*) FROM completions c WHERE c.prompt = p.id AND c.version = ?) AS completions "
            f"FROM prompts p WHERE {where} ORDER BY {by} LIMIT ? OFFSET ?",
            *(me or "", self.get("version", 0), me or "", limit, offset),
        )
        return int(count), found

    # ------------------------------------------------------------------------------------------ critiques

    def critiques(self, where: str = "deleted = 0", *values: Any) -> list[Row]:
        return self.rows(f"SELECT * FROM critiques WHERE {where} ORDER BY id", *values)

    def critique(self, number: int) -> Row:
        return self._there(self.one("SELECT * FROM critiques WHERE id = ?", number), "critique", number)

    def save_critique(
        self, completion: int, author: str, body: Mapping[str, Any], base: int | None
    ) -> tuple[bool, Row]:
        """(whether it was saved, what is there now). It is not, where `base` is not the edit that is there: then
        somebody, or another tab, was faster."""
        with self.writing():
            prompt = self.completion(completion)["prompt"]
            there = self.one("SELECT * FROM critiques WHERE completion = ? AND author = ?", completion, author)
            if there is None:
                (made,) = self._run(
                    "INSERT INTO critiques (completion, prompt, author, version, place, deleted, time, body) "
                    "VALUES (?, ?, ?, 0, 0, 1, ?, '{}') RETURNING id",
                    *(completion, prompt, author, time.time()),
                )
                self._run("INSERT INTO edits VALUES (?, 0, 1, '{}')", made["id"])
                there = self.critique(made["id"])
            elif there["version"] != base and not (base is None and there["deleted"]):
                return False, there
            return True, self._step(there, there["place"] + 1, body)

    def delete_critique(self, number: int, author: str, base: int | None = None) -> tuple[bool, Row]:
        with self.writing():
            there = self._own(number, author)
            if base is not None and there["version"] != base:
                return False, there
            return True, there if there["deleted"] else self._step(there, there["place"] + 1, None)

    def step_critique(self, number: int, author: str, by: int) -> Row:
        """Undo (−1) or redo (+1): the edit before or after this one, taken back as a new one."""
        with self.writing():
            there = self._own(number, author)
            place = there["place"] + by
            if self.one("SELECT place FROM edits WHERE critique = ? AND place = ?", number, place) is None:
                raise InvalidData(f"there is nothing to {'undo' if by < 0 else 'redo'} in this critique")
            return self._step(there, place)

    def _own(self, number: int, author: str) -> Row:
        there = self.critique(number)
        if there["author"] != author:
            raise InvalidData(f"critique {number} is {there['author']}'s; you can change only your own")
        return there

    def _step(self, there: Row, place: int, body: Mapping[str, Any] | EllipsisType | None = ...) -> Row:
        """Go to an edit: a new one with this body (None: deleted), which ends what could be redone, or one that is
        there."""
        number = there["id"]
        if body is not ...:
            self._run("DELETE FROM edits WHERE critique = ? AND place >= ?", number, place)
            text = (
                json.dumps(body)
                if body is not None
                else self._run("SELECT body FROM critiques WHERE id = ?", number)[0]["body"]
            )
            self._run("INSERT INTO edits VALUES (?, ?, ?, ?)", number, place, int(body is None), text)
        (edit,) = self._run("SELECT deleted, body FROM edits WHERE critique = ? AND place = ?", number, place)
        self._run(
            "UPDATE critiques SET version = version + 1, place = ?, deleted = ?, time = ?, body = ? WHERE id = ?",
            *(place, edit["deleted"], time.time(), edit["body"], number),
        )
        self.tell("critique", id=number, completion=there["completion"], prompt=there["prompt"], author=there["author"])
        return self.critique(number)

    # ------------------------------------------------------------------------------------------ jobs and versions

    def add_job(self, kind: str, author: str | None = None, prompt: int | None = None, **details: Any) -> int:
        """A queued job; one that waits already for the same prompt is that one."""
        with self.writing():
            if prompt is not None:
                same = self.one(
                    "SELECT id FROM jobs WHERE kind = ? AND prompt = ? AND state IN ('queued', 'running')", kind, prompt
                )
                if same is not None:
                    return int(same["id"])
            body = {"progress": 0.0, "seconds_left": None, "message": "", "error": None, **details}
            (made,) = self._run(
                "INSERT INTO jobs (kind, state, author, prompt, tries, cancel, time, body) "
                "VALUES (?, 'queued', ?, ?, 0, 0, ?, ?) RETURNING id",
                *(kind, author, prompt, time.time(), json.dumps(body)),
            )
            self.tell("job", id=made["id"])
            return int(made["id"])

    def job(self, number: int) -> Row:
        return self._there(self.one("SELECT * FROM jobs WHERE id = ?", number), "job", number)

    def live_jobs(self) -> list[Row]:
        return self.rows("SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY id")

    def set_job(self, number: int, state: str | None = None, **details: Any) -> None:
        """Change a job; inside `writing`."""
        row = self.job(number)
        fixed = ("id", "kind", "state", "author", "prompt", "tries", "cancel", "time")
        body = {key: value for key, value in row.items() if key not in fixed} | details
        self._run("UPDATE jobs SET state = ?, body = ? WHERE id = ?", state or row["state"], json.dumps(body), number)
        self.tell("job", id=number)

    def next_job(self) -> Row | None:
        """Take the oldest job that waits."""
        with self.writing():
            found = self.one("SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1")
            if found is None:
                return None
            self._run("UPDATE jobs SET tries = tries + 1 WHERE id = ?", found["id"])
            self.set_job(found["id"], "running")
            return self.job(found["id"])

    def cancel_job(self, number: int, author: str) -> None:
        with self.writing():
            job = self.job(number)
            if job["state"] == "queued":
                self.set_job(number, "interrupted", message=f"cancelled by {author}")
            elif job["state"] == "running":
                self._run("UPDATE jobs SET cancel = 1 WHERE id = ?", number)
            else:
                raise InvalidData(f"job {number} is {job['state']}; there is nothing to cancel")

    def orphans(self) -> None:
        """The worker is new: jobs that run belong to one that has died. They are done again, but not without end."""
        with self.writing():
            for job in self.rows("SELECT * FROM jobs WHERE state = 'running'"):
                if job["tries"] < TRIES and not job["cancel"]:
                    self.set_job(job["id"], "queued", progress=0.0, message="the worker died; doing it again")
                else:
                    self.set_job(
                        job["id"],
                        "interrupted",
                        message="cancelled"
                        if job["cancel"]
                        else "the worker died twice while doing this; nothing changed",
                    )

    def versions(self) -> list[Row]:
        return self.rows(f"{_VERSIONS} ORDER BY version")

    def version(self, number: int) -> Row:
        return self._there(self.one(f"{_VERSIONS} WHERE version = ?", number), "version", number)

    def learned(self, number: int) -> dict[str, int]:
        """Critique → the edit of it that a version has learned from; nothing where there is no such version yet."""
        row = self.one(f"{_VERSIONS} WHERE version = ?", number)
        return dict(row["learned"]) if row else {}

    def comparison(self, number: int) -> Row:
        """What a Learn changed: large, and read only by who asks for it."""
        self.version(number)
        (row,) = self._run("SELECT comparison FROM versions WHERE version = ?", number)
        return dict(json.loads(row["comparison"]))

    def add_version(
        self, version: int, parent: int | None, body: Mapping[str, Any], comparison: Mapping[str, Any]
    ) -> None:
        """The new current version; inside `writing`. What could be redone no longer can."""
        self._run(
            "INSERT INTO versions VALUES (?, ?, ?, ?, ?)",
            *(version, parent, time.time(), json.dumps(body), json.dumps(comparison)),
        )
        self.put("redo", [])
        self.set_version(version)

    def set_version(self, version: int) -> None:
        self.put("version", version)
        self.tell("state", version=version)

    def next_version(self) -> int:
        return int(self._run("SELECT COALESCE(MAX(version), -1) + 1 AS next FROM versions")[0]["next"])

    # ------------------------------------------------------------------------------------------ people

    def session(self, digest: str) -> Row | None:
        return self.one("SELECT * FROM sessions WHERE id = ? AND time > ?", digest, time.time() - LASTS)

    def end_sessions(self) -> None:
        """Everybody has to come in again; inside `writing`."""
        self._run("DELETE FROM sessions")

    def add_session(self, digest: str) -> None:
        with self.writing():
            self._run("DELETE FROM sessions WHERE time < ?", time.time() - LASTS)
            self._run("INSERT INTO sessions VALUES (?, NULL, ?)", digest, time.time())

    def name_session(self, digest: str, name: str, *, again: bool = True) -> bool:
        """Whether the session has this name now. Without `again`, not where others have come, or written, by it."""
        with self.writing():
            mine = self.one("SELECT name FROM sessions WHERE id = ?", digest)
            if not again and not (mine and mine["name"] == name):
                sessions, written = (
                    self.one(f"SELECT 1 AS yes FROM {table} = ? LIMIT 1", name)
                    for table in ("sessions WHERE name", "critiques WHERE author")
                )
                if sessions or written:
                    return False
            self._run("UPDATE sessions SET name = ? WHERE id = ?", name, digest)
            self.tell("state", people=True)
        return True

    @staticmethod
    def _there(row: Row | None, what: str, number: int) -> Row:
        if row is None:
            raise LookupError(f"there is no {what} {number}")
        return row
