"""Advantages against numbers worked by hand, and the laws that they obey."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tests.optim.made import advantages, leave_one_out, made_batch, rollout
from text2grad.errors import ConfigError, InvalidData
from text2grad.optim.batch import Batch, collate
from text2grad.optim.estimators import (
    BLOCK,
    ESTIMATORS,
    Advantages,
    discounted_sums,
    estimator,
    find_estimator,
    gae_sums,
)
from text2grad.optim.kl import kl_penalty
from text2grad.optim.reduce import World
from text2grad.optim.settings import AdvantageSettings


def test_gae_by_hand() -> None:
    # γ = 0.9, λ = 0.5, so γλ = 0.45. V = 0.5, 1.0, −0.5; r = 1, 0, 2; nothing after the third token.
    # δ3 = 2 − (−0.5)                = 2.5
    # δ2 = 0 + 0.9 · (−0.5) − 1.0    = −1.45
    # δ1 = 1 + 0.9 · 1.0 − 0.5       = 1.4
    # A3 = 2.5;  A2 = −1.45 + 0.45 · 2.5 = −0.325;  A1 = 1.4 + 0.45 · (−0.325) = 1.25375
    # The second row ends after one token, whatever stands behind it: A1 = 3 − 2 = 1.
    rewards_BT = torch.tensor([[1.0, 0.0, 2.0], [3.0, 7.0, 7.0]])
    values_BT = torch.tensor([[0.5, 1.0, -0.5], [2.0, 9.0, 9.0]])
    mask_BT = torch.tensor([[True, True, True], [True, False, False]])
    found_BT = gae_sums(rewards_BT, values_BT, mask_BT, 0.9, 0.5)
    torch.testing.assert_close(found_BT, torch.tensor([[1.25375, -0.325, 2.5], [1.0, 0.0, 0.0]]))


def test_gae_with_lambda_1_is_the_return_minus_the_value() -> None:
    batch = made_batch()
    assert batch.values_BT is not None
    found_BT = gae_sums(batch.rewards_BT, batch.values_BT, batch.mask_BT, 1.0, 1.0)
    togo_BT = batch.rewards_BT.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(found_BT, torch.where(batch.mask_BT, togo_BT - batch.values_BT, 0.0))


def test_returns_are_the_targets_of_the_value_head() -> None:
    # λ = 0: A = δ. r = 0, 1; V = 0.5, 0.25; γ = 1. δ1 = 0 + 0.25 − 0.5 = −0.25; δ2 = 1 − 0.25 = 0.75.
    # Returns are A + V, before whitening: 0.25 and 1.
    batch = collate([rollout((5,), (6, 0), logprobs=(-1.0, -1.0), token_rewards=(0.0, 1.0), values=(0.5, 0.25))])
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae", anchor=0.0, lam=0.0))
    assert found.returns_BT is not None
    assert found.returns_BT.tolist() == [[0.25, 1.0]]
    # Whitened: mean 0.25, deviations ∓0.5, so ∓1.
    assert found.advantages_BT.tolist() == [[-1.0, 1.0]]


def test_gae_without_values_says_what_to_do() -> None:
    batch = replace(made_batch(), values_BT=None)
    with pytest.raises(ValueError, match=r"advantage\.estimator=span_rloo"):
        advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae"))


@given(st.integers(1, 3 * BLOCK + 5), st.floats(0, 1), st.integers(0, 2**31))
def test_discounted_sums_is_the_plain_loop(length: int, rate: float, seed: int) -> None:
    values_BT = torch.randn(2, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found_BT = discounted_sums(values_BT, rate)
    wanted_BT, carry_B = torch.empty_like(values_BT), torch.zeros(2, dtype=torch.float64)
    for t in reversed(range(length)):
        carry_B = values_BT[:, t] + rate * carry_B
        wanted_BT[:, t] = carry_B
    torch.testing.assert_close(found_BT, wanted_BT, rtol=1e-9, atol=1e-9)


def test_discounted_sums_in_single_precision_over_many_blocks() -> None:
    # Σ 0.99^k over k < 1000 is (1 − 0.99^1000) / 0.01 = 99.99568…
    found = discounted_sums(torch.ones(1, 1000), 0.99)[0, 0]
    assert float(found) == pytest.approx((1 - 0.99**1000) / 0.01, rel=1e-5)


def test_work_of_discounted_sums_grows_with_the_length_alone() -> None:
    def work(length: int) -> int:
        with FlopCounterMode(display=False) as counter:
            discounted_sums(torch.ones(3, length), 0.9)
        return int(counter.get_total_flops())

    # Two operations a weight, BLOCK weights a token, three rows: linear from one block on.
    assert work(4 * BLOCK) == 2 * 3 * BLOCK * 4 * BLOCK
    assert work(16 * BLOCK) == 4 * work(4 * BLOCK)


def test_leave_one_out_by_hand() -> None:
    # Group 4 has rows 0, 1 and 3; row 2 is alone.
    # Return-to-go, γ = 1, past the end as at the end:  row 0: 1, 0, 2 → 3, 2, 2.   row 1: −1 → −1, −1, −1.
    #                                                   row 3: 0, 4 → 4, 4, 4.
    # Others' means:        row 0: (−1 + 4) / 2 = 1.5 at each                           → 1.5, 0.5, 0.5
    #                       row 1: (3 + 4) / 2 = 3.5                                    → −4.5
    #                       row 3: (3 − 1) / 2, (2 − 1) / 2 = 1, 0.5                    → 3, 3.5
    rewards_BT = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 8.0, 8.0], [5.0, 5.0, 5.0], [0.0, 4.0, 8.0]])
    mask_BT = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 1], [1, 1, 0]], dtype=torch.bool)
    found_BT, paired_B = leave_one_out(rewards_BT, mask_BT, torch.tensor([4, 4, 9, 4]))
    assert found_BT.tolist() == [[1.5, 0.5, 0.5], [-4.5, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 3.5, 0.0]]
    assert paired_B.tolist() == [True, True, False, True]


def test_leave_one_out_discounts() -> None:
    # γ = 0.5: row 0: 1, 2 → 1 + 0.5 · 2 = 2, 2. Row 1: 0, 0. Differences: 2, 2 and −2, −2.
    found_BT, _ = leave_one_out(
        torch.tensor([[1.0, 2.0], [0.0, 0.0]]),
        torch.ones(2, 2, dtype=torch.bool),
        torch.zeros(2, dtype=torch.long),
        0.5,
    )
    assert found_BT.tolist() == [[2.0, 2.0], [-2.0, -2.0]]


def test_a_group_of_one_has_no_baseline_and_leaves_the_loss() -> None:
    batch = made_batch(prompts=(2, 2, 2), completions=(3, 2, 4))
    assert batch.group_B.tolist() == [0, 0, 1]
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="span_rloo"))
    assert found.mask_BT.sum(1).tolist() == [3, 2, 0]
    assert not found.advantages_BT[2].any()


@pytest.mark.parametrize("anchor", [0.0, 0.5, 1.0])
def test_a_share_of_every_reward_is_kept_back_for_the_last_token(anchor: float) -> None:
    """Row 0: rewards 1, 0, 2, so 3 in all. Half of it is kept back: 0.5, 0, 1 + 1.5. From each token on: 3, 2.5, 2.5.
    Row 1: −1, which stays −1 at every place. Anchored, each token also keeps what was paid before it."""
    wanted = {0.0: [4.0, 3.0, 3.0], 0.5: [4.0, 3.5, 3.5], 1.0: [4.0, 4.0, 4.0]}
    mask_BT = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)
    rewards_BT = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 0.0, 0.0]])
    found_BT, _ = leave_one_out(rewards_BT, mask_BT, torch.tensor([0, 0]), anchor=anchor)
    assert found_BT[0].tolist() == wanted[anchor]


@pytest.mark.parametrize("estimator", ["rloo", "grpo", "span_rloo", "anchored"])
def test_equal_scores_with_unequal_lengths_teach_nothing(estimator: str) -> None:
    rows = [
        rollout((1,), ids, logprobs=(0.0,) * len(ids), token_rewards=(*(0.0,) * (len(ids) - 1), 0.7), index=n)
        for n, ids in enumerate([(1, 2, 3, 4, 5), (1, 2), (1,)])
    ]
    batch = collate(rows)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator=estimator))
    assert found.mask_BT.any() and not found.advantages_BT.any()


def good_then_poor_and_the_reverse() -> Batch:
    """Two completions of three tokens. One has a good token, a poor one, and a score of 1; the other the reverse."""
    return collate(
        [
            rollout((1,), (1, 2, 3), logprobs=(0.0,) * 3, token_rewards=(s, -s, s), verdicts=(s, -s, 0.0), index=n)
            for n, s in enumerate((1.0, -1.0))
        ]
    )


def test_anchored_is_half_the_whole_and_half_the_span() -> None:
    """Whole: 1 − (−1) = 2 on every token, −2 on the other; of unit size ±1. Span, λ = 0: 1, −1, 0 and the reverse; its
    mean square is 2/3, so ±√1.5, and other completions earn nothing on the average. Half of each, divided by the size
    of both together."""
    batch = good_then_poor_and_the_reverse()
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="anchored", lam=0.0))
    wanted_T = 0.5 + 0.5 * torch.tensor([1.5**0.5, -(1.5**0.5), 0.0])
    wanted_T = wanted_T / wanted_T.square().mean().sqrt()
    torch.testing.assert_close(found.advantages_BT, torch.stack([wanted_T, -wanted_T]))


def test_anchor_is_the_share_of_the_whole() -> None:
    """As above: a quarter of the whole's 1, three quarters of the span's √1.5."""
    batch = good_then_poor_and_the_reverse()
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="anchored", anchor=0.25, lam=0.0))
    ratio = found.advantages_BT[0, 0] / found.advantages_BT[0, 2]
    assert float(ratio) == pytest.approx((0.25 + 0.75 * 1.5**0.5) / 0.25)


@pytest.mark.parametrize("anchor", [0.0, 0.25, 1.0])
def test_the_penalty_weighs_as_much_as_beside_the_score_alone(anchor: float) -> None:
    """As above, and the second completion has left the reference by a penalty of 0.5 on one token. The size of the
    whole is 2, and that of spans one unit of rewards: together the root of the mean of 4 and 1, weighed by ρ² and
    (1 − ρ)². The difference of the two penalties, 0.5, counts in full on every token, also where ρ is 0."""
    penalty_BT = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    options = AdvantageSettings(estimator="anchored", anchor=anchor, lam=0.0)
    found = find_estimator("anchored")(good_then_poor_and_the_reverse(), penalty_BT, options)
    said_T = anchor + (1 - anchor) * torch.tensor([1.5**0.5, -(1.5**0.5), 0.0])
    size = ((4 * anchor**2 + (1 - anchor) ** 2) / (anchor**2 + (1 - anchor) ** 2)) ** 0.5
    wanted_T = size * said_T / said_T.square().mean().sqrt() + 0.5
    wanted_BT = torch.stack([wanted_T, -wanted_T]) / wanted_T.square().mean().sqrt()
    torch.testing.assert_close(found.advantages_BT, wanted_BT)


def marked(*completions: tuple[int, str]) -> Batch:
    """(group, tokens): `x` is a poor token, `g` a good one, `.` one that nobody speaks of. All scores are 0.3: the rest
    is on the last token."""
    rows = []
    for n, (group, written) in enumerate(completions):
        verdicts = tuple({"x": -1.0, "g": 1.0}.get(letter, 0.0) for letter in written)
        rewards = (*verdicts[:-1], 0.3 - sum(verdicts[:-1]))
        ids, none = tuple(range(1, len(written) + 1)), (0.0,) * len(written)
        rows.append(rollout((1,), ids, logprobs=none, token_rewards=rewards, verdicts=verdicts, group=group, index=n))
    return collate(rows)


def spans_alone(batch: Batch, lam: float) -> torch.Tensor:
    """Scores are equal, so the span's half is all there is."""
    options = AdvantageSettings(estimator="anchored", lam=lam)
    return advantages(batch, batch.rewards_BT, options).advantages_BT


