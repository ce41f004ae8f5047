"""Every kind of name that a model can have, and every way in which it can be wrong."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.gguf_files import tiny_gguf
from tests.models.servers import hub, serving
from text2grad.errors import ConfigError, CorruptModel, ModelError, ModelNotFound
from text2grad.models.load import load_model, load_tokenizer, locate
from text2grad.models.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="session")
def saved(model: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def logits_of(model: Any, tokenizer: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**tokenizer("The crane fell.", return_tensors="pt")).logits
    return found


def test_a_folder_loads_as_it_was_saved(saved: Path, model: Any, tokenizer: Any) -> None:
    loaded, its_tokenizer = load_model(str(saved))
    assert torch.equal(logits_of(loaded, its_tokenizer), logits_of(model, tokenizer))
    assert not loaded.training
    assert load_tokenizer(str(saved)).pad_token == its_tokenizer.pad_token == "<|endoftext|>"


def test_the_embedded_model_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded, words = load_model("embedded")
    assert loaded.num_parameters() == 1_180_800 and len(words) == loaded.config.vocab_size


def test_dtype_and_device_are_as_asked(saved: Path) -> None:
    assert load_model(str(saved), dtype="bfloat16")[0].dtype == torch.bfloat16
    with pytest.raises(ModelError, match=r"dtype should be one of float32, .* got 'int8'"):
        load_model(str(saved), dtype="int8")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"device=cuda: cannot be used here"):
            load_model(str(saved), device="cuda")
    for device in ("gpu", "", "xpu:77"):
        with pytest.raises(ConfigError, match=rf"device={device}: cannot be used here .*; `text2grad env` lists"):
            load_model(str(saved), device=device)


def test_a_missing_pad_token_becomes_the_end_token(copied: Path) -> None:
    path = copied / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"]
    path.write_text(json.dumps(settings))
    model, tokenizer = load_model(str(copied))
    assert tokenizer.pad_token == tokenizer.eos_token == "<|im_end|>"
    assert model.config.pad_token_id == model.generation_config.pad_token_id == tokenizer.eos_token_id


def test_a_gguf_file_loads(fresh_cache: Path, tokenizer: Any, tmp_path: Path) -> None:
    model, its_tokenizer = load_model(str(tiny_gguf(tmp_path / "tiny.gguf", tokenizer)))
    assert logits_of(model, its_tokenizer).isfinite().all()
    assert its_tokenizer.eos_token == "<|im_end|>"
    assert len(list(fresh_cache.glob("gguf-*"))) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", r"\./nowhere: there is no such folder or file"),
        ("/nowhere/model", "there is no such folder or file"),
        ("model.gguf", "there is no such folder or file"),
        ("three/part/name", "there is no such folder or file"),
        ("~nobody-of-that-name/x", "cannot be the name of a model"),
        ("a" * 5000, "cannot be the name of a model"),
        ("nul\0", "no such folder or file|cannot be the name"),
        ("bad name", "there is no such folder or file"),
        ("", "there is no such folder or file"),
    ],
)
def test_a_name_that_cannot_be_is_refused_without_asking_anybody(name: str, message: str) -> None:
    with pytest.raises(ModelNotFound, match=message):
        locate(name)


def test_a_folder_or_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"has no config\.json"):
        load_model(str(tmp_path))
    path = tmp_path / "weights.bin"
    path.write_bytes(b"x")
    with pytest.raises(ModelNotFound, match=r"should be a model folder or a \.gguf file"):
        load_model(str(path))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["cut", "scrambled", "empty"])
def test_a_damaged_folder_is_called_damaged(copied: Path, file: str, damage: str) -> None:
    path = copied / file
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "scrambled": b"\xff" * 64, "empty": b""}[damage])
    with pytest.raises(CorruptModel, match="its files could not be read"):
        load_model(str(copied))


def test_weights_that_are_not_there_are_not_made_up(copied: Path, model: Any) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CorruptModel, match=r"lacks the weights of model\.norm\.weight, which\s+would be random"):
        load_model(str(copied))
    assert "model.norm.weight" in model.state_dict()


LOAD = """
    import sys
    from text2grad.errors import Text2GradError
    from text2grad.models.load import load_model
    try:
        model, tokenizer = load_model(sys.argv[1])
        print("loaded", model.num_parameters(), tokenizer.eos_token)
    except Text2GradError as problem:
        print(type(problem).__name__, problem)
