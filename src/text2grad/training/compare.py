"""A whole table by one command: arms × seeds, each run an ordinary command in a process of its own.

Enters: `CompareSettings`. Leaves: the jobs, each with its command and its folder FOLDER/ARM/seed-N. What they will cost
says `training/costs.py`; `training/schedule.py` runs them, `training/compared.py` reads what came out. A run resumes by
its own command, so a comparison that was killed resumes, too. Imports no torch.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt

from text2grad import config
from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import ConfigError, RunError
from text2grad.evaluation.metrics import MEASURED, check_metrics
from text2grad.evaluation.named import metrics_named
from text2grad.evaluation.settings import EvaluateSettings
from text2grad.plugins import find_plugin
from text2grad.runs.folder import file_digest
from text2grad.tasks.task import task_of
from text2grad.training.settings import (
    DPOSettings,
    EvaluationSettings,
    RewardModelSettings,
    SFTSettings,
    TrainSettings,
    TRLSettings,
    check_trl,
)

_OF_ARM = ("command", "start", "seeds", "n")
"""Keys of an arm that are not settings of its command."""
_ERROR = re.compile(r"text2grad |[\w.]+(Error|Exception|Interrupt|Exit)\b")
_KEY = "critics.openai.api_key"
_FILES = ("results.json", "comparison.json", "report.html", "judge.spent")
_OURS = {key: key for key in ("updates", "prompts", "completions", "metrics")} | {
    "seed": "seeds",
    "evaluation.every": "evaluations",
    "evaluation.examples": "examples",
    "evaluation.critic": "critic",
    "evaluate_every": "evaluations",
    "evaluate_examples": "examples",
    "evaluate_critic": "critic",
}
"""Settings of commands → what they are called here, where they are the same for all arms."""


@settings
class CompareSettings:
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of all runs whose command has them: model, task, data, held_out, sampling, policy, …"""
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name → `command` (sft, train, dpo, grpo, sdpo, reward_model, base, samples, best_of_n, reflection), `start` (the
    arm whose model it starts from), `critic` (may name an arm of reward_model), `seeds` (its own list, or `shared`: one
    run that stands for every seed), `n` (of samples and best_of_n), and settings of the command."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of every arm that names no other."""
    baseline: str = ""
    """The arm that the others are compared with; empty: the first."""
    updates: Annotated[Int, Gt(0)] = 100
    """Budget of each run that samples (train, dpo, grpo, sdpo); sft has its own epochs or updates."""
    prompts: Annotated[Int, Gt(0)] = 16
    """Prompts per update of these."""
    completions: Annotated[Int, Gt(0)] = 4
    """Completions per prompt of these."""
    examples: Annotated[Int, Gt(0)] = 64
    """Held-out examples that every evaluation completes."""
    evaluations: Annotated[Int, Gt(0)] = 15
    """Evaluations per run at least, beside the one before the first update."""
    critic: str | None = None
    """Who judges the held-out completions of every arm; null: `critic` of the common settings, or the task's own."""
    metrics: tuple[str, ...] = ()
    """What else is measured on them: rouge, bleu, f1, support, grounded, code, similarity:MODEL, or your own
    as package.module:object."""
    primary: str = "score"
    """The metric of the headline and of the large chart."""
    judge: str | None = None
    """openai:MODEL compares the last held-out completions of every arm with the baseline's, in both orders."""
    workers: Annotated[Int, Gt(0)] = 1
    """Runs side by side at most."""
    memory: Annotated[Real, Ge(0)] = 0.0
    """GiB that one run takes, on the GPU or else of the machine: no run begins while less is free. 0: not looked at. A
    run that ends for want of memory is tried again alone."""


@dataclass(frozen=True)
class ArmKind:
    """What stands behind a `command` of an arm."""

    command: str
    settings: type
    part: str = "held_out"
    """Where its metrics are: of a run, or this part of an evaluation."""

    @property
    def measured(self) -> bool:
        """Whether it is a policy, with held-out completions; else it is a critic that other arms learn from."""
        return self.command != "reward-model"

    @property
    def samples(self) -> bool:
        """Whether the budget of completions is for it."""
        return self.command in ("train", "dpo", "trl")