def unit(*rows: tuple[float, ...]) -> torch.Tensor:
    """Padded, and divided by the root mean square over all tokens."""
    numbers = torch.tensor([number for row in rows for number in row])
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return padded / numbers.square().mean().sqrt()


def test_to_end_earns_what_the_others_earn_from_there_on() -> None:
    """λ = ½. The second completion earns −1 − ½ at its third token and half as much at each one before. The first ends
    there, and would have earned that, also with the token before its end: of both, nothing was said. So its first
    token earns 1 − ½ · ¾. Where the second ends, nobody else writes."""
    found_BT = spans_alone(marked((0, "g.."), (0, "..xx.")), 0.5)
    torch.testing.assert_close(found_BT, unit((0.625, -0.75, -1.5), (-0.375, -0.75, -1.5, -1.0, 0.0)))


def test_at_most_two_tokens_before_the_end_belong_to_it() -> None:
    """λ = 0. The first completion has four plain tokens; the second earns −1 at each of its six. Of the second's end
    nobody knows what it would have earned."""
    found_BT = spans_alone(marked((0, "....."), (0, "xxxxxx.")), 0.0)
    torch.testing.assert_close(found_BT, unit((0.0, 0.0, -1.0, -1.0, -1.0), (*[-1.0] * 6, 0.0)))


