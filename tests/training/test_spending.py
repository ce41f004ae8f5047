"""What model critics cost in a run: the estimate, one budget over resumes and processes, the tally."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.training.trainings import SMALL, metrics_of
from text2grad.cli import main
from text2grad.feedback.critics.budget import Cost
from text2grad.feedback.settings import BudgetSettings
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.training.spending import budget_share, over_budget

WORDS = [*SMALL, "updates=3", "critic=openai:m", "guard.nothing_learned=warn", "log.hindsight=0"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("given")
    tiny_model(tokenizer := tiny_tokenizer()).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    rows = [{"id": n, "prompt": f"Name ship {n}."} for n in range(6)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [f"data={folder / 'data.jsonl'}", f"model={folder / 'base'}"]


def asked(folder: Path) -> int:
    return len((folder / "log").read_text().splitlines()) if (folder / "log").exists() else 0


def test_a_dry_run_says_what_it_costs_and_does_nothing(
    fault_server: Start, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 updates x 3 prompts x 2 completions, and 3 evaluations (the start, update 2, the end) of 6."""
    fault_server()
    prices = ["critics.openai.budget.price_in=1", "critics.openai.budget.price_out=2"]
    words = [
        "train",
        str(tmp_path / "run"),
        *WORDS,
        *given,
        given[0].replace("data=", "held_out="),
        *prices,
        "--dry-run",
    ]
    assert main(words) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("3 evaluations of 6 held-out examples: 36 completions to judge")
    assert second.startswith("openai:m at http://127.0.0.1:") and "about 36 requests" in second
    assert f"at most {36 * 1200:,} out" in second and "money" in second
    assert asked(tmp_path) == 0 and not (tmp_path / "run").exists()
    referenced = tmp_path / "referenced.jsonl"
    referenced.write_text('{"prompt": "Name a ship.", "reference": "Argo."}\n')
    words = [*WORDS, *given, f"data={referenced}", "critic=reference", "--dry-run"]
    assert main(["train", str(tmp_path / "run"), *words]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "3 updates x 3 prompts x 2 completions: 18 completions to judge"
    assert second == "no cost: no model server is asked"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["critic=referenc"], "no critic 'referenc'; did you mean `reference`?"),
        (["critic=opnai:m"], "Did you mean `openai:m`?"),
        (["critic=code"], "the critic code needs the column `tests`, and the columns that the examples bring it are: "),
        (["evaluation.critic=refrence"], "did you mean `reference`?"),
        (["model=no/such/model"], "no/such/model: there is no such folder or file"),
    ],
)
def test_a_dry_run_refuses_what_cannot_run(
    words: list[str], told: str, fault_server: Start, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fault_server()
    assert main(["train", "run", *WORDS, *given, *words, "--dry-run"]) == 2
    assert told in capsys.readouterr().err


def test_a_dry_run_says_where_the_budget_ends(
    fault_server: Start, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """18 completions; 5 requests are not enough, 18 are."""
    fault_server()
    for limit, said in ((5, "over the budget: stops after about 5 of 18 requests; "), (18, "")):
        assert main(["train", "run", *WORDS, *given, f"critics.openai.budget.requests={limit}", "--dry-run"]) == 0
        third = capsys.readouterr().out.splitlines()[2:]
        assert [line.startswith(said) for line in third] == [True] * bool(said)


def test_the_limit_that_is_reached_first_is_told() -> None:
    """10 requests of 100 tokens: 500 tokens are half of them, 2 requests a fifth."""
    told = over_budget(BudgetSettings(requests=2, tokens=500), 10, Cost(600, 400))
    assert told is not None and "stops after about 2 of 10 requests" in told
    assert "budget.requests=10 critics.openai.budget.tokens=1000 are enough" in told
    told = over_budget(BudgetSettings(tokens=500), 10, Cost(600, 400))
    assert told is not None and "may stop after about 5 of 10 requests" in told


def test_a_budget_caps_the_run_and_can_be_raised_on_resume(
    fault_server: Start, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault_server()
    run = tmp_path / "run"

    def train(*words: str) -> int:
        return main(["train", str(run), *WORDS, *given, *words])

    limit = "critics.openai.budget.requests={}"
    assert train(limit.format(8)) == 2
    said = capsys.readouterr().err
    assert "the budget is spent: 8 of 8 requests" in said and asked(tmp_path) == 8
    assert "to resume, raise critics.openai.budget.requests to at least 9" in said
    assert train(limit.format(8)) == 2, "a resume has no fresh budget"
    assert asked(tmp_path) == 8
    capsys.readouterr()
    free = ["critics.openai.concurrency=2", "critics.openai.timeout=9", "critics.openai.retries=1"]
    assert train(limit.format(100), *free) == 0
    said = capsys.readouterr().err
    last: dict[str, Any] = metrics_of(run)[-1]
    assert last["critic/requests"] == asked(tmp_path) <= 19  # one to begin with; equal texts are asked about once
    assert last["critic/tokens_in"] == 100 * last["critic/requests"]
    assert f"{asked(tmp_path)} requests" in said and "8 of the requests in earlier runs" in said


def test_a_wrong_key_is_found_with_one_request_before_the_model_is_loaded(
    fault_server: Start,
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault_server()
    run = ["train", str(tmp_path / "run"), *WORDS, *given, "updates=1", "critics.openai.budget.requests=50"]
    with monkeypatch.context() as wrong:
        wrong.setenv("OPENAI_API_KEY", "wrong-key")
        wrong.setattr("text2grad.training.setup.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
        assert main(run) == 2
    assert "refused" in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert asked(tmp_path) == 1
    assert main([*run, given[0].replace("data=", "held_out=")]) == 0
    rows = metrics_of(tmp_path / "run")
    assert rows[0]["update"] == 0 and rows[0]["critic/requests"] >= 2  # the evaluation of the start is in the tally
    assert rows[-1]["critic/requests"] == asked(tmp_path) - 1  # the refused one cost nothing


def test_a_locator_spends_from_the_runs_budget_and_is_found_out_early(
    fault_server: Start,
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault_server()
    (tmp_path / "grumbler.py").write_text(
        "from text2grad import Critique\n"
        "def critic(prompts, completions, **columns):\n"
        "    return [Critique('That ending is wrong.') for _ in completions]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = [
        "train",
        str(tmp_path / "run"),
        *WORDS,
        *given,
        "critic=grumbler:critic",
        "align.locator=openai:m",
        "updates=1",
    ]
    assert main([*run, "--dry-run"]) == 0
    assert "openai:m at http://127.0.0.1:" in capsys.readouterr().out and asked(tmp_path) == 0
    with monkeypatch.context() as wrong:
        wrong.setenv("OPENAI_API_KEY", "wrong-key")
        wrong.setattr("text2grad.training.setup.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
        assert main(run) == 2
    assert asked(tmp_path) == 1 and not (tmp_path / "run").exists()
    capsys.readouterr()
    assert main([*run, "critics.openai.budget.requests=4"]) in (0, 1)
    said = capsys.readouterr().err
    assert "4 requests" in said and "because the budget was spent" in said
    assert asked(tmp_path) == 1 + 4
    assert metrics_of(tmp_path / "run")[-1]["critic/requests"] == 4


def test_runs_without_a_model_critic_have_no_tally(given: list[str], tmp_path: Path) -> None:
    assert main(["train", str(tmp_path / "run"), *WORDS, *given, "critic=reference", "updates=1"]) in (0, 1)
    assert not (tmp_path / "run" / "critic.spent").exists()
    assert not any(key.startswith("critic/requests") for key in metrics_of(tmp_path / "run")[-1])


def test_processes_share_a_budget() -> None:
    limits = BudgetSettings(requests=7, tokens=100, money=3.0, price_in=1.0)
    shares = [budget_share(limits, 3, rank) for rank in range(3)]
    assert [share.requests for share in shares] == [3, 2, 2]
    assert sum(share.tokens or 0 for share in shares) == 100
    assert sum(share.money or 0 for share in shares) == pytest.approx(3.0)
    assert budget_share(BudgetSettings(), 3, 1) == BudgetSettings()
