"""Several processes, by accelerate: who writes, what is summed, how weights are sharded.

DDP: each process holds all weights; accelerate wraps the policy. FSDP2: weights are sharded layer by layer with torch's
`fully_shard`, called here, on CPU and GPU alike: accelerate ignores its own FSDP plugin on CPU without a word.
Accelerate's configuration decides which (`accelerate launch --config_file`, see `text2grad train --launch`).
"""

import difflib
import os
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import LoggerType, broadcast_object_list, gather_object, reduce
from torch import Tensor, nn

from text2grad.errors import ConfigError
from text2grad.models.backbone import Backbone
from text2grad.optim.batch import blank
from text2grad.runs.world import World

T = TypeVar("T")


class AccelerateWorld(World):
    """The processes of this run; one if it was not launched as several."""

    def __init__(self, device: str, trackers: tuple[str, ...] = (), folder: str | None = None) -> None:
        # Sharding is done here, so accelerate is kept from half-knowing about it.
        self.sharded = os.environ.pop("ACCELERATE_USE_FSDP", "false").lower() == "true"
        if os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true":
            raise ConfigError(
                "accelerate is configured for DeepSpeed, which text2grad does not run on: use --launch ddp or fsdp2"
            )
        _check_trackers(trackers)
        self.accelerator = Accelerator(
            cpu=device == "cpu", log_with=list(trackers) or None, project_dir=folder if trackers else None
        )
        self.size = self.accelerator.num_processes
        self.rank = self.accelerator.process_index
        self.sharded = self.sharded and self.size > 1
        self.device: torch.device = self.accelerator.device if self.size > 1 else torch.device(device)

    @property
    def launched(self) -> str:
        """The command-line words that start as many processes again; empty for one."""
        if self.size == 1:
            return ""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        nodes = f" --nodes {self.size // here} --node-rank RANK --rendezvous HOST:PORT" if self.size > here else ""
        return f"--launch {'fsdp2' if self.sharded else 'ddp'} --processes {here}{nodes}"

    def all_sum(self, numbers: Any) -> Any:
        # On the device of this process: GPUs speak nccl, which knows no tensors of the CPU.
        return reduce(numbers.to(self.device), "sum").to(numbers.device) if self.size > 1 else numbers

    def all_gather(self, mine: T) -> list[T]:
        everybody: list[T] = gather_object([mine])
        return everybody

    def broadcast(self, mine: T) -> T:
        (from_main,) = broadcast_object_list([mine])
        return from_main  # type: ignore[no-any-return]

    def prepare(self, policy: nn.Module) -> nn.Module:
        """The policy as it is called in the update."""
        if self.size == 1:
            return policy
        if self.sharded:
            shard(policy)
            return policy
        wrapped: nn.Module = self.accelerator.prepare_model(policy)
        return wrapped


def shard(policy: nn.Module) -> None:
    """FSDP2: each decoder layer its own shard, what is left (embeddings, value or span head) in one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    backbone = next(part for part in policy.modules() if isinstance(part, Backbone))
    mesh = init_device_mesh(backbone.device.type, (torch.distributed.get_world_size(),))
    for layer in backbone.layers():
        fully_shard(layer, mesh=mesh)
    # Left whole after a forward pass, as is usual for a root, its parameters would be others than the optimizer's.
    fully_shard(policy, mesh=mesh, reshard_after_forward=True)
    # The first module that is run becomes the root of the others, for good: it must be the policy, not a part of it.
    with torch.no_grad():
        policy(blank(backbone.device))


def whole_weights(model: nn.Module, *, trained: bool = False) -> dict[str, Tensor]:
    """All weights of a sharded model, on the CPU of the first process; empty on the others. All must ask together.
    `trained`: only those that are."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=trained)
    whole: Any = get_model_state_dict(model, options=options)
    return dict(whole)


def _check_trackers(trackers: tuple[str, ...]) -> None:
    """Accelerate passes over what is not installed without a word."""
    known = [str(kind.value) for kind in LoggerType if kind != LoggerType.ALL]
    there = {str(getattr(kind, "value", kind)) for kind in get_available_trackers()}
    for name in trackers:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"log.trackers: there is no tracker {name!r}; {hint}")
        if name not in there:
            raise ConfigError(f"log.trackers: {name} is not installed; pip install {name}, or leave it out")
