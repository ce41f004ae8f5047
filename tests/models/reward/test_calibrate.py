"""What is chosen on held-out completions: thresholds, temperature, and whether the model is of use."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.reward.made import untrained
from text2grad.feedback.labels import Calibration, Words, verdicts_of
from text2grad.models.reward.calibrate import calibrated, complaint, token_metrics
from text2grad.models.reward.model import RewardModel


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


def test_thresholds_are_of_whole_words_where_they_are_known() -> None:
    """Two tokens of one poor word, 0.9 and 0.1, and a right one of 0.3: as words 0.5 and 0.3, so the cut lies between;
    as tokens nothing finds both without the right one."""
    model, _ = untrained()
    said = out([[0.9, 0.08, 0.02], [0.1, 0.88, 0.02], [0.3, 0.68, 0.02], [0.01, 0.97, 0.02]])
    truth = torch.tensor([0, 0, 1, 1])
    words = Words.of("Drava flows", np.array([(0, 3), (3, 5), (5, 11)]))
    by_words = calibrated(model, [said] * 3, [truth] * 3, [words] * 3)
    model.calibration = by_words
    probs = model.read(said)[0].double().numpy()
    whole = words.mean(probs[:-1])[:, 0]
    assert whole[1] < by_words.poor < whole[0]
    by_tokens = calibrated(model, [said] * 3, [truth] * 3)
    assert by_tokens.temperature == by_words.temperature and by_tokens.confidence == by_words.confidence
    assert by_tokens.poor < probs[1, 0], "all three called: two of three are right"


def test_class_weights_are_taken_back_before_anything_is_chosen() -> None:
    model, _ = untrained()
    model.class_weights_3.copy_(torch.tensor([8.0, 0.5, 1.0]))
    weighed = out(SURE)
    weighed[:, :3] += model.class_weights_3.log()
    plain, _ = untrained()
    verdicts = [torch.tensor([0, 1, 1, 1])]
    assert calibrated(model, [weighed], verdicts).poor == pytest.approx(calibrated(plain, [out(SURE)], verdicts).poor)
    assert token_metrics(model, [weighed], verdicts) == pytest.approx(token_metrics(plain, [out(SURE)], verdicts))


@cache
def plain() -> RewardModel:
    return untrained()[0]


def told(outs: list[torch.Tensor], verdicts: list[torch.Tensor]) -> str:
    """What is said of a judge that was calibrated on these completions. It scores all, or, where that is something,
    nothing."""
    model = plain()
    model.calibration = Calibration()
    model.calibration = calibrated(model, outs, verdicts)
    assert model.calibration == calibrated(model, outs, verdicts)
    warning = complaint(model, outs, verdicts)
    assert model.calibration.confidence == float(bool(warning))
    return warning


OF_NO_USE = "do not show that this reward model is of use"


def test_a_judge_whose_numbers_mean_nothing_scores_nothing_however_sure_it_is_of_some() -> None:
    """Every number is the wrong way round, so it ends at the hottest temperature. Uniform probabilities are then better
    than the base rates for what is rare, and noise is surest of just those."""
    common, rare = torch.ones(21).long(), torch.tensor([0, 2] * 10 + [1])
    verdicts = [common] * 3 + [rare] * 3
    outs = []
    for verdict in verdicts:
        logits = torch.zeros(21, 5)
        logits[torch.arange(21), verdict] = -0.5 if verdict is common else -2.0
        outs.append(logits)
    assert OF_NO_USE in told(outs, verdicts) and plain().calibration.temperature > 99


def made(count: int, signal: float, noise: float = 0.0, seed: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """A judge's numbers for completions of 25 tokens, a fifth of them poor, in runs of five. It sees `signal` times
    whether a token is poor, in noise of 1, and says what follows from that; `noise` is what it makes up beside."""
    draw = torch.Generator().manual_seed(seed)
    verdicts = [(torch.rand(5, generator=draw) >= 0.2).long().repeat_interleave(5) for _ in range(count)]
    outs = []
    for verdict in verdicts:
        seen = signal * (verdict == 0) + torch.randn(25, generator=draw)
        logits = torch.full((25, 5), -6.0)
        logits[:, 0] = math.log(0.25) + signal * seen - signal**2 / 2 + noise * torch.randn(25, generator=draw)
        logits[:, 1] = 0.0
        outs.append(logits)
    return outs, verdicts


@given(st.integers(1, 40), st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_nothing_is_said_of_a_perfect_judge(count: int, seed: int) -> None:
    outs, verdicts = made(count, 9.0, seed=seed)
    if len(set(torch.cat(verdicts).tolist())) == 2:
        assert not told(outs, verdicts)


@given(st.integers(16, 40), st.integers(0, 9), st.sampled_from([0.0, 1.0, 5.0]))
@settings(max_examples=20, deadline=None)
def test_a_judge_without_skill_scores_nothing(count: int, seed: int, noise: float) -> None:
    """One that always says the base rates, and ones that make something up."""
    assert OF_NO_USE in told(*made(count, 0.0, noise, seed))


@pytest.mark.parametrize("seed", range(5))
def test_a_judge_that_is_unsure_and_of_use_scores_all(seed: int) -> None:
    """Average precision about 0.6 where a fifth is poor, as on people's labels; by its likeliest class alone it would
    hardly be told from one that says neutral of all."""
    outs, verdicts = made(60, 1.4, seed=seed)
    found = token_metrics(plain(), outs, verdicts)
    assert 0.5 < found["poor_ap"] < 0.75
    assert found["accuracy"] < float((torch.cat(verdicts) == 1).double().mean()) + 0.1
    assert not told(outs, verdicts)


def test_what_is_better_by_less_than_the_margin_is_not_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three tokens are poor. By the base rates they cost 0.4055, 0.4055 and 1.0986 nats, here 0.3975, 0.3975 and
    1.0906: a hundredth of what there is to know of them. With 0.35 and 0.99 it is six hundredths, and enough."""
    monkeypatch.setattr("text2grad.models.reward.calibrate.fit_temperature", lambda *_: 1.0)
    verdicts = [torch.tensor([0, 0, 1, 1])] * 30
    stop = [1e-6, 1 - 2e-6, 1e-6]
    slightly = out([[0.672, 0.327, 0.001], [0.672, 0.327, 0.001], [0.663, 0.336, 0.001], stop])
    plainly = out([[0.705, 0.294, 0.001], [0.705, 0.294, 0.001], [0.647, 0.352, 0.001], stop])
    assert told([slightly] * 30, verdicts)
    assert not told([plainly] * 30, verdicts)


