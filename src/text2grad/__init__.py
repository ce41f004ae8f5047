"""Train language models from written feedback. The public names, each imported when first asked for."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from text2grad.engines.advantages import with_advantages
    from text2grad.engines.rows import (
        TrainingRow,
        check_training_rows,
        read_training_rows,
        training_rows,
        write_training_rows,
    )
    from text2grad.errors import Text2GradError
    from text2grad.evaluation.evaluator import Evaluator
    from text2grad.feedback.agreement import agreement
    from text2grad.feedback.align import AlignSettings, align
    from text2grad.feedback.judge import RewardFunction, judge
    from text2grad.feedback.people import PeopleSettings, Rejected, read_people
    from text2grad.feedback.rewards import token_rewards
    from text2grad.feedback.settings import CriticSettings, Scoring
    from text2grad.models.critics import critic
    from text2grad.models.offsets import completion_of
    from text2grad.models.reward.model import RewardModel
    from text2grad.models.sampling import Sampled, Sampler, Seed
    from text2grad.optim.estimators import Advantages, Estimator, estimator
    from text2grad.tasks.annotated import load_annotated
    from text2grad.tasks.examples import load_examples
    from text2grad.tasks.task import Metric, Task, mean_of, open_task
    from text2grad.training.preference import DPOTrainer
    from text2grad.training.reward_model import RewardModelTrainer
    from text2grad.training.rl import Trainer
    from text2grad.training.settings import DPOSettings, RewardModelSettings, SFTSettings, TrainSettings
    from text2grad.training.sft import SFTTrainer
    from text2grad.types import (
        Alignment,
        Completion,
        Critique,
        Example,
        Message,
        MetricInfo,
        Missed,
        Quote,
        Rollout,
        Span,
    )

__all__ = [
    "Advantages",
    "AlignSettings",
    "Alignment",
    "Completion",
    "CriticSettings",
    "Critique",
    "DPOSettings",
    "DPOTrainer",
    "Estimator",
    "Evaluator",
    "Example",
    "Message",
    "Metric",
    "MetricInfo",
    "Missed",
    "PeopleSettings",
    "Quote",
    "Rejected",
    "RewardFunction",
    "RewardModel",
    "RewardModelSettings",
    "RewardModelTrainer",
    "Rollout",
    "SFTSettings",
    "SFTTrainer",
    "Sampled",
    "Sampler",
    "Scoring",
    "Seed",
    "Span",
    "Task",
    "Text2GradError",
    "TrainSettings",
    "Trainer",
    "TrainingRow",
    "agreement",
    "align",
    "check_training_rows",
    "completion_of",
    "critic",
    "estimator",
    "judge",
    "load_annotated",
    "load_examples",
    "mean_of",
    "open_task",
    "read_people",
    "read_training_rows",
    "token_rewards",
    "training_rows",
    "with_advantages",
    "write_training_rows",
]

_ROOMS = {
    "engines.advantages": ("with_advantages",),
    "engines.rows": (
        "TrainingRow",
        "check_training_rows",
        "read_training_rows",
        "training_rows",
        "write_training_rows",
    ),
    "errors": ("Text2GradError",),
    "evaluation.evaluator": ("Evaluator",),
    "feedback.agreement": ("agreement",),
    "feedback.align": ("AlignSettings", "align"),
    "feedback.judge": ("RewardFunction", "judge"),
    "feedback.rewards": ("token_rewards",),
    "feedback.people": ("PeopleSettings", "Rejected", "read_people"),
    "feedback.settings": ("CriticSettings", "Scoring"),
    "models.critics": ("critic",),
    "models.offsets": ("completion_of",),
    "models.reward.model": ("RewardModel",),
    "models.sampling": ("Sampled", "Sampler", "Seed"),
    "optim.estimators": ("Advantages", "Estimator", "estimator"),
    "tasks.annotated": ("load_annotated",),
    "tasks.examples": ("load_examples",),
    "tasks.task": ("Metric", "Task", "mean_of", "open_task"),
    "training.preference": ("DPOTrainer",),
    "training.reward_model": ("RewardModelTrainer",),
    "training.rl": ("Trainer",),
    "training.settings": ("DPOSettings", "RewardModelSettings", "SFTSettings", "TrainSettings"),
    "training.sft": ("SFTTrainer",),
    "types": (
        "Alignment",
        "Completion",
        "Critique",
        "Example",
        "Message",
        "MetricInfo",
        "Missed",
        "Quote",
        "Rollout",
        "Span",
    ),
}
"""Module → its public names. Trainers, models and estimators need the extra `train`."""
_HOMES = {name: f"text2grad.{module}" for module, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'text2grad' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as problem:
        from text2grad.errors import MissingExtra

        raise MissingExtra.of(problem, f"text2grad.{name}") or problem from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
