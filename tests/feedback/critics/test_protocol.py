"""What a critic returns is checked where it comes in; `people` is refused for text that was just written."""

from typing import Any

import pytest

from text2grad.errors import ConfigError, CriticError, InvalidData
from text2grad.feedback.critics.named import refuse_people
from text2grad.feedback.critics.people import people
from text2grad.feedback.critics.protocol import Critiques, ask_now
from text2grad.types import Critique


def returns(*critiques: Any) -> Critiques:
    def mine(*_: Any, **__: Any) -> list[Any]:
        return list(critiques)

    return ask_now(mine, ["p"] * len(critiques), ["Nine cars."] * len(critiques), {})


def test_prefixes_may_end_with_the_completion_and_not_behind_it() -> None:
    assert returns(None, Critique("", quality=((0, 0.0), (10, 1.0))))[0] is None
    with pytest.raises(CriticError, match=r"mine, item 1: quality should end within the 10 .* ends at 11.*'Nine"):
        returns(None, Critique("", quality=((0, 0.0), (11, 1.0))))


@pytest.mark.parametrize("score", [1e30, -1e30, 1.1e6])
def test_an_absurd_score_is_refused_with_its_critic_and_item(score: float) -> None:
    assert returns(Critique("", score=1e6))[0] is not None
    with pytest.raises(CriticError, match="mine, item 1: score should lie within"):
        returns(Critique("", score=0.5), Critique("", score=score))
    with pytest.raises(CriticError, match="mine, item 0: quality at 4 should lie within"):
        returns(Critique("", quality=((4, score),)))


def test_scores_that_are_not_finite_never_become_a_critique() -> None:
    def broken(*_: Any, **__: Any) -> list[Any]:
        return [Critique("", score=float("nan"))]

    with pytest.raises(InvalidData, match=r"Critique\.score: should be a finite number, got nan"):
        ask_now(broken, ["p"], ["c"], {})


@pytest.mark.parametrize("critic", [people, "people", "first(reference, people)", "weighted(0.5*people, 0.5*code)"])
def test_people_cannot_judge_what_was_just_written(critic: Any) -> None:
    with pytest.raises(ConfigError, match=r"reward-model RUN data=OUT\.jsonl; then critic=RUN/model"):
        refuse_people(critic)


@pytest.mark.parametrize("critic", [None, "reference", "first(code, runs/people)", "own:people"])
def test_others_can(critic: str | None) -> None:
    refuse_people(critic)
