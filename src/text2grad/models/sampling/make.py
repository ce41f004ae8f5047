"""The sampler that the settings name, for this model. Knows all of them; torch is imported when one is asked for."""

from collections.abc import Sequence
from typing import Any

from text2grad.models.sampling.settings import SamplingSettings
from text2grad.models.sampling.types import Sampler


def make_sampler(
    model: Any,
    settings: SamplingSettings | None = None,
    *,
    end_ids: Sequence[int],
    pad_id: int,
    value_head: Any | None = None,
) -> Sampler:
    """`model`: a causal model of transformers, or peft's around one; each call samples from its weights as they then
    are. `value_head`: hidden (…, H) → (…) or (…, 1), read from the hidden state that gives the logits."""
    from text2grad.models.sampling.plain import PlainSampler

    return PlainSampler(model, settings or SamplingSettings(), end_ids=end_ids, pad_id=pad_id, value_head=value_head)
