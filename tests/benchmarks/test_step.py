"""The benchmark of a step, briefly: that the work is what it says, not how long it takes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.step import (
    Watch,
    Work,
    arguments,
    main,
    make_folder,
    measure_ours,
    mixed_examples,
    utilisation,
    work_of,
)

from text2grad.tasks.examples import Stream

FEW = ["prompts=2", "completions=2", "update.epochs=1", "sampling.max_new_tokens=4", "policy.lora.rank=0"]


def small_work(folder: Path, *words: str) -> Work:
    args = arguments(["--hidden=16", "--layers=1", "--sentences=1", "--updates=1", *words, *FEW])
    args.folder = make_folder(args, str(folder))
    return work_of(args, args.cold, args.updates)


def test_mixed_examples_differ_in_length_and_are_always_the_same() -> None:
    found = mixed_examples(40, 12)
    assert found == mixed_examples(40, 12) and found[:20] == mixed_examples(20, 12)
    sentences = [one.prompt.count(".") + one.prompt.count("”") for one in found]
    assert min(sentences) < 10 < 16 < max(sentences) and len({one.prompt for one in found}) == 40


def test_the_prompts_of_a_step_are_those_that_the_trainer_takes(tmp_path: Path) -> None:
    work = small_work(tmp_path, "seed=3")
    stream = Stream(work.examples, 3)
    assert work.prompts(1) == [stream.at(2), stream.at(3)]


def test_a_real_model_has_the_shape_that_is_said() -> None:
    work = work_of(arguments(["--model=some/folder", "--updates=3", "--cold=2", "prompts=32"]), 2, 3)
    settings = work.settings
    assert (settings.prompts, settings.completions, settings.update.minibatches) == (32, 4, 4), "ours, theirs, ours"
    assert settings.policy.precision == "bfloat16" and settings.policy.lora.rank == 0 and settings.kl.coefficient > 0
    assert len(work.examples) == 5 * 32, "each step has prompts of its own"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["updates=1"], "updates is set by this script"),
        (["--json", "no/such/folder/x.json"], "a file in a folder that exists"),
        (["--json", "."], "a file in a folder that exists"),
        (["--trace", "no/such/folder/x.json.gz"], "--trace no/such/folder/x.json.gz: it takes a file in a folder"),
        (["--trace", "."], "a file in a folder that exists"),
        (["--waiting"], "they want --device cuda"),
        (["--trace", "x.json.gz"], "they want --device cuda"),
        (["--no-profile", "--waiting"], "leave --no-profile away"),
        pytest.param(
            ["--device=cuda"],
            "torch finds no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(words)
    assert said in capsys.readouterr().err


def test_a_run_that_ends_early_is_said(tmp_path: Path) -> None:
    watch = Watch(replace(small_work(tmp_path), cold=2, updates=3))
    watch.ends = [0.0, 10.0, 15.0, 16.0]
    with pytest.raises(SystemExit, match="ended after 3 of 5 steps"):
        watch.numbers()


@pytest.mark.parametrize(
    "word", ["--updates=0", "--updates=--5", "--updates=-1", "--cold=-1", "--rival-updates=0", "--patience=two"]
)
def test_numbers_of_steps_that_cannot_be_are_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments([word])
    assert "it takes a whole number" in capsys.readouterr().err


def test_cold_steps_stand_apart(tmp_path: Path) -> None:
    watch = Watch(replace(small_work(tmp_path), cold=2, updates=3))
    watch.ends = [0.0, 10.0, 15.0, 16.0, 18.0, 21.0]
    assert watch.numbers() == {"seconds": 2.0, "each": [1.0, 2.0, 3.0], "cold": [10.0, 5.0]}


def test_model_flops_by_hand(tmp_path: Path) -> None:
    work = small_work(tmp_path)
    vocabulary = json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    # One layer of width 16: q and o of 16 × 16, k and v of 16 × 8, gate, up and down of 16 × 32, three norms of 16.
    body, head = 2 * 256 + 2 * 128 + 3 * 512 + 3 * 16, vocabulary * 16
    found = utilisation(work, {"completion_tokens": 3.0, "prompt_tokens": 50.0, "seconds": 1.0, "parts": {}})
    assert found["weights"] == body + head
    forward = 2 * body * (2 * 50 + 4 * 3) + 2 * head * 4 * 3
    assert found["tflop_update"] == pytest.approx(3 * forward / 1e12)
    assert found["tflop_step"] == pytest.approx(5 * forward / 1e12)  # sampled, read by the reference, trained
    rows = 2 * body * (4 * 50 + 4 * 3) + 2 * head * 4 * 3
    assert found["tflop_step_rows"] == pytest.approx(5 * rows / 1e12)


def test_ours_is_measured_after_the_cold_steps(tmp_path: Path) -> None:
    found = measure_ours(small_work(tmp_path))
    assert len(found["each"]) == len(found["cold"]) == 1
    assert sum(found["parts"].values()) == pytest.approx(found["seconds"])
    assert found["optimizer_steps"] == 2 and 1 <= found["completion_tokens"] <= 4
    assert 0 <= found["padding_share"] < 0.5, "all prompts are nearly as long"


def test_the_last_lines_are_the_numbers_that_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.json"
    main(["--hidden=16", "--layers=1", "--sentences=1", "--updates=1", f"--json={file}", *FEW])
    said = capsys.readouterr().out.splitlines()
    kept = json.loads(file.read_text())
    assert said[-1] == f"seconds={kept['sides']['ours']['seconds']:.3f}"
    assert kept["settings"]["prompts"] == 2 and kept["machine"]["command"][0] == "--hidden=16"


def test_the_rival_does_equal_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl")
    file = tmp_path / "step.json"
    small = ["--hidden=16", "--layers=1", "--sentences=1", "--updates=1", f"--json={file}"]
    main([*small, "--rival=trl", "--variants", "fp32", "--patience=200", *FEW, "sampling.max_new_tokens=3"])
    ours, theirs = (json.loads(file.read_text())["sides"][side] for side in ("ours", "fp32"))
    assert theirs["prompt_tokens"] == ours["prompt_tokens"]
    assert theirs["optimizer_steps"] == ours["optimizer_steps"] == 2
    assert len(theirs["each"]) == 1 and theirs["parts"]["sample"] > 0 and theirs["parts"]["critic"] > 0
    speed = theirs["seconds"] / ours["seconds"]
    assert capsys.readouterr().out.splitlines()[-2] == f"speed_vs_trl={speed:.3g}"