KINDS = {
    "sft": ArmKind("sft", SFTSettings),
    "train": ArmKind("train", TrainSettings),
    "dpo": ArmKind("dpo", DPOSettings),
    "grpo": ArmKind("trl", TRLSettings),
    "sdpo": ArmKind("trl", TRLSettings),
    "reward_model": ArmKind("reward-model", RewardModelSettings),
    "base": ArmKind("evaluate", EvaluateSettings, "greedy"),
    "samples": ArmKind("evaluate", EvaluateSettings, "samples"),
    "best_of_n": ArmKind("evaluate", EvaluateSettings, "best_of"),
    "reflection": ArmKind("evaluate", EvaluateSettings, "reflection"),
}


TRAINS = ("sft", "train", "dpo", "trl")
"""Commands whose models others can start from."""


@dataclass(frozen=True, eq=False)
class ArmJob:
    """One run of an arm."""

    arm: str
    seed: int
    kind: ArmKind
    settings: Any
    words: tuple[str, ...]
    """What is typed behind `text2grad`."""
    folder: Path
    shared: bool = False
    """It stands for every seed."""
    start: "ArmJob | None" = None
    """The run whose model it starts from."""
    critic: "ArmJob | None" = None
    """The run whose reward model it learns from."""
    turn: int = 0
    """Place of its seed among those of its arm."""
    key: str | None = None
    """Of the critic's server. Words of a command can be seen by everybody on the machine, so it goes another way."""

    @property
    def name(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def model(self) -> Path:
        """What it trains, if it does."""
        return self.folder / "model"

    @property
    def mark(self) -> Path:
        """Written once the command has ended well: its digest, and all that the table needs of the run. It is small, so
        it can be carried to another machine where the run folder cannot."""
        return self.folder.with_name(f"{self.folder.name}.done")

    @cached_property
    def digest(self) -> str:
        """Of the command, of the files that it reads and of its start; the same wherever the comparison is. Nobody can
        read a password in it."""
        words = [word.replace(str(self.folder.parent.parent), "") for word in self.words]
        for key in ("data", "held_out"):
            if (path := Path(getattr(self.settings, key))).is_file():
                words = [word for word in words if not word.startswith(f"{key}=")] + [f"{key} {file_digest(path)}"]
        return hashlib.sha256(json.dumps([words, [job.digest for job in self.needs]]).encode()).hexdigest()

    @property
    def needs(self) -> "list[ArmJob]":
        """The runs that have to be done before."""
        return [job for job in (self.start, self.critic) if job is not None]

    @property
    def done(self) -> bool:
        with suppress(OSError), self.mark.open("rb") as file:
            return file.readline().decode(errors="replace").strip() == self.digest
        return False

    def record(self) -> Any:
        """What the mark holds."""
        try:
            return json.loads(self.mark.read_bytes().partition(b"\n")[2])
        except (OSError, ValueError) as problem:
            raise RunError(f"{self.mark}: is damaged ({problem}); delete it to read the run again") from None

    @property
    def completions(self) -> int:
        """Sampled per update, to learn from."""
        made = self.settings
        if not self.kind.samples:
            return 0
        return int(made.completions * (made.update.batch if self.kind.command == "dpo" else made.prompts))

    @property
    def per_example(self) -> tuple[int, int]:
        """Of an evaluation: completions, and critic calls, for each held-out example."""
        known = {"greedy": (1, 0), "reflection": (2, 1)}
        return known.get(self.kind.part) or (self.settings.samples, self.settings.samples)

    @property
    def evaluation(self) -> EvaluationSettings:
        """How its held-out examples are evaluated, in the words of `train`."""
        made = self.settings
        if hasattr(made, "evaluation"):
            found: EvaluationSettings = made.evaluation
            return found
        if self.kind.command == "evaluate":
            return EvaluationSettings(every=1, examples=made.examples or 2**31)  # 0: all
        return EvaluationSettings(
            every=made.evaluate_every, examples=made.evaluate_examples, critic=made.evaluate_critic
        )

    def problem(self, since: int = 0) -> str:
        """Why it failed: the last error in its log, which libraries follow with advice, else the last line. `since`:
        the bytes that earlier tries have written."""
        try:
            with self.log.open("rb") as file:
                file.seek(since)
                text = file.read().decode(errors="replace")
        except OSError:
            return "it has no log"
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it wrote nothing"]
        return next((line for line in reversed(lines[-20:]) if _ERROR.match(line)), lines[-1])[:300]


def plan(options: CompareSettings, folder: Path) -> list[ArmJob]:
    """Every run, a start before those that need it. Whatever is wrong in any arm is found here."""
    if not options.arms:
        raise ConfigError("arms: a comparison wants at least one, as in `arms: {scalar: {command: train, …}}`")
    if options.baseline and options.baseline not in options.arms:
        raise ConfigError(f"baseline: there is no arm {options.baseline!r}; there are {', '.join(options.arms)}")
    if options.judge is not None and not re.fullmatch("openai:.+", options.judge):
        raise ConfigError(f"judge should be openai:MODEL, got {options.judge!r}")
    for name, tree in options.arms.items():
        _check_arm(name, tree)
    _check_common(options)
    jobs: dict[tuple[str, int], ArmJob] = {}

    def made(name: str, above: tuple[str, ...] = ()) -> list[ArmJob]:
        if name in above:
            raise ConfigError(f"arms: {' starts from '.join((*above, name))}, which has no beginning")
        if name not in options.arms:
            raise ConfigError(f"arms.{above[-1]}.start: there is no arm {name!r}; there are {', '.join(options.arms)}")
        tree = options.arms[name]
        if above and options.arms[above[-1]].get("start") == name and _kind(name, tree).command not in TRAINS:
            raise ConfigError(f"arms.{above[-1]}.start: {name} trains no policy, so it has no model to start from")
        for turn, seed in enumerate(_seeds(options, name, tree)):
            if (name, seed) not in jobs:
                start, critic = (of_seed(tree.get(key), seed, (*above, name)) for key in ("start", _asks(name, tree)))
                jobs[name, seed] = replace(_job(options, name, seed, start, critic, folder), turn=turn)
        return [job for (arm, _), job in jobs.items() if arm == name]

    def of_seed(name: str | None, seed: int, above: tuple[str, ...]) -> ArmJob | None:
        """The run of an arm that another one needs. A critic need not be an arm."""
        if not name or (name != options.arms[above[-1]].get("start") and not _is_critic(options, name)):
            return None
        found = {job.seed: job for job in made(name, above)}
        job = found.get(seed) or next((job for job in found.values() if job.shared), None)
        if job is None:
            raise ConfigError(f"arms.{above[-1]}: {name} has no run of seed {seed}, nor a shared one")
        return job

    for name in options.arms:
        made(name)
    measured = [job for job in jobs.values() if job.kind.measured]
    if not measured or _is_critic(options, options.baseline):
        raise ConfigError("arms: a reward model is no policy: the baseline, and one arm at least, should be one")
    _check_measure(options, measured[0])
    return list(jobs.values())


def _is_critic(options: CompareSettings, name: object) -> bool:
    return name in options.arms and not _kind(str(name), options.arms[str(name)]).measured


def _asks(name: str, tree: Mapping[str, Any]) -> str:
    """The setting that names the critic an arm learns from, or chooses by."""
    return "best_of_critic" if _kind(name, tree).part == "best_of" else "critic"


def _check_arm(name: str, tree: Mapping[str, Any]) -> None:
    """Its name, and what it has beside settings of its command."""
    if not re.fullmatch(r"[\w.+-]{1,100}", name) or name.startswith(".") or name in _FILES:
        raise ConfigError(f"arms: the name {name!r:.120} becomes a folder: use letters, digits, _, -, + and dots")
    kind, count, start = _kind(name, tree), tree.get("n", 4), tree.get("start") or ""
    if "n" in tree and kind.part not in ("best_of", "samples"):
        raise ConfigError(f"arms.{name}.n: is of samples and best_of_n alone")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"arms.{name}.n: should be a number of samples, 1 or more, got {count!r}")
    if not isinstance(start, str):
        raise ConfigError(f"arms.{name}.start: should be the name of an arm, got {start!r}")
    _flat_once(tree, f"arms.{name}")
    if "seed" in tree:
        raise ConfigError(f"arms.{name}.seed: a comparison runs several; the key is `seeds`")
    if kind.command == "evaluate" and "critic" in tree:
        other = "; best_of_critic names another one that chooses" if kind.part == "best_of" else ""
        raise ConfigError(f"arms.{name}.critic: all arms are judged alike, by `critic` of the comparison{other}")


