"""Rollouts → a batch: the first place with padding, and the only one that pads, shifts and masks.

Enters: rollouts or token ids, ragged. Leaves: a `Batch` of tensors. Rows are prompt then completion, padded on the
right, so a causal model needs no attention mask: padding comes after everything that counts. Completion streams are
(B, T). The log-prob of token t is read at the position before it, prompt + t − 1; `where` says so once, for everybody.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Self

import numpy as np
import torch
from torch import Tensor

from text2grad.errors import InvalidData
from text2grad.types import Rollout


@dataclass(frozen=True, slots=True)
class Batch:
    """B completions as tensors on one device.

    Made by `collate`; `rows` takes some of them, trimmed to their own longest.
    """

    ids_BS: Tensor
    """Prompt then completion, padded on the right with 0."""
    prompt_B: Tensor
    """Prompt lengths."""
    mask_BT: Tensor
    """True on the tokens that were sampled, the end token among them."""
    loss_weights_BT: Tensor
    """What each token counts in the loss: 1 unless somebody says otherwise."""
    logprobs_BT: Tensor
    """Of the distribution that was sampled from."""
    rewards_BT: Tensor
    """Token rewards, without the penalty for leaving the reference."""
    verdicts_BT: Tensor
    """1 in good spans, −1 in poor ones and on the decision to stop where something was left out, 0 elsewhere. The
    estimator `local` learns from them, and locality is measured on them."""
    group_B: Tensor
    """Completions of the same prompt have the same number."""
    number_B: Tensor
    """Of each completion in its update, over all processes: minibatches are drawn from these numbers."""
    values_BT: Tensor | None = None
    """The value head's at sampling, before each token."""
    reference_BT: Tensor | None = None
    """Log-probs of the reference policy."""
    own_BT: Tensor | None = None
    """Log-probs of the policy, computed the way the reference's were. Needed where sampling rounds differently: in the
    difference of the two the rounding must cancel."""
    importance_BT: Tensor | None = None
    """What each token's advantage is multiplied by, because another engine has drawn it (`mismatch.py`)."""

    def __len__(self) -> int:
        return len(self.ids_BS)

    @property
    def lengths_B(self) -> Tensor:
        return self.mask_BT.sum(1)

    @property
    def last_B1(self) -> Tensor:
        """Place of the last token of each completion."""
        return (self.lengths_B[:, None] - 1).clamp(min=0)

    def where(self) -> tuple[Tensor, Tensor, Tensor]:
        """(row_N, position_N, ids_N): where in (B, S) the model stands before each completion token, and which token
        it was, in the order of `mask_BT`."""
        row_N, t_N = self.mask_BT.nonzero(as_tuple=True)
        position_N = self.prompt_B[row_N] + t_N - 1
        return row_N, position_N, self.ids_BS[row_N, position_N + 1]

    def rows(self, index: Tensor) -> Self:
        """Some of the rows, trimmed to the longest of them."""
        index = index.to(self.ids_BS.device)
        tokens = int(self.lengths_B[index].max()) if len(index) else 0
        total = int((self.lengths_B + self.prompt_B)[index].max()) if len(index) else 0
        chosen = {}
        for field in fields(self):
            stream = getattr(self, field.name)
            if stream is None:
                continue
            width = {"ids_BS": total}.get(field.name, tokens)
            chosen[field.name] = stream[index] if stream.dim() == 1 else stream[index, :width]
        return replace(self, **chosen)

    def prompts(self) -> tuple[Tensor, Tensor, Tensor]:
        """(ids_UP, mask_UP, which_B): the different prompts, padded on the left, and which of them each row has.

        >>> [stream.tolist() for stream in collate_ids([(5, 6), (7,), (5, 6)], [(9,)] * 3).prompts()]
        [[[0, 7], [5, 6]], [[False, True], [True, True]], [1, 0, 1]]
        """
        longest = int(self.prompt_B.max())
        place_BP = torch.arange(longest, device=self.ids_BS.device) - (longest - self.prompt_B)[:, None]
        ids_BP = torch.where(place_BP >= 0, self.ids_BS.gather(1, place_BP.clamp(min=0)), 0)
        # The length goes first: a prompt that begins with id 0 is not one that is padded.
        keyed, which_B = torch.unique(torch.cat([self.prompt_B[:, None], ids_BP], 1), dim=0, return_inverse=True)
        mask_UP = torch.arange(longest, device=keyed.device) >= longest - keyed[:, :1]
        return keyed[:, 1:], mask_UP, which_B

    def to(self, device: torch.device | str) -> Self:
        streams = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: sent(stream, device) for name, stream in streams.items() if stream is not None})


