"""A task: examples, the critic that judges them, the metrics that measure them. And the registry behind `task=NAME`.

A task is named (`bulletin`, `defacto`, `qa_feedback`, `jsonl`), or it is a user's own, `package.module:object`. The
object is a `Task`, or a function that makes one. The function declares what it reads: `data`, `held_out`, and any
option that is given as `task_options.NAME=value`. Built-in tasks are made in the same way. No torch.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from text2grad._checked import Text, checked
from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.people import Rejected
from text2grad.plugins import find_plugin, import_object
from text2grad.tasks.annotated import Annotated
from text2grad.types import Example, MetricInfo, Rollout

TASKS = {
    "jsonl": "text2grad.tasks.examples:jsonl_task",
    "bulletin": "text2grad.tasks.bulletin_critic:bulletin_task",
    "defacto": "text2grad.tasks.defacto:defacto_task",
    "qa_feedback": "text2grad.tasks.qa_feedback:qa_feedback_task",
    "mbpp": "text2grad.tasks.published:mbpp_task",
    "humaneval": "text2grad.tasks.published:humaneval_task",
    "kodcode": "text2grad.tasks.published:kodcode_task",
    "pubmedqa": "text2grad.tasks.questions:pubmedqa_task",
    "arc": "text2grad.tasks.questions:arc_task",
    "alpaca_eval": "text2grad.tasks.questions:alpaca_eval_task",
    "mt_bench": "text2grad.tasks.questions:mt_bench_task",
    "slf5k": "text2grad.tasks.published:slf5k_task",
    "scitldr": "text2grad.tasks.published:scitldr_task",
    "tldr": "text2grad.tasks.published:tldr_task",
    "xsum": "text2grad.tasks.published:xsum_task",
    "ultrafeedback": "text2grad.tasks.published:ultrafeedback_task",
}
"""Name → the function that makes the task."""

_SETTING = {"train": "data", "validation": "held_out"}


@checked(InvalidData)
class Metric:
    """One number about a set of completions, and how a reader should read it.

    >>> Metric("words", "Words", "Words per completion.", "sideways", len)
    Traceback (most recent call last):
    text2grad.errors.InvalidData: Metric.better: should be 'higher', 'lower' or 'neither', got 'sideways'
    """

    key: Text
    """In `metrics.jsonl` it is `held_out/KEY`."""
    title: Text
    help: Text
    better: Literal["higher", "lower", "neither"]
    """Which direction is an improvement."""
    measure: Callable[[Sequence[Rollout]], float | None]
    """Rollouts → the number; None where there is nothing to measure."""

    def __post_init__(self) -> None:
        if not self.key.strip():
            raise ValueError("key: should be a non-empty text; metrics.jsonl has the number under it")

    @property
    def info(self) -> MetricInfo:
        return MetricInfo(self.title, self.help, self.better)


@dataclass(frozen=True, slots=True)
class Mean:
    """A `Metric.measure` that is the mean of a number about each completion, so that two models can be compared example
    by example."""

    each: Callable[[Sequence[Rollout]], list[float | None]]
    """One number for each rollout; None where there is nothing to measure, which leaves it out of the mean."""

    def __call__(self, rollouts: Sequence[Rollout]) -> float | None:
        numbers = [number for number in self.each(rollouts) if number is not None]
        return float(np.mean(numbers)) if numbers else None


def mean_of(measure: Callable[[Example, str], float | None]) -> Mean:
    """The mean over all completions of a number about one completion's text, as `Metric.measure` takes it."""
    return Mean(lambda rollouts: [measure(rollout.example, rollout.completion.text) for rollout in rollouts])


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that a command needs to know about a data set.

    >>> task = Task("greetings", {"train": [Example("a", "Greet Ada.", "Hello Ada.")]})
    >>> task.examples("train")[0].reference, task.held_out(), task.critic
    ('Hello Ada.', [], 'reference')
    """

    name: str
    splits: Mapping[str, Sequence[Example] | Callable[[], Iterable[Example]]]
    """`train`, `validation`, `test`: the examples, or a function that loads them. Only the splits that exist."""
    critic: str | Critic = "reference"
    """A critic's name as `text2grad train` takes it, or the critic itself. The setting `critic` replaces it."""
    metrics: tuple[Metric, ...] = ()
    """What is measured beside the critic's score."""
    annotations: Mapping[str, Iterable[Annotated | Rejected] | Callable[[], Iterable[Annotated | Rejected]]] = field(
        default_factory=dict
    )
    """Completions with human feedback, by split: the rows, or a function that loads them."""

    def examples(self, split: str = "train") -> list[Example]:
        """The examples of a split; at least one, each with its own id."""
        source = self._of(self.splits, split, "examples")
        examples = list(source() if callable(source) else source)
        if not examples:
            raise InvalidData(f"task {self.name}: its {split} split should have at least one example, got none")
        seen: set[str] = set()
        for example in examples:
            if example.id in seen:
                raise InvalidData(f"task {self.name}: the id {example.id!r} comes twice in its {split} split")
            seen.add(example.id)
        return examples

    def held_out(self) -> list[Example]:
        """What a training run evaluates on: the validation split; empty where there is none."""
        return self.examples("validation") if "validation" in self.splits else []

    def annotated(self, split: str = "train") -> Iterator[Annotated | Rejected]:
        """Completions with located human feedback; `Rejected` for each one that could not be read, with the reason."""
        source = self._of(self.annotations, split, "annotated completions")
        yield from source() if callable(source) else source

    def _of(self, splits: Mapping[str, Any], split: str, what: str) -> Any:
        if split in splits:
            return splits[split]
        there = f"it has {', '.join(splits)}" if splits else f"it has no {what} at all"
        hint = f". Where a task reads files, {_SETTING[split]}=FILE names them" if split in _SETTING else ""
        raise InvalidData(f"task {self.name}: there is no split {split!r} with {what}; {there}{hint}")