def _check_measure(options: CompareSettings, job: ArmJob) -> None:
    """The held-out examples can be read, the metrics can be measured, and the primary one is among them."""
    task = task_of(job.settings)
    task.held_out()
    metrics = (*task.metrics, *metrics_named(options.metrics))
    there = [*(metric.key for metric in metrics), *MEASURED]
    check_metrics(metrics)
    if options.primary not in there:
        raise ConfigError(f"primary: there is no metric {options.primary!r}; there are {', '.join(there)}")


def _flat_once(tree: Mapping[str, Any], above: str, where: str = "") -> dict[str, Any]:
    """`config.flat`, which refuses a setting that is given both with dots and below a branch."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _flat_once(value, above, f"{where}{key}.") if isinstance(value, Mapping) else {where + key: value}
        if double := next((name for name in inner if name in leaves), None):
            raise ConfigError(f"{above}.{double}: stands twice, once with dots and once below a branch; keep one")
        leaves |= inner
    return leaves


def _check_common(options: CompareSettings) -> None:
    """A setting that no command of this comparison knows is a mistake; one that only some know is theirs."""
    kinds = {_kind(name, tree) for name, tree in options.arms.items()}
    for key in _flat_once(options.settings, "settings"):
        if (ours := _OURS.get(key)) is not None:
            raise ConfigError(f"settings.{key}: is the same in all runs, as `{ours}` of the comparison; set that one")
        if key != "model" and not any(_known(kind.settings, key) for kind in kinds):
            config.load(next(iter(kinds)).settings, None, [f"{key}={config.inline(None)}"])
            raise ConfigError(f"settings: no command of these arms has a setting `{key}`")


def _kind(name: str, tree: Mapping[str, Any]) -> ArmKind:
    kind: ArmKind = find_plugin(str(tree.get("command", "train")), KINDS, f"arms.{name}.command")
    return kind


@cache
def _keys(cls: type) -> frozenset[str]:
    return frozenset(leaf.key for leaf in config.describe(cls))


def _known(cls: type, key: str) -> bool:
    """Whether it is a setting, or lies in one that is a mapping."""
    parts = key.split(".")
    return any(".".join(parts[:count]) in _keys(cls) for count in range(1, len(parts) + 1))


def _seeds(options: CompareSettings, name: str, tree: Mapping[str, Any]) -> Sequence[int]:
    seeds = tree.get("seeds", options.seeds)
    shared = seeds == "shared"
    seeds = options.seeds if shared else seeds
    if not isinstance(seeds, list | tuple) or not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise ConfigError(f"arms.{name}.seeds: should be a list of numbers, or `shared`, got {seeds!r}")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"arms.{name}.seeds: a seed comes twice, and the same run twice says nothing new: {seeds!r}")
    return seeds[:1] if shared else seeds


def _job(
    options: CompareSettings, name: str, seed: int, start: ArmJob | None, critic: ArmJob | None, folder: Path
) -> ArmJob:
    tree, place = options.arms[name], folder.resolve() / name / f"seed-{seed}"
    kind = _kind(name, tree)
    own = config.flat({key: value for key, value in tree.items() if key not in _OF_ARM})
    common = {key: value for key, value in config.flat(options.settings).items() if _known(kind.settings, key)}
    if kind.command == "evaluate":
        common.pop("critic", None)  # who judges is the same for all, see `_seen`
    if critic is not None:
        own[_asks(name, tree)] = str(critic.model)
    if not kind.measured:
        # What is reported on may choose nothing, so a part of `data` does, also where the task has its own split.
        common.pop("held_out", None)
        if (own.get("task") or common.get("task") or "jsonl") != "jsonl":
            common["held_out_by"] = "prompts"
    chosen = {**common, **_derived(options, tree, kind), **own, "seed": seed}
    model = str(options.settings.get("model", "smollm2-135m")) if start is None else str(start.model)
    model = str(own.get("model", model))
    if kind.command == "evaluate":
        chosen.pop("model", None)  # its model is a word of its own, not a setting
    else:
        chosen["model"] = model
    words = [f"{key}={config.inline(value)}" for key, value in chosen.items()]
    try:
        made: Any = config.load(kind.settings, None, words)
        words += [
            f"{key}={config.inline(value)}" for key, value in _seen(options, kind, made).items() if key not in own
        ]
        made = config.load(kind.settings, None, words)
        if kind.command == "trl":
            check_trl(made)
    except ConfigError as problem:
        raise ConfigError(f"arms.{name}: {problem}") from None
    words = [word for word in words if not word.startswith(f"{_KEY}=")]
    if kind.command == "evaluate":
        words = [model, *words, "--out", str(place / "evaluation.json"), "--quiet"]
    else:
        words = [str(place), *words, "--quiet"]
    shared = tree.get("seeds") == "shared"
    return ArmJob(name, seed, kind, made, (kind.command, *words), place, shared, start, critic, key=chosen.get(_KEY))


def _derived(options: CompareSettings, tree: Mapping[str, Any], kind: ArmKind) -> dict[str, Any]:
    """What the budget and the evaluation mean to a command, in its own words."""
    if not kind.measured:
        return {"keep_checkpoints": 1}
    every = _every(options, options.updates)
    budget: dict[str, Any] = {"updates": options.updates, "completions": options.completions}
    spare: dict[str, Any] = {"save_best": False, "keep_checkpoints": 1}
    derived: dict[str, Any]
    if kind.command in ("train", "trl"):
        evaluation: dict[str, Any] = {"every": every, "examples": options.examples, "each": True}
        derived = {**budget, "prompts": options.prompts, **spare, "log.hindsight": 0}
        # A run that ends early has no final metrics, and TRL's have no guard: every arm spends its whole budget.
        derived |= {"guard.nothing_learned": "warn"}
        derived |= {f"evaluation.{key}": value for key, value in evaluation.items()}
        derived |= {"trainer": tree["command"]} if kind.command == "trl" else {}
    elif kind.command in ("dpo", "sft"):
        derived = {"evaluate_examples": options.examples, "evaluate_each": True, **spare}
        if kind.command == "dpo":
            derived |= {**budget, "pairs": "samples", "update.batch": options.prompts, "evaluate_every": every}
    else:
        derived = {"examples": options.examples}
        count = tree.get("n", 4)
        derived |= {"samples": count} if kind.part in ("best_of", "samples") else {}
        derived |= {"best_of": count} if kind.part == "best_of" else {}
        derived |= {"reflect": True} if kind.part == "reflection" else {}
    return derived | {"metrics": list(options.metrics)}


def _seen(options: CompareSettings, kind: ArmKind, made: Any) -> dict[str, Any]:
    """What follows from the data: who judges the held-out examples, the same for every arm, and how often sft is
    evaluated."""
    if not kind.measured:
        return {}
    task = task_of(made)
    if "validation" not in task.splits:
        raise ConfigError("a comparison wants held-out examples: held_out=FILE, or a task that brings its own")
    common = config.flat(options.settings).get("critic")
    judge = options.critic or common or task.critic
    if kind.samples:
        own, key = made.critic or task.critic, "evaluate_critic" if kind.command == "dpo" else "evaluation.critic"
    else:
        own, key = task.critic, "critic" if kind.command == "evaluate" else "evaluate_critic"
    if judge is not own and judge != own and not isinstance(judge, str):
        raise ConfigError("it has a critic of its own; `critic` should name the one that judges all arms alike")
    seen = {key: None if judge is own or judge == own else judge}
    if kind.command == "sft":
        seen["evaluate_every"] = _every(options, sft_updates(made))
    return seen


def _every(options: CompareSettings, updates: int) -> int:
    return max(1, updates // options.evaluations)


def sft_updates(made: Any) -> int:
    return int(made.updates or math.ceil(made.epochs * len(task_of(made).examples("train")) / made.update.batch))


def baseline_of(options: CompareSettings) -> str:
    """The arm that the others are compared with."""
    return options.baseline or next(name for name in options.arms if not _is_critic(options, name))


def paired(one: ArmJob, other: ArmJob) -> bool:
    """Whether their difference counts: the same seed; a shared run stands for every seed of the other."""
    return one.seed == other.seed or one.shared or other.shared
