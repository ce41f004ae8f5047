"""What training stages have in common: the loop around an update. Begun or resumed, logged, watched, saved, finished.

A stage says what an update is (`_step`), what is known before the first one (`_start`), when to stop (`_watch`), and
what its checkpoints hold beside weights and random numbers (`_own_state`, `_restore`). Knows no algorithm.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from text2grad.commands.parsing import resume_command
from text2grad.errors import UsageError
from text2grad.models.load import fingerprint, load_model
from text2grad.models.parallel import Processes, whole_weights
from text2grad.runs import Closable
from text2grad.runs.display import Display
from text2grad.training import _state
from text2grad.training._run import Run, memory_named, seeded, stoppable
from text2grad.training._setup import FREE, device_named

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
    interrupted: bool = False
    """Somebody pressed Ctrl-C, be it so late that the run was over anyway: nothing else should be begun."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A run that ends before its last update."""

    reason: str
    status: int = 1


class Loop(Closable, ABC):
    """One run of a training stage; `train` closes it.

    A subclass prepares what it needs for `_build`, then calls this constructor."""

    stage: ClassVar[str]
    updates: int
    policy: Any
    """`Policy` or `RewardModel`."""
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
        data: Mapping[str, str] | None = None,
        callbacks: Sequence[Callback] = (),
        show: bool = False,
        by_names: bool = True,
        again: str = "",
    ) -> None:
        """`data`: digests of what may not change under a run. `by_names`: the settings are all it takes to go on.
        `again`: what to type for that, where a run is part of something larger."""
        if (model is None) != (tokenizer is None):
            raise UsageError("a model and its tokenizer go together: give both, or neither and the name of one")
        self.settings, self.callbacks, self.show = settings, callbacks, show
        self._by_names, self._again = by_names and model is None, again
        self._trained = False
        self.done = 0
        """Updates that are finished."""
        self.ended: Stop | None = None
        """Why the run was ended before its last update, if it was."""
        self.others = Processes(device_named(settings.device), settings.log.trackers, str(folder))
        self.run = Run(folder, settings, self.others, data=data or {}, free=FREE)
        try:
            seeded(settings.seed)
            if model is None:
                model, tokenizer = load_model(settings.model, device=str(self.others.device))
            self.tokenizer = tokenizer
            self.run.began_from(fingerprint(model))
            self._build(model.to(self.others.device))
        except BaseException:
            self.run.abandon()
            self.close()
            raise

    def train(self) -> Outcome:
        """From where the folder stands to the end; once."""
        if self._trained:
            raise UsageError(
                f"this {type(self).__name__} has been trained and has let go of its folder; to go on, make another one "
                f"with the same folder and a freshly loaded model"
            )
        self._trained = True
        with self, stoppable(self.run) as asked:
            try:
                return replace(self._train(asked), interrupted=asked())
            except BaseException:
                self.run.abandon()
                raise

    def close(self) -> None:
        """Let go of the run folder; `train` does so by itself."""
        self.run.close()

    # ---------------------------------------------------------------------------------------------- of each stage

    @abstractmethod
    def _build(self, model: Any) -> None:
        """Set `updates`, `policy`, `module` and `optimizer`."""

    @abstractmethod
    def _start(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """Metrics and rows of update 0: before anything is learned; none if there is nothing to say."""

    @abstractmethod
    def _step(self, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One update: its metrics and rows."""

    @abstractmethod
    def _watch(self, metrics: dict[str, Any], rows: list[dict[str, Any]], display: Display) -> Stop | None:
        """Why the run should end here, if it should; may add to metrics and rows."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """What a checkpoint holds of the stage's own."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """The way back."""

    def _remarks(self) -> Iterable[str]:
        """What a person should hear of the data before the first update."""
        return ()

    # ---------------------------------------------------------------------------------------------- of all of them

    def _train(self, asked: Callable[[], bool]) -> Outcome:
        self._resume()
        with self.run.display(self.stage, self.updates, self.done, show=self.show) as display:
            if self.ended is not None or self.done == self.updates:
                return self._end(display, again=True)
            self.run.track(self.done)
            for words in self._remarks() if self.done == 0 else ():
                display.note(words)
            if self.done == 0 and (begin := self._start()) is not None:
                self._log(*begin, display)
            while self.ended is None and self.done < self.updates:
                metrics, rows = self._step(self.done + 1)
                self.done += 1
                self.ended = self._watch(metrics, rows, display)
                self._log(metrics, rows, display)
                last = self.done == self.updates or self.ended is not None
                interrupted = bool(self.others.most(int(asked())))
                if last or interrupted or self.done % self.settings.checkpoint_every == 0:
                    self._save()
                if interrupted and not last:
                    display.note(f"saved at update {self.done} of {self.updates}; go on with: {self._to_go_on()}")
                    return Outcome(self.done, 130, None)
            return self._end(display)

    def _to_go_on(self) -> str:
        by_names = resume_command(self.stage, self.run.path, self.others.launched) if self._by_names else ""
        return self._again or by_names or "the same script"

    def _set_rate(self, factor: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor

    def _log(self, metrics: dict[str, Any], rows: list[dict[str, Any]], display: Display) -> None:
        self.run.write(metrics, rows)
        display.step(self.done, metrics)
        for callback in self.callbacks:
            callback(self, metrics)

    def _save(self) -> None:
        state = {
            "update": self.done,
            "ended": None if self.ended is None else [self.ended.reason, self.ended.status],
            **_state.weights_of(self.policy, self.optimizer, self.others),
            **self._own_state(),
            "random": self.others.gathered(_state.random_states()),
        }
        self.run.checkpoint(self.done, state)

    def _resume(self) -> None:
        """Back to the last checkpoint."""
        if (state := self.run.resumed()) is None:
            return
        _state.restore_weights(self.policy, self.optimizer, state, self.others)
        self.done = state["update"]
        self.ended = None if state["ended"] is None else Stop(*state["ended"])
        self._restore(state)
        _state.restore_random_states(state["random"][self.others.rank])

    def _end(self, display: Display, *, again: bool = False) -> Outcome:
        """The run is over: its model is written, if it is not there yet."""
        with memory_named("saving the model", "nothing: close other programs"):
            weights = whole_weights(self.policy.backbone.model) if self.others.sharded else None
            path = self.run.finish(lambda place: self.policy.save_pretrained(place, self.tokenizer, weights))
        why = "" if self.ended is None else f": {self.ended.reason}"
        over = f"was over already, after {self.done} updates" if again else f"ended after {self.done} updates"
        if again or self.ended is not None:
            display.note(f"the run {over}{why}; its model is in {path}")
        return Outcome(self.done, 0 if self.ended is None else self.ended.status, path)
