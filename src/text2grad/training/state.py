"""What a checkpoint holds, and how a run comes back from it exactly.

    checkpoints/step-00000012/state.pt    trained weights, heads, optimizer, random numbers of every kind, and the parts
                                          that the loop names: KL coefficient, scale of verdicts, guard rails
    buffer/update-00000013.json           sampled and judged since: a resume uses it instead of asking again

Everything else follows from the settings and the number of the update: which examples come next, which random numbers
draw them, the learning rate.
"""

import errno
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from text2grad.errors import RunError, first_line
from text2grad.models.parallel import Processes
from text2grad.runs.folder import check_checkpoint

STATE = "state.pt"


class Part(Protocol):
    """Something that a loop remembers from update to update."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class TrainingState:
    """The weights, their optimizer, random numbers, and named parts: a `State` for `Run`."""

    def __init__(
        self, policy: nn.Module, optimizer: torch.optim.Optimizer, world: Processes, parts: Mapping[str, Part]
    ) -> None:
        self.policy, self.optimizer, self.world, self.parts = policy, optimizer, world, parts

    def collect(self) -> dict[str, Any]:
        return {
            **weights_of(self.policy, self.optimizer, self.world),
            **{name: part.state() for name, part in self.parts.items()},
            "random": self.world.all_gather(random_states()),
        }

    def restore(self, collected: Mapping[str, Any]) -> None:
        if missing := self.parts.keys() - collected.keys():
            raise RunError(
                f"the checkpoint lacks {', '.join(sorted(missing))}: another version of text2grad has written it. "
                f"Resume with that version, or start in another folder"
            )
        restore_weights(self.policy, self.optimizer, collected, self.world)
        for name, part in self.parts.items():
            part.restore(collected[name])
        restore_random_states(collected["random"][self.world.rank])

    def write(self, collected: dict[str, Any], folder: Path) -> None:
        with disk_errors():
            torch.save(collected, folder / STATE)

    def read(self, folder: Path) -> dict[str, Any]:
        """A checkpoint that is damaged, or cannot be read, is named, with what to do."""
        check_checkpoint(folder)
        path = folder / STATE
        try:
            collected: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as problem:
            raise RunError(
                f"{path}: cannot be read ({first_line(problem, named=True)}); delete this checkpoint folder to resume "
                f"from the one before it"
            ) from problem
        return collected


def random_states() -> dict[str, Any]:
    """Python's, numpy's, torch's, and the GPUs'. Our own draws have no state; critics' and dropout's may."""
    drawn: Any = np.random.get_state()
    kind, keys, position, has_gauss, cached = drawn
    version, words, gauss = random.getstate()
    return {
        "python": [version, list(words), gauss],
        "numpy": [str(kind), keys.tolist(), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state().tolist(),
        "cuda": [state.tolist() for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
    }


def restore_random_states(states: Mapping[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([torch.tensor(state, dtype=torch.uint8) for state in states["cuda"]])


def seed_everything(seed: int) -> None:
    """Everything that draws from a global state: critics may, dropout and new adapters do."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def weights_of(policy: nn.Module, optimizer: torch.optim.Optimizer, world: Processes) -> dict[str, Any]:
    """Trained weights and the optimizer's state, whole. Where they are sharded, all processes must ask together, and
    only the main one gets something."""
    if world.sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        whole = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
        weights, state = get_state_dict(policy, optimizer, options=whole)
        return {"weights": weights, "optimizer": state}
    trained = {name: weight.detach() for name, weight in policy.named_parameters() if weight.requires_grad}
    return {"weights": trained, "optimizer": optimizer.state_dict()}


def restore_weights(
    policy: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any], world: Processes
) -> None:
    if world.sharded:
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


@contextmanager
def disk_errors() -> Iterator[None]:
    """torch and safetensors report a full disk in words of their own."""
    try:
        yield
    except (RuntimeError, SafetensorError) as problem:
        words = f"{problem} {problem.__context__}"
        if not any(sign in words for sign in ("No space left", "os error 28", "iostream error", "unexpected pos")):
            raise
        raise OSError(errno.ENOSPC, words.splitlines()[0]) from problem
