"""The supervised start: what is trained, what is refused, and that a kill changes nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from text2grad.cli import main
from text2grad.errors import InvalidData, RunError
from text2grad.models.chat import end_ids, prompt_ids, turn_end
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import encode_row, read_jsonl
from text2grad.training.settings import SFTSettings, SupervisedSettings
from text2grad.training.sft import SFTTrainer
from text2grad.types import Example, Message

FULL = PolicySettings(lora=LoraSettings(rank=0))
EXAMPLES = [Example(f"e{i}", f"Say {i} {'please ' * (i % 3)}", reference=f"It is {i}." * (1 + i % 2)) for i in range(8)]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(**changed: Any) -> SFTSettings:
    update = SupervisedSettings(batch=4, micro_batch=3, learning_rate=5e-3)
    chosen: dict[str, Any] = {"updates": 6, "checkpoint_every": 2, "device": "cpu", "policy": FULL, "update": update}
    return SFTSettings(**chosen | changed)


def start(folder: Path, options: SFTSettings | None = None, **given: Any) -> SFTTrainer:
    tokenizer = tiny_tokenizer()
    given = {"examples": EXAMPLES} | given
    return SFTTrainer(options or settings(), folder / "run", model=tiny_model(tokenizer), tokenizer=tokenizer, **given)


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Without what a clock says."""
    rows = read_jsonl(folder / "run" / "metrics.jsonl")
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


def weights_of(folder: Path) -> bytes:
    return (folder / "run" / "model" / "model.safetensors").read_bytes()


# ---------------------------------------------------------------------------------------------- what is trained


