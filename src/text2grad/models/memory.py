"""Memory of a GPU that several runs share: what this process may take, and what it can still have.

Enters: a device, and TEXT2GRAD_GPU_GIB, which `text2grad compare` sets to its `memory`. Leaves: bytes. With a limit a
run measures its sizes within it, and one that goes beyond it runs out of memory alone: it halves its sizes, and no
other run is touched.
"""

import math
import os
from contextlib import suppress

import torch

LIMIT = "TEXT2GRAD_GPU_GIB"


def limit_of_process() -> float:
    """Bytes; inf where there is no limit.

    >>> import os
    >>> os.environ.pop(LIMIT, None) or limit_of_process()
    inf
    """
    with suppress(ValueError):
        if (limit := float(os.environ.get(LIMIT, "inf"))) > 0:
            return limit * 2**30
    return math.inf


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
