"""Real vLLM servers on the CPU, in an environment of their own: `make test-vllm` makes it, and runs these.

What is checked here is what a server of ours cannot show: that vLLM understands what it is sent, that it has taken over
what it was given, and that its log-probs are those of the policy.
"""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.training.trainings import HELD_OUT, metrics_of, rows_of, trainer
from text2grad.errors import RunError
from text2grad.models.load import load_model
from text2grad.models.tiny import tiny_tokenizer
from text2grad.types import Rollout

pytestmark = pytest.mark.vllm
PYTHON = os.environ.get("TEXT2GRAD_VLLM", "")
SECONDS = 420
SERVED = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
}
FLAGS = [
    *("--dtype", "float32", "--max-model-len", "256", "--enforce-eager", "--max-num-seqs", "8"),
    *("--logprobs-mode", "processed_logprobs", "--enable-lora", "--max-lora-rank", "8", "--host", "127.0.0.1"),
]


class Served:
    """A vLLM server of a model folder."""

    def __init__(self, model: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = model.parent / f"vllm-{self.port}.log"
        words = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "it"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*words, *FLAGS, "--port", str(self.port)],
                env={**os.environ, **SERVED},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(1)
        pytest.fail(f"vLLM is not up: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def folder_of(path: Path, *, tied: bool) -> Path:
    """A model whose heads are wide enough for vLLM's attention on a CPU."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.1,  # so that tokens differ in probability
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    # Left to the model, a server would cut the distribution off here.
    model.generation_config.update(do_sample=True, top_p=0.5, top_k=5)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {"untied": folder_of(place / "untied", tied=False), "tied": folder_of(place / "tied", tied=True)}


@pytest.fixture(scope="module")
def vllm(models: dict[str, Path]) -> Iterator[dict[str, Served]]:
    if not PYTHON:
        pytest.fail("TEXT2GRAD_VLLM should name a Python with vLLM; make test-vllm sets it")
    running = {"one": Served(models["untied"]), "two": Served(models["untied"]), "tied": Served(models["tied"])}
    try:
        for server in running.values():
            server.wait()
        yield running
    finally:
        for server in running.values():
            server.kill()


def train(folder: Path, model: Path, *words: str, urls: str, **more: Any) -> Path:
    loaded, tokenizer = load_model(str(model))
    asked = ["sampling.sampler=vllm", f"sampling.url={urls}", "sampling.max_new_tokens=24", "log.rollouts=99", *words]
    given = {"model": loaded, "tokenizer": tokenizer, "held_out": HELD_OUT, **more}
    assert trainer(folder, *asked, "policy.lora.rank=4", *words, **given).train().status == 0
    return folder


def check(run: Path) -> None:
    """Log-probs are those of the trainer; the policy has moved; sampling used the whole distribution."""
    rows = [row for row in metrics_of(run) if row["update"]]
    assert [row["update"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        print({key: row[key] for key in row if key.startswith("engine/")})
        assert row["engine/mismatch"] < 1e-4 and row["engine/mismatch_max"] < 1e-2 and row["engine/capped_frac"] == 0
    first = [Rollout.from_json(row) for row in rows_of(run) if row["update"] == 1]
    drawn = [id for rollout in first for id in rollout.completion.token_ids]
    assert len(set(drawn)) > len(drawn) / 3, "top-k of 5 would repeat itself"
    assert any(abs(a - b) > 0.01 for r in first for a, b in zip(r.logprobs or (), r.logprobs_after or (), strict=True))


def test_an_adapter_goes_to_two_servers(vllm: dict[str, Served], models: dict[str, Path], tmp_path: Path) -> None:
    urls = f"{vllm['one'].url},{vllm['two'].url}"
    check(train(tmp_path / "run", models["untied"], "sampling.temperature=0.8", urls=urls))


def test_all_weights_go_to_two_servers(vllm: dict[str, Served], models: dict[str, Path], tmp_path: Path) -> None:
    urls = f"{vllm['one'].url},{vllm['two'].url}"
    check(train(tmp_path / "run", models["untied"], "policy.lora.rank=0", "update.learning_rate=2e-3", urls=urls))


def test_weights_that_are_not_taken_over_whole_are_refused(
    vllm: dict[str, Served], models: dict[str, Path], tmp_path: Path
) -> None:
    """On a CPU vLLM packs the vocabulary projection anew when it starts, and does not when it reloads: a model whose
    embedding is also its projection is left with half of the new weights. An adapter goes around it."""
    words = ["policy.lora.rank=0", "update.learning_rate=2e-2"]
    with pytest.raises(RunError, match=r"differ from the trainer's by .*some builds reload only one of them"):
        train(tmp_path / "run", models["tied"], *words, urls=vllm["tied"].url)


def test_an_adapter_on_a_model_with_tied_embeddings(
    models: dict[str, Path], tmp_path: Path, vllm: dict[str, Served]
) -> None:
    # Started again: the test before has left half of other weights in it.
    vllm["tied"].kill()
    vllm["tied"] = Served(models["tied"])
    vllm["tied"].wait()
    check(train(tmp_path / "run", models["tied"], urls=vllm["tied"].url))


def test_a_server_that_is_killed_costs_time_and_nothing_else(
    vllm: dict[str, Served], models: dict[str, Path], tmp_path: Path
) -> None:
    def kill(_: Any, metrics: Any) -> None:
        if metrics["update"] == 2:
            vllm["two"].kill()

    urls = f"{vllm['one'].url},{vllm['two'].url}"
    # The servers hold the last run's weights; with an adapter the base must be the model's own again.
    words = ["policy.lora.rank=0", "update.learning_rate=2e-3"]
    run = train(tmp_path / "run", models["untied"], *words, urls=urls, callbacks=[kill])
    check(run)
    assert sum(row.get("engine/faults", 0) for row in metrics_of(run)) > 0
