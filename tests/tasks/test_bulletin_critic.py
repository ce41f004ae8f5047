"""The critic: what it says is so, it quotes exactly, and Q pays for nothing but telling the facts in sentences."""

import random
import re
import sys
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import example as case
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.feedback.align import align
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.settings import CriticSettings
from text2grad.tasks import bulletin_critic
from text2grad.tasks.bulletin import CAUSES, DAYS, KINDS, PARTS, PLACES, SITES, THINGS, bulletins
from text2grad.tasks.bulletin_critic import (
    TRIPLES,
    bulletin,
    bulletin_places,
    facts_right,
    read,
)
from text2grad.tasks.bulletin_critic import bulletin_quality as measured
from text2grad.types import Critique

EXAMPLES = [*bulletins(11, 60), *bulletins(11, 40, "held_out")]
FACTS: dict[str, list[str]] = {
    "what": ["fire", "blaze"],
    "where": ["Norwick"],
    "day": ["Monday"],
    "part": ["night"],
    "damage": ["14 houses"],
    "people": ["3 people were hurt"],
    "cause": ["a broken heater"],
    "closed": ["the school is closed"],
}
TRUE = (
    "A fire in Norwick on Monday night damaged 14 houses and hurt 3 people, caused by a broken heater; "
    "the school is closed."
)
VOCABULARY = sorted(
    {word for example in EXAMPLES for word in (example.reference or "").replace(".", " .").replace(",", " ,").split()}
    | {*PLACES[:3], *DAYS, *PARTS, *THINGS[:2], *SITES[:2], "14", "3", "people", "were", "xyz", "🦩", "Nobody", "the"}
)
MENTIONS = [
    *("fire", "blaze", "flood", "Norwick", "Halden", "on Monday", "on Tuesday", "night", "14 houses", "9 houses"),
    *("hurt 3 people", "3 people were injured", "nobody was hurt", "left 3 people dead", "a broken heater"),
    *(
        "heavy rain",
        "9",
        "people",
        "killed",
        "left",
        "the school is closed",
        "the market is shut",
        "damaged",
        ".",
        ",",
        "A",
        "and",
        "in",
    ),
]
babble = st.lists(st.sampled_from([*VOCABULARY, *MENTIONS]), max_size=40).map(" ".join)
anything = st.one_of(babble, st.text(max_size=80), babble.flatmap(lambda text: st.text(max_size=5).map(text.__add__)))


def judged(completion: str, facts: Any = FACTS) -> Critique:
    critique = measured.judge(completion, facts)
    assert critique is not None
    return critique


def score(completion: str, facts: Any = FACTS) -> float:
    found = judged(completion, facts).score
    assert found is not None
    return found


def facts_of(example: Any) -> Any:
    return example.columns["facts"]


def test_the_feedback_reads_as_a_person_would_write_it() -> None:
    said = judged("A fire in Halden on Monday night damaged 9 houses and hurt 3 people; the school is closed.")
    assert said.feedback == (
        "“fire”, “Monday”, “night”, “hurt 3 people” and “school” are right. "
        "“Halden” is wrong: the report says Norwick. “9 houses” is wrong: the report says 14 houses. "
        "It does not say why."
    )
    assert said.omissions == ("why",)
    assert [(quote.text, quote.verdict, quote.start) for quote in said.quotes[:2]] == [
        ("fire", "good", 2),
        ("Halden", "poor", 10),
    ]
    assert said.quotes[1].comment == "“Halden” is wrong: the report says Norwick."