def test_what_the_end_earns_reaches_back_to_the_words_before_it() -> None:
    """λ = ½. The second completion has eight good words: n of them earn 2 − ½ⁿ⁻¹. The first ends after one; there it
    would have earned what the other earns with seven, and its word earns half of that beside its own 1."""
    found_BT = spans_alone(marked((0, "g."), (0, "gggggggg.")), 0.5)
    words = [2 - 0.5**n for n in range(7, -1, -1)]
    torch.testing.assert_close(found_BT, unit((1 + words[1] / 2, words[1]), (*words, 0.0)))


def test_where_all_others_have_ended_those_of_other_prompts_say_what_is_earned() -> None:
    """λ = 0. The first completion's partner is empty; at the third token both of the other prompt earn −1. The empty
    one would have earned what its partner earns at once. Where nobody writes on, to end earns nothing."""
    found_BT = spans_alone(marked((0, "x.."), (0, "."), (1, "..x."), (1, "..x.")), 0.0)
    poor = (0.0, 0.0, -1.0, 0.0)
    torch.testing.assert_close(found_BT, unit((-1.0, 0.0, -1.0), (-1.0,), poor, poor))


def test_a_token_of_a_poor_span_is_never_pushed_up_by_it() -> None:
    """What a span earns is on its last token; those before are within it, too."""
    found_BT = spans_alone(marked((0, "....x....x."), (0, "..x.")), 0.8)
    assert (found_BT <= 0).all() and (found_BT[0, :10] < 0).all()


