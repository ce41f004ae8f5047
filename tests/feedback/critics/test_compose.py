"""Critics made of critics, and critics by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import CriticError
from text2grad.feedback.critics.compose import FirstThatAnswers, Weighted, merged
from text2grad.feedback.critics.named import CriticSettings, critic_named
from text2grad.feedback.critics.protocol import ask_now
from text2grad.types import Critique, Quote


def scores(score: float, only: str = "", quote: str = "a") -> Any:
    """A critic that gives this score to completions that contain `only`, and quotes one thing."""

    def critic(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> list[Critique | None]:  # noqa: ARG001
        made = Critique(f"scores {score}", (Quote(quote, "poor", 0.8),), (f"omits {score}",), score)
        return [made if only in completion else None for completion in completions]

    return critic


async def later(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> list[Critique | None]:  # noqa: ARG001
    return [Critique("later", score=1.0) for _ in completions]


def judged(critic: Any, *completions: str) -> list[Critique | None]:
    return ask_now(critic, ["p"] * len(completions), list(completions), {"reference": ["r"] * len(completions)})


def test_the_first_that_answers_counts_and_the_next_see_only_what_is_left() -> None:
    asked = []

    def last(prompts: Sequence[Any], completions: Sequence[str], reference: Any = None, **_: Any) -> Any:  # noqa: ARG001
        asked.append((list(completions), list(reference)))
        return [Critique("last", score=0.0)] * len(completions)

    found = judged(FirstThatAnswers((scores(0.5, "x"), scores(0.25, "y"), last)), "x", "y", "z")
    assert [critique.score for critique in found if critique] == [0.5, 0.25, 0.0]
    assert asked == [(["z"], ["r"])]


def test_weighted_scores_by_hand() -> None:
    """(3 × 1.0 + 1 × 0.2) / 4 = 0.8; where the lighter one is silent, the heavier one's score stands."""
    both, one, none = judged(Weighted((scores(1.0, "a"), scores(0.2, "b")), (3.0, 1.0)), "ab", "a", "c")
    assert both is not None and both.score == pytest.approx(0.8)
    assert both.feedback == "scores 1.0\nscores 0.2" and both.omissions == ("omits 1.0", "omits 0.2")
    assert [quote.severity for quote in both.quotes] == [0.8], "the same words count once"
    assert one is not None and one.score == 1.0
    assert none is None


def test_merging_keeps_what_each_says_and_waits_for_those_that_are_async() -> None:
    (found,) = judged(merged(scores(0.5, quote="one"), scores(0.25, quote="two"), later), "text")
    assert found is not None and [quote.text for quote in found.quotes] == ["one", "two"]
    assert found.score == pytest.approx((0.5 + 0.25 + 1.0) / 3)


def test_the_most_doubtful_verdict_stays_and_quotes_alone_count_if_all_say_so() -> None:
    def says(**fields: Any) -> Any:
        return lambda _, completions, **__: [Critique("x", score=1.0, **fields) for _ in completions]

    plain, isolated = says(), says(verdict="isolated", quotes_only=True)
    shared = says(verdict="in_process", quotes_only=True)
    for critics, verdict, alone in (
        ((plain, plain), None, False),
        ((plain, isolated), "isolated", False),
        ((shared, isolated), "in_process", True),
        ((isolated, plain, shared), "in_process", False),
    ):
        (critique,) = judged(merged(*critics), "a")
        assert critique is not None
        assert (critique.verdict, critique.quotes_only) == (verdict, alone)
    (first,) = judged(FirstThatAnswers((shared, plain)), "a")
    assert first is not None
    assert first.verdict == "in_process"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([], r"for each of 1 completions, got a list of 0"),
        (None, "got NoneType"),
        (["fine"], r"item 0: should be a text2grad\.Critique or None, got str"),
    ],
)
def test_a_critic_that_breaks_the_protocol_is_named(result: Any, message: str) -> None:
    def careless(*_: Any, **__: Any) -> Any:
        return result

    with pytest.raises(CriticError, match=f"careless.*{message}"):
        ask_now(careless, ["p"], ["c"], {})


def test_names_and_expressions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_critics.py").write_text(
        "from text2grad import Critique\n"
        "def half(prompts, completions, **columns):\n    return [Critique('half', score=0.5) for _ in completions]\n"
        "class Judge:\n    def __call__(self, prompts, completions, **columns):\n"
        "        return [Critique('full', score=1.0) for _ in completions]\n"
        "judge = Judge()\nnumber = 5\n"
    )
    monkeypatch.chdir(tmp_path)
    options = CriticSettings()
    assert [c.score for c in judged(critic_named("my_critics:half", options), "x") if c] == [0.5]
    (found,) = judged(critic_named("weighted(3*my_critics:judge, 1*first(people, my_critics:half))", options), "x")
    assert found is not None and found.score == pytest.approx(0.875)
    (found,) = judged(critic_named("merge(my_critics:judge,my_critics:half)", options), "x")
    assert found is not None and found.score == pytest.approx(0.75)
    for name, message in {
        "peeple": "did you mean `people`",
        "xyzzy": "there are people",
        "my_critics:nothing": "has no attribute 'nothing'",
        "no_such_module:x": "No module named 'no_such_module'",
        "my_critics:Judge": "got a class; name an instance of it",
        "my_critics:number": "got int",
        "first()": "at least one critic",
        "weighted(people)": r"should look like 0\.5\*critic",
        "weighted(-1*people)": "a weight above 0",
    }.items():
        with pytest.raises(CriticError, match=message):
            critic_named(name, options)
