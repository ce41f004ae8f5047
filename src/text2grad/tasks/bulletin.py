"""The embedded task: reports of invented incidents; each is to be told in one sentence.

Enters: a seed and a number. Leaves: `Example`s. The prompt is a report and the word "Bulletin:", the reference is a
bulletin that states everything, and the column `facts` is what the critic checks a completion against. The same seed
gives the same examples, one by one: the first ten of a hundred are the ten. Words and wordings are in bulletin.yaml;
critic, metric and `Task` are in `bulletin_critic.py`. Knows no tokenizer and no model.

Full reports contain every fact, and things that lead a hasty reader astray; plain reports have the facts and little
else. Held-out examples are new combinations of known words: a kind of incident at a place where training never has it,
and a number of things that training never has together. Nothing beside the point in a report shows such a combination.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, Literal

import yaml

from text2grad.errors import InvalidData
from text2grad.types import Example

Split = Literal["train", "held_out"]
PersonState = Literal["killed", "hurt", "missing", "trapped", "nobody"]

DATA: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("bulletin.yaml").read_text(encoding="utf-8"))
PLACES: list[str] = DATA["places"]
KINDS: list[tuple[list[str], list[str]]] = [(kind["names"], kind["causes"]) for kind in DATA["kinds"]]
"""Names of each kind of incident, and its possible causes. Most causes belong to several kinds."""
CAUSES = tuple(dict.fromkeys(cause for _, causes in KINDS for cause in causes))
DAYS: list[str] = DATA["days"]
PARTS: list[str] = DATA["parts"]
THINGS: list[str] = DATA["things"]
SITES: list[str] = DATA["sites"]
STATES: tuple[PersonState, ...] = ("killed", "hurt", "missing", "trapped", "nobody")
DAMAGED, PEOPLE = range(2, 41), range(2, 31)
ASK = "\nBulletin:"
"""Ends every prompt. A completion follows behind a space."""
_EVERY = 5
"""Every fifth combination is held out."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened: the truth that a report tells and a bulletin should state."""

    kind: int
    place: str
    day: str
    part: str
    damaged: int
    thing: str
    state: PersonState
    people: int
    cause: str | None
    """None: the report says that it is not known."""
    closed: str | None
    """None: nothing is closed."""

    @property
    def facts(self) -> dict[str, list[str]]:
        """Slot → the values that are right. Slots without a right value are left out."""
        names = {
            "what": list(KINDS[self.kind][0]),
            "where": [self.place],
            "day": [self.day],
            "part": [self.part],
            "damage": [f"{self.damaged} {self.thing}"],
            "people": [people_phrase(str(self.people), self.state)],
            "cause": [self.cause] if self.cause else [],
            "closed": [closed_phrase(self.closed)] if self.closed else [],
        }
        return {slot: values for slot, values in names.items() if values}


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
    name = f"{'bulletin plain' if plain else 'bulletin'} {split} {seed} {index}"
    rng = random.Random(name)
    incident = draw(rng, split)
    facts: dict[str, Any] = {"facts": incident.facts}
    return Example(name.replace(" ", "-"), report(incident, rng, plain) + ASK, write(incident, rng), facts)


def people_phrase(count: str, state: PersonState) -> str:
    """What became of people, as the facts give it."""
    if state == "nobody":
        return "nobody was hurt"
    return f"{count} people {'are' if state == 'missing' else 'were'} {state}"


def closed_phrase(site: str) -> str:
    """What is closed, as the facts give it."""
    return f"the {site} is closed"


def held_out_pair(kind: int, place: str) -> bool:
    """Whether this kind of incident never happens at this place in training."""
    return (PLACES.index(place) + 2 * kind) % _EVERY == 0


def held_out_damage(count: int, thing: str) -> bool:
    """Whether so many of these things are never damaged in training."""
    return (count + 3 * THINGS.index(thing)) % _EVERY == 0


def draw(rng: random.Random, split: Split) -> Incident:
    """An incident of the split: in held-out ones both combinations are new, in training ones neither is held out."""
    if split not in ("train", "held_out"):
        raise InvalidData(f"split: should be 'train' or 'held_out', got {split!r}")
    kind, place = _draw_pair(rng, split == "held_out")
    count, thing = _draw_damage(rng, split == "held_out")
    day, part, state, people = rng.choice(DAYS), rng.choice(PARTS), rng.choice(STATES), rng.choice(PEOPLE)
    cause = rng.choice(KINDS[kind][1]) if rng.random() < 0.85 else None
    closed = rng.choice(SITES) if rng.random() < 0.4 else None
    return Incident(kind, place, day, part, count, thing, state, people, cause, closed)


def _draw_pair(rng: random.Random, held_out: bool = False) -> tuple[int, str]:
    """A kind and a place that training has together, or one that it never has."""
    kind = rng.randrange(len(KINDS))
    return kind, rng.choice([place for place in PLACES if held_out_pair(kind, place) == held_out])


def _draw_damage(rng: random.Random, held_out: bool = False) -> tuple[int, str]:
    """A number and a thing that training has together, or that it never has."""
    thing = rng.choice(THINGS)
    return rng.choice([count for count in DAMAGED if held_out_damage(count, thing) == held_out]), thing


def report(incident: Incident, rng: random.Random, plain: bool = False) -> str:
    """The incident as a reporter tells it; a plain report has the facts and little beside them."""
    sentences, rest = _clauses(incident, rng, plain)
    # A sentence or two that carries two clauses keeps the report within five sentences.
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


