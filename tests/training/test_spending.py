"""What model critics cost in a run: the estimate, one budget over resumes and processes, the tally."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.training.trainings import SMALL, metrics_of
from text2grad.cli import main
from text2grad.feedback.settings import BudgetSettings
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.training.spending import share_of

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
    """3 updates x 3 prompts x 2 completions, and 2 evaluations (every 2 of 3, the start, the end) of 6."""
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
    assert main(["train", str(tmp_path / "run"), *WORDS, *given, "critic=reference", "--dry-run"]) == 0
    assert capsys.readouterr().out == "3 updates x 3 prompts x 2 completions: 18 completions to judge\n"


def test_a_budget_caps_the_run_and_can_be_raised_on_resume(
    fault_server: Start, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault_server()
    run = tmp_path / "run"

    def train(*words: str) -> int:
        return main(["train", str(run), *WORDS, *given, *words])

    limit = "critics.openai.budget.requests={}"
    assert train(limit.format(8)) == 2
    assert "the budget is spent: 8 of 8 requests" in capsys.readouterr().err and asked(tmp_path) == 8
    assert train(limit.format(8)) == 2, "a resume has no fresh budget"
    assert asked(tmp_path) == 8
    capsys.readouterr()
    free = ["critics.openai.concurrency=2", "critics.openai.timeout=9", "critics.openai.retries=1"]
    assert train(limit.format(100), *free) == 0
    said = capsys.readouterr().err
    last: dict[str, Any] = metrics_of(run)[-1]
    assert last["critic/requests"] == asked(tmp_path) <= 18  # equal texts are asked about once
    assert last["critic/tokens_in"] == 100 * last["critic/requests"]
    assert f"{asked(tmp_path)} requests" in said and "8 of the requests in earlier runs" in said


def test_runs_without_a_model_critic_have_no_tally(given: list[str], tmp_path: Path) -> None:
    assert main(["train", str(tmp_path / "run"), *WORDS, *given, "critic=reference", "updates=1"]) in (0, 1)
    assert not (tmp_path / "run" / "critic.spent").exists()
    assert not any(key.startswith("critic/requests") for key in metrics_of(tmp_path / "run")[-1])


def test_processes_share_a_budget() -> None:
    limits = BudgetSettings(requests=7, tokens=100, money=3.0, price_in=1.0)
    shares = [share_of(limits, 3, rank) for rank in range(3)]
    assert [share.requests for share in shares] == [3, 2, 2]
    assert sum(share.tokens or 0 for share in shares) == 100
    assert sum(share.money or 0 for share in shares) == pytest.approx(3.0)
    assert share_of(BudgetSettings(), 3, 1) == BudgetSettings()
