"""Critique → spans: `align` is the verb, `AlignSettings` its settings. Each rung of the ladder is a file beside "
"this one."""

from text2grad.feedback.align.ladder import align
from text2grad.feedback.align.settings import AlignSettings

__all__ = ["AlignSettings", "align"]
