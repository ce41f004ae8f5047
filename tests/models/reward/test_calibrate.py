"""What is chosen on held-out completions: thresholds, temperature, and the floor of confidence."""

import pytest
import torch

from tests.models.reward.made import untrained
from text2grad.feedback.lessons import Calibration, confidence_of, verdicts_of
from text2grad.models.reward.calibrate import calibrated, token_metrics


def out(probs: list[list[float]]) -> torch.Tensor:
    """What a head would say to mean these probabilities."""
    return torch.cat([torch.tensor(probs).log(), torch.zeros(len(probs), 2)], 1)


SURE = [[0.9, 0.08, 0.02], [0.08, 0.9, 0.02], [0.02, 0.08, 0.9], [0.08, 0.9, 0.02]]
UNSURE = [[0.31, 0.35, 0.34], [0.34, 0.35, 0.31], [0.34, 0.31, 0.35]]


def test_thresholds_and_temperature_are_those_of_the_held_out_completions() -> None:
    model, _ = untrained()
    model.calibration = Calibration(kind="score", scale=0.5, start=-1.0)
    truth = torch.tensor([0, 1, 2, 1])
    found = calibrated(model, [out(SURE)] * 3, [truth] * 3)
    assert (found.kind, found.scale, found.start) == ("score", 0.5, -1.0), "what training chose stays"
    assert found.temperature < 1, "it was right more often than it was sure"
    model.calibration = found
    probs, _ = model.read(out(SURE))
    assert verdicts_of(probs.double().numpy(), found).tolist() == truth.tolist()


def test_class_weights_are_taken_back_before_anything_is_chosen() -> None:
    model, _ = untrained()
    model.class_weights_3.copy_(torch.tensor([8.0, 0.5, 1.0]))
    weighed = out(SURE)
    weighed[:, :3] += model.class_weights_3.log()
    plain, _ = untrained()
    verdicts = [torch.tensor([0, 1, 1, 1])]
    assert calibrated(model, [weighed], verdicts).poor == pytest.approx(calibrated(plain, [out(SURE)], verdicts).poor)
    assert token_metrics(model, [weighed], verdicts) == pytest.approx(token_metrics(plain, [out(SURE)], verdicts))


def test_completions_that_are_told_no_better_than_the_commonest_class_are_below_the_floor() -> None:
    model, _ = untrained()
    outs = [out(SURE)] * 56 + [out(UNSURE)] * 4
    verdicts = [torch.tensor([0, 1, 2, 1])] * 56 + [torch.tensor([1, 1, 1])] * 4
    found = calibrated(model, outs, verdicts)
    model.calibration = found
    sure, unsure = (confidence_of(model.read(out(one))[0].double().numpy()) for one in (SURE, UNSURE))
    assert unsure < found.confidence <= sure
    again = [confidence_of(model.read(one)[0].double().numpy()) for one in outs]
    assert [one < found.confidence for one in again] == [False] * 56 + [True] * 4


def test_the_floor_leaves_out_a_tenth_at_most() -> None:
    """Half of the held-out completions are told badly: that is the model's fault, not theirs."""
    model, _ = untrained()
    outs = [out(SURE)] * 10 + [out(UNSURE)] * 10
    verdicts = [torch.tensor([0, 1, 2, 1])] * 10 + [torch.tensor([1, 1, 1])] * 10
    model.calibration = calibrated(model, outs, verdicts)
    below = [confidence_of(model.read(one)[0].double().numpy()) < model.calibration.confidence for one in outs]
    assert sum(below) <= 2


def test_a_model_that_is_always_better_or_never_has_no_floor() -> None:
    model, _ = untrained()
    better = calibrated(model, [out(SURE)] * 4, [torch.tensor([0, 1, 2, 1])] * 4)
    never = calibrated(model, [out(UNSURE)] * 4, [torch.tensor([1, 1, 1])] * 4)
    assert (better.confidence, never.confidence) == (0.0, 0.0)


def test_of_a_class_that_nobody_held_out_nothing_is_known_and_nothing_measured() -> None:
    model, _ = untrained()
    truth = [torch.tensor([0, 1, 1, 1])]
    assert calibrated(model, [out(SURE)], truth).good == 0.5
    found = token_metrics(model, [out(SURE)], truth)
    assert set(found) == {"accuracy", "poor_ap", "poor_f1"}
    assert found == {"accuracy": 0.75, "poor_ap": 1.0, "poor_f1": 1.0}
