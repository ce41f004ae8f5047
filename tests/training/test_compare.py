"""A comparison: planned without torch, run in processes, killed and resumed, with an arm that fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from text2grad import config
from text2grad.cli import main
from text2grad.errors import ConfigError, CriticError, InvalidData, MissingExtra
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.report.differences import over_seeds_and_examples
from text2grad.runs import read_jsonl
from text2grad.training import costs, schedule
from text2grad.training.compare import ArmJob, CompareSettings, baseline_of, plan
from text2grad.training.compared import Compared
from text2grad.training.schedule import Scheduler

COMMON = {
    "model": "model",
    "data": "train.jsonl",
    "held_out": "held.jsonl",
    "device": "cpu",
    "sampling": {"max_new_tokens": 6},
    "policy.lora.rank": 2,
    "update.learning_rate": 1e-2,
    "checkpoint_every": 2,
}
BUDGET: dict[str, Any] = {
    "updates": 4,
    "prompts": 2,
    "completions": 2,
    "examples": 3,
    "evaluations": 4,
    "seeds": [0, 1],
}
CRITIC = """
from text2grad.types import Critique, Quote

def letters(prompts, completions, **columns):
    return [
        Critique(f"“{text[:2]}” is short.", quotes=(Quote(text[:2], "poor"),) if text[:2].strip() else (),
                 score=float(len(set(text))))
        for text in completions
    ]
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [{"id": f"e{n}", "prompt": f"Which river {n}?", "reference": f"The Drava {n}."} for n in range(7)]
    for name, some in (("train", rows[:4]), ("held", rows[4:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    (folder / "my_critic.py").write_text(CRITIC)
    return folder


@pytest.fixture(autouse=True)
def here(given: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(given)
    return given


def options(arms: dict[str, Any], **more: Any) -> CompareSettings:
    return config.build(CompareSettings, {"settings": COMMON, **BUDGET, "arms": arms, **more}, "test")


def written(arms: dict[str, Any], name: str, **more: Any) -> str:
    tree = {"settings": COMMON | {"critic": "my_critic:letters"}, **BUDGET, "arms": arms, "workers": 2, **more}
    Path(f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    return f"{name}.yaml"


def started(*words: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "text2grad", "compare", *words], env=environment)


# ------------------------------------------------------------------------------------------------------------- the plan


def test_every_arm_has_the_same_budget_and_evaluation_in_its_own_words(tmp_path: Path) -> None:
    arms = {
        "sft": {"command": "sft", "epochs": 8, "seeds": "shared", "update.batch": 1},
        "words": {"start": "sft", "kl.coefficient": 0.01},
        "pairs": {"command": "dpo", "start": "sft"},
        "grpo": {"command": "grpo"},
        "best": {"command": "best_of_n", "n": 3, "seeds": [1]},
    }
    jobs = {(job.arm, job.seed): job for job in plan(options(arms, metrics=["support"]), tmp_path)}
    assert list(jobs) == [
        ("sft", 0),
        ("words", 0),
        ("words", 1),
        ("pairs", 0),
        ("pairs", 1),
        ("grpo", 0),
        ("grpo", 1),
        ("best", 1),
    ]
    words, pairs, sft, best = jobs["words", 1], jobs["pairs", 0], jobs["sft", 0], jobs["best", 1]
    assert words.start is sft and words.settings.model == str(tmp_path.resolve() / "sft" / "seed-0" / "model")
    made = words.settings
    assert (made.updates, made.prompts, made.completions, made.kl.coefficient, made.seed) == (4, 2, 2, 0.01, 1)
    assert (made.evaluation.every, made.evaluation.examples, made.evaluation.each) == (1, 3, True)
    assert (pairs.settings.update.batch, pairs.settings.completions, pairs.settings.pairs) == (2, 2, "samples")
    assert (pairs.completions, words.completions, sft.completions) == (4, 4, 0)
    # 4 examples, 8 passes, one at a time: 32 updates, so that 4 evaluations are 8 apart.
    assert sft.settings.evaluate_every == 8 and sft.settings.evaluate_examples == 3
    assert (best.settings.best_of, best.settings.examples, best.words[:2]) == (3, 3, ("evaluate", "model"))
    assert jobs["grpo", 0].settings.trainer == "grpo"
    # An arm that stopped early would have no final metrics: nobody's guard ends a run.
    assert made.guard.nothing_learned == "warn"
    assert all(job.settings.metrics == ("support",) for job in jobs.values())


@pytest.mark.parametrize(
    ("arms", "more", "told"),
    [
        ({}, {}, "arms: a comparison wants at least one"),
        ({"a": {"command": "trian"}}, {}, "arms.a.command: there is no 'trian'; did you mean `train`?"),
        ({"a": {"start": "b"}}, {}, "arms.a.start: there is no arm 'b'"),
        ({"a": {"start": "b"}, "b": {"start": "a"}}, {}, "a starts from b starts from a"),
        ({"a": {"start": "b"}, "b": {"seeds": [7]}}, {}, "arms.a: b has no run of seed 0, nor a shared one"),
        ({"a": {"kl.koefficient": 1}}, {}, "arms.a: overrides: there is no setting `kl.koefficient`"),
        ({"a": {}}, {"settings": {"modell": "x"}}, "there is no setting `modell`; did you mean `model`?"),
        ({"a": {}}, {"baseline": "z"}, "baseline: there is no arm 'z'"),
        ({"../a": {}}, {}, "becomes a folder"),
        ({"a": {}}, {"settings": COMMON | {"held_out": ""}}, "a comparison wants held-out examples"),
        ({"a": {}}, {"metrics": ["rogue"]}, "metrics: there is no 'rogue'; did you mean `rouge`?"),
        ({"a": {}}, {"primary": "rouge_l"}, "primary: there is no metric 'rouge_l'; there are score, "),
        ({"a": {}}, {"judge": "gpt-5"}, "judge should be openai:MODEL, got 'gpt-5'"),
        ({"a": {}}, {"seeds": [0, 1, 0]}, "arms.a.seeds: a seed comes twice"),
        ({"a": {"seeds": "shared"}}, {"seeds": []}, "arms.a.seeds: should be a list of numbers"),
        ({"a": {"seed": 3}}, {}, "arms.a.seed: a comparison runs several"),
        ({"a": {}}, {"settings": COMMON | {"updates": 9}}, "settings.updates: is the same in all runs, as `updates`"),
        ({"a": {}}, {"settings": COMMON | {"evaluation": {"examples": 9}}}, "as `examples` of the comparison"),
        ({"a": {"command": "best_of_n", "n": "x"}}, {}, "arms.a.n: should be a number of samples"),
        ({"a": {"command": "best_of_n", "n": 0}}, {}, "arms.a.n: should be a number of samples"),
        ({"a": {"n": 4}}, {}, "arms.a.n: is of samples and best_of_n alone"),
        ({"a": {"command": "best_of_n", "critic": "support"}}, {}, "best_of_critic names another one"),
        ({"a": {"start": ["b"]}, "b": {}}, {}, "arms.a.start: should be the name of an arm"),
        ({"a": {"start": "b"}, "b": {"command": "base"}}, {}, "b trains no policy, so it has no model"),
        ({"results.json": {}}, {}, "becomes a folder"),
        ({"a" * 101: {}}, {}, "becomes a folder"),
        ({"a": {"command": "grpo", "reward": "scalar"}}, {}, "arms.a: `reward` means nothing to TRL's grpo trainer"),
        ({"a": {"command": "grpo", "update.minibatches": 3}}, {}, "should be a multiple of update.minibatches"),
        ({"a": {"command": "sdpo"}}, {"completions": 1}, "arms.a: completions: TRL compares those of a prompt"),
    ],
)
def test_what_is_wrong_is_found_before_anything_runs(
    arms: dict[str, Any], more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=told.replace(".", r"\.").replace("?", r"\?")):
        plan(options(arms, **more), tmp_path)


@pytest.mark.parametrize("where", ["settings", "arms.words"])
def test_a_setting_with_dots_and_below_a_branch_is_refused(where: str) -> None:
    """Also where one of them came from the command: it would be ignored in silence."""
    both = {"update": {"epochs": 1, "learning_rate": 9e-4}, "update.learning_rate": 1e-4}
    tree = {"settings": both} if where == "settings" else {"arms": {"words": both}}
    options = config.build(CompareSettings, {"arms": {"words": {}}} | tree, "the test")
    with pytest.raises(ConfigError, match=rf"{where}\.update\.learning_rate: stands twice"):
        plan(options, Path("nowhere"))


def test_a_dry_run_says_what_it_costs_and_imports_no_torch(here: Path) -> None:
    arms = {"scalar": {"reward": "scalar", "advantage.estimator": "rloo"}, "best": {"command": "best_of_n", "n": 5}}
    file = written(arms, "dry", updates=30)
    code = (
        "import sys\nfrom text2grad.cli import main\n"
        f"status = main(['compare', '--config', {file!r}, '--dry-run'])\n"
        "print(status, {'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    # 30 updates of 2 × 2, each of at most 6 tokens; every second update is evaluated, and the start.
    assert lines[0] == (
        "scalar: 2 runs, 30 updates, 120 completions, 120 critic calls, at most 720 sampled tokens each; "
        "6 x 3 held-out examples are evaluated"
    ), done.stderr
    assert lines[1].startswith("best: 2 runs, 0 updates, 15 completions, 15 critic calls")
    assert lines[2].startswith("in all: 4 runs, 60 updates, 270 completions")
    assert lines[-1] == "0 set()"
    assert not (here / "runs").exists()


def test_a_dry_run_looks_for_every_critic_and_counts_what_the_judge_is_asked(tmp_path: Path) -> None:
    wrong = options({"a": {}}, critic="nobody"), options({"a": {"evaluation.critic": "nobody"}})
    for chosen in wrong:
        with pytest.raises(CriticError, match="there is no critic 'nobody'"):
            list(costs.dry_run(plan(chosen, tmp_path)))
    arms = {"shared": {"command": "base", "seeds": "shared"}, "a": {}, "b": {"seeds": [1, 2]}}
    chosen = options(arms, baseline="a", judge="openai:m", examples=9)
    # shared against both seeds of a, b against one; 3 held-out examples, both orders.
    (line,) = costs.judge_line(chosen, plan(chosen, tmp_path))
    assert line.startswith("judge: 3 pairs of runs, at most 18 requests to openai:m")


def test_a_missing_extra_is_told_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "find_spec", lambda _: None)
    told = list(costs.dry_run(plan(options({"a": {"command": "grpo"}, "b": {}}), tmp_path)))
    assert told[1].startswith("  will fail: a needs ") and "text2grad[trl]" in told[1]
    assert told[2].startswith("b: 2 runs"), "the other arms can do without"
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(MissingExtra, match=r"text2grad\[eval\]"):
        plan(options({"a": {}}, metrics=["rouge"]), tmp_path)


def test_every_arm_is_judged_by_the_same_critic(tmp_path: Path) -> None:
    arms = {
        "own": {"critic": "support"},
        "same": {"critic": "reference"},
        "pairs": {"command": "dpo", "critic": "support"},
        "sft": {"command": "sft"},
        "base": {"command": "base"},
    }

    def judges(**more: Any) -> list[str | None]:
        made = {job.arm: job.settings for job in plan(options(arms, **more), tmp_path)}
        found = [made["own"].evaluation.critic, made["same"].evaluation.critic, made["pairs"].evaluate_critic]
        return [*found, made["sft"].evaluate_critic, made["base"].critic]

    # The task's own is `reference`; null where it is the arm's own anyway, so that nothing is judged twice.
    assert judges() == ["reference", None, "reference", None, None]
    assert judges(critic="support") == [None, "support", None, "support", "support"]
    assert judges(settings=COMMON | {"critic": "support"}) == [None, "support", None, "support", "support"]


def test_a_reward_model_is_trained_for_the_arms_that_name_it(tmp_path: Path) -> None:
    arms = {
        "judge": {"command": "reward_model", "seeds": "shared", "update.batch": 4},
        "words": {},
        "learned": {"critic": "judge"},
        "best": {"command": "best_of_n", "best_of_critic": "judge", "seeds": [1]},
        "named": {"critic": "support", "seeds": [0]},
    }
    chosen = options(arms)
    jobs = {(job.arm, job.seed): job for job in plan(chosen, tmp_path)}
    judge, learned, best = jobs["judge", 0], jobs["learned", 1], jobs["best", 1]
    assert learned.needs == best.needs == [judge] and not jobs["named", 0].needs
    assert learned.settings.critic == best.settings.best_of_critic == str(judge.model)
    assert learned.settings.evaluation.critic == "reference", "the judge of all arms"
    # What the arms are measured on chooses nothing.
    assert (judge.settings.data, judge.settings.held_out) == ("train.jsonl", "")
    assert judge.settings.held_out_by == "task", "files have no split of their own"
    split = arms | {"judge": {"command": "reward_model", "seeds": "shared", "task": "qa_feedback"}}
    assert plan(options(split), tmp_path)[0].settings.held_out_by == "prompts"
    assert baseline_of(chosen) == "words"
    assert next(costs.dry_run(list(jobs.values()))) == "judge: 1 x a reward model, from train.jsonl"
    log, _, outcomes = scheduled(arms, tmp_path, {"judge, seed 0": [(2, "broken")]}, workers=2, memory=0.0)
    assert log == ["judge, seed 0", "words, seed 0", "named, seed 0", "words, seed 1"]
    assert outcomes.failed["learned, seed 1"] == "not begun, because judge, seed 0 failed"
    for wrong in ({"start": "judge"}, {"critic": "judge", "start": "judge"}):
        with pytest.raises(ConfigError, match="judge trains no policy"):
            plan(options(arms | {"wrong": wrong}), tmp_path)
    with pytest.raises(ConfigError, match="a reward model is no policy"):
        plan(options(arms, baseline="judge"), tmp_path)


def test_a_run_is_evaluated_fifteen_times_by_default(tmp_path: Path) -> None:
    tree = {"settings": COMMON, "arms": {"a": {}}, "updates": 100}
    (job, *_) = plan(config.build(CompareSettings, tree, "test"), tmp_path)
    assert job.settings.evaluation.every == 6  # 16 times, the end included, and the start


# -------------------------------------------------------------------------------------------------------- the processes


class Process:
    """A run that ends when it is told to."""

    def __init__(self, job: ArmJob, log: list[str]) -> None:
        self.job, self.returncode = job, None
        log.append(job.name)

    def poll(self) -> int | None:
        return self.returncode


def scheduled(arms: dict[str, Any], tmp_path: Path, ends: dict[str, list[tuple[int, str]]], **more: Any) -> Any:
    """(order of the starts, most at once, outcomes) of made-up processes; `ends`: (status, last line) of each start."""
    jobs = plan(options(arms), tmp_path)
    log: list[str] = []
    most = 0

    class Made(Scheduler):
        def _begin(self, job: ArmJob) -> None:
            nonlocal most
            self.waiting.remove(job)
            job.folder.parent.mkdir(parents=True, exist_ok=True)
            process = Process(job, log)
            self.running[job] = process  # type: ignore[assignment]
            most = max(most, len(self.running))
            status, line = ends.get(job.name, [(0, "")]).pop(0) if ends.get(job.name) else (0, "")
            job.log.write_text(line)
            process.returncode = status  # type: ignore[assignment]

    outcomes = Made(jobs, tell=lambda _: None, **more).run()
    return log, most, outcomes


def test_a_run_without_memory_is_tried_again_alone(tmp_path: Path) -> None:
    ends = {
        "b, seed 0": [(2, "CUDA out of memory. Tried to allocate 2 GiB"), (0, "")],
        "c, seed 1": [(-9, ""), (-9, "x")],
    }
    log, _, outcomes = scheduled({"a": {}, "b": {}, "c": {}}, tmp_path, ends, workers=6, memory=0.0)
    assert log[:6] == [f"{arm}, seed {seed}" for seed in (0, 1) for arm in "abc"], "first seeds first"
    assert log[6:] == ["b, seed 0", "c, seed 1"], "each once more, after the others"
    assert list(outcomes.failed) == ["c, seed 1"]


def test_a_failure_is_told_by_its_error_and_not_by_the_advice_behind_it(tmp_path: Path) -> None:
    log = """
  File "update.py", line 314, in _sums
torch.AcceleratorError: CUDA error: out of memory
CUDA kernel errors might be asynchronously reported at some other API call.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
    ends = {"a, seed 0": [(1, log), (1, log)], "b, seed 0": [(2, "text2grad train: no such file\nmore")]}
    starts, _, outcomes = scheduled({"a": {}, "b": {}}, tmp_path, ends, workers=1, memory=0.0)
    assert starts[-1] == "a, seed 0", "that was want of memory: it is tried again alone"
    assert outcomes.failed["a, seed 0"] == "torch.AcceleratorError: CUDA error: out of memory"
    assert outcomes.failed["b, seed 0"] == "text2grad train: no such file"


def test_only_what_this_try_has_said_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier try ran out of memory, and sampling made do with less: neither is why this one failed."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    note = "sampling: memory ran out, so 64 completions at once from now on"
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "{note}"\necho "text2grad train: the critic said 401"\nexit 2\n')
    (tmp_path / "python").chmod(0o755)
    (job,) = plan(options({"a": {}}), tmp_path / "study")[:1]
    job.log.parent.mkdir(parents=True)
    job.log.write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    told: list[str] = []
    outcomes = Scheduler([job], 1, 0, tell=told.append).run()
    assert outcomes.failed == {job.name: "text2grad train: the critic said 401"}
    assert not any("again alone" in words for words in told)


def test_a_run_is_told_how_much_memory_is_counted_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    monkeypatch.setattr(schedule, "free_memory", lambda: 40.0)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "$TEXT2GRAD_GPU_GIB" >> {said}\n')
    (tmp_path / "python").chmod(0o755)
    for memory in (12.5, 0.0):
        jobs = plan(options({"a": {}}), tmp_path / str(memory))[:1]
        assert not Scheduler(jobs, 1, memory, tell=lambda _: None).run().failed
    assert said.read_text() == "12.5\n\n"


def test_no_more_runs_begin_than_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "free_memory", lambda: 7.0)
    assert scheduled({"a": {}, "b": {}}, tmp_path / "three", {}, workers=4, memory=3.0)[1] == 2
    assert scheduled({"a": {}, "b": {}}, tmp_path / "none", {}, workers=4, memory=0.0)[1] == 4
    assert scheduled({"a": {}}, tmp_path / "large", {}, workers=4, memory=9.0)[1] == 1, "one runs in any case"


def test_a_key_is_no_word_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be seen by everybody on the machine, and stand in the mark of a run that is done."""
    options = CompareSettings(
        settings={"data": str(tmp_path / "data.jsonl"), "critics": {"openai": {"api_key": "a-secret-key"}}},
        arms={"words": {"command": "train"}},
        seeds=(0,),
    )
    monkeypatch.setattr("text2grad.training.compare._seen", lambda *_: {})
    monkeypatch.setattr("text2grad.training.compare._check_measure", lambda *_: None)
    (job,) = plan(options, tmp_path / "study")
    assert job.key == "a-secret-key" and job.settings.critics.openai.api_key is not None
    assert not any("secret" in word for word in job.words)
    script = Path(tmp_path / "said")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "$OPENAI_API_KEY" > {script}\n')
    (tmp_path / "python").chmod(0o755)
    assert not Scheduler([job], 1, 0, tell=lambda _: None).run().failed
    assert script.read_text() == "a-secret-key\n" and job.done
    assert all(b"secret" not in path.read_bytes() for path in (tmp_path / "study").rglob("*") if path.is_file())


def test_what_starts_from_a_failed_run_is_not_begun(tmp_path: Path) -> None:
    arms = {"sft": {"command": "sft", "seeds": "shared"}, "rl": {"start": "sft"}, "other": {}}
    log, _, outcomes = scheduled(arms, tmp_path, {"sft, seed 0": [(2, "no\nsuch file")]}, workers=2, memory=0.0)
    assert log == ["sft, seed 0", "other, seed 0", "other, seed 1"]
    assert outcomes.failed["sft, seed 0"] == "such file"
    assert outcomes.failed["rl, seed 1"] == "not begun, because sft, seed 0 failed"


def test_a_finished_start_runs_again_only_where_its_model_is_missing_and_needed(tmp_path: Path) -> None:
    arms = {"sft": {"command": "sft", "seeds": "shared"}, "rl": {"start": "sft"}}
    assert scheduled(arms, tmp_path, {}, workers=1, memory=0.0)[0] == ["sft, seed 0", "rl, seed 0", "rl, seed 1"]
    assert scheduled(arms, tmp_path, {}, workers=1, memory=0.0)[0] == [], "nobody needs its model any more"
    (tmp_path / "rl" / "seed-1.done").unlink()
    assert scheduled(arms, tmp_path, {}, workers=2, memory=0.0)[0] == ["sft, seed 0", "rl, seed 1"]
    (tmp_path / "rl" / "seed-1.done").unlink()
    (tmp_path / "sft" / "seed-0" / "model").mkdir(parents=True)
    assert scheduled(arms, tmp_path, {}, workers=2, memory=0.0)[0] == ["rl, seed 1"]
    # Other settings of the start make other runs of what begins there.
    other = arms | {"sft": arms["sft"] | {"epochs": 9}}
    assert len(scheduled(other, tmp_path, {}, workers=1, memory=0.0)[0]) == 3


def test_held_out_examples_that_cannot_be_read_are_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "a", "prompt": "Which?"}\n{"id": "b"}\n')
    with pytest.raises(InvalidData, match=r"bad\.jsonl, line 2"):
        plan(options({"a": {}}, settings=COMMON | {"held_out": str(tmp_path / "bad.jsonl")}), tmp_path)


def test_a_run_is_done_wherever_its_folder_is_and_not_if_its_data_changed(tmp_path: Path, here: Path) -> None:
    (first,) = plan(options({"a": {}}, seeds=[0]), tmp_path / "one")
    (moved,) = plan(options({"a": {}}, seeds=[0]), tmp_path / "two")
    (here / "copy.jsonl").write_bytes((here / "held.jsonl").read_bytes())
    (copied,) = plan(options({"a": {}}, seeds=[0], settings=COMMON | {"held_out": "copy.jsonl"}), tmp_path)
    assert first.digest == moved.digest == copied.digest
    (here / "copy.jsonl").write_bytes(b'{"id": "e", "prompt": "Else?", "reference": "Yes."}\n')
    (changed,) = plan(options({"a": {}}, seeds=[0], settings=COMMON | {"held_out": "copy.jsonl"}), tmp_path)
    assert changed.digest != first.digest


def test_when_the_time_is_up_the_runs_are_asked_to_end_and_then_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Stubborn:
        returncode: int | None = None

        def poll(self) -> int | None:
            return self.returncode

        def terminate(self) -> None:
            asked.append("terminate")

        def kill(self) -> None:
            asked.append("kill")
            self.returncode = -9

    class Made(Scheduler):
        def _begin(self, job: ArmJob) -> None:
            self.waiting.remove(job)
            self.running[job] = Stubborn()  # type: ignore[assignment]

    monkeypatch.setattr(schedule, "_GRACE", 0.3)
    outcomes = Made(plan(options({"a": {}}), tmp_path), 1, 0, tell=lambda _: None, seconds=0.2).run()
    assert asked == ["terminate", "kill"] and outcomes.late and not outcomes.failed


# ------------------------------------------------------------------------------------------------------- with real runs

ARMS: dict[str, Any] = {"scalar": {"reward": "scalar", "advantage.estimator": "rloo"}, "words": {}}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    for row in rows:
        assert row["cost"].pop("seconds") >= 0
    return rows


def wait_for(folder: Path, lines: int) -> None:
    """Until a run of it has logged so many updates."""
    for _ in range(1200):
        if any(file.read_bytes().count(b"\n") >= lines for file in folder.glob("*/seed-*/metrics.jsonl")):
            return
        time.sleep(0.1)
    raise AssertionError("no run has begun")


@pytest.fixture(scope="module")
def whole(given: Path) -> Path:
    """A comparison that nothing disturbed."""
    before = Path.cwd()
    os.chdir(given)
    try:
        assert started("whole", "--config", written(ARMS, "whole"), "--quiet").wait() == 0
    finally:
        os.chdir(before)
    return given / "whole"


def test_a_table_of_arms_and_seeds(whole: Path) -> None:
    rows = rows_of(whole)
    assert [(row["arm"], row["seed"], row["update"]) for row in rows] == [
        (arm, seed, update) for arm in ("scalar", "words") for seed in (0, 1) for update in range(5)
    ]
    last = rows[4]
    logged = list(read_jsonl(whole / "scalar" / "seed-0" / "metrics.jsonl"))
    assert last["metrics"]["score"] == logged[-1]["held_out/score"]
    # 4 updates of 2 prompts with 2 completions, each judged once.
    assert last["cost"]["completions"] == last["cost"]["critic_calls"] == 16
    assert last["cost"]["tokens"] == round(sum(4 * row["length/mean"] for row in logged[1:]))
    said = json.loads((whole / "comparison.json").read_text())
    difference = said["arms"]["words"]["difference"]["score"]
    each = {
        arm: [
            list(read_jsonl(whole / arm / f"seed-{seed}" / "metrics.jsonl"))[-1]["held_out/each"]["score"]
            for seed in (0, 1)
        ]
        for arm in ("scalar", "words")
    }
    apart = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(each["scalar"], each["words"], strict=True)]
    assert (difference["seeds"], difference["examples"]) == (2, 3)
    assert (difference["mean"], difference["low"], difference["high"]) == pytest.approx(over_seeds_and_examples(apart))
    page = (whole / "report.html").read_text()
    assert page.index("Final metrics") < page.index("Difference to scalar") < page.index("Cost") < page.index("<svg")


def test_examples_without_a_value_are_left_out_of_a_difference(whole: Path) -> None:
    chosen = config.load(CompareSettings, "whole.yaml")
    table = Compared(chosen, plan(chosen, whole))
    ours, theirs = table.of("words"), table.of("scalar")
    made: list[list[Any]] = [[3, 5, None], [2, 9, 9], [1, 1, 1], [1, 1, None]]
    for found, values in zip((*ours, *theirs), made, strict=True):
        found.each["score"][:] = values
    found_one = table.difference("words", "score")
    # Seed 0: 2 and 4; seed 1: 1 and 8; the third example is left out of both.
    assert found_one is not None and found_one[1:] == (2, 2)
    assert found_one[0] == over_seeds_and_examples([[2.0, 4.0], [1.0, 8.0]])
    assert next(iter(table.infos)) == "score" and "n" not in table.infos


def test_killed_in_the_middle_it_resumes_and_ends_the_same(whole: Path, here: Path) -> None:
    file = written(ARMS, "killed")
    process = started("killed", "--config", file, "--quiet")
    wait_for(here / "killed", 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list((here / "killed").glob("*/seed-*.done")) or not (here / "killed" / "results.json").exists()
    assert started("killed", "--config", file, "--quiet").wait() == 0
    assert rows_of(here / "killed") == rows_of(whole)
    # Once more: everything is done, and nothing runs.
    begun = [file.stat().st_mtime_ns for file in sorted((here / "killed").glob("*/*.log"))]
    assert started("killed", "--config", file, "--quiet").wait() == 0
    assert begun == [file.stat().st_mtime_ns for file in sorted((here / "killed").glob("*/*.log"))]


def test_arms_that_did_not_do_the_same_work_are_told(whole: Path) -> None:
    chosen = config.load(CompareSettings, "whole.yaml")
    table = Compared(chosen, plan(chosen, whole))
    assert not any("work" in line for line in table.words().sentences)
    for found in table.of("words"):
        found.rows[-1]["cost"]["completions"] = 24
    assert "Not equal work: scalar 16, words 24 completions per run." in table.words().sentences


def test_marks_alone_make_the_same_table_elsewhere(whole: Path, here: Path) -> None:
    for mark in whole.glob("*/seed-*.done"):
        (here / "carried" / mark.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(mark, here / "carried" / mark.parent.name)
    assert started("carried", "--config", "whole.yaml", "--quiet").wait() == 0
    assert not list((here / "carried").glob("*/*.log")), "nothing ran"
    assert rows_of(here / "carried") == rows_of(whole)
    first, second = (json.loads((folder / "comparison.json").read_text()) for folder in (whole, here / "carried"))
    assert first == second
    assert (here / "carried" / "report.html").read_text().count("<svg") > 0


def test_a_mark_that_is_damaged_is_told_and_costs_no_other(whole: Path, tmp_path: Path) -> None:
    chosen = config.load(CompareSettings, "whole.yaml")
    folder = tmp_path / "damaged"
    shutil.copytree(whole, folder)
    mark = folder / "words" / "seed-1.done"
    mark.write_bytes(mark.read_bytes()[:200])
    table = Compared(chosen, plan(chosen, folder))
    assert list(table.failed) == ["words, seed 1"] and "is damaged" in table.failed["words, seed 1"]
    assert [found.job.name for found in table.found] == ["scalar, seed 0", "scalar, seed 1", "words, seed 0"]
    mark.unlink()
    (folder / "words" / "seed-1" / "metrics.jsonl").write_bytes(b'{"update": 0}\nnonsense\n{"update": 1}\n')
    table = Compared(chosen, plan(chosen, folder))
    assert "cannot be read" in table.failed["words, seed 1"] and len(table.found) == 3


def test_an_arm_learns_from_a_reward_model_that_another_one_trains(here: Path) -> None:
    span = {"start": 0, "end": 3, "verdict": "poor"}
    row = {"completion": "The Sava.", "critique": {"feedback": "Not the Sava.", "score": 0.0}, "spans": [span]}
    rows = [{"id": str(n), "prompt": f"Which river {n}?", "reference": "The Drava.", **row} for n in range(8)]
    (here / "people.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    few = {"updates": 2, "update": {"batch": 4, "micro_batch": 4}}
    arms = {
        "judge": {"command": "reward_model", "seeds": "shared", "data": "people.jsonl", **few},
        "words": {},
        "learned": {"critic": "judge", "critics.learned.confidence": 0},
    }
    assert started("learned", "--config", written(arms, "learned", seeds=[0], updates=2), "--quiet").wait() == 0
    table = rows_of(here / "learned")
    assert [(row["arm"], row["update"]) for row in table] == [
        (arm, n) for arm in ("words", "learned") for n in range(3)
    ]
    # Both are judged by the same critic, and the second by the one that it learns from, too.
    assert "critic_score" in table[-1]["metrics"] and "critic_score" not in table[0]["metrics"]
    assert list(json.loads((here / "learned" / "comparison.json").read_text())["arms"]) == ["words", "learned"]


def test_it_stops_when_its_time_is_up_and_goes_on(whole: Path, here: Path) -> None:
    file = written(ARMS, "timed")
    assert started("timed", "--config", file, "--quiet", "--minutes", "0.05").wait() == 75
    assert json.loads((here / "timed" / "comparison.json").read_text())["failed"] == {}
    assert started("timed", "--config", file, "--quiet").wait() == 0
    assert rows_of(here / "timed") == rows_of(whole)


def test_an_arm_that_fails_is_told_and_costs_no_other(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {
        "base": {"command": "base", "seeds": "shared"},
        "broken": {"critic": "nowhere:critic"},
        "again": {"command": "reflection", "seeds": [0]},
    }
    file = written(arms, "failing", seeds=[0])
    assert main(["compare", "failing", "--config", file, "--quiet"]) == 1
    told = capsys.readouterr()
    assert "failed (status 2): broken, seed 0: text2grad train: critic" in told.err
    assert "broken, seed 0 failed: " in told.out
    assert [(row["arm"], row["update"]) for row in rows_of(here / "failing")] == [("base", 0), ("again", 0)]
    said = json.loads((here / "failing" / "comparison.json").read_text())
    assert "nowhere" in said["failed"]["broken, seed 0"]
    assert said["arms"]["again"]["cost"]["critic_calls"] == 3


def judged(
    whole: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str
) -> tuple[Compared, list[tuple[Sequence[str], Sequence[str]]]]:
    """The table with a judge for whom ours wins everywhere but in its second example, where he mumbles in one seed."""
    from text2grad.evaluation.judge import Verdicts
    from text2grad.training import compared

    asked: list[tuple[Sequence[str], Sequence[str]]] = []

    def judge(name: str, _: Any, prompts: Sequence[str], ours: Sequence[str], theirs: Sequence[str], __: Any) -> Any:
        assert list(prompts) == [f"Which river {n}?" for n in (4, 5, 6)]
        asked.append((ours, theirs))
        return Verdicts(name, [1.0, None if len(asked) == 1 else 0.0, 1.0])

    monkeypatch.setattr(compared, "judge_pairs", judge)
    chosen = config.load(CompareSettings, "whole.yaml", ["judge=openai:m", *words])
    table = Compared(chosen, plan(chosen, whole))
    table.write(folder)
    return table, asked


def test_the_judge_compares_the_last_completions(whole: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table, asked = judged(whole, monkeypatch, tmp_path)
    assert len(asked) == 2 and asked[0][0] == table.of("words")[0].each["text"]
    assert asked[0][1] == table.of("scalar")[0].each["text"]
    assert [found.last["win_rate"] for found in table.of("words")] == pytest.approx([1.0, 2 / 3])
    # The unreadable pair is left out of both seeds; the wins are counted over all.
    assert table.tables()[-1].rows[0] == ["words", "100.0% (100.0% to 100.0%)", "4", "0", "1", "1"]
    said = json.loads((tmp_path / "comparison.json").read_text())["arms"]["words"]["judge"]
    assert [said[seed]["win_rate"] for seed in ("0", "1")] == pytest.approx([1.0, 2 / 3])


def test_every_seed_is_compared_with_a_shared_baseline(
    whole: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table, asked = judged(whole, monkeypatch, tmp_path, "arms.scalar.seeds=shared")
    assert len(asked) == 2 and asked[0][1] == asked[1][1]
    assert list(table.wins) == [("words", 0), ("words", 1)]


def test_a_judge_who_fails_costs_no_result(whole: Path, fault_server: Any) -> None:
    fault_server("always-404")
    before = rows_of(whole)
    assert main(["compare", "whole", "--config", "whole.yaml", "--judge", "openai:m", "--quiet"]) == 1
    assert rows_of(whole) == before
    said = json.loads((whole / "comparison.json").read_text())
    assert list(said["failed"]) == ["judge openai:m"] and "no such path" in said["failed"]["judge openai:m"]
    assert main(["compare", "whole", "--config", "whole.yaml", "--quiet"]) == 0
