"""Means and whitening over the tokens that count."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from text2grad.optim.reduce import masked_mean, whiten
from text2grad.runs.world import World

MASK = torch.tensor([[True, True, False], [True, True, False]])


def test_whitening_by_hand() -> None:
    # 1, 3, 5, 7: mean 4; deviations −3, −1, 1, 3; mean square (9 + 1 + 1 + 9) / 4 = 5.
    values_BT = torch.tensor([[1.0, 3.0, 100.0], [5.0, 7.0, float("nan")]])
    wanted_BT = torch.tensor([[-3.0, -1.0, 0.0], [1.0, 3.0, 0.0]]) / 5**0.5
    torch.testing.assert_close(whiten(values_BT, MASK), wanted_BT)


def test_whitening_without_a_shift_by_hand() -> None:
    # 0, 3, −4, 5: mean square (0 + 9 + 16 + 25) / 4 = 12.5.
    values_BT = torch.tensor([[0.0, 3.0, 100.0], [-4.0, 5.0, float("inf")]])
    wanted_BT = torch.tensor([[0.0, 3.0, 0.0], [-4.0, 5.0, 0.0]]) / 12.5**0.5
    torch.testing.assert_close(whiten(values_BT, MASK, shift=False), wanted_BT)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e6, -1e-6])
def test_what_is_all_equal_tells_nothing_apart(value: float) -> None:
    assert not whiten(torch.full((7, 11), value), torch.ones(7, 11, dtype=torch.bool)).any()


def test_rounding_is_no_signal() -> None:
    # What is left of rewards that are all 0 after a penalty of 0.05 times log-probs that were computed twice.
    noise_BT = 1e-7 * torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    for shift in (True, False):
        assert not whiten(noise_BT, torch.ones(4, 12, dtype=torch.bool), shift=shift).any()
        assert whiten(1e3 * noise_BT, torch.ones(4, 12, dtype=torch.bool), shift=shift).std() > 0.9


def test_nothing_masked_in_is_zero_not_nan() -> None:
    nothing_BT = torch.zeros_like(MASK)
    assert masked_mean(torch.full((2, 3), float("nan")), nothing_BT).item() == 0
    assert not whiten(torch.full((2, 3), float("nan")), nothing_BT).any()


class Two(World):
    """Two processes with the same numbers."""

    size = 2

    def all_sum(self, numbers: Tensor) -> Tensor:
        return 2 * numbers


@given(st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=30))
def test_whitening_is_of_all_processes_together(numbers: list[float]) -> None:
    values_BT = torch.tensor([numbers])
    everything_BT = torch.ones_like(values_BT, dtype=torch.bool)
    torch.testing.assert_close(whiten(values_BT, everything_BT, Two()), whiten(values_BT, everything_BT))