def task_of_files(
    name: str,
    data: str,
    held_out: str,
    examples: Callable[[str], Iterable[Example]],
    annotated: Callable[[str], Iterable[Annotated | Rejected]],
) -> Task:
    """A task whose splits are a user's files: `data` is train, `held_out` is validation."""
    files = {"train": data, "validation": held_out}
    return Task(
        name,
        {split: partial(examples, path) for split, path in files.items() if path},
        annotations={split: partial(annotated, path) for split, path in files.items() if path},
    )


def reads_data(name: str) -> bool:
    """Whether the task of this name takes `data=`. A `Task` is complete as it is."""
    made = _found(name)
    if isinstance(made, Task) or not callable(made):
        return False
    keys, any_key = _read_by(made)
    return any_key or "data" in keys


def _found(name: str) -> Any:
    """A `Task`, or what makes one."""
    made = find_plugin(name, TASKS, "task")
    return import_object(made, "task") if isinstance(made, str) else made


def _read_by(made: Callable[..., Any]) -> tuple[list[str], bool]:
    """(settings that a function reads, whether it takes any other)."""
    parameters = inspect.signature(made).parameters
    return list(parameters), any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def open_task(
    name: str = "jsonl",
    *,
    data: str = "",
    held_out: str = "",
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
) -> Task:
    """The task of this name. An unknown name is an error with the nearest known one."""
    made = _found(name)
    named = {"data": data, "held_out": held_out, "columns": columns}
    given = {key: value for key, value in named.items() if value} | dict(options or {})
    if isinstance(made, Task):
        if given:
            raise ConfigError(f"task={name} is complete as it is and reads no settings; leave out {', '.join(given)}")
        return made
    if not callable(made):
        raise ConfigError(f"task={name}: should be a Task, or a function that makes one, got {type(made).__name__}")
    keys, any_key = _read_by(made)
    reads, unread = (
        ", ".join(key if key in named else f"task_options.{key}" for key in some)
        for some in (keys, [key for key in given if not any_key and key not in keys])
    )
    if unread:
        raise ConfigError(f"task={name} does not read {unread}; it reads {reads or 'no settings'}")
    try:
        inspect.signature(made).bind(**given)
    except TypeError as problem:
        raise ConfigError(f"task={name}: {problem}; it reads {reads or 'no settings'}") from None
    task = made(**given)
    if not isinstance(task, Task):
        raise ConfigError(f"task={name}: should make a Task, got {type(task).__name__}")
    return task


def task_of(settings: Any) -> Task:
    """The task that a command's settings name."""
    chosen = {"held_out": settings.held_out, "options": settings.task_options, "columns": settings.columns}
    return open_task(settings.task, data=settings.data, **chosen)
