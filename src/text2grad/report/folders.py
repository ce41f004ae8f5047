"""Run folders as the report needs them.

Enters: paths. Leaves: `Run`s: settings, facts of the machine, metrics by update, and a list of what is missing or could
not be read, for the page to say. A run that was killed, or that goes on while it is read, is a run; a folder that was
never one is refused. Knows nothing of charts, and does not read the rollouts: they may be large.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from text2grad.errors import RunError

Metrics = dict[int, dict[str, float]]
"""Update → name → number."""
LARGEST = 1e100
"""Numbers beyond it are taken for mistakes: differences and sums of them are no numbers any more."""
_SETTINGS = 10_000
"""Settings that a run has at most; one that refers to itself has no end of them."""


@dataclass(frozen=True)
class Run:
    """What one folder says about itself."""

    path: Path
    name: str
    metrics: Metrics
    config: Mapping[str, Any] = field(default_factory=dict)
    """Flat: `optim.lr` → value."""
    config_text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """`run.json`: versions, device, command, seed, data."""
    warnings: tuple[tuple[int, str], ...] = ()
    """(update, what the run warned of)."""
    trouble: tuple[str, ...] = ()
    """What is missing or unreadable, in words."""

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts.jsonl"

    @property
    def last_update(self) -> int:
        return max(self.metrics, default=0)

    @property
    def planned(self) -> int | None:
        """How many updates the settings ask for, where they say so."""
        found = [value for key, value in self.config.items() if key.rpartition(".")[2] == "updates"]
        return found[0] if len(found) == 1 and isinstance(found[0], int) else None

    @property
    def unfinished(self) -> str:
        """What it has not come to, in words; nothing where it has a model, or is no reward model and had all its
        updates."""
        if (self.path / "model").is_dir():
            return ""
        if self.planned is not None and self.last_update < self.planned:
            noun = "update" if self.planned == 1 else "updates"
            return f"not finished: {self.last_update} of {self.planned} {noun} so far"
        judges = any("held_out/watched" in row for row in self.metrics.values())
        return "without a model: it goes on, ended early, or was copied without it" if judges else ""

    @property
    def supervised(self) -> bool:
        """A supervised start: losses and no score, so nothing that it could be compared by."""
        keys = {key for row in self.metrics.values() for key in row}
        return bool(keys & {"loss/mean", "held_out/loss"}) and not keys & {"score/mean", "held_out/score"}

    @property
    def seed(self) -> Any:
        return self.facts.get("seed", self.config.get("seed"))


def find_folders(paths: Sequence[str | Path]) -> tuple[list[Path], list[str]]:
    """(run folders, a line for each thing that was passed over). A folder that is no run stands for the runs in it, in
    the order in which they were begun. Where there is no run at all, what was named comes back, to be refused with the
    reason; so does a name of nothing."""
    named = [Path(path) for path in paths]
    found: list[tuple[Path, bool]] = []
    left_out: list[str] = []
    for path in named:
        inside = [] if _is_run(path) or not path.is_dir() else sorted(path.glob("*/"))
        runs = [folder for folder in inside if _is_run(folder)]
        if _is_run(path) or not path.exists():
            found.append((path, True))
        elif runs:
            found += [(folder, False) for folder in sorted(runs, key=_begun)]
            left_out += [_no_run(folder) for folder in inside if folder not in runs and folder.name[0] != "."]
        else:
            left_out.append(_no_run(path))
    folders, again = _once(found)
    return (folders, left_out + again) if folders else (named, [])


def _no_run(path: Path) -> str:
    return f"{path}: left out, {'a folder without metrics.jsonl' if path.is_dir() else 'a file'} is no run"


def _begun(folder: Path) -> tuple[str, str]:
    """By `run.json`; those that do not say come last, by name."""
    return str(_facts(folder / "run.json", []).get("started", "~")), folder.name


def _once(found: Sequence[tuple[Path, bool]]) -> tuple[list[Path], list[str]]:
    """(folders, a line for each that leads to a run that is there already): links, and what was not named but found.
    What was itself named twice stays, to be refused."""
    kept: dict[int, Path] = {}
    again = []
    order = sorted(range(len(found)), key=lambda index: (not found[index][1], found[index][0].is_symlink()))
    for index in order:
        path, named = found[index]
        same = next((other for other in kept.values() if other.resolve() == path.resolve()), None)
        if same is None or (named and not path.is_symlink()):
            kept[index] = path
        else:
            again.append(f"{path}: left out, the same run as {same}")
    return [kept[index] for index in sorted(kept)], again


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """All of them, each under a name of its own."""
    folders = [_folder(Path(path)) for path in paths]
    for index, folder in enumerate(folders):
        if any(folder.samefile(earlier) for earlier in folders[:index]):
            raise RunError(f"{folder}: is named twice; name each run once")
    return [_read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _folder(path: Path) -> Path:
    wanted = f"{path}: should be a run folder (one with metrics.jsonl or rollouts.jsonl, as `text2grad train` writes)"
    wanted += ", or a folder of them"
    if not path.exists():
        raise RunError(f"{wanted}, but there is nothing of that name")
    if not path.is_dir():
        raise RunError(f"{wanted}, got a file" + (f"; did you mean {path.parent}?" if _is_run(path.parent) else ""))
    if not _is_run(path):
        inside = ", ".join(sorted(entry.name for entry in path.iterdir())[:5]) or "nothing"
        raise RunError(f"{wanted}, got a folder that holds {inside}")
    return path


def _is_run(path: Path) -> bool:
    return (path / "metrics.jsonl").is_file() or (path / "rollouts.jsonl").is_file()


def _names(folders: Sequence[Path]) -> list[str]:
    """As few last parts of the path as tell them apart: `seed-1`; `span/seed-1` where `scalar/seed-1` is there too."""
    parts = [folder.resolve().parts[1:] or ("run",) for folder in folders]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read(path: Path, name: str) -> Run:
    trouble: list[str] = []
    config, config_text = _config(path / "config.yaml", trouble)
    metrics, warnings = _metrics(path / "metrics.jsonl", trouble)
    facts = _facts(path / "run.json", trouble)
    if not (path / "rollouts.jsonl").is_file():
        trouble.append("no rollouts.jsonl, so there are no completions to show")
    run = Run(path, name, metrics, config, config_text, facts, tuple(warnings), ())
    if run.unfinished:
        trouble.append(run.unfinished)
    return Run(path, name, metrics, config, config_text, facts, tuple(warnings), tuple(trouble))


def lines(path: Path) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """(byte where a line begins, its number, its object, or None where it is none); a torn last line is passed over."""
    with path.open("rb") as file:
        start = 0
        for number, line in enumerate(file, 1):
            row = parse(line)
            if line.strip() and (row is not None or line.endswith(b"\n")):
                yield start, number, row
            start += len(line)


def parse(line: bytes) -> dict[str, Any] | None:
    """The object of a line, if it is one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _metrics(path: Path, trouble: list[str]) -> tuple[Metrics, list[tuple[int, str]]]:
    metrics: Metrics = {}
    warnings: list[tuple[int, str]] = []
    if not path.is_file():
        trouble.append("no metrics.jsonl, so there is nothing to draw")
        return metrics, warnings
    bad = large = 0
    for _, _, row in lines(path):
        update = row.get("update") if row else None
        if row is None or not is_update(update):
            bad += 1
            continue
        numbers = {key: value for key, value in row.items() if key != "update" and _is_number(value)}
        kept = {key: float(value) for key, value in numbers.items() if abs(value) <= LARGEST}
        large += len(numbers) - len(kept)
        metrics.setdefault(update, {}).update(kept)
        said = row.get("warnings")
        warnings += [(update, str(text)) for text in said] if isinstance(said, list) else []
    if large:
        trouble.append(f"metrics.jsonl: numbers beyond ±{LARGEST:g} were passed over: {large}")
    if bad:
        trouble.append(f"metrics.jsonl: lines without an update's numbers were passed over: {bad}")
    elif not metrics:
        trouble.append("metrics.jsonl is empty: no update is finished yet")
    return dict(sorted(metrics.items())), warnings


