"""A tiny model, in memory and as a folder."""

from pathlib import Path
from typing import Any

import pytest

from text2grad.models.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="session")
def tiny() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer()
    return tiny_model(tokenizer), tokenizer


@pytest.fixture(scope="session")
def folder(tiny: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    for part in tiny:
        part.save_pretrained(path)
    return path
