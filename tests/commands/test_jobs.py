"""Job files: what each machine would run, found by running the files' own lines with programs that only note it."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from text2grad.cli import main
from text2grad.commands.launching import JOBS

WORDS = ["train", "runs/My Run", "data=d.jsonl", "model=tiny", "policy.lora.rank=20", "--launch", "fsdp2"]


def printed(capsys: pytest.CaptureFixture[str], kind: str, *words: str) -> str:
    assert main([*WORDS, "--print-job", kind, *words]) == 0
    return capsys.readouterr().out


def machines(kind: str, text: str, total: int, place: Path) -> list[list[str]]:
    """Run the file as its system would: one line of words per program that was started, by machine."""
    note = place / "note"
    for name in ("text2grad", "vllm"):
        program = place / name
        waits = "exec sleep 60" if name == "vllm" else "sleep 1"
        program.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >>"{note}"\n{waits}\n')
        program.chmod(0o755)
    (place / "scontrol").write_text("#!/bin/bash\nprintf '127.0.0.%s\\n' " + " ".join(map(str, range(1, total + 1))))
    # Every machine, the ones that serve first.
    (place / "srun").write_text(
        f'#!/bin/bash\nshift\nfor i in $(seq {total - 1} -1 0); do SLURM_NODEID=$i "$@" & done; wait\n'
    )
    for name in ("scontrol", "srun"):
        (place / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{place}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x"}
    hosts = "\n".join(f"127.0.0.{number}" for number in range(1, total + 1))
    scripts: list[tuple[str, dict[str, str]]] = [(text, {})]
    if kind != "slurm":
        body = script_of(kind, text)
        known = {"SKYPILOT_NODE_IPS": hosts, "SKYPILOT_TASK_ID": "7", "JOB": "7"}
        scripts = [
            (body, known | {"SKYPILOT_NODE_RANK": number, "JOB_COMPLETION_INDEX": number})
            for number in map(str, reversed(range(total)))
        ]
    running = [subprocess.Popen(["bash", "-c", one], env=environment | more, cwd=place) for one, more in scripts]
    assert [process.wait(60) for process in running] == [0] * len(running)
    return sorted(line.split() for line in note.read_text().splitlines())


def script_of(kind: str, text: str) -> str:
    documents: list[Any] = list(yaml.safe_load_all(text))
    if kind == "skypilot":
        return str(documents[0]["run"])
    (container,) = documents[1]["spec"]["template"]["spec"]["containers"]
    return str(container["args"][0])


@pytest.mark.parametrize("kind", JOBS)
def test_every_machine_trains_with_its_own_number(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, kind, "--nodes", "2", "--processes", "4")
    ran = machines(kind, text, 2, tmp_path)
    assert len(ran) == 2
    for rank, words in enumerate(ran):
        assert words[:2] == ["text2grad", "train"] and words[-3] == str(rank)
        line = " ".join(words)
        assert "--launch fsdp2 --processes 4 --nodes 2 --node-rank" in line
        assert words[-2] == "--rendezvous" and words[-1].endswith(":29500")
    assert "vllm" not in text.replace("text2grad-vllm", "")


@pytest.mark.parametrize("kind", ["slurm", "skypilot"])
def test_other_machines_serve_until_the_training_is_over(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, kind, "--nodes", "1", "--processes", "2", "--rollout-nodes", "1")
    # A server that is up: the training waits for its port.
    with socket.socket() as up:
        up.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        up.bind(("127.0.0.2", 0))
        up.listen()
        text = text.replace("8000", str(up.getsockname()[1])).replace("sleep 5", "sleep 0.1")
        train, serve = sorted(machines(kind, text, 2, tmp_path), key=lambda words: words[0] == "vllm")
    assert serve[:3] == ["vllm", "serve", "tiny"]
    assert "--enable-lora --max-lora-rank 32" in " ".join(serve) and "processed_logprobs" in serve
    assert f"sampling.url=http://127.0.0.2:{up_port(text)}" in train and "sampling.sampler=vllm" in train
    assert "--nodes" not in train
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["My Run.7.over"]


def up_port(text: str) -> str:
    return text.partition("--port ")[2].split()[0]


def test_kubernetes_names_its_machines_by_a_service(capsys: pytest.CaptureFixture[str]) -> None:
    service, job = yaml.safe_load_all(printed(capsys, "kubernetes", "--nodes", "2", "--rollout-nodes", "1"))
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"] == "t2g-runs-my-run"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train", "r", "data=x", "--nodes", "2"], "--nodes goes with --launch"),
        (["train", "r", "data=x", "--node-rank", "1"], "--node-rank goes with --launch"),
        (["train", "r", "data=x", "--rendezvous", "a:1"], "--rendezvous goes with --launch"),
        (["train", "r", "data=x", "--rollout-nodes", "1"], "--rollout-nodes goes with --launch"),
        ([*WORDS, "--node-rank", "1"], "--node-rank goes with --nodes N"),
        ([*WORDS, "--nodes", "2", "--rendezvous", "a:1", "--print-job", "slurm"], "does not go with --print-job"),
        ([*WORDS, "--nodes", "2", "--node-rank", "1", "--rendezvous", "a:٣"], "wants --rendezvous HOST:PORT"),
        ([*WORDS, "--print-job", "slurm", "--rollout-nodes", "1", "model=smollm2-135m"], "a folder or a hub id"),
        (
            ["sft", "r", "data=x", "--launch", "ddp", "--print-job", "slurm", "--rollout-nodes", "1"],
            "text2grad sft samples nothing",
        ),
        (["sft", "r", "data=x", "sampling.sampler=vllm", "sampling.url=http://h:1"], "text2grad sft samples nothing"),
        (["dpo", "r", "data=x", "sampling.sampler=vllm", "sampling.url=http://h:1"], "text2grad dpo samples nothing"),
        (["train", "r", "data=x", "--print-job", "slurm"], "--print-job goes with --launch"),
        ([*WORDS, "--nodes", "2", "--processes", "1"], "--nodes 2 wants --node-rank, from 0 to 1"),
        (
            [*WORDS, "--nodes", "2", "--node-rank", "2", "--rendezvous", "a:1"],
            "--nodes 2 wants --node-rank, from 0 to 1",
        ),
        ([*WORDS, "--nodes", "2", "--node-rank", "1", "--rendezvous", "a"], "wants --rendezvous HOST:PORT"),
        ([*WORDS, "--nodes", "0"], "--nodes should be at least 1"),
        ([*WORDS, "--rollout-nodes", "1"], "--rollout-nodes goes with --print-job"),
        ([*WORDS, "--print-job", "slurm", "critics.openai.api_key=sk-0123456789"], "leave it to the job's environment"),
        ([*WORDS, "--print-job", "slurm", "--rollout-nodes", "1", "policy.lora.rank=1000"], "up to rank 512"),
    ],
)
def test_what_does_not_go_together(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert complaint in said and "sk-0123456789" not in said


def test_a_setting_with_the_line_that_ends_a_document_ends_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, "slurm", "--processes", "1", "held_out=x\nEACH\ntouch pwned\nEACH_\n")
    machines("slurm", text, 1, tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("kind", JOBS)
def test_a_dry_run_prints_the_job_with_the_estimate_as_comments(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "d.jsonl"
    data.write_text('{"prompt": "a", "reference": "b"}\n')
    more = [f"data={data}", "model=smollm2-135m", "--nodes", "2"]
    job = printed(capsys, kind, *more)
    both = printed(capsys, kind, *more, "--dry-run")
    assert both.startswith(job)
    comments = both.removeprefix(job).splitlines()
    assert comments and all(line.startswith("# ") for line in comments) and "no cost" in both
    if kind != "slurm":
        assert script_of(kind, both).rstrip() == script_of(kind, job).rstrip()
