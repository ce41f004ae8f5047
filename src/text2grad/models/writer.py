"""Examples → completions: prompts through the tokenizer, ids from the sampler, exact text and offsets of what came.

Enters: examples. Leaves: a `Rollout` for each, sampled and not judged yet. Training, evaluation and `text2grad generate`
complete examples through this one door.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from text2grad.errors import InvalidData, RunError
from text2grad.models.chat import Format, end_ids, prompt_ids
from text2grad.models.memory import memory_named
from text2grad.models.modes import evaluating
from text2grad.models.offsets import completion_of
from text2grad.models.parallel import gathered_ends
from text2grad.models.policy import Policy
from text2grad.models.sampling import Sampler, SamplingSettings, Seed, sampler_for
from text2grad.runs.world import ALONE, World
from text2grad.types import Example, Rollout


class Writer:
    """A policy that completes examples."""

    def __init__(
        self,
        policy: Policy,
        tokenizer: Any,
        settings: SamplingSettings,
        *,
        form: Format = "auto",
        world: World = ALONE,
        sharded: bool = False,
    ) -> None:
        self.policy, self.tokenizer, self.form, self.world, self.sharded = policy, tokenizer, form, world, sharded
        ends = end_ids(tokenizer, policy.base)
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
        self.sampler: Sampler = sampler_for(policy, settings, end_ids=ends, pad_id=pad_id)
        positions = getattr(policy.base.config.get_text_config(), "max_position_embeddings", None)
        self.room = None if positions is None else positions - settings.max_new_tokens
        """Tokens that a prompt may have."""

    def prompt(self, example: Example) -> list[int]:
        try:
            return prompt_ids(self.tokenizer, example.prompt, self.form, room=self.room)
        except InvalidData as problem:
            raise InvalidData(f"example {example.id!r}: {problem}") from None

    def __call__(self, examples: Sequence[Example], seed: Seed | None = None) -> list[Rollout]:
        """One completion each; without a seed, greedily."""
        prompts = [self.prompt(example) for example in examples]
        # Where weights are gathered from other processes, all decode equally many; what is too much is thrown away.
        spare = self.world.all_max(len(prompts)) - len(prompts) if self.sharded else 0
        if seed is not None:
            seed = Seed(seed.run, seed.step, [*seed.indices, *[0] * spare])
        with (
            memory_named("sampling", "sampling.batch or sampling.prefill_tokens"),
            evaluating(self.policy),
            gathered_ends(self.policy),
        ):
            self.sampler.load(self.policy)
            samples = self.sampler.sample(prompts + [[0]] * spare, seed)[: len(prompts)]
        if not all(np.isfinite(sample.logprobs).all() for sample in samples):
            raise RunError(
                "the policy gives log-probs that are not finite: its weights have diverged, or were so from the start. "
                "Start again in another folder with a lower update.learning_rate"
            )
        return [
            Rollout(
                example,
                completion_of(self.tokenizer, sample.token_ids),
                prompt_ids=tuple(prompt),
                logprobs=sample.logprobs,
                values=sample.values,
                truncated=sample.truncated,
            )
            for example, prompt, sample in zip(examples, prompts, samples, strict=True)
        ]
