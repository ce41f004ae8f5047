"""A batch without padding: each prompt once, then the completions, in one row; and attention over such a row.

Enters: a batch whose rows are completions of some prompts. Leaves: the ids and positions that a model reads in one
pass, and where each completion token is read off. A completion sees its own prompt and itself. Attention goes by the
flash kernel for sequences of any length, on a GPU with 16-bit numbers, and by a mask elsewhere. Gradients are added in
a fixed order, so the same update gives the same bits.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from text2grad.models import products
from text2grad.optim.batch import Batch, collate_ids, sent

NAME = "text2grad"
"""Of the attention here, among those of transformers."""
STEP = 64
"""Longest sequences are rounded up to a multiple of this, so that compiled layers see few different numbers."""


@dataclass(frozen=True, slots=True)
class Packed:
    """S tokens in one row: the P of the prompts, each prompt once, then the completions without their last tokens."""

    ids_S: Tensor
    place_S: Tensor
    """Position of each token in its own prompt and completion."""
    prompt_S: Tensor
    """The prompt that each token belongs to."""
    row_S: Tensor
    """The completion that it belongs to; −1 in prompts."""
    prompts: int
    """P."""
    prompt_ends_U: Tensor
    """Where prompts begin and end, as the kernel wants it: 0 and the running sum of their lengths."""
    query_ends_R: Tensor
    key_ends_R: Tensor
    """The same of the completions that are read at all, and of what each of them sees: prompt and completion."""
    longest: tuple[int, int, int]
    """Upper bounds of the lengths of prompts, completions, and both together."""
    keys: "Spread"
    """Of all tokens, those that the completions see, one completion after the other."""
    read: "Spread"
    """Of all tokens, those that the N completion tokens are read off, in the order of `Batch.where`."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """What a recorded pass cannot change: all lengths but N."""
        return (self.prompts, self.longest, *(tuple(one.shape) for one in self.looked_at()))

    def looked_at(self) -> list[Tensor]:
        """What a pass by the kernel reads, the ids apart."""
        taken = [self.place_S, self.prompt_ends_U, self.query_ends_R, self.key_ends_R, self.keys.index_K]
        taken += [self.keys.back_CP, self.keys.back_M]
        return taken if self.keys.there_CP1 is None else [*taken, self.keys.there_CP1]

    def copied(self) -> Self:
        """With what `looked_at` gives at places of its own."""
        place_S, prompts_U, queries_R, keys_R, index_K, back_CP, back_M, *there = (
            one.clone() for one in self.looked_at()
        )
        keys = replace(
            self.keys, index_K=index_K, back_CP=back_CP, back_M=back_M, there_CP1=there[0] if there else None
        )
        return replace(
            self, place_S=place_S, prompt_ends_U=prompts_U, query_ends_R=queries_R, key_ends_R=keys_R, keys=keys
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows of a tensor taken by number, prompts many times, completions at most once."""

    index_K: Tensor
    back_CP: Tensor
    """Where the c-th copy of a prompt's token went; anywhere, if there is none."""
    there_CP1: Tensor | None
    """Whether there is one; None: there always is."""
    back_M: Tensor
    """Where the one copy of a completion's token went; anywhere, if there is none."""
    there_M1: Tensor | None = None
    """Whether there is one; None: there always is."""

    def __call__(self, rows: Tensor) -> Tensor:
        ways = self.index_K, self.back_CP, self.there_CP1, self.back_M, self.there_M1
        taken: Tensor = _Spread.apply(rows, *ways)  # type: ignore[no-untyped-call]
        return taken


