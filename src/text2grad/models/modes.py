"""Whether a module trains or is looked at: dropout on, or off."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(*modules: nn.Module | None) -> Iterator[None]:
    """Without dropout; afterwards each module is as it was."""
    training = [part for module in modules if module is not None for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