def test_q_worked_by_hand() -> None:
    """Eight facts: right 1, wrong −1, unsaid −0.6; no whole sentence −0.05; x words that do not fit −2 x / (x + 40)."""
    assert score("") == pytest.approx(-0.6 - 0.05)
    assert score("A fire") == pytest.approx((1 - 4.2) / 8 - 0.05)
    assert score("A flood") == pytest.approx((-1 - 4.2) / 8 - 0.05)
    assert score("A flood hurt 3 people.") == pytest.approx((1 - 1 - 3.6) / 8)
    assert score(TRUE) == 1.0
    assert score(TRUE.replace("Norwick", "Halden")) == pytest.approx(6 / 8)
    assert score("A fire fire") == pytest.approx((1 - 4.2) / 8 - 0.05 - 2 / 41)
    assert score("lorem ipsum") == pytest.approx(-0.6 - 0.05 - 4 / 42)
    without = {slot: values for slot, values in FACTS.items() if slot != "closed"}
    assert score(TRUE, without) == pytest.approx((7 - 1) / 7)
    assert dict(judged("A fire in Norwick damaged the barn.").quality or ()) == pytest.approx(
        {
            0: -0.65,
            2: -0.65,
            6: -3.2 / 8 - 0.05,
            10: -3.2 / 8 - 0.05,
            17: -1.6 / 8 - 0.05,
            26: -1.6 / 8 - 0.05,
            34: -1.6 / 8 - 0.05 - 4 / 42,
            35: -1.6 / 8 - 0.05 - 4 / 42,
        }
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_a_reference_is_the_best_there_is(example: Any) -> None:
    said = judged(example.reference, facts_of(example))
    assert (said.score, said.omissions, {quote.verdict for quote in said.quotes}) == (1.0, (), {"good"})
    assert len(said.quotes) == len(facts_of(example))
    assert facts_right(example.reference, facts_of(example)) == 1.0


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_a_true_prefix_is_never_worse_than_a_shorter_one_nor_than_silence(example: Any) -> None:
    text = example.reference
    ends = [0, *(match.end() for match in re.finditer(r"\w+|[,;.]", text))]
    scores = [score(text[:end], facts_of(example)) for end in ends]
    assert all(b >= a for a, b in pairwise(scores))
    assert scores[0] == min(scores) < scores[-1]


@given(anything)
@case(TRUE)
@case("A fire fire fire")
@case("hurt 3 people were hurt. caused by a flood by a broken")
@case("9 hurt 3 people were hurt nobody killed 3 people 9 heavy rain 14 houses")
@case("\u2028A  fire\n in\tNorwick")
def test_laws_of_quality(completion: str) -> None:
    """It begins with silence and ends with the score, has every boundary of a quote, and is the score of the prefix."""
    critique = measured.judge(completion, FACTS)
    if critique is None:
        assert any("\ud800" <= character <= "\udfff" for character in completion)
        return
    quality = dict(critique.quality or ())
    assert quality[0] == pytest.approx(-0.65) and quality[len(completion)] == critique.score
    assert max(quality) == len(completion)
    for quote in critique.quotes:
        assert quote.start is not None
        end = quote.start + len(quote.text)
        assert completion[quote.start : end] == quote.text
        assert {quote.start, end} <= quality.keys()
        assert (quality[end] > quality[quote.start]) == (quote.verdict == "good")
        assert quote.text in quote.comment or len(quote.text) > 60
    for end, worth in quality.items():
        assert score(completion[:end]) == worth
    assert -3.1 <= score(completion) <= 1.0


@given(anything)
def test_only_true_facts_are_better_than_silence(completion: str) -> None:
    said = measured.judge(completion, FACTS)
    if said is not None and facts_right(completion, FACTS) == 0:
        assert said.score is not None and said.score <= score("")


@given(babble, babble)
def test_saying_more_never_helps_a_fact_that_has_been_said(first: str, second: str) -> None:
    """The end of a sentence apart, which is paid once a text has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulletin_critic, "UNFINISHED", 0.0)
        less, more = measured.judge(first, FACTS), measured.judge(f"{first} {second}", FACTS)
    new = {m.slot for m in read(f"{first} {second}").mentions} - {m.slot for m in read(first).mentions}
    assert less is not None and less.score is not None and more is not None and more.score is not None
    assert new or more.score <= less.score


@given(anything)
def test_every_quote_becomes_a_span_with_its_verdict(completion: str) -> None:
    said = measured.judge(completion, FACTS)
    if said is None:
        return
    found = align(completion, said)
    assert found.missed == ()
    assert [(span.start, span.slice(completion), span.verdict, span.provenance) for span in found.spans] == [
        (quote.start, quote.text, quote.verdict, "exact") for quote in said.quotes
    ]


SWAPS = [
    ("fire", "flood"),
    ("Norwick", "Halden"),
    ("Monday", "Tuesday"),
    ("night", "morning"),
    ("14 houses", "9 houses"),
    ("14 houses", "14 barns"),
    ("hurt 3 people", "hurt 4 people"),
    ("hurt 3 people", "killed 3 people"),
    ("hurt 3 people", "hurt nobody"),
    ("a broken heater", "an old cable"),
    ("the school", "the bridge"),
]


@pytest.mark.parametrize(("right", "wrong"), SWAPS)
def test_one_swapped_fact_costs_two_eighths(right: str, wrong: str) -> None:
    said = judged(TRUE.replace(right, wrong))
    assert said.score == pytest.approx(6 / 8)
    (poor,) = [quote for quote in said.quotes if quote.verdict == "poor"]
    assert "is wrong: the report says" in poor.comment
    assert facts_right(TRUE.replace(right, wrong), FACTS) == 7 / 8


@pytest.mark.parametrize(("right", "wrong"), SWAPS)
def test_a_second_value_costs_whichever_comes_first(right: str, wrong: str) -> None:
    for both in (f"{right} and {wrong}", f"{wrong} and {right}"):
        text = TRUE.replace(right, both)
        assert score(text) < score(TRUE.replace(right, wrong)) < score(TRUE)
        assert facts_right(text, FACTS) == 7 / 8


@pytest.mark.parametrize(
    "listed",
    [
        TRUE.replace("14 houses", "9 and 14 houses"),
        TRUE.replace("14 houses", "13 14 15 16 17 14 houses"),
        TRUE.replace("14 houses", "9 or, 14 houses"),
        TRUE.replace("hurt 3", "killed and hurt 3"),
        TRUE.replace("hurt 3 people", "hurt 2, 3 people"),
        TRUE.replace("the school", "the bridge and the school"),
    ],
)
def test_several_guesses_at_once_are_wrong(listed: str) -> None:
    assert score(listed) < 6 / 8
    assert facts_right(listed, FACTS) == 7 / 8


def test_listing_every_value_does_not_pay() -> None:
    for values in (PLACES, DAYS, [names[0] for names, _ in KINDS], CAUSES, [f"{n} houses" for n in range(2, 41)]):
        assert score(f"A {' and '.join(values)}") < score("")


def test_repeating_what_is_right_costs_each_time() -> None:
    scores = [score(TRUE + " A fire in Norwick." * times) for times in range(20)]
    assert all(b < a for a, b in pairwise(scores))
    assert scores[-1] < 0
    assert judged(TRUE + " Norwick").quotes[-1].comment == "“Norwick” is said again."


@pytest.mark.parametrize(
    ("garbled", "quoted"),
    [
        ("A fire in in Norwick", "in"),
        ("A fire the the Norwick", "the the"),
        ("A fire in Norwick on Monday night damaged 14 houses houses", "houses"),
        ("A fire burnt in Norwick", "burnt"),
        ("A fire in Norwick on Monday night 14 houses", None),
        ("A fire in Norwick damaged on Monday", "on"),
        ("A explosion in Norwick", None),
    ],
)
def test_garbled_language_costs_a_little_and_is_quoted(garbled: str, quoted: str | None) -> None:
    said = judged(garbled)
    clean = {**FACTS, "what": [*FACTS["what"], "explosion"]}
    facts = len({mention.slot for mention in read(garbled).mentions})
    worth = (facts - 0.6 * (8 - facts)) / 8 - 0.05
    assert -0.16 < score(garbled, clean) - worth < -0.04
    faults = [quote for quote in said.quotes if quote.comment.endswith("does not make a sentence.")]
    assert [quote.text for quote in faults] == ([quoted] if quoted else [])
    if not quoted:
        assert "does not fit where it stands" in judged(garbled, clean).feedback


def test_a_sentence_without_its_subject_or_its_verb_is_not_whole() -> None:
    assert "the end of a whole sentence" in judged("and hurt nobody.").omissions
    assert "the end of a whole sentence" not in judged("A fire hurt nobody.").omissions
    assert judged("A fire in Norwick on Monday night.").feedback.endswith("It is not a whole sentence.")
    assert "the end of a whole sentence" in judged("A fire in Norwick on Monday night.").omissions
    assert "the end of a whole sentence" not in judged(TRUE).omissions
    assert score(TRUE) - score(TRUE[:-1]) == pytest.approx(0.05)


def test_incomplete_is_better_than_garbled_is_better_than_garbage() -> None:
    incomplete = "A fire in Norwick damaged 14 houses and hurt 3 people."
    garbled = "fire Norwick damaged damaged 14 houses 3 people"
    assert 1 > score(incomplete) > score(garbled) > score("") > score("x y z")


@pytest.mark.parametrize("between", [" ", ", ", " - ", "\n", ". ", " and ", "; ", " in ", " the "])
def test_a_bare_list_of_right_values_does_not_pay(between: str) -> None:
    """All facts right, and yet less than the demo's trained model has (0.22), and far less than the sentence."""
    lists = [(between.join(values[0] for values in facts_of(example).values()), example) for example in EXAMPLES]
    assert all(facts_right(text, facts_of(example)) == 1 for text, example in lists)
    assert max(score(text, facts_of(example)) for text, example in lists) < 0.2
    assert all(score(text, facts_of(example)) > score("", facts_of(example)) for text, example in lists)


def test_a_slip_is_forgiven_once() -> None:
    """Three facts of eight. "14 houses" stands where it does not fit, then the place does as well."""
    assert score("A fire on Monday 14 houses") == pytest.approx((3 - 3.0) / 8 - 0.05 - 2 / 41)
    assert score("A fire on Monday 14 houses Norwick") == pytest.approx((3 + 0 - 2.4) / 8 - 0.05 - 4 / 42)


def test_no_sentence_goes_on_for_ever_without_stating_facts() -> None:
    """Every circle of three-word steps passes through the end of a mention, so it is caught repeating itself."""
    ends = {mention for example in EXAMPLES for mention in _last_codes(example.reference or "")}
    steps = {(t[:2], t[1:]) for t in TRIPLES if t[2] not in ends}
    reach = {step for step, _ in steps} | {step for _, step in steps}
    while True:
        dead = {state for state in reach if not any(a == state and b in reach for a, b in steps)}
        if not dead:
            break
        reach -= dead
    assert not reach
    assert len(steps) > 50


def _last_codes(text: str) -> list[str]:
    reading = read(text)
    return [reading.codes[mention.last - 1] for mention in reading.mentions]


@pytest.mark.parametrize(
    "garbage",
    [
        "🦩" * 5000,
        "\x00\x01",
        "a" * 100_000,
        "." * 20_000,
        "the " * 20_000,
        "١٤ houses",
        "éàü " * 3000,
        TRUE * 200,
        "\n",
    ],
    ids=range(9),
)
def test_garbage_of_any_size_never_scores(garbage: str) -> None:
    assert score(garbage) <= 0
    assert len(judged(garbage).feedback) < 2500


def test_half_a_surrogate_pair_is_not_scored() -> None:
    assert bulletin([""], ["A fire \ud83e"], facts=[FACTS]) == [None]


def test_the_demos_critic_gives_sentences_and_a_score_and_nothing_else() -> None:
    (said,) = bulletin([""], ["A fire in Halden"], facts=[FACTS])
    whole = judged("A fire in Halden")
    assert said == Critique(whole.feedback, score=whole.score) and whole.quotes and whole.quality
    (placed,) = bulletin_places([""], ["A fire in Halden"], facts=[FACTS])
    assert placed == replace(whole, quality=None)


def test_no_facts_no_score_and_each_item_is_judged_alone() -> None:
    texts = [TRUE, "A flood", TRUE]
    together = measured(["", "", ""], texts, facts=[FACTS, FACTS, None])
    assert together == [judged(TRUE), judged("A flood"), None]
    assert bulletin([""], [TRUE]) == [None]


def test_it_can_be_named_on_the_command_line() -> None:
    assert critic_named("text2grad.tasks.bulletin_critic:bulletin", CriticSettings()) is bulletin


@pytest.mark.parametrize("facts", ["fire", {"who": ["me"]}, {"what": "fire"}, {"what": []}, {"what": [3]}, 3])
def test_facts_of_another_kind_are_refused(facts: Any) -> None:
    with pytest.raises(InvalidData, match="item 1: facts should map some of what, where"):
        bulletin(["", ""], ["", ""], facts=[FACTS, facts])


def test_work_grows_with_length_and_no_faster() -> None:
    """Lines run by the task's own code, counted: four times the text, four times the lines."""
    rng = random.Random(0)
    for words in ([rng.choice(MENTIONS) for _ in range(400)], ["x", "in"] * 200, TRUE.split() * 20):
        once, four = lines_run(" ".join(words)), lines_run(" ".join(words * 4))
        assert once > 400 and four < 4.2 * once


def lines_run(completion: str) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "bulletin" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        measured.judge(completion, FACTS)
    finally:
        sys.settrace(before)
    return count
