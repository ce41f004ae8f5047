"""A critic for engines: called or awaited, the same rollouts come out; what was not scored moves nothing."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from text2grad import Critique, Quote
from text2grad.engines.advantages import registered
from text2grad.engines.scorer import Scorer, with_unscored
from text2grad.feedback.critics.protocol import Critic
from text2grad.models.tiny import tiny_tokenizer

TEXTS = ["The harbour was closed", "a crane fell", "nobody was hurt"]


def blames(prompts: Any, completions: Sequence[str], *, word: Sequence[str] = (), **_: Any) -> list[Critique | None]:
    assert len(prompts) == len(completions)
    found = []
    for text, each in zip(completions, word, strict=True):
        quotes = (Quote(each, "poor"),) if each in text else ()
        found.append(Critique("Not this word.", quotes=quotes, score=-1.0) if quotes else None)
    return found


async def later(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
    await asyncio.sleep(0)
    return blames(prompts, completions, **columns)


class Judged:
    """A sync critic that says in which thread it was asked."""

    thread = ""

    def __call__(self, prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
        self.thread = threading.current_thread().name
        return blames(prompts, completions, **columns)


@pytest.fixture
def given() -> tuple[Any, list[dict[str, Any]], list[list[int]]]:
    tokenizer = tiny_tokenizer()
    rows = [{"prompt": "Say it.", "word": word} for word in ("closed", "crane", "missing")]
    return tokenizer, rows, [tokenizer(text)["input_ids"] for text in TEXTS]


@pytest.fixture
def scorers(given: Any) -> Iterator[list[Scorer]]:
    critics: list[Critic] = [blames, later, Judged()]
    made = [Scorer(critic, given[0]) for critic in critics]
    yield made
    for each in made:
        each.close()


def test_called_or_awaited_is_the_same(given: Any, scorers: list[Scorer]) -> None:
    _, rows, ids = given
    wanted = scorers[0](rows, ids, truncated=[False, True, False])
    assert [rollout.scored for rollout in wanted] == [True, True, False]
    assert [rollout.truncated for rollout in wanted] == [False, True, False]
    assert sum(wanted[0].token_rewards or ()) == pytest.approx(-1.0) and -1.0 in (wanted[0].verdicts or ())
    for scorer in scorers:
        assert asyncio.run(scorer.later(rows, ids, truncated=[False, True, False])) == wanted
    critic = scorers[2].reward_function.critic
    assert isinstance(critic, Judged) and critic.thread not in ("", threading.current_thread().name)


def test_an_unscored_completion_moves_no_baseline(given: Any, scorers: list[Scorer]) -> None:
    """Returns 2 and −1 in a group with one that was not scored: it gets 0.5, and advantage 0. The others stay in the
    proportion that they have alone, 1.5 to −1.5."""
    _, rows, ids = given
    rollouts = scorers[0](rows, ids)
    filled = with_unscored(rollouts, [[2.0], [-1.0], []], ["g", "g", "g"])
    assert filled[:2] == [[2.0], [-1.0]] and sum(filled[2]) == filled[2][-1] == 0.5
    alone = with_unscored(rollouts, [[2.0], [-1.0], []], ["g", "g", "h"])
    assert not any(alone[2]) and len(alone[2]) == len(ids[2])
    rewards_BT = torch.tensor([[sum(each)] for each in filled])
    (first,), (second,), (third,) = registered("rloo")(rewards_BT, torch.ones(3, 1), index=["g"] * 3)[0].tolist()
    assert third == 0 and first == pytest.approx(-second) and first > 0
