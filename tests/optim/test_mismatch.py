"""Truncated importance weights: numbers by hand, and the law that they keep."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.optim.made import ONE_STEP, advantages, gradients, made_batch, policy
from text2grad.optim.batch import blank, collate_ids
from text2grad.optim.mismatch import corrected
from text2grad.optim.settings import AdvantageSettings


def test_by_hand() -> None:
    """Two completions, one token longer than the other; probabilities of the engine and of the trainer."""
    batch = collate_ids([(5,), (5,)], [(7, 8), (9,)])
    engine, trainer = torch.tensor([[0.5, 0.1], [0.25, 1.0]]).log(), torch.tensor([[0.4, 0.4], [0.25, 9.0]]).log()
    found, metrics = corrected(replace(batch, logprobs_BT=engine, own_BT=trainer), 2.0)
    assert found.importance_BT is not None
    assert found.importance_BT.flatten().tolist() == pytest.approx([0.8, 2.0, 1.0, 1.0])
    assert found.logprobs_BT is trainer, "the ratios of the update begin at 1"
    log = torch.tensor([0.8, 4.0, 1.0]).log().abs()
    assert metrics["engine/mismatch"] == pytest.approx(float(log.mean()))
    assert metrics["engine/mismatch_max"] == pytest.approx(float(log.max()))
    assert metrics["engine/capped_frac"] == pytest.approx(1 / 3)


def test_without_a_cap_nothing_is_corrected() -> None:
    batch = replace(collate_ids([(5,)], [(7,)]), own_BT=torch.tensor([[-1.0]]))
    found, metrics = corrected(batch, 0.0)
    assert found is batch and metrics == {"engine/mismatch": 1.0, "engine/mismatch_max": 1.0}


def test_a_process_without_rollouts_has_nothing_to_say() -> None:
    _, metrics = corrected(replace(blank(), own_BT=torch.zeros(1, 1)), 2.0)
    assert set(metrics.values()) == {0.0}


@given(st.lists(st.floats(-2, 2), min_size=3, max_size=3), st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_what_the_engine_draws_counts_as_if_the_policy_had_drawn_it(one: list[float], other: list[float]) -> None:
    """E_q[w · A] = E_p[A] wherever no weight is cut off; else it is cut towards 0, and never beyond the cap."""
    engine, policy = torch.tensor(one).log_softmax(-1), torch.tensor(other).log_softmax(-1)
    advantage = torch.tensor([3.0, -1.0, 0.5])
    batch = replace(collate_ids([(5,)] * 3, [(0,), (1,), (2,)]), logprobs_BT=engine[:, None], own_BT=policy[:, None])
    whole, _ = corrected(batch, 1e9)
    assert whole.importance_BT is not None
    expected = float((engine.exp() * whole.importance_BT[:, 0] * advantage).sum())
    assert expected == pytest.approx(float((policy.exp() * advantage).sum()), abs=1e-4)
    cut, metrics = corrected(batch, 2.0)
    assert cut.importance_BT is not None and float(cut.importance_BT.max()) <= 2.0
    assert metrics["engine/capped_frac"] == pytest.approx(float((whole.importance_BT > 2.0).float().mean()))


def test_the_update_counts_each_token_by_its_weight() -> None:
    """The same gradient as with advantages that are that much larger; the value head learns as before."""
    made = policy(value_head=True)
    batch = made_batch(made)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae"))
    weight_BT = torch.rand(batch.mask_BT.shape, generator=torch.Generator().manual_seed(3)) + 0.5
    ours, _ = gradients(made, replace(batch, importance_BT=weight_BT), found, ONE_STEP)
    wanted, _ = gradients(made, batch, replace(found, advantages_BT=found.advantages_BT * weight_BT), ONE_STEP)
    plain, _ = gradients(made, batch, found, ONE_STEP)
    assert all(torch.equal(ours[name], wanted[name]) for name in wanted)
    assert not all(torch.equal(ours[name], plain[name]) for name in plain)
    assert all(torch.equal(ours[name], plain[name]) for name in plain if name.startswith("value_head"))
