"""A step of decoding in few launches: kernels in Triton, the same numbers as by `steps.py` alone, up to rounding.

Enters: tensors of one step. Leaves: what its operations in PyTorch would leave, each group of them in one pass over
memory. Between small matrices a launch costs as much as its work. Products are cuBLAS's: Triton's, with norms and
gates inside, took twice as long as theirs and those apart (H200, 256 rows of 576). Importing this needs Triton, which
torch brings along on Linux; `steps.py` does without. Knows no prompt and no model.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from text2grad.models.sampling.steps import DecodingState, add_product
from text2grad.models.sampling.weights import Shape, Weights

PLACES = 64
"""Places of the cache that a program looks at together."""
IDS = 1024
"""Ids whose probabilities are summed by one program."""
LOG2_E = math.log2(math.e)
"""The softmax of attention is taken to the base 2."""


def layers(weights: Weights, state: DecodingState, hidden_BH: Tensor) -> None:
    """All layers over the last token of each row, whose keys and values go into the cache; `hidden_BH` in place."""
    shape = weights.shape
    cos_SD, sin_SD = weights.rope(state.cache[0].shape[1])
    for layer, cache_BSC in zip(weights.layers, state.cache, strict=True):
        normed_BH = norm(hidden_BH, layer.attention_norm, shape.eps)
        qkv_BC = functional.linear(normed_BH, layer.qkv, layer.qkv_bias)
        attended_BC = attend(qkv_BC, cos_SD, sin_SD, cache_BSC, state, shape)
        add_product(hidden_BH, attended_BC, layer.out, layer.out_bias)
        normed_BH = norm(hidden_BH, layer.mlp_norm, shape.eps)
        gate_up_BC = functional.linear(normed_BH, layer.gate_up, layer.gate_up_bias)
        add_product(hidden_BH, gated(gate_up_BC), layer.down, layer.down_bias)


def attend(
    qkv_BC: Tensor, cos_SD: Tensor, sin_SD: Tensor, cache_BSC: Tensor, state: DecodingState, shape: Shape
) -> Tensor:
    """Rotate queries and keys to their positions, put keys and values into the cache, attend to all up to them:
    (B, query_heads·head_dim). A program per row and key head reads the cache once for the queries that share it. Rows
    of one prompt run side by side and read the same places, so most of what they read is in the GPU's cache."""
    rows, places, _ = cache_BSC.shape
    group = shape.query_heads // shape.kv_heads
    out_BC = qkv_BC.new_empty(rows, shape.query_heads * shape.head_dim)
    head = max(16, triton.next_power_of_2(shape.head_dim))
    _attend[rows, shape.kv_heads](
        qkv_BC, cos_SD, sin_SD, cache_BSC, state.position_B, state.prompt_B, state.prompt_row_B, out_BC,
        shape.scaling * LOG2_E, places,
        QUERY_HEADS=shape.query_heads, KV_HEADS=shape.kv_heads, GROUP=group,
        GROUP_UP=max(16, triton.next_power_of_2(group)), D=shape.head_dim, D_UP=head,
        PLACES=PLACES if head * qkv_BC.element_size() <= 256 else PLACES // 2, num_warps=4, num_stages=2,
    )  # fmt: skip
    return out_BC


