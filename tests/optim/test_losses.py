"""Losses, the leash and the schedule against numbers worked by hand."""

import math

import pytest
import torch

from text2grad.optim.kl import kl_penalty
from text2grad.optim.losses import PolicyLoss, approximate_kl, clipped, value_loss
from text2grad.optim.settings import UpdateSettings
from text2grad.optim.update import learning_rate_factor


def ratios(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers).log()


def test_the_clipped_loss_by_hand() -> None:
    # clip 0.2 below, 0.3 above. −min(ratio · A, clipped ratio · A):
    # ratio 1.5, A  2: −min(3.0, 1.3 · 2 = 2.6)    = −2.6, flat
    # ratio 1.5, A −2: −min(−3.0, −2.6)            =  3.0, still pulls back
    # ratio 0.5, A  2: −min(1.0, 0.8 · 2 = 1.6)    = −1.0, still pulls back
    # ratio 0.5, A −2: −min(−1.0, −1.6)            =  1.6, flat
    # ratio 1.1, A  2: within the bounds           = −2.2
    old_N, advantages_N = torch.zeros(5), torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0])
    logprobs_N = ratios(1.5, 1.5, 0.5, 0.5, 1.1).requires_grad_()
    loss_N = clipped(logprobs_N, old_N, advantages_N, 0.2, 0.3)
    torch.testing.assert_close(loss_N.detach(), torch.tensor([-2.6, 3.0, -1.0, 1.6, -2.2]))
    # ∂/∂ log-prob of −ratio · A is −ratio · A, and 0 where it is flat.
    (slope_N,) = torch.autograd.grad(loss_N.sum(), logprobs_N)
    torch.testing.assert_close(slope_N, torch.tensor([0.0, 3.0, -1.0, 0.0, -2.2]))


def test_the_policy_loss_weighs_tokens_and_pays_for_entropy() -> None:
    # ratio 1, so −A each: −1 and 2; entropy bonus 0.1 · 3 and 0.1 · 5; weights ½ and ¼.
    # ½ (−1 − 0.3) = −0.65;  ¼ (2 − 0.5) = 0.375
    loss = PolicyLoss(torch.zeros(3), torch.tensor([9.0, 1.0, -2.0]), torch.tensor([1.0, 0.5, 0.25]), entropy=0.1)
    found_n = loss(torch.zeros(2), torch.tensor([3.0, 5.0]), slice(1, 3))
    torch.testing.assert_close(found_n, torch.tensor([-0.65, 0.375]))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_a_token_that_does_not_count_has_neither_loss_nor_slope(poison: float) -> None:
    loss = PolicyLoss(torch.tensor([0.0, poison]), torch.tensor([1.0, poison]), torch.tensor([1.0, 0.0]), entropy=0.1)
    logprobs_n = torch.zeros(2, requires_grad=True)
    found_n = loss(logprobs_n, torch.ones(2), slice(0, 2))
    (slope_n,) = torch.autograd.grad(found_n.sum(), logprobs_n)
    assert found_n[1] == 0
    assert slope_n.tolist() == [-1.0, 0.0]


def test_the_value_loss_by_hand() -> None:
    # Old value 0, clip 0.5, R = 2.
    # V = 1:   plain (1 − 2)² = 1;     clipped to 0.5: (0.5 − 2)² = 2.25  → ½ · 2.25 = 1.125, flat
    # V = 0.3: plain (0.3 − 2)² = 2.89; within the bounds                → 1.445
    # V = −1:  plain 9; clipped to −0.5: 6.25                            → 4.5, still pulls back
    values_N = torch.tensor([1.0, 0.3, -1.0], requires_grad=True)
    loss_N = value_loss(values_N, torch.zeros(3), torch.full((3,), 2.0), 0.5)
    torch.testing.assert_close(loss_N.detach(), torch.tensor([1.125, 1.445, 4.5]))
    (slope_N,) = torch.autograd.grad(loss_N.sum(), values_N)
    torch.testing.assert_close(slope_N, torch.tensor([0.0, -1.7, -3.0]))
    # Without a limit: ½ (V − R)².
    torch.testing.assert_close(
        value_loss(values_N.detach(), torch.zeros(3), torch.full((3,), 2.0), 0)[0], torch.tensor(0.5)
    )


def test_approximate_kl_by_hand() -> None:
    # ratio 2: 2 − 1 − ln 2 = 0.306853;  ratio ½: ½ − 1 + ln 2 = 0.193147;  ratio 1: 0
    found_N = approximate_kl(ratios(2.0, 0.5, 1.0), torch.zeros(3))
    torch.testing.assert_close(found_N, torch.tensor([1 - math.log(2), -0.5 + math.log(2), 0.0]))


def test_approximate_kl_is_the_kl_on_average() -> None:
    # KL(old ‖ new) = Σ old · ln(old / new), exactly, when the mean is taken over old.
    old_N, new_N = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    mean = (old_N * approximate_kl(new_N.log(), old_N.log())).sum()
    torch.testing.assert_close(mean, (old_N * (old_N / new_N).log()).sum())


def test_the_penalty_by_hand() -> None:
    # r − β (log π − log π_ref): 1 − 0.5 (−1 + 3) = 0;  0 − 0.5 (−2 + 1) = 0.5
    rewards_BT, logprobs_BT, reference_BT = (
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[-1.0, -2.0]]),
        torch.tensor([[-3.0, -1.0]]),
    )
    penalty_BT = kl_penalty(logprobs_BT, reference_BT, 0.5)
    assert (rewards_BT - penalty_BT).tolist() == [[0.0, 0.5]]
    assert kl_penalty(logprobs_BT, None, 0.5) == 0.0
    assert kl_penalty(torch.full_like(rewards_BT, float("nan")), reference_BT, 0.0) == 0.0


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        # Warm-up over 2 updates: ½, 1. Then 4 updates are left: 4/4, 3/4, 2/4, 1/4 of the way to go.
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        # ½ (1 + cos π (1 − left)): cos 0 = 1, cos π/4 = √½, cos π/2 = 0, cos 3π/4 = −√½
        ("cosine", [0.5, 1.0, 1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]),
    ],
)
def test_the_learning_rate_by_hand(schedule: str, wanted: list[float]) -> None:
    options = UpdateSettings(schedule=schedule, warmup=2)  # type: ignore[arg-type]
    assert [learning_rate_factor(n, 6, options) for n in range(1, 7)] == pytest.approx(wanted)


def test_a_run_shorter_than_its_warm_up() -> None:
    options = UpdateSettings(schedule="linear", warmup=4)
    assert [learning_rate_factor(n, 2, options) for n in (1, 2)] == [0.25, 0.5]
