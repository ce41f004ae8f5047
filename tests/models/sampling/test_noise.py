"""The draw of a completion is a function of seed, step and index, and nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from text2grad.models.sampling import uniforms

word = st.integers(min_value=0, max_value=2**63)


@given(word, word, st.lists(word, min_size=1, max_size=5, unique=True), st.integers(1, 9))
def test_a_row_does_not_depend_on_the_others_nor_on_the_length(
    seed: int, step: int, indices: list[int], length: int
) -> None:
    together = uniforms(seed, step, indices, length)
    assert together.dtype == np.float32 and together.shape == (len(indices), length)
    assert together.min() >= 0 and together.max() < 1
    for row, index in enumerate(indices):
        assert uniforms(seed, step, [index], length + 3)[0, :length].tolist() == together[row].tolist()


def test_seed_step_and_index_each_change_it() -> None:
    rows = [uniforms(*key, [index], 8)[0] for key in ((0, 0), (0, 1), (1, 0), (1, 1)) for index in (0, 1, 2**32)]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_the_numbers_stay_what_they_are() -> None:
    """A run that is resumed with another version of numpy goes on with the same draws."""
    assert (uniforms(5, 6, [7], 3) * 2**24).tolist() == [[295740.0, 9681899.0, 7765107.0]]


def test_they_are_uniform() -> None:
    """Chi-square over 20 bins of 40,000 numbers: 19 degrees of freedom, 43.8 is passed once in a thousand."""
    counts, _ = np.histogram(uniforms(0, 0, range(400), 100), bins=20, range=(0, 1))
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8
