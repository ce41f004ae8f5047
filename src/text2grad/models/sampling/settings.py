"""The settings of sampling: every number that changes a completion or the memory that it takes. No torch, no numpy."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt

from text2grad._checked import Int, Real
from text2grad.config import settings


@settings
class SamplingSettings:
    """How completions are drawn. There is no top-p, no top-k, no beam and no repetition penalty, on purpose: importance
    ratios are taken against the distribution that was sampled from, and the update knows only a temperature."""

    sampler: str = "auto"
    """fast: a static cache, for Llama-like and Qwen2-like models. plain: calls the model step by step, for every causal
    model. auto: fast where it can be. Or your own as package.module:object."""
    max_new_tokens: Annotated[Int, Ge(1)] = 64
    """Longest completion in tokens; one that is cut off here is marked as truncated."""
    temperature: Annotated[Real, Gt(0)] = 1.0
    """Divides the logits before the softmax. Log-probs are those of the divided logits."""
    batch: Annotated[Int, Ge(1)] = 64
    """Completions decoded at once. More is faster on a GPU, and takes more memory for keys and values."""
    prefill_tokens: Annotated[Int, Ge(1)] = 16384
    """Prompt tokens, padding included, that `fast` reads at once: bounds the memory of the first pass."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of sampling; auto: the model's own. The softmax is always float32. With another precision than the
    model's own, sampled log-probs differ slightly from those of a training pass."""
