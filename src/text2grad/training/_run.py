"""What every training stage needs around its loop: the run folder of the first process, trackers, Ctrl-C, memory.

Enters: settings, metrics, rows, states. Leaves: a folder that a rerun goes on from. Knows no algorithm. Only the first
process writes; the others go through the same calls.
"""

import hashlib
import json
import platform
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from text2grad import __version__, config
from text2grad.errors import RunError, Text2GradError
from text2grad.models.parallel import Processes
from text2grad.runs import Closable, RunFolder, aside, encode_row, write_atomic
from text2grad.runs.display import Display
from text2grad.training import _state
from text2grad.types import Example


class Run(Closable):
    """A run folder, and whatever else the metrics go to."""

    def __init__(
        self, path: str | Path, settings: Any, others: Processes, data: Mapping[str, str], free: Sequence[str] = ()
    ) -> None:
        """`free`: settings that may differ from those that the run began with."""
        self.path, self.others, self.settings = Path(path), others, settings
        self.folder: RunFolder | None = None
        self._trackers = False
        problem: Text2GradError | None = None
        if others.first:
            try:
                self.folder = RunFolder(path, settings, settings.keep_checkpoints, free)
                self._settle(data)
            except Text2GradError as found:
                self.close()
                problem = found
        # Nobody waits for a process that has given up.
        if (problem := others.shared(problem)) is not None:
            raise problem

    def _settle(self, data: Mapping[str, str]) -> None:
        """Write down what the run is made of; of an old one, insist that data and processes are the same."""
        path = self.path / "run.json"
        now = _facts(self.settings, self.others, data)
        if not path.exists():
            write_atomic(path, encode_row(now))
            return
        try:
            there = json.loads(path.read_bytes())
            data, launched = dict(there["data"]), there["launched"]
        except (ValueError, TypeError, LookupError) as problem:
            raise RunError(
                f"{path}: is not what a run writes ({type(problem).__name__}: {problem}); put it back, or choose "
                f"another folder"
            ) from None
        changed = [name for name, digest in now["data"].items() if data.get(name, digest) != digest]
        if changed:
            raise RunError(
                f"{self.path} was begun with another content of {', '.join(changed)}; choose another folder for the "
                f"new data, or put the old file back to go on"
            )
        if launched != now["launched"]:
            raise RunError(
                f"{self.path} was begun with {launched or 'one process'}, and this is "
                f"{now['launched'] or 'one process'}; go on as it was begun, or choose another folder"
            )

    def began_from(self, model: str) -> None:
        """Write down the fingerprint of the weights that the run begins from; of an old one, insist that it is the
        same: adapters and the reference belong to those weights."""
        problem: Text2GradError | None = None
        if self.folder is not None:
            path = self.path / "run.json"
            facts = json.loads(path.read_bytes())
            if "model" not in facts:
                write_atomic(path, encode_row(facts | {"model": model}))
            elif facts["model"] != model:
                problem = RunError(
                    f"{self.path} was begun from a model with other weights; go on with that one (from Python: loaded "
                    f"afresh, not the one that was trained), or choose another folder"
                )
        if (problem := self.others.shared(problem)) is not None:
            raise problem

    def abandon(self) -> None:
        """Close a run that failed. If it had nothing to show yet, no metrics and no judged completions, it leaves no
        settings behind that the mended command would be held to."""
        begun = self.folder is not None and (
            self.folder.metrics.size or self.folder.latest_checkpoint() is not None or (self.path / "buffer").exists()
        )
        self.close()
        if self.folder is not None and not begun:
            for name in ("config.yaml", "run.json", "metrics.jsonl", "rollouts.jsonl", ".lock-holder", ".lock"):
                (self.path / name).unlink(missing_ok=True)
            # What else lies there is not ours.
            with suppress(OSError):
                self.path.rmdir()

    def display(self, what: str, total: int, done: int, *, show: bool) -> Display:
        return Display(what, total, done, show=show and self.others.first, speaks=self.others.first)

    def track(self, done: int) -> None:
        """Tell the trackers that the run goes on after this update: what they heard of later ones counts no more."""
        if not self.settings.log.trackers:
            return
        try:
            self.others.accelerator.init_trackers(
                "text2grad", _trackable(self.settings) if done == 0 else None, _to_trackers(self.path, done)
            )
        except Exception as problem:  # each tracker has errors of its own
            first = (str(problem).splitlines() or [type(problem).__name__])[0][:160]
            raise RunError(
                f"log.trackers: {', '.join(self.settings.log.trackers)} could not be started ({first})"
            ) from problem
        self._trackers = True

    def write(self, metrics: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        """One row of metrics, and rows of completions."""
        if self.folder is not None:
            self.folder.rollouts.append(rows)
            self.folder.metrics.append([metrics])
        if self._trackers:
            numbers = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
            self.others.accelerator.log(numbers, step=metrics["update"])

    def checkpoint(self, number: int, state: dict[str, Any]) -> None:
        if self.folder is not None:
            sizes = {"metrics": self.folder.metrics.size, "rollouts": self.folder.rollouts.size}
            _state.save(self.folder, number, state | {"sizes": sizes})
        self.others.accelerator.wait_for_everyone()

    def resumed(self) -> dict[str, Any] | None:
        """The state to go on from, with the files cut back to it; none: the run begins."""
        latest = self.folder.latest_checkpoint() if self.folder is not None else None
        latest = self.others.shared(latest)
        state = None if latest is None else _state.load(latest)
        if self.folder is not None:
            _state.Buffer(self.path).forget(0 if state is None else state["update"])
            sizes = {"metrics": 0, "rollouts": 0} if state is None else state["sizes"]
            self.folder.metrics.rewind(sizes["metrics"])
            self.folder.rollouts.rewind(sizes["rollouts"])
        return state

    def finish(self, save: Callable[[Path], None]) -> Path:
        """The trained model, complete or not there."""
        path = self.path / "model"
        if self.folder is not None and not path.exists():
            with aside(path) as scratch, _state.disk_errors():
                save(scratch)
        self.others.accelerator.wait_for_everyone()
        return path

    def close(self) -> None:
        if self.folder is not None:
            self.folder.close()
        if self._trackers:
            self._trackers = False
            # Not `end_training`, which would end the exchange between the processes as well.
            for tracker in self.others.accelerator.trackers:
                tracker.finish()


def seeded(seed: int) -> None:
    """Everything that draws from a global state: critics may, dropout and the first adapters do."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def stoppable(run: Run) -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the loop to stop after what it is doing, with a checkpoint; a second one stops at once."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        print("\nstopping after this update; Ctrl-C again stops at once (nothing saved is lost)", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, ask) if main else None
    try:
        yield lambda: asked
    except RuntimeError as problem:
        if run.others.processes > 1 and _is_loss_of_a_process(problem):
            raise RunError(
                f"process {run.others.rank} lost another process of this run ({str(problem).splitlines()[0][:160]}). "
                f"Look at that one's messages; then run the same command again: it goes on from the last checkpoint"
            ) from problem
        raise
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


def _is_loss_of_a_process(problem: RuntimeError) -> bool:
    words = str(problem).lower()
    return any(word in words for word in ("gloo", "nccl", "connection", "peer", "process group"))


@contextmanager
def memory_named(doing: str, setting: str) -> Iterator[None]:
    """Out of memory, with the setting to lower."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as problem:
        raise RunError(_memory(doing, setting, problem)) from problem
    except RuntimeError as problem:
        if type(problem).__module__.startswith(("torch._dynamo", "torch._inductor")):
            first = (str(problem).strip().splitlines() or [""])[0][:160]
            raise RunError(
                f"policy.compile=true: torch could not compile the layers ({first}); set it to false and run the same "
                f"command again, or install a C++ compiler"
            ) from problem
        if "can't allocate memory" not in str(problem) and "not enough memory" not in str(problem):
            raise
        raise RunError(_memory(doing, setting, problem)) from problem


def _memory(doing: str, setting: str, problem: BaseException) -> str:
    first = (str(problem).splitlines() or [""])[0][:160]
    return f"ran out of memory in {doing}: lower {setting}, and run the same command again ({first})"


def _facts(settings: Any, others: Processes, data: Mapping[str, str]) -> dict[str, Any]:
    """What a report needs to say how to make the run again."""
    import transformers

    return {
        "text2grad": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(others.device),
        "processes": others.processes,
        "launched": others.launched,
        "command": sys.argv,
        "seed": settings.seed,
        "data": dict(data),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def digests(*sources: tuple[str, str, Sequence[Example] | None]) -> dict[str, str]:
    """(name, file, examples given from Python) of each part of the data → sha256 of what is used."""
    found = {}
    for name, path, given in sources:
        if given:
            content = "\n".join(json.dumps(example.to_json(), sort_keys=True) for example in given)
            found[name] = hashlib.sha256(content.encode()).hexdigest()
        elif path and (file := Path(path).expanduser()).is_file():
            found[path] = _sha256(file)
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_trackers(path: Path, done: int) -> dict[str, dict[str, Any]]:
    """What trackers should know so that a run which goes on is one run there, too; a folder is a run."""
    name = f"{path.resolve().name}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    return {
        # tensorboardX names its files by the second, and would write over one of the same.
        "tensorboard": {"purge_step": done + 1 if done else 0, "filename_suffix": f".{done}"},
        "wandb": {"id": name, "name": name, "dir": str(path), "resume": "allow"},
        "trackio": {"name": name, "resume": "allow"},
    }


def _trackable(settings: Any) -> dict[str, int | float | str | bool]:
    """The settings as trackers take them: flat, and what is no number, text or flag as a text."""
    flat = config.flat(config.plain(settings))
    return {key: value if isinstance(value, int | float | str | bool) else str(value) for key, value in flat.items()}
