"""Random numbers without a state: the draw of a completion is a function of seed, step and the completion's index.

Enters: three integers and a length. Leaves: float32 in [0, 1). So a completion's draw does not depend on what it is
batched with, on how many processes share the work, or on whether the run was resumed. Knows no distribution.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_WORD = 2**64


def uniforms(seed: int, step: int, indices: Sequence[int], length: int) -> NDArray[np.float32]:
    """(len(indices), length) numbers in [0, 1): row r belongs to the completion `indices[r]` of this step.

    The start of a row does not depend on its length.

    >>> uniforms(7, 0, [3, 4], 2).tolist() == [uniforms(7, 0, [i], 5)[0, :2].tolist() for i in (3, 4)]
    True
    """
    rows = np.empty((len(indices), length), dtype=np.float32)
    key = np.array([seed % _WORD, step % _WORD], dtype=np.uint64)
    for row, index in zip(rows, indices, strict=True):
        # Philox counts up in the first word of its counter; the second one holds the index, so no two rows meet.
        # The raw words are numpy's promise for all versions, which the numbers of its Generator are not.
        counter = np.array([0, index % _WORD, 0, 0], dtype=np.uint64)
        words = np.random.Philox(key=key, counter=counter).random_raw((length + 1) // 2)
        halves = words.astype("<u8").view("<u4")[:length]
        row[:] = (halves >> 8) * np.float32(2**-24)
    return rows
