"""How many completions are in memory at once: chosen, halved when memory runs out, written down."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.trainings import trainer
from text2grad.errors import RunError
from text2grad.optim.batch import collate_ids
from text2grad.training.sizes import ON_CPU, Sizes, fitting


def full_from(one: Any, rows: int, *, reading: bool = False) -> None:
    """Memory holds fewer completions than this in a pass with gradients; or without them."""
    forward = one.policy.forward

    def limited(batch: Any, *args: Any, **named: Any) -> Any:
        if len(batch) >= rows and torch.is_grad_enabled() is not reading:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return forward(batch, *args, **named)

    one.policy.forward = limited


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def test_on_a_cpu_auto_is_a_constant(tmp_path: Path) -> None:
    assert trainer(tmp_path / "auto", "update.micro_batch=auto", "updates=2").train().status == 0
    assert trainer(tmp_path / "given", f"update.micro_batch={ON_CPU}", "updates=2").train().status == 0
    assert weights(tmp_path / "auto") == weights(tmp_path / "given")
    assert "sizes" not in json.loads((tmp_path / "auto" / "run.json").read_bytes())


def test_running_out_of_memory_halves_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = trainer(tmp_path / "run", "update.micro_batch=auto", "updates=3", "update.minibatches=1")
    full_from(one, 3)
    assert one.train().status == 0
    assert json.loads((tmp_path / "run" / "run.json").read_bytes())["sizes"]["micro_batch"] == 2
    said = capsys.readouterr().err
    assert "memory ran out: 8 completions at once" in said and "memory ran out: 2 completions at once" in said
    # What was begun and did not fit left no trace: the same as with two at once from the start.
    trainer(tmp_path / "given", "update.micro_batch=2", "updates=3", "update.minibatches=1").train()
    assert weights(tmp_path / "run") == weights(tmp_path / "given")


def test_the_size_is_remembered(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "update.micro_batch=auto", "updates=3", "update.minibatches=1")
    full_from(one, 3)

    class Stop(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    one.run.callbacks = [stop]
    with pytest.raises(Stop):
        one.train()
    again = trainer(tmp_path / "run", "update.micro_batch=auto", "updates=3", "update.minibatches=1")
    assert again.sizes.micro_batch == 2
    again.close()
    chosen = trainer(tmp_path / "run", "update.micro_batch=3", "updates=3", "update.minibatches=1")
    assert chosen.sizes.micro_batch == 3
    chosen.close()


def test_a_size_that_is_given_counts_and_not_the_recorded_one(tmp_path: Path) -> None:
    """A run that found its sizes, and is told others when it goes on: both are taken, and stay out of the record."""
    one = trainer(tmp_path / "run", "update.micro_batch=auto", "updates=3")
    sampler: Any = one.writer.sampler
    one.sizes.micro_batch = 8
    one.sizes._write_down()
    assert one.run.recorded("sizes") == {"micro_batch": 8, "sampling": sampler.batch}
    one.run.record("sizes", {"micro_batch": 8, "sampling": 6})
    one.close()
    for words, expected in (([], (8, 6)), (["sampling.batch=2", "update.micro_batch=3"], (3, 2))):
        again = trainer(tmp_path / "run", "updates=3", "update.micro_batch=auto", *words)
        sampler = again.writer.sampler
        assert (again.sizes.micro_batch, sampler.batch) == expected
        again.close()
    again = trainer(tmp_path / "run", "updates=3", "sampling.batch=2")
    again.sizes._write_down()
    assert (again.run.recorded("sizes") or {})["sampling"] is None
    again.close()


class Own:
    """Somebody's own sampler, with a batch that it finds by itself."""

    batch = 64

    def __init__(self, *_: Any, **named: Any) -> None: ...


def test_the_batch_of_an_own_sampler_is_remembered_too(tmp_path: Path) -> None:
    own = f"sampling.sampler={__name__}:Own"
    one = trainer(tmp_path / "run", "updates=3", own)
    one.run.record("sizes", {"micro_batch": None, "sampling": 6})
    one.close()
    for words, expected in ([], 6), (["sampling.batch=2"], 64):
        again = trainer(tmp_path / "run", "updates=3", own, *words)
        sampler: Any = again.writer.sampler
        assert isinstance(sampler, Own) and sampler.batch == expected, "a batch that is given is its own affair"
        again.sizes._write_down()
        assert (again.run.recorded("sizes") or {})["sampling"] == (None if words else 6)
        again.close()


