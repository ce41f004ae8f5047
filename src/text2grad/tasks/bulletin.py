"""The embedded task: reports of invented incidents; each is to be told in one sentence.

Enters: a seed and a number. Leaves: `Example`s. The prompt is a report and the word "Bulletin:", the reference is a
bulletin that states everything, and the column `facts` is what the critic checks a completion against. The same seed
gives the same examples, one by one: the first ten of a hundred are the ten. Knows no tokenizer and no model.

Full reports contain every fact, and things that lead a hasty reader astray: corrected first counts, other incidents at
other places, causes that were ruled out, sites that stay open. Plain reports have the facts and little else: a small
model learns to write bulletins from them in a few hundred steps, and then gets facts wrong on full reports.

Held-out examples are new combinations of known words: a kind of incident at a place where training never has it, and a
number of things that training never has together. Nothing beside the point in a report shows such a combination either.
"""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from text2grad.errors import ConfigError
from text2grad.tasks.bulletin_critic import facts_right
from text2grad.tasks.bulletin_world import (
    DAYS,
    KINDS,
    PEOPLE,
    SITES,
    Incident,
    Split,
    article,
    capital,
    draw,
    draw_damage,
    draw_pair,
    held_out_damage,
    holes_of,
    write,
)
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Example

ASK = "\nBulletin:"
"""Ends every prompt. A completion follows behind a space."""
TRAINING_SEEDS, VALIDATION_SEED, TEST_SEED = 100, 8, 9
"""Of the generator. A run's seed is added to the first; the embedded model was trained with the seeds 1 and 2."""
_WHO = ("the police", "the mayor", "an officer", "the council", "a witness", "the local radio")
_HELPERS = ("firefighters", "soldiers", "helpers", "nurses")
_LEAD = (
    "{a what} struck the small town of {place} on {day} {part}",
    "on {day} {part} {a what} hit the town of {place}",
    "{who} in {place} reported {a what} on {day} {part}",
    "there was {a what} in {place} on {day} {part}, {who} said",
    "it was {day} {part} when {a what} shook {place}",
)
_LEAD_WITHOUT_TIME = ("{a what} struck the town of {place}", "{who} reported {a what} in {place}")
_TIME = ("it happened on {day}, in the {part}", "it began in the {part}, on {day}")
_DAMAGE = (
    "{count} {thing} were damaged",
    "{who} counted {count} damaged {thing} in the old part of the town",
    "the damage to {count} {thing} can be seen from far away",
)
_DAMAGE_ASTRAY = (
    "{count} {thing} were damaged, not {other} as first reported",
    "first reports spoke of {other} damaged {thing}, but {who} later counted {count}",
    "{count} of the {more} {thing} in the street were damaged",
)
_PEOPLE = {
    "killed": ("{n} people were killed at once", "{n} people lost their lives", "doctors could not save {n} people"),
    "hurt": ("{n} people were hurt", "doctors treated {n} injured people", "{n} people were taken away with injuries"),
    "missing": (
        "{n} people are missing",
        "nobody has heard from {n} people since",
        "the search for {n} people goes on",
    ),
    "trapped": (
        "{n} people were trapped",
        "{n} people could not get out for hours",
        "it took hours to free {n} people",
    ),
}
_CORRECTION = (
    ", {who} said",
    ", and not {other_people} as {who} said at first",
    ", {who} said, after first speaking of {other_people}",
)
_NOBODY = ("nobody was hurt", "all the people got away unharmed", "{who} said that nobody was hurt")
_CAUSE = (
    "the cause was {cause}",
    "{who} blamed {cause}",
    "{who} put the blame on {cause}",
)
_CAUSE_ASTRAY = (
    "{who} first thought of {wrong}, but it was {cause}",
    "the cause was {cause} and not {wrong}",
)
_NO_CAUSE = (
    "the cause is not known yet",
    "{who} did not say what the cause was",
    "a witness spoke of {wrong}, but the cause is not known yet",
)
_CLOSED = ("the {site} is closed", "the {site} will stay closed until {later}", "the council has shut the {site}")
_OPEN = ("the {site} stays open", "the {site} was closed for an hour but is open again")
_SCENES = (
    "the roads around the town were full for hours",
    "many neighbours came out into the street to look",
    "{who} asked all families in the area to stay at home",
    "the noise was heard as far away as {elsewhere}",
    "a hall in the next street was opened for families",
)
_ASIDES = (
    "{helpers_count} {helpers} came from {elsewhere} to help",
    "a year ago {an incident} in {elsewhere} damaged {other_count} {other_thing}",
    "only last {later} {an incident} hurt {other_people} people in {elsewhere}",
    "the mayor of {elsewhere} sent {helpers_count} {helpers}",
)


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


