"""One step of decoding, and the reading of prompts before it, on static tensors; and the step as a CUDA graph.

Enters: weights, the state of a batch. Leaves: the same state, one token further. `step` reads nothing back from the
device and makes no shape that depends on data, so the same function runs eagerly on a CPU and inside a graph.
No row is padded on the left: each writes its keys and values at its own position and sees what lies before it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from text2grad.models.sampling import SamplingSettings
from text2grad.models.sampling.plain import pick
from text2grad.models.sampling.weights import Layer, Weights

log = logging.getLogger("text2grad")

TAKE_A_MASK = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""A mask a row rules the flash kernel out; which other one is taken differs between versions of torch."""
WARM_UPS = 2
"""Runs before capturing, on a stream of their own: libraries then have made their plans and their work space."""


@dataclass(slots=True)
class DecodingState:
    """A batch that is being decoded: B rows, T new tokens at most, S places in the cache."""

    cache: list[Tensor]
    """A layer each: (B, S, 2·kv_heads·head_dim), keys and then values of a place side by side, written in one go."""
    ids_B: Tensor
    """The last token of each row, which the next step reads."""
    position_B: Tensor
    """Where its keys and values will stand."""
    prompt_B: Tensor
    """Length of its prompt, for the kernels."""
    prompt_row_B: Tensor
    """For the kernels, the row whose cache holds the keys and values of its prompt: rows of one prompt share them."""
    step_1: Tensor
    """How many tokens have been drawn; on the device, so that a graph can count."""
    finished_B: Tensor
    lengths_B: Tensor
    """Tokens of each completion so far, the end token included."""
    ended_by_E: Tensor
    uniform_BT: Tensor
    ids_BT: Tensor
    logprobs_BT: Tensor
    hidden_BTH: Tensor | None
    """What the logits came from; kept for a value head alone."""
    temperature: float
    pad_id: int
    kernels: Any = None
    """kernels.py, where steps are to go by it; None: by PyTorch's operations, anywhere."""

    def moving(self) -> tuple[Tensor, ...]:
        """What a step changes and reads again."""
        return self.ids_B, self.position_B, self.step_1, self.finished_B, self.lengths_B

    def select(self, rows_A: Tensor) -> "DecodingState":
        """Only these rows, copied. Not for the kernels: a row that goes may hold the prompt of one that stays."""
        assert self.kernels is None
        of_rows = [name for name in self.__slots__ if name.endswith(("_B", "_BT", "_BTH"))]
        streams = {name: getattr(self, name) for name in of_rows}
        chosen: Any = {name: None if stream is None else stream[rows_A] for name, stream in streams.items()}
        return replace(self, cache=[layer.index_select(0, rows_A) for layer in self.cache], **chosen)


def new_state(
    weights: Weights,
    settings: SamplingSettings,
    end_ids: Sequence[int],
    pad_id: int,
    *,
    rows: int,
    places: int,
    keep_hidden: bool = False,
    kernels: Any = None,
) -> DecodingState:
    new_tokens, kv_width = settings.max_new_tokens, 2 * weights.shape.kv_heads * weights.shape.head_dim

    def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=weights.device)

    return DecodingState(
        cache=[zeros(weights.dtype, rows, places, kv_width) for _ in weights.layers],
        ids_B=zeros(torch.long, rows),
        position_B=zeros(torch.long, rows),
        prompt_B=zeros(torch.long, rows),
        prompt_row_B=zeros(torch.long, rows),
        step_1=zeros(torch.long, 1),
        finished_B=zeros(torch.bool, rows),
        lengths_B=zeros(torch.long, rows),
        ended_by_E=torch.tensor(list(end_ids), dtype=torch.long, device=weights.device),
        uniform_BT=zeros(torch.float32, rows, new_tokens),
        ids_BT=zeros(torch.long, rows, new_tokens).fill_(pad_id),
        logprobs_BT=zeros(torch.float32, rows, new_tokens),
        hidden_BTH=zeros(weights.dtype, rows, new_tokens, weights.embed.shape[1]) if keep_hidden else None,
        temperature=settings.temperature,
        pad_id=pad_id,
        kernels=kernels,
    )


def step(weights: Weights, state: DecodingState, span: int, greedy: bool) -> None:
    """Read the last token of each row, draw the next. `span`: places of the cache to look at, beyond any position."""
    emit(weights, state, advance(weights, state, span), greedy)


def advance(weights: Weights, state: DecodingState, span: int) -> Tensor:
    """The hidden state (B, H) after the last token of each row, which gets its place in the cache."""
    hidden_BH = functional.embedding(state.ids_B, weights.embed)
    if state.kernels is None:
        _layers(weights, state, hidden_BH, span)
    else:
        state.kernels.layers(weights, state, hidden_BH)
    state.position_B += 1
    return functional.rms_norm(hidden_BH, hidden_BH.shape[-1:], weights.norm, weights.shape.eps)


