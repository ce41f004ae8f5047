"""The nouns: what each refuses and how it says so, and JSON both ways."""

import json
import pickle
from dataclasses import FrozenInstanceError
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.types import (
    Alignment,
    Completion,
    Critique,
    Example,
    Message,
    MetricInfo,
    Missed,
    Quote,
    Rollout,
    Span,
)

COMPLETION = Completion("Hi 🙂", (5, 6, 7, 2), ((0, 3), (3, 4), (3, 4), (4, 4)))
CRITIQUE = Critique(
    "Friendly, but 'Hi' is too short.",
    quotes=(Quote("Hi", "poor", severity=0.5, comment="is too short", start=0),),
    omissions=("the name",),
    score=0.25,
    quality=((0, 0.0), (3, -0.5), (4, 0.25)),
    revision="Hello, Ada 🙂",
    verdict="in_process",
    quotes_only=True,
)
ALIGNMENT = Alignment((Span(0, 2, "poor", 0.5, "exact", 1.0, "is too short"),), (Missed("Hey", "not there"),), ("a",))
EXAMPLE = Example("x", (Message("system", "Be kind."), Message("user", "Greet.")), "Hello!", {"tests": [1, None]})

NOUNS = [
    COMPLETION,
    CRITIQUE,
    ALIGNMENT,
    EXAMPLE,
    MetricInfo("Score", "Mean score.", "higher"),
    Rollout(
        EXAMPLE,
        COMPLETION,
        index=3,
        group=1,
        prompt_ids=(1, 2),
        logprobs=(-1.5,) * 4,
        values=(0.5,) * 4,
        truncated=True,
        critique=CRITIQUE,
        alignment=ALIGNMENT,
        token_rewards=(0.0, -1.0, 0.0, 1.0),
        verdicts=(-1.0, 0.0, 0.0, 0.0),
        score=0.25,
        advantages=(0.0,) * 4,
        logprobs_after=(-1.0,) * 4,
    ),
    Rollout(EXAMPLE, COMPLETION),
]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: type(noun).__name__)
def test_json_and_back_is_the_same(noun: Any) -> None:
    text = json.dumps(noun.to_json(), allow_nan=False)
    assert type(noun).from_json(json.loads(text)) == noun
    assert pickle.loads(pickle.dumps(noun)) == noun


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: type(noun).__name__)
def test_nouns_are_frozen(noun: Any) -> None:
    field = next(iter(noun.to_json()))
    with pytest.raises(FrozenInstanceError):
        setattr(noun, field, None)
    with pytest.raises((AttributeError, TypeError)):
        noun.something_new = 1


def rewarded(**changes: Any) -> Rollout:
    parts: dict[str, Any] = {
        "example": EXAMPLE,
        "completion": COMPLETION,
        "critique": CRITIQUE,
        "alignment": ALIGNMENT,
        "token_rewards": (0.0,) * 4,
    }
    return Rollout(**(parts | changes))


