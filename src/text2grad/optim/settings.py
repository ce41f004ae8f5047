"""The settings of the tensor room; no torch, so that `--help` can list them at once."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad._checked import Flag, Int, Real
from text2grad.config import settings


@settings
class CreditSettings:
    """How token rewards become advantages."""

    kind: Literal["gae", "group", "local"] = "gae"
    """gae: value head. group: no value head, several completions per prompt. local: credit stays on the span itself."""
    gamma: Annotated[Real, Ge(0), Le(1)] = 1.0
    """Discount of later rewards (gae, group). A completion is one short episode: 1."""
    lam: Annotated[Real, Ge(0), Le(1)] = 0.95
    """λ of GAE: 1 trusts the rewards, 0 the value head. An end-only (scalar) reward is handicapped below 1."""
    whiten: Flag = True
    """Scale advantages to unit size over the batch (with gae the mean is taken off as well). A spread below 1e-6,
    or that share of the returns, is taken for rounding: all 0 then."""


@settings
class KLSettings:
    """The penalty for leaving the reference policy."""

    coefficient: Annotated[Real, Ge(0)] = 0.05
    """Each token's reward loses this times log π(token) − log π_reference(token). 0: no reference is needed or run,
    unless `stop` or `measure` asks for one."""
    adaptive: Flag = False
    """Let the coefficient follow the measured KL: up where it is over the target, down where it is under."""
    target: Annotated[Real, Gt(0)] = 0.05
    """KL per token that the adaptive coefficient aims at."""
    horizon: Annotated[Int, Gt(0)] = 20
    """Updates within which an adaptive coefficient can change by a factor of about e^0.2."""
    stop: Annotated[Real, Ge(0)] = 0.0
    """Stop the run when the policy that sampled is further than this from the reference, in KL per token: that update
    is not applied, so the model that is saved is the one that was measured. 0: never."""
    measure: Flag = False
    """Where neither of them needs the reference, run it at the updates that are evaluated, only to look: `kl/reference`
    is then known, and what is learned is the same, bit for bit. Without LoRA it takes a copy of the weights."""


@settings
class UpdateSettings:
    """How a batch of rollouts changes the weights."""

    epochs: Annotated[Int, Gt(0)] = 2
    """Times that each batch is gone through."""
    minibatches: Annotated[Int, Gt(0)] = 2
    """Optimizer steps an epoch: the batch is cut into so many parts."""
    micro_batch: Annotated[Int, Gt(0)] = 16
    """Completions that are in memory at once; gradients are accumulated over them. Lower it when memory runs out: the
    result stays the same."""
    clip: Annotated[Real, Gt(0), Lt(1)] = 0.2
    """Ratios to the sampling policy count within 1 − clip … 1 + clip."""
    clip_high: Annotated[Real, Gt(0)] | None = None
    """Another bound above, if wanted."""
    value_coefficient: Annotated[Real, Ge(0)] = 0.1
    """Weight of the value loss."""
    value_clip: Annotated[Real, Ge(0)] = 0.2
    """Values move at most so far from those at sampling before the loss stops rewarding it; 0: no limit."""
    entropy: Annotated[Real, Ge(0)] = 0.0
    """Bonus for entropy."""
    learning_rate: Annotated[Real, Gt(0)] = 1e-4
    """Peak learning rate of AdamW. 1e-4 suits LoRA; full fine-tuning of pretrained models wants about 1e-6 … 1e-5."""
    value_learning_rate: Annotated[Real, Gt(0)] | None = None
    """Of the value head, which starts from nothing; none: the same."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after the warm-up, over the updates of the run."""
    warmup: Annotated[Int, Ge(0)] = 0
    """Updates over which the learning rate rises from 0 to its peak."""
    weight_decay: Annotated[Real, Ge(0)] = 0.0
    """Of AdamW."""
    beta2: Annotated[Real, Gt(0), Lt(1)] = 0.999
    """Of AdamW: how slowly the scale of the gradients is forgotten."""
    max_grad_norm: Annotated[Real, Gt(0)] = 1.0
    """Gradients longer than this are shortened to it."""
    stop_kl: Annotated[Real, Ge(0)] = 0.0
    """Leave the remaining minibatches of an update when its KL to the sampling policy, per token, is above this.
    0: never."""
