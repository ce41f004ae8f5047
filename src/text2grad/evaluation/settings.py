"""Settings of `text2grad evaluate` and `text2grad generate`. No torch, so that `--help` answers at once."""

from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from text2grad._checked import Flag, Int, Real
from text2grad.config import settings
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.settings import CriticSettings
from text2grad.models.sampling import SamplingSettings


@settings
class ModelSettings:
    """How a model is loaded and asked."""

    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights."""
    format: Literal["auto", "chat", "plain"] = "auto"
    """chat: prompts go through the model's chat template. plain: as they are. auto: chat where there is a template."""


@settings
class EvaluateSettings(ModelSettings):
    task: str = "jsonl"
    """What to evaluate on: jsonl, a data set (bulletin, defacto, mbpp, …), or your own as package.module:object."""
    data: str = ""
    """File of examples, where the task reads files."""
    held_out: str = ""
    """File of held-out examples, where the task reads files."""
    columns: dict[str, str] = field(default_factory=dict)
    """What our columns are called in the files, nested ones too, as columns.prompt=question."""
    task_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task, as task_options.NAME=value."""
    split: str = ""
    """train, validation or test; empty: the held-out examples (validation) where the task has them, else train."""
    examples: Annotated[Int, Ge(0)] = 0
    """Evaluate the first so many examples; 0: all."""
    critic: str | None = None
    """Who scores the completions: reference, support, grounded, code, openai:MODEL, module:object, the folder of a
    reward model; null: the task's own critic."""
    samples: Annotated[Int, Ge(0)] = 0
    """Also sample so many completions of each example, or `best_of` if that is more; 0: only the greedy ones."""
    best_of: Annotated[Int, Ge(0)] = 0
    """Also pick the best of so many samples of each example; 0: do not."""
    best_of_critic: str | None = None
    """Who picks it; null: the critic that scores. Another one shows what its choice is worth."""
    reflect: Flag = False
    """Also let the model see each greedy completion with its critique, and write once more."""
    metrics: tuple[str, ...] = ()
    """What is measured beside the score and the task's own metrics: rouge, bleu, f1, support, grounded,
    similarity:MODEL, or your own as package.module:object."""
    judge: str | None = None
    """openai:MODEL compares every greedy completion with another text, in both orders; settings: critics.openai."""
    against: str = "reference"
    """What the judge compares with: the reference, or what another model wrote, as a file of evaluate --rollouts."""
    grader: str | None = None
    """openai:MODEL gives every greedy completion a grade from 1 to 10, and those of further turns (`task=mt_bench`)."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of the samples."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How completions are sampled."""
    critics: CriticSettings = field(default_factory=CriticSettings)
    """Settings of the critics."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How quotes are located."""

    COMMON: ClassVar = (
        *("task", "data", "held_out", "columns", "task_options", "split", "examples", "critic", "samples", "best_of"),
        *("best_of_critic", "reflect", "metrics", "judge", "against", "grader", "seed", "device", "dtype", "format"),
        *("sampling.max_new_tokens", "sampling.temperature", "sampling.batch"),
    )


@settings
class GenerateSettings(ModelSettings):
    temperature: Annotated[Real, Ge(0)] = 0.0
    """0: the likeliest token each time. Above 0: sample at this temperature."""
    max_new_tokens: Annotated[Int, Gt(0)] | None = None
    """Tokens per completion at most; null: 256, or as many as the model has room for."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of the samples: the same seed gives the same text."""
    batch: Annotated[Int, Gt(0)] = 16
    """Prompts of a file that are completed at once."""
    columns: dict[str, str] = field(default_factory=dict)
    """What our columns are called in the file, as columns.prompt=question."""
