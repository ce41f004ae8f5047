"""Completions by calling the model token by token: slow, and right for every causal model of transformers. And what the
fast decoder shares with it: ids that are drawn from logits.

Enters: prompts of similar length, as ids. Leaves: `Sampled` in their order. Prompts are padded on the left, rows that
ended leave the batch once they are half of it. Refuses to know what is inside the model: it reads logits, and the input
of the output layer for the value head.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from text2grad.models.modes import evaluating
from text2grad.models.sampling import Ended, Sampled, SamplingSettings

CHUNK = 256
"""Ids whose probabilities are summed first: the cumulative sum then runs over V / CHUNK sums and one chunk, not over V
numbers a row, which costs as much as a layer of a small model."""


AT_ONCE = 64
"""Completions, where the setting leaves it to us and memory is not measured."""


class PlainDecoder:
    """A model that is sharded over processes (DTensor parameters) takes part in each step on every one of them: then
    all decode `max_new_tokens` steps, and all must be called with the same number of prompts."""

    def __init__(
        self, model: Any, settings: SamplingSettings, end_ids: tuple[int, ...], pad_id: int, value_head: Any
    ) -> None:
        self.model, self.settings, self.value_head = model, settings, value_head
        self.end_ids, self.pad_id = end_ids, pad_id
        self._sharded = any(hasattr(parameter, "full_tensor") for parameter in model.parameters())
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._known = set(inspect.signature(inner.forward).parameters)
        self.batch = AT_ONCE if settings.batch == "auto" else settings.batch
        """Completions decoded at once."""
        self.ended: Ended | None = None

    def halve(self) -> None:
        self.batch = max(1, self.batch // 2)
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def ready(self, _prompts: Sequence[Sequence[int]]) -> Iterator[None]:
        """What batches of these prompts are decoded in."""
        with torch.no_grad(), evaluating(self.model, self.value_head), self._numbers():
            yield

    def decode(self, prompts: Sequence[Sequence[int]], uniforms: NDArray[np.float32] | None) -> list[Sampled]:
        device, steps = self.model.device, self.settings.max_new_tokens
        feed_BP, mask_BS = self._padded(prompts, device)
        count, width = feed_BP.shape
        position_BP = (mask_BS[:, :width].cumsum(-1) - 1).clamp_(min=0)
        ends_E = torch.tensor(self.end_ids, dtype=torch.long, device=device)
        uniform_BT = None if uniforms is None else torch.from_numpy(uniforms).to(device)
        rows_A = torch.arange(count, device=device)
        alive_A = torch.ones(count, dtype=torch.bool, device=device)
        ids_BT = torch.full((count, steps), self.pad_id, device=device)
        logprobs_BT = torch.zeros(count, steps, device=device)
        lengths_B = torch.zeros(count, dtype=torch.long, device=device)
        ended_B = torch.zeros(count, dtype=torch.bool, device=device)
        values_BT = None if self.value_head is None else torch.zeros_like(logprobs_BT)
        cache = None
        for step in range(steps):
            logits_AV, hidden_AH, cache = self._forward(feed_BP, mask_BS[:, : width + step], position_BP, cache)
            drawn = None if uniform_BT is None else uniform_BT[rows_A, step]
            ids_A, logprobs_A = pick(logits_AV, drawn, self.settings.temperature)
            ids_A = torch.where(alive_A, ids_A, self.pad_id)
            ids_BT[rows_A, step], logprobs_BT[rows_A, step] = ids_A, logprobs_A
            lengths_B[rows_A] += alive_A
            ended_B[rows_A] |= alive_A & torch.isin(ids_A, ends_E)
            alive_A = ~ended_B[rows_A]
            if values_BT is not None and self.value_head is not None:
                values_BT[rows_A, step] = values_of(self.value_head, hidden_AH)
            living = int(alive_A.sum())
            if living == 0 and not self._sharded:
                break
            feed_BP, position_BP = ids_A[:, None], position_BP[:, -1:] + 1
            if 2 * living <= len(rows_A) and not self._sharded and hasattr(cache, "batch_select_indices"):
                if self.ended is not None:
                    gone = rows_A[~alive_A]
                    values = None if values_BT is None else values_BT[gone]
                    parts = as_sampled(ids_BT[gone], logprobs_BT[gone], values, lengths_B[gone], ended_B[gone])
                    self.ended(dict(zip(gone.tolist(), parts, strict=True)))
                kept = alive_A.nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows_A, alive_A, mask_BS = rows_A[kept], alive_A[kept], mask_BS[kept]
                feed_BP, position_BP = feed_BP[kept], position_BP[kept]
        return as_sampled(ids_BT, logprobs_BT, values_BT, lengths_B, ended_B)

    def _padded(self, prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids padded on the left, and a mask that already covers the tokens to come."""
        rows = [torch.tensor(prompt) for prompt in prompts]
        ids_BP = pad_sequence(rows, batch_first=True, padding_value=self.pad_id, padding_side="left")
        width = ids_BP.shape[1]
        first_B = torch.tensor([width - len(prompt) for prompt in prompts])
        mask_BS = torch.arange(width + self.settings.max_new_tokens) >= first_B[:, None]
        return ids_BP.to(device), mask_BS.long().to(device)

    def _forward(self, ids_BP: Tensor, mask_BS: Tensor, position_BP: Tensor, cache: Any) -> tuple[Tensor, Any, Any]:
        """(logits_BV, hidden_BH or None, cache) after the last of these ids."""
        inputs = {"attention_mask": mask_BS, "position_ids": position_BP, "logits_to_keep": 1}
        inputs = {name: value for name, value in inputs.items() if name in self._known}
        seen: list[Tensor] = []
        hook: AbstractContextManager[Any] = nullcontext()
        if self.value_head is not None:
            layer = self.model.get_output_embeddings()
            hook = layer.register_forward_pre_hook(lambda _module, given: seen.append(given[0][:, -1]))
        with hook:
            output = self.model(input_ids=ids_BP, past_key_values=cache, use_cache=True, **inputs)
        return output.logits[:, -1], seen[0] if seen else None, output.past_key_values

    def _numbers(self) -> AbstractContextManager[Any]:
        if self.settings.dtype == "auto":
            return nullcontext()
        wanted: torch.dtype = getattr(torch, self.settings.dtype)
        return torch.autocast(self.model.device.type, wanted, enabled=wanted != self.model.dtype)


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
