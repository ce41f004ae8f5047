"""What every sampler takes and gives. No torch.

Enters nothing; leaves the nouns. A prompt is the ids of its tokens, a completion is `Sampled`. Knows no text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


class Sampler(Protocol):
    """Prompts → completions, in the order of the prompts."""

    def __call__(self, prompts: Sequence[Sequence[int]], uniforms: "NDArray[np.float32] | None") -> list[Sampled]:
        """`uniforms`: one row a prompt, `max_new_tokens` numbers in [0, 1) each (see `noise.uniforms`); None takes the
        likeliest id each time. The same prompt may stand there many times: a group."""
        ...
