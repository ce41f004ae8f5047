"""verl: an agent loop that pays each token for its critique, and our estimators by name. Page: docs/engines/verl.md.

Importing it (`VERL_USE_EXTERNAL_MODULES=text2grad.engines.verl`) registers `algorithm.adv_estimator=text2grad_NAME`.
The agent loop comes from verl's own YAML list of agent loops, with the critic in it.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.core_algos import register_adv_est

from text2grad import config
from text2grad.engines.advantages import NAMES, registered
from text2grad.engines.scorer import Scorer, labelled
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.settings import CriticSettings, Scoring

for _name in NAMES:
    register_adv_est(f"text2grad_{_name}")(registered(_name))


class CritiqueOutput(AgentLoopOutput):  # type: ignore[misc]
    """An output whose reward lies on every token; verl's own writes `reward_score` on the last one."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("token_rewards"), dtype=torch.float32)
        return fields


class CritiqueAgentLoop(SingleTurnAgentLoop):  # type: ignore[misc]
    """verl's single turn, judged by a critic. verl makes one per completion; the critic is made once per process."""

    def __init__(
        self,
        *args: Any,
        critic: str,
        scoring: Mapping[str, Any] | None = None,
        align: Mapping[str, Any] | None = None,
        critics: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`critic`: a name, or `module:object`. `scoring`, `align`, `critics`: settings as in `text2grad train`."""
        super().__init__(*args, **options)
        self.scorer = scorer_of(critic, self.tokenizer, scoring or {}, align or {}, critics or {})
        self.labelled_only = str(self.config.algorithm.adv_estimator) == "text2grad_local"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> CritiqueOutput:
        output = await super().run(sampling_params, **row)
        mask, cut = output.response_mask, len(output.response_ids) >= self.response_length
        (rollout,) = await self.scorer.later([columns(row)], [output.response_ids], [mask], [cut])
        rewards = labelled(rollout) if self.labelled_only else list(rollout.token_rewards or [0.0] * len(mask))
        fields = {name: getattr(output, name) for name in output.model_fields_set}
        # Not scored: nothing to learn from, and in no baseline of ours. Without a number verl would ask its own reward.
        fields |= {"token_rewards": rewards, "reward_score": sum(rewards)}
        fields["response_mask"] = mask if rollout.scored else [0] * len(mask)
        said = {"scored": rollout.scored, "critique": rollout.critique.feedback if rollout.critique else ""}
        fields["extra_fields"] = {**output.extra_fields, "reward_extra_info": said}
        return CritiqueOutput(**fields)


def columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of verl's data as text2grad takes it: `extra_info` by name, and the ground truth as `reference`."""
    given = {**(row.get("extra_info") or {}), "prompt": [dict(turn) for turn in row["raw_prompt"]]}
    truth = (row.get("reward_model") or {}).get("ground_truth")
    return {**({} if truth is None else {"reference": truth}), **given}


def scorer_of(critic: str, tokenizer: Any, scoring: Any, align: Any, critics: Any) -> Scorer:
    """The same for the same settings, within a process."""
    plain = [{str(name): each for name, each in settings.items()} for settings in (scoring, align, critics)]
    key = json.dumps([critic, *plain], sort_keys=True, default=dict)
    if key not in _SCORERS:
        _SCORERS[key] = Scorer(
            critic,
            tokenizer,
            scoring=config.build(Scoring, plain[0], "scoring"),
            align=config.build(AlignSettings, plain[1], "align"),
            critics=config.build(CriticSettings, plain[2], "critics"),
        )
    return _SCORERS[key]


_SCORERS: dict[str, Scorer] = {}
