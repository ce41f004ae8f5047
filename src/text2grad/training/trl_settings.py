"""Settings of `text2grad trl`, without torch, so that `--help` can list them at once."""

from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from text2grad import config
from text2grad._checked import Real
from text2grad.config import settings
from text2grad.errors import ConfigError
from text2grad.training.settings import TrainSettings

UNREAD = ("reward", "advantage", "guard", "scoring", "save_best", "log.rollouts", "log.locality", "log.hindsight")
"""Settings of `train` that TRL's trainers have no counterpart of, or that only describe a run."""
REFUSED = ("reward", "advantage", "kl.adaptive", "update.value_learning_rate", "update.loss")
"""Those of them that would change the result if they were read: only their defaults are accepted."""


@settings
class TRLSettings(TrainSettings):
    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns", "trainer", "distillation_weight", "critic"),
        *("updates", "prompts", "completions", "seed", "device", "sampling.max_new_tokens", "sampling.temperature"),
        *("kl.coefficient", "update.learning_rate", "update.epochs", "policy.lora.rank", "policy.precision"),
        *("evaluation.every", "metrics"),
    )
    RENAMED: ClassVar[dict[str, Any]] = {}
    trainer: Literal["grpo", "sdpo"] = "grpo"
    """grpo: TRL's GRPOTrainer on the critic's score. sdpo: its experimental SDPOTrainer, whose teacher is the policy
    itself with the critique of the sampled completion in its prompt."""
    distillation_weight: Annotated[Real, Ge(0), Le(1)] = 1.0
    """Of sdpo: 1 learns from the teacher alone, 0 from the score alone. Its authors mix 0.1 for small models."""
    teacher_rate: Annotated[Real, Gt(0), Le(1)] = 0.05
    """Of sdpo: how fast the teacher's weights follow the policy's."""


def check(chosen: TRLSettings) -> None:
    """Refuse settings that TRL's trainers would not read."""
    plain, usual = (config.flat(config.plain(each)) for each in (chosen, TRLSettings()))
    for key, value in plain.items():
        if any(key == name or key.startswith(f"{name}.") for name in REFUSED) and value != usual[key]:
            raise ConfigError(f"`{key}` means nothing to TRL's {chosen.trainer} trainer; leave it out")
    update, rows = chosen.update, chosen.prompts * chosen.completions
    if chosen.completions < 2:
        raise ConfigError(
            f"completions: TRL compares those of a prompt, so it wants 2 or more, got {chosen.completions}"
        )
    if rows % update.minibatches or (rows // update.minibatches) % rows_at_once(chosen):
        raise ConfigError(
            f"trl: prompts x completions ({rows}) should be a multiple of update.minibatches, and a minibatch one of "
            f"update.micro_batch"
        )
    if update.schedule != "constant" or update.warmup:
        raise ConfigError("trl: the learning rate should be constant: leave update.schedule and update.warmup out")


def rows_at_once(chosen: TRLSettings, most: int = 32) -> int:
    """Completions in memory at once. TRL pads them, and keeps the activations of all.

    >>> [rows_at_once(TRLSettings(prompts=prompts, completions=2)) for prompts in (128, 12, 45, 37)]
    [32, 12, 15, 1]
    """
    rows = chosen.prompts * chosen.completions // chosen.update.minibatches
    if chosen.update.micro_batch != "auto":
        return min(chosen.update.micro_batch, rows)
    return max(size for size in range(1, most + 1) if rows % size == 0)
