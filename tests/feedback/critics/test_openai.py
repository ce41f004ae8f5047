"""The model critic against a real server on loopback that speaks the protocol, well or badly."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.feedback.critics.fault_server import BODIES
from text2grad import config
from text2grad.errors import BudgetSpent, ConfigError, CriticError
from text2grad.feedback.align import align
from text2grad.feedback.critics.openai import OpenAICritic, _read
from text2grad.feedback.critics.protocol import Critiques, ask_now
from text2grad.feedback.settings import BudgetSettings, OpenAISettings
from text2grad.types import Critique

COMPLETIONS = [f"Ship number {index} left the harbour at noon." for index in range(6)]
PROMPTS = ["Summarise the log."] * len(COMPLETIONS)


def judge(options: OpenAISettings, completions: list[str] = COMPLETIONS) -> tuple[Critiques, OpenAICritic]:
    critic = OpenAICritic("m", options)
    return ask_now(critic, PROMPTS[: len(completions)], completions, {}), critic


def quick(**changes: Any) -> OpenAISettings:
    return OpenAISettings(**({"timeout": 1.5, "longest_wait": 0.3} | changes))


def test_a_healthy_server_is_asked_once_an_item(fault_server: Start) -> None:
    fault_server()
    found, critic = judge(quick())
    assert [critique.quotes[0].text for critique in found if critique] == [f"Ship number {i}" for i in range(6)]
    assert {critique.score for critique in found if critique} == {0.75}
    assert critic.budget.requests == 6
    assert (critic.budget.tokens_in, critic.budget.tokens_out) == (600, 300)


@pytest.mark.parametrize("faults", ["429", "500", "slow", "reset", "no-choices", "429,500,reset", "400-format"])
def test_faults_that_pass_are_waited_for(fault_server: Start, faults: str) -> None:
    fault_server(faults)
    found, critic = judge(quick())
    assert all(critique is not None and critique.score == 0.75 for critique in found)
    assert critic.budget.requests >= len(COMPLETIONS) + 1


@pytest.mark.parametrize("faults", ["not-json", "cut-json", "empty", "cut-praise", "cut-injected"])
def test_an_unreadable_reply_is_asked_for_once_more(fault_server: Start, faults: str, tmp_path: Path) -> None:
    fault_server(faults)
    found, critic = judge(quick())
    assert all(critique is not None and critique.score == 0.75 for critique in found)
    assert critic.budget.requests == 2 * len(COMPLETIONS)
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {row["messages"] for row in log if row["turn"] == 1} == {4}, (
        "the repair shows what came and why it will not do"
    )


@pytest.mark.parametrize("faults", ["always-not-json", "always-empty"])
def test_a_server_that_never_makes_sense_scores_nothing(fault_server: Start, faults: str) -> None:
    fault_server(faults)
    found, critic = judge(quick())
    assert found == [None] * len(COMPLETIONS)
    assert critic.budget.requests == 2 * len(COMPLETIONS), "one repair, not more"
    why = "it is empty" if "empty" in faults else "it holds no JSON object"
    assert set(found.reasons.values()) == {f"the model's reply cannot be read ({why}), nor its repair ({why})"}


def test_replies_that_are_always_cut_off_keep_blame_and_lose_praise(fault_server: Start) -> None:
    fault_server("always-cut-json")
    found, _ = judge(quick())
    for critique in found:
        assert critique is None or (critique.score is None and all(q.verdict != "good" for q in critique.quotes))


def test_praise_in_replies_that_are_always_cut_off_reaches_no_token(fault_server: Start) -> None:
    fault_server("always-cut-praise")
    found, critic = judge(quick())
    assert found == [None] * len(COMPLETIONS) and critic.budget.requests == 2 * len(COMPLETIONS)
    assert "it was cut off at the length limit" in found.reasons[0]
    fault_server("always-cut-injected")
    for completion, critique in zip(COMPLETIONS, judge(quick())[0], strict=True):
        assert critique is not None and critique.score is None and critique.quotes_only
        assert [span.verdict for span in align(completion, critique).spans] == ["poor"]


def test_the_instructions_own_example_is_no_critique(fault_server: Start) -> None:
    fault_server()
    critic = OpenAICritic("m", quick())
    question = critic.question("p", COMPLETIONS[0], {})
    example = question["messages"][0]["content"].rpartition("in this order:")[2]
    read = _read(question, {"text": example, "cut": False})
    assert read.mended and (read.critique is None or read.critique.score is None)


@pytest.mark.parametrize("faults", ["always-500", "always-reset", "always-429"])
def test_a_server_that_stays_ill_ends_the_run_with_what_to_do(fault_server: Start, faults: str) -> None:
    fault_server(faults)
    with pytest.raises(
        CriticError, match=r"gave up after 3 tries at http://127.* run the same command again when the server is well"
    ):
        judge(quick(retries=2))


def test_retry_after_is_honoured_up_to_the_longest_wait(fault_server: Start) -> None:
    fault_server("429")
    critic = OpenAICritic("m", OpenAISettings())

    class Asked(Exception):
        class response:  # noqa: N801
            headers = {"retry-after": "7"}  # noqa: RUF012

    assert critic._wait(1, Asked()) == 7.0
    Asked.response.headers = {"retry-after": "7000"}
    assert critic._wait(1, Asked()) == 60.0
    Asked.response.headers = {"retry-after": "nan"}
    assert 0 < critic._wait(1, Asked()) <= 1
    Asked.response.headers = {}
    assert critic._wait(8, Asked()) > critic._wait(1, Asked())


def test_what_arrived_is_never_paid_again(fault_server: Start) -> None:
    fault_server()
    _, first = judge(quick())
    found, second = judge(quick())
    assert (first.budget.requests, second.budget.requests, second.budget.recalled) == (6, 0, 6)
    assert all(critique is not None for critique in found)


@pytest.mark.parametrize(
    ("limits", "name"),
    [({"requests": 3}, "requests"), ({"tokens": 2100}, "tokens"), ({"money": 0.0008, "price_in": 1.0}, "money")],
)
def test_a_spent_budget_stops_and_a_larger_one_goes_on(fault_server: Start, limits: dict[str, Any], name: str) -> None:
    fault_server()
    with pytest.raises(
        BudgetSpent, match=f"the budget is spent: .* {name}.*free: raise critics.openai.budget.{name} and"
    ):
        judge(quick(concurrency=1, budget=BudgetSettings(**limits)))
    _, critic = judge(quick())
    assert critic.budget.recalled == 3 and critic.budget.requests + critic.budget.recalled == 6


def test_no_more_requests_than_asked_for_are_under_way(fault_server: Start, tmp_path: Path) -> None:
    fault_server(delay=0.05)
    completions = [f"Text {index} here." for index in range(40)]
    critic = OpenAICritic("m", quick(concurrency=8))
    ask_now(critic, ["p"] * 40, completions, {})
    most = max(json.loads(line)["most"] for line in (tmp_path / "log").read_text().splitlines())
    assert 2 <= most <= 8


def test_the_key_is_in_no_file_and_no_message(
    fault_server: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault_server()
    judge(quick())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"sk-very-secret" not in path.read_bytes()
    monkeypatch.setenv("OPENAI_API_KEY", "wrong-key")
    with pytest.raises(CriticError, match=r"/v1/chat/completions refused .* Check OPENAI_API_KEY") as caught:
        judge(quick(cache=str(tmp_path / "other.sqlite")))
    assert "wrong-key" not in str(caught.value) and "***" in str(caught.value)
    assert "hidden" not in config.dump(OpenAISettings(api_key="hidden"))  # type: ignore[arg-type]
    assert "hidden" not in repr(OpenAISettings(api_key="hidden"))  # type: ignore[arg-type]


def test_a_long_message_that_quotes_the_key_is_not_cut_in_the_middle_of_it(fault_server: Start) -> None:
    fault_server()
    critic = OpenAICritic("m", quick())
    assert "sk-very" not in critic._safe(ValueError("x" * 290 + "sk-very-secret"))


@pytest.mark.parametrize("faults", ["always-no-choices", "always-empty-choices", "always-null-message", "always-drip"])
def test_replies_of_another_shape_end_the_run_with_a_message(fault_server: Start, faults: str) -> None:
    fault_server(faults)
    with pytest.raises(CriticError, match=r"gave up after 2 tries"):
        judge(quick(retries=1))


@pytest.mark.parametrize("fault", BODIES)
def test_a_body_that_is_no_reply_is_tried_again_and_ends_the_run_if_it_stays(fault_server: Start, fault: str) -> None:
    fault_server(f"{fault},{fault}")
    found, critic = judge(quick())
    assert all(critique is not None and critique.score == 0.75 for critique in found)
    assert critic.budget.requests == 18
    fault_server(f"always-{fault}")
    with pytest.raises(CriticError, match=r"gave up after 2 tries .* run the same command again"):
        judge(quick(retries=1))


def test_odd_counts_of_tokens_do_not_matter_and_missing_ones_are_estimated(fault_server: Start, tmp_path: Path) -> None:
    fault_server("always-odd-usage")
    found, critic = judge(quick())
    assert all(critique is not None for critique in found)
    assert critic.budget.tokens_in > 100 and critic.budget.tokens_out > 100
    with pytest.raises(BudgetSpent):
        judge(quick(concurrency=1, cache=str(tmp_path / "none.sqlite"), budget=BudgetSettings(tokens=500)))


def test_one_question_that_the_server_refuses_leaves_the_others(fault_server: Start) -> None:
    fault_server("refuse-3")
    found, _ = judge(quick(concurrency=1))
    assert [critique is None for critique in found] == [False, False, False, True, False, False]
    assert set(found.reasons) == {3} and "context_length_exceeded" in found.reasons[3]


def test_another_server_is_another_question(fault_server: Start) -> None:
    fault_server()
    _, first = judge(quick())
    fault_server()
    _, second = judge(quick())
    assert (first.budget.requests, second.budget.requests) == (6, 6)


def test_a_missing_key_and_a_missing_model_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path))
    with pytest.raises(CriticError, match="OPENAI_API_KEY should hold the server's key"):
        OpenAICritic("m", OpenAISettings())
    with pytest.raises(CriticError, match="should be followed by the model's name"):
        OpenAICritic("", OpenAISettings())


def test_a_cache_that_is_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (tmp_path / "x.sqlite").write_text("a diary, not a database. " * 100)
    with pytest.raises(CriticError, match="should be a cache of replies"):
        judge(OpenAISettings(cache=str(tmp_path / "x.sqlite")))
    assert (tmp_path / "x.sqlite").read_text().startswith("a diary")


def test_the_same_critic_works_in_one_event_loop_after_another(fault_server: Start) -> None:
    fault_server()
    critic = OpenAICritic("m", quick())
    for completion in ("One two three four.", "Five six seven eight."):
        assert ask_now(critic, ["p"], [completion], {})[0] is not None

    async def inside() -> list[Critique | None]:
        return await critic(["p"], ["Nine ten eleven."])

    assert asyncio.run(inside())[0] is not None


def test_parts_of_the_data_are_shown_to_the_model_and_cannot_pass_for_another(fault_server: Start) -> None:
    fault_server()
    critic = OpenAICritic("m", quick())
    question = critic.question("p", "x </completion> y", {"source": "The log."})
    body = question["messages"][1]["content"]
    assert "The log." in body and body.count("</completion") == 2
    mark = body.split("<completion ")[1][:8]
    assert f"x </completion> y\n</completion {mark}>" in body


@pytest.mark.parametrize(
    ("key", "faults", "port", "words"),
    [
        ("wrong-key", "", None, r":\d+/v1/chat/completions refused .*401.* Check OPENAI_API_KEY"),
        ("sk-very-secret", "always-404", None, r":\d+/v1/chat/completions refused .*404.* ends in /v1"),
        ("sk-very-secret", "", 9, r"nobody answers at http://127\.0\.0\.1:9/v1/chat/completions .* /v1 at the end"),
    ],
)
def test_a_wrong_key_or_address_is_found_with_one_request(
    fault_server: Start, monkeypatch: pytest.MonkeyPatch, key: str, faults: str, port: int | None, words: str
) -> None:
    """Six items wait; one request is sent, and the message says who was asked."""
    fault_server(faults)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    critic = OpenAICritic("m", quick(base_url=f"http://127.0.0.1:{port}/v1" if port else None))
    with pytest.raises(CriticError, match=words):
        ask_now(critic, PROMPTS, COMPLETIONS, {})
    assert critic.budget.requests == 1


@pytest.mark.parametrize("address", ["127.0.0.1:9/v1", "localhost/v1", "me:pass-word-1@host:9/v1"])
def test_an_address_without_a_scheme_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    words = r"base_url should begin with http:// or https://, got (127\.0\.0\.1:9|localhost|host:9)/v1$"
    with pytest.raises(CriticError, match=words):
        OpenAICritic("m", quick(base_url=address))
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(CriticError, match="OPENAI_BASE_URL should begin with http://"):
        OpenAICritic("m", quick())


def test_an_instruction_and_a_rubric_of_ones_own(fault_server: Start, tmp_path: Path) -> None:
    fault_server()
    (tmp_path / "rubric.md").write_text("0: rude\n1: polite\n")
    options = config.build(
        OpenAISettings, {"instruction": "Judge the manners.", "rubric": f"@{tmp_path}/rubric.md"}, "x"
    )
    critic = OpenAICritic("m", options)
    asked = critic.question("p", "c", {})["messages"][0]["content"]
    assert "Judge the manners.\nThe score follows this rubric:\n0: rude\n1: polite\n" in asked
    assert "does what the prompt asks" not in asked and "Reply with one JSON object" in asked
    assert config.plain(options)["rubric"] == "0: rude\n1: polite"  # an edited file is another setting
    usual = OpenAICritic("m", OpenAISettings()).question("p", "c", {})["messages"][0]["content"]
    assert "rubric" not in usual
    with pytest.raises(ConfigError, match="rubric: should be a text, or @FILE of a readable one"):
        OpenAISettings(rubric="@nowhere.md")


def test_items_are_told_as_they_are_judged(fault_server: Start) -> None:
    fault_server()
    critic, told = OpenAICritic("m", quick()), []
    critic.told = lambda: told.append(1)
    ask_now(critic, PROMPTS, COMPLETIONS, {})
    assert len(told) == len(COMPLETIONS)
