"""What a pass over a model is run in: as in evaluation, with its sharded ends whole, with memory errors explained."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from text2grad.errors import RunError, first_line


@contextmanager
def evaluating(*modules: nn.Module | None) -> Iterator[None]:
    """Without dropout; afterwards each module is as it was. Layers that are compiled for training run as they are:
    with a cache of keys each of them would be compiled by itself."""
    parts = [part for module in modules if module is not None for part in module.modules()]
    training = [part for part in parts if part.training]
    compiled = any(part._compiled_call_impl is not None for part in parts)
    for part in training:
        part.training = False
    try:
        # Asked for only where it is needed: it imports torch's compiler.
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        for part in training:
            part.training = True


def without_plans() -> None:
    """Keep cuDNN's attention out, from now on: it makes a plan for every new shape, which takes longer than all it
    saves where lengths differ from batch to batch."""
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """For work on a CPU's tensors beside a GPU: they are small, and waking a pool of threads can take longer than the
    work itself, while the GPU waits. Changes nothing where the device is the CPU."""
    before = torch.get_num_threads()
    if device.type == "cpu" or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


@contextmanager
def memory_named(doing: str, setting: str) -> Iterator[None]:
    """Turn running out of memory in this block into an error that names the setting."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        if type(problem).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise RunError(
                f"policy.compile=true: torch could not compile the layers ({first_line(problem)}); set it to false and "
                f"run the same command again, or install a C++ compiler"
            ) from problem
        kinds = isinstance(problem, torch.OutOfMemoryError | MemoryError)
        if not kinds and "can't allocate memory" not in str(problem) and "not enough memory" not in str(problem):
            raise
        raise RunError(
            f"ran out of memory in {doing}: lower {setting}, and run the same command again ({first_line(problem)})"
        ) from problem
