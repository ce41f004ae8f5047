"""The studio's folder, and the two processes that work on it.

    STUDIO/
      settings.yaml    what the studio was begun with
      studio.sqlite    everything people did, unless the store is a PostgreSQL server's
      store.json       which of the two it is, without its password; a studio opens with no other
      token            of the address that was printed last; only its owner can read it
      runs/            the start, and one run folder for each Learn
      worker.log       what the worker prints

Enters: settings and a path. Leaves: a folder that one server holds at a time, and a worker that is started again when
it dies. Imports no torch.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from math import inf
from pathlib import Path

from text2grad import config
from text2grad.errors import RunError, UsageError
from text2grad.runs import write_atomic
from text2grad.runs.folder import Closable, Lock
from text2grad.secrets import without_password
from text2grad.studio.settings import EMBEDDED, StudioSettings
from text2grad.studio.store import Store

STORE = "TEXT2GRAD_STUDIO_STORE"
"""Environment variable: where the store is, for the worker. A URL may hold a password, so it stands in no command."""
GIVES_UP = 3
"""Exit status of a worker that cannot start, and says why."""
DEATHS, WITHIN = 5, 60.0
"""A worker that dies so often within so many seconds is not started again."""


def database_of(folder: Path, url: str | None) -> str:
    return url or str(folder / "studio.sqlite")


def shown_store(url: str | None) -> str:
    """Where the store is, for people to read: without its password."""
    return without_password(url) if url else "studio.sqlite"


def check_store(folder: Path, url: str | None) -> None:
    """Refuse a store that is not the one this folder was begun with, before anything is made: a studio on an empty one
    would put its first Learn in the place of the weights that are there."""
    if url is not None and not url.startswith(("postgresql://", "postgres://")):
        raise UsageError("--store should be the URL of a PostgreSQL server, as postgresql://user@host/name")
    record, mark = folder / "store.json", folder / ".studio-id"
    if not mark.exists():
        return
    known = json.loads(record.read_text()) if record.exists() else {}
    if url is None and known.get("store") == "postgresql":
        raise UsageError(
            f"{folder} keeps what people write in PostgreSQL, at {known['address']}: name it with --store URL, or in "
            f"{STORE}"
        )
    if url is not None and known.get("store") == "sqlite":
        raise UsageError(
            f"{folder} keeps what people write in its own studio.sqlite: leave --store away (and {STORE} unset), or "
            f"begin another studio with --out"
        )
    if url is None and not (folder / "studio.sqlite").exists():
        raise UsageError(
            f"{folder} is a studio's, and its studio.sqlite is not there: put it back; or if its store is in "
            f"PostgreSQL, name it with --store URL"
        )
    store = Store(database_of(folder, url), new=False)
    try:
        theirs = store.studio()
    finally:
        store.close()
    begun = record.exists() or (folder / "runs").exists()
    if theirs != mark.read_text() and (theirs is not None or begun):
        what = "belongs to the folder of another studio" if theirs else "holds nothing of this studio"
        raise UsageError(
            f"the store {shown_store(url)} {what}: for {folder}, name the database that it was begun with"
            + (f", at {known['address']}" if known else "")
            + "; or begin another studio with --out"
        )


def read_settings(folder: Path) -> StudioSettings:
    return config.load(StudioSettings, folder / "settings.yaml")


class Folder(Closable):
    """A studio's folder, held by this process."""

    def __init__(self, path: Path, settings: StudioSettings | None, url: str | None = None) -> None:
        """`settings`: None for those that are there."""
        self.path, self.url = path, url
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(path / ".lock", f"{path} is open in another studio; use that one, or another --out")
        except OSError as problem:
            raise UsageError(
                f"--out should name a folder that can be written to, got {path}: {problem.strerror}"
            ) from None
        try:
            check_store(path, url)
            self.settings = self._settle(settings)
            self.store = Store(database_of(path, url))
            self._same_store()
            if not self.store.versions() and not any(job["kind"] == "start" for job in self.store.live_jobs()):
                self.store.add_job("start")
        except BaseException:
            self._lock.close()
            raise

    def _settle(self, settings: StudioSettings | None) -> StudioSettings:
        """What the studio was begun with stays; what only changes how it goes on may change."""
        there = self.path / "settings.yaml"
        if not there.exists():
            if any((self.path / name).exists() for name in ("config.yaml", "model", "checkpoints")):
                raise UsageError(f"{self.path} holds something else than a studio; name another folder with --out")
            settings = settings or StudioSettings()
            write_atomic(there, config.dump(settings).encode())
            return settings
        known = read_settings(self.path)
        if settings is None:
            return known
        old, new = config.flat(config.plain(known)), config.flat(config.plain(settings))
        changed = [
            f"  {key}: {old.get(key)!r} there, {value!r} now"
            for key, value in new.items()
            if old.get(key) != value and key in FIXED
        ]
        if changed:
            raise RunError(
                f"{self.path} holds a studio with other settings; choose another --out:\n" + "\n".join(changed)
            )
        write_atomic(there, config.dump(settings).encode())
        return settings

    def _same_store(self) -> None:
        """A store belongs to one folder: its versions are the weights there. The folder records which it is."""
        mark = self.path / ".studio-id"
        if not mark.exists():
            write_atomic(mark, secrets.token_hex(16).encode())
        mine = mark.read_text()
        with self.store.writing():
            known = self.store.get("studio")
            if known is None:
                self.store.put("studio", mine)
        if known not in (None, mine):
            raise UsageError(
                "this store belongs to the folder of another studio; name that folder with --out, or another database"
            )
        known = {"store": "postgresql" if self.url else "sqlite", "address": shown_store(self.url)}
        write_atomic(self.path / "store.json", json.dumps(known).encode())

    def new_token(self) -> str:
        token, path = secrets.token_urlsafe(24), self.path / "token"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
        return token

    def close(self) -> None:
        self.store.close()
        self._lock.close()