def test_scores_that_hardly_differ_leave_spans_as_much_as_equal_ones() -> None:
    """Beside a penalty: the size of the span's half does not depend on the spread of these scores."""
    penalty_BT = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.05, 0.0]])
    options = AdvantageSettings(estimator="anchored", lam=0.0)
    batch, found = marked((0, "x.."), (0, "...")), []
    for apart in (0.0, 1e-4):
        rewards_BT = batch.rewards_BT.clone()
        rewards_BT[1, -1] += apart
        found.append(find_estimator("anchored")(replace(batch, rewards_BT=rewards_BT), penalty_BT, options))
    assert all(float(each.advantages_BT[0, 0] - each.advantages_BT[0, 1]) < -1.5 for each in found)


@pytest.mark.parametrize("score", [1000.1, 1e6])
def test_a_penalty_that_is_rounding_beside_large_equal_scores_teaches_nothing(score: float) -> None:
    rows = [
        rollout((1,), (1, 2, 3), logprobs=(0.0,) * 3, token_rewards=(0.0, 0.0, score), verdicts=(0.0,) * 3, index=n)
        for n in range(3)
    ]
    penalty_BT = 1e-4 * torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 0.5], [0.3, 0.0, 0.0]])
    for name in ("anchored", "rloo"):
        found = find_estimator(name)(collate(rows), penalty_BT, AdvantageSettings(estimator=name))
        assert not found.advantages_BT.any(), name


def test_only_tokens_with_a_verdict_are_of_spans() -> None:
    """As where a critic grades prefixes: every token earns, and one of them is in a span."""
    batch = marked((0, "x.."), (0, "..."))
    rewards_BT = batch.rewards_BT + torch.tensor([[0.0, 5.0, -5.0], [7.0, 0.0, -7.0]])
    options = AdvantageSettings(estimator="anchored", lam=0.0)
    found = find_estimator("anchored")(replace(batch, rewards_BT=rewards_BT), 0.0, options)
    torch.testing.assert_close(found.advantages_BT, spans_alone(batch, 0.0))


