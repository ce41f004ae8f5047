"""The embedded task: reports of invented incidents, each to be told in one sentence.

Enters: a seed and a number. Leaves: `Example`s, whose prompt is a report and the word "Bulletin:", whose reference is a
bulletin that says all of it, and whose column `facts` is what the critic holds a completion to. The same seed gives the
same examples, one by one: the first ten of a hundred are the ten. Knows no tokenizer and no model.

Reports are full, with much beside the point, or plain: the facts and little else. A small model learns to write
bulletins from plain reports in a few hundred steps, and then gets facts wrong on full ones.

Held-out examples are new combinations of known words: a kind of incident at a place where training never has it, and a
number of things that training never has together.
"""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from text2grad.errors import ConfigError
from text2grad.tasks.bulletin_critic import facts_right
from text2grad.tasks.bulletin_language import write
from text2grad.tasks.bulletin_reports import report
from text2grad.tasks.bulletin_world import Split, draw
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Example

ASK = "\nBulletin:"
"""Ends every prompt. A completion follows behind a space."""
TRAINING_SEEDS, VALIDATION_SEED, TEST_SEED = 100, 8, 9
"""Of the generator. A run's seed is added to the first; the embedded model was trained with the seeds 1 and 2."""


def bulletins(seed: int, count: int, split: Split = "train", *, plain: bool = False) -> list[Example]:
    """`count` examples of a split, of full reports or of plain ones.

    >>> (example,) = bulletins(7, 1)
    >>> example == bulletins(7, 20)[0]
    True
    """
    return [_example(seed, index, split, plain) for index in range(count)]


def texts(seed: int, count: int, split: Split = "train", *, plain: bool = False) -> Iterator[str]:
    """Prompt and reference as one text each: for training a tokenizer, or a language model in the supervised way."""
    for example in bulletins(seed, count, split, plain=plain):
        yield f"{example.prompt} {example.reference}"


def _facts_right(example: Example, text: str) -> float:
    facts: Any = example.columns["facts"]
    return facts_right(text, facts)


FACTS_RIGHT = Metric(
    "facts_right",
    "Facts right",
    "Share of the report's facts that the bulletin states correctly and does not contradict.",
    "higher",
    mean_of(_facts_right),
)


def bulletin_task(*, seed: int = 0, count: int = 2000, held_out_count: int = 128, plain: bool = False) -> Task:
    """`task=bulletin`. Training examples are those of the demo with this seed; validation and test examples do not
    depend on it, so that runs with different seeds are measured on the same reports."""
    for name, value in (("seed", seed), ("count", count), ("held_out_count", held_out_count)):
        if not isinstance(value, int) or value < (name != "seed"):
            raise ConfigError(f"task_options.{name}: should be a whole number above 0, got {value!r}")
    return Task(
        "bulletin",
        {
            "train": partial(bulletins, TRAINING_SEEDS + seed, count, plain=plain),
            "validation": partial(bulletins, VALIDATION_SEED, held_out_count, "held_out", plain=plain),
            "test": partial(bulletins, TEST_SEED, held_out_count, "held_out", plain=plain),
        },
        critic="text2grad.tasks.bulletin_critic:bulletin",
        metrics=(FACTS_RIGHT,),
    )


def _example(seed: int, index: int, split: Split, plain: bool) -> Example:
    # Seeding by a text is by its SHA-512: the same on every machine, and no two of these are neighbours.
    kind = "bulletin plain" if plain else "bulletin"
    rng = random.Random(f"{kind} {split} {seed} {index}")
    incident = draw(rng, split)
    return Example(
        id=f"{kind} {split} {seed} {index}".replace(" ", "-"),
        prompt=report(incident, rng, plain) + ASK,
        reference=write(incident, rng),
        columns={"facts": {slot: list(values) for slot, values in incident.facts.items()}},
    )
