"""How much of the text is meant: words, a line, or a whole sentence, by what the critique speaks of."""

import pytest

from text2grad import align
from text2grad.feedback.align.evidence import cues_in

TEXT = (
    "The council of Marlow approved the tram line on Tuesday. The mayor promised new trams by autumn. "
    "Penguins can hold their breath for twenty minutes. The line will cost nine million euro. "
    "The mayor of Marlow promised that new trams would come by autumn."
)
SENTENCES = [part.strip() for part in TEXT.split(".")[:-1]]


def marked(critique: str) -> list[str]:
    return [span.slice(TEXT) for span in align(TEXT, critique).spans]


@pytest.mark.parametrize(
    ("critique", "sentence"),
    [
        ("The sentence about penguins does not belong here.", 2),
        ("Irrelevant: penguins.", 2),
        ("One sentence is unrelated to the others.", 2),
        ("The part on what the line will cost comes too late.", 3),
        ("The wording of the part about the council is awkward.", 0),
        ("Repetitive.", 4),
        ("The trams that the mayor promised are mentioned twice.", 4),
        ("The fourth sentence is redundant.", 3),
    ],
)
def test_style_order_relevance_and_repetition_mean_a_sentence(critique: str, sentence: int) -> None:
    assert marked(critique) == [SENTENCES[sentence]]


@pytest.mark.parametrize(
    ("critique", "words"),
    [
        ("It was Wednesday, not Tuesday.", "Tuesday"),
        ("Eight million, not nine.", "nine"),
        ("Autumn should be spring.", "autumn"),
        ("Change penguins to puffins.", "Penguins"),
        ("I would say kroner instead of euro.", "euro"),
    ],
)
def test_what_is_to_be_replaced_is_marked_and_nothing_beside_it(critique: str, words: str) -> None:
    assert words in marked(critique)
    assert all(span == words for span in marked(critique))


def test_the_opposite_of_a_statement_lies_in_the_word_that_turns_it() -> None:
    text = "The ferry was not late. The ferry carried more cars than the bridge. The crossing cost two pounds."
    for critique, words in (
        ("The opposite is true of the late ferry.", "not"),
        ("The comparison with the bridge is the other way round.", "more"),
    ):
        spans = [span.slice(text) for span in align(text, critique).spans]
        assert any(words in span.split() for span in spans), (critique, spans)
        assert sum(map(len, spans)) < 20, (critique, spans)


LONG = "The tram opened on Monday, although many residents of the old town had protested loudly, and ran all night."


def test_a_part_that_is_spoken_of_is_a_clause() -> None:
    clause = "although many residents of the old town had protested loudly"
    (part,) = align(LONG, "The bit about the residents protesting is made up.").spans
    assert part.slice(LONG) == clause
    words = align(LONG, "The residents are made up.").spans
    assert 0 < sum(span.end - span.start for span in words) < len(clause)


def test_the_end_of_a_sentence_is_its_last_clause() -> None:
    text = f"It rained. {LONG}"
    for critique, expected in (
        ("The end of the second sentence is speculation.", "and ran all night"),
        ("The beginning of the second sentence is speculation.", "The tram opened on Monday"),
    ):
        assert [span.slice(text) for span in align(text, critique).spans] == [expected]


def test_a_text_without_repetition_is_not_called_repetitive() -> None:
    assert align("Nine ships left. The fog was thick.", "Repetitive.").spans == ()


def test_the_sentence_of_a_court_is_no_sentence_of_the_text() -> None:
    assert not cues_in("The sentence of five years is wrong.")


def test_what_is_offered_for_a_line_of_code_names_the_line() -> None:
    code = "def f(n):\n    total = 0\n    while n % 2 != 0:\n        n -= 1\n    return total\n"
    found = align(code, "Should be `while n % 2 == 0:`.")
    assert [span.slice(code) for span in found.spans] == ["while n % 2 != 0:"]
    assert align(code, "Should be `import numpy as np`.").spans == ()
