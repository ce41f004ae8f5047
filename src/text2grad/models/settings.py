"""How a policy is held and computed; no torch, so that `--help` can list it at once."""

from dataclasses import field, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad._checked import Flag, Int, Real
from text2grad.config import settings


@settings
class LoraSettings:
    """Low-rank adapters (peft)."""

    rank: Annotated[Int, Ge(0), Le(65536)] = 16
    """Rank of the LoRA adapters. 0: train all weights."""
    alpha: Annotated[Int, Gt(0)] = 32
    """Adapters are scaled by alpha / rank."""
    dropout: Annotated[Real, Ge(0), Lt(1)] = 0.0
    """Dropout before the adapters. Above 0 the first ratios are no longer 1: sampling has no dropout."""
    targets: tuple[str, ...] = ()
    """Names of the layers that get an adapter. Empty: every linear layer except the vocabulary projection."""


@settings
class PolicySettings:
    """How the policy is held in memory and computed."""

    lora: LoraSettings = field(default_factory=LoraSettings)
    """Low-rank adapters; `lora.rank=0` is full fine-tuning."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: matrix products in bf16 (autocast), weights and sums in fp32."""
    packing: Literal["auto", "always", "never"] = "auto"
    """Read rows without padding, each prompt once, in one pass. auto: on a GPU with precision=bfloat16. For Llama-,
    Qwen- and Mistral-like models; others are read row by row."""
    cuda_graphs: Literal["auto", "always", "never"] = "auto"
    """Record packed passes and launch each as a whole. auto: in one process, for models of less than a billion weights,
    whose kernels are so short that a GPU waits for their launches."""
    gradient_checkpointing: Flag = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    compile: Flag = False
    """Compile the decoder layers of policy and reference (torch.compile): fewer and larger operations, meant for GPUs.
    The first update waits for the compiler, and the last bits of the weights differ."""
    value_gradient: Flag = False
    """Let the value loss train the backbone as well as the value head. With scalar rewards it was 5–15 times larger
    than the policy's, and hurt."""


@settings
class Template:
    """The words around the parts, and the room there is."""

    before: str = "Prompt:\n"
    """Before the prompt. Instructions for the model go here."""
    between: str = "\n\nText:\n"
    """Between the prompt and the completion."""
    again: str = "\n\nAgain:\n"
    """Between the two readings of the completion."""
    after: str = "\n\nCritique:\n"
    """Between the completion and its critique."""
    gap: str = " […] "
    """Stands for the middle of a prompt that is too long."""
    max_tokens: Annotated[Int, Gt(16)] = 1024
    """Tokens of everything together, critique included; at most the positions that the model has."""
    writes: Literal["words", "quotes"] = "words"
    """What the language head learns to write. words: the critique's own words. quotes: the paper's way, one JSON object
    with the words and every quote. It takes several times as many tokens, and needs no span head."""
    critique_tokens: Annotated[Int, Gt(0)] = 256
    """Tokens reserved for the critique, and the most that are written."""

    def within(self, model: Any) -> "Template":
        """The same template, with no more room than the model has positions."""
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        return replace(self, max_tokens=min(self.max_tokens, positions or self.max_tokens))
