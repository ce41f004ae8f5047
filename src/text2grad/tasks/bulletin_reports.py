"""Reports of an incident: three to five sentences, in many wordings and orders, with things beside the point.

Enters: an `Incident` and a `random.Random`. Leaves: the report. Every fact of the incident is in it. So is what leads a
hasty reader astray: corrected first counts, other incidents at other places, causes that were ruled out, sites that
stay open, how many came to help. None of that pairs a kind with a place, or a number with a thing, that is held out.
"""

import random

from text2grad.tasks.bulletin_language import article, capital
from text2grad.tasks.bulletin_world import (
    DAYS,
    KINDS,
    PEOPLE,
    SITES,
    Incident,
    draw_damage,
    draw_pair,
    held_out_damage,
)

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
        "a what": f"{article(name)} {name}",
        "place": incident.place,
        "day": incident.day,
        "part": incident.part,
        "count": str(incident.damaged),
        "thing": incident.thing,
        "n": str(incident.people),
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
