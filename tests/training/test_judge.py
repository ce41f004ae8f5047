"""Completions → critiques → rewards: who is asked, what is not scored, what is said when a critic fails."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from text2grad.training._judge import Judge, score_of, verdicts_of

from text2grad.errors import CriticError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.protocol import Critiques
from text2grad.models.offsets import completion_of
from text2grad.training.guard import GuardSettings, Watch
from text2grad.types import Completion, Critique, Example, Quote, Scoring

EXAMPLES = [Example("a", "Where?", "In the harbour."), Example("b", "When?"), Example("c", "Who?")]


@pytest.fixture
def completions(tokenizer: Any) -> list[Completion]:
    texts = ("The harbour was closed.", "At noon", "")
    return [completion_of(tokenizer, [*tokenizer(text).input_ids, tokenizer.eos_token_id]) for text in texts]


@pytest.fixture
def judge() -> Iterator[Any]:
    made: list[Judge] = []

    def make(critic: Any, **named: Any) -> Judge:
        made.append(Judge(critic, AlignSettings(), named.pop("scoring", Scoring()), **named))
        return made[-1]

    yield make
    for one in made:
        one.close()


def critic(_prompts: Any, texts: Sequence[str], **_: Any) -> list[Critique | None]:
    """The word harbour is poor; completions without a word are not scored."""
    return [
        Critique("", quotes=(Quote("harbour", "poor"),) if "harbour" in text else (), score=-0.5) if text else None
        for text in texts
    ]


def test_what_is_not_scored_has_no_reward(judge: Any, completions: list[Completion]) -> None:
    rows = judge(critic)(EXAMPLES, completions)
    assert [row.scored for row in rows] == [True, True, False]
    assert rows[2].token_rewards is None and rows[2].alignment is None
    assert [round(sum(row.token_rewards), 9) for row in rows[:2]] == [-0.5, -0.5]
    assert [score_of(row) for row in rows[:2]] == [-0.5, -0.5]
    text, places = completions[0].text, zip(completions[0].offsets, verdicts_of(rows[0]), strict=True)
    marked = [text[start:end] for (start, end), verdict in places if verdict]
    assert "".join(marked).strip() == "harbour"
    assert set(verdicts_of(rows[1])) == {0.0}


def test_critics_get_columns_and_may_be_async(judge: Any, completions: list[Completion]) -> None:
    seen: dict[str, Any] = {}

    async def slow(prompts: Sequence[str], texts: Sequence[str], **columns: Any) -> list[Critique | None]:
        await asyncio.sleep(0)
        seen.update(columns, prompts=prompts)
        return critic(prompts, texts)

    one = judge(slow)
    assert one(EXAMPLES, completions) == judge(critic)(EXAMPLES, completions)
    assert one(EXAMPLES, completions)[2].scored is False
    assert seen == {"prompts": ["Where?", "When?", "Who?"], "reference": ["In the harbour.", None, None]}


def test_the_scalar_switch_keeps_every_sum(judge: Any, completions: list[Completion]) -> None:
    span = judge(critic, scoring=Scoring(scale=0.25))(EXAMPLES, completions)
    scalar = judge(critic, scoring=Scoring(scale=0.25), scalar=True)(EXAMPLES, completions)
    for one, other in zip(span[:2], scalar[:2], strict=True):
        assert sum(one.token_rewards) == pytest.approx(sum(other.token_rewards))
        assert set(other.token_rewards[:-1]) <= {0.0}
        assert (one.critique, one.alignment) == (other.critique, other.alignment)
    assert any(span[0].token_rewards[:-1])


def test_the_slope_learns_from_training_and_not_from_evaluation(judge: Any, completions: list[Completion]) -> None:
    one = judge(critic)
    one(EXAMPLES, completions, learn=False)
    assert one.slope.count == 0
    one(EXAMPLES, completions)
    assert one.slope.count == 2


def test_a_critic_that_raises_is_named_with_its_line(judge: Any, completions: list[Completion]) -> None:
    def broken(*_: Any, **__: Any) -> list[Critique | None]:
        raise ZeroDivisionError("of apples")

    with pytest.raises(CriticError, match=r"broken raised ZeroDivisionError: of apples \(line \d+ of .*test_judge"):
        judge(broken)(EXAMPLES, completions)


def test_requests_that_a_failing_critic_leaves_behind_are_ended(
    completions: list[Completion], caplog: pytest.LogCaptureFixture
) -> None:
    ended = []

    async def request(text: str) -> Critique:
        if not text:
            raise TimeoutError("no reply")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(text)
        raise AssertionError("it was not ended")

    async def many(_prompts: Any, texts: Sequence[str], **_: Any) -> list[Critique | None]:
        return list(await asyncio.gather(*map(request, texts)))

    asked: Any = many
    one = Judge(asked, AlignSettings(), Scoring())
    with pytest.raises(CriticError, match="raised TimeoutError: no reply"):
        one(EXAMPLES, completions)
    assert ended == []
    one.close()
    one.close()
    assert sorted(ended) == ["At noon", "The harbour was closed."]
    assert caplog.records == []


def test_a_critic_that_returns_too_little_is_told(judge: Any, completions: list[Completion]) -> None:
    with pytest.raises(CriticError, match="one Critique or None for each of 3 completions, got a list of 1"):
        judge(lambda *_, **__: [None])(EXAMPLES, completions)


def test_complaints_come_once_and_name_the_columns(judge: Any) -> None:
    watch = Watch(GuardSettings(window=2))
    one = judge(critic)
    (words,) = one.complaints({"critic/unscored_frac": 1.0}, watch, EXAMPLES)
    assert "the critic critic scored no completion" in words and "`reference`" in words
    assert one.complaints({"critic/unscored_frac": 1.0}, watch, EXAMPLES) == []
    assert one.complaints({"critic/unscored_frac": 0.9}, watch, EXAMPLES) == []


def test_spans_that_add_variance_are_told_when_they_keep_doing_so(judge: Any) -> None:
    watch, told = Watch(GuardSettings(window=2)), []
    for ratio in (1.2, 0.5, 0.9, 1.4, 1.4):
        metrics = {"score/mean": 0.0, "critic/unscored_frac": 0.0, "reward/residual_ratio": ratio}
        watch.see(
            {"length/mean": 1.0, "text/diversity": 1.0, "text/repetition": 0.0, "length/truncated_frac": 0.0, **metrics}
        )
        told.append(judge(critic).complaints(metrics, watch, EXAMPLES))
    assert [bool(words) for words in told] == [False, False, False, True, False]
    assert "set scoring.scale lower" in told[3][0]


def test_a_critic_that_scores_nothing_is_quoted_with_its_reason(judge: Any, completions: list[Completion]) -> None:
    def unsure(_prompts: Any, completions: Sequence[str], **_: Any) -> Critiques:
        return Critiques([None] * len(completions), dict.fromkeys(range(len(completions)), "only 0.41 sure"))

    one = judge(unsure)
    one(EXAMPLES, completions)
    (said,) = one.complaints({"critic/unscored_frac": 1.0}, Watch(GuardSettings()), [])
    assert "the critic unsure scored no completion" in said and "It says: only 0.41 sure." in said
