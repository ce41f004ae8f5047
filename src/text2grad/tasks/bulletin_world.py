"""The language of the bulletin task: what can happen, and how a bulletin words it.

Leaves: pools of words, an `Incident` drawn from a `random.Random`, the rule for what is held out, every wording of a
bulletin, and a writer that fills one. How a report tells an incident is in `bulletin.py`. All names are invented.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from text2grad.errors import InvalidData

Split = Literal["train", "held_out"]
State = Literal["killed", "hurt", "missing", "trapped", "nobody"]

_PLACES = """
Aldmoor Birkholm Brackmoor Corvane Dunmarsh Eastmere Elmstead Farrowby Glenrook Halden Hartsea
Ivyford Jarrowick Kelmouth Lorrimer Marlock Norwick Ostby Pellham Quarne Ravensea Stonley
Tarrow Ulverby Vantry Westrick Yarrowby Zellin Ashbourn Cradock Dovermoor Fenwith
"""
PLACES = tuple(_PLACES.split())
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
"""Names of each kind of incident, and its possible causes. Most causes belong to several kinds."""
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
    """What happened: the truth that a report tells and a bulletin should state."""

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
    """A kind and a place that training has together, or one that it never has."""
    kind = rng.randrange(len(KINDS))
    return kind, rng.choice([place for place in PLACES if held_out_pair(kind, place) == held_out])


def draw_damage(rng: random.Random, held_out: bool = False) -> tuple[int, str]:
    """A number and a thing that training has together, or that it never has."""
    thing = rng.choice(THINGS)
    return rng.choice([count for count in DAMAGED if held_out_damage(count, thing) == held_out]), thing


_ACTIVE: dict[State, tuple[str, ...]] = {
    "killed": ("killed {n} people", "left {n} people dead"),
    "hurt": ("hurt {n} people", "injured {n} people"),
    "missing": ("left {n} people missing",),
    "trapped": ("trapped {n} people",),
    "nobody": ("hurt nobody",),
}
_PASSIVE: dict[State, tuple[str, ...]] = {
    "killed": ("{n} people were killed",),
    "hurt": ("{n} people were hurt", "{n} people were injured"),
    "missing": ("{n} people are missing",),
    "trapped": ("{n} people were trapped",),
    "nobody": ("nobody was hurt",),
}
_SHAPES = (
    ("{A what}{in}{on} {damage}{people}{cause}{closed} .", "damaged {count} {thing}", _ACTIVE),
    ("On {day} {part} , {a what}{in} {damage}{people}{cause}{closed} .", "damaged {count} {thing}", _ACTIVE),
    ("{damage}{people} in {a what}{in}{on}{cause}{closed} .", "{count} {thing} were damaged", _PASSIVE),
    ("{Reason} caused {a what}{in}{on} that {damage}{people}{closed} .", "damaged {count} {thing}", _ACTIVE),
)
_IN, _ON = " in {place}", " on {day} {part}"
_CAUSE = ("", " , caused by {reason}", " because of {reason}")
_CLOSED = ("", " ; the {site} is closed", " , and the {site} is shut")


def _filled(shape: str, **parts: str) -> str:
    for name, text in parts.items():
        shape = shape.replace(f"{{{name}}}", text)
    return shape


def _wordings() -> Iterator[tuple[str, State, bool, bool]]:
    """Templates that state everything: (text, state of people it is for, gives a cause, gives a closure)."""
    for (shape, damage, forms), cause, closed in product(_SHAPES, _CAUSE, _CLOSED):
        if cause and "{cause}" not in shape:
            continue
        base = _filled(shape, damage=damage, cause=cause, closed=closed, **{"in": _IN, "on": _ON})
        for state, people in ((state, form) for state, those in forms.items() for form in those):
            yield base.replace("{people}", f" and {people}"), state, "eason}" in base, bool(closed)


def _shorter() -> Iterator[str]:
    """Templates that leave facts out and are still sentences."""
    for (shape, damage, forms), place, time, cause, closed in product(_SHAPES, ("", _IN), ("", _ON), _CAUSE, _CLOSED):
        base = _filled(shape, cause=cause, closed=closed, **{"in": place, "on": time})
        yield _filled(base, damage=damage, people="")
        for people in (form for those in forms.values() for form in those):
            yield _filled(base, damage=damage, people=f" and {people}")
            if forms is _ACTIVE:
                yield _filled(base, damage="", people=people)


WORDINGS = tuple(_wordings())
SENTENCES = tuple(dict.fromkeys((*(text for text, *_ in WORDINGS), *_shorter())))
"""Every template, including those that leave facts out."""


@cache
def templates_for(state: State, cause: bool, closed: bool) -> tuple[str, ...]:
    """The templates for incidents of this kind."""
    return tuple(text for text, *said in WORDINGS if said == [state, cause, closed])


def write(incident: Incident, rng: random.Random) -> str:
    """A bulletin that states everything, in one of the wordings."""
    name = rng.choice(KINDS[incident.kind][0])
    holes = {
        **holes_of(incident, name),
        "A what": capital(f"{article(name)} {name}"),
        "reason": incident.cause or "",
        "Reason": capital(incident.cause or ""),
        "site": incident.closed or "",
    }
    template = rng.choice(templates_for(incident.state, incident.cause is not None, incident.closed is not None))
    return re.sub(r" ([,;.])", r"\1", _filled(template, **holes))


def holes_of(incident: Incident, name: str) -> dict[str, str]:
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
