"""Completions by calling the model token by token: slow, and right for every causal model of transformers.

Enters: prompts as ids. Leaves: `Sampled` in their order. Prompts are sorted by length and padded on the left, rows that
ended leave the batch once they are half of it. Refuses to know what is inside the model: it reads logits, and the input
of the output layer for the value head.
"""

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from text2grad.models.modes import evaluating
from text2grad.models.sampling.base import OverModel, as_sampled, batches, pick, values_of
from text2grad.models.sampling.settings import SamplingSettings
from text2grad.models.sampling.types import Sampled


class PlainSampler(OverModel):
    """A model that is sharded over processes (DTensor parameters) takes part in each step on every one of them: then
    all decode `max_new_tokens` steps, and all must be called with the same number of prompts."""

    def __init__(self, model: Any, settings: SamplingSettings, **options: Any) -> None:
        super().__init__(model, settings, **options)
        self._sharded = any(hasattr(parameter, "full_tensor") for parameter in model.parameters())
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._known = set(inspect.signature(inner.forward).parameters)

    def __call__(self, prompts: Sequence[Sequence[int]], uniforms: NDArray[np.float32] | None) -> list[Sampled]:
        self.check(prompts, uniforms)
        results: dict[int, Sampled] = {}
        with torch.no_grad(), evaluating(self.model, self.value_head), self._numbers():
            for rows in batches(prompts, self.settings.batch):
                chosen = [prompts[row] for row in rows]
                decoded = self._decode(chosen, None if uniforms is None else uniforms[rows])
                results.update(zip(rows, decoded, strict=True))
        return [results[row] for row in range(len(prompts))]

    def _decode(self, prompts: list[Sequence[int]], uniforms: NDArray[np.float32] | None) -> list[Sampled]:
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
        hidden: list[tuple[Tensor, Tensor]] = []
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
            if hidden_AH is not None:
                hidden.append((rows_A, hidden_AH))
            living = int(alive_A.sum())
            if living == 0 and not self._sharded:
                break
            feed_BP, position_BP = ids_A[:, None], position_BP[:, -1:] + 1
            if 2 * living <= len(rows_A) and not self._sharded and hasattr(cache, "batch_select_indices"):
                kept = alive_A.nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows_A, alive_A, mask_BS = rows_A[kept], alive_A[kept], mask_BS[kept]
                feed_BP, position_BP = feed_BP[kept], position_BP[kept]
        values_BT = self._values(hidden, count, steps)
        return as_sampled(ids_BT, logprobs_BT, values_BT, lengths_B, ended_B)

    def _padded(self, prompts: list[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids padded on the left, and a mask that already covers the tokens to come."""
        width = max(map(len, prompts))
        ids = np.full((len(prompts), width), self.pad_id, dtype=np.int64)
        mask = np.ones((len(prompts), width + self.settings.max_new_tokens), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = prompt
            mask[row, : width - len(prompt)] = 0
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)

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

    def _values(self, hidden: list[tuple[Tensor, Tensor]], count: int, steps: int) -> Tensor | None:
        if self.value_head is None:
            return None
        values_BT = torch.zeros(count, steps)
        for step, (rows_A, hidden_AH) in enumerate(hidden):
            values_BT[rows_A.cpu(), step] = values_of(self.value_head, hidden_AH).cpu()
        return values_BT

    def _numbers(self) -> AbstractContextManager[Any]:
        if self.settings.dtype == "auto":
            return nullcontext()
        wanted: torch.dtype = getattr(torch, self.settings.dtype)
        return torch.autocast(self.model.device.type, wanted, enabled=wanted != self.model.dtype)
