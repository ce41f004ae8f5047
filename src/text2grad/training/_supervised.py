"""What the loops that learn from given items share: so many of them an update, in an order that the seed gives; the
held-out loss watched, and the run stopped when it rises.

A stage says how items change the weights (`_learn`), what is measured on those held out (`_evaluate`), and which of its
metrics is the loss to watch.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from text2grad.errors import RunError
from text2grad.optim.update import learning_rate_factor
from text2grad.runs.display import Display
from text2grad.tasks.examples import Stream
from text2grad.training._loop import Loop, Stop
from text2grad.training._run import memory_named

_MOST_SKIPS = 10
"""Skipped steps in a row after which nothing will come of a run."""


class Supervised(Loop):
    """A run that learns from items, the same for supervised starts and reward models."""

    watched: ClassVar[str]
    """The metric that is the held-out loss."""
    stream: Stream[Any]
    lowest: float = math.inf
    """The lowest held-out loss so far."""
    above: int = 0
    """How many looks since have not found it as low."""
    skips: int = 0
    """Steps in a row that were skipped, because their gradients were not finite."""

    @abstractmethod
    def _learn(self, items: Sequence[Any]) -> dict[str, float]:
        """One step on these; gives the parts of the loss."""

    @abstractmethod
    def _evaluate(self) -> dict[str, float]:
        """What is measured on the held-out items; empty if there are none."""

    @abstractmethod
    def _counts(self) -> dict[str, int]:
        """What the data came to; logged before the first update."""

    def _start(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        metrics = {"update": 0, **self._counts(), **self._evaluate()}
        if not _finite(metrics.get(self.watched, 0.0)):
            raise RunError("the held-out loss is no number before the first update: the model is broken, or its data")
        self._see(metrics)
        return metrics, []

    def _step(self, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        began, options = time.perf_counter(), self.settings.update
        factor = learning_rate_factor(number, self.updates, options)
        self._set_rate(factor)
        first, size = (number - 1) * options.batch, self.others.processes
        mine = [self.stream.at(first + place) for place in range(self.others.rank, options.batch, size)]
        with memory_named("the update", "update.micro_batch, or set policy.gradient_checkpointing=true"):
            self.module.train()
            found = self._learn(mine)
            self.module.eval()
        metrics = {"update": number, **found, "update/learning_rate": options.learning_rate * factor}
        metrics["time/update"] = time.perf_counter() - began
        if number % self.settings.evaluate_every == 0 or number == self.updates:
            metrics |= self._evaluate()
        return metrics, []

    def _see(self, metrics: Mapping[str, Any]) -> None:
        if self.watched in metrics:
            # A loss that is no number is not low, either.
            self.above = 0 if metrics[self.watched] <= self.lowest else self.above + 1
            self.lowest = min(self.lowest, metrics[self.watched])

    def _watch(self, metrics: dict[str, Any], rows: list[dict[str, Any]], display: Display) -> Stop | None:  # noqa: ARG002
        lost = not _finite(metrics.get(self.watched, 0.0))
        for name in [name for name, value in metrics.items() if not _finite(value)]:
            del metrics[name]
        self.skips = self.skips + 1 if metrics.get("update/skipped") else 0
        if self.skips == 1:
            display.note(
                f"the step of update {metrics['update']} was skipped, because its gradients were not finite; after "
                f"{_MOST_SKIPS} in a row the run ends"
            )
        if lost or self.skips == _MOST_SKIPS:
            what = "the loss is no number" if lost else f"{_MOST_SKIPS} steps in a row were skipped"
            return self._ran_away(f"update {metrics['update']}: {what}; the weights have run away")
        self._see(metrics)
        if self.settings.patience and self.above >= self.settings.patience:
            return Stop(
                f"the held-out loss is {metrics[self.watched]:.4g}, and was {self.lowest:.4g} (patience="
                f"{self.settings.patience})",
                status=0,
            )
        return None

    def _ran_away(self, what: str) -> Stop:
        """The end of a run whose weights are of no use; a stage that has kept others may stop instead."""
        rate = self.settings.update.learning_rate
        raise RunError(f"{what}. Lower update.learning_rate={rate:g}, and begin anew in another folder")

    def _own_state(self) -> dict[str, Any]:
        return {"lowest": self.lowest, "above": self.above, "skips": self.skips}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.lowest, self.above, self.skips = state["lowest"], state["above"], state.get("skips", 0)


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
