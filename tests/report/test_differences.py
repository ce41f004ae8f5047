"""Intervals of paired differences: numbers worked by hand, and the coverage that they claim."""

import math

import numpy as np
import pytest

from text2grad.report.differences import over_seeds, over_seeds_and_examples, student, wilson


def test_over_seeds_by_hand() -> None:
    # Mean 2, deviation 1, three seeds: 4.303 / √3.
    mean, low, high = over_seeds([1.0, 2.0, 3.0])
    assert (
        mean == 2.0 and high - mean == pytest.approx(4.303 / math.sqrt(3)) and mean - low == pytest.approx(high - mean)
    )
    assert over_seeds([0.5]) == (0.5, -math.inf, math.inf)


def test_over_seeds_and_examples_by_hand() -> None:
    # Means of the seeds 1 and 3: deviation √2. Means of the examples 1 and 3: the same.
    mean, _, high = over_seeds_and_examples([[0.0, 2.0], [2.0, 4.0]])
    seeds, examples = 12.71 * math.sqrt(2) / math.sqrt(2), 1.959964 * math.sqrt(2) / math.sqrt(2)
    assert mean == 2.0 and high - mean == pytest.approx(math.hypot(seeds, examples))
    # One seed: the examples alone. One example: the seeds alone.
    assert over_seeds_and_examples([[0.0, 2.0]])[2] == pytest.approx(1 + 1.959964)
    assert over_seeds_and_examples([[0.0], [2.0]])[2] == pytest.approx(1 + 12.71)
    assert over_seeds_and_examples([[1.0]]) == (1.0, -math.inf, math.inf)


@pytest.mark.parametrize(("degrees", "value"), [(1, 12.71), (4, 2.776), (12, 2.179), (20, 2.086), (120, 1.980)])
def test_students_t_is_that_of_the_tables(degrees: int, value: float) -> None:
    assert student(degrees) == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize(("seeds", "apart"), [(3, 0.0), (3, 0.3), (5, 0.1), (5, 0.3)])
def test_the_interval_holds_the_truth_in_95_of_100_cases(seeds: int, apart: float) -> None:
    """Also where seeds differ much, which a bootstrap of three of them does not see (86 of 100)."""
    draw, held, cases = np.random.default_rng(0), 0, 300
    for _ in range(cases):
        noise_SE = draw.normal(0, apart, (seeds, 1)) + draw.normal(0, 1, (1, 100)) + draw.normal(0, 1, (seeds, 100))
        _, low, high = over_seeds_and_examples(noise_SE.tolist())
        held += low <= 0 <= high
    assert held / cases > 0.93


def test_wilson_by_hand() -> None:
    assert wilson(10, 10)[1] == pytest.approx(1.0) and wilson(10, 10)[0] == pytest.approx(0.722, abs=1e-3)
    low, high = wilson(5.0, 10)
    assert low + high == pytest.approx(1.0)
