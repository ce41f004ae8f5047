"""How runs end and resume: guard rails, memory, a full disk, Ctrl-C, runs that are over."""

import gc
import os
import shlex
import signal
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from tests.training.trainings import HELD_OUT, Driver, assert_same, metrics_of, rows_of, said, trainer, weights_of
from text2grad.errors import ConfigError, InvalidData, RunError, RunLocked, UsageError
from text2grad.models.backbone import Backbone
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs.run import Run, resume_command, settled
from text2grad.training import rl
from text2grad.training.guard import Guard
from text2grad.training.settings import SFTSettings
from text2grad.training.sft import SFTTrainer
from text2grad.training.state import disk_errors


def test_a_kl_that_is_too_large_ends_the_run_with_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reference is run for `kl.stop` even where there is no penalty."""
    settings = ["kl.stop=1e-6", "kl.coefficient=0"]
    ended = trainer(tmp_path / "run", *settings, held_out=HELD_OUT).train()
    assert (ended.updates, ended.status, ended.model) == (2, 1, tmp_path / "run" / "model")
    assert "over kl.stop=1e-06" in capsys.readouterr().err
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert "held_out/score" in metrics_of(tmp_path / "run")[-1]

    again = trainer(tmp_path / "run", *settings, held_out=HELD_OUT).train()
    assert again == ended
    assert "was over already, after 2 updates: the KL" in capsys.readouterr().err
    assert len(metrics_of(tmp_path / "run")) == 3


def test_the_update_that_starts_too_far_away_is_not_applied(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    one = trainer(
        tmp_path / "run", "kl.stop=1e-6", "kl.coefficient=0", callbacks=[lambda it, _: seen.append(weights_of(it))]
    )
    assert one.train().updates == 2
    first, last = metrics_of(tmp_path / "run")
    assert "loss/policy" in first and "loss/policy" not in last
    assert first["kl/reference"] <= 1e-6 < last["kl/reference"]
    assert all(torch.equal(weight, seen[0][name]) for name, weight in weights_of(one).items())


def test_a_guard_rail_can_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Guard, "see", lambda _, metrics: ["texts fell apart"] if metrics["update"] == 3 else [])
    assert trainer(tmp_path / "warn", "updates=4").train().status == 0
    assert [row.get("warnings") for row in metrics_of(tmp_path / "warn")] == [None, None, ["texts fell apart"], None]
    ended = trainer(tmp_path / "stop", "updates=4", "guard.action=stop").train()
    assert (ended.updates, ended.status) == (3, 1)
    assert ended.model is not None and ended.model.is_dir()
    assert "the run ended after 3 updates: guard.action=stop, and texts fell apart" in capsys.readouterr().err


def test_a_run_that_is_over_says_so_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    trainer(run).train()
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and "lock" not in path.name}
    capsys.readouterr()
    assert trainer(run).train().status == 0
    assert f"the run was over already, after 5 updates; its model is in {run}/model" in capsys.readouterr().err
    assert before == {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file() and "lock" not in p.name}


def test_out_of_memory_names_the_setting_and_the_run_resumes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

    one = trainer(tmp_path / "run")
    monkeypatch.setattr(one.writer.sampler, "sample", full)
    with pytest.raises(RunError, match=r"memory in sampling: lower sampling\.batch or sampling\.prefill_tokens"):
        one.train()
    with monkeypatch.context() as patched:
        patched.setattr(rl, "begin_update", full)
        with pytest.raises(
            RunError, match=r"memory in the update: lower update\.micro_batch, or .*gradient_checkpointing"
        ):
            trainer(tmp_path / "run").train()
    assert trainer(tmp_path / "run", "update.micro_batch=1", "sampling.batch=2").train().status == 0
    assert "micro_batch: 1" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("rank", [0, 2])
def test_a_run_does_not_resume_from_another_model(tmp_path: Path, rank: int) -> None:
    def stops(_: Any, metrics: Any) -> None:
        if metrics["update"] == 3:
            raise ZeroDivisionError

    def model(seed: int) -> Any:
        return tiny_model(tiny_tokenizer(), seed=seed, hidden_size=16, layers=1)

    trained, settings = model(0), f"policy.lora.rank={rank}"
    with pytest.raises(ZeroDivisionError):
        trainer(tmp_path / "run", settings, model=trained, callbacks=[stops]).train()
    for other in (model(5), trained):
        with pytest.raises(RunError, match=r"started from a model with other weights or settings, or .* loaded afresh"):
            trainer(tmp_path / "run", settings, model=other)
    assert trainer(tmp_path / "run", settings, model=model(0)).train().status == 0


def test_a_trainer_trains_once(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "updates=1")
    one.train()
    with pytest.raises(UsageError, match=r"this run of `train` has been trained .* make another trainer"):
        one.train()


def test_no_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="should hold at least one example, got none"):
        trainer(tmp_path / "run", examples=[])
    with pytest.raises(InvalidData, match="should hold at least one example, got none"):
        SFTTrainer(SFTSettings(device="cpu"), tmp_path / "start", examples=[])
    assert not list(tmp_path.iterdir())


def test_the_scale_resumes_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped right after a checkpoint: nothing is buffered that would bring it back."""
    whole = trainer(tmp_path / "whole")
    assert whole.train().status == 0 and whole.reward_function.running_scale.count == 5 * 6
    real = Run._save

    def save_and_stop(run: Any) -> None:
        real(run)
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Run, "_save", save_and_stop)
        with pytest.raises(ZeroDivisionError):
            trainer(tmp_path / "run").train()
    again = trainer(tmp_path / "run")
    assert again.train().status == 0
    assert again.reward_function.running_scale.state() == whole.reward_function.running_scale.state()
    assert again.reward_function.scale != 0, "or losing it would not show"
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_checkpoint_of_another_version_is_named(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "updates=2")
    one.state.parts = {"scale": one.reward_function.running_scale}
    one.train()
    with pytest.raises(RunError, match="lacks best, guard, spread: another version of text2grad has written it"):
        trainer(tmp_path / "run", "updates=2").train()


