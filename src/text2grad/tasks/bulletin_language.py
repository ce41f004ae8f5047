"""How bulletins are worded: every template, and a writer that fills one.

Enters: an `Incident`. Leaves: one sentence that says all of it. What a text says in this language is for
`bulletin_reader` to find, which learns what follows what from the same templates, and from those that say less.
"""

import random
import re
from collections.abc import Iterator
from functools import cache
from itertools import product

from text2grad.tasks.bulletin_world import KINDS, Incident, State

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
    """Every template that says all, the state of people that it is for, and whether it gives a cause and a closure."""
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
"""Every template, those that leave something out included."""


@cache
def templates_for(state: State, cause: bool, closed: bool) -> tuple[str, ...]:
    """The templates that say just this."""
    return tuple(text for text, *said in WORDINGS if said == [state, cause, closed])


def write(incident: Incident, rng: random.Random) -> str:
    """A bulletin that says all of it, in one of the wordings."""
    templates = templates_for(incident.state, incident.cause is not None, incident.closed is not None)
    name = rng.choice(KINDS[incident.kind][0])
    holes = {
        "A what": f"{article(name).capitalize()} {name}",
        "a what": f"{article(name)} {name}",
        "place": incident.place,
        "day": incident.day,
        "part": incident.part,
        "count": str(incident.damaged),
        "thing": incident.thing,
        "n": str(incident.people),
        "reason": incident.cause or "",
        "Reason": capital(incident.cause or ""),
        "site": incident.closed or "",
    }
    return re.sub(r" ([,;.])", r"\1", _filled(rng.choice(templates), **holes))


def article(noun: str) -> str:
    """`an explosion`, `a fire`."""
    return "an" if noun[0] in "aeiou" else "a"


def capital(text: str) -> str:
    """As a sentence begins with it."""
    return text[:1].upper() + text[1:]
