"""The penalty per token for leaving the reference policy."""

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
