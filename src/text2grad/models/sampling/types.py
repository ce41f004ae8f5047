"""What every sampler takes and gives: token ids. No torch, no text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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
