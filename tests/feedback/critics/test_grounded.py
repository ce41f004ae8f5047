"""The critic `grounded`: numbers worked by hand, what it sees and what it does not, and what earns nothing."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.feedback.critics import ask_now
from text2grad.feedback.critics.grounded import GroundedCritic, passages_of, question_in
from text2grad.feedback.critics.support import Labelled
from text2grad.feedback.settings import GroundedSettings
from text2grad.types import Critique

MURA = "Mura\nThe Mura is a river of Austria. It is 480 km long. It joins the Drava near Legrad."
DRAVA = "Drava\nThe Drava rises in Italy. Dravograd lies on it."
PIECES = "The Mura|rises|in Italy.|480 km|漢字。|，|🦩|and|which|\n|“a”|e\u0301|3, 1777|..."
TEXTS = st.text(max_size=80) | st.lists(st.sampled_from(PIECES.split("|"))).map(" ".join)


def judge(completion: str, passages: Any = (MURA, DRAVA), **columns: Any) -> Critique:
    given = {"passages": [list(passages)], **{name: [value] for name, value in columns.items()}}
    (critique,) = ask_now(GroundedCritic(), [columns.get("question", "Where is the Mura?")], [completion], given)
    assert critique is not None
    return critique


def poor(completion: str, **columns: Any) -> list[str]:
    return [quote.text for quote in judge(completion, **columns).quotes if quote.verdict == "poor"]


def test_coverage_and_pairs_by_hand() -> None:
    known = passages_of(("Mura\nThe Mura joins the Drava. Ships sail.",))
    first, second = known.clauses(Labelled("The Mura joins ships. Kites sail."))
    # Three sentences, the title among them. Weights log(4 / (n + ½)): Mura is in two, joins and ships in one each.
    mura, other = math.log(4 / 2.5), math.log(4 / 1.5)
    assert first.coverage == pytest.approx((mura + other) / (mura + 2 * other))
    assert first.pairs == pytest.approx(2 / 3), "the Mura, Mura joins; not: joins ships"
    # "Kites" is nowhere: log(4 / ½).
    assert second.coverage == pytest.approx(other / (other + math.log(8)))
    assert second.pairs == 0.0
    assert first.doubt < second.doubt
    assert second.nearest is not None and second.nearest.number == 1


def test_words_of_two_sentences_do_not_bear_out_one() -> None:
    """Each of its words is in the passages."""
    assert poor("The Mura is a river of Austria. Legrad rises on the long river.") == [
        "Legrad rises on the long river."
    ]


def test_what_the_passages_say_is_named() -> None:
    critique = judge("Dragons guard the Drava near its golden source.")
    assert critique.feedback == (
        "“Dragons guard the Drava near its golden source.” is not what the passages say; the nearest, in passage 1, is "
        "“It joins the Drava near Legrad”."
    )
    (quote,) = critique.quotes
    assert (quote.verdict, quote.start) == ("poor", 0) and 0.29 <= (quote.severity or 0) <= 1


def test_a_title_stands_for_its_pronouns() -> None:
    """ "It is 480 km long" is said of the Mura by the title of its passage."""
    assert poor("The Mura is 480 km long.") == []
    titled, untitled = (passages_of((text,)) for text in (MURA, MURA.partition("\n")[2]))
    with_title, without = (next(known.clauses(Labelled("The Mura is 480 km long."))) for known in (titled, untitled))
    assert with_title.coverage > without.coverage


def test_clauses_of_a_sentence_with_one_verdict_are_one_quote() -> None:
    text = "The Mura is a river of Austria, which dragons guard, and wizards love on 3 May, 1777."
    critique = judge(text, reference="The Mura is a river of Austria.")
    assert [(quote.text, quote.verdict) for quote in critique.quotes][-1][1] == "poor"
    assert all(text[quote.start or 0 :].startswith(quote.text) for quote in critique.quotes)
    assert any("3 May, 1777" in quote.text for quote in critique.quotes), "no clause ends before a number"


def test_the_score_is_what_is_grounded_times_how_it_answers() -> None:
    reference = "The Mura is a river of Austria."
    assert judge(reference, reference=reference).score == pytest.approx(1.0)
    # Of six content words three are grounded; F-measure with the reference: 2 · 3 / (6 + 3).
    both = f"{reference} Dragons guard gold."
    assert judge(both, reference=reference).score == pytest.approx(3 / 6 * 2 * 3 / 9)
    assert judge("", reference=reference).score == 0.0
    assert judge("Dravograd lies on it.", reference=reference).score == 0.0, "grounded, but no answer"
    # Without a reference: the question's words that grounded sentences take up; here one of one.
    assert judge(reference).score == pytest.approx(1.0)
    assert judge("Dravograd lies on it.").score == 0.0


def test_the_nearest_reference_counts() -> None:
    references = ["A dog.", "The Mura is a river of Austria."]
    assert judge(references[1], reference=references).score == pytest.approx(1.0)


def test_without_passages_there_is_no_score() -> None:
    critic = GroundedCritic()
    assert list(critic(["?"], ["Yes."], passages=[[]])) == [None]
    assert list(critic(["?"], ["Yes."])) == [None]
    assert list(critic(["?"], ["Half \ud83d."], passages=[[MURA]])) == [None]
    with pytest.raises(InvalidData, match="passages should have a value for each completion"):
        critic(["?", "?"], ["a", "b"], passages=[[MURA]])


def test_a_higher_threshold_blames_less() -> None:
    text = "Legrad rises on the long river. Dragons guard gold."
    blamed = []
    for doubt in (0.1, 0.29, 0.7, 0.99):
        critique = GroundedCritic(GroundedSettings(doubt=doubt)).judge(text, [MURA])
        assert critique is not None
        blamed.append(sum(len(quote.text) for quote in critique.quotes if quote.verdict == "poor"))
    assert blamed == sorted(blamed, reverse=True) and blamed[0] > blamed[-1] == 0


def test_the_question_is_found_in_the_prompt() -> None:
    assert question_in("Who sang?") == "Who sang?"
    assert question_in("Read. " * 100) == ""


@given(TEXTS)
def test_quotes_are_exact_and_numbers_bounded(text: str) -> None:
    critique = GroundedCritic().judge(text, [MURA, DRAVA], "Where?", ["The Mura is long."])
    if critique is None:
        return
    for quote in critique.quotes:
        assert quote.start is not None and text[quote.start : quote.start + len(quote.text)] == quote.text
    assert critique.score is not None and 0 <= critique.score <= 1
