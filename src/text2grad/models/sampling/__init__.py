"""Prompts → completions: `make_sampler(model, settings, end_ids=…, pad_id=…)(prompts, uniforms)`.

One interface, two samplers: `plain` knows every causal model, `fast` the Llama-like and Qwen2-like ones. Both speak ids
only and give the log-probs of the distribution that they drew from. The names are imported when first asked for: the
settings alone, which `--help` prints, need no numpy, and nothing here needs torch before `make_sampler` is called.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from text2grad.models.sampling.make import make_sampler
    from text2grad.models.sampling.noise import uniforms
    from text2grad.models.sampling.settings import SamplingSettings
    from text2grad.models.sampling.types import Sampled, Sampler

__all__ = ["Sampled", "Sampler", "SamplingSettings", "make_sampler", "uniforms"]

_HOMES = {
    "Sampled": "types",
    "Sampler": "types",
    "SamplingSettings": "settings",
    "make_sampler": "make",
    "uniforms": "noise",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
