"""Runs → arms: what is compared. Runs whose settings differ only in the seed are one arm, with a spread.

Enters: `LoggedRun`s. Leaves: `Arm`s, and their numbers over updates as `Point`s. Knows nothing of how they are drawn or
put into words.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from text2grad.report.folders import LoggedRun

_PLACES = {"out", "run", "name", "folder"}
"""Top-level settings that say where a run is written: they always differ, and mean nothing."""
OWN = re.compile(r"[\w.]+:\w+")
"""A critic as package.module:object."""


class Point(NamedTuple):
    """One update of an arm: the mean of its runs, and the lowest and highest of them."""

    update: int
    mean: float
    low: float
    high: float


class Error(NamedTuple):
    """How sure a mean is."""

    prompts: int
    size: float
    """Its standard error: of the prompts, and over all runs of the arm."""


@dataclass(frozen=True)
class Arm:
    name: str
    runs: tuple[LoggedRun, ...]
    differs: Mapping[str, Any]
    """The settings that set it apart from the other arms."""

    def series(self, key: str) -> list[Point]:
        """Over the updates that all runs with this key have: a seed that stopped early cannot bend the mean."""
        columns = [{update: row[key] for update, row in run.metrics.items() if key in row} for run in self.runs]
        columns = [column for column in columns if column]
        shared = sorted(set.intersection(*map(set, columns))) if columns else []
        values = {update: [column[update] for column in columns] for update in shared}
        return [Point(update, sum(some) / len(some), min(some), max(some)) for update, some in values.items()]

    def error(self, key: str, update: int) -> "Error | None":
        """The standard error of a held-out score at an update, where the runs logged what it takes."""
        rows = [run.metrics.get(update, {}) for run in self.runs]
        pairs = [
            (row["held_out/std"], row["held_out/n"]) for row in rows if {"held_out/std", "held_out/n"} <= row.keys()
        ]
        if key != "held_out/score" or len(pairs) < len(rows) or not all(n > 0 for _, n in pairs):
            return None
        return Error(int(pairs[0][1]), sum(std**2 / n for std, n in pairs) ** 0.5 / len(pairs))

    @property
    def judged_by(self) -> str:
        """Who gave the held-out scores, by the settings."""
        config = self.runs[0].config
        named, task = str(config.get("evaluation.critic") or config.get("critic") or ""), config.get("task")
        if OWN.fullmatch(named) and not named.startswith("openai:"):
            return named.rpartition(":")[2]
        return named or ("reference" if task in (None, "jsonl") else f"of the task {task}")

    @property
    def repeats(self) -> str:
        """As "3 seeds", or "2 runs" where the seeds are the same or unknown."""
        seeds = {str(run.seed) for run in self.runs if run.seed is not None}
        return f"{len(self.runs)} {'seeds' if len(seeds) == len(self.runs) else 'runs'}"

    @property
    def updates(self) -> int:
        return min(run.last_update for run in self.runs)


def arms_of(runs: Sequence[LoggedRun]) -> list[Arm]:
    """In the order in which they were named."""
    grouped: dict[str, list[LoggedRun]] = {}
    for run in runs:
        grouped.setdefault(_signature(run), []).append(run)
    groups = list(grouped.values())
    telling = _differences([group[0] for group in groups])
    names = [group[0].name if len(group) == 1 else _without_seed(group[0].name) for group in groups]
    arms = []
    for group, name in zip(groups, names, strict=True):
        differs = {key: group[0].config.get(key) for key in telling}
        if names.count(name) > 1:
            apart = ", ".join(f"{key}={value}" for key, value in differs.items()) or group[0].name
            name = f"{name} ({apart})"
        arms.append(Arm(name, tuple(group), differs))
    return arms


def _signature(run: LoggedRun) -> str:
    if not run.config:
        return f"name {_without_seed(run.name)}"
    return repr(sorted((key, str(value)) for key, value in run.config.items() if _tells(key)))


def _tells(key: str) -> bool:
    return key.rpartition(".")[2] != "seed" and key not in _PLACES


def _differences(runs: Sequence[LoggedRun]) -> list[str]:
    keys = dict.fromkeys(key for run in runs for key in run.config if _tells(key))
    return [key for key in keys if len({str(run.config.get(key)) for run in runs if run.config}) > 1]


def _without_seed(name: str) -> str:
    """A run's name without its seed.

    >>> _without_seed("span-seed-3"), _without_seed("scalar/s2"), _without_seed("7")
    ('span', 'scalar', '7')
    """
    return re.sub(r"[-_./ ]*(?:\bseed|(?<![a-zA-Z])s)?[-_=]?\d+$", "", name, flags=re.IGNORECASE) or name
