"""The settings of the studio; no torch."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad._checked import Int, Rate, Real
from text2grad.config import settings
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.settings import CriticSettings, Scoring
from text2grad.models.sampling import SamplingSettings
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.settings import AdvantageSettings

EMBEDDED = "embedded"
OF_TASK = "task"
"""As a critic: the task's own."""


@settings
class LearnSettings:
    """What one *Learn* does."""

    updates: Annotated[Int, Gt(0), Le(1000)] = 8
    """Updates. What people have written is learned from in turn: what is new first, then the latest, up to `critiques`
    per update."""
    critiques: Annotated[Int, Gt(0)] = 32
    """Critiques per update at most, so that a Learn takes as long after a month as on the first day."""
    steps: Annotated[Int, Gt(0)] = 2
    """Optimizer steps per update."""
    learning_rate: Rate = 5e-5
    """Of AdamW. 5e-5 suits the embedded model and LoRA; full fine-tuning of pretrained models wants less."""
    clip: Annotated[Real, Gt(0), Lt(1)] = 0.8
    """A blamed token is pushed until its probability is 1 − clip of what it was when it was sampled, and no further."""
    clip_high: Annotated[Real, Gt(0)] = 1.0
    """A praised token is pushed until its probability is 1 + clip_high times what it was when it was sampled."""
    sure: Annotated[Real, Gt(0), Lt(1)] = 0.5
    """A word that a correction put in counts until the model gives it this probability."""
    kl: Annotated[Real, Ge(0)] = 0.5
    """Weight of the penalty for leaving the start: on every token, in proportion to how far its log-prob has moved."""
    kept: Annotated[Int, Ge(0)] = 24
    """Completions that nobody criticised, of other prompts, on which that penalty is taken as well."""
    prompts: Annotated[Int, Gt(0)] = 8
    """With a critic: prompts per update that are sampled and judged."""
    completions: Annotated[Int, Gt(1)] = 4
    """With a critic: completions of each of them, which are compared with each other."""
    compared: Annotated[Int, Gt(0)] = 6
    """Prompts that are sampled again afterwards, to be read side by side."""
    held_out: Annotated[Int, Ge(0)] = 48
    """Held-out prompts that are completed greedily and scored, before and after."""


@settings
class StudioSettings:
    """Settings of `text2grad studio`."""

    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns", "critic", "prompts", "completions", "device"),
        *("seed", "learn.updates", "learn.learning_rate", "learn.kl", "policy.lora.rank", "sampling.max_new_tokens"),
    )
    model: str = EMBEDDED
    """`embedded`: the demo's small model after its supervised start. Or any name that `text2grad train` takes; of a run
    folder, the model that it has trained."""
    task: str = "bulletin"
    """Where prompts come from: bulletin (the demo's), jsonl with data=FILE, or any task that `train` takes."""
    data: str = ""
    """File of prompts, where the task reads one."""
    held_out: str = ""
    """File of prompts that are only measured, where the task reads one."""
    columns: dict[str, str] = field(default_factory=dict)
    """What our columns are called in the files."""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the task's own."""
    critic: str | None = None
    """A critic that judges sampled completions: Learn then adds RL with it to what people wrote. task: the task's own
    critic. null: people alone. Held-out prompts are scored by it, or else by the task's own critic."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of everything that is random."""
    format: Literal["auto", "chat", "plain"] = "auto"
    """chat: prompts go through the model's chat template. plain: as they are. auto: chat where there is a template."""
    prompts: Annotated[Int, Ge(0)] = 200
    """Prompts of the task that go into the queue; people can add their own."""
    completions: Annotated[Int, Ge(2), Le(4)] = 3
    """Completions that are sampled of each prompt."""
    ahead: Annotated[Int, Ge(0)] = 200
    """Prompts that are sampled ahead while nothing else is to be done; that also finds out which are least certain."""
    feedback: Annotated[Int, Gt(0)] = 20_000
    """Longest critique, in characters."""
    upload: Annotated[Int, Gt(0)] = 20_000_000
    """Largest file that can be uploaded, in bytes."""
    upload_rows: Annotated[Int, Gt(0)] = 20_000
    """Prompts that can be uploaded at once."""
    learn: LearnSettings = field(default_factory=LearnSettings)
    """What one *Learn* does."""
    policy: PolicySettings = field(default_factory=lambda: PolicySettings(lora=LoraSettings(rank=16)))
    """How the policy is held and computed. The embedded model trains all its weights."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How completions are drawn."""
    advantage: AdvantageSettings = field(default_factory=AdvantageSettings)
    """With a critic: how rewards become advantages."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How the words of a critique are located."""
    scoring: Scoring = field(default_factory=Scoring)
    """With a critic: how spans become token rewards."""
    critics: CriticSettings = field(default_factory=CriticSettings)
    """Settings of the critics."""
