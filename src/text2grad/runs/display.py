"""Progress of a run on the terminal: a bar, the main metrics, the time left. Without a terminal: plain lines."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from text2grad.runs.folder import Closable

SHOWN = {
    "loss/mean": "loss",
    "loss/joint": "loss",
    "score/mean": "score",
    "kl/reference": "KL",
    "length/mean": "length",
    "held_out/score": "held-out",
    "held_out/loss": "held-out loss",
    "held_out/watched": "held-out loss",
    "held_out/poor_ap": "poor AP",
}
"""The metrics that are shown, in this order, under short names."""


class Display(Closable):
    """One line that changes; `note` writes a line above it that stays."""

    def __init__(self, what: str, total: int, done: int, *, show: bool, speaks: bool = True) -> None:
        """`show`: draw the bar. `speaks`: print notes, with or without a bar."""
        self._speaks = speaks
        self._console = Console(stderr=True)
        self._lines = show and not sys.stderr.isatty()
        self._what, self._total, self._every = what, total, max(1, total // 20)
        self._latest: dict[str, float] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=max(6, min(40, self._console.width - 66))),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            # Last, so that a narrow terminal cuts off numbers and not the time.
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            console=self._console,
            disable=not show or self._lines,
            expand=True,
        )
        self._task = self._progress.add_task(what, total=total, completed=done, numbers="")
        self._progress.start()

    def step(self, done: int, metrics: Mapping[str, Any]) -> None:
        self._latest |= {key: float(metrics[key]) for key in SHOWN if key in metrics}
        numbers = "  ".join(f"{name} {self._latest[key]:.3g}" for key, name in SHOWN.items() if key in self._latest)
        self._progress.update(self._task, completed=done, numbers=numbers)
        if self._lines and (done % self._every == 0 or done == self._total):
            left = self._progress.tasks[0].time_remaining
            time_left = f"  {timedelta(seconds=int(left))} left" if left and done < self._total else ""
            self.note(f"{self._what} {done}/{self._total}{time_left}  {numbers}".rstrip())

    def note(self, words: str) -> None:
        """Printed as it is: no markup, and no line breaks, so that a command in it can be copied."""
        if self._speaks:
            self._console.print(words, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()
