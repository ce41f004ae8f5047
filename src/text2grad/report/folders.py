"""Run folders as the report needs them.

Enters: paths. Leaves: `LoggedRun`s: settings, facts about the machine, metrics by update, what the metrics mean, and a
list of what is missing or unreadable, for the page to say. A run that was killed, or that is still being written, is a
run; a folder that was never one is refused. Knows nothing of charts, and does not read the rollouts: they may be large.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from text2grad.config import flat
from text2grad.errors import InvalidData, RunError
from text2grad.runs import parse_object, scan
from text2grad.types import MetricInfo

Metrics = dict[int, dict[str, float]]
"""Update → name → number."""
LARGEST = 1e100
"""Larger numbers are taken for mistakes: sums and differences of them overflow."""


@dataclass(frozen=True)
class LoggedRun:
    """What one folder says about itself."""

    path: Path
    name: str
    metrics: Metrics
    config: Mapping[str, Any] = field(default_factory=dict)
    """Flat: `optim.lr` → value."""
    config_text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """`run.json`: versions, device, command, seed, data."""
    declared: Mapping[str, MetricInfo] = field(default_factory=dict)
    """What the run says about its metrics."""
    warnings: tuple[tuple[int, str], ...] = ()
    """(update, text of the warning)."""
    trouble: tuple[str, ...] = ()
    """What is missing or unreadable, in words."""

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts.jsonl"

    @property
    def last_update(self) -> int:
        return max(self.metrics, default=0)

    @property
    def keys(self) -> dict[str, None]:
        """The names of its metrics, in the order of their first appearance."""
        return {key: None for row in self.metrics.values() for key in row}

    @property
    def planned(self) -> int | None:
        """How many updates the settings ask for, if they do."""
        values = [value for key, value in self.config.items() if key.rpartition(".")[2] == "updates"]
        return values[0] if len(values) == 1 and isinstance(values[0], int) else None

    @property
    def unfinished(self) -> str:
        """What is still missing, in words; empty for a finished run."""
        if (self.path / "model").is_dir():
            return ""
        if self.planned is not None and self.last_update < self.planned:
            noun = "update" if self.planned == 1 else "updates"
            return f"not finished: {self.last_update} of {self.planned} {noun} so far"
        return ""

    @property
    def supervised(self) -> bool:
        """Supervised fine-tuning, or DPO on given pairs: losses and no score, so nothing to compare RL runs by."""
        scores, losses = {"score/mean", "held_out/score"}, {"loss/mean", "held_out/loss"}
        return not losses.isdisjoint(self.keys) and scores.isdisjoint(self.keys)

    @property
    def learns_from(self) -> str:
        """What such a run without scores is, in words."""
        command = self.facts.get("command")
        dpo = isinstance(command, list) and command[1:2] == ["dpo"]
        return "a preference run" if dpo or {"pairs", "beta"} <= self.config.keys() else "supervised fine-tuning"

    @property
    def seed(self) -> Any:
        return self.facts.get("seed", self.config.get("seed"))


def find_folders(paths: Sequence[str | Path]) -> tuple[list[Path], list[str]]:
    """(run folders, a line for each thing left out). A folder that is no run itself stands for the runs in it, in the
    order in which they were started. Without any run, the paths come back as they are, to be refused with the reason.
    """
    folders: dict[Path, Path] = {}
    left_out: list[str] = []
    for path in map(Path, paths):
        inside = [path]
        if path.is_dir() and not _is_run(path):
            inside = sorted((entry for entry in path.glob("*/") if entry.name[0] != "."), key=_order) or [path]
        for folder in inside:
            if folder.exists() and not _is_run(folder):
                kind = "a folder without metrics.jsonl" if folder.is_dir() else "a file"
                left_out.append(f"{folder}: left out, {kind} is no run")
            elif (kept := folders.setdefault(folder.resolve(), folder)) != folder:
                left_out.append(f"{folder}: left out, the same run as {kept}")
    return (list(folders.values()), left_out) if folders else ([Path(path) for path in paths], [])


def _order(folder: Path) -> tuple[str, str]:
    """When it was started, by `run.json`; folders that do not say come last, by name."""
    return str(_facts(folder / "run.json", []).get("started", "~")), folder.name


def read_runs(paths: Sequence[str | Path]) -> list[LoggedRun]:
    """All of them, each under a name of its own."""
    folders = list(map(Path, paths))
    for path in folders:
        if not _is_run(path):
            raise RunError(
                f"{path}: should be a run folder (one with metrics.jsonl or rollouts.jsonl, as `text2grad train` "
                f"writes), or a folder of them, {_instead(path)}"
            )
    return [_read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _instead(path: Path) -> str:
    if not path.exists():
        return "but there is nothing of that name"
    if not path.is_dir():
        return "got a file" + (f"; did you mean {path.parent}?" if _is_run(path.parent) else "")
    return f"got a folder that holds {', '.join(sorted(entry.name for entry in path.iterdir())[:5]) or 'nothing'}"


def _is_run(path: Path) -> bool:
    return (path / "metrics.jsonl").is_file() or (path / "rollouts.jsonl").is_file()


def _names(folders: Sequence[Path]) -> list[str]:
    """As few last parts of the path as tell them apart: `seed-1`; `span/seed-1` beside `scalar/seed-1`."""
    parts = [folder.resolve().parts[1:] or ("run",) for folder in folders]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read(path: Path, name: str) -> LoggedRun:
    trouble: list[str] = []
    config, config_text = _config(path / "config.yaml", trouble)
    metrics, warnings = _metrics(path / "metrics.jsonl", trouble)
    facts = _facts(path / "run.json", trouble)
    declared = _declared(facts.get("metrics"), trouble)
    if not (path / "rollouts.jsonl").is_file():
        trouble.append("no rollouts.jsonl, so there are no completions to show")
    run = LoggedRun(path, name, metrics, config, config_text, facts, declared, tuple(warnings))
    return replace(run, trouble=(*trouble, *filter(None, [run.unfinished])))


def _usable(digits: str) -> int | float:
    whole = digits.lstrip("-").isdecimal()
    value = int(digits) if whole and len(digits) < 20 else float(digits)
    return value if abs(value) <= LARGEST else math.nan


USABLE: dict[str, Any] = {"parse_float": _usable, "parse_int": _usable, "parse_constant": _usable}
"""Options of `json.loads`: numbers that are too large to sum become NaN, which no reader accepts."""


def _metrics(path: Path, trouble: list[str]) -> tuple[Metrics, list[tuple[int, str]]]:
    metrics: Metrics = {}
    warnings: list[tuple[int, str]] = []
    if not path.is_file():
        trouble.append("no metrics.jsonl, so there is nothing to draw")
        return metrics, warnings
    bad = unusable = 0
    for _, _, row in scan(path, **USABLE):
        update = row.pop("update", None) if isinstance(row, dict) else None
        if isinstance(row, InvalidData) or not is_update(update):
            bad += 1
            continue
        numbers = {key: float(value) for key, value in row.items() if type(value) in (int, float)}
        finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
        metrics.setdefault(update, {}).update(finite)
        unusable += len(numbers) - len(finite)
        texts = row.get("warnings")
        warnings += [(update, str(text)) for text in texts] if isinstance(texts, list) else []
    if unusable:
        trouble.append(f"metrics.jsonl: numbers that are not finite or beyond ±{LARGEST:g} were skipped: {unusable}")
    if bad:
        trouble.append(f"metrics.jsonl: lines without an update's numbers were skipped: {bad}")
    elif not metrics:
        trouble.append("metrics.jsonl is empty: no update is finished yet")
    return dict(sorted(metrics.items())), warnings


def is_update(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _config(path: Path, trouble: list[str]) -> tuple[dict[str, Any], str]:
    if not path.is_file():
        trouble.append("no config.yaml, so the settings are not known")
        return {}, ""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        # An alias may refer to what it is part of, and has no end then.
        aliased = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader))
        tree = None if aliased else yaml.safe_load(text)
        settings = flat(tree) if isinstance(tree, dict) else {}
        str(settings)  # What cannot be printed cannot be compared.
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        # An impossible date, an integer of thousands of digits, a key that is no text, endless nesting.
        settings, tree = {}, None
    if not settings and tree != {}:
        trouble.append("config.yaml is no YAML of settings, so it is shown but not compared")
    return settings, text


def _facts(path: Path, trouble: list[str]) -> dict[str, Any]:
    if not path.is_file():
        trouble.append("no run.json, so versions, device and command are not known")
        return {}
    try:
        return parse_object(path.read_bytes(), **USABLE)
    except InvalidData as problem:
        trouble.append(f"run.json {problem}; versions, device and command are not known")
        return {}


def _declared(metrics: object, trouble: list[str]) -> dict[str, MetricInfo]:
    declared = {}
    for key, info in metrics.items() if isinstance(metrics, dict) else ():
        try:
            declared[key] = MetricInfo.from_json(info)
        except InvalidData as problem:
            trouble.append(f"run.json: metrics: {key}: {problem}")
    return declared
