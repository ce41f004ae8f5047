"""Which of several given answers a model finds likeliest: metrics for examples with the columns `choices` and `gold`.

Enters: a writer, whose model is asked. Leaves: `Metric`s. They depend on the examples alone, not on what was written.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from text2grad.errors import InvalidData
from text2grad.models.writer import Writer
from text2grad.tasks.task import Mean, Metric
from text2grad.types import Example, Rollout

_LIKELIEST = "Share of examples whose likeliest choice is the right one"
_METRICS = (
    ("choice_accuracy", "Choices right", f"{_LIKELIEST}, by log-prob."),
    ("choice_accuracy_norm", "Choices right, by length", f"{_LIKELIEST}, by log-prob per character."),
    ("gold_logprob", "Log-prob of the right choice", "Mean log-prob per token of the right choice."),
)
"""Key, title and help of the three numbers that are known of an example, in order."""


def has_choices(examples: Iterable[Example]) -> bool:
    return any("choices" in example.columns for example in examples)


def choice_metrics(writer: Writer) -> list[Metric]:
    """Accuracy by the likeliest choice, the same per character, and the log-prob of the right one per token."""
    known: dict[str, tuple[float, ...]] = {}

    def mean(place: int) -> Mean:
        def each(rollouts: Sequence[Rollout]) -> list[float | None]:
            asked = [rollout.example for rollout in rollouts if has_choices([rollout.example])]
            new = list({example.id: example for example in asked if example.id not in known}.values())
            known.update(zip((example.id for example in new), _numbers(writer, new), strict=True))
            found = [known.get(rollout.example.id) for rollout in rollouts]
            return [None if numbers is None else numbers[place] for numbers in found]

        return Mean(each)

    return [Metric(*said, "higher", mean(place)) for place, said in enumerate(_METRICS)]


def _numbers(writer: Writer, examples: Sequence[Example]) -> list[tuple[float, ...]]:
    """For each example: right, right by length, log-prob of the right choice per token."""
    given = [_choices(example) for example in examples]
    pairs = [(example, text) for example, (texts, _) in zip(examples, given, strict=True) for text in texts]
    scored = iter(writer.likelihoods(pairs))
    found = []
    for texts, gold in given:
        sums, tokens = zip(*(next(scored) for _ in texts), strict=True)
        by_length = [total / max(1, len(text)) for total, text in zip(sums, texts, strict=True)]
        right = [float(np.argmax(numbers) == gold) for numbers in (sums, by_length)]
        found.append((*right, sums[gold] / max(1, tokens[gold])))
    return found


def _choices(example: Example) -> tuple[list[str], int]:
    choices, gold = example.columns["choices"], example.columns.get("gold")
    texts = [text for text in choices if isinstance(text, str)] if isinstance(choices, list) else []
    if not texts or texts != choices or not isinstance(gold, int) or not 0 <= gold < len(texts):
        raise InvalidData(f"example {example.id!r}: wants `choices`, a list of texts, and `gold`, an index of it")
    return texts, gold
