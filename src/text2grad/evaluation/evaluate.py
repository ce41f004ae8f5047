"""A model's name and settings → its metrics on a task: what `text2grad evaluate` does, for Python as well.

    results = evaluate("runs/mine", EvaluateSettings(task="bulletin", samples=4, best_of=4))
    results.metrics["best_of/score"]

The rows of metrics are `greedy/…`, `reflection/…`, `samples/…` and `best_of/…`; `infos` says how to read each.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from text2grad import config
from text2grad.errors import ConfigError, CriticError
from text2grad.evaluation.choices import choice_metrics, has_choices
from text2grad.evaluation.evaluator import Evaluation, Evaluator
from text2grad.evaluation.judge import Grades, Verdicts, against, grade, judge_named, texts_against
from text2grad.evaluation.metrics import check_metrics, each_of, metric_infos
from text2grad.evaluation.named import metrics_named
from text2grad.evaluation.settings import EvaluateSettings
from text2grad.feedback.align.locator import locator_of
from text2grad.feedback.critics.named import critic_named, refuse_people
from text2grad.feedback.critics.protocol import Critic, name_of
from text2grad.feedback.judge import RewardFunction, columns_of
from text2grad.feedback.settings import Scoring
from text2grad.models.reward import open_critic
from text2grad.models.writer import Writer
from text2grad.runs.display import Display
from text2grad.runs.world import ALONE, World
from text2grad.tasks.task import Metric, task_of
from text2grad.types import Example, MetricInfo, Rollout

log = logging.getLogger("text2grad")


def _score_error(rollouts: Sequence[Rollout]) -> float | None:
    groups: dict[int, list[float]] = {}
    for rollout in rollouts:
        if rollout.score is not None:
            groups.setdefault(rollout.group, []).append(rollout.score)
    means = [np.mean(scores) for scores in groups.values()]
    return float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None


_BY_CHANCE = "How far the mean score would move by chance with other examples of the same kind."
SCORE_ERROR = Metric("score_error", "Standard error of the score", _BY_CHANCE, "lower", _score_error)


@dataclass(frozen=True, slots=True)
class Results:
    """What `evaluate` measured."""

    model: str
    split: str
    examples: int
    critic: str
    settings: EvaluateSettings
    parts: Mapping[str, Evaluation]
    """`greedy`, and `reflection`, `samples` and `best_of` where they were asked for."""
    infos: Mapping[str, MetricInfo]
    measures: tuple[Metric, ...] = ()
    judged: Verdicts | None = None
    """What the judge says of the greedy completions, where one was asked."""
    grades: Grades | None = None
    seconds: float = 0.0
    """That writing and judging took."""
    failed: str = ""
    """Why the judge or the grader says nothing."""

    @property
    def metrics(self) -> dict[str, float]:
        return {key: value for part in self.parts.values() for key, value in part.metrics.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "task": self.settings.task,
            "split": self.split,
            "examples": self.examples,
            "critic": self.critic,
            "metrics": self.metrics,
            "info": {key: info.to_json() for key, info in self.infos.items() if key in self.metrics},
            "each": {name: each_of(part.rollouts, self.measures) for name, part in self.parts.items()},
            "judge": None if self.judged is None else self.judged.to_json(),
            "grades": None if self.grades is None else self.grades.to_json(),
            "failed": self.failed or None,
            "seconds": self.seconds,
            "settings": config.plain(self.settings),
        }


def evaluate(
    model: str, settings: EvaluateSettings, *, world: World = ALONE, device: str | None = None, show: bool = False
) -> Results:
    """`model`: an alias, a model folder, a run folder, a .gguf file or a hub id. `device`: of this process, where it is
    another than the setting says. With several processes all of them call this, and each gets the results."""
    task = task_of(settings)
    metrics = (*task.metrics, *metrics_named(settings.metrics), SCORE_ERROR)
    split = settings.split or ("validation" if "validation" in task.splits else "train")
    examples = task.examples(split)
    examples = examples[: settings.examples or len(examples)]
    sampled = max(settings.samples, settings.best_of)
    if settings.best_of_critic is not None and not settings.best_of:
        raise ConfigError("best_of_critic picks among samples: set best_of to their number")
    for name in filter(None, (settings.judge, settings.grader)):
        judge_named(name, settings.critics.openai)  # a wrong name or a missing key is told before the work
    texts = texts_against(settings.against, examples) if settings.judge is not None else {}
    with ExitStack() as stack:
        judge = stack.enter_context(_reward_function(settings.critic or task.critic, settings))
        chooser = None
        if settings.best_of_critic is not None:
            chooser = stack.enter_context(_reward_function(settings.best_of_critic, settings))
        writer = Writer.load(model, settings.sampling, settings.format, device or settings.device, settings.dtype)
        metrics = (*metrics, *choice_metrics(writer)) if has_choices(examples) else metrics
        check_metrics(metrics)
        total, began = len(examples) * (1 + settings.reflect + sampled), time.perf_counter()
        with Display("evaluate", total, 0, show=show and world.is_main) as display:
            writer.on_progress = _counted(display, world.size)
            evaluator = Evaluator(examples, judge, metrics=metrics, chooser=chooser, world=world)
            parts = {"greedy": evaluator.greedy(writer, "greedy")}
            if settings.reflect:
                parts["reflection"] = evaluator.reflection(parts["greedy"], writer.reflected)
            parts |= dict(_further_turns(evaluator, writer, parts["greedy"]))
            if sampled:
                samples = evaluator.samples(writer, sampled, seed=settings.seed)
                parts |= {"samples": samples} if settings.samples else {}
                parts |= {"best_of": evaluator.best_of(samples, settings.best_of)} if settings.best_of else {}
    if world.is_main:
        _complain(parts["greedy"].rollouts, judge.critic, examples)
    infos = {key: info for part in parts for key, info in metric_infos(metrics, part).items()}
    seconds, said, grades = time.perf_counter() - began, None, None
    failed: list[str] = []
    if settings.judge is not None and world.is_main:
        with _told(failed):
            said = against(settings.judge, settings.critics.openai, texts, parts["greedy"].rollouts)
    if settings.grader is not None and world.is_main:
        turns = {name: part.rollouts for name, part in parts.items() if name == "greedy" or name.startswith(TURN)}
        with _told(failed):
            grades = grade(settings.grader, settings.critics.openai, turns)
    critic, reasons = name_of(judge.critic), "; ".join(failed)
    return Results(model, split, len(examples), critic, settings, parts, infos, metrics, said, grades, seconds, reasons)


@contextmanager
def _told(failed: list[str]) -> Iterator[None]:
    """A judge that fails costs its own numbers and nothing else; why it failed goes into the list."""
    try:
        yield
    except CriticError as problem:
        failed.append(str(problem))


TURN = "turn_"
"""Of the names of parts: `turn_2` answers the second turn of conversations."""


def _further_turns(evaluator: Evaluator, writer: Writer, first: Evaluation) -> Iterator[tuple[str, Evaluation]]:
    """The answers to the column `turns`, one turn after the other; nothing where no example has it."""
    turn, answered = 2, first
    while asked := [rollout for rollout in answered.rollouts if rollout.example.columns.get("turns")]:
        answered = evaluator.reflection(Evaluation({}, asked), writer.followed, f"{TURN}{turn}")
        yield f"{TURN}{turn}", answered
        turn += 1


def _counted(display: Display, processes: int) -> Callable[[int], None]:
    """Moves the bar. Every process has the same share, so each completion here stands for one of each process."""
    done = 0

    def moved(count: int) -> None:
        nonlocal done
        done += count * processes
        display.step(done, {})

    return moved


def _reward_function(critic: str | Critic, settings: EvaluateSettings) -> RewardFunction:
    refuse_people(critic)
    if isinstance(critic, str):
        critic = critic_named(critic, settings.critics, open_critic)
    return RewardFunction(critic, settings.align, Scoring(), locator=locator_of(settings.align, settings.critics))


def _complain(rollouts: Sequence[Rollout], critic: Critic, examples: Sequence[Example]) -> None:
    """A critic that scores nothing usually lacks a column."""
    if not any(rollout.scored for rollout in rollouts):
        columns = ", ".join(f"`{name}`" for name in columns_of(examples)) or "none"
        told = "the critic %s scored no completion. The columns that the examples have for it are: %s "
        log.warning(told + "(docs/critics.md says what each critic needs)", name_of(critic), columns)
