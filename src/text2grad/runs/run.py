"""One training run, whatever it trains: begun or resumed, logged, checkpointed, stopped, finished.

    with run.working(state, updates):
        for step in run.steps():
            …                               # one update
            run.log(metrics, rollouts)
        return run.finish(writer)

Enters: settings, metrics, rollouts, and a `State` that knows what a checkpoint holds. Leaves: a folder from which the
same command resumes, after a kill at any moment, and ends as if nothing had happened. Knows no algorithm and no torch.
Only the main process writes; the others make the same calls.
"""

import gc
import hashlib
import json
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from text2grad.errors import RunError, Text2GradError, UsageError, first_line
from text2grad.runs.display import Display
from text2grad.runs.folder import (
    Closable,
    RunFolder,
    aside,
    clear_rubbish,
    encode_row,
    write_atomic,
)
from text2grad.runs.world import ALONE, World
from text2grad.types import MetricInfo, Rollout


class State(Protocol):
    """What a checkpoint holds of the loop's own."""

    def collect(self) -> dict[str, Any]:
        """All of it, in plain values and tensors. Every process takes part; the main one's is written."""
        ...

    def restore(self, collected: Mapping[str, Any]) -> None: ...

    def write(self, collected: dict[str, Any], folder: Path) -> Mapping[str, str]:
        """Called in the main process; gives the checksums that it has taken."""
        ...

    def assist(self) -> None:
        """Called in the others while the main one writes: they may have files of their own."""
        ...

    def read(self, folder: Path) -> dict[str, Any]: ...


