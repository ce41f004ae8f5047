"""What a checkpoint holds, and how a run comes back from it exactly.

    checkpoints/step-00000012/state.pt    weights that are trained, value head, optimizer, KL coefficient, slope, guard
                                          rails, random numbers of every kind, the update, the sizes of the JSONL files
    buffer/update-00000013.json           what was sampled and judged since: a resume uses it instead of asking again

Everything else follows from the settings and the number of the update: which examples come next, which random numbers
draw them, the learning rate.
"""

import errno
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from text2grad.errors import RunError
from text2grad.models.parallel import Processes
from text2grad.runs import RunFolder, write_atomic

STATE = "state.pt"


def random_states() -> dict[str, Any]:
    """Python's, numpy's, torch's, and the GPUs'. Ours draw without a state; critics and dropout may not."""
    drawn: Any = np.random.get_state()
    kind, keys, position, has_gauss, cached = drawn
    version, words, gauss = random.getstate()
    return {
        "python": [version, list(words), gauss],
        "numpy": [str(kind), keys.tolist(), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state().tolist(),
        "cuda": [state.tolist() for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([torch.tensor(state, dtype=torch.uint8) for state in states["cuda"]])


def weights_of(policy: nn.Module, optimizer: torch.optim.Optimizer, others: Processes) -> dict[str, Any]:
    """Trained weights and the optimizer's state, whole; where they are shared out, all processes must ask together, and
    only the first is given something."""
    if others.sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        whole = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
        weights, state = get_state_dict(policy, optimizer, options=whole)
        return {"weights": weights, "optimizer": state}
    trained = {name: weight.detach() for name, weight in policy.named_parameters() if weight.requires_grad}
    return {"weights": trained, "optimizer": optimizer.state_dict()}


def restore_weights(
    policy: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any], others: Processes
) -> None:
    if others.sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

        whole = StateDictOptions(full_state_dict=True, strict=False, ignore_frozen_params=True)
        set_state_dict(
            policy,
            optimizer,
            model_state_dict=state["weights"],
            optim_state_dict=state["optimizer"],
            options=whole,
        )
        return
    mine = dict(policy.named_parameters())
    if set(state["weights"]) != {name for name, weight in mine.items() if weight.requires_grad}:
        raise RunError("the checkpoint holds other weights than this model trains; did the model change under the run?")
    with torch.no_grad():
        for name, weight in state["weights"].items():
            mine[name].copy_(weight)
    optimizer.load_state_dict(state["optimizer"])


def save(folder: RunFolder, update: int, state: dict[str, Any]) -> Path:
    """One checkpoint, complete or not there. What was buffered before it is no longer needed."""

    def write(place: Path) -> None:
        with disk_errors():
            torch.save(state, place / STATE)

    path = folder.save_checkpoint(update, write)
    Buffer(folder.path).forget(update)
    return path


@contextmanager
def disk_errors() -> Iterator[None]:
    """torch and safetensors write by themselves, and report a full disk in words of their own."""
    try:
        yield
    except (RuntimeError, SafetensorError) as problem:
        words = f"{problem} {problem.__context__}"
        if not any(sign in words for sign in ("No space left", "os error 28", "iostream error", "unexpected pos")):
            raise
        raise OSError(errno.ENOSPC, words.splitlines()[0]) from problem


def load(checkpoint: Path) -> dict[str, Any]:
    """Read back; a file that cannot be read is named, with what to do."""
    path = checkpoint / STATE
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        first = (str(problem).splitlines() or [""])[0][:120]
        raise RunError(
            f"{path}: cannot be read ({type(problem).__name__}: {first}); delete this checkpoint folder to go on from "
            f"the one before it"
        ) from problem
    return state


class Buffer:
    """Rollouts since the last checkpoint, one file an update."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "buffer"

    def put(self, update: int, kept: dict[str, Any]) -> None:
        self.path.mkdir(exist_ok=True)
        write_atomic(self._file(update), json.dumps(kept).encode())

    def get(self, update: int) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._file(update).read_bytes())
        except (FileNotFoundError, ValueError):
            # Torn by something stronger than a kill: sampled and judged again.
            return None
        return found

    def forget(self, update: int) -> None:
        """Everything up to this update."""
        for file in self.path.glob("update-*.json"):
            if int(file.stem.split("-")[1]) <= update:
                file.unlink()
        if self.path.is_dir() and not any(self.path.iterdir()):
            shutil.rmtree(self.path)

    def _file(self, update: int) -> Path:
        return self.path / f"update-{update:08d}.json"
