"""Critique text → clauses, verdicts, quotes and their roles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.lexicon import verdict_of
from text2grad.feedback.parse import parse
from text2grad.feedback.quotes import find_quotes


@pytest.mark.parametrize(
    ("critique", "quotes"),
    [
        ('a "straight" one', ["straight"]),
        ("a “curly” one and ‘another’", ["curly", "another"]),
        ("«guillemets» and ‹single›", ["guillemets", "single"]),
        ("„deutsch“ und „anders”", ["deutsch", "anders"]),
        ("「鉤括弧」『二重』《書名》", ["鉤括弧", "二重", "書名"]),
        ("`code` and ``a `tick` inside``", ["code", "a `tick` inside"]),
        ("```python\nx = 1\n```", ["x = 1"]),
        ("the word 'single' here", ["single"]),
        ("don't, won't, the players' bus, O'Neil's", []),
        ("it says 'don't stop' there", ["don't stop"]),
        ("he is 5'10\" tall", []),
        ('an unclosed "quote', []),
        ('"" and "  " hold nothing', []),
        ("rock and roll in the '90s", []),
        ('"one" then "two"', ["one", "two"]),
    ],
)
def test_quotation_marks(critique: str, quotes: list[str]) -> None:
    assert [quote.text for quote in find_quotes(critique)] == quotes


def test_a_quote_does_not_cross_a_blank_line_unless_the_completion_has_it() -> None:
    critique = 'It says "first\n\nsecond" there.'
    assert find_quotes(critique) == []
    assert [quote.text for quote in find_quotes(critique, "first\n\nsecond")] == ["first\n\nsecond"]


def test_the_completion_settles_nested_marks() -> None:
    critique = 'Why "say "hello" twice"? And "bye"?'
    assert [quote.text for quote in find_quotes(critique, 'I say "hello" twice. bye')] == [
        'say "hello" twice',
        "bye",
    ]


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("a lovely image", "good"),
        ("this is wrong", "poor"),
        ("not accurate", "poor"),
        ("isn't clear at all", "poor"),
        ("no errors here", "good"),
        ("there is nothing wrong with it", "good"),
        ("could be clearer and more accurate", "poor"),
        ("in the second line", None),
        ("the source does not mention it", "poor"),
        ("should be removed", "poor"),
        ("should stay", "good"),
    ],
)
def test_verdict_of_words(words: str, verdict: str | None) -> None:
    assert verdict_of(words) == verdict


def test_praise_and_blame_are_told_apart_by_clause() -> None:
    parsed = parse("The opening is vivid, but the ending is confusing. Great title!")
    assert [clause.verdict for clause in parsed.clauses] == ["good", "poor", "good"]


def test_a_clause_without_a_verdict_takes_its_sentences() -> None:
    parsed = parse('The summary says "Tuesday", although that is wrong. I like the "calm" tone.')
    assert [(clause.verdict, [quote.text for quote in clause.quotes]) for clause in parsed.clauses] == [
        ("poor", ["Tuesday"]),
        ("poor", []),
        ("good", ["calm"]),
    ]


def test_words_inside_quotes_are_no_verdict() -> None:
    assert parse('The phrase "wrong and terrible" is good.').clauses[0].verdict == "good"


@pytest.mark.parametrize(
    ("critique", "roles"),
    [
        ('"Tuesday" should be "Monday".', ["meant", "offered"]),
        ('Change "X" to "Y".', ["meant", "offered"]),
        ("Replace `i <= n` with `i < n`.", ["meant", "offered"]),
        ('It says "Tuesday" instead of "Monday".', ["meant", "offered"]),
        ('Use "Monday" instead of "Tuesday".', ["offered", "meant"]),
        ('The article says "nine", not "seven".', ["source", "meant"]),
        ('The summary says "A" while the source says "B".', ["meant", "source"]),
        ('The source does not say "fourth day".', ["meant"]),
        ('According to the article, "nine men" died.', ["source"]),
        ('You say "hello" too often.', ["meant"]),
        ('It should not say "hello".', ["meant"]),
        ('The letter has "Dear Sirs" instead.', ["meant"]),
    ],
)
def test_what_a_quote_is_there_for(critique: str, roles: list[str]) -> None:
    assert [quote.role for quote in parse(critique).quotes] == roles


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.text(max_size=60))
def test_clauses_lie_in_order_inside_the_critique_and_hold_every_quote(critique: str, completion: str) -> None:
    parsed = parse(critique, completion)
    position = 0
    for clause in parsed.clauses:
        assert position <= clause.start < clause.end <= len(critique)
        assert clause.text == critique[clause.start : clause.end].strip()
        position = clause.end
    assert [quote.text for quote in parsed.quotes] == [quote.text for quote in find_quotes(critique, completion)]
