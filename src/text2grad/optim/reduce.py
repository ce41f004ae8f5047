"""Reductions over the tokens that count. Nothing that is masked out can reach a result.

A run may be spread over processes, each with some of the completions; the mean over half the tokens on each of two
machines must be the mean over all of them.
"""

import torch
from torch import Tensor

from text2grad.runs.world import ALONE, World

__all__ = ["ALONE", "LEAST", "World", "masked_mean", "root_mean_square", "whiten"]

LEAST = 1e-6
"""Spreads below this count as rounding, in the units of the rewards or relative to what they were computed from."""


def masked_mean(values_BT: Tensor, mask_BT: Tensor, world: World = ALONE) -> Tensor:
    """Mean over the masked-in values; 0 where there are none.

    >>> masked_mean(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])).item()
    2.0
    """
    sums = world.all_sum(torch.stack([_kept(values_BT, mask_BT).sum(), mask_BT.sum().to(values_BT.dtype)]))
    mean: Tensor = sums[0] / sums[1].clamp(min=1)
    return mean


def whiten(
    values_BT: Tensor, mask_BT: Tensor, world: World = ALONE, *, shift: bool = True, of_BT: Tensor | None = None
) -> Tensor:
    """(x − mean) / sd over the masked-in values, 0 elsewhere. Without `shift` the mean stays: x / root mean square, so
    what is 0 stays 0 and nothing changes its sign. `of_BT`: what the values are differences of, if they are.

    >>> whiten(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])).tolist()
    [[-1.0, 1.0, 0.0]]
    >>> whiten(torch.tensor([[0.0, -2.0, 2.0, 0.0]]), torch.ones(1, 4, dtype=bool), shift=False).tolist()[0][0]
    0.0
    """
    mean = masked_mean(values_BT, mask_BT, world) if shift else values_BT.new_zeros(())
    centred_BT = _kept(values_BT - mean, mask_BT)
    size = root_mean_square(centred_BT, mask_BT, world, of_BT=values_BT if of_BT is None else of_BT)
    return torch.where(size > 0, centred_BT / size.clamp(min=LEAST), torch.zeros_like(centred_BT))


def root_mean_square(
    values_BT: Tensor, mask_BT: Tensor, world: World = ALONE, *, of_BT: Tensor | None = None
) -> Tensor:
    """Over the masked-in values. 0 where it is so small that it counts as rounding of `of_BT`: there is nothing to tell
    apart, and rounding must not be blown up into a signal.

    >>> root_mean_square(torch.tensor([[3.0, -3.0, 9.0]]), torch.tensor([[True, True, False]])).item()
    3.0
    """
    spread = masked_mean(_kept(values_BT, mask_BT).square(), mask_BT, world).sqrt()
    size = masked_mean((values_BT if of_BT is None else of_BT).abs(), mask_BT, world)
    return torch.where(spread > LEAST * (1 + size), spread, torch.zeros_like(spread))


def _kept(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Zero outside the mask; a product would let nan and inf through."""
    return torch.where(mask_BT, values_BT, torch.zeros_like(values_BT))
