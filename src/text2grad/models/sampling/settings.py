"""The settings of sampling: every number that changes a completion or the memory that it takes. No torch, no numpy."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt

from text2grad._checked import Int, Real
from text2grad.config import settings


@settings
class SamplingSettings:
    """How completions are drawn. There is no top-p, no top-k, no beam and no repetition penalty, on purpose: importance
    ratios are taken against the distribution that was sampled from, and the update knows only a temperature."""

    sampler: Literal["auto", "fast", "plain"] = "auto"
    """`fast` keeps a static cache and knows Llama-like and Qwen2-like models; `plain` calls the model step by step and
    knows every causal model; `auto` is `fast` where it can be, with a line in the log where it cannot."""
    max_new_tokens: Annotated[Int, Ge(1)] = 64
    """Tokens of a completion at most; one that is cut here is marked as truncated."""
    temperature: Annotated[Real, Gt(0)] = 1.0
    """Divides the logits before the softmax. Log-probs are those of the divided logits."""
    batch: Annotated[Int, Ge(1)] = 64
    """Completions that are decoded at once. More is faster on a GPU, and takes memory for their keys and values."""
    prefill_tokens: Annotated[Int, Ge(1)] = 16384
    """Tokens of prompts, padding included, that `fast` reads at once: bounds the memory of the first pass."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers that the model computes with while it samples; `auto` is the model's own. The softmax is always float32.
    With another than the model's own, the sampled log-probs differ a little from those of a training pass."""
