"""Damage is noticed: a changed bit of a checkpoint, another model or tokenizer, a buffer of another shape."""

import hashlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.attacks.conftest import SMALL
from text2grad.cli import main
from text2grad.errors import RunError
from text2grad.models.load import fingerprint
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs.folder import MACHINE, check_checkpoint

TRAIN = ["train", "run", "model=model", "data=data.jsonl", "critic=reference", *SMALL]
TRAIN += ["held_out=data.jsonl", "checkpoint_every=1", "evaluation.every=1", "guard.nothing_learned=warn", "--quiet"]


@pytest.fixture(scope="module")
def trained(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two updates, of which the model is still to be written."""
    folder = tmp_path_factory.mktemp("trained") / "here"
    shutil.copytree(made, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(TRAIN) == 0
    shutil.rmtree(folder / "run" / "model")
    return folder


@pytest.fixture
def there(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "there")
    monkeypatch.chdir(tmp_path / "there")
    return tmp_path / "there"


def newest() -> Path:
    return max(Path("run/checkpoints").iterdir())


@pytest.mark.usefixtures("there")
def test_four_hundred_flipped_bits_are_four_hundred_refusals() -> None:
    drawn, state = random.Random(0), newest() / "state.pt"
    whole = state.read_bytes()
    check_checkpoint(newest())
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[drawn.randrange(len(whole))] ^= 1 << drawn.randrange(8)
        state.write_bytes(damaged)
        with pytest.raises(RunError, match=r"is damaged, for state.pt is not what was written; delete this checkpoint"):
            check_checkpoint(newest())


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the state": lambda folder: _flip(folder / "state.pt"),
    "a bit of the checksums": lambda folder: _flip(folder / "checksums.json"),
    "no state": lambda folder: (folder / "state.pt").unlink(),
    "checksums of a number": lambda folder: (folder / "checksums.json").write_text("5"),
    "checksums a mile deep": lambda folder: (folder / "checksums.json").write_text("[" * 100_000),
    "checksums in a pipe": lambda folder: _pipe(folder / "checksums.json"),
    "a state in a pipe": lambda folder: _pipe(folder / "state.pt"),
    "another file": lambda folder: (folder / "more.bin").write_bytes(b"x"),
    "another file, which is a pipe": lambda folder: os.mkfifo(folder / "more"),
}


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.usefixtures("there")
def test_a_damaged_checkpoint_ends_in_one_line_and_the_one_before_resumes(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[name](newest())
    assert main(TRAIN) == 2
    told = capfd.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "is damaged, for " in told[0] and "delete this checkpoint folder" in told[0]
    assert main(["export", "run", "out"]) == 2
    assert "is damaged, for " in capfd.readouterr().err and not Path("out").exists()
    shutil.rmtree(newest())
    assert main(TRAIN) == 0


@pytest.mark.usefixtures("there")
def test_a_checkpoint_without_checksums_is_called_one_of_an_earlier_version(capfd: pytest.CaptureFixture[str]) -> None:
    (newest() / "checksums.json").unlink()
    assert main(TRAIN) == 2
    told = capfd.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "is of an earlier version of text2grad" in told[0] and "damaged" not in told[0]
    shutil.rmtree(newest())
    assert main(TRAIN) == 0


def _weight(folder: Path) -> None:
    """One weight, the smallest step up."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    name, chosen = sorted(weights.items())[1]
    flat = chosen.view(-1)
    flat[len(flat) // 3] = torch.nextafter(flat[len(flat) // 3], torch.tensor(torch.inf))
    save_file({**weights, name: chosen}, folder / "model.safetensors", {"format": "pt"})


def _merge(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_text())
    tree["model"]["merges"][-2:] = reversed(tree["model"]["merges"][-2:])
    (folder / "tokenizer.json").write_text(json.dumps(tree))


def _template(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text() + " ")


def _setting(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


ROPE = {"rope_theta": 9999.0, "rope_type": "default"}
SETTINGS = [_setting(rms_norm_eps=1e-4), _setting(hidden_act="gelu"), _setting(rope_parameters=ROPE)]


@pytest.mark.parametrize("change", [_weight, _merge, _template, *SETTINGS])
@pytest.mark.usefixtures("there")
def test_another_starting_model_is_refused(change: Any, capfd: pytest.CaptureFixture[str]) -> None:
    change(Path("model"))
    assert main(TRAIN) == 2
    told = capfd.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "other weights or settings, or another tokenizer or chat template" in told[0]
    assert main(["export", "run", "out"]) == 2
    assert "was started from another model" in capfd.readouterr().err and not Path("out").exists()


@pytest.mark.usefixtures("there")
def test_a_run_of_an_earlier_version_resumes_by_its_weights_alone() -> None:
    """It wrote down the first half of the fingerprint."""
    path = Path("run/run.json")
    tree = json.loads(path.read_text())
    assert len(tree["model"]) == 128
    path.write_text(json.dumps(tree | {"model": tree["model"][:64]}))
    assert main(TRAIN) == 0 and main(["export", "run", "out"]) == 0


def test_weights_in_buffers_are_part_of_the_fingerprint() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, hidden_size=16, layers=1)
    model.register_buffer("shift", torch.tensor([1.0]))
    before = fingerprint(model, tokenizer)
    model.get_buffer("shift").fill_(2.0)
    assert fingerprint(model, tokenizer) != before


def test_the_fingerprint_stays_while_the_tokenizer_is_used() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, hidden_size=16, layers=1)
    before = fingerprint(model, tokenizer)
    tokenizer(["one", "two three"], padding=True, truncation=True, max_length=2)
    assert fingerprint(model, tokenizer) == before == fingerprint(model.to(torch.float32), tiny_tokenizer())
    assert fingerprint(model.to(torch.bfloat16), tokenizer) != before


@pytest.fixture
def killed(there: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that a kill ended before its second checkpoint: its buffer is there."""
    shutil.rmtree(there / "run")

    class Killed(BaseException): ...

    def log(run: Any, metrics: Any, *_: Any, **__: Any) -> None:
        if metrics["update"] == 2:
            raise Killed
        real(run, metrics, *_, **__)

    from text2grad.runs.run import Run

    real = Run.log
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", log)
        with pytest.raises(Killed):
            main(TRAIN)
    return there


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["rollouts"].pop(),
        lambda tree: tree["rollouts"].append(tree["rollouts"][0]),
        lambda tree: tree["rollouts"].reverse(),
        lambda tree: tree.update(rollouts=[]),
    ],
)
@pytest.mark.usefixtures("killed")
def test_a_buffer_of_another_shape_is_refused(change: Any, capfd: pytest.CaptureFixture[str]) -> None:
    _rewrite(change)
    capfd.readouterr()
    assert main(TRAIN) == 2
    told = capfd.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "what was kept of update 2 holds" in told[0]


def _rewrite(change: Callable[[dict[str, Any]], object], kind: str = "update") -> None:
    path = Path(f"run/buffer/{kind}-00000002.json")
    tree = json.loads(path.read_bytes().partition(b"\n")[2])
    change(tree)
    _write(path, json.dumps(tree).encode())


def _write(path: Path, body: bytes) -> None:
    """With a checksum that fits."""
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


@pytest.mark.parametrize("kind", ["update", "evaluation"])
@pytest.mark.parametrize(
    "values",
    [{"rollouts": None}, {"rollouts": [5]}, {"random": []}, {"random": [{}]}, {"scale": ["x"] * 8, "metrics": 5}],
)
@pytest.mark.usefixtures("killed")
def test_a_buffer_of_other_types_is_refused_in_one_line(
    kind: str, values: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    _rewrite(lambda tree: tree.update(values), kind)
    capfd.readouterr()
    assert main(TRAIN) == 2
    told = capfd.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "cannot be used (" in told[0] and "delete it to sample and judge again" in told[0]


@pytest.mark.parametrize("kind", ["update", "evaluation"])
@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"rollouts": null}', b"5", b"{", b"[" * 100_000])
@pytest.mark.usefixtures("killed")
def test_a_buffer_that_does_not_say_what_it_is_of_is_sampled_again(kind: str, body: bytes, trained: Path) -> None:
    _write(Path(f"run/buffer/{kind}-00000002.json"), body)
    assert main(TRAIN) == 0
    assert Path("run/rollouts.jsonl").read_bytes() == (trained / "run" / "rollouts.jsonl").read_bytes()


@pytest.mark.usefixtures("killed")
def test_a_buffer_of_another_update_is_sampled_again(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What was kept of update 2, its first score changed, under the name of update 1."""
    _rewrite(lambda tree: tree["rollouts"][0].update(score=0.123))
    shutil.rmtree(newest())
    Path("run/buffer/update-00000002.json").rename("run/buffer/update-00000001.json")
    words = [word for word in TRAIN if word != "--quiet"]
    assert main(words) == 0
    assert "was kept for something else" in "".join(capfd.readouterr())
    assert Path("run/rollouts.jsonl").read_bytes() == (trained / "run" / "rollouts.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["x-9z.json", "update-.json", "5.json", "x-\u0665z.json"])
@pytest.mark.usefixtures("killed")
def test_a_file_of_others_in_the_buffer_is_left_alone(name: str) -> None:
    (Path("run/buffer") / name).write_text("mine")
    assert main(TRAIN) == 0
    assert [path.name for path in Path("run/buffer").iterdir()] == [name]


@pytest.mark.parametrize("kind", ["update", "evaluation"])
@pytest.mark.usefixtures("killed")
def test_a_damaged_buffer_is_sampled_and_judged_again(kind: str, trained: Path) -> None:
    path = Path(f"run/buffer/{kind}-00000002.json")
    path.write_bytes(path.read_bytes()[:-40])
    assert main(TRAIN) == 0
    same = [Path("run/rollouts.jsonl").read_bytes(), (trained / "run" / "rollouts.jsonl").read_bytes()]
    assert same[0] == same[1]


@pytest.mark.usefixtures("killed")
def test_held_out_critiques_are_not_paid_twice_after_a_kill(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("the held-out examples were completed and judged again")

    monkeypatch.setattr("text2grad.evaluation.evaluator.Evaluator.greedy", asked)
    assert main(TRAIN) == 0
    rows = [json.loads((run / "metrics.jsonl").read_text().splitlines()[-1]) for run in (Path("run"), trained / "run")]
    held_out = [{key: value for key, value in row.items() if key.startswith("held_out/")} for row in rows]
    assert held_out[0] == held_out[1] and held_out[0]


@pytest.mark.usefixtures("killed")
def test_a_kill_while_something_is_kept_leaves_nothing_behind() -> None:
    """After the file has its name, and before its scratch folder is gone."""
    with subprocess.Popen(["true"]) as dead:
        pass
    scratch = Path(f"run/buffer/.aside-evaluation-00000002.json-{MACHINE}-{dead.pid}-x")
    scratch.mkdir()
    assert main(TRAIN) == 0
    assert not Path("run/buffer").exists()
