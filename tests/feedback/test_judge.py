"""Completions → critiques → rewards: who is asked, what is not scored, what is said when a critic fails."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from text2grad.errors import CriticError, InvalidData
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.protocol import Critiques
from text2grad.feedback.judge import RewardFunction, judge, token_verdicts
from text2grad.feedback.settings import Scoring
from text2grad.models.offsets import completion_of
from text2grad.types import Completion, Critique, Example, Quote

EXAMPLES = [Example("a", "Where?", "In the harbour."), Example("b", "When?"), Example("c", "Who?")]


@pytest.fixture
def completions(tokenizer: Any) -> list[Completion]:
    texts = ("The harbour was closed.", "At noon", "")
    return [completion_of(tokenizer, [*tokenizer(text).input_ids, tokenizer.eos_token_id]) for text in texts]


@pytest.fixture
def rewards() -> Iterator[Any]:
    made: list[RewardFunction] = []

    def make(critic: Any, **named: Any) -> RewardFunction:
        made.append(RewardFunction(critic, AlignSettings(), named.pop("scoring", Scoring()), **named))
        return made[-1]

    yield make
    for reward_function in made:
        reward_function.close()


def critic(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:  # noqa: ARG001
    """The word harbour is poor; completions without a word are not scored."""
    return [
        Critique("", quotes=(Quote("harbour", "poor"),) if "harbour" in text else (), score=-0.5) if text else None
        for text in completions
    ]


def test_what_is_not_scored_has_no_reward(rewards: Any, completions: list[Completion]) -> None:
    rows = rewards(critic)(EXAMPLES, completions)
    assert [row.scored for row in rows] == [True, True, False]
    assert rows[2].token_rewards is None and rows[2].alignment is None
    assert [round(sum(row.token_rewards), 9) for row in rows[:2]] == [-0.5, -0.5]
    assert [row.score for row in rows[:2]] == [-0.5, -0.5]
    text, places = completions[0].text, zip(completions[0].offsets, rows[0].verdicts, strict=True)
    marked = [text[start:end] for (start, end), verdict in places if verdict]
    assert "".join(marked).strip() == "harbour"
    assert set(rows[1].verdicts) == {0.0}


def test_critics_get_columns_and_may_be_async(rewards: Any, completions: list[Completion]) -> None:
    seen: dict[str, Any] = {}

    async def slow(prompts: Sequence[str], texts: Sequence[str], **columns: Any) -> list[Critique | None]:
        await asyncio.sleep(0)
        seen.update(columns, prompts=prompts)
        return critic(prompts, texts)

    one = rewards(slow)
    assert one(EXAMPLES, completions) == rewards(critic)(EXAMPLES, completions)
    assert one(EXAMPLES, completions)[2].scored is False
    assert seen == {"prompts": ["Where?", "When?", "Who?"], "reference": ["In the harbour.", None, None]}


def test_the_scalar_switch_keeps_every_sum(rewards: Any, completions: list[Completion]) -> None:
    span = rewards(critic, scoring=Scoring(scale=0.25))(EXAMPLES, completions)
    scalar = rewards(critic, scoring=Scoring(scale=0.25), scalar=True)(EXAMPLES, completions)
    for one, other in zip(span[:2], scalar[:2], strict=True):
        assert sum(one.token_rewards) == pytest.approx(sum(other.token_rewards))
        assert set(other.token_rewards[:-1]) <= {0.0}
        assert (one.critique, one.alignment) == (other.critique, other.alignment)
    assert any(span[0].token_rewards[:-1])


def test_the_scale_learns_from_training_and_not_from_evaluation(rewards: Any, completions: list[Completion]) -> None:
    one = rewards(critic)
    one(EXAMPLES, completions, learn=False)
    assert one.running_scale.count == 0
    one(EXAMPLES, completions)
    assert one.running_scale.count == 2


def test_a_critic_that_raises_is_named_with_its_line(rewards: Any, completions: list[Completion]) -> None:
    def broken(*_: Any, **__: Any) -> list[Critique | None]:
        raise ZeroDivisionError("of apples")

    with pytest.raises(CriticError, match=r"broken raised ZeroDivisionError: of apples \(line \d+ of .*test_judge"):
        rewards(broken)(EXAMPLES, completions)


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
    one = RewardFunction(asked, AlignSettings(), Scoring())
    with pytest.raises(CriticError, match="raised TimeoutError: no reply"):
        one(EXAMPLES, completions)
    assert ended == []
    one.close()
    one.close()
    assert sorted(ended) == ["At noon", "The harbour was closed."]
    assert caplog.records == []


def test_a_critic_that_returns_too_little_is_told(rewards: Any, completions: list[Completion]) -> None:
    with pytest.raises(CriticError, match="one Critique or None for each of 3 completions, got a list of 1"):
        rewards(lambda *_, **__: [None])(EXAMPLES, completions)


def test_what_is_left_out_is_charged_to_a_decision_to_stop(rewards: Any, tokenizer: Any) -> None:
    def incomplete(_prompts: Any, texts: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", omissions=("where it was",)) for _ in texts]

    ended = completion_of(tokenizer, [*tokenizer("At noon").input_ids, tokenizer.eos_token_id])
    whole, cut = rewards(incomplete)(EXAMPLES[:2], [ended, ended], truncated=[False, True])
    assert whole.verdicts == (*[0.0] * (len(ended.token_ids) - 1), -1.0) and set(cut.verdicts) == {0.0}
    assert token_verdicts(ended, whole.alignment, ended=True) == whole.verdicts
    assert token_verdicts(ended, whole.alignment, ended=False) == cut.verdicts


def test_the_scale_adds_up_over_processes(rewards: Any, completions: list[Completion]) -> None:
    """One process with everything, and two that see a half each, learn the same; here the second half has a prompt of
    its own, and the numbers by which both name their prompts are the same."""

    def lengths(prompts: Any, texts: Sequence[str], **_: Any) -> list[Critique | None]:
        return [
            Critique("", quotes=(Quote("harbour", "good"),) if "harbour" in text else (), score=len(text) + len(prompt))
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    halves = [Example("a", "Short."), Example("b", "A longer prompt, which scores more.")]
    sent: list[Any] = []

    class Other:
        """Notes what a process would send, and then gives the parts of both."""

        def all_gather(self, mine: Any) -> list[Any]:
            sent.append(mine)
            return sent

    one, other, alone = rewards(lengths), rewards(lengths), rewards(lengths)
    other([halves[1]] * 3, completions, world=Other())
    one([halves[0]] * 3, completions, world=Other())
    alone([halves[0]] * 3 + [halves[1]] * 3, completions * 2)
    assert one.running_scale.count == 6
    assert one.running_scale.state() == pytest.approx(alone.running_scale.state())
    assert one.running_scale.value == pytest.approx(alone.running_scale.value) and one.running_scale.value[0] > 0
    assert one.spread == pytest.approx(alone.spread) and alone.spread != 1


@pytest.mark.parametrize("scoring", [Scoring(), Scoring(slopes="two", by_length=True)])
def test_what_a_verdict_is_worth_is_learned_among_the_completions_of_a_prompt(tokenizer: Any, scoring: Scoring) -> None:
    """ "Easy" has high scores and much praise. Within a prompt, one more praised word is worth 0.1. Critiques of other
    kinds, and one that is not scored, stand between them."""
    texts = {"easy": ["red red red blue.", "red red red red.", "none"], "hard": ["blue blue", "red blue", "no score"]}
    # Without ids of their own, as rows of another trainer may come: the prompt tells which belong together.
    examples = [Example(f"row-{name}-{text}", name) for name, some in texts.items() for text in some]
    completions = [completion_of(tokenizer, tokenizer(text).input_ids) for some in texts.values() for text in some]

    def critic(prompts: Any, said: Sequence[str], **_: Any) -> list[Critique | None]:
        critiques: list[Critique | None] = []
        for prompt, text in zip(prompts, said, strict=True):
            quotes = tuple(Quote("red", "good", start=match.start()) for match in re.finditer("red", text))
            score = 0.1 * len(quotes) + 0.5 * (prompt == "easy")
            critiques.append(None if text == "none" else Critique("", quotes=quotes, score=score))
        return [
            Critique("No score.") if text == "no score" else said for text, said in zip(said, critiques, strict=True)
        ]

    asked: Any = critic
    one = RewardFunction(asked, AlignSettings(), scoring)
    for _ in range(400):
        found = one(examples, completions)
    assert one.running_scale.count == 1600, "four of six have a price, 400 times"
    if scoring.by_length:
        # Three of four words and four of four, by characters: 9/17 and 12/16; none and one of two: 0 and 3/8. The same
        # critic can be read as a price by length, so both together explain it: here by what each earns in the whole.
        earned = [sum(rollout.token_rewards[:-1]) for rollout in found if rollout.token_rewards is not None]
        assert earned[1] - earned[0] == pytest.approx(0.1, abs=0.02)
        assert earned[3] - earned[2] == pytest.approx(0.1, abs=0.02)
    else:
        assert one.scale == pytest.approx(0.1, rel=0.05)
    one.close()


def test_one_wild_score_does_not_decide_what_a_verdict_is_worth(rewards: Any, completions: list[Completion]) -> None:
    wild = [1e6]

    def critic(_prompts: Any, texts: Sequence[str], **_: Any) -> list[Critique | None]:
        scores = [
            wild.pop() if wild else float("harbour" in text or index % 3 == 0) for index, text in enumerate(texts)
        ]
        return [Critique("", quotes=(Quote("harbour", "good"),), score=score) for score in scores]

    tame, spoilt = rewards(critic), rewards(critic)
    spoilt(EXAMPLES * 16, completions * 16)
    tame(EXAMPLES * 16, completions * 16)
    assert spoilt.spread > 1e4 and spoilt.scale < 5 * tame.scale
    for _ in range(9):
        tame(EXAMPLES * 16, completions * 16)
        spoilt(EXAMPLES * 16, completions * 16)
    assert spoilt.spread < 2 * tame.spread and spoilt.scale < 2 * tame.scale


def test_it_works_inside_a_running_event_loop(completions: list[Completion]) -> None:
    """As in a notebook."""

    async def notebook() -> list[Any]:
        return judge(EXAMPLES, completions, critic)

    assert asyncio.run(notebook()) == judge(EXAMPLES, completions, critic)
    with pytest.raises(InvalidData, match="one example per completion, got 2 and 3"):
        judge(EXAMPLES[:2], completions, critic)


def test_why_something_was_not_scored_is_the_critics_own_words(rewards: Any, completions: list[Completion]) -> None:
    def unsure(_prompts: Any, completions: Sequence[str], **_: Any) -> Critiques:
        return Critiques([None] * len(completions), dict.fromkeys(range(len(completions)), "only 0.41 sure"))

    one = rewards(unsure)
    one(EXAMPLES, completions, learn=False)
    assert one.reason == ""
    one(EXAMPLES, completions)
    assert one.reason == "only 0.41 sure"


def test_what_is_no_completion_is_refused() -> None:
    texts: list[Any] = ["plain text"]
    with pytest.raises(InvalidData, match=r"text2grad.Completion objects, got 'plain text'; text2grad.completion_of"):
        judge(EXAMPLES[:1], texts, "reference")
    with pytest.raises(InvalidData, match=r"text2grad.Example objects, got 'plain text'"):
        judge(texts, [Completion("", (), ())], "reference")
