"""On one GPU: a run that is killed and goes on ends bitwise as if nothing had happened. `make test-gpu` runs these."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.trainings import assert_same
from text2grad.models.tiny import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.gpu

DEVICE = os.environ.get("TEXT2GRAD_TEST_DEVICE", "cuda")
"""`TEXT2GRAD_TEST_DEVICE=cpu` tries the test itself where there is no GPU."""
CRITIC = "critic=tests.training.trainings:vowels"
"""It gives verdicts and a score, so what a verdict is worth is a running scale, which the run has to keep."""
COMMON = ["updates=8", "prompts=4", "completions=4", "sampling.max_new_tokens=12", "checkpoint_every=2"]
KINDS = {
    "LoRA": ["policy.lora.rank=4"],
    "LoRA, two slopes": ["policy.lora.rank=4", "scoring.slopes=two"],
    "LoRA, bf16": ["policy.lora.rank=4", "policy.precision=bfloat16"],
    "all weights, bf16": ["policy.lora.rank=0", "policy.precision=bfloat16", "update.learning_rate=1e-4"],
    "all weights, bf16, no graphs": ["policy.lora.rank=0", "policy.precision=bfloat16", "policy.cuda_graphs=never"],
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=64, layers=2).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [
        {"prompt": f"Which river{' of the far north' * (n % 3)} runs past hill {n}?", "reference": f"The Drava {n}."}
        for n in range(12)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def begun(given: Path, run: Path, kind: str) -> "subprocess.Popen[bytes]":
    words = [str(run), "model=model", "data=data.jsonl", CRITIC, f"device={DEVICE}", "evaluation.every=4"]
    command = [sys.executable, "-m", "text2grad", "train", *words, *COMMON, *KINDS[kind]]
    found = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))}
    return subprocess.Popen(command, cwd=given, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finished(process: "subprocess.Popen[bytes]") -> None:
    said = process.communicate()[1].decode()
    assert process.returncode == 0, said[-2000:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_as_if_nothing_had_happened(given: Path, tmp_path: Path, kind: str) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finished(begun(given, whole, kind))
    for lines in (2, 6):
        process = begun(given, killed, kind)
        metrics, begin = killed / "metrics.jsonl", time.monotonic()
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < lines:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() - begin < 120
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finished(begun(given, killed, kind))
    assert_same(killed, whole)
