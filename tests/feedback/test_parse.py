"""Critique text → clauses, verdicts, quotes and their roles."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback import lexicon, quotes
from text2grad.feedback import parse as parsing
from text2grad.feedback.lexicon import verdict_of
from text2grad.feedback.parse import parse
from text2grad.feedback.quotes import find_quotes


@pytest.mark.parametrize(
    ("critique", "found"),
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
        ("the claim ‘inside the mall ’ is invented", ["inside the mall "]),
        ("the claim 'inside the mall ' is invented", ["inside the mall "]),
        ("> a line,\n> and another\n\nis wrong", ["a line,\nand another"]),
        ('So:\n> "in marks"\nNo.', ["in marks"]),
        (">>> f(1)\nis a prompt, and 3 > 2", []),
    ],
)
def test_quotation_marks(critique: str, found: list[str]) -> None:
    assert [quote.text for quote in find_quotes(critique)] == found


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
    "unit", ["'a ", "It says 'tis wrong. ", "`a ``b ", '5" ', "‘a ", "'a \n\n", "'" + "a" * 900 + "\n\n'b "]
)
def test_the_work_of_pairing_marks_grows_with_the_critique_and_no_faster(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: characters that a closing mark is looked for in, and characters between two marks that are read."""
    read = 0
    pattern, worth = quotes._closing_pattern, quotes._worth_reading

    def counted(mark: str) -> re.Pattern[str]:
        nonlocal read
        read += len(critique)
        return pattern(mark)

    def weighed(critique: str, start: int, end: int, completion: str) -> bool:
        nonlocal read
        said = worth(critique, start, end, completion)
        read += (end - start) if said else 1
        return said

    monkeypatch.setattr(quotes, "_closing_pattern", counted)
    monkeypatch.setattr(quotes, "_worth_reading", weighed)
    work = []
    for times in (200, 800):
        critique, read = unit * times, 0
        find_quotes(critique, 'Nine ships left, \'a "b" `c`.')
        work.append(read)
    assert work[1] <= 4.2 * work[0] + 4_000


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", " \n"])
def test_a_run_of_blanks_is_read_from_its_beginning_only(blank: str) -> None:
    critique = "wrong" + blank * 50_000 + "dam"
    assert len(parse(critique)) <= 2
    inside = 5 + len(blank) * 3
    assert not parsing._CONTRAST.match(critique, inside)
    assert not parsing._SENTENCE_END.match(critique, inside)


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
        ("please correct the date", "poor"),
        ("the date is correct", "good"),
        ("no longer accurate", "poor"),
        ("anything but clear", "poor"),
        ("fails to be clear", "poor"),
        ("understated", "poor"),
        ("not only accurate", "good"),
        ("couldn't be more wrong", "poor"),
        ("never dull", "good"),
        ("can't fault it", "good"),
        ("hard to fault", "good"),
        ("no complaints", "good"),
        ("it lacks nothing", "good"),
        ("nothing short of brilliant", "good"),
        ("the error was not fixed", "poor"),
        ("there is no \x00\x00", "poor"),
    ],
)
def test_verdict_of_words(words: str, verdict: str | None) -> None:
    assert verdict_of(words) == verdict


@pytest.mark.parametrize(
    "negation", ["rather than", "instead of", "lacks", "fails to be", "hard to", "far from", "anything but"]
)
def test_every_negation_turns_praise(negation: str) -> None:
    assert lexicon._NEGATED.search(f"{negation} ")
    assert verdict_of(f"{negation} clear") == "poor"


@pytest.mark.parametrize(
    ("critique", "verdicts"),
    [
        ('Please correct "Seven ships".', {"poor"}),
        ('"Seven ships" is no longer accurate.', {"poor"}),
        ('"Seven ships" is anything but clear.', {"poor"}),
        ('"Seven ships" is not only accurate but vivid.', {"good"}),
        ('"Seven ships" is never dull.', {"good"}),
        ('"Seven ships" is nothing short of brilliant.', {"good"}),
        ("> Seven ships left.\n\nThis is lovely.", {"good"}),
        ("I love this:\n\n> Seven ships left.", {"good"}),
        ('In the source there is no "after a storm".', {"poor"}),
    ],
)
def test_verdicts_that_a_turn_of_phrase_turns(critique: str, verdicts: set[str]) -> None:
    assert {clause.verdict for clause in parse(critique)} == verdicts


def test_praise_and_blame_are_told_apart_by_clause() -> None:
    parsed = parse("The opening is vivid, but the ending is confusing. Great title!")
    assert [clause.verdict for clause in parsed] == ["good", "poor", "good"]


def test_a_clause_without_a_verdict_takes_its_sentences() -> None:
    parsed = parse('The summary says "Tuesday", although that is wrong. I like the "calm" tone.')
    assert [(clause.verdict, [quote.text for quote in clause.quotes]) for clause in parsed] == [
        ("poor", ["Tuesday"]),
        ("poor", []),
        ("good", ["calm"]),
    ]


def test_words_inside_quotes_are_no_verdict() -> None:
    assert parse('The phrase "wrong and terrible" is good.')[0].verdict == "good"


@pytest.mark.parametrize(
    ("critique", "roles"),
    [
        ('"Tuesday" should be "Monday".', ["meant", "offered"]),
        ('Change "X" to "Y".', ["meant", "offered"]),
        ("Replace `i <= n` with `i < n`.", ["meant", "offered"]),
        ('It says "Tuesday" instead of "Monday".', ["meant", "either"]),
        ('Use "Monday" instead of "Tuesday".', ["offered", "meant"]),
        ('The article says "nine", not "seven".', ["source", "meant"]),
        ('The summary says "A" while the source says "B".', ["meant", "source"]),
        ('The source does not say "fourth day".', ["meant"]),
        ('According to the article, "nine men" died.', ["either"]),
        ('You say "hello" too often.', ["meant"]),
        ('It should not say "hello".', ["meant"]),
        ('The letter has "Dear Sirs" instead.', ["meant"]),
    ],
)
def test_what_a_quote_is_there_for(critique: str, roles: list[str]) -> None:
    assert [quote.role for clause in parse(critique) for quote in clause.quotes] == roles


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.text(max_size=60))
def test_clauses_lie_in_order_inside_the_critique_and_hold_every_quote(critique: str, completion: str) -> None:
    parsed = parse(critique, completion)
    position = 0
    for clause in parsed:
        assert position <= clause.start < clause.end <= len(critique)
        assert clause.text == critique[clause.start : clause.end].strip()
        position = clause.end
    assert [quote.text for clause in parsed for quote in clause.quotes] == [
        quote.text for quote in find_quotes(critique, completion)
    ]


def test_a_sentence_that_begins_with_a_quote_is_one_of_its_own() -> None:
    """Else the verdict of the last would be that of all."""
    said = '"From 7 to 10" is right. "at 6:30" is invented. “Enjoy!” is nice.'
    found = [(clause.verdict, [quote.text for quote in clause.quotes]) for clause in parse(said)]
    assert found == [("good", ["From 7 to 10"]), ("poor", ["at 6:30"]), ("good", ["Enjoy!"])]
    (one,) = parse('It says e.g. "at 6:30", which is wrong.')[:1]
    assert [quote.text for quote in one.quotes] == ["at 6:30"]
