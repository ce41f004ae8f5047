"""What was asked, checked and put in order: before any tensor is made, shared by all samplers.

Enters: prompts, uniforms, the limits. Leaves: complaints that say what to do; orders and groups of prompts in which
little is padding; the count of what is. Of a model it knows how many ids there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData

GROWTH, SLACK = 1.25, 16
"""A group of prompts read at once holds lengths up to GROWTH times its shortest, or SLACK tokens more: so at most a
fifth of it is padding, or SLACK tokens a prompt."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens of the prompts that a call read, and tokens of padding read with them."""

    real: int
    padded: int


def vocabulary_of(model: Any, pad_id: int) -> int:
    """How many ids the model can read; the pad id, which rows that have ended are fed, should be one of them."""
    count = int(model.get_input_embeddings().weight.shape[0])
    if not 0 <= pad_id < count:
        raise InvalidData(f"pad_id should be an id that the model reads, 0 to {count - 1}, got {pad_id}; any will do")
    return count


def check(
    prompts: Sequence[Sequence[int]],
    uniforms: NDArray[np.float32] | None,
    new_tokens: int,
    positions: int | None,
    vocabulary: int,
) -> None:
    for place, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise InvalidData(
                f"prompt {place} is empty, and a model needs a token to go on from: begin it with the tokenizer's "
                f"begin-of-text or end-of-text id"
            )
        if positions is not None and len(prompt) + new_tokens > positions:
            raise InvalidData(
                f"prompt {place} has {len(prompt)} tokens, which with max_new_tokens={new_tokens} is more than the "
                f"{positions} positions of the model: shorten the prompt, or lower max_new_tokens"
            )
        if min(prompt) < 0 or max(prompt) >= vocabulary:
            # On a GPU such an id would end the process, with a message about something else.
            raise InvalidData(
                f"prompt {place} should hold ids from 0 to {vocabulary - 1}, got {min(prompt)} to {max(prompt)}: is "
                f"its tokenizer the model's?"
            )
    if uniforms is not None and uniforms.shape != (len(prompts), new_tokens):
        raise InvalidData(
            f"uniforms should have the shape ({len(prompts)}, {new_tokens}), a row a prompt and max_new_tokens numbers "
            f"in each, got {uniforms.shape}"
        )


def by_length(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Indices of the prompts, short ones first, equal ones side by side."""
    return sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), tuple(prompts[index])))


def batches(order: Sequence[int], batch: int) -> Iterator[list[int]]:
    for start in range(0, len(order), batch):
        yield list(order[start : start + batch])


def alike(lengths: Sequence[int], budget: int, slack: int = SLACK) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of ascending lengths that are read at once: within GROWTH or `slack` of the shortest, and
    `budget` tokens in all, padding included (a single prompt may be longer)."""
    start = 0
    for end, length in enumerate(lengths):
        most = max(int(lengths[start] * GROWTH), lengths[start] + slack)
        if end > start and (length > most or length * (end - start + 1) > budget):
            yield start, end
            start = end
    if lengths:
        yield start, len(lengths)
