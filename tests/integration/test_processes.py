"""Two processes on a CPU, over gloo: the numbers of one process, files written once, ends that say what to do."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.integration.several import RUNS, loop
from text2grad import config
from text2grad.cli import main
from text2grad.commands.launching import NAMES, config_file, launcher
from text2grad.errors import ConfigError
from text2grad.models.parallel import AccelerateWorld
from text2grad.models.reward.model import RewardModel
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import encode_row, read_jsonl

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "OMP_NUM_THREADS": "1"}


def rows_of(run: Path, name: str = "metrics") -> list[dict[str, Any]]:
    """Without what a clock says."""
    rows = read_jsonl(run / f"{name}.jsonl")
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run, by one process."""
    folder = tmp_path_factory.mktemp("alone")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in RUNS:
        assert loop(name, folder / name).train().status == 0
    torch.set_num_threads(before)
    return folder


@pytest.fixture(scope="module", params=["ddp", "fsdp2"])
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Every run, by two."""
    kind: str = request.param
    folder = tmp_path_factory.mktemp(kind)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    several = str(Path(__file__).parent / "several.py")
    done = subprocess.run(
        [sys.executable, *words, several, str(folder), kind], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "UserWarning" not in done.stderr
    return kind, folder


def test_the_first_process_alone_tells_the_trackers(together: tuple[str, Path]) -> None:
    """And a run that is over leaves the processes able to talk: there are more runs after it."""
    pytest.importorskip("tensorboardX", reason="pip install tensorboardX: to write events")
    _, folder = together
    for name in ("gae", "lora", "unscored"):
        (written,) = (folder / name / "text2grad").glob("events.*")
        assert written.stat().st_size > 1000


def test_every_process_takes_part_and_fsdp2_shares_the_weights_out(together: tuple[str, Path]) -> None:
    kind, folder = together
    for name in RUNS:
        said = [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]
        assert [(one["status"], one["processes"]) for one in said] == [(0, 2)] * 2
        if kind == "fsdp2":
            assert [one["kinds"] for one in said] == [["DTensor"]] * 2
            assert sum(one["share"] for one in said) == pytest.approx(1) and max(one["share"] for one in said) < 0.51
        else:
            assert [one["module"] for one in said] == ["DistributedDataParallel"] * 2


def test_a_run_that_learns_nothing_ends_in_every_process(together: tuple[str, Path]) -> None:
    assert [json.loads((together[1] / f"silent-{rank}.json").read_text()) for rank in (0, 1)] == [[1, 1]] * 2


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_give_the_numbers_of_one(together: tuple[str, Path], alone: Path, name: str) -> None:
    """All metrics: losses, scores, KL, gradient norm, locality, held-out; one row an update, written by one process."""
    found, wanted = rows_of(together[1] / name), rows_of(alone / name)
    assert [row["update"] for row in found] == [0, 1, 2, 3]
    for here, there in zip(found, wanted, strict=True):
        assert here == pytest.approx(there, abs=1e-4)
    moved = {"sft": "loss/mean", "reward": "loss/span", "dpo": "loss/mean", "pairs": "loss/mean"}.get(
        name, "loss/policy"
    )
    assert abs(wanted[1][moved] - wanted[2][moved]) > 1e-3, "else anything would be within the tolerance"


@pytest.mark.parametrize("name", ["gae", "lora", "unscored"])
def test_the_same_completions_are_drawn_and_logged_once(together: tuple[str, Path], alone: Path, name: str) -> None:
    found, wanted = rows_of(together[1] / name, "rollouts"), rows_of(alone / name, "rollouts")
    assert [(row["update"], row["index"]) for row in found] == [(row["update"], row["index"]) for row in wanted]
    for here, there in zip(found, wanted, strict=True):
        if here["update"] == 1:
            assert here["completion"] == there["completion"]
            assert here["advantages"] == pytest.approx(there["advantages"], abs=1e-4)


@pytest.mark.parametrize("name", RUNS)
def test_the_model_is_whole_and_loads_in_plain_transformers(together: tuple[str, Path], alone: Path, name: str) -> None:
    """Adapters merged, nothing sharded; the weights of one process, but for rounding."""
    found = AutoModelForCausalLM.from_pretrained(together[1] / name / "model")
    wanted = AutoModelForCausalLM.from_pretrained(alone / name / "model").state_dict()
    for key, weight in found.state_dict().items():
        torch.testing.assert_close(weight, wanted[key], atol=2e-4, rtol=1e-4)
    assert found.generation_config.eos_token_id == tiny_tokenizer().eos_token_id


def test_the_span_head_is_whole_and_calibrated_alike(together: tuple[str, Path], alone: Path) -> None:
    found, wanted = (RewardModel.from_pretrained(folder / "reward" / "model")[0] for folder in (together[1], alone))
    for name, weight in found.span_head.named_parameters():
        torch.testing.assert_close(weight, wanted.span_head.get_parameter(name), atol=2e-4, rtol=1e-4)
        assert weight.abs().max() > 1e-3
    here, there = (config.plain(one.calibration) for one in (found, wanted))
    assert here.pop("kind") == there.pop("kind") == "verdicts"
    assert here == pytest.approx(there, rel=0.05)


def test_ctrl_c_in_one_process_saves_all_and_the_resumed_run_is_the_undisturbed_one(
    together: tuple[str, Path],
) -> None:
    folder = together[1]
    assert [json.loads((folder / f"again-{rank}.json").read_text()) for rank in (0, 1)] == [[130, 0]] * 2
    for name in ("metrics", "rollouts"):
        assert rows_of(folder / "again", name) == rows_of(folder / "gae", name)
    weights = [(folder / name / "model" / "model.safetensors").read_bytes() for name in ("again", "gae")]
    assert weights[0] == weights[1]


# ---------------------------------------------------------------------------------------------- from the shell

CRITIC = """
import os, signal, time
from pathlib import Path
from text2grad.types import Critique

