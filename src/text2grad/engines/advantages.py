"""Our advantage estimators on what other engines hold: rows, or (B, T) tensors of token rewards.

Enters: rewards, a mask and groups. Leaves: advantages of the same shape, 0 outside the mask. The estimators are
`optim/estimators.py`, which needs torch, and not a second copy without it: whoever trains on advantages has torch.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from text2grad.engines.rows import TrainingRow
from text2grad.errors import ConfigError, InvalidData
from text2grad.optim.batch import Batch
from text2grad.optim.estimators import find_estimator
from text2grad.optim.settings import AdvantageSettings


def with_advantages(rows: Sequence[TrainingRow], settings: AdvantageSettings | None = None) -> list[TrainingRow]:
    """The same rows with advantages; those of one update, because scales are taken over all of them. Unscored rows stay
    as they are and are in no baseline.

    >>> ids = {"prompt_ids": (5,), "completion_ids": (7, 0), "mask": (1, 1)}
    >>> rows = [TrainingRow("a", "0", **ids, token_rewards=rewards) for rewards in ((1.0, 0.0), (0.0, 0.0))]
    >>> [row.advantages for row in with_advantages(rows, AdvantageSettings(estimator="rloo", whiten=False))]
    [(1.0, 1.0), (-1.0, -1.0)]
    """
    scored = [row for row in rows if row.token_rewards is not None]
    if not scored:
        return list(rows)
    bare = next((row for row in scored if row.verdicts is None), None)
    lengths = [len(row.completion_ids) for row in scored]

    def padded(streams: Sequence[Sequence[float]]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(each, dtype=torch.float64) for each in streams], True)

    found_BT = estimate(
        padded([row.token_rewards or () for row in scored]),
        padded([row.mask for row in scored]).bool(),
        [row.group for row in scored],
        settings or AdvantageSettings(),
        verdicts_BT=padded([row.verdicts or () for row in scored]) if bare is None else None,
    )
    advantages = iter(tuple(each.tolist()[:length]) for each, length in zip(found_BT.unbind(), lengths, strict=True))
    return [row if row.token_rewards is None else replace(row, advantages=next(advantages)) for row in rows]


def estimate(
    rewards_BT: Tensor,
    mask_BT: Tensor,
    groups: Sequence[Hashable],
    settings: AdvantageSettings,
    *,
    verdicts_BT: Tensor | None = None,
) -> Tensor:
    """Advantages of a batch. `verdicts_BT`: without them, tokens with a reward count as labelled; that is the same for
    every estimator but `local`, which then also pays the last token for the residual of the score.

    Rows whose mask is 0 everywhere are in no baseline."""
    estimator = find_estimator(settings.estimator)
    if estimator.needs_values:
        raise ConfigError(
            f"advantage.estimator={settings.estimator} needs a value head, which only the engine has; use the engine's "
            f"own GAE on the token rewards, or choose anchored, span_rloo, rloo, grpo or local"
        )
    if rewards_BT.shape != mask_BT.shape or len(groups) != len(mask_BT):
        raise InvalidData(
            f"rewards, mask and groups should agree, got {tuple(rewards_BT.shape)}, {tuple(mask_BT.shape)} and "
            f"{len(groups)} groups"
        )
    mask_BT = mask_BT.bool()
    live_B = mask_BT.any(1)
    if not live_B.any():
        return torch.zeros_like(rewards_BT)
    labelled_BT = rewards_BT.sign() if verdicts_BT is None else verdicts_BT
    numbers: dict[Hashable, int] = {}
    group_B = torch.tensor([numbers.setdefault(group, len(numbers)) for group in groups], device=mask_BT.device)
    # Sampled tokens side by side: what a tool wrote in between is not there for an estimator.
    order_BT = (~mask_BT).int().argsort(dim=1, stable=True)[live_B]
    batch = _batch(
        rewards_BT[live_B].gather(1, order_BT),
        mask_BT[live_B].gather(1, order_BT),
        labelled_BT[live_B].gather(1, order_BT),
        group_B[live_B],
    )
    found_BT = estimator(batch, 0.0, settings).advantages_BT.to(rewards_BT.dtype)
    advantages_BT = torch.zeros_like(rewards_BT)
    advantages_BT[live_B] = torch.zeros_like(found_BT).scatter(1, order_BT, found_BT)
    return advantages_BT


def _batch(rewards_BT: Tensor, mask_BT: Tensor, verdicts_BT: Tensor, group_B: Tensor) -> Batch:
    """A batch of which estimators see what they use; ids play no part."""
    none_BT = torch.zeros_like(rewards_BT)
    return Batch(
        ids_BS=mask_BT.long(),
        prompt_B=torch.zeros_like(group_B),
        mask_BT=mask_BT,
        loss_weights_BT=mask_BT.to(rewards_BT.dtype),
        logprobs_BT=none_BT,
        rewards_BT=torch.where(mask_BT, rewards_BT, none_BT),
        verdicts_BT=torch.where(mask_BT, verdicts_BT, none_BT),
        group_B=group_B,
        number_B=torch.arange(len(group_B), device=group_B.device),
    )


NAMES = ("anchored", "span_rloo", "rloo", "grpo", "local")
"""Estimators that need no value head: engines with a registry get each as `text2grad_NAME`."""


def registered(name: str) -> Any:
    """An estimator as verl and SkyRL register it: (token rewards, mask, index, …) → (advantages, returns)."""

    def advantages(
        token_level_rewards: Tensor, response_mask: Tensor, config: Any = None, index: Any = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        if config is not None and getattr(config, "use_kl_in_reward", False):
            raise ConfigError(
                f"text2grad_{name} wants token rewards as the critic paid them: set use_kl_in_reward=false, and "
                f"use_kl_loss=true for a penalty"
            )
        groups = list(range(len(response_mask))) if index is None else [str(each) for each in index]
        with torch.no_grad():
            found = estimate(token_level_rewards, response_mask, groups, AdvantageSettings(estimator=name))
        return found, found

    return advantages
