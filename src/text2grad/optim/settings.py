"""The settings of the tensor room; no torch, so that `--help` can list them at once."""

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad._checked import Decay, Flag, Int, Rate, Real
from text2grad.config import Renamed, settings


@settings
class AdvantageSettings:
    """How token rewards become advantages."""

    estimator: str = "anchored"
    """anchored: half the whole return, compared with the other completions of the prompt, half the span's own reward.
    gae: value head. rloo, grpo: one advantage per completion. span_rloo: return-to-go, compared with the others. local:
    credit stays on the span itself. Or your own as package.module:object."""
    anchor: Annotated[Real, Ge(0), Le(1)] = 0.5
    """Share of the whole return that every token keeps (anchored, gae, span_rloo), so that a critic may judge in
    hindsight. 0: a token is never credited for what was paid before it. 1: as with reward=scalar."""
    gamma: Annotated[Real, Ge(0), Le(1)] = 1.0
    """Discount of later rewards (anchored, gae, span_rloo). A completion is one short episode: 1."""
    lam: Annotated[Real, Ge(0), Le(1)] = 0.8
    """anchored: a span's reward reaches back by this factor per token.
    gae: λ. 1 trusts the rewards, 0 the value head. With reward=scalar set it to 1: less hurts a reward at the end."""
    whiten: Flag = True
    """Scale advantages to unit size over the batch. gae also subtracts the mean; anchored and grpo always have
    their own scale. If the spread is below 1e-6, or below 1e-6 of the returns, all advantages are 0."""


@settings
class KLSettings:
    """The penalty for leaving the reference policy."""

    RENAMED: ClassVar = {
        "adaptive": Renamed(None, refused={True: "kl.coefficient is fixed, and kl.stop ends a run that goes too far"}),
        "target": None,
        "horizon": None,
    }
    coefficient: Annotated[Real, Ge(0)] = 0.05
    """Each token's reward loses this times log π(token) − log π_reference(token). 0: the reference is not run, unless
    `stop` or `measure` asks for it."""
    stop: Annotated[Real, Ge(0)] = 0.0
    """Stop the run when the KL per token between the sampling policy and the reference is above this. That update is
    not applied, so the saved model is the measured one. 0: never."""
    measure: Flag = False
    """Run the reference at evaluated updates only to log `kl/reference`. What is learned stays the same, bit for bit.
    Without LoRA it takes a copy of the weights."""


@settings
class OptimizerSettings:
    """AdamW, and its learning rate over the updates of a run."""

    learning_rate: Rate = 1e-4
    """Peak learning rate of AdamW. 1e-4 suits LoRA; full fine-tuning of pretrained models wants about 1e-6 … 1e-5."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The learning rate after the warm-up, over the updates of the run."""
    warmup: Annotated[Int, Ge(0)] = 0
    """Updates over which the learning rate rises from 0 to its peak."""
    weight_decay: Decay = 0.0
    """Of AdamW."""
    beta2: Annotated[Real, Gt(0), Lt(1)] = 0.999
    """Of AdamW."""
    max_grad_norm: Annotated[Real, Gt(0)] = 1.0
    """Gradients are clipped to this norm."""


@settings
class UpdateSettings(OptimizerSettings):
    """How a batch of rollouts changes the weights."""

    loss: str = "ppo"
    """ppo: the clipped objective. reinforce: importance-weighted, without clipping. Or your own as
    package.module:object."""
    epochs: Annotated[Int, Gt(0)] = 2
    """PPO epochs per batch."""
    minibatches: Annotated[Int, Gt(0)] = 2
    """Optimizer steps per epoch: the batch is cut into this many parts."""
    micro_batch: Annotated[Int, Gt(0)] | Literal["auto"] = "auto"
    """Completions in memory at once; gradients are accumulated, so the result stays the same. auto: 16 on a CPU; on a
    GPU measured in the first update, written down, and halved when memory runs out."""
    clip: Annotated[Real, Gt(0), Lt(1)] = 0.2
    """Ratios to the sampling policy are clipped to 1 − clip … 1 + clip."""
    clip_high: Annotated[Real, Gt(0)] | None = None
    """Upper bound, if it should differ: 1 + clip_high."""
    value_coefficient: Annotated[Real, Ge(0)] = 0.1
    """Weight of the value loss."""
    value_clip: Annotated[Real, Ge(0)] = 0.2
    """Clip range of the value loss around the value at sampling; 0: no clipping."""
    entropy: Annotated[Real, Ge(0)] = 0.0
    """Entropy bonus."""
    value_learning_rate: Rate | None = None
    """Of the value head, which starts at zero; null: the same as learning_rate."""
    stop_kl: Annotated[Real, Ge(0)] = 0.0
    """Skip the remaining minibatches of an update when its KL per token to the sampling policy is above this. 0:
    never."""