calls = 0

def critic(prompts, completions, **_):
    global calls
    calls += 1
    if Path("deadly").exists() and os.environ.get("RANK") == "1" and calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if Path("slow").exists():
        time.sleep(0.5)
    return [Critique("fine", score=len(text) / 10) for text in completions]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    (folder / "data.jsonl").write_bytes(
        b"".join(encode_row({"prompt": f"Say {i}", "reference": f"It is {i}."}) for i in range(4))
    )
    (folder / "ours.py").write_text(CRITIC)
    return folder


def words(run: str, updates: int = 4) -> list[str]:
    return [
        *("train", run, "data=data.jsonl", "critic=ours:critic", "model=tiny", "device=cpu", f"updates={updates}"),
        *("prompts=2", "completions=2", "checkpoint_every=1", "sampling.max_new_tokens=6", "policy.lora.rank=4"),
    ]


@pytest.fixture(scope="module")
def killed(place: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run whose second process is killed in its third update."""
    (place / "deadly").touch()
    asked = [sys.executable, "-m", "text2grad", *words("killed"), "--launch", "fsdp2", "--processes", "2"]
    done = subprocess.run(asked, cwd=place, env=ENVIRONMENT, capture_output=True, text=True)
    (place / "deadly").unlink()
    return place / "killed", done


def test_a_process_that_dies_ends_the_run_with_a_message(
    killed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run, done = killed
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "a process of this run ended" in last and "run the same command again" in last
    assert [row["update"] for row in rows_of(run)] == [1, 2]
    assert json.loads((run / "run.json").read_text())["launched"] == "--launch fsdp2 --processes 2"


def test_another_number_of_processes_is_refused(
    killed: tuple[Path, subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(killed[0].parent)
    before = (killed[0] / "metrics.jsonl").read_bytes()
    assert main(words("killed")) == 2
    assert "started with --launch fsdp2 --processes 2, and this is one process" in capsys.readouterr().err
    assert (killed[0] / "metrics.jsonl").read_bytes() == before


def test_as_many_processes_go_on_from_the_last_checkpoint(
    killed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run = killed[0]
    asked = [sys.executable, "-m", "text2grad", *words("killed"), "--launch", "fsdp2", "--processes", "2", "--quiet"]
    done = subprocess.run(asked, cwd=run.parent, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["update"] for row in rows_of(run)] == [1, 2, 3, 4]
    assert (run / "model" / "model.safetensors").exists()


def test_ctrl_c_in_the_terminal_saves_and_says_how_to_go_on(place: Path) -> None:
    (place / "slow").touch()
    asked = [sys.executable, "-m", "text2grad", *words("stopped", updates=500), "--launch", "ddp", "--processes", "2"]
    # A terminal sends Ctrl-C to the whole group in its foreground.
    with subprocess.Popen(
        asked, cwd=place, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        metrics = place / "stopped" / "metrics.jsonl"
        ends = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < ends:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= 2:
                break
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    (place / "slow").unlink()
    assert process.returncode == 130, said
    assert "resume with: text2grad train stopped --config stopped/config.yaml --launch ddp --processes 2" in said
    (checkpoint, *_) = sorted((place / "stopped" / "checkpoints").iterdir(), reverse=True)
    assert int(checkpoint.name.removeprefix("step-")) == rows_of(place / "stopped")[-1]["update"]


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_configurations_are_read_by_accelerate(name: str) -> None:
    """By its own reader, to the launcher that is meant."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    asked = launcher("train", name, 3, ["run", "data=x.jsonl", "--quiet"])
    parsed, _, _ = _validate_launch_command(launch_command_parser().parse_args(asked[3:]))
    assert (parsed.num_processes, parsed.main_process_port, parsed.mixed_precision) == (3, 0, "no")
    assert parsed.training_script_args == ["train", "run", "data=x.jsonl", "--quiet"]
    chosen = {"ddp": "multi_gpu", "fsdp2": "use_fsdp"}
    assert [word for word in chosen.values() if getattr(parsed, word)] == [chosen[name]]
    if name == "fsdp2":
        assert parsed.fsdp_version == 2 and not parsed.fsdp_cpu_ram_efficient_loading
    assert config_file(name).parent.parent.name == "training"


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (["--launch", "ddp", "--processes", "0"], "--processes should be at least 1, got 0"),
        (["--processes", "0"], "--processes should be at least 1, got 0"),
        (["--processes", "2"], "--processes goes with --launch"),
    ],
)
@pytest.mark.parametrize("stage", ["train", "sft", "reward-model"])
def test_what_cannot_be_launched(
    stage: str, asked: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([stage, str(tmp_path / "run"), "data=x.jsonl", *asked]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_trackers_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate itself would say nothing and write nothing."""
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", list)
    with pytest.raises(ConfigError, match=r"no tracker 'tensorbord'; did you mean tensorboard"):
        AccelerateWorld("cpu", ("tensorbord",))
    with pytest.raises(ConfigError, match=r"wandb is not installed; pip install wandb"):
        AccelerateWorld("cpu", ("wandb",))


def test_deepspeed_from_accelerate_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ConfigError, match="text2grad does not run on: use --launch ddp"):
        AccelerateWorld("cpu")
