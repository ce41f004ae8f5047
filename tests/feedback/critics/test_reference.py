"""The critic `reference`: Q on prefixes, worked by hand; laws of quotes and quality; what cannot be optimal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad import align
from text2grad.errors import InvalidData
from text2grad.feedback.critics import ask_now
from text2grad.feedback.critics.reference import ReferenceCritic
from text2grad.feedback.settings import ReferenceSettings
from text2grad.types import Critique, Message

HARBOUR = "Nine ships left the harbour on Monday."
SOURCE = (
    "The harbour master said on Tuesday that nine ships had left the harbour on Monday, a day before the storm that "
    "closed all ports of the coast for a week and sank two barges at the quay of the old town."
)
TEXTS = st.text(max_size=80) | st.lists(
    st.sampled_from(
        [
            "the",
            "ships",
            "left",
            "Nine",
            "harbour.",
            "storm,",
            "漢字",
            "don’t",
            "🦩",
            "a\nb",
            "e\u0301",
            "Dr.",
            "x_y",
            "1,000",
        ]
    )
).map(" ".join)


def judge(completion: str, reference: Any = HARBOUR, prompt: Any = "", **columns: Any) -> Critique | None:
    settings = columns.pop("settings", None)
    (critique,) = ask_now(
        ReferenceCritic(settings),
        [prompt],
        [completion],
        {"reference": [reference], **{name: [value] for name, value in columns.items()}},
    )
    return critique


def score(completion: str, reference: Any = HARBOUR, **columns: Any) -> float:
    critique = judge(completion, reference, **columns)
    assert critique is not None and critique.score is not None
    return critique.score


def said(critique: Critique | None, verdict: str) -> list[str]:
    assert critique is not None
    return [quote.text for quote in critique.quotes if quote.verdict == verdict]


def test_q_worked_by_hand() -> None:
    """Reference: nine ships left (weight 3), pairs nine-ships, ships-left (weight 2). Completion: nine ships sank.
    Words: right 2, said 3, so F = 2·2/(3+3) = 2/3. Pairs: right 1 of 2 said, so F = 2·1/(2+2) = 1/2. Q = 7/12."""
    assert score("Nine ships sank.", "Nine ships left.") == pytest.approx(7 / 12)


def test_function_words_weigh_a_quarter() -> None:
    """Words: the (1/4) and ship (1) of 5/4 wanted; said: a (1/4), ship (1). F = 2·1/(5/4 + 5/4) = 4/5. No pair."""
    assert score("a ship", "the ships") == pytest.approx(0.5 * 4 / 5)


def test_a_word_counts_as_often_as_the_reference_has_it() -> None:
    """Words: right 1 of 2 said and 2 wanted, so F = 2·1/(2+2) = 1/2. Pairs: none right. Q = 1/4."""
    assert score("ships, ships", "ships left") == pytest.approx(1 / 4)


def test_a_pair_counts_as_often_as_the_reference_has_it() -> None:
    """Words: right 2 of 4 said and 3 wanted, F = 4/7. Pairs: ships-left right once of 3 said and 2 wanted, F = 2/5."""
    assert score("ships left, ships left", "ships left soon") == pytest.approx((4 / 7 + 2 / 5) / 2)


def test_the_reference_itself_is_best() -> None:
    assert score(HARBOUR) == 1.0
    assert score("storm", "storm") == 1.0, "one word has no pairs"


@pytest.mark.parametrize("worse", ["", "  \n", SOURCE, "Rain.", "the of the of and"])
def test_neither_silence_nor_copying_is_optimal(worse: str) -> None:
    assert score(worse, source=SOURCE) < score("Nine ships left before a storm.", source=SOURCE) < 1


@pytest.mark.parametrize("padding", [HARBOUR, "the of the of and", SOURCE])
def test_adding_to_the_reference_costs(padding: str) -> None:
    assert score(f"{HARBOUR} {padding}", source=SOURCE) < score(HARBOUR, source=SOURCE)


def test_silence_is_scored_and_is_told_what_is_missing() -> None:
    critique = judge("")
    assert critique is not None
    assert (critique.score, critique.quality, critique.quotes) == (0.0, ((0, 0.0),), ())
    assert critique.omissions == ("Nine ships left the harbour on Monday",)
    assert "says nothing" in critique.feedback


@pytest.mark.parametrize("reference", [None, "", " \n", [], [""], "…"])
def test_no_reference_no_score(reference: Any) -> None:
    assert judge("Nine ships left.", reference) is None
    assert ask_now(ReferenceCritic(), [""], ["Nine ships left."], {}) == [None]


def test_a_reference_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"item 0: reference should be a text, .* got 7"):
        judge("Nine ships left.", 7)


def test_what_is_captured_unsupported_repeated_and_missing() -> None:
    text = "Seven ships left the harbour. The storm sank Atlantis. Seven ships left the harbour."
    critique = judge(text, source=SOURCE)
    assert said(critique, "good") == ["ships left the harbour"]
    assert said(critique, "poor") == ["Seven", "Atlantis", "Seven ships left the harbour"]
    assert critique is not None and critique.omissions == ("Nine", "Monday")
    assert critique.feedback == (
        "“ships left the harbour” is in the reference. “Seven” and “Atlantis” are in neither the reference nor the "
        "source. “Seven ships left the harbour” repeats what was said before. The reference also has “Nine” and "
        "“Monday”, missing here."
    )


def test_words_of_the_source_are_not_unsupported_wherever_it_stands() -> None:
    text = "Two barges sank."
    messages = [Message("system", "Be short."), Message("user", SOURCE)]
    for columns in ({"source": SOURCE}, {"passages": [SOURCE]}, {"passages": [["A title", SOURCE]]}):
        assert said(judge(text, **columns), "poor") == []
    assert said(judge(text, prompt=messages), "poor") == []
    assert said(judge(text, source=SOURCE.replace("barges", "boats")), "poor") == ["barges"]


def test_words_that_the_reference_does_not_have_are_named_if_asked_for() -> None:
    text = "Two barges left the harbour. Atlantis left, too."
    plain, asked = judge(text, source=SOURCE), judge(text, source=SOURCE, settings=ReferenceSettings(beside=0.5))
    assert plain is not None and asked is not None
    # "Atlantis" is in neither text, which is worse: no severity. The second "left" is said too often, and not new.
    assert [(quote.text, quote.severity) for quote in asked.quotes if quote.verdict == "poor"] == [
        ("Two barges", 0.5),
        ("Atlantis", None),
    ]
    assert said(plain, "poor") == ["Atlantis"]
    assert "“Two barges” is not in the reference." in asked.feedback
    assert asked.score == plain.score, "they cost the same either way"
    # Without a source nothing is called unsupported, so what is invented is named here.
    alone = judge(text, settings=ReferenceSettings(beside=0.5))
    assert alone is not None
    assert [(quote.text, quote.severity) for quote in alone.quotes if quote.verdict == "poor"] == [
        ("Two barges", 0.5),
        ("Atlantis", 0.5),
    ]


def test_a_bare_instruction_is_no_source() -> None:
    assert said(judge("Dragons came.", prompt="Summarise."), "poor") == []
    assert said(judge("Dragons came.", prompt="Summarise.", settings=ReferenceSettings(thin=0)), "poor") == [
        "Dragons came"
    ]


def test_the_nearest_of_several_references_counts() -> None:
    two = ["A dam broke.", HARBOUR]
    critique = judge("Nine ships left.", two)
    assert critique is not None and critique.score == score("Nine ships left.", HARBOUR)
    assert critique.omissions == ("harbour on Monday",)


def test_a_doubled_word_is_repeated_unless_the_reference_doubles_it() -> None:
    assert said(judge("Nine ships ships left."), "poor") == ["ships"]
    assert said(judge("New York, New York sleeps.", "New York, New York never sleeps."), "poor") == []
    assert said(judge("bye bye now", "He said bye bye."), "poor") == []


def test_han_is_compared_by_character() -> None:
    critique = judge("九艘船离开了港口。", "九艘船在周一离开港口。")
    assert said(critique, "good") == ["九艘船离开", "港口"]
    assert critique is not None and critique.score is not None and 0.5 < critique.score < 1


def test_half_a_surrogate_pair_is_not_scored() -> None:
    assert judge("broken \ud83e") is None


@given(TEXTS, TEXTS, TEXTS)
def test_quotes_are_exact_and_quality_is_the_score_of_each_prefix(completion: str, reference: str, source: str) -> None:
    critique = judge(completion, reference, source=source, settings=ReferenceSettings(thin=0))
    if critique is None:
        return
    end = 0
    for quote in critique.quotes:
        assert quote.start is not None and quote.start >= end, "in order, never overlapping"
        end = quote.start + len(quote.text)
        assert completion[quote.start : end] == quote.text
        assert f"“{quote.text}”" in quote.comment
    assert all(omission in reference for omission in critique.omissions)
    assert critique.quality is not None
    quality = dict(critique.quality)
    assert quality[0] == 0.0 and quality[len(completion)] == critique.score
    assert {cut for q in critique.quotes for cut in (q.start, (q.start or 0) + len(q.text))} <= quality.keys()
    for cut, value in critique.quality:
        assert value == score(completion[:cut], reference)
        assert 0.0 <= value <= 1.0


@given(st.lists(TEXTS, max_size=4))
def test_an_item_is_judged_alone(completions: list[str]) -> None:
    critic, n = ReferenceCritic(), len(completions)
    together = critic([SOURCE] * n, completions, reference=[HARBOUR] * n)
    assert together == [critic([SOURCE], [text], reference=[HARBOUR])[0] for text in completions]


def test_its_quotes_align_where_it_says() -> None:
    text = "Seven ships left. Atlantis sank. Seven ships left. Seven ships left again for Atlantis."
    critique = judge(text, source=SOURCE)
    assert critique is not None
    found = align(text, critique)
    assert [(s.start, s.end, s.verdict) for s in found.spans] == [
        (q.start, (q.start or 0) + len(q.text), q.verdict) for q in critique.quotes
    ]
    assert found.missed == ()
