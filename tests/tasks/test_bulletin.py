"""The examples: reproducible, varied, true to their facts, and held out by combinations that training never shows."""

import hashlib
import json
import random
import re
from statistics import mean
from typing import Any

import pytest

from text2grad.errors import InvalidData
from text2grad.tasks.bulletin import (
    ASK,
    CAUSES,
    DAYS,
    KINDS,
    PARTS,
    PLACES,
    SITES,
    THINGS,
    WORDINGS,
    article,
    bulletins,
    draw,
    held_out_damage,
    held_out_pair,
    texts,
)
from text2grad.types import Example

TRAIN = bulletins(3, 4000)
HELD_OUT = bulletins(3, 1000, "held_out")
PLAIN = bulletins(3, 1000, plain=True)
KIND_OF = {name: kind for kind, (names, _) in enumerate(KINDS) for name in names}


def facts_of(example: Example) -> dict[str, list[str]]:
    facts: Any = example.columns["facts"]
    return dict(facts)


def words_in(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def report_of(example: Example) -> str:
    assert isinstance(example.prompt, str)
    return example.prompt.removesuffix(ASK)


def test_the_same_seed_gives_the_same_examples_one_by_one() -> None:
    assert bulletins(5, 3) == bulletins(5, 30)[:3]
    assert bulletins(5, 3) != bulletins(6, 3)
    assert len({example.id for example in [*TRAIN, *HELD_OUT, *PLAIN]}) == 6000


@pytest.mark.parametrize(("split", "digest"), [("train", "ecb121e90c26e675"), ("held_out", "c563a6cbbdbfcc55")])
def test_examples_stay_what_they_were(split: Any, digest: str) -> None:
    """Published numbers name a seed: a change of the generator changes the data, and belongs in the changelog."""
    rows = json.dumps([example.to_json() for example in bulletins(0, 50, split)], ensure_ascii=False, sort_keys=True)
    assert hashlib.sha256(rows.encode()).hexdigest()[:16] == digest


def test_an_example_is_kept_whole_by_json() -> None:
    assert Example.from_json(json.loads(json.dumps(TRAIN[0].to_json()))) == TRAIN[0]


def test_sizes_are_those_of_a_small_model() -> None:
    lengths = [len(words_in(report_of(example))) for example in TRAIN]
    assert 50 <= mean(lengths) <= 65 and max(lengths) <= 95 and min(lengths) >= 20
    assert {report_of(example).count(".") for example in TRAIN} == {3, 4, 5}
    bulletin_lengths = [len(words_in(example.reference or "")) for example in TRAIN]
    assert 12 <= mean(bulletin_lengths) <= 22 and max(bulletin_lengths) <= 28 and min(bulletin_lengths) >= 12
    known = {word for text in texts(3, 4000) for word in words_in(text)}
    assert len(known) <= 400
    assert {word for text in texts(3, 1000, "held_out") for word in words_in(text)} <= known


def test_texts_are_prompt_and_reference() -> None:
    assert list(texts(3, 2)) == [f"{example.prompt} {example.reference}" for example in TRAIN[:2]]


def test_the_report_says_every_fact() -> None:
    for example in [*TRAIN, *HELD_OUT, *PLAIN]:
        facts, report = facts_of(example), report_of(example)
        words = set(words_in(report))
        assert set(facts["what"]) & words, report
        assert {*facts["where"], *facts["day"], *facts["part"], *facts["damage"][0].split()} <= words, report
        count = facts["people"][0].split()[0]
        assert {"nobody", "Nobody", "unharmed"} & words if count == "nobody" else count in words, report
        assert all(cause in report.lower() for cause in facts.get("cause", [])), report
        assert all(closed.split()[1] in words for closed in facts.get("closed", [])), report


def test_no_combination_of_the_held_out_is_in_training() -> None:
    def pairs(examples: list[Example]) -> set[tuple[int, str]]:
        return {(KIND_OF[facts["what"][0]], facts["where"][0]) for facts in map(facts_of, examples)}

    def damages(examples: list[Example]) -> set[str]:
        return {facts_of(example)["damage"][0] for example in examples}

    assert not pairs(TRAIN) & pairs(HELD_OUT)
    assert not damages(TRAIN) & damages(HELD_OUT)
    assert len(pairs(HELD_OUT)) == sum(held_out_pair(kind, place) for kind in range(len(KINDS)) for place in PLACES)


def test_training_texts_do_not_show_held_out_combinations_by_the_way_either() -> None:
    names, places, things = "|".join(KIND_OF), "|".join(PLACES), "|".join(THINGS)
    seen = 0
    for text in texts(3, 4000):
        for name, place in re.findall(rf"an? ({names})(?: hurt \d+ people)? in ({places})", text):
            assert not held_out_pair(KIND_OF[name], place), text
        for first, count, thing in re.findall(rf"(\d+ of the )?(\d+) (?:damaged )?({things})", text):
            for number in (count, *re.findall(r"\d+", first)):
                assert not held_out_damage(int(number), thing), text
                seen += 1
    assert seen > 8000


def test_training_shows_every_single_value() -> None:
    seen: dict[str, set[str]] = {}
    for facts in map(facts_of, TRAIN):
        for slot, values in facts.items():
            seen.setdefault(slot, set()).update(values)
    assert seen["what"] == set(KIND_OF)
    assert (seen["where"], seen["day"], seen["part"]) == (set(PLACES), set(DAYS), set(PARTS))
    assert seen["cause"] == set(CAUSES)
    assert seen["closed"] == {f"the {site} is closed" for site in SITES}
    counts, things = zip(*(value.split() for value in seen["damage"]), strict=True)
    assert {int(count) for count in counts} == set(range(2, 41)) and set(things) == set(THINGS)
    held = [facts_of(example) for example in HELD_OUT]
    for slot in ("what", "where", "day", "part", "cause", "closed", "people"):
        assert {value for facts in held for value in facts.get(slot, [])} <= seen[slot]


def test_reports_lead_hasty_readers_astray() -> None:
    """Another place, another number, another cause: most reports have something to be mistaken for a fact."""
    places = numbers = causes = 0
    for example in TRAIN:
        facts, report = facts_of(example), report_of(example)
        places += len(set(words_in(report)) & set(PLACES)) > 1
        numbers += len(set(re.findall(r"\d+", report))) > 1 + ("nobody was hurt" not in facts["people"])
        causes += any(cause in report.lower() for cause in CAUSES if cause not in facts.get("cause", []))
    assert min(places, numbers) > 0.6 * len(TRAIN) and causes > 0.2 * len(TRAIN)


def test_plain_reports_have_nothing_to_be_mistaken_for_a_fact() -> None:
    known = {word for text in texts(3, 4000) for word in words_in(text)}
    for example in PLAIN:
        facts, report = facts_of(example), report_of(example)
        words = set(words_in(report))
        assert words <= known
        assert words & set(PLACES) == set(facts["where"]), report
        stated = {facts["damage"][0].split()[0], facts["people"][0].split()[0]} - {"nobody"}
        assert set(re.findall(r"\d+", report)) == stated, report
        assert {cause for cause in CAUSES if cause in report.lower()} == set(facts.get("cause", [])), report
        assert {f"the {site} is closed" for site in words & set(SITES)} == set(facts.get("closed", [])), report
    assert 30 <= mean(len(words_in(report_of(example))) for example in PLAIN) <= 45
    assert list(texts(3, 2, plain=True)) == [f"{example.prompt} {example.reference}" for example in PLAIN[:2]]
    pairs = {(KIND_OF[facts["what"][0]], facts["where"][0]) for facts in map(facts_of, PLAIN)}
    assert not any(held_out_pair(*pair) for pair in pairs)


def test_bulletins_are_worded_in_many_ways() -> None:
    starts = {" ".join((example.reference or "").split()[:1]) for example in TRAIN}
    assert {"A", "An", "On", "14", "Heavy"} <= starts
    assert len({text for text, *_ in WORDINGS}) == len(WORDINGS) > 150
    assert all(f" {article(name)} {name}" in " ".join(map(report_of, TRAIN)) for name in KIND_OF)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(InvalidData, match="should be 'train' or 'held_out', got 'test'"):
        draw(random.Random(0), "test")  # type: ignore[arg-type]
