"""Critics made of critics, and critics by name."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import CriticError
from text2grad.feedback.critics.compose import FirstThatAnswers, Weighted, merged
from text2grad.feedback.critics.named import critic_named, sources_of
from text2grad.feedback.critics.protocol import Critiques, ask_now
from text2grad.feedback.settings import CriticSettings
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
    (tmp_path / "broken_critic.py").write_text("x = 1 / 0\n")
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
        "weighted(nan*people, 1*reference)": "a finite one",
        "weighted(inf*people, 1*reference)": "a finite one",
        "broken_critic:x": r"importing it raised ZeroDivisionError: division by zero \(line 1 of .*broken_critic\.py",
    }.items():
        with pytest.raises(CriticError, match=message):
            critic_named(name, options)


def test_why_nobody_answered_is_told_by_each() -> None:
    def silent(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> Any:  # noqa: ARG001
        found = Critiques()
        for completion in completions:
            found.add(Critique("fine") if completion == "x" else None, f"cannot read {completion}")
        return found

    for critic in (FirstThatAnswers((silent, scores(1.0, "y"))), merged(silent, scores(1.0, "y"))):
        found = ask_now(critic, ["p"] * 3, ["x", "y", "z"], {})
        assert [critique is None for critique in found] == [False, False, True]
        assert found.reasons == {2: "silent: cannot read z; critic: gives no reason"}


def test_a_critic_that_raises_is_named_with_the_line_it_came_from() -> None:
    def careless(prompts: Sequence[Any], completions: Sequence[str], **columns: Any) -> Any:  # noqa: ARG001
        return columns["tests"]

    async def later_careless(*_: Any, **__: Any) -> Any:
        raise ValueError("not\ntoday")

    with pytest.raises(CriticError, match=r"critic careless raised KeyError: 'tests' \(line \d+ of .*test_compose\.py"):
        ask_now(careless, ["p"], ["c"], {"reference": ["r"]})
    with pytest.raises(CriticError, match=r"critic later_careless raised ValueError: not today .* return None"):
        ask_now(merged(later_careless, later), ["p"], ["c"], {})


def test_where_one_of_several_fails_the_others_are_stopped_and_waited_for() -> None:
    ended = []

    async def slow(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> Any:  # noqa: ARG001
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("slow")

    async def failing(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    with pytest.raises(CriticError, match="failing raised ValueError: no"):
        ask_now(merged(slow, failing), ["p"], ["c"], {})
    assert ended == ["slow"]


def test_the_hash_of_a_critic_follows_what_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "one_critic.py": "import one_helper\ndef judge(*_, **__): ...\n",
        "one_helper.py": "x = 1\n",
        "beside.py": "x = 1\n",
        "kit/__init__.py": "",
        "kit/critic.py": "from kit.deep.helper import judge\n",
        "kit/deep/__init__.py": "",
        "kit/deep/helper.py": "class Judge:\n    def __call__(self, *_, **__): ...\njudge = Judge()\n",
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    name = "weighted(2*one_critic:judge, 1*first(people, openai:m, kit.critic:judge))"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    critic_named(name, CriticSettings())
    before = sources_of(name)
    assert set(before) == {"one_critic:judge", "kit.critic:judge"} and sources_of(name) == before
    for file, changed in {
        "one_helper.py": {"one_critic:judge"},
        "kit/deep/helper.py": {"kit.critic:judge"},
        "beside.py": set(),
    }.items():
        (tmp_path / file).write_text(files[file] + "y = 2\n")
        now = sources_of(name)
        assert {key for key in now if now[key] != before[key]} == changed
        (tmp_path / file).write_text(files[file])
