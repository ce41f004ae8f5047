"""Does the critic judge in hindsight? How much of what is paid before a token depends on what comes after it.

Some rollouts are cut at a random token and written anew from there, and the critic judges both. Rewards on the part
they share are equal if each token is judged by what stands before it. Where they differ, later tokens explain the
difference, and return-to-go alone would credit the wrong ones (`advantage.anchor`).
"""

from collections.abc import Sequence

import numpy as np

from text2grad.evaluation.evaluator import judged
from text2grad.feedback.judge import RewardFunction
from text2grad.models.sampling import Seed
from text2grad.models.writer import Writer
from text2grad.runs.world import World
from text2grad.training.state import random_states, restore_random_states
from text2grad.types import MetricInfo, Rollout

METRICS = {
    "reward/hindsight": MetricInfo(
        "Hindsight",
        "Share of the variance of rewards paid before a token that later tokens explain, measured by writing some "
        "completions anew from there. 0: every token is judged by what stands before it.",
    ),
}


def measure_hindsight(
    rollouts: Sequence[Rollout], writer: Writer, reward_function: RewardFunction, seed: Seed, world: World
) -> dict[str, float]:
    """The metric over the rollouts of all processes; nothing where no two payments differ. `seed`: its indices are
    those of the rollouts."""
    draws = [np.random.default_rng([seed.run, seed.step, index]) for index in seed.indices]
    kept = [int(draw.integers(1, max(2, len(r.completion.token_ids)))) for draw, r in zip(draws, rollouts, strict=True)]
    # A critic may draw from the global generators; what it is asked here must not change what it draws later.
    before = random_states()
    again = judged(reward_function, writer.rewritten(rollouts, kept, seed), learn=False)
    restore_random_states(before)
    pairs = [
        (rollout.index, sum(rollout.token_rewards[:count]), sum(other.token_rewards[:count]))
        for rollout, other, count in zip(rollouts, again, kept, strict=True)
        if rollout.token_rewards is not None and other.token_rewards is not None
    ]
    # In the order of the rollouts, so that the sum is the same for any number of processes.
    everybody = sorted(pair for part in world.all_gather(pairs) for pair in part)
    return hindsight([(one, other) for _, one, other in everybody])


def hindsight(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """(paid in one completion, paid in the other) for the same prefix → the metric.

    >>> hindsight([(1.0, 1.0), (0.0, 0.0)]), hindsight([(1.0, 0.0), (0.0, 1.0)])
    ({'reward/hindsight': 0.0}, {'reward/hindsight': 1.0})
    """
    paid_P2 = np.array(pairs, dtype=float).reshape(-1, 2)
    variance = float(paid_P2.var()) if len(paid_P2) > 1 else 0.0
    if variance <= 1e-12 * float((paid_P2**2).mean() if len(paid_P2) else 0.0):
        return {}
    # Half the mean squared difference of two draws is the variance that remains once the prefix is known. With two
    # draws for each prefix it can come out above that of all; no more than all of it can be explained.
    apart = float(((paid_P2[:, 0] - paid_P2[:, 1]) ** 2).mean()) / 2
    return {"reward/hindsight": min(1.0, apart / variance)}
