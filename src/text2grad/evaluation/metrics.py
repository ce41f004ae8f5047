"""Numbers about a set of rollouts, and how to read each of them. No torch.

Enters: rollouts, judged or not. Leaves: `{key: number}`. `RUNNING` and `MEASURED` declare title, help and direction of
every key, so that a report can draw a metric that it has never heard of. A task's own metrics are `tasks.task.Metric`s.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from text2grad.errors import InvalidData, Text2GradError
from text2grad.feedback.critics.protocol import DEBUG, described
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.text import PIECE
from text2grad.tasks.task import Mean, Metric
from text2grad.types import MetricInfo, Rollout

GRAM = 4
"""Tokens in a row that count as a repetition when they come back in the same completion."""
COPY = 6
"""Words in a row that count as copied when the prompt has them, too; characters, in scripts without spaces."""

RUNNING = {
    "score/mean": MetricInfo("Score", "Mean score that the critic gives to the completions.", "higher"),
    "score/std": MetricInfo("Spread of scores", "Standard deviation of the score over the completions.", "neither"),
    "reward/mean": MetricInfo("Reward", "Mean sum of a completion's token rewards, before the KL penalty.", "higher"),
    "reward/zero_frac": MetricInfo(
        "Without a reward", "Share of scored completions whose token rewards are all 0.", "lower"
    ),
    "critic/unscored_frac": MetricInfo("Unscored", "Share of completions that the critic did not score.", "lower"),
    "align/missed_frac": MetricInfo("Missed quotes", "Share of the critic's quotes that were not located.", "lower"),
    "align/labelled_frac": MetricInfo("Labelled tokens", "Share of tokens inside a good or a poor span.", "neither"),
    "length/mean": MetricInfo(
        "Length", "Tokens per completion. Compare it with the score: short can be a trick.", "neither"
    ),
    "length/truncated_frac": MetricInfo("Truncated", "Share of completions cut off at the length limit.", "lower"),
    "length/empty_frac": MetricInfo("Empty", "Share of completions without a visible character.", "lower"),
    "text/repetition": MetricInfo(
        "Repetition", f"Share of {GRAM}-token stretches that occur before in the same completion.", "lower"
    ),
    "text/diversity": MetricInfo(
        "Diversity", "Different pairs of neighbouring tokens, divided by all pairs, over all completions.", "higher"
    ),
    "text/copied": MetricInfo(
        "Copied", f"Share of words in stretches of {COPY} or more that the prompt has, too.", "neither"
    ),
    "text/linking": MetricInfo(
        "Linking words",
        "Share of words that three of four prompts, or completions of them, hold: the small words that sentences are "
        "made with, in any language. A bare list of values has few. Compare it with the start.",
        "neither",
    ),
}
"""What `describe` gives."""

_MEASURED = {
    "score/mean": "score",
    "score/std": "std",
    "length/mean": "length",
    "length/truncated_frac": "truncated_frac",
    "text/diversity": "diversity",
    "text/repetition": "repetition",
    "text/copied": "copied",
    "text/linking": "linking",
    "critic/unscored_frac": "unscored_frac",
}
MEASURED = {short: RUNNING[key] for key, short in _MEASURED.items()} | {
    "n": MetricInfo("Completions scored", "Completions that the numbers about scores are taken from.", "neither"),
    "critic_score": MetricInfo(
        "Score of the training critic",
        "Mean score by the critic that is trained on, where another critic evaluates. If this one rises and the other "
        "does not, the training critic is being exploited.",
        "higher",
    ),
}
"""What `measured` gives, behind the prefix; and `critic_score`, which the Evaluator adds."""


def describe(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Numbers about the completions of an update: what was not scored, what was missed, how long and how varied."""
    count = max(len(rollouts), 1)
    scored = [rollout for rollout in rollouts if rollout.scored]
    lengths = [len(rollout.completion.token_ids) for rollout in rollouts]
    missed = sum(len(rollout.alignment.missed) for rollout in scored if rollout.alignment)
    located = sum(len(rollout.alignment.spans) for rollout in scored if rollout.alignment)
    labelled = [verdict != 0 for rollout in scored for verdict in rollout.verdicts or ()]
    numbers = {
        "critic/unscored_frac": 1 - len(scored) / count,
        "align/missed_frac": missed / max(missed + located, 1),
        "align/labelled_frac": float(np.mean(labelled)) if labelled else 0.0,
        "length/mean": float(np.mean(lengths)) if lengths else 0.0,
        "length/truncated_frac": sum(rollout.truncated for rollout in rollouts) / count,
        "length/empty_frac": sum(not rollout.completion.text.strip() for rollout in rollouts) / count,
        **text_stats([rollout.completion.token_ids for rollout in rollouts]),
        **word_stats([(prompt_text(rollout.example.prompt), rollout.completion.text) for rollout in rollouts]),
    }
    if scored:
        scores = np.array([rollout.score for rollout in scored], dtype=np.float64)
        sums = np.array([sum(rollout.token_rewards or ()) for rollout in scored])
        numbers |= {
            "score/mean": float(scores.mean()),
            "score/std": float(scores.std()),
            "reward/mean": float(sums.mean()),
            "reward/zero_frac": sum(not any(rollout.token_rewards or ()) for rollout in scored) / len(scored),
        }
    return numbers


