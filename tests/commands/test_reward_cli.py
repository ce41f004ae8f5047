"""`text2grad reward-model` by its words, and its checkpoint as a critic in `annotate` and `train`, by theirs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.models.reward.conftest import trained
from tests.models.reward.made import TEMPLATE, rows, write_rows
from tests.training.trainings import metrics_of, rows_of, trainer
from text2grad import Example, RewardModel, config
from text2grad.cli import main
from text2grad.errors import RunError
from text2grad.feedback.settings import LearnedSettings
from text2grad.models.reward.critic import RewardCritic
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import encode_row, read_jsonl
from text2grad.training import reward_model as reward_trainer
from text2grad.training.settings import LossSettings, RewardModelSettings

SMALL = [
    *("device=cpu", "updates=2", "update.batch=4", "policy.lora.rank=2", "validation=0.25"),
    *("template.max_tokens=200", "template.critique_tokens=40"),
]
EXAMPLES = [Example(f"e{n}", row.prompt, reference=row.completion) for n, row in enumerate(rows(4))]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    write_rows(folder / "rows.jsonl", rows(12))
    bare = [{"id": row.id, "prompt": row.prompt, "completion": row.completion} for row in rows(9, seed=4)]
    (folder / "bare.jsonl").write_bytes(b"".join(map(encode_row, bare)))
    (folder / "unlocated.jsonl").write_bytes(encode_row(bare[0] | {"critique": "Wrong."}))
    (folder / "empty.jsonl").write_text("")
    shutil.copytree(trained(folder / "run", rows(40, score=True), TEMPLATE, LossSettings(), 30), folder / "judge")
    return folder


@pytest.fixture
def here(given: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(given)
    return given


# ---------------------------------------------------------------------------------------------- reward-model


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["out"], "wants annotated completions to learn from: data=FILE.jsonl"),
        (["data=rows.jsonl"], "wants one run folder, got 0"),
        (["out", "data=none.jsonl"], "none.jsonl: should be a file of annotated completions, and there is no"),
        (["out", "data=empty.jsonl"], "empty.jsonl: should hold rows, got none"),
        (["out", "data=bare.jsonl"], "bare.jsonl, line 1: has no `spans`: run it through `text2grad annotate` first"),
        (["out", "data=unlocated.jsonl"], "line 1: has no `spans`"),
        (["out", "data=rows.jsonl", "held_out=empty.jsonl"], "empty.jsonl: should hold rows, got none"),
        (["out", "data=rows.jsonl", "loss.spam=2"], "no setting `loss.spam`; did you mean `loss.span`?"),
        (["out", "data=rows.jsonl", "validation=1"], "validation: should be less than 1"),
        (["out", "data=rows.jsonl", "device=warp"], "device=warp: cannot be used here"),
        (["out", "data=rows.jsonl", "model=nowhere"], "nowhere"),
        (["out", "data=rows.jsonl", "template.max_tokens=41"], "has room in template.max_tokens=41"),
        (["out", "data=rows.jsonl", "--launch", "fsdp2"], "with --launch fsdp2 set keep=last"),
        (["out", "data=rows.jsonl", "--critics"], "unrecognized arguments: --critics"),
    ],
)
def test_what_is_refused_and_why(here: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["reward-model", "model=tiny", *SMALL, *words])
    except SystemExit as left:
        status = int(left.code or 0)
    assert status == 2
    assert capsys.readouterr().err.count(told) == 1
    assert not (here / "out").exists()


def test_from_the_shell_and_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reward-model", "shell", "data=rows.jsonl", "model=tiny", *SMALL]
    assert main(words) == 0
    told = capsys.readouterr().err
    assert "reward-model 2/2  loss" in told and "held-out loss" in told and "poor AP" in told
    assert [row["update"] for row in metrics_of(here / "shell")] == [0, 1, 2]
    model, _ = RewardModel.from_pretrained(here / "shell" / "model")
    assert model.template.max_tokens == 200
    assert main(words) == 0
    assert "was over already, after 2 updates" in capsys.readouterr().err
    assert main([*words, "loss.span=2"]) == 2
    assert "loss.span: 1.0 there, 2.0 now" in capsys.readouterr().err


def test_the_printed_settings_are_those_that_are_read_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reward-model", "--print-config", "loss.imbalance=0.25"]) == 0
    (here / "mine.yaml").write_text(capsys.readouterr().out)
    assert config.load(RewardModelSettings, str(here / "mine.yaml"), []).loss.imbalance == 0.25


def test_help_comes_without_torch() -> None:
    code = (
        "import sys\nfrom text2grad.cli import main\n"
        "try:\n    main(['reward-model', '--help-all'])\nexcept SystemExit:\n    pass\n"
        "print('loaded:', sorted({'torch', 'transformers', 'accelerate', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"
    assert "loss.imbalance=0.5" in done.stdout and "template.critique_tokens=256" in done.stdout


def test_ctrl_c_prints_the_command_to_go_on_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reward-model", "stopped", "data=rows.jsonl", "model=tiny", *SMALL, "updates=4", "--quiet"]
    real = getattr(reward_trainer, "reward_update")  # noqa: B009

    def pressed(*args: Any, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward_trainer, "reward_update", pressed)
        assert main(words) == 130
    told = capsys.readouterr().err
    assert "resume with: text2grad reward-model stopped --config stopped/config.yaml" in told
    assert main(["reward-model", "stopped", "--config", "stopped/config.yaml", "--quiet"]) == 0
    assert [row["update"] for row in metrics_of(here / "stopped")] == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------------------------------------- annotate


def test_a_checkpoint_annotates(here: Path) -> None:
    assert main(["annotate", "bare.jsonl", "judged.jsonl", "--critic", "judge", "critics.learned.confidence=0"]) == 0
    found = list(read_jsonl(here / "judged.jsonl"))
    assert len(found) == 9 and all(row["critique"]["quotes_only"] for row in found)
    for row in found:
        quoted = [(quote["start"], quote["text"], quote["verdict"]) for quote in row["critique"]["quotes"]]
        placed = [(s["start"], row["completion"][s["start"] : s["end"]], s["verdict"]) for s in row["spans"]]
        assert placed == quoted
    assert any(row["spans"] for row in found)
    assert main(["reward-model", "second", "data=judged.jsonl", "model=tiny", *SMALL, "--quiet"]) == 0


def test_what_it_is_not_sure_of_is_rejected_with_the_reason(here: Path) -> None:
    assert main(["annotate", "bare.jsonl", "unsure.jsonl", "--critic", "judge", "critics.learned.confidence=1"]) == 2
    rejected = list(read_jsonl(here / "unsure.rejected.jsonl"))
    assert len(rejected) == 9 and not list(read_jsonl(here / "unsure.jsonl"))
    assert all("not scored: the reward model is only 0." in row["reason"] for row in rejected)


def test_a_checkpoint_that_changed_under_a_half_done_file_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(here / "judge", here / "changing")
    words = ["annotate", "bare.jsonl", "half.jsonl", "--critic", "changing", "batch=2", "critics.learned.confidence=0"]
    calls = iter(range(9))
    real = RewardCritic.__call__

    def tired(self: Any, *args: Any, **named: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(self, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RewardCritic, "__call__", tired)
        assert main(words) == 130
    assert (here / "half.jsonl.partial").exists()
    card = here / "changing" / "reward_model.json"
    before = card.read_text()
    card.write_text(before.replace('"start": ', '"start":  '))
    capsys.readouterr()
    assert main(words) == 2
    assert "changing" in capsys.readouterr().err
    assert not (here / "half.jsonl").exists()
    card.write_text(before)
    assert main([*words, "critics.learned.batch_tokens=99"]) == 0
    assert len(list(read_jsonl(here / "half.jsonl"))) == 9


# ---------------------------------------------------------------------------------------------- train

TRAIN = ["device=cpu", "updates=2", "prompts=2", "completions=2", "sampling.max_new_tokens=6", "policy.lora.rank=2"]


def test_a_policy_is_trained_from_a_checkpoint_and_examined_by_another_critic(here: Path) -> None:
    data = [{"prompt": one.prompt, "reference": one.reference} for one in EXAMPLES]
    (here / "prompts.jsonl").write_bytes(b"".join(map(encode_row, data)))
    words = ["train", "policy", "data=prompts.jsonl", "held_out=prompts.jsonl", "model=tiny", "critic=judge", *TRAIN]
    assert main([*words, "critics.learned.confidence=0", "evaluation.critic=reference", "--quiet"]) == 0
    found = metrics_of(here / "policy")
    assert all("held_out/critic_score" in row and "held_out/score" in row for row in (found[0], found[-1]))
    assert 0 <= found[0]["held_out/score"] <= 1
    for row in rows_of(here / "policy"):
        start = row["critique"]["quality"][0][1]
        assert sum(row["token_rewards"]) == pytest.approx(row["critique"]["score"] - start)
    assert "judge" in json.loads((here / "policy" / "run.json").read_text())["data"]


def test_a_checkpoint_that_changed_under_a_run_is_refused(here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "judge", tmp_path / "judge")
    name = f"critic=first({tmp_path / 'judge'}, reference)"
    trainer(tmp_path / "run", "updates=1", name, critic=None, examples=EXAMPLES).train()
    card = tmp_path / "judge" / "reward_model.json"
    card.write_text(card.read_text() + " ")
    with pytest.raises(RunError, match=r"another content of .*judge"):
        trainer(tmp_path / "run", "updates=1", name, critic=None, examples=EXAMPLES)


def test_words_are_written_for_what_is_logged_alone_and_rewards_do_not_change(here: Path, tmp_path: Path) -> None:
    class Mute(RewardCritic):
        def explain(self, _prompts: Any, _completions: Any, critiques: Any) -> Any:
            return critiques

    asked: list[int] = []

    class Counting(RewardCritic):
        def explain(self, prompts: Any, completions: Any, critiques: Any) -> Any:
            asked.append(len(completions))
            return super().explain(prompts, completions, critiques)

    options = LearnedSettings(confidence=0.0)
    words = ["updates=2", "log.rollouts=2", "log.locality=4"]
    for kind, name in ((Mute, "mute"), (Counting, "telling")):
        critic = kind(here / "judge", options)
        trainer(tmp_path / name, *words, critic=critic, examples=EXAMPLES, held_out=EXAMPLES[:3]).train()
    assert asked and max(asked) <= 2, "of six completions an update, two are logged"
    assert metrics_of(tmp_path / "telling") == metrics_of(tmp_path / "mute")
    told, mute = (rows_of(tmp_path / name) for name in ("telling", "mute"))
    assert [row["token_rewards"] for row in told] == [row["token_rewards"] for row in mute]
    assert [row["advantages"] for row in told] == [row["advantages"] for row in mute]
    assert any(a["critique"]["feedback"] != b["critique"]["feedback"] for a, b in zip(told, mute, strict=True))
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("telling", "mute")]
    assert weights[0] == weights[1]


def test_the_report_of_its_run_has_curves(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "run", "--out", "page.html"]) == 0
    assert "run: average precision on poor tokens rose from" in capsys.readouterr().out
    html = (here / "page.html").read_text()
    assert all(title in html for title in ("Joint loss", "Held-out loss", "Average precision on good tokens"))
    assert "verage precision on poor tokens" in html


def test_the_time_of_writing_is_the_critics(here: Path, tmp_path: Path) -> None:
    class Slow(RewardCritic):
        def explain(self, _prompts: Any, _completions: Any, critiques: Any) -> Any:
            time.sleep(0.3)
            return critiques

    critic = Slow(here / "judge", LearnedSettings(confidence=0.0))
    trainer(tmp_path / "run", "updates=1", critic=critic, examples=EXAMPLES).train()
    (row,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert row["time/critic"] > 0.3 > row["time/other"]