def _layers(weights: Weights, state: DecodingState, hidden_BH: Tensor, span: int) -> None:
    """All layers over the last token of each row, in place."""
    shape, position_B = weights.shape, state.position_B
    rows, places = state.cache[0].shape[:2]
    device = position_B.device
    cos_SD, sin_SD = weights.rope(places)
    cos_B1D, sin_B1D = cos_SD.index_select(0, position_B)[:, None], sin_SD.index_select(0, position_B)[:, None]
    later_BS = torch.arange(span, device=device) > position_B[:, None]
    mask_BS = torch.zeros(rows, span, dtype=weights.dtype, device=device).masked_fill_(later_BS, -torch.inf)
    slot_B = torch.arange(rows, device=device) * places + position_B
    for layer, cache_BSC in zip(weights.layers, state.cache, strict=True):
        qkv_BC = _project(weights, layer, hidden_BH, cos_B1D, sin_B1D)
        queries = shape.query_heads * shape.head_dim
        cache_BSC.view(rows * places, -1).index_copy_(0, slot_B, qkv_BC[:, queries:])
        kv = cache_BSC[:, :span].view(rows, span, 2, shape.kv_heads, shape.head_dim)
        # The query heads that share a key head stand where a sequence would: nothing is repeated.
        attended = functional.scaled_dot_product_attention(
            qkv_BC[:, :queries].view(rows, shape.kv_heads, -1, shape.head_dim),
            kv[:, :, 0].transpose(1, 2),
            kv[:, :, 1].transpose(1, 2),
            attn_mask=mask_BS[:, None, None],
            scale=shape.scaling,
        )
        _finish_layer(weights, layer, hidden_BH, attended.reshape(rows, -1))


def emit(weights: Weights, state: DecodingState, hidden_BH: Tensor, greedy: bool) -> None:
    """Draw a token of each row from its hidden state, and write it down. Rows that have ended go on with padding."""
    logits_BV = logits_of(weights, hidden_BH)
    if state.kernels is None:
        _draw(state, logits_BV, greedy)
    else:
        state.kernels.draw(logits_BV, state, greedy)
    if state.hidden_BTH is not None:
        state.hidden_BTH.index_copy_(1, state.step_1, hidden_BH[:, None])
    state.step_1 += 1


def _draw(state: DecodingState, logits_BV: Tensor, greedy: bool) -> None:
    uniform_B = None if greedy else state.uniform_BT.index_select(1, state.step_1).squeeze(1)
    ids_B, logprobs_B = pick(logits_BV, uniform_B, state.temperature)
    ids_B = ids_B.masked_fill(state.finished_B, state.pad_id)
    state.ids_BT.index_copy_(1, state.step_1, ids_B[:, None])
    state.logprobs_BT.index_copy_(1, state.step_1, logprobs_B[:, None])
    state.lengths_B += ~state.finished_B
    state.finished_B |= (ids_B[:, None] == state.ended_by_E).any(1)
    state.ids_B.copy_(ids_B)


def logits_of(weights: Weights, hidden_BH: Tensor) -> Tensor:
    return functional.linear(hidden_BH, weights.head, weights.head_bias)


def prefill(
    weights: Weights, state: DecodingState, ids_UP: Tensor, lengths_U: Tensor, which_R: Tensor, start: int
) -> Tensor:
    """Read U different prompts, padded on the right, for the R rows from `start` on: row r has prompt `which_R[r]`.
    Their keys and values go into the cache; leaves the hidden state (R, H) after the last token of each row's prompt.
    For the kernels they go into the first row of each prompt alone.

    Nothing needs a mask: a token sees what is before it, and the padding is behind. What padding leaves in the cache is
    overwritten by the tokens drawn later before anything looks there.
    """
    shape = weights.shape
    (count, width), rows = ids_UP.shape, len(which_R)
    cos_SD, sin_SD = weights.rope(state.cache[0].shape[1])
    cos_P1D, sin_P1D = cos_SD[:width, None], sin_SD[:width, None]
    group = shape.query_heads // shape.kv_heads
    queries = shape.query_heads * shape.head_dim
    # The flash kernel, which is for 16-bit numbers on a GPU, reads a key head once for all its query heads.
    shared = state.kernels is not None and weights.dtype.itemsize == 2
    hidden_UPH = functional.embedding(ids_UP, weights.embed)
    of_row = slice(start, start + rows)
    first_U = torch.full_like(lengths_U, start + rows).scatter_reduce_(
        0, which_R, torch.arange(start, start + rows, device=which_R.device), "amin"
    )
    for layer, cache_BSC in zip(weights.layers, state.cache, strict=True):
        qkv_UPC = _project(weights, layer, hidden_UPH, cos_P1D, sin_P1D, state.kernels)
        kv_UPC = qkv_UPC[..., queries:]
        if count == rows:
            cache_BSC[of_row, :width] = kv_UPC
        elif state.kernels is None:
            cache_BSC[of_row, :width] = kv_UPC.index_select(0, which_R)
        else:
            cache_BSC[first_U, :width] = kv_UPC
        kv = kv_UPC.reshape(count, width, 2, shape.kv_heads, shape.head_dim)
        if not shared:
            kv = kv.repeat_interleave(group, dim=3)
        attended = functional.scaled_dot_product_attention(
            qkv_UPC[..., :queries].view(count, width, shape.query_heads, shape.head_dim).transpose(1, 2),
            kv[:, :, 0].transpose(1, 2),
            kv[:, :, 1].transpose(1, 2),
            is_causal=True,
            scale=shape.scaling,
            enable_gqa=shared,
        )
        _finish_layer(weights, layer, hidden_UPH, attended.transpose(1, 2).reshape(count, width, -1), state.kernels)
    state.position_B[of_row] = state.prompt_B[of_row] = lengths_U[which_R]
    state.prompt_row_B[of_row] = first_U[which_R]
    last_UH = hidden_UPH[torch.arange(count, device=ids_UP.device), lengths_U - 1]
    return functional.rms_norm(last_UH, last_UH.shape[-1:], weights.norm, shape.eps)[which_R]


