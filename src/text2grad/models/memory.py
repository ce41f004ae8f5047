"""Memory of a GPU that several runs share: what this process may take, and what it can still have.

Enters: a device, and TEXT2GRAD_GPU_GIB, which `text2grad compare` sets to its `memory`. Leaves: bytes. With a limit a
run measures its sizes within it, and one that goes beyond it runs out of memory alone, so that no other run is touched.
What CUDA itself takes for a process, about half a GiB, comes on top.
"""

import math
import os

import torch

from text2grad.errors import ConfigError

LIMIT = "TEXT2GRAD_GPU_GIB"


def limit_of_process() -> float:
    """The limit of this process in bytes; infinite if none is set.

    >>> import os
    >>> os.environ.pop(LIMIT, None) or limit_of_process()
    inf
    """
    said = os.environ.get(LIMIT) or "inf"
    try:
        limit = float(said)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise ConfigError(f"{LIMIT} should be a number of GiB above 0, got {said!r}")
    return limit * 2**30


def keep_to_limit(device: torch.device | str) -> None:
    """Let torch refuse what is beyond the limit."""
    device, limit = torch.device(device), limit_of_process()
    if device.type == "cuda" and limit < math.inf:
        place = torch.cuda.current_device() if device.index is None else device.index
        whole = torch.cuda.get_device_properties(place).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / whole), place)


def free_memory(device: torch.device) -> float:
    """Bytes that can still be had: those of the GPU, and those that torch holds for nothing, within the limit."""
    free, _ = torch.cuda.mem_get_info(device)
    allocated = torch.cuda.memory_allocated(device)
    unused = torch.cuda.memory_reserved(device) - allocated
    return float(min(free + unused, limit_of_process() - allocated))
