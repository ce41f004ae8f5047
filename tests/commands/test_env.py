"""`text2grad env` names what a bug report needs."""

from importlib import metadata

import pytest

from text2grad.cli import main


def test_env_names_versions_devices_and_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert main(["env"]) == 0
    said = capsys.readouterr().out
    rows = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert rows["torch"] == metadata.version("torch")
    assert "cpu" in rows
    assert {"python", "platform", "transformers", "bubblewrap", "Chromium", "cache"} <= set(rows)
    assert "devices" in rows or "cuda:0" in rows
    assert "sk-secret" not in said
