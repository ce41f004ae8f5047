"""The worker: the process that holds the model and does the jobs of the store, one after the other.

    python -m text2grad.studio.worker FOLDER        started by the studio's server; ends when the server does

Enters: jobs. Leaves: their results in the store, each in one transaction with the job's end. A worker that is killed at
any moment has changed nothing or everything: its job is done again by the next one, from the same weights and seeds.
"""

import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from text2grad import __version__
from text2grad.errors import InvalidData, Text2GradError, first_line
from text2grad.runs import aside
from text2grad.runs.folder import Lock, cache_folder
from text2grad.studio.folder import STORE, database_of, read_settings
from text2grad.studio.learn import LearnData, learn
from text2grad.studio.model import Bodies, Model, shown_metrics
from text2grad.studio.settings import EMBEDDED, StudioSettings
from text2grad.studio.store import Row, Store
from text2grad.tasks.task import Task, task_of

CHUNK = 8
"""Prompts that are sampled ahead at once; then jobs are looked for again."""
PAUSE = 0.1
"""Seconds between two looks for jobs."""
TELL = 0.4
"""Seconds between two reports of progress."""


class Cancelled(Exception):
    """Somebody has cancelled the job."""


class Worker:
    """Does jobs until its process ends."""

    def __init__(self, folder: Path, store: Store, settings: StudioSettings) -> None:
        self.folder, self.store, self.settings = folder, store, settings
        self.model: Model | None = None
        self.hopeless: set[int] = set()
        """Prompts that cannot be sampled: the job of whoever opens them says why."""

    def run(self) -> None:
        self.store.orphans()
        if self.store.versions():
            self.model = self.load(lambda *_: None)
        while True:
            if self.store.one("SELECT id FROM jobs WHERE state = 'queued' LIMIT 1") is not None:
                job = self.store.next_job()
                if job is not None:
                    self.do(job)
            elif not self.ahead():
                time.sleep(PAUSE)

    def do(self, job: Row) -> None:
        """One job; whatever it raises is written down beside it."""
        told = Progress(self.store, job["id"])
        try:
            if self.model is None and job["kind"] != "start":
                raise InvalidData(
                    "the model could not be made, so nothing can be sampled or learned; see the first job"
                )
            finish = getattr(self, f"do_{job['kind']}")(job, told)
            with self.store.writing():
                details = finish() or {}
                self.store.set_job(job["id"], "done", progress=1.0, seconds_left=0.0, message="done", **details)
                self.store.tell("state")
        except Cancelled:
            self._over(job, "interrupted", message="cancelled; nothing has changed")
        except Text2GradError as problem:
            self._over(job, "failed", error=str(problem))
        except Exception as problem:  # noqa: BLE001 - a job may fail in any way, and the next one may not
            traceback.print_exc()
            self._over(
                job, "failed", error=f"it failed unexpectedly ({first_line(problem, named=True)}); worker.log has more"
            )

    def _over(self, job: Row, state: str, **details: Any) -> None:
        with self.store.writing():
            self.store.set_job(job["id"], state, **details)
            self.store.tell("state")

    # ------------------------------------------------------------------------------------------ the kinds of jobs

    def do_start(self, _: Row, told: "Progress") -> Callable[[], Any]:
        self.model = model = self.load(told)
        told(0.95, "measuring the start")
        metrics = model.measure()[0]
        task = examples_of(model.task, self.settings.prompts)
        if task and not self.store.one("SELECT id FROM prompts LIMIT 1"):
            from text2grad.studio.words import example_body

            self.store.add_prompts([example_body(example) for example in task])
        body = {
            "updates": 0,
            "parts": [],
            "critiques": 0,
            "learned": {},
            "held_out": shown_metrics(metrics) or None,
            "kl": 0.0,
        }
        return lambda: self.store.add_version(0, None, body, {})

    def do_sample(self, job: Row, told: "Progress") -> Callable[[], Any]:
        version, row = self.store.get("version", 0), self.store.prompt(job["prompt"])
        told(0.1, "writing")
        there = len(self.store.completions(row["id"], version))
        if there and not job.get("more"):
            return lambda: None
        found = self._completions([row], version, job["count"], there)
        return lambda: self.store.add_completions(found, version)

    def do_learn(self, job: Row, told: "Progress") -> Callable[[], Any]:
        assert self.model is not None
        parent, version = self.store.get("version", 0), self.store.next_version()
        self.model.load(parent)
        # What a worker that was killed has left of it.
        shutil.rmtree(self.model.run_folder(version), ignore_errors=True)
        options = self.settings.learn
        data = LearnData.of(self.store, parent, options.kept, options.critiques * job["updates"])
        try:
            made = learn(self.model, version, job["parts"], job["updates"], data, told)
        except BaseException:
            shutil.rmtree(self.model.run_folder(version), ignore_errors=True)
            raise

        def finish() -> dict[str, Any]:
            self.store.add_version(version, parent, made.body, made.comparison)
            self.store.add_completions(made.completions, version)
            return {"version": version}

        return finish

    def do_undo(self, _: Row, told: "Progress") -> Callable[[], Any]:
        return self._go(self.store.version(self.store.get("version", 0))["parent"], undo=True, told=told)

    def do_redo(self, _: Row, told: "Progress") -> Callable[[], Any]:
        return self._go(next(iter(self.store.get("redo", [])), None), undo=False, told=told)

    def _go(self, version: int | None, *, undo: bool, told: "Progress") -> Callable[[], Any]:
        assert self.model is not None
        if version is None:
            raise InvalidData(f"there is no learning to {'undo' if undo else 'redo'}")
        told(0.3, f"reading version {version}")
        self.model.load(version)
        current, redo = self.store.get("version", 0), self.store.get("redo", [])

        def finish() -> dict[str, Any]:
            self.store.put("redo", [current, *redo] if undo else redo[1:])
            self.store.set_version(version)
            return {"version": version}

        return finish

    # ------------------------------------------------------------------------------------------ sampling

    def ahead(self) -> bool:
        """Sample some prompts that nobody has opened yet; whether there were any."""
        if self.model is None:
            return False
        version = self.store.get("version", 0)
        rows = self.store.unsampled(version, self.settings.ahead)
        rows = [row for row in rows if row["id"] not in self.hopeless][:CHUNK]
        done = self.store.rows("SELECT COUNT(DISTINCT prompt) AS count FROM completions WHERE version = ?", version)
        if not rows or done[0]["count"] >= self.settings.ahead:
            return False
        try:
            found = self._completions(rows, version, self.settings.completions, 0)
        except Text2GradError:
            # One of them is too long, or refused: one by one, then.
            found = {}
            for row in rows:
                try:
                    found |= self._completions([row], version, self.settings.completions, 0)
                except Text2GradError:
                    self.hopeless.add(row["id"])
        with self.store.writing():
            self.store.add_completions(found, version)
        return True

    def _completions(self, rows: list[Row], version: int, count: int, there: int) -> Bodies:
        assert self.model is not None
        self.model.load(version)
        given = [row for row in rows if row["given"] and not there]
        sampled = [row for row in rows if row not in given]
        found = self.model.sample(sampled, [count] * len(sampled), [there] * len(sampled))
        for row in given:
            found |= self.model.given(row)
        return found

    # ------------------------------------------------------------------------------------------ the model

    def load(self, told: Callable[[float, str], None]) -> Model:
        base = self.base(told)
        told(0.9, "reading the model")
        return Model(self.settings, base, self.folder / "runs", task_of(self.settings))

    def base(self, told: Callable[[float, str], None]) -> str:
        """What version 0 is. The embedded model's supervised start is made once a machine, and copied here."""
        from text2grad.models.writer import model_in

        if self.settings.model != EMBEDDED:
            return model_in(self.settings.model)
        here = self.folder / "runs" / "start" / "model"
        if not here.is_dir():
            from text2grad.training.demo import start
            from text2grad.training.settings import DemoSettings

            options = DemoSettings(seed=self.settings.seed)
            made = cache_folder() / "studio" / f"start-{__version__}-{options.seed}"
            made.parent.mkdir(parents=True, exist_ok=True)
            told(0.01, "waiting for another studio that makes the start")
            with Lock(made.with_suffix(".lock"), None):
                model = start(options, made, callbacks=[partial(_tell_start, told, options.start_updates)])
                with aside(here) as scratch:
                    shutil.copytree(model, scratch)
        return str(here)


