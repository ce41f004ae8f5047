"""No key and no password is ever written: not in run folders, caches, reports and receipts, not in messages."""

import base64
import json
import sqlite3
from pathlib import Path

import pytest

from tests.attacks.conftest import SMALL
from tests.conftest import Start
from text2grad import config, secrets
from text2grad.cli import main
from text2grad.feedback.settings import OpenAISettings
from text2grad.secrets import hidden, hidden_word, remember, without_password

KEY = "sk-attack-0123456789abcdef"
PASSWORD = "hunter2-and-more"
BASIC = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
TRAIN = ["train", "run", "model=model", "data=data.jsonl", "critic=openai:m", *SMALL, "--quiet"]


def leaks(*places: Path) -> list[str]:
    """Files that hold a secret, or the first half of one."""
    parts = [part[: len(part) // 2].encode() for part in (KEY, PASSWORD, BASIC)]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert len(files) > 5
    return [str(file) for file in files if any(part in file.read_bytes() for part in parts)]


@pytest.mark.parametrize("kind", ["key", "password", "query"])
@pytest.mark.usefixtures("here")
def test_a_run_writes_no_secret(
    fault_server: Start, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server quotes what it was sent in every reply, whole and cut off."""
    address = fault_server("always-echo")
    if kind == "key":
        words = [*TRAIN, f"critics.openai.api_key={KEY}"]
    elif kind == "query":
        words = [*TRAIN, f"critics.openai.base_url={address}?api_key={KEY}"]
    else:
        words = [*TRAIN, f"critics.openai.base_url={address.replace('//', f'//alice:{PASSWORD}@')}"]
    monkeypatch.setattr("sys.argv", ["text2grad", *words])
    assert main(words) == 0
    assert main(["report", "run", "--out", "page.html"]) == 0
    rows = [json.loads(line) for line in Path("run/rollouts.jsonl").read_text().splitlines()]
    assert any("says ***, or ***" in json.dumps(row) for row in rows)  # the echo did arrive
    (cache,) = (tmp_path / "cache").glob("*.sqlite")
    replies = sqlite3.connect(cache).execute("SELECT reply FROM replies").fetchall()
    assert replies and all("***" in reply for (reply,) in replies)
    assert leaks(Path("run"), Path(), tmp_path / "cache") == []
    assert json.loads(Path("run/run.json").read_text())["command"][0] == "text2grad"
    assert main(words) == 0  # over already: the settings are the same to it
    told = "".join(capfd.readouterr())
    assert not any(part[:10] in told for part in (KEY, PASSWORD, BASIC))


@pytest.mark.usefixtures("here")
def test_an_annotation_writes_no_secret(fault_server: Start, tmp_path: Path) -> None:
    fault_server("always-echo")
    Path("in.jsonl").write_text('{"id": "a", "prompt": "p", "completion": "The ship left on Monday."}\n')
    words = ["annotate", "in.jsonl", "out.jsonl", "--critic", "openai:m", f"critics.openai.api_key={KEY}"]
    assert main(words) == 0
    assert leaks(Path(), tmp_path / "cache") == []


@pytest.mark.parametrize("fault", ["always-echo-error", "always-echo-shape", "always-html"])
@pytest.mark.usefixtures("here")
def test_a_servers_error_is_shown_without_the_key(
    fault_server: Start, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    fault_server(fault)
    assert main([*TRAIN, f"critics.openai.api_key={KEY}", "critics.openai.retries=0"]) == 2
    told = "".join(capfd.readouterr())
    assert "gave up after 1 try at http://" in told and KEY[:8] not in told


@pytest.mark.parametrize("key", ["abcd", "1234", "s3cr-t", "secret7", "hunter"])
@pytest.mark.usefixtures("here", "forgetful")
def test_a_servers_error_is_shown_without_a_short_key(
    fault_server: Start, key: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fault_server("always-echo-error")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert main([*TRAIN, "critics.openai.retries=0"]) == 2
    told = "".join(capfd.readouterr())
    assert "gave up after 1 try" in told and "bad header ***" in told and f" {key} " not in told


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered here is a plain word in other tests."""
    monkeypatch.setattr(secrets, "_KNOWN", set())


@pytest.mark.usefixtures("forgetful")
def test_a_short_secret_is_hidden_as_a_whole_word_and_no_word_of_the_data_is() -> None:
    remember("pw7", "s3cr-t", "fake", "1234")
    said = "pw7, s3cr-t, xs3cr-t, s3cr-ts: a fake of 1234, faked in 12345"
    assert hidden(said) == said.replace(" s3cr-t,", " ***,")
    assert hidden(said, message=True) == "pw7, ***, xs3cr-t, s3cr-ts: a *** of ***, faked in 12345"


@pytest.mark.parametrize(
    "word",
    [
        f"critics.openai.api_key=*{KEY}",
        f"critics.openai.api_key=[{KEY}, 2]",
        f"critics={{openai: {{api_key: [{KEY}]}}}}",
        f"critics.openai.api-key={KEY}",
        f"critics.openai={KEY}",
        f"critics={KEY}",
        "critics.openai.api_key=1234567890123",
    ],
)
@pytest.mark.usefixtures("here")
def test_a_refusal_does_not_repeat_the_key(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, word]) == 2
    told = "".join(capfd.readouterr())
    assert told.count("\n") < 5 and KEY[:8] not in told and "12345678" not in told


def test_printed_settings_hold_no_secret_and_can_be_read_again() -> None:
    given = OpenAISettings(api_key=KEY, base_url=f"http://alice:{PASSWORD}@host/v1")  # type: ignore[arg-type]
    text = config.dump(given)
    assert KEY[:8] not in text and PASSWORD[:8] not in text
    again = config.build(OpenAISettings, config.parse(text, "text"), "text")
    assert (again.api_key, again.base_url) == (None, "http://host/v1")


HANDED_OUT = ["hf_" + "a1B2" * 8, "ghp_" + "a1B2" * 9, "github_pat_" + "a1B2" * 9, "AKIAIOSFODNN7EXAMPLE", KEY]


@pytest.mark.parametrize("key", HANDED_OUT)
@pytest.mark.parametrize("name", ["columns.token", "task_options.note", "data"])
@pytest.mark.usefixtures("forgetful")
def test_a_key_is_known_by_its_form(key: str, name: str) -> None:
    assert hidden(f"got {key}!", message=True) == "got ***!" and hidden(f"got {key}!") == f"got {key}!"
    assert hidden_word(f"{name}={key}") == f"{name}=***" and hidden(f"got {key}!") == "got ***!"


@pytest.mark.parametrize(
    "word",
    [
        *("task_options.token=WORD", "token=WORD", "task_options.hf_token=WORD", "a.access-token=WORD", "--token=WORD"),
        *("a.secret=WORD", "a.password=WORD", "task_options={token: WORD}", "task_options={a: 1, 'secret': WORD}"),
    ],
)
@pytest.mark.usefixtures("forgetful")
def test_a_secret_is_known_by_its_name(word: str) -> None:
    assert hidden_word(word.replace("WORD", "plainword")) == word.replace("WORD", "***")
    assert hidden("a plainword") == "a ***"


@pytest.mark.parametrize(
    "word",
    [
        *("sampling.max_new_tokens=12345678", "template.critique_tokens=12345678", "task_options.eos_token=<|im_end|>"),
        *("task_options.token=true", "columns.token=question", "critic=secretary:judge", "data=hf_checkpoints.jsonl"),
        *("task_options.tokenizer=ada/base", "prompt=the next token: whatever", "run=risk-averse-policies"),
    ],
)
@pytest.mark.usefixtures("forgetful")
def test_what_is_no_secret_is_shown(word: str) -> None:
    assert hidden_word(word) == word and not secrets._KNOWN


@pytest.mark.parametrize("kind", ["slurm", "skypilot", "kubernetes"])
@pytest.mark.parametrize("word", ["task_options.token=hf_abc", f"columns.token={HANDED_OUT[0]}"])
def test_a_job_file_holds_no_key(kind: str, word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "r", "data=x", "--launch", "fsdp2", "--print-job", kind, word]) == 2
    told = "".join(capfd.readouterr())
    assert "leave it to the job's environment" in told and "hf_a" not in told


def test_what_is_left_of_a_secret_that_was_cut_is_hidden_too() -> None:
    remember(KEY)
    for cut in range(len(KEY) - 7):
        assert hidden(f"x{KEY[cut:]}y{KEY[: len(KEY) - cut]}z") == "x***y***z"


@pytest.mark.parametrize(
    ("address", "written"),
    [
        (f"http://alice:{PASSWORD}@host:80/v1", "http://host:80/v1"),
        ("http://alice:p@ss/word-and-more@host/v1", "http://host/v1"),
        ("http://alice:p?ss#word-and-more@host/v1", "http://host/v1"),
        ("http://me@example.org:pass/word@host/v1", "http://host/v1"),
        ("http://only-a-token@host:8000/v1", "http://host:8000/v1"),
        ("http://host/v1?api_key=abc&debug&v=1#top", "http://host/v1?api_key=***&***&v=***#top"),
        ("http://host/v1?mail=a@b", "http://host/v1?mail=***"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://host:8000/v1", "http://host:8000/v1"),
    ],
)
def test_an_address_is_written_without_password_and_query(address: str, written: str) -> None:
    assert without_password(address) == written
    assert hidden_word(f"critics.openai.base_url={address}") == f"critics.openai.base_url={written}"
    assert config.dump(OpenAISettings(base_url=address)).count(written) == 1


def test_a_plain_value_of_a_query_is_no_secret_elsewhere() -> None:
    without_password(f"http://host/v1?api-version=2024-02-01&sig={KEY}-sig")
    assert hidden(f"on 2024-02-01: {KEY}-sig") == "on 2024-02-01: ***"


def test_a_piece_of_one_secret_leaves_no_piece_of_another() -> None:
    """The end of the first stands in the second."""
    remember("some-longer-one-456789012", "qq-456789012")
    assert hidden("it was qq-456789012, was it") == "it was ***, was it"
