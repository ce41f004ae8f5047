"""The held-out loss of a run that learns from given items: the lowest so far, and when to stop."""

import math
from collections.abc import Mapping
from typing import Any

from text2grad.errors import RunError
from text2grad.runs.run import Run

MOST_SKIPS = 10
"""Skipped optimizer steps in a row after which nothing will come of a run."""


class LossWatch:
    """Watches one metric of a run. Its state is part of a checkpoint."""

    def __init__(self, key: str, patience: int) -> None:
        """`key`: the metric that is the held-out loss. `patience`: evaluations without a new lowest before it stops."""
        self.key, self.patience = key, patience
        self.lowest, self.above, self.skips = math.inf, 0, 0

    def start(self, metrics: Mapping[str, Any]) -> None:
        """Before the first update."""
        if not _finite(metrics.get(self.key, 0.0)):
            raise RunError(
                "the held-out loss is not a number before the first update: the model is broken, or its data"
            )
        self.see(metrics)

    def see(self, metrics: Mapping[str, Any]) -> bool:
        """Whether the loss is lower than ever before."""
        if self.key not in metrics:
            return False
        # A loss that is not a number is not low, either.
        self.above = 0 if metrics[self.key] <= self.lowest else self.above + 1
        lower = bool(metrics[self.key] < self.lowest)
        self.lowest = min(self.lowest, metrics[self.key])
        return lower

    def after(self, metrics: dict[str, Any], run: Run, learning_rate: float, kept: int = 0) -> bool:
        """After an update: whether the loss is lower than ever before. Stops a run that is out of patience, or that has
        diverged: an error, unless the weights of the update `kept` are still there. Takes numbers that are not finite
        out of the metrics."""
        if (problem := self._diverged(metrics, run)) is not None:
            rate = f"ower update.learning_rate={learning_rate:g}"
            if not kept:
                raise RunError(f"{problem}. L{rate}, and start in another folder")
            run.stop(f"{problem}. The model is that of update {kept}; l{rate}")
            return False
        lower = self.see(metrics)
        if self.patience and self.above >= self.patience:
            loss = metrics[self.key]
            reason = f"the held-out loss is {loss:.4g}, and was {self.lowest:.4g} (patience={self.patience})"
            run.stop(reason, status=0)
        return lower

    def _diverged(self, metrics: dict[str, Any], run: Run) -> str | None:
        """Why nothing more will come of this run, if so."""
        lost = not _finite(metrics.get(self.key, 0.0))
        for name in [name for name, value in metrics.items() if not _finite(value)]:
            del metrics[name]
        self.skips = self.skips + 1 if metrics.get("update/skipped") else 0
        if self.skips == 1:
            run.note(
                f"the step of update {metrics['update']} was skipped, because its gradients were not finite; after "
                f"{MOST_SKIPS} in a row the run ends"
            )
        if lost or self.skips == MOST_SKIPS:
            what = "the loss is not a number" if lost else f"{MOST_SKIPS} steps in a row were skipped"
            return f"update {metrics['update']}: {what}; the weights have run away"
        return None

    def state(self) -> dict[str, Any]:
        return {"lowest": self.lowest, "above": self.above, "skips": self.skips}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.lowest, self.above, self.skips = state["lowest"], state["above"], state["skips"]


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
