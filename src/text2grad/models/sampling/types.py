"""What every sampler takes and gives: token ids. No torch, no text; numpy only where numbers are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = 2**64


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as it was sampled: what importance ratios are taken against."""

    token_ids: tuple[int, ...]
    """The sampled ids, the end token included where it was sampled; never empty."""
    logprobs: tuple[float, ...]
    """Of each id, under the distribution that it was drawn from: the temperature is in it."""
    values: tuple[float, ...] | None
    """What the value head said before each id was drawn; None without a value head."""
    truncated: bool
    """Whether it came to the limit without an end token."""


@dataclass(frozen=True, slots=True)
class Seed:
    """What random draws are a function of: nothing else, so they do not depend on batching, processes or resuming."""

    run: int
    """The seed of the run."""
    step: int
    """The update."""
    indices: Sequence[int]
    """Of each prompt's completion in its update, over all processes."""


class Sampler(Protocol):
    """Prompts → completions, in the order of the prompts. The seam for another engine."""

    def load(self, policy: Any) -> None:
        """Sample from this policy's current weights from now on. Called before every update."""
        ...

    def sample(self, prompts: Sequence[Sequence[int]], seed: Seed | None) -> list[Sampled]:
        """One completion for each prompt; without a seed, the likeliest id each time. The same prompt may stand there
        many times: a group."""
        ...


def uniforms(seed: int, step: int, indices: Sequence[int], length: int) -> "NDArray[np.float32]":
    """(len(indices), length) numbers in [0, 1), without a state: row r is a function of the seed, the step and
    `indices[r]`, the completion's number in this step. The start of a row does not depend on its length.

    >>> uniforms(7, 0, [3, 4], 2).tolist() == [uniforms(7, 0, [i], 5)[0, :2].tolist() for i in (3, 4)]
    True
    """
    import numpy as np

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
