"""SkyRL: a generator whose rewards are lists of token rewards, and our estimators by name. Page: docs/engines/skyrl.md.

Importing it registers `trainer.algorithm.advantage_estimator=text2grad_NAME`, and an environment `critique` of one turn
that pays nothing, for data whose only judge is the critic.
"""

from typing import Any

import skyrl_gym
from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator
from skyrl.train.generators.base import GeneratorInput, GeneratorInterface, GeneratorOutput
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from text2grad.engines.advantages import NAMES, registered
from text2grad.engines.scorer import Scorer, labelled, with_unscored
from text2grad.errors import ConfigError
from text2grad.types import Rollout

for _name in NAMES:
    register_advantage_estimator(f"text2grad_{_name}")(registered(_name))

skyrl_gym.register(id="critique", entry_point="text2grad.engines.skyrl:OneTurn")


class OneTurn(BaseTextEnv):  # type: ignore[misc]
    def __init__(self, **_: Any) -> None:
        super().__init__()

    def step(self, action: str) -> BaseTextEnvStepOutput:  # noqa: ARG002
        return BaseTextEnvStepOutput(observations=[], reward=0.0, done=True, metadata={})


class CritiqueGenerator(GeneratorInterface):  # type: ignore[misc]
    """Any generator of SkyRL's, with token rewards from a critic in place of its own."""

    def __init__(self, generator: GeneratorInterface, scorer: Scorer, *, labelled_only: bool = False) -> None:
        """`labelled_only`: for `text2grad_local`; leave the residual of the score out."""
        self.generator, self.scorer, self.labelled_only = generator, scorer, labelled_only
        self.judged: list[Rollout] = []
        """What was sampled last."""

    async def generate(self, input_batch: GeneratorInput, **options: Any) -> GeneratorOutput:
        output = await self.generator.generate(input_batch, **options)
        if output.get("is_last_step") is not None:
            raise ConfigError("step-wise training ignores token rewards; set generator.step_wise_trajectories=false")
        stops = output.get("stop_reasons") or ["stop"] * len(output["response_ids"])
        extras = input_batch["env_extras"] or [{}] * len(stops)
        rows = [columns(*each) for each in zip(input_batch["prompts"], extras, strict=True)]
        cut = [reason == "length" for reason in stops]
        self.judged = await self.scorer.later(rows, output["response_ids"], truncated=cut)
        rewards = [labelled(each) if self.labelled_only else list(each.token_rewards or ()) for each in self.judged]
        groups = [each.instance_id for each in input_batch["trajectory_ids"] or []] or list(map(str, rows))
        masks = [
            mask if each.scored else [0] * len(mask)
            for mask, each in zip(output["loss_masks"], self.judged, strict=True)
        ]
        rewards = with_unscored(self.judged, rewards, groups)
        return {**output, "rewards": rewards, "loss_masks": masks}


def columns(prompt: Any, extra: dict[str, Any]) -> dict[str, Any]:
    """A row of SkyRL's data as text2grad takes it: extras by name, and the ground truth as `reference`."""
    truth = (extra.get("reward_spec") or extra.get("reward_model") or {}).get("ground_truth")
    known = {name: each for name, each in extra.items() if name not in ("reward_spec", "reward_model", "max_turns")}
    return {**({} if truth is None else {"reference": truth}), **known, "prompt": [dict(turn) for turn in prompt]}
