"""`text2grad annotate` with odd inputs, critics and outputs: one row is rejected, or the run says what to do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from text2grad.cli import main
from text2grad.errors import CriticError
from text2grad.feedback.critics.openai import OpenAICritic, server_of
from text2grad.feedback.settings import OpenAISettings
from text2grad.runs import encode_row, read_jsonl


def row(identity: Any, **columns: Any) -> dict[str, Any]:
    return {"id": identity, "completion": "Nine ships left.", "critique": '"Nine" is wrong.', **columns}


def run(folder: Path, *words: str, **more: Any) -> Any:
    command = [sys.executable, "-m", "text2grad", "annotate", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, **more)


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_rejects_its_line_only(tmp_path: Path, number: str, suffix: str) -> None:
    lines = [encode_row(row(identity, weight=[{"x": 5}])).decode().strip() for identity in "abc"]
    lines[1] = lines[1].replace("5", number)
    source, target = tmp_path / f"in{suffix}", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) if suffix == ".jsonl" else f"[{','.join(lines)}]")
    assert main(["annotate", str(source), str(target)]) == 1
    assert [found["id"] for found in read_jsonl(target)] == ["a", "c"]
    (rejected,) = read_jsonl(tmp_path / "out.rejected.jsonl")
    assert (rejected["line"], rejected["id"]) == (2, "b") and "should hold finite numbers" in rejected["reason"]


def test_a_number_that_json_does_not_have_makes_no_task_for_people(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")) + encode_row(row("b", x=5)).replace(b"5", b"NaN"))
    assert main(["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "t.json"), "--tasks", "label_studio"]) == 1
    assert "NaN" not in (tmp_path / "t.json").read_text()


def test_a_second_critique_of_an_id_with_such_a_number_is_rejected_too(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(
        encode_row(row("a")) + encode_row(row("a", annotator="ada", x=5)).replace(b"5", b"NaN")
    )
    assert main(["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]) == 1
    (rejected,) = read_jsonl(tmp_path / "out.rejected.jsonl")
    assert (rejected["line"], rejected["id"]) == (2, "a")


def test_a_rejected_line_keeps_its_id(tmp_path: Path) -> None:
    lines = [r'{"id": "a", "completion": "x \ud800"}', r'{"id": "b\udc00", "completion": "x"}', '{"id": 7, "x": NaN}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    assert main(["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]) == 2
    assert [found["id"] for found in read_jsonl(tmp_path / "out.rejected.jsonl")] == ["a", "b\\udc00", 7]


@pytest.mark.parametrize("name", ["/dev/stdin", "in.fifo"])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, name: str) -> None:
    data = encode_row(row("a")) + encode_row(row("b"))
    (tmp_path / "in.jsonl").write_bytes(data)
    assert run(tmp_path, "in.jsonl", "file.jsonl").returncode == 0
    if name == "in.fifo":
        os.mkfifo(tmp_path / name)
    writer = subprocess.Popen(
        ["cat", "in.jsonl"] if name == "/dev/stdin" else ["cp", "in.jsonl", name], cwd=tmp_path, stdout=subprocess.PIPE
    )
    try:
        done = run(tmp_path, name, "out.jsonl", stdin=writer.stdout)
    finally:
        writer.kill()
        writer.communicate()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "file.jsonl").read_bytes()


def test_a_device_that_never_ends_is_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", "/dev/zero", str(tmp_path / "out.jsonl")]) == 2
    assert "should be a file or a pipe, got a device" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.partial", "out.rejected.jsonl", "out.receipt.json"])
def test_a_pipe_is_no_place_for_results(tmp_path: Path, name: str) -> None:
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    os.mkfifo(tmp_path / name)
    done = run(tmp_path, "in.jsonl", "out.jsonl")
    assert done.returncode == 2 and name in done.stderr and "name another OUT" in done.stderr


def test_a_limit_is_named_as_this_stage_takes_it(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    assert main(["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "o.jsonl"), "align.limits.completion=5"]) == 2
    (rejected,) = read_jsonl(tmp_path / "o.rejected.jsonl")
    assert "set align.limits.completion higher" in rejected["reason"]


def test_money_without_prices_is_no_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    words = ["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "o.jsonl"), "--critic", "openai:m"]
    assert main([*words, "critics.openai.budget.money=0"]) == 2
    said = capsys.readouterr().err
    assert "critics.openai.budget" in said and "set price_in and price_out" in said


def test_another_server_makes_another_annotation(
    fault_server: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    words = ["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "o.jsonl"), "--critic", "openai:m"]
    first = fault_server()
    assert main(words) == 0
    assert first in (tmp_path / "o.receipt.json").read_text()
    assert main(words) == 0 and "complete already" in capsys.readouterr().err
    fault_server()
    assert main(words) == 2
    assert "other settings.critics.openai.base_url" in capsys.readouterr().err


def test_a_password_in_the_address_is_not_written_down() -> None:
    options = OpenAISettings(base_url="https://ada:hush@host:8000/v1")
    assert server_of(options) == "https://host:8000/v1"


@pytest.mark.parametrize("key", ["schlüssel", "sk-1\n", " sk-1", "sk-\x7f"])
def test_a_key_that_cannot_be_sent_is_said_so_and_not_shown(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(CriticError, match="OPENAI_API_KEY should hold plain ASCII") as caught:
        OpenAICritic("m", OpenAISettings())
    assert key.strip() not in str(caught.value)


def test_a_missing_extra_is_named_before_the_key_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    assert main(["annotate", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), "--critic", "openai:some"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("the critic openai:some needs the openai package: pip install 'text2grad[api]'")
    assert "OPENAI_API_KEY" not in told


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_an_empty_input_is_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(b"")
    assert main(["annotate", str(tmp_path / name), str(tmp_path / "out.jsonl")]) == 2
    assert f"{name}: should hold rows, got" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_what_cannot_be_a_critic_is_found_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    done = run(tmp_path, "in.jsonl", "out.jsonl", "--critic", "os:system")
    assert done.returncode == 2 and "os:system: should be called as critic(prompts, completions" in done.stderr
    assert not (tmp_path / "out.jsonl.partial").exists()


RAISING = """
import asyncio, os, sys

