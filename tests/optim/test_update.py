"""One update: what counts moves the weights, what does not cannot, and how it is cut up does not matter."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.optim.made import ONE_STEP, Keeps, advantages, gradients, made_batch, policy
from text2grad.models.policy import Policy
from text2grad.optim.batch import Batch
from text2grad.optim.estimators import Advantages
from text2grad.optim.losses import approximate_kl, clipped, value_loss
from text2grad.optim.settings import AdvantageSettings, UpdateSettings
from text2grad.optim.update import PendingUpdate, update

POISONS = [float("nan"), float("inf"), float("-inf"), 1e30]


def prepared(kind: str = "gae", *, lora: int = 0, **options: Any) -> tuple[Policy, Batch, Advantages]:
    made = policy(lora=lora, value_head=kind == "gae")
    batch = made_batch(made, **options)
    return made, batch, advantages(batch, batch.rewards_BT, AdvantageSettings(estimator=kind))


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, gradient in first.items():
        assert torch.equal(gradient, second[name]), name


def assert_near(first: dict[str, Tensor], second: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert first.keys() == second.keys()
    for name, gradient in first.items():
        torch.testing.assert_close(gradient, second[name], rtol=tolerance, atol=tolerance, msg=name)


def test_loss_and_statistics_are_means_over_the_tokens() -> None:
    made, batch, found = prepared()
    options = replace(ONE_STEP, clip=0.1, value_clip=0.1, value_coefficient=0.3)
    logprobs_BT, values_BT = made.logprobs_and_values(batch, 8)
    assert values_BT is not None and batch.values_BT is not None and found.returns_BT is not None
    mask_BT = batch.mask_BT
    old_BT, ours_BT = batch.logprobs_BT, found.advantages_BT
    ratio_BT = (logprobs_BT - old_BT).exp()
    flat_BT = ((ratio_BT > 1.1) & (ours_BT > 0)) | ((ratio_BT < 0.9) & (ours_BT < 0))
    assert flat_BT[mask_BT].any() and not flat_BT[mask_BT].all()
    _, stats = gradients(made, batch, found, options)
    means = stats.means()
    wanted = {
        "loss/policy": clipped(logprobs_BT, old_BT, ours_BT, 0.1, 0.1)[mask_BT].mean(),
        "loss/value": value_loss(values_BT, batch.values_BT, found.returns_BT, 0.1)[mask_BT].mean(),
        "update/clip_frac": flat_BT[mask_BT].float().mean(),
        "kl/sampling": approximate_kl(logprobs_BT, old_BT)[mask_BT].mean(),
    }
    assert {name: means[name] for name in wanted} == pytest.approx(
        {name: float(number) for name, number in wanted.items()}, rel=1e-4
    )
    assert 0 < means["loss/entropy"] < math.log(37)
    assert (means["update/steps"], means["update/stopped_early"]) == (1.0, 0.0)


def test_the_gradient_norm_is_that_before_clipping() -> None:
    made, batch, found = prepared("local")
    seen, stats = gradients(made, batch, found)
    norm = float(torch.stack([gradient.norm() for gradient in seen.values()]).norm())
    assert stats.means()["update/grad_norm"] == pytest.approx(norm, rel=1e-4)
    shortened, stats = gradients(made, batch, found, replace(ONE_STEP, max_grad_norm=norm / 2))
    assert stats.means()["update/grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert_near({name: gradient / 2 for name, gradient in seen.items()}, shortened)


def test_statistics_of_several_minibatches_count_each_token_once() -> None:
    made, batch, found = prepared("local")
    _, whole = gradients(made, batch, found)
    # `Keeps` takes no step, so the policy is the same in all four, whose sizes differ.
    stats = update(made, Keeps(made), batch, found, replace(ONE_STEP, minibatches=4, epochs=2), seed=0)
    assert stats.tokens == 2 * whole.tokens == 2 * int(batch.mask_BT.sum())
    for name in ("loss/policy", "loss/entropy", "update/clip_frac", "kl/sampling"):
        assert stats.means()[name] == pytest.approx(whole.means()[name], rel=1e-4), name
    assert stats.means()["update/steps"] == 8


@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize("kind", ["gae", "rloo", "grpo", "span_rloo", "local"])
def test_eight_micro_batches_of_one_equal_one_of_eight(kind: str, lora: int) -> None:
    made, batch, found = prepared(kind, lora=lora)
    options = replace(ONE_STEP, entropy=0.01)
    whole, whole_stats = gradients(made, batch, found, options)
    split, split_stats = gradients(made, batch, found, replace(options, micro_batch=1))
    assert max(float(gradient.abs().max()) for gradient in whole.values()) > 1e-2
    assert_near(whole, split)
    assert whole_stats.means() == pytest.approx(split_stats.means(), rel=1e-4)


def test_the_order_of_the_rows_does_not_matter() -> None:
    made, batch, found = prepared("span_rloo")
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    again = batch.rows(order)
    # The numbers of the completions went along, so the minibatches are the same ones.
    moved = Advantages(found.advantages_BT[order], found.mask_BT[order])
    options = replace(ONE_STEP, minibatches=3, epochs=2, micro_batch=2)
    first, second = Keeps(made), Keeps(made)
    update(made, first, batch, found, options, seed=3)
    update(made, second, again, moved, options, seed=3)
    assert len(first.seen) == 6
    for one, other in zip(first.seen, second.seen, strict=True):
        assert_near({n: g for n, g in one.items() if g is not None}, {n: g for n, g in other.items() if g is not None})


def test_each_epoch_goes_through_every_completion_once_in_another_order() -> None:
    made, batch, found = prepared("local")
    runs: list[list[int]] = []

    def counting(*args: Any, **named: Any) -> Any:
        runs.append(args[0].number_B.tolist())
        return made(*args, **named)

    update(counting, Keeps(made), batch, found, replace(ONE_STEP, minibatches=2, epochs=3), seed=0)
    epochs = [tuple(runs[k] + runs[k + 1]) for k in (0, 2, 4)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert len({frozenset(runs[k]) for k in (0, 2, 4)}) == 3


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("kind", ["gae", "rloo", "grpo", "span_rloo", "local"])
def test_padding_moves_no_gradient(kind: str, poison: float) -> None:
    made, batch, found = prepared(kind)
    wanted, _ = gradients(made, batch, found)
    row_N, _, _ = batch.where()
    places_BS = torch.arange(batch.ids_BS.shape[1]) >= (batch.prompt_B + batch.lengths_B)[:, None]
    assert places_BS.any() and len(row_N) < batch.mask_BT.numel()
    assert batch.values_BT is not None and batch.reference_BT is not None

    def spoilt(stream_BT: Tensor) -> Tensor:
        return torch.where(batch.mask_BT, stream_BT, poison)

    poisoned = replace(
        batch,
        ids_BS=torch.where(places_BS, torch.randint(0, 37, batch.ids_BS.shape), batch.ids_BS),
        logprobs_BT=spoilt(batch.logprobs_BT),
        rewards_BT=spoilt(batch.rewards_BT),
        verdicts_BT=spoilt(batch.verdicts_BT),
        values_BT=spoilt(batch.values_BT),
        reference_BT=spoilt(batch.reference_BT),
    )
    again = advantages(poisoned, poisoned.rewards_BT, AdvantageSettings(estimator=kind))
    returns_BT = None if again.returns_BT is None else spoilt(again.returns_BT)
    came, stats = gradients(made, poisoned, Advantages(spoilt(again.advantages_BT), again.mask_BT, returns_BT))
    assert_same(wanted, came)
    assert all(math.isfinite(number) for number in stats.means().values())


@pytest.mark.parametrize("poison", POISONS)
def test_tokens_outside_the_loss_move_no_gradient(poison: float) -> None:
    made, batch, found = prepared("gae")
    assert batch.values_BT is not None and found.returns_BT is not None
    # One completion leaves the loss, and every second token of the others.
    mask_BT = batch.mask_BT & (torch.arange(batch.mask_BT.shape[1]) % 2 == 0)
    mask_BT[2] = False
    wanted, _ = gradients(made, batch, replace(found, mask_BT=mask_BT))
    ids_BS = batch.ids_BS.clone()
    ids_BS[2] = 36 - ids_BS[2]
    poisoned = replace(
        batch,
        ids_BS=ids_BS,
        logprobs_BT=torch.where(mask_BT, batch.logprobs_BT, poison),
        values_BT=torch.where(mask_BT, batch.values_BT, poison),
    )
    spoilt = Advantages(
        torch.where(mask_BT, found.advantages_BT, poison), mask_BT, torch.where(mask_BT, found.returns_BT, poison)
    )
    came, stats = gradients(made, poisoned, spoilt)
    assert_same(wanted, came)
    assert stats.tokens == int(mask_BT.sum())
    assert all(math.isfinite(number) for number in stats.means().values())


def test_completions_without_a_baseline_are_not_run() -> None:
    made, batch, found = prepared("local")
    mask_BT = batch.mask_BT.clone()
    mask_BT[3:] = False
    seen: list[int] = []

    def counting(*args: Any, **named: Any) -> Any:
        seen.extend(args[0].number_B.tolist())
        return made(*args, **named)

    update(counting, Keeps(made), batch, replace(found, mask_BT=mask_BT), ONE_STEP, seed=0)
    assert sorted(seen) == [0, 1, 2]


def test_nothing_that_counts_takes_no_step() -> None:
    made, batch, found = prepared("local")
    stats = update(
        made, keeps := Keeps(made), batch, replace(found, mask_BT=torch.zeros_like(found.mask_BT)), ONE_STEP, seed=0
    )
    assert keeps.seen == []
    assert stats.means()["update/steps"] == 0 and stats.tokens == 0


def test_more_minibatches_than_prompts() -> None:
    made, batch, found = prepared("local", prompts=(2, 3), completions=(2, 1))
    apart = replace(batch, group_B=batch.number_B)
    stats = update(made, Keeps(made), apart, found, replace(ONE_STEP, minibatches=5), seed=0)
    assert stats.means()["update/steps"] == 2
    # The completions of a prompt stay together.
    stats = update(made, Keeps(made), batch, found, replace(ONE_STEP, minibatches=5), seed=0)
    assert batch.group_B.tolist() == [0, 0] and stats.means()["update/steps"] == 1


def test_one_token_completions_train() -> None:
    made, batch, found = prepared("gae", prompts=(1, 1, 4), completions=(1, 1, 1))
    seen, stats = gradients(made, batch, found)
    assert stats.tokens == 3
    assert all(bool(torch.isfinite(gradient).all()) for gradient in seen.values())


def weights(made: Policy) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in made.trainable().items()}


def test_too_much_kl_stops_before_the_step() -> None:
    made, batch, found = prepared("local")
    options = replace(ONE_STEP, epochs=4, minibatches=2, stop_kl=0.05)
    optimizer = torch.optim.SGD(made.trainable().values(), lr=0.3)
    before: list[dict[str, Tensor]] = []

    def watched(*args: Any, **named: Any) -> Any:
        before.append(weights(made))
        return made(*args, **named)

    batch = replace(batch, logprobs_BT=made.logprobs_and_values(batch, 8)[0])
    stats = update(watched, optimizer, batch, found, options, seed=0)
    assert stats.stopped
    assert 1 <= stats.steps < 8, "the first minibatch is that of the sampling policy itself: no KL yet"
    assert len(before) == stats.steps + 1
    assert_same(before[-1], weights(made))
    assert all(weight.grad is None for weight in made.trainable().values())
    assert stats.means()["update/stopped_early"] == 1.0


def test_without_a_limit_nothing_stops() -> None:
    made, batch, found = prepared("local")
    optimizer = torch.optim.SGD(made.trainable().values(), lr=0.3)
    stats = update(made, optimizer, batch, found, replace(ONE_STEP, epochs=4, minibatches=2), seed=0)
    assert (stats.steps, stats.stopped) == (8, False)


@pytest.mark.parametrize("lora", [0, 4])
def test_one_local_update_moves_each_span_its_own_way(lora: int) -> None:
    made = policy(lora=lora)
    batch = made_batch(made)
    logprobs_BT, _ = made.logprobs_and_values(batch, 8)
    batch = replace(batch, logprobs_BT=logprobs_BT)
    found = advantages(batch, batch.verdicts_BT, AdvantageSettings(estimator="local"))
    optimizer = torch.optim.AdamW(made.trainable().values(), lr=3e-3, weight_decay=0)
    update(made, optimizer, batch, found, UpdateSettings(epochs=1, minibatches=1), seed=0)
    change_BT = made.logprobs_and_values(batch, 8)[0] - logprobs_BT
    poor, good = (float(change_BT[batch.mask_BT & (batch.verdicts_BT == sign)].mean()) for sign in (-1, 1))
    unlabelled = float(change_BT[batch.mask_BT & (batch.verdicts_BT == 0)].mean())
    assert poor < -0.01 < 0.01 < good
    assert poor < unlabelled < good


@pytest.mark.parametrize("fused", [False, True])
def test_gradients_that_are_not_finite_are_not_applied(fused: bool) -> None:
    made = policy()
    batch = made_batch(made)
    before = {name: weight.detach().clone() for name, weight in made.named_parameters()}
    poisoned_BT = batch.rewards_BT.clone()
    poisoned_BT[0, 0] = float("inf")
    optimizer = torch.optim.AdamW(made.trainable().values(), lr=0.1, fused=fused)
    stats = update(made, optimizer, batch, Advantages(poisoned_BT, batch.mask_BT), ONE_STEP, seed=0)
    assert all(torch.equal(weight, before[name]) for name, weight in made.named_parameters())
    assert (stats.skipped, stats.steps) == (1, 0)
    assert all(math.isfinite(number) for number in stats.means().values())
    assert stats.means()["update/skipped"] == 1


def test_a_fused_step_after_a_skipped_one_is_the_first() -> None:
    """It skips by itself, without waiting for the norm: no moment and no count of steps may have moved."""
    ended = []
    for poisons in (1, 0):
        made = policy()
        batch = made_batch(made)
        poisoned_BT = batch.rewards_BT.clone()
        poisoned_BT[0, 0] = float("nan")
        optimizer = torch.optim.AdamW(made.trainable().values(), lr=0.1, fused=True)
        for _ in range(poisons):
            update(made, optimizer, batch, Advantages(poisoned_BT, batch.mask_BT), ONE_STEP, seed=0)
        stats = update(made, optimizer, batch, Advantages(batch.rewards_BT, batch.mask_BT), ONE_STEP, seed=0)
        assert (stats.skipped, stats.steps) == (0, 1)
        ended.append(weights(made))
    assert_same(*ended)


def test_a_pending_update_counts_a_skipped_minibatch_out() -> None:
    """Two minibatches by hand: the second has no finite gradients, so nothing of it is in the means."""
    pending = PendingUpdate()
    sums = torch.tensor([0.5, 0.25, 4.0, 2.0, 1.0], dtype=torch.float64)
    pending.minibatches = [(8.0, sums, torch.tensor([3.0])), (5.0, sums * float("nan"), torch.tensor([float("inf")]))]
    stats = pending.launched().wait()
    assert (stats.tokens, stats.policy, stats.value, stats.entropy) == (8.0, 4.0, 2.0, 4.0)
    assert (stats.clipped, stats.kl, stats.grad_norm, stats.steps, stats.skipped) == (2.0, 1.0, 3.0, 1, 1)
    pending.stopped = True
    assert pending.wait().steps == 0, "the step of the last minibatch was not taken"


def test_a_fused_optimizer_goes_on_from_the_state_of_one_that_was_not() -> None:
    """As where a run that began on a CPU is resumed on a GPU: what was saved says `fused` for itself."""
    made = policy()
    batch = made_batch(made)
    found = Advantages(batch.rewards_BT, batch.mask_BT)
    plain = torch.optim.AdamW(made.trainable().values(), lr=0.1)
    update(made, plain, batch, found, ONE_STEP, seed=0)
    fused = torch.optim.AdamW(made.trainable().values(), lr=0.1, fused=True)
    fused.load_state_dict(plain.state_dict())
    assert update(made, fused, batch, found, ONE_STEP, seed=1).steps == 1
