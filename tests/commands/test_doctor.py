"""`text2grad doctor` says what is there, what is missing and how to get it; keys stay unsaid."""

import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from text2grad.cli import main
from text2grad.commands import doctor
from text2grad.errors import EXTRAS, NEEDS
from text2grad.sandbox import Sandbox


def test_everything_is_named_and_no_secret_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:password@127.0.0.1/v1")
    assert main(["doctor"]) in (0, 1)
    said = capsys.readouterr().out
    for what in ("Python", "[train]", "[api]", "[parquet]", "GPU", "bubblewrap", "Chromium", "API key"):
        assert what in said
    assert "sk-secret" not in said and "password" not in said
    assert set(doctor.FOR) == set(NEEDS) - {"trl", "prime-rl"} and "export" in doctor.FOR["train"]


def test_what_is_missing_comes_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/dnf" if name == "dnf" else None)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in EXTRAS else SimpleNamespace())
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for command in (
        "pip install 'text2grad[train]'",
        "pip install 'text2grad[api]'",
        "sudo dnf install bubblewrap",
        "sudo dnf install chromium",
        "export OPENAI_API_KEY=",
    ):
        assert f"→ {command}" in said
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert doctor.install("bubblewrap") == "install bubblewrap with your system's packages"


def test_a_gpu_that_pytorch_does_not_see_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda: Any = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=None)))
    monkeypatch.setattr(doctor, "find_spec", lambda _: SimpleNamespace())
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    found = doctor.gpu()
    assert found.state == "broken" and "built for CPUs" in found.says and "pytorch.org" in found.get
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert doctor.gpu().state == "missing"
    cuda.is_available, cuda.device_count = (lambda: True), (lambda: 1)
    cuda.get_device_name = lambda _: "H200"
    assert doctor.gpu() == doctor.Finding("GPU", "ok", "H200")


@pytest.mark.system("bwrap")
def test_the_sandbox_is_tried_and_not_only_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.sandbox().state == "ok"

    def fails(*_: Any) -> Any:
        raise OSError("no user namespaces")

    monkeypatch.setattr(Sandbox, "run_many", fails)
    found = doctor.sandbox()
    assert found.state == "broken" and "no user namespaces" in found.says