@pytest.mark.parametrize("penalty", [0.0, 0.01])
def test_anchored_with_scalar_rewards_is_rloo(penalty: float) -> None:
    """Whatever the penalty for leaving the reference."""
    batch = made_batch()
    last_B1 = batch.last_B1
    scalar_BT = torch.zeros_like(batch.rewards_BT).scatter(1, last_B1, batch.rewards_BT.sum(1, keepdim=True))
    scalar = replace(batch, rewards_BT=scalar_BT)
    penalty_BT = penalty * torch.randn(scalar_BT.shape, generator=torch.Generator().manual_seed(0))
    both = [
        find_estimator(name)(scalar, penalty_BT, AdvantageSettings(estimator=name)) for name in ("anchored", "rloo")
    ]
    assert both[0].advantages_BT.any()
    torch.testing.assert_close(both[0].advantages_BT, both[1].advantages_BT)


def test_anchored_teaches_where_all_scores_are_equal() -> None:
    """Both programs fail, each at its own place; the residual makes the scores equal."""
    rows = [
        rollout((1,), (1, 2, 3), logprobs=(0.0,) * 3, token_rewards=rewards, verdicts=verdicts, index=n)
        for n, (rewards, verdicts) in enumerate(
            [((-1.0, 0.0, 1.0), (-1.0, 0.0, 0.0)), ((0.0, -1.0, 1.0), (0.0, -1.0, 0.0))]
        )
    ]
    batch = collate(rows)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="anchored", lam=0.0))
    assert (found.advantages_BT < 0).tolist() == [[True, False, False], [False, True, False]]


@pytest.mark.parametrize("score", [0.7, 87.3, 1000.1])
@pytest.mark.parametrize("each", [3, 4, 7])
def test_equal_scores_of_any_size_teach_a_group_nothing(score: float, each: int) -> None:
    """What the others' mean differs by is rounding, which grows with the score."""
    rewards, numbers = (*(0.0,) * 4, score), (0.0,) * 5
    rows = [
        rollout((1,), (1, 2, 3, 4, 5), logprobs=numbers, token_rewards=rewards, group=n // each, index=n)
        for n in range(4 * each)
    ]
    batch = collate(rows)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="span_rloo"))
    assert found.mask_BT.all() and not found.advantages_BT.any()
    other_BT = batch.rewards_BT.clone()
    other_BT[0, -1] += 0.01 * score
    assert advantages(batch, other_BT, AdvantageSettings(estimator="span_rloo")).advantages_BT[0].min() > 1


def test_local_credit_leaves_unlabelled_tokens_at_exactly_zero() -> None:
    batch = made_batch()
    labelled_BT = batch.verdicts_BT != 0
    rewards_BT = torch.where(labelled_BT, batch.rewards_BT, 0.0)
    assert (batch.mask_BT & ~labelled_BT).any()
    for whitened in (True, False):
        options = AdvantageSettings(estimator="local", whiten=whitened)
        found_BT = advantages(batch, rewards_BT, options).advantages_BT
        assert not found_BT[~labelled_BT].any()
        assert torch.equal(found_BT.sign(), rewards_BT.sign())
    # With a penalty for leaving the reference, they are moved by that and by nothing else.
    penalty_BT = kl_penalty(batch.logprobs_BT, batch.reference_BT, 0.5)
    options = AdvantageSettings(estimator="local", whiten=False)
    found_BT = ESTIMATORS["local"](batch, penalty_BT, options).advantages_BT
    assert batch.reference_BT is not None
    wanted_BT = -0.5 * (batch.logprobs_BT - batch.reference_BT)
    alone_BT = batch.mask_BT & ~labelled_BT
    torch.testing.assert_close(found_BT[alone_BT], wanted_BT[alone_BT])


def test_local_learns_from_labelled_tokens_whatever_the_rewards() -> None:
    batch = made_batch()
    assert batch.rewards_BT[batch.mask_BT & (batch.verdicts_BT == 0)].all()
    found_BT = ESTIMATORS["local"](batch, 0.0, AdvantageSettings(estimator="local", whiten=False)).advantages_BT
    assert torch.equal(found_BT != 0, batch.mask_BT & (batch.verdicts_BT != 0))
    assert torch.equal(found_BT[found_BT != 0], batch.rewards_BT[found_BT != 0])


def group_of_three() -> Batch:
    """Returns 3, 0 and 6 in a group of three; 5 alone."""
    rows = [((1.0, 2.0), 4), ((0.0,), 4), ((5.0,), 9), ((4.0, 0.0, 2.0), 4)]
    return collate(
        [
            rollout((1,), [2] * len(rewards), logprobs=[0.0] * len(rewards), token_rewards=rewards, group=group)
            for rewards, group in rows
        ]
    )


