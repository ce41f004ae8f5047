"""A tiny model in a folder, and examples, for commands that are attacked."""

import json
import shutil
from pathlib import Path

import pytest

from text2grad.models.tiny import tiny_model, tiny_tokenizer

SMALL = ["device=cpu", "updates=2", "prompts=2", "completions=2", "sampling.max_new_tokens=6", "policy.lora.rank=2"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [{"prompt": f"Which river {n}?", "reference": f"The Drava {n}."} for n in range(4)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of one's own with `model/` and `data.jsonl`."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"
