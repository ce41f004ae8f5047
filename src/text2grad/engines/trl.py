"""TRL's GRPOTrainer with the critic as its reward and token advantages of ours. Page: docs/engines/trl.md.

Enters: what `GRPOTrainer` takes, and a critic. Leaves: the same trainer, whose batches have advantages of shape (B, T).
Everything else, loss, KL, generation with vLLM, several processes, is TRL's own.
"""

from contextlib import closing
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from text2grad.engines.advantages import estimate
from text2grad.engines.scorer import Scorer, masked
from text2grad.errors import ConfigError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.settings import CriticSettings, Scoring
from text2grad.optim.settings import AdvantageSettings
from text2grad.types import Rollout


class CritiqueGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO on token advantages from critiques."""

    def __init__(
        self,
        *args: Any,
        critic: Critic | str,
        advantage: AdvantageSettings | None = None,
        scoring: Scoring | None = None,
        align: AlignSettings | None = None,
        critics: CriticSettings | None = None,
        **options: Any,
    ) -> None:
        """`critic`: a callable or a name; columns of the data set go to it by name. `advantage`, `scoring`, `align`,
        `critics`: as in `text2grad train`. Everything else goes to GRPOTrainer; it has no other reward functions."""
        if options.get("reward_funcs") is not None:
            raise ConfigError("the critic is the only reward here; combine critics with weighted(…), not reward_funcs")
        self.advantage = advantage or AdvantageSettings()
        self.judged: list[Rollout] = []
        """What was sampled last, by this process."""

        def critique(prompts: list[Any], completion_ids: list[list[int]], **given: Any) -> list[float | None]:
            columns = {name: each for name, each in given.items() if name not in ("completions", "environments")}
            return self._score(prompts, completion_ids, columns)

        super().__init__(*args, reward_funcs=critique, **options)
        if self.importance_sampling_level != "token":
            raise ConfigError(
                f"importance_sampling_level={self.importance_sampling_level!r} mixes the tokens of a completion; "
                f"set it to 'token'"
            )
        self.scorer = Scorer(critic, self._tokenizer, scoring=scoring, align=align, critics=critics)

    def train(self, *args: Any, **options: Any) -> Any:
        with closing(self.scorer):
            return super().train(*args, **options)

    def _score(
        self, prompts: list[Any], completion_ids: list[list[int]], columns: dict[str, Any]
    ) -> list[float | None]:
        names = [name for name, each in columns.items() if isinstance(each, list) and len(each) == len(prompts)]
        rows = [
            {name: columns[name][place] for name in names} | {"prompt": prompt} for place, prompt in enumerate(prompts)
        ]
        ends = {self._tokenizer.eos_token_id, self._tokenizer.pad_token_id}
        cut = [not ids or ids[-1] not in ends for ids in completion_ids]
        self.judged = self.scorer(rows, completion_ids, truncated=cut)
        return [rollout.score for rollout in self.judged]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        mask_BT = output["completion_mask"] * output.get("tool_mask", 1)
        rollouts = [
            masked(rollout, mask[: len(rollout.completion.token_ids)])
            for rollout, mask in zip(self.judged, mask_BT.tolist(), strict=True)
        ]
        # Groups may be spread over processes: everybody estimates on everything, and takes its own part.
        masks = mask_BT.tolist()
        mine = [(each.token_rewards, each.verdicts, mask) for each, mask in zip(rollouts, masks, strict=True)]
        everybody = gather_object(mine)
        size = self.num_generations if self.model.training else self.num_generations_eval
        width = max(len(mask) for _, _, mask in everybody)
        rewards_BT, verdicts_BT, mask_BT = (
            torch.tensor([[*(each[part] or ()), *[0] * width][:width] for each in everybody], dtype=torch.float32)
            for part in range(3)
        )
        unscored_B = torch.tensor([each[0] is None for each in everybody])
        mask_BT[unscored_B] = 0
        groups = [place // size for place in range(len(everybody))]
        advantages_BT = estimate(rewards_BT, mask_BT.bool(), groups, self.advantage, verdicts_BT=verdicts_BT)
        first, like_BT = self.accelerator.process_index * len(inputs), output["completion_mask"]
        own_BT = advantages_BT[first : first + len(inputs), : like_BT.shape[1]]
        output["advantages"] = own_BT.to(like_BT.device)
        return output
