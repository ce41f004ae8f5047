"""Two machines, as far as one has two: each runs the command with `--nodes 2`, they meet at an address of loopback,
share the weights out (fsdp2), and sample from a server. One is killed; both resume, and end as one process does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.engines.loopback import Loopback
from tests.integration.test_processes import CRITIC, ENVIRONMENT, rows_of
from text2grad.cli import main
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import encode_row

# Machines are told apart by their names; gloo is told which network to use.
NODES = ENVIRONMENT | {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Loopback]]:
    folder, tokenizer = tmp_path_factory.mktemp("nodes"), tiny_tokenizer()
    model = tiny_model(tokenizer)
    model.save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    (folder / "data.jsonl").write_bytes(b"".join(encode_row({"prompt": f"Say {i}"}) for i in range(4)))
    (folder / "ours.py").write_text(CRITIC)
    server = Loopback(model)
    yield folder, server
    server.stop()


def words(run: str, server: Loopback) -> list[str]:
    return [
        *("train", run, "data=data.jsonl", "critic=ours:critic", "model=tiny", "device=cpu", "updates=4"),
        *("prompts=2", "completions=2", "checkpoint_every=1", "sampling.max_new_tokens=6", "policy.lora.rank=4"),
        *("sampling.sampler=vllm", f"sampling.url={server.url}", "--quiet"),
    ]


def on_two(place: Path, server: Loopback) -> list[tuple[int, str]]:
    """(exit status, messages) of both machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        meet = f"127.0.0.2:{free.getsockname()[1]}"
    several = ["--launch", "fsdp2", "--processes", "1", "--nodes", "2", "--rendezvous", meet]
    asked = [sys.executable, "-m", "text2grad", *words("run", server), *several, "--node-rank"]
    running = [
        subprocess.Popen([*asked, str(rank)], cwd=place, env=NODES, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=240)[1] for process in running]
    return [(process.returncode, text) for process, text in zip(running, said, strict=True)]


def test_a_machine_is_lost_and_both_resume_to_the_result_of_one_process(
    served: tuple[Path, Loopback], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, server = served
    (place / "deadly").touch()
    killed = on_two(place, server)
    (place / "deadly").unlink()
    assert [status for status, _ in killed] == [2, 2], killed
    assert "run the same command again" in killed[1][1]
    assert [row["update"] for row in rows_of(place / "run")] == [1, 2]
    shards = sorted(path.name for path in (place / "run" / "checkpoints" / "step-00000002").iterdir())
    assert [name for name in shards if name.endswith(".distcp")] == ["__0_0.distcp", "__1_0.distcp"]

    # What was trained so far, from shards that two machines have written, in one process.
    monkeypatch.chdir(place)
    assert main(["export", "run", "exported"]) == 0
    assert load_file(place / "exported" / "model.safetensors").keys()

    # What torch's launcher says where the other machine was done first is no fault.
    ended = on_two(place, server)
    assert [status for status, _ in ended] == [0, 0], ended
    monkeypatch.setattr(os, "environ", NODES)
    assert main(words("alone", server)) == 0
    found, wanted = rows_of(place / "run"), rows_of(place / "alone")
    assert [row["update"] for row in found] == [1, 2, 3, 4]
    for here, there in zip(found, wanted, strict=True):
        # Among them the mismatch with the server: were the weights of one machine not handed over, it would show.
        assert here == pytest.approx(there, abs=1e-4)
    weights, alone = (load_file(place / run / "model" / "model.safetensors") for run in ("run", "alone"))
    for name, weight in weights.items():
        torch.testing.assert_close(weight, alone[name], atol=2e-4, rtol=1e-4)
    base = load_file(place / "tiny" / "model.safetensors")
    assert max(float((weights[name] - base[name]).abs().max()) for name in base) > 1e-3, "it has learned something"


def test_a_damaged_shard_is_found(
    served: tuple[Path, Loopback], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = served
    monkeypatch.chdir(place)
    checkpoint = max((place / "run" / "checkpoints").iterdir())
    shard = checkpoint / "__1_0.distcp"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert main(["export", "run", "damaged"]) == 2
    assert "is damaged, for __1_0.distcp is not what was written" in capsys.readouterr().err
