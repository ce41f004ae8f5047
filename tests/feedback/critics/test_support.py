"""The critic `support`: a completion compared with its source; scores worked by hand, and what earns nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad import align
from text2grad.errors import InvalidData
from text2grad.feedback.critics import ask_now
from text2grad.feedback.critics.support import SupportCritic, asked_of, source_of
from text2grad.feedback.settings import SupportSettings
from text2grad.types import Critique

FJORD = (
    "Fjord is the second studio album by Norwegian singer Jorun Vekas, released on 23 April 2016 through Tern "
    "Norway. Its lead single came out on 10 January 2016. The album sold 1,250,000 copies in 12 countries "
    "and cost £3m to make."
)
TOUR = "The Fjord Tour began on 6 June in Ostby, Utah. It had 25 shows, and 40 per cent of them sold out."
PIECES = "Fjord|the|album.|23 April 2017|£3m|twenty-five|12|漢字。|🦩|Dr. Vekas|\n|40%|“a”|e\u0301|3pm"
TEXTS = st.text(max_size=80) | st.lists(st.sampled_from(PIECES.split("|"))).map(" ".join)


def judge(
    completion: str, passages: Any = (FJORD, TOUR), prompt: str = "", reference: Any = None, **settings: Any
) -> Critique | None:
    columns = {"passages": [passages and list(passages)], "reference": [reference]}
    (critique,) = ask_now(SupportCritic(SupportSettings(**settings)), [prompt], [completion], columns)
    return critique


def said(completion: str, verdict: str = "poor", **given: Any) -> list[str]:
    critique = judge(completion, **given)
    assert critique is not None
    return [quote.text for quote in critique.quotes if quote.verdict == verdict]


def score(completion: str, **given: Any) -> float:
    critique = judge(completion, **given)
    assert critique is not None and critique.score is not None
    return critique.score


def test_another_number_is_quoted_with_what_the_passage_says() -> None:
    critique = judge("Fjord by Jorun Vekas was released on 23 April 2017.")
    assert critique is not None
    (quote,) = [quote for quote in critique.quotes if quote.verdict == "poor"]
    assert (quote.text, quote.start, quote.severity) == ("2017", 46, 1.0)
    assert quote.comment == "“2017” is not in the source: passage 1 says “2016”."
    assert said("It had 26 shows that sold out.") == ["26"]
    critique = judge("It had 26 shows that sold out.")
    assert critique is not None and "“26” is not in the source: passage 2 says “25 shows”." in critique.feedback


def test_the_score_by_hand() -> None:
    # Content words: album, Fjord, released, Tern, Paris. Paris is an invented name: 4 / (4 + 4) precise, and four of
    # the frequent words are enough: 2 · ½ · 1 / 1½.
    assert score("The album Fjord was released by Tern in Paris.") == pytest.approx(2 / 3)
    # "gorgeous" is a word, not a name: 4 / 5 precise; 2 · 0.8 / 1.8.
    assert score("The gorgeous album Fjord was released by Tern.") == pytest.approx(8 / 9)
    # One of the four that are enough: 2 · 1 · ¼ / 1¼.
    assert score("It is an album.") == pytest.approx(0.4)
    assert score("The album Fjord was released by Tern.") == 1.0


def test_coverage_by_a_reference_is_half_of_what_it_says_and_the_source_says_too() -> None:
    reference = "Vekas released the album Fjord, to the joy of Penguins."  # four words that the source has
    assert score("Vekas has an album.", reference=reference) == 1.0
    critique = judge("It is an album.", reference=reference)
    assert critique is not None and critique.score == pytest.approx(2 * 0.5 / 1.5)
    assert critique.omissions == ("Vekas", "released", "Fjord")
    assert score("It is an album.", reference=[reference, "An album."]) == 1.0
    assert score("It is an album.", reference="Penguins!") == pytest.approx(0.4)


@pytest.mark.parametrize(
    "nothing",
    [
        "",
        " \n",
        "…",
        "It was.",
        "Its lead single came out on 10 January 2016.",
        "The album sold 1,250,000 copies in 12 countries and cost £3m to make.",
        FJORD,
        f"{FJORD} {TOUR}",
        "Fjord, Jorun Vekas, Tern Norway, Ostby, Utah",
        "album Fjord single tour",
        "The album, the Fjord, the single and the tour.",
        "the album, the sold, the Norwegian singer, the Fjord Tour",
        "The album of the singer of the tour of the shows.",
        "The album. The singer. The tour. The shows.",
        "the album\nthe singer\nthe tour\nthe shows",
        "Penguins waddle across melting glaciers.",
    ],
)
def test_silence_copying_lists_and_inventions_earn_nothing(nothing: str) -> None:
    critique = judge(nothing)
    assert critique is not None and critique.score == 0.0
    assert critique.omissions == ("Fjord", "album", "2016", "sold")  # each twice in the source
    assert all(quote.verdict == "poor" for quote in critique.quotes)


def test_copying_is_allowed_where_it_is_asked_for_and_where_the_reference_copies() -> None:
    copied = "The album sold 1,250,000 copies in 12 countries and cost £3m to make."
    assert said(copied) == [copied[4:-1]]  # from content word to content word
    assert score(copied, copied=0) == pytest.approx(2 / 3)  # "album" and "sold" are two of the four that are enough
    assert score(copied, reference=copied) == 1.0
    assert said("Everyone knows it sold 1,250,000 copies in 12 countries and so on.") == ["Everyone knows"]


@pytest.mark.parametrize(
    "nearly",
    [
        "The album sold 1,250,000 copies in 12 nations and cost £3m to make.",  # one word changed
        "The album sold 1,250,000 copies in 12 countries, cost £3m to make.",  # left out
        "The album really sold 1,250,000 copies in 12 big countries and cost £3m to make.",  # two added
        "The lead single came out on 10 January 2016.",  # a short sentence, nearly whole
    ],
)
def test_a_sentence_that_is_nearly_copied_earns_nothing(nearly: str) -> None:
    critique = judge(nearly)
    assert critique is not None and critique.score == 0.0 and "copied from the source" in critique.feedback
    assert score(nearly, copied=0) > 0
    assert score(nearly, reference=nearly) > 0


@pytest.mark.parametrize(
    "sentence",
    [
        "The singer released the album Fjord.",
        "The tour of the singer had shows in Ostby and Utah.",
        "Norwegian singer Jorun Vekas plans a Fjord tour.",
    ],
)
def test_a_sentence_with_a_verb_is_no_list(sentence: str) -> None:
    assert "list" not in " ".join(quote.comment for quote in (judge(sentence) or Critique("list")).quotes)


def test_repetition_is_quoted_and_lowers_the_score() -> None:
    once = "The album Fjord was released by Tern."
    assert said(f"{once} {once}") == ["album Fjord was released by Tern"]
    assert score(f"{once} {once}") < score(once)


@pytest.mark.parametrize(
    "same",
    [
        "Fjord was released on April 23, 2016.",
        "Fjord was released on the 23rd of April.",
        "The album Fjord sold 1.25 million in twelve countries.",
        "The album Fjord sold 1250000 copies.",
        "The album sold about 1.3 million copies.",
        "Of twenty-five shows 40% sold out.",
        "Fjord is the 2nd album by this Norwegian.",
        "Norwegians released the album Fjord.",
    ],
)
def test_the_same_said_otherwise_is_not_poor(same: str) -> None:
    assert said(same) == []


@pytest.mark.parametrize(
    ("other", "quoted"),
    [
        ("Fjord was released on 22 April.", ["22"]),
        ("The album sold 1,350,000 copies.", ["1,350,000"]),
        ("The album cost $3m to make.", ["$3m"]),
        ("On tour 25 per cent sold out.", ["25 per cent"]),
        ("The album by singer Ariana Grande sold.", ["Ariana Grande"]),
        ("Peter Vekas released the album.", ["Peter"]),
        ("The album Fjord sold 17 Golden Penguins.", ["17 Golden Penguins"]),
    ],
)
def test_another_number_unit_or_name_is_poor(other: str, quoted: list[str]) -> None:
    critique = judge(other)
    assert critique is not None and said(other) == quoted
    assert all(quote.severity == 1.0 for quote in critique.quotes if quote.verdict == "poor")


def test_without_a_source_it_is_not_scored_and_says_why() -> None:
    assert judge("Fjord sold well.", passages=None) is None
    assert judge("Fjord sold well.", passages=[" "]) is None
    assert judge("Fjord sold well.", passages=None, prompt=f"Summarise: {FJORD}") is not None
    assert judge("Fjord \ud83e sold well.") is None
    assert SupportCritic()(["Who?"], ["Fjord."]).reasons == {
        0: "it has no passages and no source, and its prompt has fewer than 20 words"
    }
    empties: list[Any] = [[], [[]], [None]]
    for empty in empties:
        critiques = SupportCritic()(["Who?"], ["Fjord."], passages=empty)
        assert critiques == [None] and critiques.reasons[0].startswith("it has no passages")
    with pytest.raises(InvalidData, match="item 1: passages should have a value for each completion, got 1"):
        SupportCritic()(["Who?", "Who?"], ["Fjord.", "Fjord."], passages=[[FJORD]])


def test_words_of_the_question_are_not_held_against_the_completion() -> None:
    text = "Fjord by Jorun Mellet was released by Tern."
    assert said(text) == ["Mellet"]
    assert said(text, prompt="When did Mellet release Fjord?") == []


def test_passages_may_be_lists_of_sentences_and_nothing_else() -> None:
    assert said("Fjord was out in April 2017.", passages=[["Fjord", FJORD], ["Tour", TOUR]]) == ["2017"]
    with pytest.raises(InvalidData, match="item 0: passages should be"):
        judge("Fjord.", passages=[3])


def test_scripts_without_spaces_are_compared_by_character() -> None:
    source = "九艘船于星期一离开港口，港务长说风暴将在第二天到来，所有人都很安全。"
    assert said("九艘船离开港口。", "good", passages=[source]) != []
    assert score("九艘船于星期一离开港口，港务长说风暴将在第二天到来", passages=[source]) == 0.0  # copied


def test_its_quotes_align_where_it_says() -> None:
    text = "Fjord sold 12 copies. It sold 13 copies. Fjord sold 13 copies in Paris, said Paris Hilton."
    critique = judge(text)
    assert critique is not None and len(critique.quotes) >= 3
    found = align(text, critique)
    assert [(s.start, s.end) for s in found.spans] == [(q.start, (q.start or 0) + len(q.text)) for q in critique.quotes]


@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS, st.none() | TEXTS)
def test_quotes_are_exact_and_scores_bounded(
    completion: str, passages: list[str], prompt: str, reference: str | None
) -> None:
    critique = judge(completion, passages=passages, prompt=prompt, reference=reference, thin=0)
    if critique is None:
        return
    end = 0
    for quote in critique.quotes:
        assert quote.start is not None and quote.start >= end
        end = quote.start + len(quote.text)
        assert completion[quote.start : end] == quote.text
        assert f"“{quote.text}”" in quote.comment
    assert critique.score is not None and 0 <= critique.score <= 1
    assert critique.score < 1 or not any(quote.verdict == "poor" for quote in critique.quotes)


@given(st.lists(TEXTS, max_size=4))
def test_an_item_is_judged_alone(completions: list[str]) -> None:
    critic, n = SupportCritic(), len(completions)
    together = critic([""] * n, completions, passages=[[FJORD]] * n)
    assert together == [critic([""], [text], passages=[[FJORD]])[0] for text in completions]


PASSAGE = "Seven ships left the harbour of Brindlemoor on Monday, after a storm of three days and nights in Nor"


@pytest.mark.parametrize(
    ("prompt", "left"),
    [
        (f"Who left? {PASSAGE}, it says.", ["who", "left", "it", "say"]),
        # Cut off inside a word: what the prompt says in full stays there.
        (f"Who left? {PASSAGE}thumberland.", ["who", "northumberland"]),
        ("Norway: who left?", ["norway", "who", "left"]),
    ],
)
def test_a_shown_passage_is_taken_out_of_the_prompt_as_a_whole(prompt: str, left: list[str]) -> None:
    stems = [word.stem for word in asked_of(prompt, [PASSAGE, "Nor"]).words]
    if "thumberland" in prompt:
        assert set(left) <= set(stems) and len(stems) > 15
    else:
        assert stems == left


def test_fewer_long_sources_are_kept() -> None:
    long = ("word " * 2000,)
    assert source_of(long) is source_of(long) and source_of(("A ship.",)) is source_of(("A ship.",))
    kept = source_of(long)
    for number in range(64):
        source_of((f"{number} " + long[0],))
    assert source_of(long) is not kept
