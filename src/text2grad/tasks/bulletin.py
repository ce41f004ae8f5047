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

from text2grad.tasks.bulletin_language import write
from text2grad.tasks.bulletin_reports import report
from text2grad.tasks.bulletin_world import Split, draw
from text2grad.types import Example

ASK = "\nBulletin:"
"""Ends every prompt. A completion follows behind a space."""


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
