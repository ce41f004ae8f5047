"""Critique → spans: `align` is the verb, `AlignSettings` its settings, `ladder` the order in which evidence is tried.

The names are imported when first asked for: the settings alone, which `--help` prints, need no numpy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from text2grad.feedback.align.ladder import Pair, align, align_many
    from text2grad.feedback.align.overlap import SIGN, owners, project, segments
    from text2grad.feedback.align.settings import AlignSettings

__all__ = ["SIGN", "AlignSettings", "Pair", "align", "align_many", "owners", "project", "segments"]

_HOMES = {
    "AlignSettings": "settings",
    **dict.fromkeys(("Pair", "align", "align_many"), "ladder"),
    **dict.fromkeys(("SIGN", "owners", "project", "segments"), "overlap"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
