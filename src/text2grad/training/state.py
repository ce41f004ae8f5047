"""What a checkpoint holds, and how a run comes back from it exactly.

    checkpoints/step-00000012/state.pt    trained weights, heads, optimizer, random numbers of every kind, and the parts
                                          that the loop names: scale of verdicts, spread, guard rails, best weights
                             /*.distcp    with --launch fsdp2: weights and optimizer, each process its own shards
                                          (torch.distributed.checkpoint); state.pt has the rest
    buffer/update-00000013.json           sampled and judged since: a resume uses it instead of asking again

Everything else follows from the settings and the number of the update: which examples come next, which random numbers
draw them, the learning rate.
"""

import errno
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from text2grad.errors import RunError, first_line
from text2grad.runs.folder import check_checkpoint, file_digest
from text2grad.runs.world import World

STATE = "state.pt"
SHARDS = ".distcp"


class Part(Protocol):
    """Something that a loop remembers from update to update."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class TrainingState:
    """The weights, their optimizer, random numbers, and named parts: a `State` for `Run`."""

    def __init__(
        self, policy: nn.Module, optimizer: torch.optim.Optimizer, world: World, parts: Mapping[str, Part]
    ) -> None:
        self.policy, self.optimizer, self.world, self.parts = policy, optimizer, world, parts

    def collect(self) -> dict[str, Any]:
        return {
            **({} if self.world.sharded else weights_of(self.policy, self.optimizer)),
            **{name: part.state() for name, part in self.parts.items()},
            "random": self.world.all_gather(random_states()),
        }

    def restore(self, collected: Mapping[str, Any]) -> None:
        wanted = {*self.parts, *(() if self.world.sharded else ("weights", "optimizer"))}
        if missing := wanted - collected.keys():
            raise RunError(
                f"the checkpoint lacks {', '.join(sorted(missing))}: another version of text2grad has written it. "
                f"Resume with that version, or start in another folder"
            )
        if not self.world.sharded:
            restore_weights(self.policy, self.optimizer, collected)
        for name, part in self.parts.items():
            part.restore(collected[name])
        restore_random_states(collected["random"][self.world.rank])

    def write(self, collected: dict[str, Any], folder: Path) -> dict[str, str]:
        with disk_errors():
            torch.save(collected, folder / STATE)
        return self._write_shards(self.world.broadcast(folder)) if self.world.sharded else {}

    def assist(self) -> None:
        if self.world.sharded:
            self._write_shards(self.world.broadcast(Path()))

    def _write_shards(self, folder: Path) -> dict[str, str]:
        """Every process writes its own; the checksums of all, each taken by its writer."""
        with shard_errors(folder):
            save_shards(self._shards(), storage_writer=FileSystemWriter(folder))
        mine = {file.name: file_digest(file) for file in folder.glob(f"__{self.world.rank}_*{SHARDS}")}
        return {name: digest for part in self.world.all_gather(mine) for name, digest in part.items()}

    def _shards(self) -> dict[str, Any]:
        """This process's part of the trained weights and of the optimizer; what is loaded is loaded into them."""
        options = StateDictOptions(ignore_frozen_params=True)
        weights, optimizer = get_state_dict(self.policy, self.optimizer, options=options)
        # Under one name each: torch also gives the second one of a vocabulary projection that is the embedding.
        trained = {name for name, weight in self.policy.named_parameters() if weight.requires_grad}
        return {"weights": {name: weights[name] for name in trained}, "optimizer": optimizer}

    def read(self, folder: Path) -> dict[str, Any]:
        """A checkpoint that is damaged, or cannot be read, is named, with what to do. Shards are loaded at once: they
        are too large to be held beside what they replace."""
        path, world = folder / STATE, self.world
        problem = None
        try:
            # Each process looks at a part of the files where there are many.
            check_checkpoint(folder, slice(world.rank, None, world.size) if world.sharded else slice(None))
        except RunError as refusal:
            problem = refusal
        for found in world.all_gather(problem) if world.sharded else [problem]:
            if found is not None:
                raise found
        try:
            collected: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as problem:
            raise RunError(
                f"{path}: cannot be read ({first_line(problem, named=True)}); delete this checkpoint folder to resume "
                f"from the one before it"
            ) from problem
        if world.sharded:
            self._read_shards(folder)
        return collected

    def _read_shards(self, folder: Path) -> None:
        state = self._shards()
        with shard_errors(folder):
            load_shards(state, storage_reader=FileSystemReader(folder))
        set_state_dict(
            self.policy,
            self.optimizer,
            model_state_dict=state["weights"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(strict=False, ignore_frozen_params=True),
        )


def trained_weights(folder: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The trained weights of a checkpoint, whole, in one process, whoever has written it. `wanted`: their names and
    shapes, for one in shards."""
    check_checkpoint(folder)
    if not any(folder.glob(f"*{SHARDS}")):
        weights: dict[str, Tensor] = torch.load(folder / STATE, map_location="cpu", weights_only=True)["weights"]
        return weights
    reader = FileSystemReader(folder)
    there = {
        name.removeprefix("weights.") for name in reader.read_metadata().state_dict_metadata if name[:8] == "weights."
    }
    weights = {name: torch.empty_like(wanted[name]) if name in wanted else torch.empty(0) for name in there}
    with shard_errors(folder), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # which is what is meant
        load_shards(
            {"weights": {name: weights[name] for name in there & wanted.keys()}}, storage_reader=reader, no_dist=True
        )
    return weights


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


def weights_of(policy: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Trained weights and the optimizer's state."""
    trained = {name: weight.detach() for name, weight in policy.named_parameters() if weight.requires_grad}
    return {"weights": trained, "optimizer": optimizer.state_dict()}


def restore_weights(policy: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
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


@contextmanager
def shard_errors(folder: Path) -> Iterator[None]:
    """What torch reports of all processes together, in one line; it is not an `Exception` there."""
    try:
        yield
    except CheckpointException as problem:
        causes = [str(one[0]) for one in problem.failures.values()]
        if any("No space left" in cause for cause in causes):
            raise OSError(errno.ENOSPC, f"{folder}: no space left for the shards of a checkpoint") from None
        raise RunError(
            f"{folder}: its shards cannot be written or read ({'; '.join(sorted(set(causes)))[:300]}). With several "
            f"machines, the run folder should lie on a file system that all of them share"
        ) from None