def leaves(prompts, completions, **columns):
    raise SystemExit(0)

def cancels(prompts, completions, **columns):
    raise asyncio.CancelledError

async def cancels_later(prompts, completions, **columns):
    task = asyncio.ensure_future(asyncio.sleep(9))
    task.cancel()
    await task

async def leaves_later(prompts, completions, **columns):
    sys.exit(0)

async def leaves_apart(prompts, completions, **columns):
    await asyncio.gather(leaves_later(prompts, completions), asyncio.sleep(9))

class Odd(BaseException):
    pass

def odd(prompts, completions, **columns):
    raise Odd
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leaves", "SystemExit: 0"),
        ("leaves_later", "SystemExit: 0"),
        ("leaves_apart", "SystemExit: 0"),
        ("cancels", "CancelledError"),
        ("cancels_later", "CancelledError"),
        ("odd", "Odd"),
    ],
)
def test_a_critic_that_leaves_or_cancels_has_raised(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "own.py").write_text(RAISING)
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    for critic in (f"own:{name}", f"merge(people, own:{name})"):
        done = run(tmp_path, "in.jsonl", "out.jsonl", "--critic", critic)
        # Of what happens in a critic's own tasks asyncio tells, too, and at length.
        apart = name == "leaves_apart"
        assert done.returncode == 2 and (apart or "Traceback" not in done.stderr)
        named = critic if apart else name
        assert f"the critic {named} raised {said}" in done.stderr
        assert not (tmp_path / "out.jsonl").exists()


def test_a_module_that_leaves_while_it_is_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "in.jsonl").write_bytes(encode_row(row("a")))
    done = run(tmp_path, "in.jsonl", "out.jsonl", "--critic", "own:judge")
    assert done.returncode == 2 and "own:judge: importing it raised SystemExit: 0" in done.stderr