def test_rloo_by_hand() -> None:
    # Others' means: (0 + 6) / 2 = 3, (3 + 6) / 2 = 4.5, (3 + 0) / 2 = 1.5. A: 0, −4.5, 4.5 on every token.
    batch = group_of_three()
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="rloo", whiten=False))
    assert found.advantages_BT.tolist() == [[0.0, 0.0, 0.0], [-4.5, 0.0, 0.0], [0.0] * 3, [4.5, 4.5, 4.5]]
    assert found.mask_BT.sum(1).tolist() == [2, 1, 0, 3]
    # Whitened: divided by the root mean square over the six tokens, √((4.5² + 3 · 4.5²) / 6) = 4.5 · √(2/3).
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="rloo"))
    assert found.advantages_BT[3].tolist() == pytest.approx([1.5**0.5] * 3)


def test_grpo_by_hand() -> None:
    # Mean 3, deviations 0, −3, 3; variance (0 + 9 + 9) / 2 = 9, spread 3. A = deviation / (3 + 1e-4).
    batch = group_of_three()
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="grpo"))
    one = 3 / (3 + 1e-4)
    wanted_BT = torch.tensor([[0.0, 0.0, 0.0], [-one, 0.0, 0.0], [0.0] * 3, [one, one, one]])
    torch.testing.assert_close(found.advantages_BT, wanted_BT)
    assert found.mask_BT.sum(1).tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("kind", ["rloo", "grpo"])
@pytest.mark.parametrize("score", [0.7, 87.3, 1000.1])
def test_equal_scores_and_unequal_lengths_teach_nothing(kind: str, score: float) -> None:
    rows = [rollout((1,), [2] * n, logprobs=[0.0] * n, token_rewards=[*[0.0] * (n - 1), score]) for n in (1, 4, 7)]
    batch = collate(rows)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator=kind))
    assert found.mask_BT.any(1).all() and not found.advantages_BT.any()


def test_a_users_estimator_is_found_by_its_name() -> None:
    @estimator("tests-own", needs_groups=True)
    def own(batch: Batch, rewards_BT: torch.Tensor, options: AdvantageSettings, world: World) -> Advantages:  # noqa: ARG001
        return Advantages(rewards_BT * 2, batch.mask_BT)

    batch = made_batch()
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="tests-own"))
    assert torch.equal(found.advantages_BT, batch.rewards_BT * 2)
    del ESTIMATORS["tests-own"]
    with pytest.raises(ConfigError, match="there is no 'span_rlo'; did you mean `span_rloo`"):
        advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="span_rlo"))


@pytest.mark.parametrize("kind", ["gae", "rloo", "grpo", "span_rloo", "anchored", "local"])
def test_what_stands_outside_the_mask_is_never_seen(kind: str) -> None:
    batch = made_batch()
    options = AdvantageSettings(estimator=kind)
    found = advantages(batch, batch.rewards_BT, options)
    for poison in (float("nan"), float("inf"), 1e30):
        assert batch.values_BT is not None
        poisoned = replace(batch, values_BT=torch.where(batch.mask_BT, batch.values_BT, poison))
        again = advantages(poisoned, torch.where(batch.mask_BT, batch.rewards_BT, poison), options)
        assert torch.equal(found.advantages_BT, again.advantages_BT)


def test_one_token_completions() -> None:
    # Nothing but the end token: γ and λ have nothing to reach. A = r − V = 1 − 0.5 and −1 − 0.5; whitened to ±1.
    batch = collate(
        [rollout((5,), (0,), logprobs=(-1.0,), token_rewards=(reward,), values=(0.5,)) for reward in (1.0, -1.0)]
    )
    assert advantages(batch, batch.rewards_BT, AdvantageSettings()).advantages_BT.tolist() == [[1.0], [-1.0]]


def test_a_batch_of_nothing_says_so() -> None:
    with pytest.raises(
        InvalidData, match="a batch should hold at least one rollout, got none; skip the update instead"
    ):
        collate([])


def test_a_completion_of_no_token_says_so() -> None:
    with pytest.raises(InvalidData, match="rollout 0 should have a prompt and a completion of at least one token each"):
        collate([rollout((5,), (), logprobs=(), token_rewards=())])
