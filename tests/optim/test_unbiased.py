"""A policy small enough to enumerate: expected gradients, exactly.

Three tokens: `a`, `b` and the end; at most two tokens. The policy is a table of logits: one row for the first token,
one for the second after each first. A group is two completions, and there are 7 × 7 groups.
"""

from itertools import product

import numpy as np
import torch
from torch import Tensor

from tests.optim.made import leave_one_out
from text2grad.feedback.rewards import on_last_token, token_rewards
from text2grad.feedback.settings import Scoring
from text2grad.optim.estimators import discounted_sums, leave_one_out_mean
from text2grad.types import Alignment, Completion, Critique, Span

END = 2
ALL = [(END,), *product((0, 1), (0, 1, END))]
QUALITY = {"": 0.5, "a": -1.0, "b": 2.0, "aa": 0.25, "ab": 3.0, "ba": -0.5, "bb": 1.0}
"""Of every prefix. The best completion begins with the worst letter."""
SCORES = {(END,): -0.5, (0, END): 0.5, (1, END): 0.25}
"""What the critic says of these is not what it measured: what remains belongs to the decision to stop."""


def completion(ids: tuple[int, ...]) -> Completion:
    text = "".join("ab"[token] for token in ids if token != END)
    offsets = [(t, t + 1) if token != END else (t, t) for t, token in enumerate(ids)]
    return Completion(text, ids, tuple(offsets))


def rewards(ids: tuple[int, ...], placement: str) -> np.ndarray:
    made = completion(ids)
    quality = tuple((end, QUALITY[made.text[:end]]) for end in range(len(made.text) + 1))
    spans = tuple(Span(t, t + 1, "good" if letter == "b" else "poor") for t, letter in enumerate(made.text))
    return token_rewards(
        Critique("", quality=quality, score=SCORES.get(ids)),
        Alignment(spans),
        made,
        Scoring(placement=placement),  # type: ignore[arg-type]
    )


def padded(rows: list[np.ndarray]) -> Tensor:
    return torch.tensor([[*row, *[0.0] * (2 - len(row))] for row in rows], dtype=torch.float64)


class Table:
    """The policy, and the log-prob of every token of every completion under it."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.logits_33 = torch.randn(3, 3, generator=draw, dtype=torch.float64).requires_grad_()

    def logprobs(self) -> Tensor:
        log_33 = self.logits_33.log_softmax(1)
        zero = torch.zeros((), dtype=torch.float64)
        return torch.stack(
            [torch.stack([log_33[0, ids[0]], log_33[1 + ids[0], ids[1]] if len(ids) > 1 else zero]) for ids in ALL]
        )

    def gradient(self, of: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(of, self.logits_33)
        return found


def group_gradient(rewards_7T: Tensor) -> Tensor:
    """Expected gradient of the group variant, per completion: every group once, weighed by its probability."""
    table = Table()
    logprobs_7T = table.logprobs()
    chance_7 = logprobs_7T.sum(1).exp().detach()
    pairs = torch.tensor(list(product(range(7), range(7))))
    rows_B, group_B = pairs.flatten(), torch.arange(49).repeat_interleave(2)
    mask_7T = torch.tensor([[True, len(ids) > 1] for ids in ALL])
    found_BT, paired_B = leave_one_out(rewards_7T[rows_B], mask_7T[rows_B], group_B)
    assert bool(paired_B.all())
    chance_B = chance_7[pairs].prod(1).repeat_interleave(2)
    return table.gradient((chance_B[:, None] * found_BT * logprobs_7T[rows_B]).sum() / 2)


def exact_gradient(totals_7: Tensor) -> Tensor:
    table = Table()
    return table.gradient((table.logprobs().sum(1).exp() * totals_7).sum())


def test_the_group_variant_has_the_gradient_of_the_expected_score() -> None:
    spans_7T = padded([rewards(ids, "last") for ids in ALL])
    scalar_7T = padded([on_last_token(rewards(ids, "last")) for ids in ALL])
    torch.testing.assert_close(spans_7T.sum(1), scalar_7T.sum(1))
    assert not torch.allclose(spans_7T, scalar_7T), "the rewards themselves do differ"
    wanted = exact_gradient(scalar_7T.sum(1))
    assert float(wanted.abs().max()) > 0.05
    torch.testing.assert_close(group_gradient(scalar_7T), wanted)
    torch.testing.assert_close(group_gradient(spans_7T), wanted)


def test_rloo_has_the_gradient_of_the_expected_score() -> None:
    scalar_7T = padded([on_last_token(rewards(ids, "last")) for ids in ALL])
    table = Table()
    logprobs_7T = table.logprobs()
    chance_7 = logprobs_7T.sum(1).exp().detach()
    pairs = torch.tensor(list(product(range(7), range(7))))
    rows_B, group_B = pairs.flatten(), torch.arange(49).repeat_interleave(2)
    totals_B1 = scalar_7T.sum(1, keepdim=True)[rows_B]
    mean_B1, _ = leave_one_out_mean(totals_B1, group_B)
    chance_B = chance_7[pairs].prod(1).repeat_interleave(2)
    of = (chance_B[:, None] * (totals_B1 - mean_B1) * logprobs_7T[rows_B]).sum() / 2
    torch.testing.assert_close(table.gradient(of), exact_gradient(scalar_7T.sum(1)))


def test_a_reward_that_later_tokens_decide_is_not_credited_to_them() -> None:
    # Return-to-go leaves out what was earned before a token. That is exact as long as what was earned before does not
    # depend on the token. Spread evenly, a segment's reward is thinner the longer it turns out to be: the sum is the
    # same, the expected gradient is not. That is why `last` is the default.
    even_7T = padded([rewards(ids, "even") for ids in ALL])
    last_7T = padded([rewards(ids, "last") for ids in ALL])
    torch.testing.assert_close(even_7T.sum(1), last_7T.sum(1))
    apart = (group_gradient(even_7T) - exact_gradient(last_7T.sum(1))).abs().max()
    assert float(apart) > 0.01


def test_the_others_at_the_same_index_take_variance_away() -> None:
    # The point of a baseline: the same mean, smaller squares. Without one, return-to-go itself is the advantage.
    spans_7T = padded([rewards(ids, "last") for ids in ALL]) + 5.0 * torch.tensor([[0.0, 0.0]] + [[0.0, 1.0]] * 6)
    chance_7 = Table().logprobs().sum(1).exp().detach()
    pairs = torch.tensor(list(product(range(7), range(7))))
    rows_B, chance_B = pairs.flatten(), chance_7[pairs].prod(1).repeat_interleave(2)
    mask_7T = torch.tensor([[True, len(ids) > 1] for ids in ALL])
    found_BT, _ = leave_one_out(spans_7T[rows_B], mask_7T[rows_B], torch.arange(49).repeat_interleave(2))
    plain_BT = discounted_sums(spans_7T, 1.0)[rows_B]
    assert float((chance_B[:, None] * found_BT**2).sum()) < 0.9 * float((chance_B[:, None] * plain_BT**2).sum())