class Trackers(Protocol):
    """Where metrics go beside the folder: TensorBoard, W&B."""

    def start(self, done: int) -> None: ...

    def log(self, metrics: Mapping[str, Any]) -> None: ...

    def finish(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    updates: int
    status: int
    """0: all updates are done. 1: stopped by a guard rail or by KL. 130: interrupted with Ctrl-C. 143: with SIGTERM."""
    model: Path | None
    """The trained model, for plain transformers; None while the run is not over."""
    interrupted: bool = False
    """Ctrl-C was pressed, even if so late that the run was over anyway: start nothing else."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ended before its last update."""

    reason: str
    status: int = 1


class Run(Closable):
    """A run folder and the loop around its updates."""

    def __init__(
        self,
        folder: str | Path,
        settings: Any,
        *,
        command: str,
        world: World = ALONE,
        launched: str = "",
        data: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        metrics: Mapping[str, MetricInfo] | None = None,
        free: Collection[str] = (),
        trackers: Trackers | None = None,
        callbacks: Iterable[Callable[[Mapping[str, Any]], object]] = (),
        show: bool = False,
        resume_with: str | None = "",
    ) -> None:
        """`data`: digests of what may not change under a run. `facts`: what else run.json records. `metrics`: what each
        metric is called, for the report. `free`: settings that may change on resume. `resume_with`: what to type to
        resume, if not this command in this folder; None: the script that made this run."""
        self.path, self.settings, self.command, self.world = Path(folder), settings, command, world
        self.launched, self.trackers, self.callbacks, self.show = launched, trackers, list(callbacks), show
        self._resume_with = resume_command(command, self.path, launched) if resume_with == "" else resume_with
        self.total, self.done = 0, 0
        """Updates in all, and updates that are finished."""
        self.ended: Stop | None = None
        self.folder: RunFolder | None = None
        self._state: State | None = None
        self._display: Display | None = None
        self._asked_to_stop, self._was_over = 0, False
        """The signal that asked for a stop; whether the run was over when it was opened."""
        infos = {key: info.to_json() for key, info in (metrics or {}).items()}
        now = {**(facts or {}), "stage": command, "launched": launched, "data": dict(data or {}), "metrics": infos}
        self.world.on_main(lambda: self._open(now, free))

    def _open(self, now: dict[str, Any], free: Collection[str]) -> None:
        # Refused before its settings are compared one by one.
        stage = self._recorded().get("stage", self.command)
        if stage != self.command:
            raise RunError(f"{self.path} holds a run of `{stage}`; choose another folder for `{self.command}`")
        self.folder = RunFolder(self.path, self.settings, self.settings.keep_checkpoints, free)
        try:
            self._settle(now)
        except Text2GradError:
            self._abandon()
            raise

    def _recorded(self) -> dict[str, Any]:
        """What run.json says; nothing where there is none."""
        path = self.path / "run.json"
        if not path.exists():
            return {}
        try:
            there: dict[str, Any] = json.loads(path.read_bytes())
            return there | {"data": dict(there["data"]), "launched": there["launched"]}
        except (ValueError, TypeError, LookupError) as problem:
            raise RunError(
                f"{path}: is not what a run writes ({type(problem).__name__}: {problem}); put it back, or choose "
                f"another folder"
            ) from None

    def _settle(self, now: dict[str, Any]) -> None:
        """Write down what the run is made of; of an old one, insist that data and processes are the same."""
        there = self._recorded()
        if not there:
            write_atomic(self.path / "run.json", encode_row(now))
            return
        data, launched = there["data"], there["launched"]
        changed = [name for name, digest in now["data"].items() if data.get(name, digest) != digest]
        if changed:
            raise RunError(
                f"{self.path} was started with another content of {', '.join(changed)}; choose another folder for the "
                f"new data, or put the old file back to resume"
            )
        if launched != now["launched"]:
            raise RunError(
                f"{self.path} was started with {launched or 'one process'}, and this is "
                f"{now['launched'] or 'one process'}; resume it as it was started, or choose another folder"
            )

    def began_from(self, fingerprint: str) -> None:
        """Write down which model and tokenizer the run started from; of an old one, insist that they are the same:
        adapters and the reference belong to those weights."""

        def settle() -> None:
            there = self._recorded()
            if "model" not in there:
                write_atomic(self.path / "run.json", encode_row(there | {"model": fingerprint}))
            elif not same_model(there["model"], fingerprint):
                raise RunError(
                    f"{self.path} was started from a model with other weights or settings, or another tokenizer or "
                    f"chat template; resume with that one (from Python: loaded afresh, not the trained one), or choose "
                    f"another folder"
                )

        self.world.on_main(settle)

    def record(self, name: str, value: Any) -> None:
        """Write down what the run found out on the way, in run.json."""
        if self.recorded(name) != value:
            self.world.on_main(
                lambda: write_atomic(self.path / "run.json", encode_row(self._recorded() | {name: value}))
            )

    def recorded(self, name: str) -> Any:
        """What was written down under this name; None: nothing."""
        return self.world.broadcast(self._recorded().get(name) if self.world.is_main else None)

    # ------------------------------------------------------------------------------------------------ the loop

    @contextmanager
    def working(self, state: State, total: int) -> Iterator[None]:
        """Resume from the last checkpoint, then let Ctrl-C and SIGTERM ask for a stop after the current update. A run
        that fails before it has anything to show leaves no folder behind."""
        if self._state is not None:
            raise UsageError(
                f"this run of `{self.command}` has been trained and has let go of its folder; to resume, make another "
                f"trainer with the same folder and a freshly loaded model"
            )
        self._state, self.total = state, total
        with self, self.abandoned_on_failure(), self._stoppable(), settled(self._on_gpu):
            self._resume(state)
            shown, speaks = self.show and self.world.is_main, self.world.is_main
            with Display(self.command, total, self.done, show=shown, speaks=speaks) as self._display:
                self._was_over = self.over
                if self.trackers is not None and not self.over:
                    self.trackers.start(self.done)
                yield

    def steps(self) -> Iterator[int]:
        """The numbers of the updates still to do. Between two of them: a checkpoint where one is due, the end where
        somebody asked for it."""
        before = self.done
        while not self.over:
            yield self.done + 1
            if self.done == before + 1 and gc.get_freeze_count():
                gc.freeze()  # what the first update has made, a compiler's programs among them, stays as well
            self._asked_to_stop = asked = self.world.all_max(self._asked_to_stop)
            if self.over or asked or self.done % self.settings.checkpoint_every == 0:
                self._save()
            if asked and not self.over:
                how = self._resume_with or "the same script"
                self.note(f"saved at update {self.done} of {self.total}; resume with: {how}")
                if self.command != "reward-model":
                    self.note(
                        f"or take the model as it is: text2grad export {shlex.quote(str(self.path))} MODEL_FOLDER"
                    )
                return

    @property
    def _on_gpu(self) -> bool:
        return getattr(getattr(self.world, "device", None), "type", "cpu") == "cuda"

    @property
    def over(self) -> bool:
        return self.ended is not None or self.done == self.total

    def log(
        self, metrics: Mapping[str, Any], rollouts: Iterable[Rollout] = (), held_out: Iterable[Rollout] = ()
    ) -> None:
        """Write one update: its metrics, and some of its rollouts."""
        self.done = metrics["update"]
        if self.folder is not None:
            rows = [{"update": self.done, **rollout.to_json()} for rollout in rollouts]
            rows += [{"update": self.done, **rollout.to_json(), "held_out": True} for rollout in held_out]
            # A checkpoint flushes them to the disk: a resume cuts off what comes after it anyway.
            self.folder.rollouts.append(rows, sync=False)
            self.folder.metrics.append([metrics], sync=False)
        if self.trackers is not None:
            self.trackers.log(metrics)
        if self._display is not None:
            self._display.step(self.done, metrics)
        for callback in self.callbacks:
            callback(metrics)

    def note(self, words: str) -> None:
        """A line for the person who watches."""
        if self._display is not None:
            self._display.note(words)

    def stop(self, reason: str, status: int = 1) -> None:
        """End the run after this update."""
        self.ended = Stop(reason, status)

    def finish(self, writers: Callable[[], Mapping[str, Callable[[Path], None]]]) -> Outcome:
        """The run's outcome; if it is over, what comes out is written, each folder complete or not at all. `writers` is
        called in every process; what it gives, by the name of the folder, only in the main one."""
        if not self.over:
            return Outcome(self.done, 128 + self._asked_to_stop, None, interrupted=True)
        path = self.path / "model"
        for name, write in writers().items():
            if self.folder is not None and not (self.path / name).exists():
                with aside(self.path / name) as scratch:
                    write(scratch)
        self.world.all_gather(None)
        reason = "" if self.ended is None else f": {self.ended.reason}"
        when = f"{'was over already,' if self._was_over else 'ended'} after {self.done} update{'s'[: self.done != 1]}"
        if self._was_over or self.ended is not None:
            self.note(f"the run {when}{reason}; its model is in {path}")
        return Outcome(self.done, 0 if self.ended is None else self.ended.status, path, bool(self._asked_to_stop))

    # ------------------------------------------------------------------------------------------------ what is kept

    def keep(self, step: int, paid_for: Mapping[str, Any], kind: str = "update") -> None:
        """Keep what an update or an evaluation has paid for (samples, critiques) until the next checkpoint: a resume
        uses it instead of asking again."""
        if self.folder is not None:
            self._kept.mkdir(exist_ok=True)
            body = json.dumps({"of": [kind, step], **paid_for}).encode()
            digest = hashlib.sha256(body).hexdigest().encode()
            write_atomic(self._kept / f"{kind}-{step:08d}.json", digest + b"\n" + body)

    def kept(self, step: int, kind: str = "update") -> dict[str, Any] | None:
        """What was kept; the same in every process. A file that is damaged, or was kept for another update, is left
        alone, and said so."""
        paid_for: dict[str, Any] | None = None
        path = self._kept / f"{kind}-{step:08d}.json"
        if self.folder is not None and path.is_file():
            found = _checked_body(path.read_bytes())
            if isinstance(found, dict) and found.pop("of", None) == [kind, step]:
                paid_for = found
            else:
                problem = "was kept for something else" if isinstance(found, dict) else "is damaged"
                self.note(f"{path}: {problem}, so what it held is sampled and judged again")
        return self.world.broadcast(paid_for)

    @property
    def _kept(self) -> Path:
        return self.path / "buffer"

    def _forget(self, step: int) -> None:
        """Everything kept up to this update."""
        for file in self._kept.glob("*.json"):
            if (number := re.fullmatch(r".+-([0-9]+)", file.stem)) and file.is_file() and int(number[1]) <= step:
                file.unlink()
        if self._kept.is_dir() and not any(self._kept.iterdir()):
            shutil.rmtree(self._kept)

    def _save(self) -> None:
        assert self._state is not None
        ended = None if self.ended is None else [self.ended.reason, self.ended.status]
        collected = {"update": self.done, "ended": ended, **self._state.collect()}
        if self.folder is not None:
            logs = {"metrics": self.folder.metrics, "rollouts": self.folder.rollouts}
            for rows in logs.values():
                rows.sync()
            collected["sizes"] = {name: rows.size for name, rows in logs.items()}
            state = self._state
            self.folder.save_checkpoint(self.done, lambda folder: state.write(collected, folder))
            self._forget(self.done)
        else:
            self._state.assist()
        self.world.all_gather(None)

    def _resume(self, state: State) -> None:
        latest = self.world.broadcast(self.folder.latest_checkpoint() if self.folder is not None else None)
        collected = None if latest is None else state.read(latest)
        if self.folder is not None:
            # A kill after a checkpoint may have left older ones, and what was kept for the updates before it. One while
            # something was kept may have left a scratch folder.
            self.folder.prune()
            clear_rubbish(self._kept)
            self._forget(-1 if collected is None else collected["update"])
            sizes = {"metrics": 0, "rollouts": 0} if collected is None else collected["sizes"]
            self.folder.metrics.rewind(sizes["metrics"])
            self.folder.rollouts.rewind(sizes["rollouts"])
        if collected is not None:
            self.done = collected["update"]
            self.ended = None if collected["ended"] is None else Stop(*collected["ended"])
            state.restore(collected)

    # ------------------------------------------------------------------------------------------------ ends

    @contextmanager
    def abandoned_on_failure(self) -> Iterator[None]:
        """Close the run where the block fails. If it had nothing to show yet, no metrics and no judged completions, it
        leaves no settings behind that the corrected command would be held to. What lay there before stays as it was."""
        try:
            yield
        except BaseException:
            started = self.folder is not None and (
                self.folder.metrics.size or self.folder.latest_checkpoint() is not None or self._kept.exists()
            )
            if started:
                self.close()
            else:
                self._abandon()
            raise

    def _abandon(self) -> None:
        if self.folder is not None:
            self.folder.abandon()
        self.close()

    def close(self) -> None:
        if self.folder is not None:
            self.folder.close()
        if self.trackers is not None:
            self.trackers.finish()

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """The first Ctrl-C, or SIGTERM (Slurm, Kubernetes), asks for a stop after this update, with a checkpoint; a
        second one stops at once."""
        before: dict[int, Any] = {}

        def ask(number: int, _: object) -> None:
            self._asked_to_stop = number
            print("\nstopping after this update; Ctrl-C again stops at once (nothing saved is lost)", file=sys.stderr)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        except RuntimeError as problem:
            signs = ("gloo", "nccl", "connection", "peer", "process group")
            if self.world.size > 1 and any(sign in str(problem).lower() for sign in signs):
                raise RunError(
                    f"process {self.world.rank} lost another process of this run ({first_line(problem)}). Look at that "
                    f"one's messages; then run the same command again: it resumes from the last checkpoint"
                ) from problem
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def settled(wanted: bool) -> Iterator[None]:
    """Python's collector goes through all objects again and again, 0.2 s each time, while a GPU waits. Inside, it looks
    only at those that are made here. Where somebody else has told it so already, nothing is done."""
    if not wanted or gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _checked_body(data: bytes) -> Any:
    """The JSON after the line with its checksum; None where the two do not fit."""
    digest, _, body = data.partition(b"\n")
    if digest != hashlib.sha256(body).hexdigest().encode():
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def resume_command(command: str, folder: Path, launched: str = "") -> str:
    """What to type to resume, in the folder where the run began; `launched`: the words that start several processes.

    >>> resume_command("train", Path("runs/my first"))
    "text2grad train 'runs/my first' --config 'runs/my first/config.yaml'"
    """
    # A name that would be read as a setting or a flag is written as a path.
    named = str(folder) if folder.is_absolute() else f"./{folder}" if re.search(r"=|^-", str(folder)) else str(folder)
    words = f"text2grad {command} {shlex.quote(named)} --config {shlex.quote(f'{named}/config.yaml')}"
    return f"{words} {launched}" if launched else words


def same_model(recorded: object, now: str) -> bool:
    """Whether a fingerprint that a run has written down is of this model; an earlier version wrote its first half."""
    return recorded in (now, now[:64])
