"""The span head's numbers: losses by hand, class weights and their undoing, temperature, thresholds, precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from text2grad.models.reward.calibrate import average_precision, best_threshold, fit_temperature
from text2grad.optim.labels import LabelBatch, class_weights, read_out, span_losses

RANKED = st.lists(st.tuples(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]), st.booleans()), min_size=1, max_size=9)


def test_labels_of_some_rows_come_in_their_order() -> None:
    labels = LabelBatch(*(torch.tensor(n) for n in ([0, 1, 1, 1, 2, 2], [3, 5, 6, 7, 2, 4], [0, 1, 2, 0, 2, 2])))
    some = labels.rows(torch.tensor([2, 0]))
    assert some.verdict_N is not None and some.reward_N is None
    assert (some.row_N.tolist(), some.position_N.tolist()) == ([0, 0, 1], [2, 4, 3])
    assert some.verdict_N.tolist() == [2, 2, 0]


def test_the_losses_by_hand() -> None:
    """Cross entropy times the class's weight; the error of the reward's size, quadratic up to 1, then linear."""
    out = torch.tensor(
        [[math.log(2), 0.0, 0.0, 0.0, 9.0], [0.0, 0.0, math.log(6), 9.0, 0.0], [0.0, math.log(2), 0, 9, 9]]
    )
    softplus = math.log(2)
    span, reward = span_losses(
        out, torch.tensor([0, 2, 1]), torch.tensor([-1.0, 3.0, 0.0]), torch.tensor([3.0, 1.0, 2.0])
    )
    assert float(span) == pytest.approx(3 * math.log(2) + 2 * math.log(8 / 6) + math.log(2))
    assert float(reward) == pytest.approx((1 - softplus) ** 2 / 2 + (3 - softplus) - 0.5)


def test_a_neutral_tokens_reward_moves_nothing_and_each_verdict_moves_its_own() -> None:
    out = torch.zeros(3, 5, requires_grad=True)
    _, reward = span_losses(out, torch.tensor([1, 0, 2]), torch.tensor([0.0, -1.0, 1.0]), torch.ones(3))
    reward.backward()  # type: ignore[no-untyped-call]
    assert out.grad is not None
    assert (out.grad != 0).tolist() == [[False] * 5, [False, False, False, True, False], [False] * 4 + [True]]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_class_weights_are_one_on_average_and_rise_with_rarity(exponent: float) -> None:
    counts = torch.tensor([5.0, 80.0, 15.0])
    weights = class_weights(counts, exponent)
    assert float((weights * counts).sum() / counts.sum()) == pytest.approx(1)
    torch.testing.assert_close(weights[0] / weights[1], torch.tensor(16.0**exponent))
    assert class_weights(torch.zeros(3), exponent).tolist() == [1, 1, 1]


def test_reading_out_undoes_the_class_weights() -> None:
    """One constant logit vector, fitted to weighted labels: read out, it is how often the classes came."""
    verdicts = torch.tensor([0] * 5 + [1] * 80 + [2] * 15)
    weights = class_weights(torch.bincount(verdicts).float(), 0.5)
    logits = torch.zeros(5, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss, _ = span_losses(logits.expand(100, 5), verdicts, torch.zeros(100), weights)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    raw = logits.detach()[:3].softmax(-1)
    assert float(raw[0]) > 0.1, "what the weighted loss learns is not how often the class came"
    probs, sizes = read_out(logits.detach()[None], weights, 1.0)
    torch.testing.assert_close(probs[0], torch.tensor([0.05, 0.8, 0.15]), atol=1e-3, rtol=0)
    torch.testing.assert_close(sizes, torch.nn.functional.softplus(logits.detach()[None, 3:]))


def test_a_temperature_divides_the_logits() -> None:
    out = torch.tensor([[2.0, 0.0, -2.0, 0.0, 0.0]])
    torch.testing.assert_close(read_out(out, torch.ones(3), 2.0)[0], torch.tensor([[1.0, 0.0, -1.0]]).softmax(-1))


@settings(max_examples=15)
@given(st.floats(0.2, 5), st.integers(0, 99))
def test_the_temperature_that_labels_were_drawn_with_is_the_likeliest(wanted: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4000, 3, generator=generator) * 2 * wanted
    labels = torch.multinomial((logits / wanted).softmax(-1), 1, generator=generator)[:, 0]
    found = fit_temperature(logits, labels)

    def loss(temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits.double() / temperature, labels))

    assert found == pytest.approx(wanted, rel=0.2)
    assert loss(found) <= min(loss(found * 0.98), loss(found * 1.02))


def test_a_few_labels_that_are_all_guessed_right_make_no_guess_certain() -> None:
    logits = torch.tensor([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0]] * 4)
    found = (logits / fit_temperature(logits, torch.tensor([0, 1] * 4))).softmax(-1)
    assert 0.9 < float(found.max()) < 0.95


def test_no_labels_leave_the_temperature_alone() -> None:
    assert fit_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)) == 1.0


@given(RANKED)
def test_the_threshold_has_the_best_f1_there_is(ranked: list[tuple[float, bool]]) -> None:
    probs, truth = torch.tensor([p for p, _ in ranked]), torch.tensor([t for _, t in ranked])
    threshold, f1 = best_threshold(probs, truth)
    if not truth.any():
        assert (threshold, f1) == (0.5, 0.0)
        return

    def with_threshold(at: float) -> float:
        said = probs >= at
        return 2 * int((said & truth).sum()) / (int(said.sum()) + int(truth.sum()))

    assert f1 == pytest.approx(with_threshold(threshold))
    assert f1 == pytest.approx(max(with_threshold(at) for at in {0.0, *probs.tolist()}))


@given(RANKED)
def test_average_precision_is_the_area_by_brute_force(ranked: list[tuple[float, bool]]) -> None:
    """Σ (recall gained) × precision, over every cut that the probabilities allow."""
    probs, truth = torch.tensor([p for p, _ in ranked]), torch.tensor([t for _, t in ranked])
    wanted, before = 0.0, 0.0
    for cut in sorted(set(probs.tolist()), reverse=True):
        said = probs >= cut
        recall = int((said & truth).sum()) / max(int(truth.sum()), 1)
        wanted += (recall - before) * int((said & truth).sum()) / int(said.sum())
        before = recall
    assert average_precision(probs, truth) == pytest.approx(wanted)
