"""Tiny models of every kind that the samplers meet, and what they should give: `generate`, a fresh pass."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

VOCABULARY, END, PAD = 300, 2, 0
KINDS = ("llama-gqa-tied", "llama-mha-untied", "llama-biases", "qwen2-tied", "qwen2-untied", "mistral")


def build(kind: str, *, seed: int = 0, device: str = "cpu") -> Any:
    """Weights are larger than at the usual start, so that logits differ enough to have a likeliest id."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        MistralConfig,
        MistralForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4 if "mha" in kind else 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": "untied" not in kind,
        "initializer_range": 0.15,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind.startswith("qwen2"):
            model = Qwen2ForCausalLM(Qwen2Config(**shape))
        elif kind == "mistral":
            model = MistralForCausalLM(MistralConfig(**shape, sliding_window=None))
        else:
            biased = kind == "llama-biases"
            model = LlamaForCausalLM(LlamaConfig(**shape, attention_bias=biased, mlp_bias=biased))
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                # Zeros and ones at the start: an addition or a product that is left out would not show.
                parameter.data += 0.2 * torch.randn_like(parameter)
    return model.to(device).eval()


def with_lora(model: Any, seed: int = 1) -> Any:
    """peft's model around it, adapters on every projection, their product not zero."""
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", lora_dropout=0.1))
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return wrapped.eval()


def some_prompts(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(3, VOCABULARY, length).tolist() for length in lengths]


def some_uniforms(count: int, length: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random((count, length), dtype=np.float32)


def fresh_logits(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
    """(T, V) in float32: the logits that each id of the completion was drawn from, by one pass over the whole."""
    with torch.no_grad():
        logits_TV: Tensor = model(torch.tensor([[*prompt, *completion]], device=model.device)).logits[0].float()
    return logits_TV[len(prompt) - 1 : -1]


def fresh_hidden(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
    """(T, H): the output of the last norm at the places that each id was drawn from."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    with torch.no_grad():
        hidden_TH: Tensor = inner.model(torch.tensor([[*prompt, *completion]], device=model.device)).last_hidden_state[
            0
        ]
    return hidden_TH[len(prompt) - 1 : -1]


def generated(model: Any, prompt: Sequence[int], new_tokens: int, end_ids: Sequence[int] = (END,)) -> list[int]:
    """What `generate` gives, greedily, up to the end token."""
    ids = torch.tensor([list(prompt)], device=model.device)
    made = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=list(end_ids) or None,
        pad_token_id=PAD,
    )
    new: list[int] = made[0, len(prompt) :].tolist()
    return new


def up_to_a_tie(model: Any, prompt: Sequence[int], completion: Sequence[int], gap: float = 1e-4) -> int:
    """How many ids of a greedy completion are decided: those before the two likeliest are within `gap`."""
    top = fresh_logits(model, prompt, completion).topk(2).values
    close = ((top[:, 0] - top[:, 1]) <= gap).nonzero()
    return int(close[0]) if len(close) else len(completion)


class ValueHead(nn.Module):
    """(…, H) → (…, 1), in float32, as a trainer's."""

    def __init__(self, hidden: int, seed: int = 3) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.out = nn.Linear(hidden, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        values: Tensor = self.out(hidden)
        return values
