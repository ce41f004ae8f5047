"""The embedded task: reports of invented incidents, each to be told in one sentence.

Enters: a seed and a number. Leaves: `Example`s, whose prompt is a report and the word "Bulletin:", whose reference is a
bulletin that says all of it, and whose column `facts` is what the critic holds a completion to. The same seed gives the
same examples, one by one: the first ten of a hundred are the ten. Knows no tokenizer and no model.

Held-out examples are new combinations of known words: a kind of incident at a place where training never has it, and a
number of things that training never has together.
"""

import random
from collections.abc import Iterator

from text2grad.tasks.bulletin_language import write
from text2grad.tasks.bulletin_reports import report
from text2grad.tasks.bulletin_world import Split, draw
from text2grad.types import Example

ASK = "\nBulletin:"
"""Ends every prompt. A completion follows behind a space."""


def bulletins(seed: int, count: int, split: Split = "train") -> list[Example]:
    """`count` examples of a split.

    >>> (example,) = bulletins(7, 1)
    >>> example == bulletins(7, 20)[0]
    True
    """
    return [_example(seed, index, split) for index in range(count)]


def texts(seed: int, count: int, split: Split = "train") -> Iterator[str]:
    """Prompt and reference as one text each: for training a tokenizer, or a language model in the supervised way."""
    for example in bulletins(seed, count, split):
        yield f"{example.prompt} {example.reference}"


def _example(seed: int, index: int, split: Split) -> Example:
    # Seeding by a text is by its SHA-512: the same on every machine, and no two of these are neighbours.
    rng = random.Random(f"bulletin {split} {seed} {index}")
    incident = draw(rng, split)
    return Example(
        id=f"bulletin-{split}-{seed}-{index}",
        prompt=report(incident, rng) + ASK,
        reference=write(incident, rng),
        columns={"facts": {slot: list(values) for slot, values in incident.facts.items()}},
    )
