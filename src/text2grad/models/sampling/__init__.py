"""Prompts → completions: `make_sampler(model, settings, end_ids=…, pad_id=…).sample(prompts, Seed(…))`.

Two samplers: `plain` knows every causal model, `fast` the Llama-like and Qwen2-like ones. Both speak ids only and give
the log-probs of the distribution they sampled from. Names are imported when first asked for: the settings, which
`--help` prints, need no numpy, and nothing needs torch before a sampler is made.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from text2grad.models.sampling.make import ModelSampler, make_sampler, sampler_for
    from text2grad.models.sampling.noise import uniforms
    from text2grad.models.sampling.settings import SamplingSettings
    from text2grad.models.sampling.types import Sampled, Sampler, Seed

__all__ = [
    "ModelSampler",
    "Sampled",
    "Sampler",
    "SamplingSettings",
    "Seed",
    "make_sampler",
    "sampler_for",
    "uniforms",
]

_HOMES = {
    "ModelSampler": "make",
    "Sampled": "types",
    "Sampler": "types",
    "Seed": "types",
    "SamplingSettings": "settings",
    "make_sampler": "make",
    "sampler_for": "make",
    "uniforms": "noise",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
