"""Critique → spans: `align` is the verb, `AlignSettings` its settings. Each rung of the ladder is a file beside this.

The names are imported when first asked for: the settings alone, which `--help` prints, need no numpy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from text2grad.feedback.align.batch import Pair, align_many
    from text2grad.feedback.align.ladder import align
    from text2grad.feedback.align.settings import AlignSettings

__all__ = ["AlignSettings", "Pair", "align", "align_many"]

_HOMES = {"AlignSettings": "settings", "Pair": "batch", "align": "ladder", "align_many": "batch"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