# Classes as somebody without a type checker calls them.
_Completion: Any = Completion
_Critique: Any = Critique
_Example: Any = Example
_Message: Any = Message
_Rollout: Any = Rollout
_Span: Any = Span


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Completion("ab", (1, 2), ((0, 2),)), "one offset pair per token id, got 2 ids and 1 pairs"),
        (lambda: Completion("ab", (1,), ((0, 3),)), "offsets[0] should start within 0..0 and end within its start..2"),
        (lambda: Completion("abc", (1, 2), ((0, 1), (2, 3))), "offsets[1] should start within 0..1"),
        (lambda: Completion("abc", (1, 2), ((0, 2), (1, 0))), "got (1, 0)"),
        (lambda: Completion("abc", (1, 2), ((0, 1), (1, 2))), "cover all 3 characters of the text, got the first 2"),
        (lambda: Completion("ab", (), ()), "uncovered: 'ab'"),
        (
            lambda: Completion("a", (-1,), ((0, 1),)),
            "Completion.token_ids[0]: should be greater than or equal to 0, got -1",
        ),
        (lambda: Completion("a", (True,), ((0, 1),)), "Completion.token_ids[0]: should be a valid integer, got True"),
        (
            lambda: Completion("a\ud800", (1,), ((0, 2),)),
            "Completion.text: should be text that can be written as UTF-8, got half a",
        ),
        (lambda: Span(3, 3, "poor"), "Span: end should lie behind start, got start 3 and end 3"),
        (lambda: Span(-1, 3, "poor"), "Span.start: should be greater than or equal to 0, got -1"),
        (lambda: _Span(0, 3, "bad"), "Span.verdict: should be 'good', 'poor' or 'neutral', got 'bad'"),
        (lambda: Span(0, 3, "poor", severity=0.0), "Span.severity: should be greater than 0, got 0.0"),
        (lambda: Span(0, 3, "poor", confidence=float("nan")), "Span.confidence: should be a finite number, got nan"),
        (lambda: Span(0, 9, "poor").slice("short"), "should end within its text of 5 characters 'short', got end 9"),
        (lambda: rewarded(alignment=Alignment((Span(0, 9, "poor"),))), "Span(0, 9) should end within its text of 4"),
        (lambda: rewarded(token_rewards=(0.0,)), "token_rewards should hold one number per token id, got 1 for 4 ids"),
        (lambda: rewarded(critique=None), "should come together or not at all, got critique=None, alignment=given"),
        (lambda: Quote("", "poor"), "Quote: text should hold more than white space, got ''"),
        (lambda: _Critique("x", quotes=[{"text": " ", "verdict": "poor"}]), "Critique.quotes[0]: text should hold"),
        (lambda: Critique("x", omissions=("",)), "omissions should each say what is missing"),
        (lambda: Critique("x", quality=((2, 0.1), (2, 0.2))), "strictly ascending character ends, got [2, 2]"),
        (lambda: Missed("", "x"), "should name the quote and the reason"),
        (lambda: _Completion(b"ab", (1,), ((0, 2),)), "Completion.text: should be a valid string, got b'ab'"),
        (
            lambda: _Completion("ab", {9, 1}, ((0, 1), (1, 2))),
            "Completion.token_ids: should be a list or a tuple, got set",
        ),
        (
            lambda: _Rollout(EXAMPLE, COMPLETION, truncated="off"),
            "Rollout.truncated: should be a valid boolean, got 'off'",
        ),
        (lambda: _Example("a", 5), "Example.prompt: should be a valid string or a valid tuple, got 5"),
        (lambda: Example("a", "p", columns={"x": "\ud800"}), "columns should hold texts that can be written as UTF-8"),
        (
            lambda: rewarded(critique=Critique("x", quality=((9, 1.0),))),
            "critique.quality should end within the text of 4",
        ),
        (lambda: Example("", "p"), "id: should be a non-empty text"),
        (lambda: Example("a", ()), "prompt: should be a non-empty text or list of messages"),
        (lambda: Rollout(EXAMPLE, COMPLETION, logprobs=(-0.1,)), "logprobs should hold one number per token id, got 1"),
        (lambda: _Message("user"), "Message.content: is required, nothing came"),
        (lambda: _Message("user", "x", name="y"), "Message.name: there is no such field; the fields are role, content"),
    ],
)
def test_a_broken_noun_says_what_was_wanted_what_came_and_where(make: Any, message: str) -> None:
    with pytest.raises(InvalidData) as caught:
        make()
    assert message in str(caught.value)
    assert "pydantic" not in str(caught.value) and "function-" not in str(caught.value)


def test_rows_of_older_runs_are_read() -> None:
    row = {"update": 3, "index": 2, "truncated": False, "example": EXAMPLE.to_json(), "held_out": True}
    row |= {"completion": COMPLETION.to_json(), "logprobs_before": [-1.0] * 4}
    assert Rollout.from_json(row) == Rollout(EXAMPLE, COMPLETION, index=2, logprobs=(-1.0,) * 4)


def test_every_violation_of_a_row_is_named_with_its_path() -> None:
    spans = [{"start": 0, "end": 1, "verdict": "poor"}, {"start": 4, "end": 2, "verdict": "good"}, {"start": "0"}]
    with pytest.raises(InvalidData) as caught:
        Alignment.from_json({"spans": spans, "mised": []})
    assert str(caught.value).splitlines() == [
        "Alignment.spans[1]: end should lie behind start, got start 4 and end 2",
        "Alignment.spans[2].start: should be a valid integer, got '0'",
        "Alignment.spans[2].end: is required, nothing came",
        "Alignment.spans[2].verdict: is required, nothing came",
        "Alignment.mised: there is no such field; the fields are spans, missed, omissions",
    ]


def test_changing_the_columns_given_does_not_change_the_example() -> None:
    columns: dict[str, Any] = {"a": 1}
    example = Example("x", "p", columns=columns)
    columns["a"] = 2
    assert example.columns == {"a": 1}


def test_an_empty_completion_is_a_completion() -> None:
    assert Completion("", (2,), ((0, 0),)).text == ""
    assert Completion("", (), ()).token_ids == ()


@given(
    st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10**6)), max_size=20),
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_any_tiling_of_any_text_is_a_completion_and_survives_json(
    pieces: list[tuple[str, int]], score: float | None
) -> None:
    ends = [0]
    for piece, _ in pieces:
        ends.append(ends[-1] + len(piece))
    text = "".join(piece for piece, _ in pieces)
    completion = Completion(text, tuple(i for _, i in pieces), tuple(pairwise(ends)))
    critique = Critique(text, score=score)
    for noun in (completion, critique):
        assert type(noun).from_json(json.loads(json.dumps(noun.to_json()))) == noun


def test_half_a_surrogate_pair_in_a_prompt_is_one_line() -> None:
    with pytest.raises(InvalidData) as problem:
        Example("a", "caf\udce9")
    assert str(problem.value).startswith("Example.prompt: should be text") and "\n" not in str(problem.value)