@pytest.mark.parametrize("length", [8, 64])
def test_to_know_that_stops_are_neutral_is_no_skill(length: int) -> None:
    """Whole completions that are good or poor by chance, and a judge that cannot tell which, but knows the stop."""
    draw = torch.Generator().manual_seed(length)
    verdicts = [
        torch.cat([torch.full((length,), 2 * int(torch.randint(2, (), generator=draw))), torch.ones(1).long()])
        for _ in range(50)
    ]
    said = out([[0.495, 0.01, 0.495]] * length + [[0.01, 0.98, 0.01]])
    assert OF_NO_USE in told([said] * 50, verdicts)


def test_one_class_alone_shows_nothing() -> None:
    for said in (UNSURE, [[0.02, 0.96, 0.02]] * 3):
        assert "all their tokens have the same verdict" in told([out(said)] * 4, [torch.tensor([1, 1, 1])] * 4)


def test_a_judge_that_tells_one_well_and_one_badly_is_of_no_use() -> None:
    well, badly = torch.tensor([0, 1, 2, 1]), torch.tensor([1, 0, 1, 2])
    assert told([out(SURE)] * 2, [well, badly]) and told([out(SURE)], [badly])
    assert not told([out(SURE)], [well])


def test_a_head_that_says_no_numbers_scores_nothing() -> None:
    model, _ = untrained()
    found = calibrated(model, [out(SURE) * math.nan] * 3, [torch.tensor([0, 1, 2, 1])] * 3)
    assert found == Calibration(confidence=1.0)


def test_of_a_class_that_nobody_held_out_nothing_is_known_and_nothing_measured() -> None:
    model, _ = untrained()
    truth = [torch.tensor([0, 1, 1, 1])]
    assert calibrated(model, [out(SURE)], truth).good == 0.5
    found = token_metrics(model, [out(SURE)], truth)
    assert set(found) == {"accuracy", "poor_ap", "poor_f1"}
    assert found == {"accuracy": 0.75, "poor_ap": 1.0, "poor_f1": 1.0}