def _tell_start(told: Callable[[float, str], None], updates: int, _: Any, metrics: Any) -> None:
    done = metrics["update"]
    told(0.02 + 0.85 * done / updates, f"the supervised start of the embedded model: update {done} of {updates}")


def examples_of(task: Task, most: int) -> list[Any]:
    return task.examples("train")[:most] if "train" in task.splits and most else []


class Progress:
    """Tells the store how far a job is, not too often; raises `Cancelled` where somebody has cancelled it."""

    def __init__(self, store: Store, job: int) -> None:
        self.store, self.job, self.begun, self.last = store, job, time.monotonic(), 0.0

    def __call__(self, progress: float, message: str) -> None:
        now = time.monotonic()
        if now - self.last < TELL:
            return
        self.last = now
        left = (now - self.begun) / progress * (1 - progress) if progress > 0.04 else None
        with self.store.writing():
            self.store.set_job(self.job, progress=progress, message=message, seconds_left=left)
            cancelled = self.store.job(self.job)["cancel"]
        if cancelled:
            raise Cancelled


def _end_with_server() -> None:
    """The server holds the other end of standard input: when it ends, however it ends, so does this process."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    folder = Path(sys.argv[1])
    _end_with_server()
    store = Store(database_of(folder, os.environ.get(STORE)))
    settings = read_settings(folder)
    with Lock(folder / ".worker.lock", None):
        try:
            Worker(folder, store, settings).run()
        except Text2GradError as problem:
            print(f"text2grad studio: {problem}", file=sys.stderr, flush=True)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