def collate(
    rollouts: Sequence[Rollout],
    device: torch.device | str = "cpu",
    *,
    loss_weights: Sequence[Sequence[float]] | None = None,
) -> Batch:
    """Scored rollouts → a batch."""
    for rollout in rollouts:
        if rollout.logprobs is None or rollout.token_rewards is None:
            missing = "log-probs" if rollout.logprobs is None else "token rewards"
            raise InvalidData(f"rollout {rollout.index} should have been sampled and scored, but has no {missing}")
    batch = collate_ids(
        [rollout.prompt_ids for rollout in rollouts],
        [rollout.completion.token_ids for rollout in rollouts],
        loss_weights=loss_weights,
        groups=[rollout.group for rollout in rollouts],
        indices=[rollout.index for rollout in rollouts],
    )

    def stream(name: str) -> Tensor | None:
        given = [numbers for rollout in rollouts if (numbers := getattr(rollout, name)) is not None]
        if given and len(given) < len(rollouts):
            raise InvalidData(f"{len(given)} of {len(rollouts)} rollouts have `{name}`, the others lack it")
        return _padded(given, batch.mask_BT) if given else None

    given = {"logprobs_BT": "logprobs", "rewards_BT": "token_rewards", "verdicts_BT": "verdicts", "values_BT": "values"}
    streams = {field: numbers for field, name in given.items() if (numbers := stream(name)) is not None}
    return replace(batch, **streams).to(device)


def collate_ids(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    device: torch.device | str = "cpu",
    *,
    loss_weights: Sequence[Sequence[float]] | None = None,
    groups: Sequence[int] | None = None,
    indices: Sequence[int] | None = None,
) -> Batch:
    """Token ids → a batch without rewards: given completions, to learn from or to read.

    >>> batch = collate_ids([(5, 6), (5,)], [(7, 0), (0,)])
    >>> batch.ids_BS.tolist(), batch.mask_BT.tolist()
    ([[5, 6, 7, 0], [5, 0, 0, 0]], [[True, True], [True, False]])
    >>> [stream.tolist() for stream in batch.where()]
    [[0, 0, 1], [1, 2, 0], [7, 0, 0]]
    """
    if not prompts:
        raise InvalidData("a batch should hold at least one rollout, got none; skip the update instead")
    for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        if not prompt or not completion:
            raise InvalidData(
                f"rollout {index} should have a prompt and a completion of at least one token each, got "
                f"{len(prompt)} and {len(completion)}"
            )
    lengths_B = torch.tensor([len(completion) for completion in completions])
    mask_BT = torch.arange(int(lengths_B.max())) < lengths_B[:, None]
    prompt_B = torch.tensor([len(prompt) for prompt in prompts])
    total_B = prompt_B + lengths_B
    ids_BS = torch.zeros(len(prompts), int(total_B.max()), dtype=torch.long)
    # All at once: 100,000 numbers, one list at a time, keep a GPU waiting.
    ids = chain.from_iterable(chain.from_iterable(zip(prompts, completions, strict=True)))
    ids_BS[torch.arange(ids_BS.shape[1]) < total_B[:, None]] = torch.from_numpy(np.fromiter(ids, np.int64))
    zero_BT = torch.zeros(mask_BT.shape)
    number_B = torch.arange(len(prompts))
    return Batch(
        ids_BS=ids_BS,
        prompt_B=prompt_B,
        mask_BT=mask_BT,
        loss_weights_BT=mask_BT.float() if loss_weights is None else _padded(loss_weights, mask_BT),
        logprobs_BT=zero_BT,
        rewards_BT=zero_BT,
        verdicts_BT=zero_BT,
        group_B=number_B if groups is None else torch.tensor(groups),
        number_B=number_B if indices is None else torch.tensor(indices),
    ).to(device)


def _padded(streams: Sequence[Sequence[float]], mask_BT: Tensor) -> Tensor:
    stream_BT = torch.zeros(mask_BT.shape)
    stream_BT[mask_BT] = torch.from_numpy(np.fromiter(chain.from_iterable(streams), np.float32))
    return stream_BT


def unlearned(rows: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Batch:
    """Rows that are only read, as prompts; a batch wants a completion, so each is followed by one 0.

    >>> unlearned([(5, 6), (7,)]).ids_BS.tolist()
    [[5, 6, 0], [7, 0, 0]]
    """
    return collate_ids(rows, [(0,)] * len(rows), device, loss_weights=[(0.0,)] * len(rows))


def sent(numbers: Tensor, device: torch.device | str) -> Tensor:
    """On the device; what it does meanwhile is not waited for."""
    if torch.device(device).type != "cuda" or numbers.is_cuda:
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)


def blank(device: torch.device | str = "cpu") -> Batch:
    """One row of which nothing counts, for a process that has none while the others have some; in no minibatch.

    >>> blank().mask_BT.tolist(), blank().number_B.tolist()
    ([[False]], [-1])
    """
    # Two prompt tokens: the last one of a row is never run, and a model wants at least one.
    batch = collate_ids([(0, 0)], [(0,)], device, loss_weights=[(0.0,)], groups=[-1], indices=[-1])
    return replace(batch, mask_BT=torch.zeros_like(batch.mask_BT), values_BT=torch.zeros_like(batch.logprobs_BT))


def micro_batches(batch: Batch, index: Tensor, size: int, *, together: bool = False) -> Iterator[Tensor]:
    """Row numbers in parts of at most `size`, neighbours in length: little is padded, and every row comes once.
    `together`: the completions of a prompt side by side, neighbours in the length of the prompt."""
    if together:
        most = int(batch.group_B.max()) + 1 if len(batch) else 1
        key_B = (batch.prompt_B * most + batch.group_B)[index]
    else:
        key_B = (batch.prompt_B + batch.lengths_B)[index]
    order = index[torch.argsort(key_B, stable=True)]
    yield from torch.split(order, size)