def test_trials_price_a_row_as_the_longest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts of two completions, one prompt far longer: each pass takes 50, and each token that is read 1. Both
    trials are made with the longer prompt, so no micro-batch of two such prompts can surprise."""
    one = trainer(tmp_path / "run")
    batch = collate_ids([(1,) * 20] * 2 + [(1,) * 4] * 2, [(2,) * 5] * 4, groups=[0, 0, 1, 1])
    tried = []

    def kept(_: Any, trial: Any) -> int:
        prompts = {int(group): int(length) for group, length in zip(trial.group_B, trial.prompt_B, strict=True)}
        tried.append((len(trial), sum(prompts.values())))
        return 50 + sum(prompts.values()) + int(trial.lengths_B.sum())

    monkeypatch.setattr("text2grad.training.sizes._kept", kept)
    assert fitting(one.policy, batch, 50 + 150) == 10, "a row with its half of the prompt: 5 + 20 / 2"
    assert tried == [(2, 20), (4, 40)]
    for name in ("packs", "records"):
        monkeypatch.setattr(one.policy.backbone, name, lambda: True)
    assert fitting(one.policy, batch, 2 * (50 + 150)) == 10, "what is recorded is held twice"
    one.close()


def test_a_trial_for_which_there_is_no_memory_is_made_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(tmp_path / "run")
    batch = collate_ids([(1, 1)] * 8, [(2,)] * 8, groups=[0] * 4 + [1] * 4)
    for most, expected in (4, 25), (3, 25), (1, 25), (0, 1):
        monkeypatch.setattr(
            "text2grad.training.sizes._kept", lambda _, trial, most=most: 4 * len(trial) if len(trial) <= most else None
        )
        assert fitting(one.policy, batch, 100) == expected
    one.close()


def test_reading_halves_as_well(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "update.micro_batch=auto", "updates=2")
    full_from(one, 4, reading=True)
    assert one.train().status == 0 and one.sizes.micro_batch == 2


def test_a_size_that_was_given_is_not_changed(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "update.micro_batch=3", "updates=2")
    full_from(one, 2)
    with pytest.raises(RunError, match=r"lower update\.micro_batch"):
        one.train()


def test_one_completion_that_does_not_fit_is_said(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "update.micro_batch=auto", "updates=2")
    full_from(one, 1)
    with pytest.raises(
        RunError, match=r"ran out of memory in the update: lower update.micro_batch, or set policy.grad"
    ):
        one.train()


def test_sampling_halves_and_draws_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = trainer(tmp_path / "run", "updates=2", "evaluation.every=1")
    sampler: Any = one.writer.sampler
    decode = sampler.decoder.decode

    def limited(prompts: Any, uniforms: Any) -> Any:
        if len(prompts) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(prompts, uniforms)

    monkeypatch.setattr(sampler.decoder, "decode", limited)
    assert one.train().status == 0
    assert sampler.batch == 4
    assert "sampling: memory ran out, so 4 completions at once" in caplog.text
    trainer(tmp_path / "given", "updates=2", "evaluation.every=1", "sampling.batch=4").train()
    assert weights(tmp_path / "run") == weights(tmp_path / "given")


def test_parts_of_a_minibatch_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 completions where 13 fit: two parts of 10, not 13 and 7; where they come in fours, 12 and 8."""
    one = trainer(tmp_path / "run")
    sizes = Sizes(one.run, "auto", torch.device("cuda"), one.writer)
    assert sizes.micro_batch is None
    monkeypatch.setattr("text2grad.training.sizes.free_memory", lambda _: 1e9)
    monkeypatch.setattr("text2grad.training.sizes.fitting", lambda *_: 13)
    for groups, rows in ([*range(40)], 10), ([number // 4 for number in range(40)], 12):
        sizes.micro_batch = None
        batch = collate_ids([(1,)] * 40, [(2,)] * 40, groups=groups)
        sizes.settle(one.policy, one.optimizer, batch, 2)
        assert sizes.micro_batch == rows and sizes.reading == 4 * rows
    one.close()
