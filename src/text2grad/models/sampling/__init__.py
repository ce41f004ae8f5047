"""Prompts → completions: `ModelSampler(model, settings, end_ids=…, pad_id=…).sample(prompts, Seed(…))`.

Two samplers: `plain` knows every causal model, `fast` the Llama-like and Qwen2-like ones. Both speak ids only and give
the log-probs of the distribution they sampled from. Torch and numpy are imported when a sampler is made: the settings,
which `--help` prints, need neither.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from text2grad.errors import UnsupportedModel
from text2grad.models.sampling.settings import SamplingSettings
from text2grad.models.sampling.types import Sampled, Sampler, Seed, uniforms
from text2grad.plugins import find_plugin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ModelSampler",
    "Sampled",
    "Sampler",
    "SamplingSettings",
    "Seed",
    "sampler_for",
    "uniforms",
]

log = logging.getLogger("text2grad")


def sampler_for(policy: Any, settings: SamplingSettings, *, end_ids: Sequence[int], pad_id: int) -> Sampler:
    """The sampler of a training run. A user's own is named as `package.module:object` and made the same way."""
    own = find_plugin(settings.sampler, dict.fromkeys(("auto", "fast", "plain")), "sampling.sampler")
    if own is None:
        return ModelSampler(policy.model, settings, end_ids=end_ids, pad_id=pad_id, value_head=policy.value_head)
    sampler: Sampler = own(policy, settings, end_ids=end_ids, pad_id=pad_id)
    return sampler


class ModelSampler:
    """Samples from a model in this process, whose weights are read anew in each call. Fast until it meets a model, or
    an adapter, that the fast sampler does not know; with the setting `fast` that raises `UnsupportedModel`."""

    def __init__(self, model: Any, settings: SamplingSettings, **options: Any) -> None:
        """`model`: a causal model of transformers, or peft's around one. `options`: `end_ids`, `pad_id`, and
        `value_head` (None, or hidden (…, H) → (…) or (…, 1), read from the hidden state that gives the logits)."""
        self.settings, self._options = settings, options
        self._over(model)

    def load(self, policy: Any) -> None:
        if policy.model is not self.model:
            self._options["value_head"] = policy.value_head
            self._over(policy.model)

    def sample(self, prompts: Sequence[Sequence[int]], seed: Seed | None) -> list[Sampled]:
        limit = self.settings.max_new_tokens
        return self(prompts, None if seed is None else uniforms(seed.run, seed.step, seed.indices, limit))

    def __call__(self, prompts: Sequence[Sequence[int]], draws: "NDArray[np.float32] | None") -> list[Sampled]:
        """`draws`: one row per prompt, `max_new_tokens` numbers in [0, 1) each; None takes the likeliest id."""
        if self.fast is not None:
            try:
                return self.fast(prompts, draws)
            except UnsupportedModel as reason:
                self._fall_back(reason)
        return self.plain(prompts, draws)

    def _over(self, model: Any) -> None:
        from text2grad.models.sampling.fast import FastSampler
        from text2grad.models.sampling.plain import PlainSampler

        self.model = model
        self.plain = PlainSampler(model, self.settings, **self._options)
        self.fast: FastSampler | None = None
        if self.settings.sampler != "plain":
            try:
                self.fast = FastSampler(model, self.settings, **self._options)
            except UnsupportedModel as reason:
                self._fall_back(reason)

    def _fall_back(self, reason: UnsupportedModel) -> None:
        if self.settings.sampler == "fast":
            raise reason
        self.fast = None
        log.warning(
            "sampling with the plain sampler, which is slower: the fast one does not know this model (%s)", reason
        )