TORCH = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
TORCH.__context__ = RuntimeError("basic_ios::clear: iostream error")
SAFETENSORS = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
"""What the two said on a file system of 200 kB."""


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real, times = tmp_path / "run", torch.save, iter([True, False])

    def save(state: Any, path: Path) -> None:
        if next(times):
            return real(state, path)
        path.write_bytes(b"some of it")
        raise TORCH

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", save)
        with pytest.raises(
            RunError, match=r"the disk is full: could not write .*step-00000004 .* run the same command"
        ):
            trainer(run).train()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000002"]
    assert trainer(run).train().status == 0
    trainer(tmp_path / "whole").train()
    assert_same(run, tmp_path / "whole")


def test_a_full_disk_while_the_model_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_backbone: Any, place: Path, *_: Any, **__: Any) -> None:
        place.mkdir()
        raise SAFETENSORS

    with monkeypatch.context() as patched:
        patched.setattr(Backbone, "save_pretrained", full)
        with pytest.raises(RunError, match=r"the disk is full: could not write .*model "):
            trainer(tmp_path / "run").train()
    assert not (tmp_path / "run" / "model").exists()
    assert trainer(tmp_path / "run").train().model == tmp_path / "run" / "model"


def test_other_troubles_of_torch_are_not_taken_for_a_full_disk() -> None:
    with pytest.raises(RuntimeError, match="something else"), disk_errors():
        raise RuntimeError("something else")


def test_settings_and_data_may_not_change_under_a_run(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "Hi"}\n')
    trainer(tmp_path / "run", f"data={data}", "updates=2", examples=None).train()
    with pytest.raises(RunError, match=r"other settings[\s\S]*seed: 0 there, 1 now"):
        trainer(tmp_path / "run", f"data={data}", "updates=2", "seed=1", examples=None)
    data.write_text('{"prompt": "Ho"}\n')
    with pytest.raises(RunError, match=r"was started with another content of .*data\.jsonl"):
        trainer(tmp_path / "run", f"data={data}", "updates=2", examples=None)


def test_a_file_below_home_may_not_change_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data.jsonl").write_text('{"prompt": "Hi"}\n')
    trainer(tmp_path / "run", "data=~/data.jsonl", "updates=1", examples=None).train()
    (tmp_path / "data.jsonl").write_text('{"prompt": "Ho"}\n')
    with pytest.raises(RunError, match=r"was started with another content of ~/data\.jsonl"):
        trainer(tmp_path / "run", "data=~/data.jsonl", "updates=1", examples=None)


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"data": 1, "launched": null}'])
def test_facts_of_a_run_that_are_none_are_named(tmp_path: Path, content: str) -> None:
    trainer(tmp_path / "run", "updates=1").train()
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(RunError, match=r"run\.json: is not what a run writes .*put it back, or choose another folder"):
        trainer(tmp_path / "run", "updates=1")


