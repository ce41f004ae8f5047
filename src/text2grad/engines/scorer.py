"""What an engine sampled → rollouts with token rewards, by a critic.

Enters: rows of the engine's data set, the sampled ids, and the engine's mask. Leaves: one rollout for each, in the same
order. No torch; the tokenizer is the engine's own, and ids are never encoded anew.
"""

import asyncio
import inspect
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import CriticSettings, Scoring
from text2grad.models.critics import critic as critic_named
from text2grad.models.offsets import completion_of
from text2grad.runs import Closable
from text2grad.tasks.examples import example_of
from text2grad.types import Completion, Example, Rollout

EngineRows = Sequence[Mapping[str, Any]]
BatchIds = Sequence[Sequence[int]]


class Scorer(Closable):
    """A critic for an engine: called with a batch, or awaited inside the engine's event loop."""

    def __init__(
        self,
        critic: Critic | str,
        tokenizer: Any,
        *,
        scoring: Scoring | None = None,
        align: AlignSettings | None = None,
        critics: CriticSettings | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        made = critic_named(critic, critics) if isinstance(critic, str) else critic
        self.reward_function = RewardFunction(made, align or AlignSettings(), scoring or Scoring())
        self._is_async = inspect.iscoroutinefunction(made) or inspect.iscoroutinefunction(type(made).__call__)
        self._thread: ThreadPoolExecutor | None = None

    def __call__(
        self, rows: EngineRows, ids: BatchIds, masks: BatchIds = (), truncated: Sequence[bool] = ()
    ) -> list[Rollout]:
        """`rows`: the data set's, with `prompt` and whatever the critic takes by name. `masks`: rewards outside of them
        go to the last token inside; a row without any token inside becomes unscored."""
        examples, completions = self._asked(rows, ids)
        return _inside(self.reward_function(examples, completions, truncated=truncated), masks)

    async def later(
        self, rows: EngineRows, ids: BatchIds, masks: BatchIds = (), truncated: Sequence[bool] = ()
    ) -> list[Rollout]:
        """The same without holding up an event loop. A critic that is not async works in one thread of its own."""
        if not self._is_async:
            self._thread = self._thread or ThreadPoolExecutor(1)
            call = partial(self, rows, ids, masks, truncated)
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        examples, completions = self._asked(rows, ids)
        return _inside(await self.reward_function.within(examples, completions, truncated=truncated), masks)

    def close(self) -> None:
        """Let go of threads and event loops; the next call makes them anew."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self.reward_function.close()

    def _asked(self, rows: EngineRows, ids: BatchIds) -> tuple[list[Example], list[Completion]]:
        examples = [example_of(dict(row), f"row-{place}") for place, row in enumerate(rows)]
        return examples, [completion_of(self.tokenizer, each) for each in ids]


def _inside(rollouts: list[Rollout], masks: BatchIds) -> list[Rollout]:
    return [masked(rollout, mask) for rollout, mask in zip(rollouts, masks, strict=True)] if masks else rollouts


def masked(rollout: Rollout, mask: Sequence[int]) -> Rollout:
    """What the policy did not write is not paid there: the sum stays, on the last token that it wrote."""
    if rollout.token_rewards is None or all(mask):
        return rollout
    places = [place for place, bit in enumerate(mask) if bit]
    if not places:
        return replace(
            rollout, critique=None, alignment=None, token_rewards=None, verdicts=None, score=None, advantages=None
        )
    rewards = [reward if bit else 0.0 for reward, bit in zip(rollout.token_rewards, mask, strict=True)]
    rewards[places[-1]] += sum(rollout.token_rewards) - sum(rewards)
    verdicts = [each if bit else 0.0 for each, bit in zip(rollout.verdicts or rewards, mask, strict=True)]
    return replace(rollout, token_rewards=tuple(rewards), verdicts=tuple(verdicts))


def labelled(rollout: Rollout) -> list[float]:
    """Rewards of tokens with a verdict alone: what an engine that carries nothing but rewards needs for `local`."""
    rewards = rollout.token_rewards or (0.0,) * len(rollout.completion.token_ids)
    return [reward if each else 0.0 for reward, each in zip(rewards, rollout.verdicts or rewards, strict=True)]


def with_unscored(
    rollouts: Sequence[Rollout], rewards: Sequence[Sequence[float]], groups: Sequence[Hashable]
) -> list[list[float]]:
    """Rewards for an engine that takes no reward for a reward of 0: what was not scored gets the mean return of the
    scored completions of its group, on its last token. Then it moves no baseline, and its own advantage is 0."""
    filled = []
    for rollout, own, group in zip(rollouts, rewards, groups, strict=True):
        if not rollout.scored:
            peers = zip(rollouts, rewards, groups, strict=True)
            sums = [sum(each) for other, each, where in peers if other.scored and where == group]
            own = [0.0] * len(rollout.completion.token_ids)
            own[-1:] = [sum(sums) / len(sums) if sums else 0.0] * len(own[-1:])
        filled.append(list(own))
    return filled