def _clauses(incident: Incident, rng: random.Random, plain: bool) -> tuple[list[str], list[str]]:
    """Templates: how the report begins, and what follows."""

    def pick(*keys: str) -> str:
        return str(rng.choice([text for key in keys for text in wordings[key]]))

    wordings: dict[str, Any] = DATA["report"]
    people: list[str] = wordings["people"][incident.state]
    if plain:
        rest, cause, closed = [pick("damage"), rng.choice(people)], pick("cause"), pick("closed")
        rest += [cause] if incident.cause else []
        rest += [closed] if incident.closed else []
        rng.shuffle(rest)
        return [pick("lead")], rest
    lead = [pick("lead")]
    if rng.random() < 0.25:
        lead = [pick("lead_without_time"), pick("time")]
    told = rng.choice(people)
    if incident.state != "nobody" and rng.random() < 0.35:
        told += pick("correction")
    rest = [pick("damage", "damage_astray"), told]
    rest.append(pick("cause", "cause_astray") if incident.cause else pick("no_cause"))
    if incident.closed:
        rest.append(pick("closed"))
    elif rng.random() < 0.4:
        rest.append(pick("open"))
    if rng.random() < 0.7:
        rest.append(pick("scenes"))
    rng.shuffle(rest)
    # Other incidents come last, so that "the cause" is never theirs.
    if rng.random() < 0.8:
        rest.append(pick("asides"))
    return lead, rest


def _fillings(incident: Incident, rng: random.Random) -> dict[str, str]:
    """The words of the templates' holes: the incident's own, and others drawn to go beside them."""
    names, causes = KINDS[incident.kind]
    name = rng.choice(names)
    kind, elsewhere = _draw_pair(rng)
    while elsewhere == incident.place:
        kind, elsewhere = _draw_pair(rng)
    other_name = rng.choice(KINDS[kind][0])
    other_count, other_thing = _draw_damage(rng)
    first, more = (_other_count(rng, incident, low) for low in (2, incident.damaged + 1))
    return {
        **_holes(incident, name),
        "cause": incident.cause or "",
        "site": incident.closed or rng.choice(SITES),
        "who": rng.choice(DATA["who"]),
        "other": str(first),
        "more": str(more),
        "other_people": str(rng.choice([count for count in PEOPLE if count != incident.people])),
        "wrong": rng.choice([cause for cause in causes if cause != incident.cause]),
        "later": rng.choice([day for day in DAYS if day != incident.day]),
        "helpers": rng.choice(DATA["helpers"]),
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


def _filled(shape: str, parts: dict[str, str]) -> str:
    for name, text in parts.items():
        shape = shape.replace(f"{{{name}}}", text)
    return shape


def _wordings(short: bool) -> Iterator[tuple[str, PersonState | None, bool, bool]]:
    """Templates of bulletins: (text, state of people it is for, gives a cause, gives a closure). Those that state
    everything; or, `short`, also those that leave facts out and are still sentences."""
    data = DATA["bulletin"]
    shortest = [""] if short else []
    places, times = [*shortest, data["place"]], [*shortest, data["time"]]
    for shape, place, time, cause, closed in product(data["shapes"], places, times, data["cause"], data["closed"]):
        text, form = shape["text"], data[shape["form"]]
        if cause and "{cause}" not in text and not short:
            continue
        base = _filled(text, {"in": place, "on": time, "cause": cause, "closed": closed})
        for state, people in ((state, words) for state, those in form["people"].items() for words in those):
            filled = _filled(base, {"damage": form["damage"], "people": f" and {people}"})
            yield filled, state, "eason}" in base, bool(closed)
            if short and shape["form"] == "active":
                yield _filled(base, {"damage": "", "people": people}), state, "eason}" in base, bool(closed)
        if short:
            yield _filled(base, {"damage": form["damage"], "people": ""}), None, "eason}" in base, bool(closed)


WORDINGS = tuple(_wordings(short=False))
SENTENCES = tuple(dict.fromkeys(text for text, *_ in (*WORDINGS, *_wordings(short=True))))
"""Every template, including those that leave facts out."""


@cache
def _templates_for(state: PersonState, cause: bool, closed: bool) -> tuple[str, ...]:
    return tuple(text for text, *said in WORDINGS if said == [state, cause, closed])


def write(incident: Incident, rng: random.Random) -> str:
    """A bulletin that states everything, in one of the wordings."""
    name = rng.choice(KINDS[incident.kind][0])
    holes = {
        **_holes(incident, name),
        "A what": capital(f"{article(name)} {name}"),
        "reason": incident.cause or "",
        "Reason": capital(incident.cause or ""),
        "site": incident.closed or "",
    }
    template = rng.choice(_templates_for(incident.state, incident.cause is not None, incident.closed is not None))
    return re.sub(r" ([,;.])", r"\1", _filled(template, holes))


def _holes(incident: Incident, name: str) -> dict[str, str]:
    """The words for the holes that templates of reports and of bulletins share."""
    return {
        "a what": f"{article(name)} {name}",
        "place": incident.place,
        "day": incident.day,
        "part": incident.part,
        "count": str(incident.damaged),
        "thing": incident.thing,
        "n": str(incident.people),
    }


def article(noun: str) -> str:
    """`an explosion`, `a fire`."""
    return "an" if noun[0] in "aeiou" else "a"


def capital(text: str) -> str:
    """With a capital first letter, as at the start of a sentence."""
    return text[:1].upper() + text[1:]