def is_update(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**18


def _is_number(value: object) -> TypeGuard[int | float]:
    """An integer may be too long for a float, and then math knows no answer."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _config(path: Path, trouble: list[str]) -> tuple[dict[str, Any], str]:
    if not path.is_file():
        trouble.append("no config.yaml, so the settings are not known")
        return {}, ""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        tree = yaml.safe_load(text)
        flat = _flat(tree) if isinstance(tree, dict) and _is_finite(tree) else {}
        str(flat)  # What cannot be written down cannot be compared.
    except (yaml.YAMLError, ValueError, RecursionError):
        # A date that there is not, an integer of thousands of digits, nesting without end.
        flat, tree = {}, None
    if not flat and tree != {}:
        trouble.append("config.yaml is no YAML of settings, so it is shown but not compared")
    return flat, text


def _is_finite(tree: object) -> bool:
    """Whether a tree has an end: YAML can refer to itself."""
    waiting, count = [tree], 0
    while waiting and count <= _SETTINGS:
        count += 1
        node = waiting.pop()
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return not waiting


def _flat(tree: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) and value else {f"{above}{key}": value}
    return flat


def _facts(path: Path, trouble: list[str]) -> dict[str, Any]:
    if not path.is_file():
        trouble.append("no run.json, so versions, device and command are not known")
        return {}
    facts = parse(path.read_bytes())
    if facts is None:
        trouble.append("run.json is not a JSON object, so versions, device and command are not known")
    return facts or {}