def measured(rollouts: Sequence[Rollout], metrics: Iterable[Metric] = (), prefix: str = "held_out") -> dict[str, float]:
    """Numbers about completions that are only evaluated: the general ones, and those that the task declares."""
    general = describe(rollouts)
    numbers = {f"{prefix}/{short}": general[key] for key, short in _MEASURED.items() if key in general}
    numbers[f"{prefix}/n"] = float(sum(rollout.scored for rollout in rollouts))
    for metric in metrics:
        if (number := _number(metric, rollouts)) is not None:
            numbers[f"{prefix}/{metric.key}"] = number
    return numbers


def _number(metric: Metric, rollouts: Sequence[Rollout]) -> float | None:
    """The value of the metric. An exception, or a value that is not finite, is an error that names the metric."""
    try:
        returned = metric.measure(rollouts)
        number = None if returned is None else float(returned)
    except Text2GradError:
        raise
    except Exception as problem:
        raise InvalidData(
            f"the metric {metric.key!r} raised {described(problem)}, asked about {len(rollouts)} completions. Mend it, "
            f"or have it return None where there is nothing to measure; {DEBUG}=1 in the environment shows the whole "
            f"traceback"
        ) from problem
    if number is not None and not math.isfinite(number):
        raise InvalidData(
            f"the metric {metric.key!r} should give a finite number, or None where there is nothing to measure, got "
            f"{number}"
        )
    return number


def each_of(rollouts: Sequence[Rollout], metrics: Iterable[Metric] = ()) -> dict[str, list[Any]]:
    """What is known of every completion by itself: `id`, `text`, and the numbers whose mean is a metric, under the
    metric's key. None: nothing to measure."""
    values: dict[str, list[Any]] = {
        "id": [rollout.example.id for rollout in rollouts],
        "text": [rollout.completion.text for rollout in rollouts],
        "score": [rollout.score for rollout in rollouts],
        "length": [len(rollout.completion.token_ids) for rollout in rollouts],
    }
    return values | {
        metric.key: metric.measure.each(rollouts) for metric in metrics if isinstance(metric.measure, Mean)
    }


def check_metrics(metrics: Iterable[Metric]) -> None:
    """Refuse a metric whose key is already used."""
    seen: set[str] = set()
    for metric in metrics:
        if metric.key in MEASURED:
            built_in = ", ".join(MEASURED)
            raise InvalidData(f"the metric {metric.key!r} is built in; give yours another key than {built_in}")
        if metric.key in seen:
            raise InvalidData(f"the metric {metric.key!r} comes twice; give each its own key")
        seen.add(metric.key)


def metric_infos(metrics: Iterable[Metric] = (), prefix: str = "held_out") -> dict[str, MetricInfo]:
    """Title, help and direction of every key that `measured` can give."""
    metrics, general = list(metrics), MEASURED
    check_metrics(metrics)
    if prefix == "held_out":  # Drawn beside the same numbers of the training.
        general = {key: replace(info, title=f"Held-out {info.title.lower()}") for key, info in MEASURED.items()}
    infos = general | {metric.key: metric.info for metric in metrics}
    return {f"{prefix}/{key}": info for key, info in infos.items()}


def text_stats(completions: Sequence[Sequence[int]]) -> dict[str, float]:
    """Repetition within completions, diversity over all of them; by token ids.

    >>> text_stats([[1, 2, 3, 4, 1, 2, 3, 4], [5, 6]])
    {'text/repetition': 0.2, 'text/diversity': 0.625}
    """
    repeated = stretches = places = 0
    pairs: set[tuple[int, int]] = set()
    for ids in completions:
        # Sets of tuples: numpy's `unique` over rows takes five times as long for so few.
        pairs.update(pairwise(ids))
        places += max(len(ids) - 1, 0)
        grams = list(zip(*(ids[start:] for start in range(GRAM)), strict=False))
        stretches += len(grams)
        repeated += len(grams) - len(set(grams))
    return {
        "text/repetition": repeated / max(stretches, 1),
        "text/diversity": len(pairs) / places if places else 1.0,
    }


def word_stats(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Of (prompt, completion) pairs: how much is copied from the prompt, and how much links the rest. Without two
    different prompts nothing is known about linking words.

    >>> word_stats([("The dam at Norwick broke at noon.", "News: the dam at Norwick broke at noon!")])
    {'text/copied': 0.875}
    >>> word_stats([("The dam broke.", "The dam."), ("The ship sank.", "Ship, sank.")])
    {'text/copied': 0.0, 'text/linking': 0.25}
    """
    sources = {prompt: _words(prompt) for prompt in dict.fromkeys(prompt for prompt, _ in pairs)}
    grams = {prompt: set(_grams(words)) for prompt, words in sources.items()}
    texts = [(prompt, _words(text)) for prompt, text in pairs]
    total = max(sum(len(words) for _, words in texts), 1)
    copied = 0
    for prompt, words in texts:
        inside = [gram in grams[prompt] for gram in _grams(words)]
        copied += sum(any(inside[max(0, place - COPY + 1) : place + 1]) for place in range(len(words)))
    if len(sources) < 2:
        return {"text/copied": copied / total}
    held = {prompt: set(words) for prompt, words in sources.items()}
    for prompt, words in texts:
        held[prompt].update(words)
    counts = Counter(word for words in held.values() for word in words)
    linking = sum(counts[word] >= max(2, 0.75 * len(held)) for _, words in texts for word in words)
    return {"text/copied": copied / total, "text/linking": linking / total}


def _words(text: str) -> list[str]:
    """Words, and characters of scripts without spaces; no signs."""
    return [piece.casefold() for piece in PIECE.findall(text) if piece[0].isalnum() or piece[0] == "_"]


def _grams(words: Sequence[str]) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(COPY)), strict=False))
