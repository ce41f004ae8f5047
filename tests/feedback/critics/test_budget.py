"""What may be spent: set aside before a request is sent, counted when its reply is there, given back after a kill."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Start
from text2grad.errors import BudgetSpent, InvalidData
from text2grad.feedback.critics.budget import Budget, Cost, most_of
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.protocol import ask_now
from text2grad.feedback.settings import BudgetSettings, OpenAISettings
from text2grad.runs import read_jsonl

COSTS = st.builds(Cost, st.integers(0, 50), st.integers(0, 50))


@given(
    st.lists(st.tuples(COSTS, st.floats(0, 1) | st.none()), max_size=30),
    st.integers(0, 400),
    st.integers(1, 8),
)
def test_no_limit_is_passed_by_requests_under_way(
    planned: list[tuple[Cost, float | None]], limit: int, together: int
) -> None:
    """Each request costs at most what was set aside for it; None: its reply is lost."""
    budget = Budget(BudgetSettings(tokens=limit, money=limit * 2e-6, price_in=1.0, price_out=3.0, requests=20))
    spent = []

    async def ask(places: asyncio.Semaphore, most: Cost, share: float | None) -> None:
        async with places:
            number = await budget.reserve(most)
            await asyncio.sleep(0)
            cost = None if share is None else Cost(int(most.tokens_in * share), int(most.tokens_out * share))
            spent.append(cost or most)
            budget.settle(number, cost)

    async def everything() -> list[Any]:
        places = asyncio.Semaphore(together)
        return await asyncio.gather(*(ask(places, *each) for each in planned), return_exceptions=True)

    problems = [each for each in asyncio.run(everything()) if each is not None]
    assert all(isinstance(problem, BudgetSpent) for problem in problems)
    assert budget.tokens_in + budget.tokens_out == sum(cost.tokens_in + cost.tokens_out for cost in spent) <= limit
    assert budget.money <= limit * 2e-6 + 1e-12 and budget.requests == len(spent) <= 20


def test_one_that_does_not_fit_waits_for_those_under_way() -> None:
    """100 set aside of 150; the second needs 100, too, and fits when the first has cost 40."""
    budget = Budget(BudgetSettings(tokens=150))

    async def both() -> None:
        first = await budget.reserve(Cost(50, 50))
        second = asyncio.create_task(budget.reserve(Cost(50, 50)))
        await asyncio.sleep(0.01)
        assert not second.done()
        budget.settle(first, Cost(30, 10))
        budget.settle(await second, Cost(30, 10))

    asyncio.run(both())
    assert (budget.requests, budget.tokens_in, budget.tokens_out) == (2, 60, 20)
    with pytest.raises(
        BudgetSpent, match=r"80 of 150 tokens, .* may take 100\..*raise critics\.openai\.budget\.tokens and"
    ):
        asyncio.run(budget.reserve(Cost(50, 50)))


def test_a_journal_gives_the_count_back_wherever_it_breaks_off(tmp_path: Path) -> None:
    """By hand: three sent, one done for 7 + 5, one refused for nothing, one under way with 10 + 20 set aside."""
    budget = Budget(BudgetSettings())

    async def work() -> None:
        numbers = [await budget.reserve(Cost(10, 20)) for _ in range(3)]
        budget.settle(numbers[0], Cost(7, 5))
        budget.settle(numbers[1], Cost(0, 0))

    with budget.kept_beside(tmp_path / "out.jsonl"):
        asyncio.run(work())
    told = list(read_jsonl(tmp_path / "out.jsonl.spent"))[1:]
    again = Budget(BudgetSettings())
    again.restore(told)
    assert (again.requests, again.lost) == (3, 1)
    assert (again.tokens_in, again.tokens_out, again.earlier) == (17, 25, 3)
    third = Budget(BudgetSettings())
    with third.kept_beside(tmp_path / "out.jsonl"):
        asyncio.run(third.reserve(Cost(1, 1)))
    fourth = Budget(BudgetSettings())
    fourth.restore(list(read_jsonl(tmp_path / "out.jsonl.spent"))[1:])
    assert (fourth.requests, fourth.lost, fourth.tokens_in, fourth.tokens_out) == (4, 2, 18, 26)
    for length in range(len(told)):
        cut = Budget(BudgetSettings())
        cut.restore(told[:length])
        assert cut.requests == min(length, 3), "a request that was sent is never forgotten"
    with pytest.raises(InvalidData, match="what was spent in earlier runs"):
        again.restore([{"novel": 1}])


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"requests": 7}, 7), ({"tokens": 2500}, 0), ({"money": 0.0025, "price_in": 1.0, "price_out": 1.0}, 0)],
)
def test_a_server_is_never_asked_for_more_than_the_budget_allows(
    fault_server: Start, tmp_path: Path, limits: dict[str, Any], most: int
) -> None:
    fault_server(delay=0.02)
    options = OpenAISettings(concurrency=16, max_tokens=100, budget=BudgetSettings(**limits))
    critic = OpenAICritic("m", options)
    completions = [f"Ship number {index} left the harbour." for index in range(40)]
    with pytest.raises(BudgetSpent):
        ask_now(critic, ["p"] * 40, completions, {})
    asked = len((tmp_path / "log").read_text().splitlines())
    assert 2 <= asked == critic.budget.requests and (asked == most or not most)
    budget = critic.budget
    assert limits.get("tokens", 1e9) >= budget.tokens_in + budget.tokens_out and budget.money <= limits.get(
        "money", 1e9
    )
    assert budget.lost == 0 and budget.tokens_in == 100 * asked, "every reply was waited for, and counted as it is"


def test_a_lost_reply_counts_in_full_and_a_servers_error_for_nothing(fault_server: Start) -> None:
    fault_server("always-500")
    options = {"timeout": 0.5, "retries": 0, "longest_wait": 0.1}
    for faults, lost in (("always-500", 0), ("always-slow", 1), ("always-reset", 1)):
        fault_server(faults)
        critic = OpenAICritic("m", OpenAISettings(**options))  # type: ignore[arg-type]
        with pytest.raises(Exception, match="gave up"):
            ask_now(critic, ["p"], ["Ship number 1 left."], {})
        assert (critic.budget.requests, critic.budget.lost, bool(critic.budget.tokens_in)) == (1, lost, bool(lost))
    critic = OpenAICritic("m", OpenAISettings(base_url="http://127.0.0.1:9/v1", **options))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"nobody answers at http://127.0.0.1:9/v1/chat/completions"):
        ask_now(critic, ["p"], ["Ship number 1 left."], {})
    assert critic.budget.lost == 0, "what never reached a server is not on its bill"


def test_what_a_question_may_cost() -> None:
    """18 characters of messages and 3 beside them are 6 tokens at 3.5 each; what may come back is known."""
    question = {"messages": [{"content": "a"}], "max_tokens": 9}
    assert len(json.dumps(question["messages"])) == 18
    assert most_of(question, beside=3) == Cost(6, 9)
