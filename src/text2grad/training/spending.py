"""What the model critics of a run cost: an estimate before, one budget for the whole run, a tally. No torch.

Enters: settings and examples, then the run. Leaves: lines for the person who pays, and metrics. The budget covers both
critics of a run, all its processes and every resume: each process writes what it spends to RUN/critic.spent, and may
spend its share of the limits. The critic is asked about every completion of every update, about the held-out ones at
every evaluation, and about those that are cut and written anew to measure hindsight.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from text2grad.errors import CriticError, InvalidData
from text2grad.feedback.align.locator import Locator, locator_of
from text2grad.feedback.critics.budget import Budget, Cost, counted
from text2grad.feedback.critics.learned import is_checkpoint
from text2grad.feedback.critics.named import critic_named, models_in, names_in
from text2grad.feedback.critics.openai import OpenAICritic, server_of
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.judge import RewardFunction, columns_of
from text2grad.feedback.settings import BudgetSettings, CriticSettings
from text2grad.runs.run import Run
from text2grad.types import Example, MetricInfo

METRICS = {
    "critic/requests": MetricInfo(
        "Requests", "Requests to model critics so far, retries and earlier resumes included."
    ),
    "critic/tokens_in": MetricInfo("Tokens sent", "Tokens that were sent to model critics so far."),
    "critic/tokens_out": MetricInfo("Tokens received", "Tokens that came back from model critics so far."),
    "critic/money": MetricInfo("Money", "What the model critics cost so far, by the prices in the settings."),
}
CHARACTERS = 4
"""Of a sampled token, about."""


def estimate(
    settings: Any, examples: Sequence[Example], held_out: Sequence[Example], critic: Critic | str
) -> list[str]:
    """What a run of `train` will ask of its critics; a line for each model that costs something."""
    sampled = settings.updates * settings.prompts * settings.completions
    held = held_out[: settings.evaluation.examples]
    evaluations = 1 + math.ceil(settings.updates / settings.evaluation.every) if held else 0
    cut = settings.log.hindsight * max(0, evaluations - 1) if settings.reward == "span" else 0
    lines = [
        f"{counted(settings.updates, 'update')} x {counted(settings.prompts, 'prompt')} x "
        + counted(settings.completions, "completion")
        + (f", and {evaluations} evaluations of {counted(len(held), 'held-out example')}" if held else "")
        + f": {counted(sampled + evaluations * len(held) + cut, 'completion')} to judge"
    ]
    other = settings.evaluation.critic
    asked = [(model, sampled + cut) for model in priced(critic, settings.critics)]
    asked += [(model, 0) for model in (priced(other, settings.critics) if other is not None else ())]
    if (locator := locator_of(settings.align, settings.critics)) is not None:
        # At most: a critique that quotes what it means asks for nothing.
        asked.append((locator.model, sampled + cut))
    requests, most = 0, Cost(0, 0)
    for model, trained in asked:
        judged = evaluations * len(held)
        characters = trained * _mean_length(examples, model) + judged * _mean_length(held, model)
        characters += (trained + judged) * settings.sampling.max_new_tokens * CHARACTERS
        cost = model.most(round(characters), trained + judged)
        requests += trained + judged
        most = Cost(most.tokens_in + cost.tokens_in, most.tokens_out + cost.tokens_out)
        words = model.budget.estimate(trained + judged, cost)
        lines.append(f"{model.__name__} at {server_of(model.options)}: {words}, if nothing is remembered")
    if (over := over_budget(settings.critics.openai.budget, requests, most)) is not None:
        lines.append(over)
    return lines


def over_budget(limits: BudgetSettings, requests: int, most: Cost) -> str | None:
    """In words, where the budget ends before a run that costs so much does; None where it is enough.

    >>> over_budget(BudgetSettings(requests=5), 100, Cost(0, 0))
    'over the budget: stops after about 5 of 100 requests; critics.openai.budget.requests=100 is enough'
    """
    shares = [
        (limit / wanted, name, wanted)
        for name, limit, wanted in (
            ("requests", limits.requests, requests),
            ("tokens", limits.tokens, most.tokens_in + most.tokens_out),
            ("money", limits.money, most.money(limits)),
        )
        if limit is not None and wanted > limit
    ]
    if not shares:
        return None
    share, name, _ = min(shares)
    stops = "stops" if name == "requests" else "may stop"
    after = f"after about {int(share * requests):,} of {requests:,} requests"
    enough = " ".join(f"critics.openai.budget.{key}={wanted:.12g}" for _, key, wanted in shares)
    return f"over the budget: {stops} {after}; {enough} {'is' if len(shares) == 1 else 'are'} enough"


def check_critic(critic: Critic | str, options: CriticSettings, examples: Sequence[Example]) -> None:
    """Refuse a critic's name that means nothing, and one whose column no example has. Reward models stay closed."""
    if not isinstance(critic, str):
        return
    made = [None if is_checkpoint(part) else critic_named(part, options) for part in names_in(critic)]
    needs = [getattr(part, "needs", None) for part in made]
    columns = columns_of(examples)
    if all(need is not None and need not in columns for need in needs):
        there = ", ".join(f"`{name}`" for name in columns) or "none"
        wanted = " or ".join(dict.fromkeys(f"`{need}`" for need in needs))
        raise InvalidData(
            f"the critic {critic} needs the column {wanted}, and the columns that the examples bring it are: {there} "
            f"(columns.OURS=YOURS names another; docs/critics.md)"
        )


