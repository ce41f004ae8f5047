"""What the samplers share: requests checked and put in order, ids drawn from logits, tensors made `Sampled`.

Enters: prompts, draws, the limits; logits of a batch. Leaves: complaints that say what to do, groups of prompts in
which little is padding, drawn ids with their log-probs. Of a model it knows how many ids and positions it has.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from text2grad.errors import InvalidData
from text2grad.models.sampling.settings import SamplingSettings
from text2grad.models.sampling.types import Sampled

GROWTH, SLACK = 1.25, 16
"""A group of prompts read at once holds lengths up to GROWTH times its shortest, or SLACK tokens more: so at most a
fifth of it is padding, or SLACK tokens a prompt."""
CHUNK = 256
"""Ids whose probabilities are summed first: the cumulative sum then runs over V / CHUNK sums and one chunk, not over V
numbers a row, which costs as much as a layer of a small model."""


class OverModel:
    """A model of transformers, or peft's around one, that is drawn from; and what a completion may look like."""

    def __init__(
        self,
        model: Any,
        settings: SamplingSettings,
        *,
        end_ids: Sequence[int],
        pad_id: int,
        value_head: nn.Module | None = None,
    ) -> None:
        self.model, self.settings, self.value_head = model, settings, value_head
        self.end_ids, self.pad_id = tuple(end_ids), pad_id
        self.positions: int | None = getattr(model.config, "max_position_embeddings", None)
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        if not 0 <= pad_id < self.vocabulary:
            # Rows that have ended are fed it.
            most = self.vocabulary - 1
            raise InvalidData(f"pad_id should be an id that the model reads, 0 to {most}, got {pad_id}; any will do")

    def check(self, prompts: Sequence[Sequence[int]], uniforms: NDArray[np.float32] | None) -> None:
        """Raise `InvalidData` for what the model cannot read, before any tensor is made."""
        new_tokens, most = self.settings.max_new_tokens, self.vocabulary - 1
        for place, prompt in enumerate(prompts):
            if len(prompt) == 0:
                raise InvalidData(
                    f"prompt {place} is empty, and a model needs a token to go on from: begin it with the tokenizer's "
                    f"begin-of-text or end-of-text id"
                )
            if self.positions is not None and len(prompt) + new_tokens > self.positions:
                raise InvalidData(
                    f"prompt {place} has {len(prompt)} tokens, which with max_new_tokens={new_tokens} is more than the "
                    f"{self.positions} positions of the model: shorten the prompt, or lower max_new_tokens"
                )
            if min(prompt) < 0 or max(prompt) > most:
                # On a GPU such an id would end the process, with a message about something else.
                raise InvalidData(
                    f"prompt {place} should hold ids from 0 to {most}, got {min(prompt)} to {max(prompt)}: is "
                    f"its tokenizer the model's?"
                )
        if uniforms is not None and uniforms.shape != (len(prompts), new_tokens):
            raise InvalidData(
                f"uniforms should have the shape ({len(prompts)}, {new_tokens}), a row a prompt and max_new_tokens "
                f"numbers in each, got {uniforms.shape}"
            )


def batches(prompts: Sequence[Sequence[int]], batch: int) -> Iterator[list[int]]:
    """Indices of the prompts, short ones first, equal ones side by side; so many at a time."""
    order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), tuple(prompts[index])))
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


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


def pick(logits_BV: Tensor, uniform_B: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    """(ids_B, logprobs_B) of softmax(logits / temperature), in float32.

    The id is the first whose cumulative probability exceeds the uniform number; never one of
    probability 0, whatever rounding does near 1. None: the likeliest id, the first of them if several are. Shapes are
    static and nothing is read back from the device, so it runs inside a CUDA graph."""
    scaled_BV = logits_BV.to(torch.float32, copy=True)
    if temperature != 1.0:
        scaled_BV.div_(temperature)
    weights_BV = scaled_BV.sub_(scaled_BV.amax(-1, keepdim=True)).exp_()
    sums_BC = _chunk_sums(weights_BV)
    # Greedy reads the logits themselves: two that differ in the last bit can have the same weight.
    ids_B = logits_BV.argmax(-1) if uniform_B is None else _invert(weights_BV, sums_BC, uniform_B)
    logprobs_B = weights_BV.gather(1, ids_B[:, None]).squeeze(1).div_(sums_BC.sum(-1)).log_()
    return ids_B, logprobs_B


def _chunk_sums(weights_BV: Tensor) -> Tensor:
    whole = weights_BV.shape[1] // CHUNK * CHUNK
    parts = []
    if whole:
        parts.append(weights_BV[:, :whole].view(len(weights_BV), -1, CHUNK).sum(-1))
    if whole < weights_BV.shape[1]:
        parts.append(weights_BV[:, whole:].sum(-1, keepdim=True))
    return torch.cat(parts, 1)


def _invert(weights_BV: Tensor, sums_BC: Tensor, uniform_B: Tensor) -> Tensor:
    last = weights_BV.shape[1] - 1
    chunk_B, rest_B = _first_beyond(sums_BC, uniform_B.float() * sums_BC.sum(-1))
    ids_BK = chunk_B[:, None] * CHUNK + torch.arange(CHUNK, device=weights_BV.device)
    inside_BK = weights_BV.gather(1, ids_BK.clamp(max=last)).masked_fill_(ids_BK > last, 0.0)
    place_B, _ = _first_beyond(inside_BK, rest_B)
    return chunk_B * CHUNK + place_B


def _first_beyond(weights_BK: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
    """The first place of weight > 0 whose cumulative sum exceeds the target, or the last of weight > 0 where rounding
    leaves none; and how far the target lies beyond the sum before it."""
    places_BK = torch.arange(weights_BK.shape[1], device=weights_BK.device).expand_as(weights_BK)
    cumulative_BK = weights_BK.cumsum(-1)
    possible_BK = weights_BK > 0
    beyond_BK = possible_BK & (cumulative_BK > target_B[:, None])
    first_B = places_BK.masked_fill(~beyond_BK, weights_BK.shape[1]).amin(-1)
    last_B = places_BK.masked_fill(~possible_BK, 0).amax(-1)
    place_B1 = torch.minimum(first_B, last_B)[:, None]
    before_B1 = cumulative_BK.gather(1, place_B1) - weights_BK.gather(1, place_B1)
    return place_B1.squeeze(1), (target_B[:, None] - before_B1).clamp_(min=0).squeeze(1)


def as_sampled(
    ids_BT: Tensor, logprobs_BT: Tensor, values_BT: Tensor | None, lengths_B: Tensor, ended_B: Tensor
) -> list[Sampled]:
    ids, logprobs = ids_BT.tolist(), logprobs_BT.tolist()
    values = None if values_BT is None else values_BT.tolist()
    return [
        Sampled(
            token_ids=tuple(ids[row][:length]),
            logprobs=tuple(logprobs[row][:length]),
            values=None if values is None else tuple(values[row][:length]),
            truncated=not ended,
        )
        for row, (length, ended) in enumerate(zip(lengths_B.tolist(), ended_B.tolist(), strict=True))
    ]


def values_of(value_head: nn.Module, hidden: Tensor) -> Tensor:
    """The head's numbers in float32, with or without a last dimension of one; it reads numbers of its own dtype."""
    own = next(value_head.parameters(), hidden)
    values: Tensor = value_head(hidden.to(own.dtype))
    return (values.squeeze(-1) if values.dim() == hidden.dim() else values).float()
