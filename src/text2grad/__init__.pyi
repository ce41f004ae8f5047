# ruff: noqa: I001 - sorted, without a statement for each name
"""The public names, each in its room. `__init__.py` imports one when it is first asked for."""

from text2grad.engines.advantages import with_advantages as with_advantages
from text2grad.engines.rows import (
    TrainingRow as TrainingRow,
    check_training_rows as check_training_rows,
    read_training_rows as read_training_rows,
    training_rows as training_rows,
    write_training_rows as write_training_rows,
)
from text2grad.errors import Text2GradError as Text2GradError
from text2grad.evaluation.evaluator import Evaluator as Evaluator
from text2grad.feedback.agreement import agreement as agreement
from text2grad.feedback.align import AlignSettings as AlignSettings, align as align
from text2grad.feedback.judge import RewardFunction as RewardFunction, judge as judge
from text2grad.feedback.people import PeopleSettings as PeopleSettings, Rejected as Rejected, read_people as read_people
from text2grad.feedback.rewards import token_rewards as token_rewards
from text2grad.feedback.settings import CriticSettings as CriticSettings, Scoring as Scoring
from text2grad.models.critics import critic as critic
from text2grad.models.offsets import completion_of as completion_of
from text2grad.models.reward.model import RewardModel as RewardModel
from text2grad.models.sampling import Sampled as Sampled, Sampler as Sampler, Seed as Seed
from text2grad.optim.estimators import Advantages as Advantages, Estimator as Estimator, estimator as estimator
from text2grad.tasks.annotated import load_annotated as load_annotated
from text2grad.tasks.examples import load_examples as load_examples
from text2grad.tasks.task import Metric as Metric, Task as Task, mean_of as mean_of, open_task as open_task
from text2grad.training.preference import DPOTrainer as DPOTrainer
from text2grad.training.reward_model import RewardModelTrainer as RewardModelTrainer
from text2grad.training.rl import Trainer as Trainer
from text2grad.training.settings import (
    DPOSettings as DPOSettings,
    RewardModelSettings as RewardModelSettings,
    SFTSettings as SFTSettings,
    TrainSettings as TrainSettings,
)
from text2grad.training.sft import SFTTrainer as SFTTrainer
from text2grad.types import (
    Alignment as Alignment,
    Completion as Completion,
    Critique as Critique,
    Example as Example,
    Message as Message,
    MetricInfo as MetricInfo,
    Missed as Missed,
    Quote as Quote,
    Rollout as Rollout,
    Span as Span,
)

__version__: str
__all__: list[str]
