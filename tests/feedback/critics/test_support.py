"""The critic `support`: numbers, dates and names held against passages, sentence by sentence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad import align
from text2grad.errors import InvalidData
from text2grad.feedback.critics import ask_now
from text2grad.feedback.critics import support as held
from text2grad.feedback.critics.facts import facts_of, same_value
from text2grad.feedback.critics.support import SupportCritic
from text2grad.feedback.settings import SupportSettings
from text2grad.types import Critique

FJORD = (
    "Fjord is the second studio album by Norwegian singer Jorun Vekas, released on 23 April 2016 through Tern "
    "Norway. Its lead single came out on 10 January 2016. The album sold 1,250,000 copies in 12 countries "
    "and cost £3m to make."
)
TOUR = "The Fjord Tour began on 6 June in Ostby, Utah. It had 25 shows, and 40 per cent of them sold out."
TEXTS = st.text(max_size=80) | st.lists(
    st.sampled_from(
        [
            "Fjord",
            "the",
            "album.",
            "23 April 2017",
            "£3m",
            "twenty-five",
            "12",
            "漢字。",
            "🦩",
            "Dr. Vekas",
            "\n",
            "40%",
            "“a”",
        ]
    )
).map(" ".join)


def judge(completion: str, passages: Any = (FJORD, TOUR), prompt: str = "", **settings: Any) -> Critique | None:
    (critique,) = ask_now(
        SupportCritic(SupportSettings(**settings)), [prompt], [completion], {"passages": [passages and list(passages)]}
    )
    return critique


def poor(completion: str, **given: Any) -> list[str]:
    critique = judge(completion, **given)
    assert critique is not None
    return [quote.text for quote in critique.quotes if quote.verdict == "poor"]


def test_a_contradicted_date_is_quoted_with_what_the_passage_says() -> None:
    critique = judge("Fjord is the second studio album by Jorun Vekas, released on 23 April 2017.")
    assert critique is not None
    assert [(q.text, q.verdict, q.start) for q in critique.quotes] == [("23 April 2017", "poor", 61)]
    assert critique.quotes[0].comment == "“23 April 2017” is not supported: passage 1 says “23 April 2016”."
    assert critique.score == -1.0


def test_the_passage_is_named_by_its_number() -> None:
    critique = judge("It had 26 shows that sold out.")
    assert critique is not None and critique.feedback == "“26” is not supported: passage 2 says “25 shows”."


@pytest.mark.parametrize(
    "same",
    [
        "Fjord was released on April 23, 2016 through Tern Norway.",
        "Fjord was released on 2016-04-23 through Tern Norway.",
        "Fjord was released on the 23rd of April through Tern Norway.",
        "Fjord was released in April 2016 through Tern Norway.",
        "The Fjord Tour began on 6 June 2016 in Ostby, Utah.",
        "The album Fjord sold 1.25 million copies in twelve countries.",
        "The album Fjord sold 1250000 copies.",
        "The album sold about 1.3 million copies.",
        "The album cost three million pounds to make.",
        "The Fjord Tour had twenty-five shows, and 40% sold out.",
        "Fjord is the 2nd studio album by Norwegian singer Jorun Vekas.",
        "Norwegians released the album Fjord.",
    ],
)
def test_the_same_said_otherwise_is_not_poor(same: str) -> None:
    assert poor(same) == []


@pytest.mark.parametrize(
    ("other", "quoted"),
    [
        ("Fjord was released on 22 April 2016 through Tern Norway.", ["22 April 2016"]),
        ("Fjord was released in April 2015 through Tern Norway.", ["April 2015"]),
        ("The Fjord Tour began on 6 June 2031 in Ostby, Utah.", ["6 June 2031"]),
        ("The album sold 1,350,000 copies.", ["1,350,000"]),
        ("The album cost $3m to make.", ["$3m"]),
        ("The tour had 40 shows, and 25 per cent of them sold out.", ["25 per cent"]),
        ("The tour had twenty-six shows in Ostby, Utah.", ["twenty-six"]),
        ("Fjord is the third studio album by Jorun Vekas.", ["third"]),
        ("The album by singer Ariana Grande sold 1,250,000 copies.", ["Ariana Grande"]),
        ("Jorun Vekas released the album Fjord through Gull Canada.", ["Gull Canada"]),
    ],
)
def test_another_number_date_unit_or_name_is_poor(other: str, quoted: list[str]) -> None:
    assert poor(other) == quoted


def test_the_first_word_of_a_sentence_is_a_name_if_the_second_is_too() -> None:
    assert poor("Peter Vekas released the album Fjord.") == ["Peter"]
    assert poor("Later the singer released the album Fjord.") == []


def test_neighbouring_problems_are_one() -> None:
    assert poor("The album Fjord sold 17 Golden Penguins.") == ["17 Golden Penguins"]


def test_paraphrase_is_left_alone_and_a_foreign_sentence_is_not() -> None:
    assert poor("Jorun Vekas put out his sophomore album Fjord.") == []
    assert poor("Penguins waddle across melting glaciers.") == ["Penguins waddle across melting glaciers"]


def test_supported_poor_and_neither_make_the_score() -> None:
    text = (
        "Its lead single came out on 10 January 2016. The Fjord Tour began in Paris, Utah. The singer likes the album."
    )
    critique = judge(text)
    assert critique is not None
    assert [(q.text, q.verdict) for q in critique.quotes] == [
        ("Its lead single came out on 10 January 2016.", "good"),
        ("Paris", "poor"),
    ]
    assert critique.score == 0.0
    assert critique.feedback == "“Paris” is in no passage. 1 of 3 sentences is supported."


def test_words_from_all_over_support_nothing() -> None:
    critique = judge("The singer began through copies of the lead single in Ostby.")
    assert critique is not None and critique.quotes == () and critique.score == 0.0
    assert critique.feedback == "The passages neither support it nor speak against it."


def test_silence_is_not_better_than_anything() -> None:
    for nothing in ("", " \n", "…"):
        critique = judge(nothing)
        assert critique is not None and critique.score == -1.0 and critique.quotes == ()
    assert (good := judge("Its lead single came out on 10 January 2016.")) is not None and good.score == 1.0


def test_thin_evidence_is_not_scored() -> None:
    assert judge("Fjord sold well.", passages=None) is None
    assert judge("Fjord sold well.", passages=[" "]) is None
    assert judge("Fjord sold well.", passages=None, prompt=f"Summarise: {FJORD}") is not None
    assert judge("Fjord \ud83e sold well.") is None


def test_words_of_the_question_are_not_held_against_the_completion() -> None:
    text = "Fjord by Jorun Mellet was released through Tern Norway."
    assert poor(text, prompt="When did Mellet release Fjord?") == []
    assert poor(text, prompt="When did Mellet release Fjord?", prompt_known=False) == ["Mellet"]


def test_passages_may_be_lists_of_sentences() -> None:
    assert poor("Fjord was released on 23 April 2017.", passages=[["Fjord", FJORD], ["Tour", TOUR]]) == [
        "23 April 2017"
    ]
    with pytest.raises(InvalidData, match="item 0: passages should be"):
        judge("Fjord.", passages=[3])


def test_its_quotes_align_where_it_says() -> None:
    text = "Fjord sold 12 copies. It sold 13 copies. Fjord sold 13 copies in Paris, said Paris Hilton."
    critique = judge(text)
    assert critique is not None and len(critique.quotes) >= 3
    found = align(text, critique)
    assert [(s.start, s.end) for s in found.spans] == [(q.start, (q.start or 0) + len(q.text)) for q in critique.quotes]


@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS)
def test_quotes_are_exact_and_scores_bounded(completion: str, passages: list[str], prompt: str) -> None:
    critique = judge(completion, passages=passages, prompt=prompt, thin=0)
    if critique is None:
        return
    end = 0
    for quote in critique.quotes:
        assert quote.start is not None and quote.start >= end
        end = quote.start + len(quote.text)
        assert completion[quote.start : end] == quote.text
        assert f"“{quote.text}”" in quote.comment
    assert critique.score is not None and -1 <= critique.score <= 1
    poor_quotes = any(quote.verdict == "poor" for quote in critique.quotes)
    assert critique.score < 1 or not poor_quotes


@given(st.lists(TEXTS, max_size=4))
def test_an_item_is_judged_alone(completions: list[str]) -> None:
    critic, n = SupportCritic(), len(completions)
    together = critic([""] * n, completions, passages=[[FJORD]] * n)
    assert together == [critic([""], [text], passages=[[FJORD]])[0] for text in completions]


def test_what_is_said_again_and_again_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text against a long source: the work a fact takes does not grow with what the source holds elsewhere."""
    many = " ".join(f"{number} people died on 4 May 2001." for number in range(1000, 100_000, 99))
    evidence = held.Evidence([many])
    assert len(evidence._dates) == 1 and len(evidence._numbers) == 1000
    compared = []

    def counted(said: Any, known: Any, loose: bool) -> bool:
        compared.append(known)
        return same_value(said, known, loose)

    monkeypatch.setattr(held, "same_value", counted)
    (said,) = facts_of("50,300")
    assert evidence.has_fact(said, "about ") and len(compared) < 150
    (said,) = facts_of("990,000")
    assert not evidence.has_fact(said, "about ")
