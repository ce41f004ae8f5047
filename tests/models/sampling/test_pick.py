"""Inverting the cumulative distribution: the right id for every number, and never an impossible one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from text2grad.models.sampling.plain import CHUNK, pick

LAST = float(np.nextafter(np.float32(1), np.float32(0)))


def test_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]])).expand(5, 3)
    ids, logprobs = pick(logits, torch.tensor([0.0, 0.49, 0.5, 0.74, 0.76]), 1.0)
    assert ids.tolist() == [0, 0, 1, 1, 2]
    assert logprobs.exp().tolist() == pytest.approx([0.5, 0.5, 0.25, 0.25, 0.25])


def test_the_temperature_divides_the_logits() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    _, logprob = pick(logits, torch.tensor([0.5]), 0.5)
    assert logprob.item() == pytest.approx(torch.log_softmax(logits / 0.5, -1)[0, 1].item())
    assert logits.tolist() == [[0.0, 2.0, 1.0]], "the logits are the caller's"


@given(st.integers(1, 3 * CHUNK + 1), st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0, 2.0]))
def test_an_even_grid_of_numbers_draws_each_id_as_often_as_its_probability(
    size: int, seed: int, temperature: float
) -> None:
    draw = np.random.default_rng(seed)
    logits = torch.tensor(draw.normal(scale=3, size=size), dtype=torch.float32)
    probs = torch.softmax(logits.double() / temperature, -1)
    grid = (torch.arange(4000) + 0.5) / 4000
    ids, logprobs = pick(logits.expand(4000, size), grid, temperature)
    counts = torch.bincount(ids, minlength=size)
    # Of n equally spaced numbers, an interval of width p holds n·p, give or take the two at its ends.
    assert (counts - 4000 * probs).abs().max() < 1.01
    assert (logprobs - probs.log()[ids]).abs().max() < 1e-5


@pytest.mark.parametrize("size", [3, CHUNK, CHUNK + 1, 5 * CHUNK])
@pytest.mark.parametrize("possible", [[0], [1], [0, 2]])
def test_ids_of_probability_zero_are_never_drawn(size: int, possible: list[int]) -> None:
    logits = torch.full((1, size), -torch.inf)
    logits[0, [size - 1 - place for place in possible]] = 1.0
    for number in (0.0, 0.5, LAST):
        ids, logprobs = pick(logits, torch.tensor([number]), 1.0)
        assert logits[0, ids[0]] == 1.0
        assert logprobs.item() == pytest.approx(-np.log(len(possible)))


def test_numbers_next_to_one_stay_in_range() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 4097, generator=draw)
    ids, _ = pick(logits, torch.full((500,), LAST), 1.0)
    assert ids.max() < 4097
    assert torch.softmax(logits, -1).gather(1, ids[:, None]).min() > 0


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    ids, logprobs = pick(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), None, 1.0)
    assert ids.tolist() == [1]
    assert logprobs.item() == pytest.approx(torch.log_softmax(torch.tensor([1.0, 3.0, 3.0, 2.0]), -1)[1].item())
