"""tinker on a CPU, end to end: SkyRL's server of the Tinker API (JAX), the SDK, and the loop of docs/engines/tinker.md.

Runs in an empty folder. Beyond the page: the same completions are scored before and after, with tinker's own `forward`.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from pages import block, judge_change, make_model


def serve(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    """SkyRL's server. It starts its engine by `uv run`: a `uv` of ours runs it in this environment."""
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\nwhile [ "$1" != -m ]; do shift; done\n"{sys.executable}" "$@"\n')
    uv.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{uv.parent}:{os.environ['PATH']}",
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
    }
    small = '{"max_lora_adapters": 8, "max_lora_rank": 8}'
    command = [
        "uv",
        "run",
        "-m",
        "skyrl.tinker.api",
        "--base-model",
        "model",
        "--backend",
        "jax",
        "--backend-config",
        small,
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--checkpoints-base", str(folder / "checkpoints")]
    command += ["--database-url", f"sqlite:///{folder / 'tinker.db'}"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    for _ in range(1200):
        if server.poll() is not None:
            raise SystemExit(f"the server ended:\n{(folder / 'server.log').read_text()[-4000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/healthz", timeout=2)
            return server
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def scored(trainer: Any, rows: list[Any]) -> list[list[float]]:
    """Log-probs of the completions, by the server."""
    import tinker

    data, places = [], []
    for row in rows:
        ids, before = [*row.prompt_ids, *row.completion_ids], len(row.prompt_ids) - 1
        weights = [0.0] * before + [1.0] * len(row.completion_ids)
        inputs = {"target_tokens": ids[1:], "weights": weights}
        data.append(tinker.Datum(model_input=tinker.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs))
        places.append(before)
    outputs = trainer.forward(data, "cross_entropy").result().loss_fn_outputs
    return [list(each["logprobs"].tolist()[place:]) for each, place in zip(outputs, places, strict=True)]


def learn(script: str, seed: int) -> None:
    """One run of the page's loop; every completion is scored before the first step and after the last."""
    made: dict[str, Any] = {}
    exec(compile(script, "tinker.md", "exec"), made)
    rows, trainer = made["history"], made["trainer"]
    assert made["SEED"] == seed
    fresh = made["service"].create_lora_training_client(base_model="model", rank=8, seed=seed)
    before, after = scored(fresh, rows), scored(trainer, rows)
    for row, found in zip(rows[:8], before, strict=False):
        # What the server sampled with in the first step is what it scores with, and what the rows hold.
        assert max(abs(a - b) for a, b in zip(found, row.logprobs, strict=True)) < 0.02, (found, row.logprobs)
    print(f"seed {seed}: {len(rows)} completions in {made['STEPS']} steps", flush=True)
    judge_change(
        (float((a > 0) - (a < 0)), y - x)
        for row, first, last in zip(rows, before, after, strict=True)
        for a, x, y in zip(row.advantages, first, last, strict=True)
    )


def main() -> None:
    folder = Path.cwd()
    make_model(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = serve(folder, port)
    os.environ |= {"TINKER_BASE_URL": f"http://127.0.0.1:{port}", "TINKER_API_KEY": "tml-none"}
    try:
        for seed in range(3):
            learn(block("tinker", "python").replace('"model", 12, 0', f'"model", 12, {seed}'), seed)
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


if __name__ == "__main__":
    main()