FIXED = ("model", "task", "data", "seed", "format", "policy.lora.rank", "policy.lora.alpha", "sampling.temperature")
"""Settings that versions and stored log-probs depend on."""


class Workshop:
    """Keeps a worker running."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._said: tuple[str, float] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        deaths: list[float] = []
        while not self._ending:
            log = (self.folder.path / "worker.log").open("ab")
            # The embedded model is so small that a second thread helps little, and on a busy machine hurts a lot.
            threads = {} if self.folder.settings.model != EMBEDDED else {"OMP_NUM_THREADS": "1"}
            environment = {**threads, **os.environ, **({STORE: self.folder.url} if self.folder.url else {})}
            command = [sys.executable, "-m", "text2grad.studio.worker", str(self.folder.path)]
            with log:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the server, which then ends the worker
                )
            status = self.process.wait()
            if self._ending:
                return
            deaths = [*(death for death in deaths if time.monotonic() - death < WITHIN), time.monotonic()]
            if status == GIVES_UP or len(deaths) >= DEATHS:
                self._say(f"The worker has stopped: {self._last_words()} Mend that, and start the studio again.", inf)
                return
            self._say("The worker died and was started again; nothing that was saved is lost.", WITHIN)
            time.sleep(0.2)

    def note(self) -> str | None:
        """What is wrong, for the page."""
        return self._said[0] if self._said is not None and time.monotonic() < self._said[1] else None

    def _say(self, words: str, seconds: float) -> None:
        self._said = words, time.monotonic() + seconds
        with self.folder.store.writing():
            self.folder.store.tell("state", note=True)

    def _last_words(self) -> str:
        lines = (self.folder.path / "worker.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][-500:] if lines else "it said nothing."

    def stop(self) -> None:
        """Closing its standard input ends it."""
        self._ending = True
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