def test_a_folder_is_one_run_at_a_time(tmp_path: Path) -> None:
    with trainer(tmp_path / "run"), pytest.raises(RunLocked, match=f"in use by process {os.getpid()}"):
        trainer(tmp_path / "run")
    assert trainer(tmp_path / "run", "updates=5").train().status == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["advantage.estimator=span_rloo", "completions=1"], "completions should be at least 2, got 1"),
        (["advantage.estimator=grpo", "completions=1"], "advantage.estimator=grpo compares .* at least 2, got 1"),
        (["reward=scalar", "advantage.estimator=local"], "choose gae, rloo or grpo"),
        (["device=cdua"], "device=cdua: cannot be used here"),
        (["updatse=3"], "did you mean"),
        (["advantage.estimator=grop"], "advantage.estimator: there is no 'grop'; did you mean `grpo`"),
        (["update.loss=pop"], "update.loss: there is no 'pop'; did you mean `ppo`"),
    ],
)
def test_settings_that_cannot_be_are_told_before_a_folder_is_made(
    tmp_path: Path, settings: list[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        trainer(tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_old_keys_still_work_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match=r"credit\.\w+` is now `advantage") as told:
        one = trainer(tmp_path / "run", "credit.kind=group", "credit.whiten=false", "updates=1")
    assert len(told) == 2
    assert (one.settings.advantage.estimator, one.settings.advantage.whiten) == ("span_rloo", False)
    assert one.train().status == 0
    assert trainer(tmp_path / "run", "advantage.estimator=span_rloo", "advantage.whiten=false", "updates=1").train()


def test_the_model_loads_in_plain_transformers(tmp_path: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from text2grad.models.chat import prompt_ids

    ended = trainer(tmp_path / "run", held_out=HELD_OUT, tokenizer=tokenizer).train()
    model, own = AutoModelForCausalLM.from_pretrained(ended.model), AutoTokenizer.from_pretrained(ended.model)
    last = [row for row in rows_of(tmp_path / "run", held_out=True) if row["update"] == 5]
    assert len(last) == 3
    for row in last:
        prompt = torch.tensor([prompt_ids(own, row["example"]["prompt"])])
        wrote = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=8, pad_token_id=0
        )
        assert wrote[0, prompt.shape[1] :].tolist() == row["completion"]["token_ids"]


# -------------------------------------------------------------------------------------------------------- Ctrl-C


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command line: a tiny model in a folder, data, settings."""
    folder = tmp_path_factory.mktemp("given")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    lines = [f'{{"prompt": "Which river runs {n}?", "reference": "The Drava {n}."}}\n' for n in range(5)]
    (folder / "data.jsonl").write_text("".join(lines))
    small = ["updates=12", "prompts=3", "completions=2", "checkpoint_every=5", "sampling.max_new_tokens=8"]
    return [f"model={folder}/model", f"data={folder}/data.jsonl", "policy.lora.rank=2", "device=cpu", *small]


@pytest.fixture(scope="module")
def whole(driver: Driver, words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert driver.cli("train", "a run", *words, log=folder / "whole", cwd=str(folder)) == 0, said(folder / "whole")
    return folder / "a run"


def wait_for(run: Path, updates: int) -> None:
    for _ in range(3000):
        if (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_bytes().count(b"\n") >= updates:
            return
        time.sleep(0.01)
    raise AssertionError(f"{run}: no update {updates} within 30 s")


def stopped(driver: Driver, words: list[str], folder: Path, times: int, number: int = signal.SIGINT) -> int:
    """Begin the run, press Ctrl-C so many times after its second update; its exit status."""
    child = driver.begin(folder / "log", argv=["train", "a run", *words], cwd=str(folder))
    wait_for(folder / "a run", 2)
    for _ in range(times):
        os.kill(child, number)
        time.sleep(0.002)
    return driver.end()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_save_and_print_a_command_that_works(
    driver: Driver, words: list[str], whole: Path, tmp_path: Path, number: int, status: int
) -> None:
    assert stopped(driver, words, tmp_path, 1, number) == status, said(tmp_path / "log")
    assert "text2grad export 'a run' MODEL_FOLDER" in said(tmp_path / "log")
    (line,) = [line for line in said(tmp_path / "log").splitlines() if "resume with: " in line]
    command = shlex.split(line.split("resume with: ")[1])
    assert command == ["text2grad", "train", "a run", "--config", "a run/config.yaml"]
    assert not (tmp_path / "a run" / "model").exists()
    assert driver.cli(*command[1:], log=tmp_path / "log", cwd=str(tmp_path)) == 0, said(tmp_path / "log")
    assert_same(tmp_path / "a run", whole)


def test_a_second_ctrl_c_stops_at_once_and_nothing_is_lost(
    driver: Driver, words: list[str], whole: Path, tmp_path: Path
) -> None:
    status = stopped(driver, words, tmp_path, 2)
    assert status == 130, said(tmp_path / "log")
    again = ["train", "a run", "--config", "a run/config.yaml"]
    assert driver.cli(*again, log=tmp_path / "log", cwd=str(tmp_path)) == 0, said(tmp_path / "log")
    assert_same(tmp_path / "a run", whole)


@pytest.mark.parametrize(
    ("folder", "named"),
    [("run", "run"), ("a run", "'a run'"), ("a=b", "./a=b"), ("-x", "./-x"), ("/tmp/a=b", "/tmp/a=b")],
)
def test_the_command_to_resume_is_quoted_for_the_shell(folder: str, named: str) -> None:
    assert resume_command("train", Path(folder)).startswith(f"text2grad train {named} --config ")
    assert shlex.split(resume_command("train", Path(folder)))[-1].endswith("/config.yaml")


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) == before


def test_what_is_old_is_not_collected_again_and_afterwards_it_is() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    old = Cycle()
    seen = weakref.ref(old)
    with settled(True):
        assert gc.get_freeze_count()
        del old
        gc.collect()
        assert seen() is not None
        with settled(True):  # somebody else has decided
            pass
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()
    gc.collect()
    assert seen() is None
    with settled(False):
        assert not gc.get_freeze_count()