def report(incident: Incident, rng: random.Random, plain: bool = False) -> str:
    """The incident as a reporter tells it; a plain report has the facts and little beside them."""
    lead, rest = _plain_clauses(incident, rng) if plain else _clauses(incident, rng)
    # A sentence or two that carries two clauses keeps the report within five sentences.
    sentences = list(lead)
    spare = max(0, len(sentences) + len(rest) - rng.choice((3, 4, 5, 5)))
    while rest:
        clause = rest.pop(0)
        if spare and rest:
            clause += rng.choice(("; ", ", and ")) + rest.pop(0)
            spare -= 1
        sentences.append(clause)
    if rng.random() < 0.2:
        sentences.insert(0, sentences.pop())
    return " ".join(f"{capital(sentence.format_map(_fillings(incident, rng)))}." for sentence in sentences)


def _clauses(incident: Incident, rng: random.Random) -> tuple[tuple[str, ...], list[str]]:
    """Templates: how the report begins, and what follows."""
    lead: tuple[str, ...] = (rng.choice(_LEAD),)
    if rng.random() < 0.25:
        lead = (rng.choice(_LEAD_WITHOUT_TIME), rng.choice(_TIME))
    if incident.state == "nobody":
        people = rng.choice(_NOBODY)
    else:
        people = rng.choice(_PEOPLE[incident.state]) + (rng.choice(_CORRECTION) if rng.random() < 0.35 else "")
    rest = [rng.choice(_DAMAGE + _DAMAGE_ASTRAY), people]
    rest.append(rng.choice(_CAUSE + _CAUSE_ASTRAY if incident.cause else _NO_CAUSE))
    if incident.closed:
        rest.append(rng.choice(_CLOSED))
    elif rng.random() < 0.4:
        rest.append(rng.choice(_OPEN))
    if rng.random() < 0.7:
        rest.append(rng.choice(_SCENES))
    rng.shuffle(rest)
    # Other incidents come last, so that "the cause" is never theirs.
    if rng.random() < 0.8:
        rest.append(rng.choice(_ASIDES))
    return lead, rest


def _plain_clauses(incident: Incident, rng: random.Random) -> tuple[tuple[str, ...], list[str]]:
    rest = [rng.choice(_DAMAGE), rng.choice(_NOBODY if incident.state == "nobody" else _PEOPLE[incident.state])]
    rest += [rng.choice(_CAUSE)] * (incident.cause is not None)
    rest += [rng.choice(_CLOSED)] * (incident.closed is not None)
    rng.shuffle(rest)
    return (rng.choice(_LEAD),), rest


def _fillings(incident: Incident, rng: random.Random) -> dict[str, str]:
    """The words of the templates' holes: the incident's own, and others drawn to go beside them."""
    names, causes = KINDS[incident.kind]
    name = rng.choice(names)
    kind, elsewhere = draw_pair(rng)
    while elsewhere == incident.place:
        kind, elsewhere = draw_pair(rng)
    other_name = rng.choice(KINDS[kind][0])
    other_count, other_thing = draw_damage(rng)
    first, more = (_other_count(rng, incident, low) for low in (2, incident.damaged + 1))
    return {
        **holes_of(incident, name),
        "cause": incident.cause or "",
        "site": incident.closed or rng.choice(SITES),
        "who": rng.choice(_WHO),
        "other": str(first),
        "more": str(more),
        "other_people": str(rng.choice([count for count in PEOPLE if count != incident.people])),
        "wrong": rng.choice([cause for cause in causes if cause != incident.cause]),
        "later": rng.choice([day for day in DAYS if day != incident.day]),
        "helpers": rng.choice(_HELPERS),
        "helpers_count": str(rng.randrange(20, 61)),
        "elsewhere": elsewhere,
        "an incident": f"{article(other_name)} {other_name}",
        "other_count": str(other_count),
        "other_thing": other_thing,
    }


def _other_count(rng: random.Random, incident: Incident, low: int) -> int:
    """Another number of the same things, at least `low`, that training may show."""
    counts = range(low, max(low, incident.damaged) + 20)
    return rng.choice([n for n in counts if n != incident.damaged and not held_out_damage(n, incident.thing)])
