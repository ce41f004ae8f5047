"""The arithmetic of docs/scaling.md: numbers that are known, laws, and tables that are what the script computes."""

import pytest
from scripts.scaling import SHAPES, fewest, filled, ideal_sampling, measured, per_gpu, slowness, state, step

from scripts import scaling

SMALL, MIDDLE, LARGE = SHAPES


def test_weights_are_those_of_the_published_models() -> None:
    assert SMALL.weights == measured()["weights"] == 1_711_376_384
    assert MIDDLE.weights == 8_030_261_248 and LARGE.weights == 70_553_706_496


def test_a_lora_counts_both_of_its_matrices() -> None:
    """One layer of 1.7B: four squares of 2048, three matrices of 2048 x 8192; rank 16."""
    assert SMALL.adapter == 24 * 16 * (4 * (2048 + 2048) + 3 * (2048 + 8192))


def test_state_by_hand() -> None:
    assert state(SMALL, lora=False) == 20 * 1_711_376_384
    assert state(SMALL, lora=True) == 4 * 1_711_376_384 + 16 * SMALL.adapter
    assert per_gpu(MIDDLE, 1, lora=False) == state(MIDDLE, lora=False), "one GPU gathers nothing"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("lora", [True, False])
def test_more_gpus_hold_less_each_and_the_fewest_are_the_fewest(shape: scaling.Shape, lora: bool) -> None:
    held = [per_gpu(shape, 2**n, lora=lora) for n in range(1, 8)]
    assert held == sorted(held, reverse=True)
    needed = fewest(shape, lora=lora)
    assert needed is not None and per_gpu(shape, needed, lora=lora) <= scaling.FILLED * scaling.MEMORY
    assert needed == 1 or per_gpu(shape, needed // 2, lora=lora) > scaling.FILLED * scaling.MEMORY


def test_measured_sampling_comes_out_of_its_own_calibration() -> None:
    m = measured()
    again = ideal_sampling(SMALL, 256, m["prompt"], m["completion"]) * slowness()
    assert again == pytest.approx(m["sample"]) and slowness() > 1, "nothing is faster than its memory"


def test_servers_pay_where_weights_are_sharded_and_not_where_they_are_whole() -> None:
    def seconds(shape: scaling.Shape, servers: int) -> float:
        return sum(step(shape, 64, lora=True, servers=servers).values())

    assert seconds(LARGE, 16) < seconds(LARGE, 0) / 10
    assert seconds(SMALL, 16) > seconds(SMALL, 0)


def test_the_page_has_the_tables_of_the_script() -> None:
    text = scaling.PAGE.read_text()
    assert filled(text) == text, "run python scripts/scaling.py"
