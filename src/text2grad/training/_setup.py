"""What a training run is checked for before anything heavy is loaded, and the optimizer that it begins with."""

from typing import Any, Protocol

import torch
from torch import nn

from text2grad.errors import ConfigError
from text2grad.training.settings import TrainSettings

FREE = (
    "update.micro_batch",
    "sampling.batch",
    "sampling.prefill_tokens",
    "policy.gradient_checkpointing",
    "policy.compile",
    "checkpoint_every",
    "keep_checkpoints",
)
"""Settings that may change when a run goes on: how much is in memory and on the disk at once, not what is computed.
Sums are then taken in another order, so the last bits of the weights may differ."""


def check(settings: TrainSettings) -> None:
    """Settings that do not go together."""
    if settings.credit.kind == "group" and settings.completions < 2:
        raise ConfigError(
            f"credit.kind=group compares the completions of a prompt with each other, so completions should be at "
            f"least 2, got {settings.completions}"
        )
    if settings.reward == "scalar" and settings.credit.kind == "local":
        raise ConfigError(
            "reward=scalar puts everything on the last token, and credit.kind=local keeps it there; choose gae or group"
        )
    if settings.kl.adaptive and not settings.kl.coefficient:
        raise ConfigError(
            "kl.adaptive=true multiplies the coefficient, and kl.coefficient=0 stays 0; begin with one above 0"
        )


def device_named(name: str) -> str:
    """The device to use; one that is not there is refused before a model is loaded."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros((), device=name)
    except (RuntimeError, AssertionError) as problem:
        first = (str(problem).splitlines() or [""])[0][:120]
        raise ConfigError(
            f"device={name}: cannot be used here ({first}); `text2grad env` lists the devices, device=cpu always works"
        ) from None
    return name


class Adam(Protocol):
    """The settings that the optimizer wants."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def beta2(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def make_optimizer(policy: nn.Module, options: Adam, head_rate: float | None = None) -> torch.optim.AdamW:
    """AdamW, with a rate of its own for the head beside the language head if one is set. `peak` is what the schedule
    multiplies. Call it after weights have been shared out over processes: they are others then."""
    groups: dict[float, list[Any]] = {}
    for name, weight in policy.named_parameters():
        if not weight.requires_grad:
            continue
        own = head_rate if name.startswith(("value_head.", "span_head.")) else None
        groups.setdefault(own or options.learning_rate, []).append(weight)
    return torch.optim.AdamW(
        [{"params": weights, "lr": rate, "peak": rate} for rate, weights in groups.items()],
        betas=(0.9, options.beta2),
        weight_decay=options.weight_decay,
        fused=next(policy.parameters()).device.type == "cuda" or None,
    )