"""


def load_from_hub(name: str, address: str, home: Path, prefix: Sequence[str] = (), **more: str) -> str:
    """In a process of its own: the hub's address is read when its library is imported."""
    environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"} | more
    done = subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(LOAD), name], capture_output=True, text=True, env=environment
    )
    return done.stdout.strip() or done.stderr


def test_a_hub_id_loads_and_stays_loaded_without_the_hub(saved: Path, model: Any, tmp_path: Path) -> None:
    with serving(hub("someone/tiny", saved)) as address:
        assert load_from_hub("someone/tiny", address, tmp_path) == f"loaded {model.num_parameters()} <|im_end|>"
    assert load_from_hub("someone/tiny", address, tmp_path, HF_HUB_OFFLINE="1").startswith("loaded ")


def test_a_hub_id_that_nobody_has_is_not_found_and_an_alias_is_suggested(saved: Path, tmp_path: Path) -> None:
    with serving(hub("someone/tiny", saved)) as address:
        said = load_from_hub("smollm-135m", address, tmp_path)
        assert said.startswith(
            "ModelNotFound smollm-135m: is no folder or file here, and no model that the hub shows you"
        )
        assert "did you mean the alias smollm2-135m?" in said
        assert load_from_hub("someone/else", address, tmp_path).startswith("ModelNotFound someone/else")


@pytest.mark.system("bwrap")
def test_a_disk_that_is_full_while_the_hub_sends_is_said_so(saved: Path, tmp_path: Path) -> None:
    with serving(hub("someone/tiny", saved)) as address:
        small = ("bwrap", "--dev-bind", "/", "/", "--size", str(64 << 10), "--tmpfs", str(tmp_path))
        assert "the disk is full" in load_from_hub("someone/tiny", address, tmp_path, prefix=small)


def test_a_hub_out_of_reach_is_said_so(saved: Path, tmp_path: Path) -> None:
    with serving(hub("someone/tiny", saved)) as address:
        pass
    said = load_from_hub("someone/tiny", address, tmp_path)
    assert said.startswith("DownloadFailed someone/tiny: is no folder or file here, and the hub could not be reached")
    assert load_from_hub("someone/tiny", address, tmp_path, HF_HUB_OFFLINE="1").startswith("DownloadFailed")


def test_the_tiny_model_is_the_same_for_the_same_seed_and_leaves_the_global_seed_alone() -> None:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, again, other = tiny_model(tokenizer), tiny_model(tokenizer), tiny_model(tokenizer, seed=1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(logits_of(first, tokenizer), logits_of(again, tokenizer))
    assert not torch.equal(logits_of(first, tokenizer), logits_of(other, tokenizer))
    assert tokenizer.get_vocab() == tiny_tokenizer().get_vocab()


def test_the_tiny_tokenizer_has_a_chat_template(tokenizer: Any) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.gpu
def test_a_model_on_the_gpu_computes_what_it_does_on_the_cpu(saved: Path) -> None:
    on_cpu, tokenizer = load_model(str(saved))
    on_gpu, _ = load_model(str(saved), device="cuda")
    ids = torch.tensor([tokenizer("The crane fell.")["input_ids"]])
    with torch.no_grad():
        torch.testing.assert_close(on_gpu(ids.cuda()).logits.cpu(), on_cpu(ids).logits, atol=1e-4, rtol=1e-4)
