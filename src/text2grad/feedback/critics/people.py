"""The critic `people`: what a row brings with it. Critique, correction and spans were written by somebody already."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from text2grad.errors import InvalidData
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.types import Critique


def people(
    prompts: Sequence[Prompt],  # noqa: ARG001
    completions: Sequence[str],
    critique: Sequence[Any] | None = None,
    revision: Sequence[Any] | None = None,
    spans: Sequence[Any] | None = None,
    **_columns: Sequence[Any],
) -> Critiques:
    """Rows without critique, correction and spans are not scored; neither are rows whose critique cannot be read."""
    critiques = Critiques()
    nothing = [None] * len(completions)
    for row in zip(critique or nothing, revision or nothing, spans or nothing, strict=True):
        try:
            critiques.add(_critique(*row), "the row has no critique, no revision and no spans")
        except InvalidData as problem:
            critiques.add(None, f"its critique cannot be read: {problem}")
    critiques.brought = {index for index, critique in enumerate(critiques) if critique is not None}
    return critiques


def _critique(words: Any, corrected: Any, marked: Any) -> Critique | None:
    revision = corrected if isinstance(corrected, str) and corrected.strip() else None
    if isinstance(words, dict):
        critique = Critique.from_json(words)
        return critique if critique.revision or not revision else replace(critique, revision=revision)
    feedback = words if isinstance(words, str) else ""
    if not feedback.strip() and revision is None and not marked:
        return None
    return Critique(feedback, revision=revision)