def test_loss_and_gradient_are_those_of_the_completion_alone(tmp_path: Path) -> None:
    """Against transformers' own loss, with and without the prompt among its labels."""
    tokenizer = tiny_tokenizer()
    plain = tiny_model(tokenizer)
    with start(tmp_path / "rows", examples=EXAMPLES[:1]) as loop:
        row_of = loop.rows[0]
    ids = torch.tensor([row_of.prompt + row_of.completion])
    labels = ids.clone()
    labels[:, : len(row_of.prompt)] = -100
    wanted = plain(input_ids=ids, labels=labels).loss
    wanted.backward()
    norm = torch.stack([weight.grad.norm() for weight in plain.parameters()]).norm()
    unmasked = plain(input_ids=ids, labels=ids).loss

    options = settings(updates=1, update=SupervisedSettings(batch=1))
    start(tmp_path, options, examples=EXAMPLES[:1]).train()
    row = metrics_of(tmp_path)[1]
    assert row["loss/mean"] == pytest.approx(wanted.item(), abs=1e-5)
    assert row["update/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert row["update/tokens"] == len(row_of.completion)
    assert abs(unmasked.item() - wanted.item()) > 1e-3, "the prompt would have shown"


def test_a_batch_is_one_mean_over_its_tokens_however_it_is_cut(tmp_path: Path) -> None:
    found = {}
    for size in (1, 8):
        options = settings(updates=2, update=SupervisedSettings(batch=8, micro_batch=size, learning_rate=1e-3))
        loop = start(tmp_path / str(size), options)
        loop.train()
        found[size] = {name: weight.detach().clone() for name, weight in loop.policy.named_parameters()}
    for name, weight in found[1].items():
        torch.testing.assert_close(weight, found[8][name], atol=1e-5, rtol=1e-5)


def test_of_a_conversation_only_the_last_turn_is_trained(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    turns = [("user", "Hello"), ("assistant", "Good day."), ("user", "Which river?"), ("assistant", "The Mura.")]
    data.write_bytes(encode_row({"messages": [{"role": role, "content": said} for role, said in turns]}))
    with start(tmp_path, settings(data=str(data)), examples=None) as loop:
        (row,) = loop.rows
    decode = loop.tokenizer.decode
    assert decode(row.completion) == "The Mura.<|im_end|>"
    assert decode(row.prompt).endswith(
        "assistant\nGood day.<|im_end|>\n<|im_start|>user\nWhich river?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_completion_goes_before_reference_and_plain_is_plain(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(encode_row({"prompt": "Q:", "completion": " A", "reference": " B"}))
    with start(tmp_path, settings(data=str(data), format="plain"), examples=None) as loop:
        assert loop.tokenizer.decode(loop.rows[0].prompt) == "Q:"
        assert loop.tokenizer.decode(loop.rows[0].completion) == " A<|im_end|>"


def test_the_end_token_is_the_one_that_the_template_writes() -> None:
    """As in Gemma: turns end with a token of their own, texts with another."""
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    turn, text = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert turn_end(tokenizer, "Hello", (text, turn)) == turn
    assert turn_end(tokenizer, (Message("user", "Hello"),), (text, turn), "plain") == turn
    assert turn_end(tokenizer, "Hello", (text, turn), "plain") == text
    assert turn_end(tokenizer, "Hello", (text,)) == text, "not one that sampling would stop at"


@pytest.mark.parametrize("rank", [0, 4])
def test_the_loss_falls_and_the_model_loads_in_plain_transformers(tmp_path: Path, rank: int) -> None:
    policy = PolicySettings(lora=LoraSettings(rank=rank, alpha=16))
    options = settings(updates=25, policy=policy, update=SupervisedSettings(batch=8, learning_rate=1e-2))
    outcome = start(tmp_path, options, held_out=EXAMPLES[:3]).train()
    assert (outcome.updates, outcome.status, outcome.model) == (25, 0, tmp_path / "run" / "model")
    rows = metrics_of(tmp_path)
    assert rows[-1]["loss/mean"] < rows[1]["loss/mean"] - 0.4
    assert rows[-1]["held_out/loss"] < rows[0]["held_out/loss"] - 0.4

    tokenizer = tiny_tokenizer()
    loaded = AutoModelForCausalLM.from_pretrained(outcome.model)
    losses, tokens = 0.0, 0
    for example in EXAMPLES[:3]:
        prompt = prompt_ids(tokenizer, example.prompt)
        target = [*tokenizer(example.reference).input_ids, tokenizer.eos_token_id]
        logits = loaded(input_ids=torch.tensor([prompt + target])).logits[0, len(prompt) - 1 : -1]
        losses += torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="sum").item()
        tokens += len(target)
    assert losses / tokens == pytest.approx(rows[-1]["held_out/loss"], abs=1e-4)
    assert set(end_ids(tokenizer, loaded)) == {tokenizer.eos_token_id}


# ---------------------------------------------------------------------------------------------- when it ends


def test_it_stops_when_the_held_out_loss_rises_and_stays_stopped(tmp_path: Path) -> None:
    contrary = [Example("h", EXAMPLES[0].prompt, reference="Никогда! 漢字")]
    options = settings(updates=40, evaluate_every=2, patience=2, update=SupervisedSettings(batch=8, learning_rate=3e-2))
    outcome = start(tmp_path, options, held_out=contrary).train()
    assert outcome.status == 0 and outcome.updates < 40
    rows = metrics_of(tmp_path)
    looks = [row["held_out/loss"] for row in rows if "held_out/loss" in row]
    assert min(looks[-2:]) > min(looks[:-2]) and looks[:-2] == sorted(looks[:-2], reverse=True)
    assert start(tmp_path, options, held_out=contrary).train() == outcome
    assert metrics_of(tmp_path) == rows


def test_the_best_of_a_supervised_run_has_a_card_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = start(tmp_path, settings(updates=2, evaluate_every=1), held_out=EXAMPLES[:1])
    losses = iter((3.0, 1.0, 2.0))
    monkeypatch.setattr(made, "evaluate", lambda _: ({"held_out/loss": next(losses)}, []))
    made.train()
    card = (tmp_path / "run" / "best" / "README.md").read_text()
    assert "weights after update 1. Of all updates they have the lowest held-out loss; `model/` holds" in card


def test_weights_that_run_away_end_the_run(tmp_path: Path) -> None:
    def breaks(loop: Any, metrics: Any) -> None:
        if metrics["update"] == 1:
            with torch.no_grad():
                next(loop.policy.parameters()).fill_(float("nan"))

    with pytest.raises(RunError, match=r"update 2: the loss is not a number; .*Lower update\.learning_rate=0\.005"):
        start(tmp_path, settings(evaluate_every=1), held_out=EXAMPLES[:2], callbacks=[breaks]).train()


def test_epochs_become_updates(tmp_path: Path) -> None:
    with start(tmp_path, settings(updates=None, epochs=1.5)) as loop:
        assert loop.updates == 3


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path / "whole").train()

    def press(_: object, metrics: Any) -> None:
        if metrics["update"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = start(tmp_path, callbacks=[press], show=True).train()
    assert (outcome.updates, outcome.status, outcome.model) == (3, 130, None)
    assert "saved at update 3 of 6; resume with: the same script\n" in capsys.readouterr().err
    assert start(tmp_path).train().status == 0
    assert weights_of(tmp_path) == weights_of(tmp_path / "whole")


def doomed(folder: str, point: str) -> None:
    """A run that ends itself as `kill -9` would; in a process of its own."""
    torch.set_num_threads(1)

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    loop = start(Path(folder), callbacks=[lambda _, m: die() if point == "logged" and m["update"] == 3 else None])
    if point == "mid-update":
        calls = iter(range(100))
        step = loop.optimizer.step
        setattr(loop.optimizer, "step", lambda *words: die() if next(calls) == 4 else step(*words))  # noqa: B010
    if point == "mid-checkpoint":
        save = loop.run._save
        setattr(loop.run, "_save", lambda: die() if loop.run.done == 4 else save())  # noqa: B010
    loop.train()


@pytest.mark.parametrize("point", ["logged", "mid-update", "mid-checkpoint"])
def test_a_kill_changes_nothing(tmp_path: Path, point: str) -> None:
    start(tmp_path / "whole").train()
    code = f"from tests.training.test_sft import doomed; doomed({str(tmp_path)!r}, {point!r})"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "run" / "model").exists()
    assert start(tmp_path).train().status == 0
    assert weights_of(tmp_path) == weights_of(tmp_path / "whole")
    assert metrics_of(tmp_path) == metrics_of(tmp_path / "whole")


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt": "Q"}, r"example 'line-1' should say what the model is to write: .*; got None"),
        ({"prompt": "Q", "completion": "  "}, "got '  '"),
        ({"prompt": "Q", "reference": ["a", "b"]}, "'line-1' should say"),
        ({"messages": [{"role": "user", "content": "Q"}]}, "messages that end with an assistant turn"),
        ({"completion": "A"}, "line 1: .*prompt"),
        ({"prompt": "Q", "completion": "A" * 999}, r"'line-1' has \d+ tokens and the limit is 512: raise max_tokens"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, row: dict[str, Any], complaint: str) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(encode_row(row))
    with pytest.raises(InvalidData, match=complaint):
        start(tmp_path, settings(data=str(data)), examples=None)


def test_long_examples_are_counted_and_never_cut(tmp_path: Path) -> None:
    long = Example("long", "Q", reference="word " * 60)
    options = settings(updates=1, max_tokens=60, too_long="skip")
    loop = start(tmp_path, options, examples=[*EXAMPLES, long], held_out=[long, EXAMPLES[0]])
    loop.train()
    first = metrics_of(tmp_path)[0]
    assert (first["data/examples"], first["data/held_out"], first["data/skipped"]) == (8, 1, 2)
    with pytest.raises(InvalidData, match="all 1 examples are over the limit of 60 tokens"):
        start(tmp_path / "none", options, examples=[long])


def test_a_run_that_could_not_begin_does_not_hold_its_folder(tmp_path: Path) -> None:
    """The command as the message mends it works in the same folder."""
    examples = [*EXAMPLES, Example("long", "Q", reference="word " * 60)]
    with pytest.raises(InvalidData, match="set too_long=skip"):
        start(tmp_path, settings(max_tokens=60, updates=1), examples=examples)
    mended = settings(max_tokens=60, updates=1, too_long="skip")
    assert start(tmp_path, mended, examples=examples).train().status == 0
    with pytest.raises(RunError, match="too_long: 'skip' there, 'error' now"):
        start(tmp_path, settings(max_tokens=60, updates=1), examples=EXAMPLES)


def test_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    data = tmp_path / "data.jsonl"
    data.write_bytes(b"".join(encode_row({"prompt": e.prompt, "completion": e.reference}) for e in EXAMPLES))
    run = tmp_path / "run"
    words = ["sft", str(run), f"data={data}", f"model={tmp_path / 'tiny'}", "update.batch=4", "device=cpu"]
    assert main(words) == 0
    assert [row["update"] for row in metrics_of(tmp_path)] == [0, 1, 2]
    facts = json.loads((run / "run.json").read_text())
    assert list(facts["data"]) == [str(data)]
    assert "sft 2/2  loss" in capsys.readouterr().err
    assert main([*words, "seed=1"]) == 2
    assert "seed: 0 there, 1 now" in capsys.readouterr().err
    assert main(["sft", str(run)]) == 2
    assert "data=FILE.jsonl" in capsys.readouterr().err


def test_held_out_examples_are_completed_and_judged_where_that_is_asked(tmp_path: Path) -> None:
    options = settings(updates=4, evaluate_every=2, evaluate_examples=2, evaluate_each=True, metrics=("support",))
    start(tmp_path, options, held_out=EXAMPLES[:3]).train()
    plain = start(tmp_path / "plain", settings(updates=4, evaluate_every=2), held_out=EXAMPLES[:3])
    plain.train()
    rows = [row for row in metrics_of(tmp_path) if "held_out/score" in row]
    assert [row["update"] for row in rows] == [0, 2, 4]
    each = rows[-1]["held_out/each"]
    assert each["id"] == ["e0", "e1"] and len(each["text"]) == len(each["unsupported"]) == 2
    assert rows[-1]["held_out/score"] == pytest.approx(sum(each["score"]) / 2)
    assert weights_of(tmp_path) == weights_of(tmp_path / "plain"), "looking changes nothing"
    assert not any("held_out/score" in row for row in metrics_of(tmp_path / "plain"))
