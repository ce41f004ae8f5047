"""`text2grad generate`: one prompt is streamed, many are written as rows; Ctrl-C ends the line."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import text2grad
from text2grad.cli import main
from text2grad.commands import generate
from text2grad.models.sampling import SamplingSettings
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.models.writer import Writer
from text2grad.runs import read_jsonl
from text2grad.types import Example

SMALL = ["max_new_tokens=8", "device=cpu"]
PROMPT = "Which river runs here?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def greedy(model: str, prompt: str = PROMPT) -> str:
    sampling = SamplingSettings(max_new_tokens=8)
    (rollout,) = Writer.load(model, sampling, "auto", "cpu", "float32")([Example("a", prompt)], None)
    return rollout.completion.text


def test_the_words_behind_the_model_are_the_prompt(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", model, *PROMPT.split(), *SMALL]) == 0
    assert capsys.readouterr().out == greedy(model) + "\n"
    assert main(["generate", model, "--prompt", PROMPT, *SMALL]) == 0
    assert capsys.readouterr().out == greedy(model) + "\n"


def test_standard_input_is_one_prompt(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Two lines\nof a prompt\n"))
    assert main(["generate", model, *SMALL]) == 0
    assert capsys.readouterr().out == greedy(model, "Two lines\nof a prompt") + "\n"


def test_a_file_of_prompts_becomes_rows(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, rows = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    plain.write_text(f"{PROMPT}\n\nHi\n")
    turns = [{"role": "user", "content": "Hi"}]
    rows.write_text(json.dumps({"id": "a", "prompt": PROMPT}) + "\n" + json.dumps({"prompt": turns}) + "\n")
    out = tmp_path / "out.jsonl"
    assert main(["generate", model, "--file", str(plain), "--out", str(out), *SMALL]) == 0
    written = list(read_jsonl(out))
    assert [row["id"] for row in written] == ["line-1", "line-3"]
    assert written[0] == {"id": "line-1", "prompt": PROMPT, "completion": greedy(model)}
    assert f"line-1: {greedy(model)}" in capsys.readouterr().out
    assert main(["generate", model, "--file", str(rows), "--out", str(out), *SMALL]) == 0
    again = list(read_jsonl(out))
    assert [row["completion"] for row in again] == [row["completion"] for row in written]
    assert (again[0]["id"], again[1]["prompt"]) == ("a", turns)


def test_samples_follow_the_seed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for words in (["temperature=1.5"], ["temperature=1.5"], ["temperature=1.5", "seed=1"]):
        assert main(["generate", model, *PROMPT.split(), *SMALL, *words]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_an_interrupted_stream_ends_its_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[str]:
        yield "Hello"
        raise KeyboardInterrupt

    monkeypatch.setattr(Writer, "stream", interrupted)
    assert main(["generate", model, "Hi", "--out", str(tmp_path / "out.jsonl"), *SMALL]) == 130
    out, err = capsys.readouterr()
    assert out == "Hello\n" and "interrupted" in err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "wants a model"),
        (["m", "Hi", "--prompt", "Ho"], "given twice, by words and by --prompt"),
        (["m", "--file", "/no/such/file"], "/no/such/file: should be a readable file of prompts"),
        (["m", "Hi", "temperatur=1"], "did you mean `temperature`?"),
        (["no/such/folder", "Hi"], "no/such/folder"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", *words]) == 2
    assert said in capsys.readouterr().err


def test_prompts_in_files(tmp_path: Path) -> None:
    empty, rows = tmp_path / "empty.txt", tmp_path / "rows.jsonl"
    empty.write_text("\n")
    rows.write_text('{"prompt": "Hi"}\n{"question": "Ho"}\n')
    with pytest.raises(ValueError, match="should hold at least one prompt"):
        generate.prompts_in(empty, {})
    with pytest.raises(
        ValueError, match=r"line 2: should have a `prompt`.*the columns are question; try columns.prompt=question"
    ):
        generate.prompts_in(rows, {})


def test_the_default_length_is_what_the_model_has_room_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo's own model has 256 positions: the usual 256 tokens leave no room for a prompt."""
    embedded = str(Path(text2grad.__file__).parent / "models" / "embedded")
    own = ["format=plain", "device=cpu"]
    assert main(["generate", embedded, *PROMPT.split(), *own]) == 0
    assert capsys.readouterr().out.strip()
    plain = tmp_path / "prompts.txt"
    plain.write_text(f"{PROMPT}\nHi\n")
    assert main(["generate", embedded, "--file", str(plain), *own]) == 0
    assert "tokens at most: behind the longest prompt" in capsys.readouterr().err
    assert main(["generate", embedded, *PROMPT.split(), *own, "max_new_tokens=256"]) == 2
    said = capsys.readouterr().err
    assert "or lower max_new_tokens" in said and "sampling." not in said
    assert main(["generate", embedded, *["word"] * 400, *own]) == 2
    assert "the model has room for 255 before a completion" in capsys.readouterr().err


def test_only_line_ends_cut_a_file_of_prompts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("One\u2028prompt\x0cof three\r\nAnother\x85one\n".encode())
    prompts = [example.prompt for example in generate.prompts_in(path, {})]
    assert prompts == ["One\u2028prompt\x0cof three", "Another\x85one"]


def test_an_empty_completion_is_explained(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "stream", lambda *_: iter(()))
    assert main(["generate", model, "Hi", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert out == "\n" and "the completion is empty" in err