def _project(weights: Weights, layer: Layer, hidden: Tensor, cos: Tensor, sin: Tensor, kernels: Any = None) -> Tensor:
    """Queries, keys and values (…, C) of all heads, the first two rotated to their positions."""
    shape = weights.shape
    normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.attention_norm, shape.eps)
    qkv = functional.linear(normed, layer.qkv, layer.qkv_bias)
    if kernels is not None:
        kernels.turn(qkv, cos, sin, shape)
        return qkv
    turned = shape.query_heads + shape.kv_heads
    heads = qkv[..., : turned * shape.head_dim].view(*hidden.shape[:-1], turned, shape.head_dim)
    # Not `roll`, which copies twice on a GPU where its input has gaps.
    first, second = heads.chunk(2, -1)
    swapped = torch.cat((second, first), -1)
    heads.mul_(cos).addcmul_(swapped, sin)
    return qkv


def _finish_layer(weights: Weights, layer: Layer, hidden: Tensor, attended: Tensor, kernels: Any = None) -> None:
    """The output projection and the MLP, added to `hidden` in place."""
    add_product(hidden, attended, layer.out, layer.out_bias)
    normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.mlp_norm, weights.shape.eps)
    gate_up = functional.linear(normed, layer.gate_up, layer.gate_up_bias)
    if kernels is not None:
        inner = kernels.gated(gate_up)
    else:
        gate, up = gate_up.chunk(2, -1)
        inner = weights.activation(gate).mul_(up)
    add_product(hidden, inner, layer.down, layer.down_bias)


def add_product(target: Tensor, inputs: Tensor, matrix: Tensor, bias: Tensor | None) -> None:
    target.view(-1, target.shape[-1]).addmm_(inputs.view(-1, inputs.shape[-1]), matrix.t())
    if bias is not None:
        target += bias


class Replays:
    """The captured steps of one state: one a span of the cache and a way of drawing. A captured step reads and writes
    only the state and the weights, which stay at their places; what lies between is in the graphs' own pool, which they
    share, because they are replayed one after the other and keep nothing in it. Where a step cannot be captured, a line
    in the log says so, and steps run launch by launch: slower, and the same."""

    def __init__(self, weights: Weights, state: DecodingState) -> None:
        self.weights, self.state = weights, state
        self._pool: Any = None
        self._graphs: dict[tuple[int, bool], Any] = {}
        self._refused = False

    def __call__(self, span: int, greedy: bool) -> None:
        with torch.cuda.device(self.weights.device):
            key = span, greedy
            if key not in self._graphs and not self._refused:
                self._try(span, greedy)
            if key in self._graphs:
                self._graphs[key].replay()
            else:
                step(self.weights, self.state, span, greedy)

    def _try(self, span: int, greedy: bool) -> None:
        kept = [tensor.clone() for tensor in self.state.moving()]
        try:
            self._warm_up(span, greedy, kept)
            self._graphs[span, greedy] = self._capture(span, greedy)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as problem:
            self._refused = True
            log.warning("decoding without a CUDA graph, which is slower: it could not be captured (%s)", problem)
            self._restore(kept)

    def _warm_up(self, span: int, greedy: bool, kept: list[Tensor]) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), sdpa_kernel(TAKE_A_MASK):
            for _ in range(WARM_UPS):
                step(self.weights, self.state, span, greedy)
                # What was drawn and cached stands at places that the real step writes anew.
                self._restore(kept)
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, span: int, greedy: bool) -> Any:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool), sdpa_kernel(TAKE_A_MASK):
            step(self.weights, self.state, span, greedy)
        return graph

    def _restore(self, kept: list[Tensor]) -> None:
        for tensor, before in zip(self.state.moving(), kept, strict=True):
            tensor.copy_(before)
