"""The sampler that the settings name, for this model. Knows all of them; torch is imported when one is asked for."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from text2grad.errors import UnsupportedModel
from text2grad.models.sampling.settings import SamplingSettings
from text2grad.models.sampling.types import Sampled, Sampler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("text2grad")


def make_sampler(
    model: Any,
    settings: SamplingSettings | None = None,
    *,
    end_ids: Sequence[int],
    pad_id: int,
    value_head: Any | None = None,
) -> Sampler:
    """`model`: a causal model of transformers, or peft's around one; each call samples from its weights as they then
    are. `value_head`: hidden (…, H) → (…) or (…, 1), read from the hidden state that gives the logits.

    The setting `fast` raises `UnsupportedModel` where `auto` falls back to `plain`."""
    from text2grad.models.sampling.fast import FastSampler
    from text2grad.models.sampling.plain import PlainSampler

    settings = settings or SamplingSettings()
    plain = PlainSampler(model, settings, end_ids=end_ids, pad_id=pad_id, value_head=value_head)
    if settings.sampler == "plain":
        return plain
    try:
        fast = FastSampler(model, settings, end_ids=end_ids, pad_id=pad_id, value_head=value_head)
    except UnsupportedModel as reason:
        if settings.sampler == "fast":
            raise
        _tell(reason)
        return plain
    return fast if settings.sampler == "fast" else _FastOrPlain(fast, plain)


class _FastOrPlain:
    """Fast until it meets something that it does not know: a first look at the logits, an adapter put on later."""

    def __init__(self, fast: Sampler, plain: Sampler) -> None:
        self.fast: Sampler | None = fast
        self.plain = plain

    def __call__(self, prompts: Sequence[Sequence[int]], uniforms: "NDArray[np.float32] | None") -> list[Sampled]:
        if self.fast is not None:
            try:
                return self.fast(prompts, uniforms)
            except UnsupportedModel as reason:
                _tell(reason)
                self.fast = None
        return self.plain(prompts, uniforms)


def _tell(reason: UnsupportedModel) -> None:
    log.warning("sampling with the plain sampler, which is slower: the fast one does not know this model (%s)", reason)