class _Spread(torch.autograd.Function):
    """`index_select`, whose own backward pass on a GPU adds in an order that changes from run to run."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index_K: Tensor, *back: Tensor | None) -> Tensor:
        ctx.save_for_backward(*back)
        return rows.index_select(0, index_K)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gathered(grad, *ctx.saved_tensors), None, None, None, None, None


def _gathered(
    grad: Tensor, back_CP: Tensor, there_CP1: Tensor | None, back_M: Tensor, there_M1: Tensor | None = None
) -> Tensor:
    """Gradients of copies → of what was copied, added in a fixed order."""
    flat = grad.flatten(1)
    copies = flat.index_select(0, back_CP.flatten()).view(*back_CP.shape, -1)
    if there_CP1 is not None:
        copies = torch.where(there_CP1, copies, 0)
    single = flat.index_select(0, back_M)
    if there_M1 is not None:
        single = torch.where(there_M1, single, 0)
    both = torch.cat([copies.sum(0, dtype=torch.float32).to(grad.dtype), single])
    return both.view(-1, *grad.shape[1:])


def packed(batch: Batch, device: torch.device | str, *, rounded: bool = False, alike: bool = False) -> Packed | None:
    """The batch in one row on this device; None where nothing of it counts. `rounded`: all lengths but N are among few
    different ones, so that a pass can be recorded. What is added are a prompt and a completion that nobody sees, and
    that see nobody. `alike`: every batch has the same parts, so that one compiled program serves all."""
    prompt_B, length_B, group_B = torch.stack([batch.prompt_B, batch.lengths_B, batch.group_B]).cpu().numpy()
    if not length_B.any():
        return None
    _, first_U, which_B = np.unique(group_B, return_index=True, return_inverse=True)
    rows_B, width = np.arange(len(batch)), batch.ids_BS.shape[1]
    prompt_U = prompt_B[first_U]
    # A completion's last token is never read: nothing follows it.
    query_B = np.maximum(length_B - 1, 0)
    more_p, more_q = (_up(int(each.sum()) + 1) - int(each.sum()) if rounded else 0 for each in (prompt_U, query_B))
    prompts = int(prompt_U.sum()) + more_p
    start_U, start_B = _running(prompt_U), prompts + _running(query_B)
    total = int(start_B[-1]) + more_q
    source_S = [_ranges(first_U * width, prompt_U), [0] * more_p, _ranges(rows_B * width + prompt_B, query_B)]
    place_S = [_ranges(np.zeros_like(prompt_U), prompt_U), range(more_p), _ranges(prompt_B, query_B), range(more_q)]
    number_S = [np.repeat(np.arange(len(prompt_U)), prompt_U), [len(prompt_U)] * more_p, np.repeat(which_B, query_B)]
    row_S = [[-1] * prompts, np.repeat(rows_B, query_B), [len(batch)] * more_q]

    seeing = np.flatnonzero(query_B)
    before, own = start_U[which_B[seeing]], start_B[seeing]
    key_K = [_pairs(before, prompt_B[seeing], own, query_B[seeing]), range(total - more_q, total)]
    # The first token of a completion is read off the last one of its prompt.
    learned = np.flatnonzero(length_B)
    last = start_U[which_B[learned]] + prompt_B[learned] - 1
    read_N = _pairs(last, np.ones_like(last), start_B[learned], query_B[learned])

    def on_device(numbers: NDArray[Any], dtype: Any = np.int64) -> Tensor:
        return sent(torch.from_numpy(np.ascontiguousarray(numbers, dtype)), device)

    def spread(index: NDArray[Any], *, whole: bool) -> Spread:
        # A compiler makes another program for what there is only one of.
        back_CP, back_M = _inverse(index, prompts, total, least=2 if alike else 1)
        whole_p = not rounded and not alike and (back_CP >= 0).all()
        there_p = None if whole_p else on_device(back_CP[..., None] >= 0, np.bool_)
        there_m = None if (back_M >= 0).all() else on_device(back_M[:, None] >= 0, np.bool_)
        if whole and rounded:
            # At most C copies of a prompt; what is added at the end goes nowhere.
            index = np.pad(index, (0, len(back_CP) * prompts + total - prompts - len(index)))
        ways = on_device(back_CP.clip(min=0)), there_p, on_device(back_M.clip(min=0)), there_m
        return Spread(on_device(index), *ways)

    together = prompt_B[seeing] + query_B[seeing]
    lengths = [(prompt_U, more_p), (query_B, more_q), (together, more_q)]
    return Packed(
        ids_S=sent(batch.ids_BS.reshape(-1)[torch.from_numpy(_joined([*source_S, [0] * more_q]))], device),
        place_S=on_device(_joined(place_S)),
        prompt_S=on_device(_joined([*number_S, [len(prompt_U) + 1] * more_q])),
        row_S=on_device(_joined(row_S)),
        prompts=prompts,
        prompt_ends_U=on_device(_ends(prompt_U, more_p), np.int32),
        query_ends_R=on_device(_ends(query_B[seeing], more_q), np.int32),
        key_ends_R=on_device(_ends(together, more_q), np.int32),
        longest=tuple(_rounded(np.append(each, more), rounded) for each, more in lengths),  # type: ignore[arg-type]
        keys=spread(_joined(key_K), whole=True),
        read=spread(read_N, whole=False),
    )


def trial() -> Batch:
    """A few rows to try packing with: a prompt longer than a tile of the kernel and a shorter one, two completions
    each."""
    ids = [1 + place * 7919 % 97 for place in range(240)]
    prompts, texts = [ids[:200]] * 2 + [ids[:30]] * 2, [ids[200:230], ids[210:211], ids[205:235], ids[200:240]]
    return collate_ids(prompts, texts, groups=[0, 0, 1, 1])


def _running(lengths: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([[0], np.cumsum(lengths)])


def _ends(lengths: NDArray[Any], more: int) -> NDArray[Any]:
    """Where sequences begin and end. `more`: the length of the one that is added; empty ones round their number up.

    >>> _ends(np.array([3, 2]), 0).tolist(), _ends(np.array([3, 2]), 4).tolist()[:5], len(_ends(np.array([3, 2]), 4))
    ([0, 3, 5], [0, 3, 5, 9, 9], 16)
    """
    if not more:
        return _running(lengths)
    numbers = _running(np.append(lengths, more))
    return np.pad(numbers, (0, _up(len(numbers)) - len(numbers)), "edge")


def _joined(parts: list[Any]) -> NDArray[Any]:
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def _rounded(lengths: NDArray[Any], coarse: bool) -> int:
    most = int(lengths.max(initial=1))
    return max(1024, 1 << (most - 1).bit_length()) if coarse else -(-most // STEP) * STEP


def _up(number: int) -> int:
    """A power of two, or the middle between two of them: few different lengths, at most half as much again.

    >>> [_up(number) for number in (1, 16, 17, 25, 513, 5300, 6145)]
    [16, 16, 24, 32, 768, 6144, 8192]
    """
    power = 1 << (number - 1).bit_length()
    return max(16, power * 3 // 4 if number <= power * 3 // 4 else power)


def _ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """start, start + 1, … of each, one after the other.

    >>> _ranges(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: NDArray[Any] = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def _pairs(starts: NDArray[Any], lengths: NDArray[Any], more: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """A range of the first kind, then one of the second, and so on.

    >>> _pairs(np.array([0, 5]), np.array([2, 1]), np.array([7, 9]), np.array([1, 2])).tolist()
    [0, 1, 7, 5, 9, 10]
    """
    return _ranges(np.stack([starts, more], 1).ravel(), np.stack([lengths, others], 1).ravel())


def _inverse(index_K: NDArray[Any], prompts: int, total: int, least: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
    """(back_CP, back_M) of `Spread`, with at least so many copies; −1 where there is none.

    >>> [back.tolist() for back in _inverse(np.array([0, 2, 0, 3]), 2, 4)]
    [[[0, -1], [2, -1]], [1, 3]]
    """
    order = np.argsort(index_K, kind="stable")
    taken = index_K[order]
    counts = np.bincount(taken, minlength=total)
    copy = np.arange(len(taken)) - np.repeat(_running(counts)[:-1], counts)
    back = np.full((int(counts.max(initial=least)), total), -1)
    back[copy, taken] = order
    return back[:, :prompts], back[0, prompts:]


# --------------------------------------------------------------------------------------------------------- attention


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention as transformers calls it, (1, heads, S, D) → (1, S, heads, D): over a packed row where `packed_row` is
    among the options, and as ever otherwise."""
    row: Packed | None = options.pop("packed_row", None)
    scale = options.get("scaling") or query.shape[-1] ** -0.5
    if row is None:
        if products.fits(query, value, attention_mask, options):
            return products.attend(query, key, value, attention_mask, scale).transpose(1, 2), None
        as_ever: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return as_ever
    if _has_kernel(value):
        q, k, v = (states[0].transpose(0, 1).to(value.dtype) for states in (query, key, value))
        attended = _by_kernel(q, k, v, row, scale)[None]
    else:
        attended = _by_mask(query, key, value, row, scale)
    return attended, None


def _has_kernel(value: Tensor) -> bool:
    return value.is_cuda and value.dtype in (torch.bfloat16, torch.float16)


def _by_mask(query: Tensor, key: Tensor, value: Tensor, row: Packed, scale: float) -> Tensor:
    same_SS = row.prompt_S[:, None] == row.prompt_S
    own_SS = (row.row_S < 0) | (row.row_S[:, None] == row.row_S)
    mask_SS = same_SS & own_SS & (row.place_S <= row.place_S[:, None])
    times = query.shape[1] // key.shape[1]
    key, value = key.to(query.dtype).repeat_interleave(times, 1), value.to(query.dtype).repeat_interleave(times, 1)
    attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask_SS, scale=scale)
    return attended.transpose(1, 2)


def _by_kernel(q_SHD: Tensor, k_SHD: Tensor, v_SHD: Tensor, row: Packed, scale: float) -> Tensor:
    # The op is what a compiler can look past; without one, the plain function is called sooner.
    attend: Any = over_row if torch.compiler.is_compiling() else _OverRow.apply
    ends, keys = (row.prompt_ends_U, row.query_ends_R, row.key_ends_R), row.keys
    ways = keys.index_K, keys.back_CP, keys.there_CP1, keys.back_M
    attended: Tensor = attend(q_SHD, k_SHD, v_SHD, *ends, *ways, row.prompts, *row.longest, scale)[0]
    return attended


def _over_row(
    q_SHD: Tensor,
    k_SHD: Tensor,
    v_SHD: Tensor,
    prompt_ends_U: Tensor,
    query_ends_R: Tensor,
    key_ends_R: Tensor,
    index_K: Tensor,
    back_CP: Tensor,  # noqa: ARG001 - for the backward pass
    there_CP1: Tensor | None,  # noqa: ARG001
    back_M: Tensor,  # noqa: ARG001
    prompts: int,
    most_p: int,
    most_q: int,
    most_k: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """What was attended: prompts by themselves, completions to their prompts and themselves. And, of prompts and of
    completions, the sums that the backward pass needs."""
    out_p, sums_p = _flash(
        q_SHD[:prompts], k_SHD[:prompts], v_SHD[:prompts], prompt_ends_U, prompt_ends_U, most_p, most_p, scale
    )
    if len(q_SHD) == prompts:
        return out_p, sums_p, sums_p[:, :0].clone()
    keys, values = k_SHD.index_select(0, index_K), v_SHD.index_select(0, index_K)
    out_c, sums_c = _flash(q_SHD[prompts:], keys, values, query_ends_R, key_ends_R, most_q, most_k, scale)
    return torch.cat([out_p, out_c]), sums_p, sums_c


def _over_row_backward(
    grad: Tensor,
    q_SHD: Tensor,
    k_SHD: Tensor,
    v_SHD: Tensor,
    out: Tensor,
    sums_p: Tensor,
    sums_c: Tensor,
    prompt_ends_U: Tensor,
    query_ends_R: Tensor,
    key_ends_R: Tensor,
    index_K: Tensor,
    back_CP: Tensor,
    there_CP1: Tensor | None,
    back_M: Tensor,
    prompts: int,
    most_p: int,
    most_q: int,
    most_k: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `_over_row`. Keys and values of the completions are spread again: kept, they are what fills memory,
    a prompt's once for each completion."""
    by_own = _flash_backward(
        grad[:prompts], q_SHD[:prompts], k_SHD[:prompts], v_SHD[:prompts], out[:prompts], sums_p,
        prompt_ends_U, prompt_ends_U, most_p, most_p, scale,
    )  # fmt: skip
    if len(q_SHD) == prompts:
        return by_own
    keys, values = k_SHD.index_select(0, index_K), v_SHD.index_select(0, index_K)
    by_q, *by_seen = _flash_backward(
        grad[prompts:], q_SHD[prompts:], keys, values, out[prompts:], sums_c,
        query_ends_R, key_ends_R, most_q, most_k, scale,
    )  # fmt: skip
    by_k, by_v = (_gathered(one, back_CP, there_CP1, back_M) for one in by_seen)
    by_k[:prompts] += by_own[1]
    by_v[:prompts] += by_own[2]
    return torch.cat([by_own[0], by_q]), by_k, by_v


def _flash(
    q: Tensor, k: Tensor, v: Tensor, ends_q: Tensor, ends_k: Tensor, most_q: int, most_k: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Sequences side by side, (S, heads, D); each query sees its own sequence up to itself, the last query all of it.
    Gives what was attended, and what the backward pass needs."""
    out, logsumexp, *_ = torch.ops.aten._flash_attention_forward(
        q.contiguous(), k.contiguous(), v.contiguous(), ends_q, ends_k, most_q, most_k, 0.0, True, False, scale=scale
    )
    return out, logsumexp


def _flash_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    ends_q: Tensor,
    ends_k: Tensor,
    most_q: int,
    most_k: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `_flash`. The kernel adds in a fixed order only where torch as a whole is told to."""
    was, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
    torch.use_deterministic_algorithms(True)
    # Without dropout, the state of random numbers is not read.
    unread = torch.empty(2, dtype=torch.uint64, device=q.device)
    try:
        by_q, by_k, by_v = torch.ops.aten._flash_attention_backward(
            grad.contiguous(), q.contiguous(), k.contiguous(), v.contiguous(), out, logsumexp, ends_q, ends_k,
            most_q, most_k, 0.0, True, unread, unread, scale=scale,
        )  # fmt: skip
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)
        memory.fill_uninitialized_memory = filled
    return by_q, by_k, by_v


over_row = torch.library.custom_op("text2grad::over_row", _over_row, mutates_args=())
over_row_backward = torch.library.custom_op("text2grad::over_row_backward", _over_row_backward, mutates_args=())


@over_row.register_fake
def _(q_SHD: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    (total, heads, _), prompts = q_SHD.shape, given[9]
    sizes = (heads, prompts), (heads, total - prompts)
    sums_p, sums_c = (q_SHD.new_empty(size, dtype=torch.float32) for size in sizes)
    return q_SHD.new_empty(q_SHD.shape), sums_p, sums_c


@over_row_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:10])
    ctx.numbers = inputs[10:]


def _back(ctx: Any, grad: Tensor, *_: Any, backward: Any = over_row_backward) -> tuple[Tensor | None, ...]:
    return *backward(grad, *ctx.saved_tensors, *ctx.numbers), *[None] * 12


over_row.register_autograd(_back, setup_context=_keep)


class _OverRow(torch.autograd.Function):
    """The same without the detour."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        output = _over_row(*inputs)
        _keep(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        return _back(ctx, grad, backward=_over_row_backward)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