@triton.jit(do_not_specialize=["places"])
def _attend(
    qkv, cos, sin, cache, position, prompt, prompt_row, out, scale, places,
    QUERY_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_UP: tl.constexpr,
    D: tl.constexpr, D_UP: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    here, length = tl.load(position + row).to(tl.int32), tl.load(prompt + row).to(tl.int32)
    d, g = tl.arange(0, D_UP), tl.arange(0, GROUP_UP)
    swapped = tl.where(d < D // 2, d + D // 2, d - D // 2)
    in_d = d < D
    cos_D = tl.load(cos + here * D + d, in_d, 0.0).to(tl.float32)
    sin_D = tl.load(sin + here * D + d, in_d, 0.0).to(tl.float32)
    mine = qkv + row * ((QUERY_HEADS + 2 * KV_HEADS) * D)
    in_GD = (g < GROUP)[:, None] & in_d[None, :]
    query = mine + (head * GROUP + g)[:, None] * D
    q_GD = tl.load(query + d[None, :], in_GD, 0.0).to(tl.float32) * cos_D[None, :]
    q_GD += tl.load(query + swapped[None, :], in_GD, 0.0).to(tl.float32) * sin_D[None, :]
    key = mine + (QUERY_HEADS + head) * D
    k_D = tl.load(key + d, in_d, 0.0).to(tl.float32) * cos_D
    k_D += tl.load(key + swapped, in_d, 0.0).to(tl.float32) * sin_D
    v_D = tl.load(key + KV_HEADS * D + d, in_d, 0.0)
    kind = v_D.dtype
    q_GD, k_D = q_GD.to(kind), k_D.to(kind)
    width: tl.constexpr = 2 * KV_HEADS * D
    mine_at, prompt_at = row * places * width, tl.load(prompt_row + row) * places * width
    kept = cache + head * D
    tl.store(kept + mine_at + here * width + d, k_D, in_d)
    tl.store(kept + mine_at + here * width + KV_HEADS * D + d, v_D, in_d)
    # The new token comes from registers and is the first to be looked at; the cache gives those before it.
    most_G = tl.sum(q_GD.to(tl.float32) * k_D.to(tl.float32)[None, :], 1) * scale
    sum_G = tl.full((GROUP_UP,), 1.0, tl.float32)
    seen_GD = tl.zeros((GROUP_UP, D_UP), tl.float32) + v_D.to(tl.float32)[None, :]
    for start in range(0, here, PLACES):
        s = start + tl.arange(0, PLACES)
        before = s < here
        k_SD = kept + (tl.where(s < length, prompt_at, mine_at) + s * width)[:, None] + d[None, :]
        v_SD = tl.load(k_SD + KV_HEADS * D, before[:, None] & in_d[None, :], 0.0)
        k_SD = tl.load(k_SD, before[:, None] & in_d[None, :], 0.0)
        # ieee: float32 stays float32, not TF32.
        score_GS = tl.dot(q_GD, tl.trans(k_SD), input_precision="ieee") * scale
        score_GS = tl.where(before[None, :], score_GS, float("-inf"))
        larger_G = tl.maximum(most_G, tl.max(score_GS, 1))
        shrink_G = tl.exp2(most_G - larger_G)
        weight_GS = tl.exp2(score_GS - larger_G[:, None])
        sum_G = sum_G * shrink_G + tl.sum(weight_GS, 1)
        seen_GD = seen_GD * shrink_G[:, None] + tl.dot(weight_GS.to(kind), v_SD, input_precision="ieee")
        most_G = larger_G
    seen_GD = seen_GD / sum_G[:, None]
    tl.store(out + row * (QUERY_HEADS * D) + (head * GROUP + g)[:, None] * D + d[None, :], seen_GD.to(kind), in_GD)


def norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm of the last dimension."""
    out, width = torch.empty_like(hidden), hidden.shape[-1]
    wide = triton.next_power_of_2(width)
    _norm[hidden.numel() // width,](hidden, weight, out, width, eps, WIDE=wide, num_warps=4 if wide <= 4096 else 8)
    return out


@triton.jit
def _norm(hidden, weight, out, width, eps, WIDE: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    x = tl.load(hidden + row * width + c, c < width, 0.0)
    y = x.to(tl.float32)
    y = y * tl.rsqrt(tl.sum(y * y, 0) / width + eps) * tl.load(weight + c, c < width, 0.0).to(tl.float32)
    tl.store(out + row * width + c, y.to(x.dtype), c < width)


def gated(gate_up: Tensor) -> Tensor:
    """silu of the first half of the last dimension times the second half."""
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    _gated[out.numel() // width, triton.cdiv(width, 1024)](gate_up, out, width, WIDE=1024, num_warps=4)
    return out


@triton.jit
def _gated(gate_up, out, width, WIDE: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    gate = tl.load(gate_up + row * 2 * width + c, c < width, 0.0)
    up = tl.load(gate_up + row * 2 * width + width + c, c < width, 0.0)
    x = gate.to(tl.float32)
    tl.store(out + row * width + c, (x / (1.0 + tl.exp(-x)) * up.to(tl.float32)).to(gate.dtype), c < width)


def turn(qkv_UPC: Tensor, cos_SD: Tensor, sin_SD: Tensor, shape: Shape) -> None:
    """Rotate the queries and keys of whole prompts to their positions, in place."""
    count, width, _ = qkv_UPC.shape
    heads, half = shape.query_heads + shape.kv_heads, shape.head_dim // 2
    heads_up, half_up = triton.next_power_of_2(heads), triton.next_power_of_2(half)
    _turn[count * width,](
        qkv_UPC, cos_SD, sin_SD, width, qkv_UPC.shape[-1], HEADS=heads, HEADS_UP=heads_up, HALF=half, HALF_UP=half_up,
        num_warps=2 if heads_up * half_up <= 1024 else 8,
    )  # fmt: skip


@triton.jit(do_not_specialize=["width"])
def _turn(
    qkv, cos, sin, width, stride,
    HEADS: tl.constexpr, HEADS_UP: tl.constexpr, HALF: tl.constexpr, HALF_UP: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    place = token % width
    h, d = tl.arange(0, HEADS_UP), tl.arange(0, HALF_UP)
    inside = (h < HEADS)[:, None] & (d < HALF)[None, :]
    first = qkv + token * stride + h[:, None] * (2 * HALF) + d[None, :]
    angle = place * (2 * HALF) + d
    x_HD = tl.load(first, inside, 0.0)
    y_HD = tl.load(first + HALF, inside, 0.0)
    kind = x_HD.dtype
    x_HD, y_HD = x_HD.to(tl.float32), y_HD.to(tl.float32)
    c1 = tl.load(cos + angle, d < HALF, 0.0).to(tl.float32)[None, :]
    c2 = tl.load(cos + angle + HALF, d < HALF, 0.0).to(tl.float32)[None, :]
    s1 = tl.load(sin + angle, d < HALF, 0.0).to(tl.float32)[None, :]
    s2 = tl.load(sin + angle + HALF, d < HALF, 0.0).to(tl.float32)[None, :]
    tl.store(first, (x_HD * c1 + y_HD * s1).to(kind), inside)
    tl.store(first + HALF, (y_HD * c2 + x_HD * s2).to(kind), inside)


def draw(logits_BV: Tensor, state: DecodingState, greedy: bool) -> None:
    """`pick` and all that `emit` writes down, in two launches: sums over chunks of ids, then one program a row."""
    rows, ids = logits_BV.shape
    chunks = triton.cdiv(ids, IDS)
    most_BC, sum_BC = logits_BV.new_empty(2, rows, chunks, dtype=torch.float32)
    _chunks[rows, chunks](
        logits_BV, most_BC, sum_BC, ids, logits_BV.stride(0), 1.0 / state.temperature, IDS=IDS, num_warps=4
    )
    ends = len(state.ended_by_E)
    _draw[rows,](
        logits_BV, most_BC, sum_BC, state.uniform_BT, state.step_1, state.finished_B, state.lengths_B,
        state.ended_by_E, state.ids_B, state.ids_BT, state.logprobs_BT, ids, logits_BV.stride(0), chunks,
        state.ids_BT.shape[1], ends, 1.0 / state.temperature, state.pad_id, GREEDY=greedy,
        CHUNKS_UP=triton.next_power_of_2(chunks), ENDS_UP=triton.next_power_of_2(max(1, ends)), IDS=IDS, num_warps=4,
    )  # fmt: skip


@triton.jit
def _chunks(logits, most, sums, ids, stride, by, IDS: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = chunk * IDS + tl.arange(0, IDS)
    x = tl.load(logits + row * stride + v, v < ids, float("-inf")).to(tl.float32)
    top = tl.max(x, 0)
    # A chunk without a possible id: no weight, and no inf - inf.
    total = tl.where(top == float("-inf"), 0.0, tl.sum(tl.exp((x - top) * by), 0))
    tl.store(most + row * tl.num_programs(1) + chunk, top)
    tl.store(sums + row * tl.num_programs(1) + chunk, total)


@triton.jit
def _first_beyond(weights, target, places):
    """As in plain.py: the first place of weight > 0 whose cumulative sum exceeds the target, or the last of weight > 0;
    its weight; how far the target lies beyond the sum before it."""
    cumulative = tl.cumsum(weights, 0)
    first = tl.min(tl.where((weights > 0) & (cumulative > target), places, 1 << 30), 0)
    last = tl.max(tl.where(weights > 0, places, 0), 0)
    place = tl.minimum(first, last)
    weight = tl.sum(tl.where(places == place, weights, 0.0), 0)
    rest = target - (tl.sum(tl.where(places == place, cumulative, 0.0), 0) - weight)
    return place, weight, tl.maximum(rest, 0.0)


@triton.jit
def _draw(
    logits, most, sums, uniform, step, finished, lengths, ended_by, ids_B, ids_BT, logprobs, ids, stride, chunks,
    new_tokens, ends, by, pad, GREEDY: tl.constexpr, CHUNKS_UP: tl.constexpr, ENDS_UP: tl.constexpr, IDS: tl.constexpr,
):  # fmt: skip
    row, now = tl.program_id(0).to(tl.int64), tl.load(step)
    c, v = tl.arange(0, CHUNKS_UP), tl.arange(0, IDS)
    most_C = tl.load(most + row * chunks + c, c < chunks, float("-inf"))
    sum_C = tl.load(sums + row * chunks + c, c < chunks, 0.0)
    top = tl.max(most_C, 0)
    weight_C = tl.where(sum_C > 0, sum_C * tl.exp((most_C - top) * by), 0.0)
    total = tl.sum(weight_C, 0)
    if GREEDY:
        chunk = tl.min(tl.where(most_C == top, c, chunks - 1), 0)
        share = 0.0
    else:
        chunk, weight, rest = _first_beyond(weight_C, tl.load(uniform + row * new_tokens + now) * total, c)
        share = rest / tl.where(weight > 0, weight, 1.0)
    id_V = chunk * IDS + v
    x_V = tl.load(logits + row * stride + id_V, id_V < ids, float("-inf")).to(tl.float32)
    if GREEDY:
        place = tl.min(tl.where(x_V == top, v, IDS - 1), 0)
    else:
        # By the chunk's own largest: nothing that can be drawn is rounded to 0.
        best = tl.max(x_V, 0)
        weight_V = tl.where(x_V > float("-inf"), tl.exp((x_V - best) * by), 0.0)
        place, _weight, _rest = _first_beyond(weight_V, share * tl.sum(weight_V, 0), v)
    x = tl.sum(tl.where(v == place, x_V, 0.0), 0)
    was = tl.load(finished + row) != 0
    drawn = tl.where(was, pad, tl.minimum(chunk * IDS + place, ids - 1)).to(tl.int64)
    e = tl.arange(0, ENDS_UP)
    hit = tl.sum(tl.where((e < ends) & (tl.load(ended_by + e, e < ends, 0) == drawn), 1, 0), 0) > 0
    tl.store(ids_BT + row * new_tokens + now, drawn)
    tl.store(logprobs + row * new_tokens + now, (x - top) * by - tl.log(total))
    tl.store(lengths + row, tl.load(lengths + row) + tl.where(was, 0, 1))
    tl.store(finished + row, was | hit)
    tl.store(ids_B + row, drawn)
