"""Critique → spans: `align` is the verb, `AlignSettings` its settings; each rung of the ladder is a file here."""

from text2grad.feedback.align.batch import Pair, align_many
from text2grad.feedback.align.ladder import align
from text2grad.feedback.align.settings import AlignSettings

__all__ = ["AlignSettings", "Pair", "align", "align_many"]
