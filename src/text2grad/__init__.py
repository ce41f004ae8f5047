"""Train language models from written feedback. The public names, each imported when first asked for."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from text2grad.errors import Text2GradError
    from text2grad.feedback.align import AlignSettings, align
    from text2grad.models.reward.model import RewardModel
    from text2grad.training.reward_model import RewardTrainer
    from text2grad.training.rl import Trainer
    from text2grad.training.settings import RewardModelSettings, SFTSettings, TrainSettings
    from text2grad.training.sft import SFTTrainer
    from text2grad.types import (
        Alignment,
        Completion,
        Critique,
        Example,
        Message,
        Missed,
        Quote,
        RewardedCompletion,
        Rollout,
        Scoring,
        Span,
    )

__all__ = [
    "AlignSettings",
    "Alignment",
    "Completion",
    "Critique",
    "Example",
    "Message",
    "Missed",
    "Quote",
    "RewardModel",
    "RewardModelSettings",
    "RewardTrainer",
    "RewardedCompletion",
    "Rollout",
    "SFTSettings",
    "SFTTrainer",
    "Scoring",
    "Span",
    "Text2GradError",
    "TrainSettings",
    "Trainer",
    "align",
]

_HOMES = {
    "AlignSettings": "text2grad.feedback.align",
    "RewardModel": "text2grad.models.reward.model",
    "RewardModelSettings": "text2grad.training.settings",
    "RewardTrainer": "text2grad.training.reward_model",
    "SFTSettings": "text2grad.training.settings",
    "Text2GradError": "text2grad.errors",
    "TrainSettings": "text2grad.training.settings",
    "Trainer": "text2grad.training.rl",
    "SFTTrainer": "text2grad.training.sft",
    "align": "text2grad.feedback.align",
}
"""Where a public name lives, if not in `types`. The trainers and models need the extra `train`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'text2grad' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES.get(name, "text2grad.types")), name)
    except ModuleNotFoundError as problem:
        from text2grad.errors import MissingExtra

        raise MissingExtra.of(problem, f"text2grad.{name}") or problem from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
