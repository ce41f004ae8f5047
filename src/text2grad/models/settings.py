"""How a policy is held and computed; no torch, so that `--help` can list it at once."""

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from text2grad._checked import Flag, Int, Real
from text2grad.config import settings


@settings
class LoraSettings:
    """Low-rank adapters (peft)."""

    rank: Annotated[Int, Ge(0)] = 16
    """Of the adapters; 0 trains all weights."""
    alpha: Annotated[Int, Gt(0)] = 32
    """Adapters are scaled by alpha / rank."""
    dropout: Annotated[Real, Ge(0), Lt(1)] = 0.0
    """Dropout before the adapters. Above 0 the first ratios are no longer 1: sampling has no dropout."""
    targets: tuple[str, ...] = ()
    """Names of the layers that get one; empty: every linear layer but the vocabulary projection."""


@settings
class PolicySettings:
    """How the policy is held in memory and computed."""

    lora: LoraSettings = field(default_factory=LoraSettings)
    """Low-rank adapters; `lora.rank=0` is full fine-tuning."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: matrix products in bf16 (autocast), weights and sums in fp32."""
    gradient_checkpointing: Flag = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    compile: Flag = False
    """Compile the decoder layers for the update (torch.compile): fewer and larger operations, meant for GPUs. The first
    update waits for the compiler, and the last bits of the weights differ."""
    value_gradient: Flag = False
    """Let the value loss train the backbone as well as the value head. With scalar rewards it was 5–15 times larger
    than the policy's, and hurt."""
