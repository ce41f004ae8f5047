"""Where words stand in the source, and how a critique speaks of them: numbers worked by hand."""

import numpy as np
import pytest

from text2grad.feedback.align.context import CONTEXT, SourceWords, context
from text2grad.feedback.align.evidence import COLUMNS, Aim, evidence, tokens_of
from text2grad.feedback.parse import parse

TEXT = "Seven ships left the harbour of Kent on Monday"


def _columns(critique: str, source: str | None) -> dict[str, dict[str, float]]:
    """Column → word → number, where it is not 0."""
    tokens = tokens_of(TEXT)
    rows = context(tokens, Aim(parse(critique, TEXT)), SourceWords(source) if source else None)
    assert rows.shape == (len(tokens), len(CONTEXT))
    return {
        name: {token.lower: round(float(rows[k, j]), 2) for k, token in enumerate(tokens) if rows[k, j]}
        for j, name in enumerate(CONTEXT)
    }


def test_a_word_is_looked_up_beside_its_neighbours() -> None:
    columns = _columns("Wrong.", "Ships left the harbour. In a harbourside inn in Kent nobody slept.")
    assert columns["source_right"] == {"ships": 1, "left": 1}
    assert columns["source_left"] == {"left": 1, "harbour": 1}
    # "Kent" is in the source within eight content words of all three others that are there.
    assert columns["source_near"]["kent"] == 1
    assert "seven" not in columns["source_near"]
    assert columns["source_count"]["ships"] == round(float(np.log(2)), 2)


def test_words_that_only_look_like_one_of_the_source_are_told_apart() -> None:
    columns = _columns("Wrong.", "The harbourmaster spoke.")
    assert columns["source_alike"] == {"harbour": 1}
    assert columns["source_count"] == {}


def test_what_the_critique_says_instead_is_found_beside_the_word() -> None:
    columns = _columns("It was nine ships.", "Nine ships were seen. Later that day everybody else in Kent slept.")
    assert columns["source_new"] == {"ships": 1}
    assert columns["told"]["seven"] == round(1 / 3, 2)


def test_a_mention_knows_the_denial_of_its_own_sentence() -> None:
    columns = _columns("The source does not mention the harbour. Monday is right.", "Ships left.")
    # "not mention the harbour": three words behind the denial.
    assert columns["denied_before"] == {"harbour": 0.33}
    assert columns["determined"] == {"harbour": 1}
    assert columns["part_denies"] == {"harbour": 1}
    assert columns["verb_behind"] == {"monday": 1}
    assert columns["in_last"] == {"monday": 1}


def test_every_column_by_hand() -> None:
    """Content words of the source: nine 0, ship 1, left 2, old 3, quay 4, dover 5, ship 6, left 7, harbour 8, kent 9.
    Words of the critique: the 0 … not 3, mention 4, the 5, harbour 6, or 7, kent 8, monday 9, is 10, correct 11."""
    columns = _columns(
        "The source does not mention the harbour, or Kent. Monday is correct.",
        "Nine ships left the old quay of Dover. Ships left the harbour for Kent.",
    )
    words = [token.lower for token in tokens_of(TEXT)]
    wanted = {
        "source_left": {"left": 1, "harbour": 1, "kent": 1},
        "source_right": {"ships": 1, "left": 1, "harbour": 1},
        "source_near": dict.fromkeys(("ships", "left", "harbour", "kent"), 1),
        "source_count": {"ships": 1.1, "left": 1.1, "harbour": 0.69, "kent": 0.69},  # log 3, log 2
        "source_first": {"ships": 0.9, "left": 0.8, "harbour": 0.2, "kent": 0.1},
        "said_at": {"harbour": 0.5, "kent": 0.33, "monday": 0.25},
        "denied_before": {"harbour": 0.33, "kent": 0.2},  # three and five words behind "not"
        "granted_before": {"harbour": 0.5, "kent": 0.25},  # two and four behind "mention"
        "granted_behind": {"monday": 0.5},  # two before "correct"
        "determined": {"harbour": 1},
        "verb_behind": {"monday": 1},
        "listed": {"harbour": 1},
        "in_last": {"monday": 1},
        "denials": dict.fromkeys(words, 0.5),  # one
        "clauses": dict.fromkeys(words, 0.67),  # two
        "part_denies": {"harbour": 1, "kent": 1},
        "part_grants": {"harbour": 1, "kent": 1, "monday": 1},
        "part_words": {"harbour": 0.33, "kent": 0.33, "monday": 0.17},  # two and one of six
        "part_met": {"harbour": 0.67, "kent": 0.67, "monday": 0.33},
        "run_met": dict.fromkeys(("harbour", "of", "kent", "on", "monday"), 1.5),  # three words
        "run_unsupported": {"seven": 0.5, "monday": 0.5},
        "left_preposition": {"kent": 1, "on": 0.5, "monday": 1},
        "right_preposition": {
            "seven": 0.2,
            "ships": 0.25,
            "left": 0.33,
            "the": 0.5,
            "harbour": 1,
            "of": 0.5,
            "kent": 1,
        },
    }
    found = {name: {word: number for word, number in column.items() if number} for name, column in columns.items()}
    assert {name: column for name, column in found.items() if column} == wanted


@pytest.mark.parametrize("denial", ["does not", "doesn't", "doesn’t"])
def test_a_contraction_denies_as_much(denial: str) -> None:
    critique = f"The source {denial} mention the harbour."
    assert _columns(critique, "Ships left.")["part_denies"] == {"harbour": 1}
    tokens = tokens_of(TEXT)
    rows = evidence(TEXT, tokens, Aim(parse(critique, TEXT)), None)
    assert rows[:, COLUMNS.index("denies_source")].all()


def test_stretches_reach_over_function_words() -> None:
    columns = _columns("The harbour of Kent is wrong.", "Seven ships left.")
    assert columns["run_met"] == {"harbour": 1, "of": 1, "kent": 1}
    assert columns["run_unsupported"] == dict.fromkeys(("harbour", "of", "kent", "on", "monday"), 1.5)


@pytest.mark.parametrize(("critique", "meant"), [("The nationality is wrong.", True), ("The day is wrong.", False)])
def test_nationality_is_a_kind(critique: str, meant: bool) -> None:
    tokens = tokens_of("The Scottish captain left")
    rows = context(tokens, Aim(parse(critique, "The Scottish captain left")), None)
    assert rows[:, CONTEXT.index("nation")].tolist() == [0, 1, 0, 0]
    assert bool(rows[:, CONTEXT.index("kind_nation")].any()) is meant


def test_without_a_source_nothing_is_said_of_it() -> None:
    columns = _columns("The harbour is wrong.", None)
    assert not any(columns[name] for name in CONTEXT if name.startswith("source_") or name == "run_unsupported")
