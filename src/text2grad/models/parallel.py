"""Several processes, by accelerate: who writes, what is summed, how weights are shared out.

DDP: each process holds all weights; accelerate wraps the policy. FSDP2: weights are sharded layer by layer with torch's
`fully_shard`, called here, on CPU and GPU alike: accelerate ignores its own FSDP plugin on CPU without a word. Which
one it is, is accelerate's configuration (`accelerate launch --config_file`, see `text2grad train --launch`).
"""

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from text2grad.errors import ConfigError
from text2grad.models.policy import Policy, layers_of
from text2grad.optim.batch import blank

T = TypeVar("T")


class Processes:
    """The processes of this run; alone if it was not launched as several. Keeps `optim.reduce.Exchange`."""

    def __init__(self, device: str, trackers: tuple[str, ...] = (), folder: str | None = None) -> None:
        from accelerate import Accelerator

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
        self.processes: int = self.accelerator.num_processes
        self.rank: int = self.accelerator.process_index
        self.sharded = self.sharded and self.processes > 1
        self.device: torch.device = self.accelerator.device if self.processes > 1 else torch.device(device)

    @property
    def launched(self) -> str:
        """The words of the command line that start as many processes again; empty for one."""
        if self.processes == 1:
            return ""
        return f"--launch {'fsdp2' if self.sharded else 'ddp'} --processes {self.processes}"

    @property
    def first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def total(self, numbers: Tensor) -> Tensor:
        if self.processes == 1:
            return numbers
        # On the device of this process: GPUs speak nccl, which knows no tensors of the CPU.
        summed = numbers.to(self.device, copy=True)
        torch.distributed.all_reduce(summed)
        return summed.to(numbers.device)

    def most(self, number: int) -> int:
        if self.processes == 1:
            return number
        largest = torch.tensor([number], device=self.device)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        return int(largest)

    def gathered(self, mine: T) -> list[T]:
        """Everybody's, in the order of the ranks."""
        if self.processes == 1:
            return [mine]
        everybody: list[Any] = [None] * self.processes
        torch.distributed.all_gather_object(everybody, mine)
        return everybody

    def shared(self, mine: T) -> T:
        """The first process's, for everybody."""
        if self.processes == 1:
            return mine
        box = [mine]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]

    def prepare(self, policy: Policy) -> nn.Module:
        """The policy as it is to be called in the update."""
        if self.processes == 1:
            return policy
        if self.sharded:
            shard(policy)
            return policy
        wrapped: nn.Module = self.accelerator.prepare_model(policy)
        return wrapped


def shard(policy: Policy) -> None:
    """FSDP2: each decoder layer its own shard, what is left (embeddings, value head) in one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(policy.device.type, (torch.distributed.get_world_size(),))
    for layer in layers_of(policy.base):
        fully_shard(layer, mesh=mesh)
    # Left whole after a forward pass, as is usual for a root, its parameters would be others than the optimizer's.
    fully_shard(policy, mesh=mesh, reshard_after_forward=True)
    # The first module that is run becomes the root of the others, for good: it must be the policy, not a part of it.
    with torch.no_grad():
        policy(blank(policy.device))


@contextmanager
def gathered_ends(policy: Any) -> Iterator[None]:
    """For calls of parts of a sharded policy, not of the policy itself: embeddings, last norm, vocabulary projection
    and value head are whole here; layers gather themselves. Changes nothing for a policy that is not sharded."""
    if not hasattr(policy, "unshard"):
        yield
        return
    policy.unshard()
    try:
        yield
    finally:
        policy.reshard()


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights of a sharded model, on the CPU of the first process; empty on the others. All must ask together."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    whole: Any = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return dict(whole)


def _check_trackers(trackers: tuple[str, ...]) -> None:
    """Accelerate passes over what is not installed without a word."""
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    known = [str(kind.value) for kind in LoggerType if kind != LoggerType.ALL]
    there = {str(getattr(kind, "value", kind)) for kind in get_available_trackers()}
    for name in trackers:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"log.trackers: there is no tracker {name!r}; {hint}")
        if name not in there:
            raise ConfigError(f"log.trackers: {name} is not installed; pip install {name}, or leave it out")
