"""Whether a module trains or is looked at: dropout on, or off; compiled layers, or plain ones."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn


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
