"""A model's weights as the fast sampler reads them: the model's own where that will do, else fused or merged copies.

Enters: a Llama-like or Qwen2-like model, bare or inside peft's. Leaves: tensors that stay at their place in memory, so
that a CUDA graph which reads them stays valid, brought up to date by `sync`; or `UnsupportedModel` with the reason.

Copied at each `sync`, because one product of a wide matrix is faster than several of narrow ones: query, key and value;
gate and up. That is about half of the layers' memory a second time. With an active LoRA adapter every adapted matrix is
a copy, W + scale·B·A; in bfloat16 that sum is rounded to bfloat16. Parameters that are sharded (DTensor) are gathered:
then the whole model lies once on each device. Everything else is shared and costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from text2grad.errors import UnsupportedModel

MODEL_TYPES = ("llama", "mistral", "qwen2")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Kinds whose angles depend on the position alone; `dynamic` and `longrope` also look at the length so far."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a model that its weights do not say."""

    query_heads: int
    kv_heads: int
    head_dim: int
    scaling: float
    eps: float


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; biases are None where there are none."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


class Weights:
    """`sync()` before each use; then `embed`, `layers`, `norm`, `head` are the model's, as it is now."""

    embed: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Tensor
    head_bias: Tensor | None

    def __init__(self, model: Any, dtype: torch.dtype | None = None) -> None:
        self.inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.shape = shape_of(self.inner)
        self._asked = dtype
        self.dtype: torch.dtype = dtype or self.inner.dtype
        self.device: torch.device = self.inner.device
        self.activation = self.inner.model.layers[0].mlp.act_fn
        self.gated_by_silu = self.inner.config.hidden_act in ("silu", "swish")
        self.version = 0
        """Moves when a tensor came to lie elsewhere: what was captured before must be captured again."""
        self._tensors: dict[str, Tensor] = {}
        self._owned: set[str] = set()
        self._copies: list[tuple[Tensor, Tensor]] = []
        """(target, part) of what this `sync` has yet to copy."""

    @torch.no_grad()
    def sync(self) -> None:
        """Take over the weights of this moment. Where parameters are sharded, every process must call it."""
        dtype, device = self._asked or self.inner.dtype, self.inner.device
        if (dtype, device) != (self.dtype, self.device):
            self._tensors, self._owned = {}, set()
            self.dtype, self.device, self.version = dtype, device, self.version + 1
        self._copies = []
        body = self.inner.model
        self.embed = self._one("embed", body.embed_tokens.weight)
        self.layers = [self._layer(f"{place}", layer) for place, layer in enumerate(body.layers)]
        self.norm = self._one("norm", body.norm.weight)
        head = self.inner.lm_head
        if getattr(head, "weight", None) is body.embed_tokens.weight and not hasattr(head, "lora_A"):
            self.head, self.head_bias = self.embed, None
        else:
            self.head, self.head_bias = self._matrix("head", [head])
        if self._copies:
            # On a GPU few launches instead of one a matrix.
            targets, parts = zip(*self._copies, strict=True)
            torch._foreach_copy_(targets, parts)
            self._copies = []

    def rope(self, length: int) -> tuple[Tensor, Tensor]:
        """(cos, sin) of the first `length` positions by the model's own module, (length, head_dim) each. The first half
        of the sines is negative: rotating a head is then x·cos + (its halves swapped)·sin."""
        known = self._tensors.get("cos")
        if known is None or len(known) < length:
            places = torch.arange(length, device=self.device)[None]
            with torch.no_grad():
                cos, sin = self.inner.model.rotary_emb(torch.empty(0, dtype=self.dtype, device=self.device), places)
            sin = sin[0].clone()
            sin[:, : self.shape.head_dim // 2].neg_()
            self._tensors |= {"cos": cos[0].clone(), "sin": sin}
            self.version += 1
        return self._tensors["cos"], self._tensors["sin"]

    def _layer(self, key: str, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return Layer(
            self._one(f"{key}.attention_norm", layer.input_layernorm.weight),
            *self._matrix(f"{key}.qkv", [attention.q_proj, attention.k_proj, attention.v_proj]),
            *self._matrix(f"{key}.out", [attention.o_proj]),
            self._one(f"{key}.mlp_norm", layer.post_attention_layernorm.weight),
            *self._matrix(f"{key}.gate_up", [mlp.gate_proj, mlp.up_proj]),
            *self._matrix(f"{key}.down", [mlp.down_proj]),
        )

    def _one(self, key: str, parameter: Tensor) -> Tensor:
        return self._place(key, [parameter], [[]])

    def _matrix(self, key: str, modules: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
        """The matrices one below the other, adapters merged; and their biases, zero where only some have one."""
        bases = [_base(module) for module in modules]
        weight = self._place(key, [base.weight for base in bases], [_adapters(module) for module in modules])
        if all(base.bias is None for base in bases):
            return weight, None
        zeros = [base.bias if base.bias is not None else base.weight.new_zeros(base.out_features) for base in bases]
        return weight, self._place(f"{key}.bias", zeros, [[] for _ in bases])

    def _place(self, key: str, parts: list[Tensor], deltas: list[list[tuple[Tensor, Tensor, float]]]) -> Tensor:
        known = self._tensors.get(key)
        first = parts[0].detach()
        plain = len(parts) == 1 and not deltas[0] and first.dtype == self.dtype and not _sharded(first)
        if plain and key not in self._owned:
            if known is None or known.data_ptr() != first.data_ptr() or known.shape != first.shape:
                self.version += 1
            self._tensors[key] = first
            return first
        heights = [part.shape[0] for part in parts]
        rows = sum(heights)
        if key not in self._owned or known is None or known.shape != (rows, *first.shape[1:]):
            known = torch.empty(rows, *first.shape[1:], dtype=self.dtype, device=self.device)
            self._tensors[key] = known
            self._owned.add(key)
            self.version += 1
        for target, part, added in zip(known.split_with_sizes(heights), parts, deltas, strict=True):
            if added or _sharded(part):
                _merge(target, part.detach(), added)
            else:
                self._copies.append((target, part.detach()))
        return known


def shape_of(inner: Any) -> Shape:
    """What kind of model it is, or why it is none that is known."""
    config = inner.config
    kind = getattr(config, "model_type", type(inner).__name__)
    if kind not in MODEL_TYPES:
        raise UnsupportedModel(f"it knows {', '.join(MODEL_TYPES)} models, and this is {kind}")
    windows = {*(getattr(config, "layer_types", None) or ["full_attention"])} - {"full_attention"}
    if windows or getattr(config, "sliding_window", None) is not None:
        raise UnsupportedModel("some of its layers see a sliding window only")
    rotary = inner.model.rotary_emb
    if rotary.rope_type not in ROPE_TYPES:
        raise UnsupportedModel(f"its rotary embedding is of the kind {rotary.rope_type!r}")
    places = {(parameter.device.type, parameter.device.index) for parameter in inner.parameters()}
    if len(places) != 1 or "meta" in {place for place, _ in places}:
        raise UnsupportedModel(f"its weights lie on several devices, or are loaded piece by piece: {sorted(places)}")
    if type(inner.model.embed_tokens) is not nn.Embedding and hasattr(inner.model.embed_tokens, "base_layer"):
        raise UnsupportedModel("its embedding is adapted")
    attention = inner.model.layers[0].self_attn
    return Shape(
        query_heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        scaling=attention.scaling,
        eps=config.rms_norm_eps,
    )


def _adapted(module: Any) -> bool:
    # The type first: asking a module for what it has not is slow, and there are hundreds of them.
    return type(module) is not nn.Linear and hasattr(module, "lora_A")


def _sharded(tensor: Tensor) -> bool:
    return type(tensor) not in (Tensor, nn.Parameter) and hasattr(tensor, "full_tensor")


def _base(module: Any) -> Any:
    base = module.base_layer if _adapted(module) else module
    if not isinstance(base, nn.Linear) or not base.weight.is_floating_point():
        raise UnsupportedModel(f"one of its layers is a {type(base).__name__}, not a Linear of floating-point numbers")
    if tuple(base.weight.shape) != (base.out_features, base.in_features):
        raise UnsupportedModel(f"one of its layers holds weights of the shape {tuple(base.weight.shape)}: quantised?")
    return base


def _adapters(module: Any) -> list[tuple[Tensor, Tensor, float]]:
    """(A, B, scale) of each LoRA adapter that is active and not merged into the weight already."""
    if not _adapted(module):
        return []
    merged = set(module.merged_adapters)
    if module.disable_adapters:
        if merged:
            raise UnsupportedModel("its adapter is merged and disabled at once")
        return []
    found = []
    for name in module.active_adapters:
        if name not in module.lora_A or name in merged:
            continue
        if getattr(module, "lora_variant", {}).get(name) or getattr(module, "use_dora", {}).get(name):
            raise UnsupportedModel(f"its adapter {name!r} is a variant of LoRA, such as DoRA")
        down, up = module.lora_A[name], module.lora_B[name]
        if up.bias is not None:
            raise UnsupportedModel(f"its adapter {name!r} has a bias")
        found.append((down.weight, up.weight, float(module.scaling[name])))
    return found


def _merge(target: Tensor, base: Tensor, deltas: list[tuple[Tensor, Tensor, float]]) -> None:
    if not deltas:
        target.copy_(_whole(base))
        return
    merged = _whole(base).float().clone() if target.dtype != torch.float32 else target.copy_(_whole(base))
    for down, up, scale in deltas:
        merged.addmm_(_whole(up).float(), _whole(down).float(), alpha=scale)
    if merged is not target:
        target.copy_(merged)


def _whole(parameter: Tensor) -> Tensor:
    gather = getattr(parameter, "full_tensor", None)
    whole: Tensor = gather() if gather is not None else parameter
    return whole.detach()