def _mean_length(examples: Sequence[Example], model: OpenAICritic) -> float:
    """Characters of an example that the critic is shown."""
    shown = set(model.options.show)
    lengths = [
        len(prompt_text(example.prompt))
        + (len(example.reference or "") if "reference" in shown else 0)
        + sum(len(str(value)) for name, value in example.columns.items() if name in shown)
        for example in examples
    ]
    return sum(lengths) / max(len(lengths), 1)


def priced(critic: Critic | str, options: CriticSettings) -> list[OpenAICritic]:
    """The model critics in a critic, or in its name."""
    if not isinstance(critic, str):
        return models_in(critic)
    models = [name.removeprefix("openai:") for name in names_in(critic) if name.startswith("openai:")]
    return [OpenAICritic(model, options.openai) for model in models]


class Spending:
    """The budget of one run."""

    def __init__(self, limits: BudgetSettings) -> None:
        self.budget = Budget(limits)
        self.models: list[OpenAICritic] = []

    @contextmanager
    def of(self, run: Run, *critics: Critic | Locator) -> Iterator[None]:
        """Count what these spend, where any of them costs something; say so at the end."""
        self.models = [model for critic in critics for model in models_in(critic)]
        if not self.models:
            yield
            return
        self.budget.limits = budget_share(self.budget.limits, run.world.size, run.world.rank)
        name = "critic" if run.world.is_main else f"critic-{run.world.rank}"
        with self.budget.kept_beside(run.path / name):
            try:
                yield
            finally:
                names = " + ".join(dict.fromkeys(model.__name__ for model in self.models))
                whose = "" if run.world.size == 1 else f", process {run.world.rank} of {run.world.size}"
                run.note(f"{names}{whose}: {self.budget}")
                for locator in dict.fromkeys(critic for critic in critics if isinstance(critic, Locator)):
                    run.note(f"{locator}{whose}")

    def probe(self, run: Run, example: Example, *judges: RewardFunction) -> None:
        """One request to each server, counted in the budget, before anything is loaded: a wrong key, port or path ends
        the run at once."""
        asked = {
            (model.__name__, isinstance(part, Locator)): (judge, model)
            for judge in judges
            for part in judge.asked
            for model in models_in(part)
        }
        for judge, model in asked.values():
            # A budget of its own on the same journal: the run's own begins with what is written there.
            budget = Budget(budget_share(self.budget.limits, run.world.size, run.world.rank))
            kept, model.budget = model.budget, budget
            try:
                with budget.kept_beside(run.path / "critic"):
                    judge.probe(model, example)
            except CriticError:
                if not (budget.earlier or budget.tokens_in or budget.tokens_out):
                    # Nothing was paid: the run leaves nothing behind.
                    budget.journal_of(run.path / "critic").unlink(missing_ok=True)
                raise
            finally:
                model.budget = kept
                judge.close()

    def metrics(self, run: Run) -> dict[str, float]:
        """What was spent so far, by all processes; nothing where nothing costs."""
        if not self.models:
            return {}
        budget = self.budget
        mine = {
            "critic/requests": float(budget.requests),
            "critic/tokens_in": float(budget.tokens_in),
            "critic/tokens_out": float(budget.tokens_out),
        }
        if budget.limits.price_in or budget.limits.price_out:
            mine["critic/money"] = budget.money
        parts = run.world.all_gather(mine)
        return {key: sum(part[key] for part in parts) for key in mine}


def budget_share(limits: BudgetSettings, processes: int, rank: int) -> BudgetSettings:
    """What one of several processes may spend, so that all of them together stay within the limits.

    >>> [budget_share(BudgetSettings(requests=5), 2, rank).requests for rank in (0, 1)]
    [3, 2]
    """

    def share(limit: int | None) -> int | None:
        return None if limit is None else limit // processes + (rank < limit % processes)

    money = None if limits.money is None else limits.money / processes
    return replace(limits, requests=share(limits.requests), tokens=share(limits.tokens), money=money)
