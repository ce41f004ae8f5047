"""The penalty per token for leaving the reference policy, with a fixed or an adaptive coefficient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from text2grad.optim.settings import KLSettings
from text2grad.types import MetricInfo

METRICS = {
    "kl/reference": MetricInfo(
        "KL to the reference",
        "Mean KL per token between the sampling policy and its start. Estimated from the sampled tokens, so single "
        "updates can spike.",
    ),
    "kl/coefficient": MetricInfo("KL coefficient", "Weight of the KL penalty."),
}

RESOLUTION = {"float32": 1e-4, "bfloat16": 1e-2}
"""Two log-probs of one token that are nearer than this are the same number computed twice, by precision. A whole policy
so near to its reference has a KL of less than half its square a token."""


def needs_reference(options: KLSettings) -> bool:
    """Whether what is learned, or when it ends, depends on the reference: it is then run at every update."""
    return bool(options.coefficient or options.stop)


def kl_penalty(
    logprobs_BT: Tensor,
    reference_BT: Tensor | None,
    coefficient: float,
    resolution: float = RESOLUTION["float32"],
) -> Tensor | float:
    """β (log π − log π_reference): the single-sample estimate of the KL, per token. Differences that are rounding are
    0: where rewards hold nothing else, whitening would turn them into a signal.

    >>> kl_penalty(torch.tensor([[-1.0, -3.00001]]), torch.tensor([[-1.5, -3.0]]), 0.5).tolist()
    [[0.25, 0.0]]
    """
    if reference_BT is None or coefficient == 0:
        return 0.0
    apart_BT = logprobs_BT - reference_BT
    # Written so that nan stays nan.
    return coefficient * torch.where(apart_BT.abs() <= resolution, 0.0, apart_BT)


@dataclass(slots=True)
class Coefficient:
    """β over time; part of a checkpoint.

    >>> beta = Coefficient(KLSettings(coefficient=0.1, adaptive=True, target=0.05, horizon=10))
    >>> round(beta.follow(0.2), 4)  # over the target: the error is clipped at 0.2, so β grows by 0.2 / 10
    0.102
    >>> Coefficient(KLSettings(coefficient=0.1)).follow(9.0)
    0.1
    """

    options: KLSettings
    value: float = -1.0

    def __post_init__(self) -> None:
        if self.value < 0:
            self.value = self.options.coefficient

    def state(self) -> float:
        return self.value

    def restore(self, state: float) -> None:
        self.value = state

    def follow(self, measured: float | None) -> float:
        """One update's KL per token, if it was measured → the next coefficient."""
        if self.options.adaptive and measured is not None:
            error = min(max(measured / self.options.target - 1, -0.2), 0.2)
            self.value *= 1 + error / self.options.horizon
        return self.value
