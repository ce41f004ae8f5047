"""What can happen in the bulletin task: the values of every slot, an `Incident` made of them, and the held-out rule.

Leaves: pools of words, and incidents drawn from a `random.Random`. Knows no sentence: how a report words an incident is
`bulletin_reports`' business, how a bulletin does is `bulletin_language`'s. All names are invented.
"""

import random
from dataclasses import dataclass
from typing import Literal

from text2grad.errors import InvalidData

Split = Literal["train", "held_out"]
State = Literal["killed", "hurt", "missing", "trapped", "nobody"]

PLACES = (
    "Aldmoor",
    "Birkholm",
    "Brackmoor",
    "Corvane",
    "Dunmarsh",
    "Eastmere",
    "Elmstead",
    "Farrowby",
    "Glenrook",
    "Halden",
    "Hartsea",
    "Ivyford",
    "Jarrowick",
    "Kelmouth",
    "Lorrimer",
    "Marlock",
    "Norwick",
    "Ostby",
    "Pellham",
    "Quarne",
    "Ravensea",
    "Stonley",
    "Tarrow",
    "Ulverby",
    "Vantry",
    "Westrick",
    "Yarrowby",
    "Zellin",
    "Ashbourn",
    "Cradock",
    "Dovermoor",
    "Fenwith",
)
KINDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("fire", "blaze"), ("a broken heater", "an old cable", "a candle", "a lightning strike", "a kitchen accident")),
    (("flood", "deluge"), ("heavy rain", "melting snow", "a broken dam", "a blocked drain", "a burst pipe")),
    (("explosion", "blast"), ("a gas leak", "a faulty boiler", "an old bomb", "stored fuel", "a lightning strike")),
    (("landslide", "mudslide"), ("heavy rain", "melting snow", "a small earthquake", "road works", "a broken dam")),
    (("crash", "collision"), ("thick fog", "icy roads", "a drunk driver", "a burst tyre", "faulty brakes")),
    (("collapse",), ("road works", "heavy snow", "a weak wall", "a small earthquake", "old timber")),
    (("avalanche", "snowslide"), ("heavy snow", "warm wind", "a group of skiers", "a small earthquake", "a loud bang")),
    (("derailment",), ("faulty brakes", "a broken signal", "a fallen tree", "icy rails", "road works")),
    (("riot", "brawl"), ("a lost match", "a price rise", "a rumour", "a power failure", "a loud bang")),
    (("sinkhole",), ("heavy rain", "a burst pipe", "an old mine", "road works", "a blocked drain")),
)
"""Names of each kind of incident, and what can cause it. Most causes belong to several kinds."""
CAUSES = tuple(dict.fromkeys(cause for _, causes in KINDS for cause in causes))
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PARTS = ("morning", "afternoon", "evening", "night")
THINGS = ("houses", "shops", "cars", "barns", "flats", "offices", "trucks", "farms", "garages", "cabins")
SITES = ("school", "bridge", "station", "market", "tunnel", "airport", "library", "hospital", "museum", "harbour")
STATES: tuple[State, ...] = ("killed", "hurt", "missing", "trapped", "nobody")
DAMAGED = range(2, 41)
PEOPLE = range(2, 31)
_EVERY = 5
"""Every fifth combination is held out."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened: the truth that a report tells and that a bulletin is held to."""

    kind: int
    place: str
    day: str
    part: str
    damaged: int
    thing: str
    state: State
    people: int
    cause: str | None
    """None: the report says that it is not known."""
    closed: str | None
    """None: nothing is closed."""

    @property
    def facts(self) -> dict[str, list[str]]:
        """Slot → the values that are right. A slot that is not there has nothing right to say."""
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


def people_phrase(count: str, state: State) -> str:
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
    held_out = split == "held_out"
    kind, place = draw_pair(rng, held_out)
    count, thing = draw_damage(rng, held_out)
    return Incident(
        kind=kind,
        place=place,
        day=rng.choice(DAYS),
        part=rng.choice(PARTS),
        damaged=count,
        thing=thing,
        state=rng.choice(STATES),
        people=rng.choice(PEOPLE),
        cause=rng.choice(KINDS[kind][1]) if rng.random() < 0.85 else None,
        closed=rng.choice(SITES) if rng.random() < 0.4 else None,
    )


def draw_pair(rng: random.Random, held_out: bool = False) -> tuple[int, str]:
    """A kind and a place that go together in training, or that do not."""
    kind = rng.randrange(len(KINDS))
    return kind, rng.choice([place for place in PLACES if held_out_pair(kind, place) == held_out])


def draw_damage(rng: random.Random, held_out: bool = False, thing: str | None = None) -> tuple[int, str]:
    """A number and a thing that go together in training, or that do not; of a given thing, if one is given."""
    thing = thing or rng.choice(THINGS)
    return rng.choice([count for count in DAMAGED if held_out_damage(count, thing) == held_out]), thing
