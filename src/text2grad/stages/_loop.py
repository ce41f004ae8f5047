"""What training stages have in common: the loop around an update. Begun or resumed, logged, watched, saved, finished.

A stage says what an update is (`_step`), what is known before the first one (`_start`), when to stop (`_watch`), and
what its checkpoints hold beside weights and random numbers (`_own_state`, `_restore`). Knows no algorithm.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from text2grad.models.load import load_model
from text2grad.models.parallel import Processes, whole_weights
from text2grad.models.policy import Policy
from text2grad.runs import Closable
from text2grad.stages import _state
from text2grad.stages._display import Display
from text2grad.stages._run import Run, seeded, stoppable
from text2grad.stages._settings import resume_command

Callback = Callable[[Any, Mapping[str, Any]], object]
"""Called with the loop (`Trainer`, `WarmStart`) and an update's metrics, after they are written."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    updates: int
    status: int
    """0: it went all the way. 1: it was stopped by a guard rail or by KL. 130: somebody pressed Ctrl-C."""
    model: Path | None
    """The trained policy, for plain transformers; none while the run is not over."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A run that ends before its last update."""

    reason: str
    status: int = 1


class Adam(Protocol):
    """The settings that the optimizer wants."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def beta2(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


class Loop(Closable):
    """One run of a training stage; `train` closes it.

    A subclass sets `updates`, `policy`, `module`, `optimizer` and `run`."""

    stage: ClassVar[str]
    updates: int
    policy: Policy
    module: nn.Module
    """The policy as it is called in the update: with several processes, wrapped."""
    optimizer: torch.optim.Optimizer
    run: Run

    def __init__(
        self,
        settings: Any,
        folder: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        callbacks: Sequence[Callback] = (),
        show: bool = False,
    ) -> None:
        self.settings, self.callbacks, self.show = settings, callbacks, show
        device = settings.device if settings.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        self.others = Processes(device, settings.log.trackers, str(folder))
        seeded(settings.seed)
        if model is None or tokenizer is None:
            model, tokenizer = load_model(settings.model, device=str(self.others.device))
        self.model, self.tokenizer = model.to(self.others.device), tokenizer
        self.parts: list[Closable] = []
        """What is closed when the run ends."""
        self.done = 0
        """Updates that are finished."""

    def train(self) -> Outcome:
        """From where the folder stands to the end."""
        with ExitStack() as stack:
            stack.enter_context(self)
            asked = stack.enter_context(stoppable(self.run))
            stop = self._resume()
            display = stack.enter_context(self.run.display(self.stage, self.updates, self.done, show=self.show))
            if self.done == 0:
                self._log(*self._start(), display)
            while self.done < self.updates and stop is None:
                metrics, rows = self._step(self.done + 1)
                self.done += 1
                stop = self._watch(metrics, display)
                self._log(metrics, rows, display)
                last = self.done == self.updates or stop is not None
                interrupted = bool(self.others.most(int(asked())))
                if last or interrupted or self.done % self.settings.checkpoint_every == 0:
                    self._save(stop)
                if interrupted and not last:
                    again = resume_command(self.stage, self.run.path, self.others.launched)
                    display.note(f"saved at update {self.done}; go on with: {again}")
                    return Outcome(self.done, 130, None)
            if stop is not None:
                display.note(stop.reason)
            return Outcome(self.done, 0 if stop is None else stop.status, self._finish())

    def close(self) -> None:
        """Let go of the run folder and of what the stage holds; a loop that was made and not trained wants it too."""
        for part in (*self.parts, self.run):
            part.close()

    # ---------------------------------------------------------------------------------------------- of each stage

    def _start(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Metrics and rows of update 0: before anything is learned."""
        return {"update": 0}, []

    def _step(self, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One update: its metrics and rows."""
        raise NotImplementedError

    def _watch(self, metrics: dict[str, Any], display: Display) -> Stop | None:  # noqa: ARG002
        """Why the run should end here, if it should."""
        return None

    def _own_state(self) -> dict[str, Any]:
        """What a checkpoint holds of the stage's own."""
        return {}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """The way back."""

    # ---------------------------------------------------------------------------------------------- of all of them

    def _adamw(self, options: Adam, value_rate: float | None = None) -> torch.optim.AdamW:
        """Over the weights that are trained; to be made after they have been sharded. `peak` is for the schedule."""
        rates: dict[float, list[nn.Parameter]] = {}
        for name, weight in self.policy.trainable().items():
            rate = value_rate if value_rate and name.startswith("value_head.") else options.learning_rate
            rates.setdefault(rate, []).append(weight)
        return torch.optim.AdamW(
            [{"params": weights, "lr": rate, "peak": rate} for rate, weights in rates.items()],
            betas=(0.9, options.beta2),
            weight_decay=options.weight_decay,
        )

    def _set_rate(self, factor: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor

    def _log(self, metrics: dict[str, Any], rows: list[dict[str, Any]], display: Display) -> None:
        self.run.write(metrics, rows)
        display.step(self.done, metrics)
        for callback in self.callbacks:
            callback(self, metrics)

    def _save(self, stop: Stop | None) -> None:
        state = {
            "update": self.done,
            "stopped": None if stop is None else [stop.reason, stop.status],
            **_state.weights_of(self.policy, self.optimizer, self.others),
            **self._own_state(),
            "random": self.others.gathered(_state.random_states()),
        }
        self.run.checkpoint(self.done, state)

    def _resume(self) -> Stop | None:
        """Back to the last checkpoint; gives why the run ended there, if it did."""
        state = self.run.resumed()
        if state is None:
            return None
        _state.restore_weights(self.policy, self.optimizer, state, self.others)
        self.done = state["update"]
        self._restore(state)
        _state.restore_random_states(state["random"][self.others.rank])
        return None if state["stopped"] is None else Stop(*state["stopped"])

    def _finish(self) -> Path:
        weights = whole_weights(self.policy.model) if self.others.sharded else None
        return self.run.finish(lambda path: self.policy.save_pretrained(path, self.tokenizer, weights))
