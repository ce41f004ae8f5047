"""Which of several given answers a model finds likeliest: metrics for examples with the columns `choices` and `gold`.

Enters: a writer, whose model is asked. Leaves: `Metric`s. They depend on the examples alone, not on what was written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from text2grad.errors import InvalidData
from text2grad.models.writer import Writer
from text2grad.tasks.task import Mean, Metric
from text2grad.types import Example, Rollout


class Likelihoods(NamedTuple):
    """Of one example's choices."""

    gold: int
    sums: list[float]
    """Log-prob of each choice."""
    tokens: list[int]
    characters: list[int]

    @property
    def right(self) -> float:
        return float(_first(self.sums) == self.gold)

    @property
    def right_by_length(self) -> float:
        return float(_first([s / max(1, n) for s, n in zip(self.sums, self.characters, strict=True)]) == self.gold)

    @property
    def gold_logprob(self) -> float:
        return self.sums[self.gold] / max(1, self.tokens[self.gold])


def has_choices(examples: Sequence[Example]) -> bool:
    return any("choices" in example.columns for example in examples)


def choice_metrics(writer: Writer) -> list[Metric]:
    """Accuracy by the likeliest choice, the same per character, and the log-prob of the right one per token."""
    known: dict[str, Likelihoods] = {}

    def read(rollouts: Sequence[Rollout]) -> list[Likelihoods | None]:
        asked = [rollout.example for rollout in rollouts if "choices" in rollout.example.columns]
        new = list({example.id: example for example in asked if example.id not in known}.values())
        known.update(zip((example.id for example in new), _likelihoods(writer, new), strict=True))
        return [known.get(rollout.example.id) for rollout in rollouts]

    def mean(name: str) -> Mean:
        return Mean(lambda rollouts: [None if one is None else getattr(one, name) for one in read(rollouts)])

    likeliest = "Share of examples whose likeliest choice is the right one"
    return [
        Metric("choice_accuracy", "Choices right", f"{likeliest}, by log-prob.", "higher", mean("right")),
        Metric(
            "choice_accuracy_norm",
            "Choices right, by length",
            f"{likeliest}, by log-prob per character.",
            "higher",
            mean("right_by_length"),
        ),
        Metric(
            "gold_logprob",
            "Log-prob of the right choice",
            "Mean log-prob per token of the right choice.",
            "higher",
            mean("gold_logprob"),
        ),
    ]


def _likelihoods(writer: Writer, examples: Sequence[Example]) -> list[Likelihoods]:
    pairs = []
    for example in examples:
        choices, gold = example.columns["choices"], example.columns.get("gold")
        texts = [text for text in choices if isinstance(text, str)] if isinstance(choices, list) else []
        if not texts or texts != choices or not isinstance(gold, int) or not 0 <= gold < len(texts):
            raise InvalidData(f"example {example.id!r}: wants `choices`, a list of texts, and `gold`, an index of it")
        pairs += [(example, text) for text in texts]
    scored = iter(writer.likelihoods(pairs))
    found = []
    for example in examples:
        texts = [str(text) for text in example.columns["choices"]]  # type: ignore[union-attr]
        numbers = [next(scored) for _ in texts]
        gold = int(example.columns["gold"])  # type: ignore[arg-type]
        found.append(Likelihoods(gold, [s for s, _ in numbers], [n for _, n in numbers], [len(t) for t in texts]))
    return found


def _first(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)
