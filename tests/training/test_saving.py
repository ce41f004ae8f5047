"""What comes out: the base's dtype, adapters, the best weights beside the last, cards, checkpoints as models."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.trainings import HELD_OUT, SMALL, trainer
from text2grad.cli import main
from text2grad.commands.launching import free_cores, free_threads, set_threads, usable_cores
from text2grad.models.load import load_model
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.training.saving import BestWeights, card_of
from text2grad.training.settings import TrainSettings

WORDS = [*SMALL, "task=jsonl", "critic=reference", "updates=2", "evaluation.every=1", "sampling.temperature=2"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was published in bf16, and data."""
    folder = tmp_path_factory.mktemp("given")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).to(torch.bfloat16).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    rows = [{"id": n, "prompt": f"Name ship {n}.", "reference": "The crane, the boat and the quay."} for n in range(4)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def trained(given: Path, run: Path, *words: str) -> Path:
    data = given / "data.jsonl"
    named = [f"data={data}", f"held_out={data}", f"model={given / 'base'}", "guard.nothing_learned=warn"]
    assert main(["train", str(run), *WORDS, *named, *words]) == 0
    return run


def test_a_model_comes_back_in_the_dtype_of_its_base(given: Path, tmp_path: Path) -> None:
    for name, words in (("lora", ()), ("full", ("policy.lora.rank=0",))):
        run = trained(given, tmp_path / name, *words)
        weights = load_file(run / "model" / "model.safetensors")
        assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
        assert json.loads((run / "model" / "config.json").read_text())["dtype"] == "bfloat16"


def test_an_adapter_is_loaded_as_the_merged_model_is(given: Path, tmp_path: Path) -> None:
    run = trained(given, tmp_path / "run", "save=both")
    assert (run / "adapter" / "adapter_model.safetensors").is_file()
    merged, _ = load_model(str(run / "model"))
    adapted, tokenizer = load_model(str(run / "adapter"))
    base, _ = load_model(str(given / "base"))
    ids = torch.tensor([tokenizer("Name ship 1.").input_ids])
    with torch.no_grad():
        logits = [model(ids).logits for model in (merged, adapted, base)]
    # The merged weights were rounded to bf16, as those of the base are.
    assert torch.allclose(logits[0], logits[1], atol=0.05)
    assert not torch.allclose(logits[1], logits[2], atol=1e-4)
    alone = trained(given, tmp_path / "alone", "save=adapter")
    assert not (alone / "model" / "model.safetensors").exists()
    assert (alone / "model" / "adapter_config.json").is_file()
    assert "library_name: peft" in (alone / "model" / "README.md").read_text()
    assert (
        main(["train", str(tmp_path / "no"), *WORDS, f"data={given}/data.jsonl", "policy.lora.rank=0", "save=adapter"])
        == 2
    )


def test_an_adapter_of_an_alias_names_the_alias(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine the cache lies elsewhere."""
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path / "cache"))
    entry = tmp_path / "cache" / "models" / "smollm2-135m-b179c9523d0e"
    shutil.copytree(given / "base", entry)
    (entry / "text2grad.json").write_text("{}")
    run = trained(given, tmp_path / "run", "model=smollm2-135m", "save=adapter")
    assert json.loads((run / "model" / "adapter_config.json").read_text())["base_model_name_or_path"] == "smollm2-135m"
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path / "other"))
    shutil.move(tmp_path / "cache", tmp_path / "other")
    load_model(str(run / "model"))


def test_the_best_weights_are_those_of_the_highest_score(tmp_path: Path) -> None:
    made = trainer(tmp_path / "run", "updates=3", held_out=HELD_OUT)
    best = BestWeights(made.policy)
    name, weight = next(iter(made.policy.trainable().items()))
    for update, score in ((0, 0.1), (1, 0.3), (2, 0.2), (3, 0.25)):
        with torch.no_grad():
            weight.fill_(float(update))
        best.see({"update": update, "held_out/score": score})
    assert (best.update, best.score) == (1, 0.3)
    again = BestWeights(made.policy)
    again.restore(best.state())
    with again.in_place():
        assert weight.flatten()[0] == 1.0
    assert weight.flatten()[0] == 3.0 and again.weights is not None and name in again.weights
    worse = BestWeights(made.policy)
    for update, score in ((0, 0.5), (1, 0.3)):
        worse.see({"update": update, "held_out/score": score})
    assert (worse.update, worse.score) == (1, 0.3)  # the start was better; of the updates, this one is the best
    equal = BestWeights(made.policy)
    for update in (1, 2):
        equal.see({"update": update, "held_out/score": 0.3})
    assert equal.update == 2  # so no earlier one is called better than the last
    made.close()


def test_the_best_model_is_written_where_the_last_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, Any] = {}

    def look(it: Any, metrics: Any) -> None:
        seen[metrics["update"]] = {name: weight.detach().clone() for name, weight in it.policy.trainable().items()}

    scores = iter((0.1, 0.9, 0.2, 0.3))
    plain = trainer(tmp_path / "run", "updates=3", "evaluation.every=1", held_out=HELD_OUT, callbacks=[look])
    measure = plain.evaluate
    monkeypatch.setattr(plain, "evaluate", lambda step: (measure(step)[0] | {"held_out/score": next(scores)}, []))
    plain.train()
    assert plain.best.update == 1 and plain.best.weights is not None
    assert all(torch.equal(weight, seen[1][name]) for name, weight in plain.best.weights.items())
    best, last = (load_file(tmp_path / "run" / name / "model.safetensors") for name in ("best", "model"))
    assert any(not torch.equal(best[name], last[name]) for name in best)
    cards = {name: (tmp_path / "run" / name / "README.md").read_text() for name in ("best", "model")}
    assert "weights after update 3. `best/` holds the weights of update 1" in cards["model"]
    assert "weights after update 1. Of all updates they have the best held-out score, 0.900" in cards["best"]
    assert "`model/` holds the weights of update 3" in cards["best"] and "`best/` holds" not in cards["best"]
    without = trainer(tmp_path / "without", "updates=2", "save_best=false", held_out=HELD_OUT)
    without.train()
    assert not (tmp_path / "without" / "best").exists() and without.best.weights is None


def test_a_card_says_what_was_changed_and_what_came_of_it(given: Path, tmp_path: Path) -> None:
    card = (trained(given, tmp_path / "run", "critics.openai.api_key=secret") / "model" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers"), (
        "the base is a folder, which a hub would refuse as a name"
    )
    assert str(given) not in card and "| data | `data.jsonl` |" in card and "| critic | `reference` |" in card
    digest = json.loads((tmp_path / "run" / "run.json").read_text())["data"][str(given / "data.jsonl")]
    assert f"| sha256 of `data.jsonl` | `{digest}` |" in card
    assert "| held out | update 0 | update 2 |" in card and "| Held-out score |" in card
    assert "| `critic` | `reference` |" in card and "held-out score" in card and "n = 4, critic reference" in card
    assert "secret" not in card and "api_key" not in card


def test_a_card_holds_no_folder_no_key_and_no_base_that_the_hub_does_not_have(tmp_path: Path) -> None:
    def card(model: str, critic: str = "reference", **others: Any) -> str:
        return card_of(tmp_path, TrainSettings(model=model, critic=critic, **others), "train", 1)

    for critic, shown in (
        ("weighted(0.7*/home/ada/secret/judge, 0.3*reference)", "weighted(0.7*judge, 0.3*reference)"),
        ("first(~/secret/judge,../secret/other)", "first(judge,other)"),
        ("merge(/home/ada/my secret/judge, ada/judge)", "merge(judge, ada/judge)"),
        ("first(code, openai:ada/judge)", "first(code, openai:ada/judge)"),
    ):
        said = card("ada/base", critic)
        assert said.count(shown) == 2 and "secret" not in said and "/home" not in said
    assert "base_model: ada/base\n" in card("ada/base")
    for model in ("smollm2-135m", "/home/ada/gone/model", "./gone/model", "~/gone/model", "../model", "a/gone/model"):
        assert "base_model" not in card(model) and "/home" not in card(model)
    key, word = "hf_" + "a1b2" * 8, "plainword-of-ada"
    said = card("ada/base", columns={"token": key, "prompt": "question"}, task_options={"token": word, "note": key})
    assert key not in said and word not in said and "`columns.prompt` | `question`" in said


def test_a_checkpoint_becomes_the_model_of_its_update(given: Path, tmp_path: Path) -> None:
    run = trained(given, tmp_path / "run")
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()
    assert "weights after update 2" in (tmp_path / "out" / "README.md").read_text()
    step = next((run / "checkpoints").glob("step-*"))
    assert main(["export", str(step), str(tmp_path / "adapter"), "--adapter"]) == 0
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_what_cannot_be_exported_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for words, said in (
        ([tmp_path / "empty", tmp_path / "out"], "has no checkpoint"),
        ([tmp_path / "empty", tmp_path], "exists already"),
        ([tmp_path], "wants a checkpoint and a folder"),
    ):
        assert main(["export", *map(str, words)]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "judge" / "checkpoints" / "step-00000001").mkdir(parents=True)
    (tmp_path / "judge" / "run.json").write_text('{"stage": "reward-model"}')
    assert main(["export", str(tmp_path / "judge"), str(tmp_path / "out")]) == 2
    assert "holds a run of `reward-model`" in capsys.readouterr().err


def test_threads_leave_room_for_others_and_stay_as_they_were_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    for quota, cores in (("400000 100000", 4), ("max 100000", 8)):
        (tmp_path / "cpu.max").write_text(quota + "\n")
        assert usable_cores(tmp_path / "cpu.max") == cores
    # A machine of 16 cores, of which this process has 4: only what is more than 16 cores can do takes some of them.
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    for load, free in ((0.0, 4), (12.0, 4), (16.0, 4), (32.0, 2), (500.0, 1)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert free_cores(4.0) == free
    monkeypatch.setattr("text2grad.commands.launching.usable_cores", lambda: 4.0)
    for load, said in ((32.0, "2 threads on 4 cores: the machine is busy"), (12.0, "")):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert free_threads() == (2 if said else 4)
        told = capsys.readouterr().err
        assert told.startswith(said) and bool(told) == bool(said)
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        set_threads()
        assert torch.get_num_threads() == before
        monkeypatch.delenv("OMP_NUM_THREADS")
        (tmp_path / "run.json").write_text('{"threads": 3}')
        set_threads(tmp_path)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
