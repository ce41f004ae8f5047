"""`text2grad push` against a hub on loopback that keeps what it is sent: one commit, the whole folder, no secrets."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.servers import Quiet, serving
from text2grad.cli import main

TOKEN = "hf_" + "a1b2c3d4" * 4
CARD = "---\nlibrary_name: transformers\ntags: [text2grad]\n---\n\n# run\n"


class Hub:
    """What the hub's HTTP API needs for a push: make a repository, say how files go, take large ones, take a commit."""

    def __init__(self) -> None:
        self.repositories: dict[str, bool] = {}
        self.large: dict[str, bytes] = {}
        self.commits: list[dict[str, bytes]] = []
        self.asked: list[str] = []

    def handler(self) -> type[Quiet]:
        hub = self

        class Handler(Quiet):
            def do_POST(self) -> None:
                hub.post(self, self.path.partition("?")[0], self.rfile.read(int(self.headers["Content-Length"] or 0)))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hub.large[self.path.rpartition("/")[2]] = body
                self.answer(200)

            def do_GET(self) -> None:
                self.answer(404)

        return Handler

    def post(self, request: Quiet, path: str, body: bytes) -> None:
        self.asked.append(path)

        def say(reply: Any, status: int = 200) -> None:
            request.answer(status, json.dumps(reply).encode(), Content_Type="application/json")

        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return say({"error": f"bad token {request.headers.get('Authorization')}"}, 401)
        address = f"http://{request.headers['Host']}"
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.repositories[name] = asked.get("private") is True or asked.get("visibility") == "private"
            return say({"url": f"{address}/{name}", "name": name, "id": "1"})
        if path == "/api/validate-yaml":
            return say({"errors": [], "warnings": []})
        if path.endswith("/preupload/main"):
            files = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for one in json.loads(body)["files"]
            ]
            return say({"files": files})
        if path.endswith("/info/lfs/objects/batch"):
            asked = json.loads(body)["objects"]
            made = [one | {"actions": {"upload": {"href": f"{address}/large/{one['oid']}"}}} for one in asked]
            return say({"transfer": "basic", "objects": made})
        if path.endswith("/commit/main"):
            return say(self.commit(body, address))
        return say({"error": path}, 404)

    def commit(self, body: bytes, address: str) -> Any:
        files: dict[str, bytes] = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.large[value["oid"]]
                assert hashlib.sha256(files[value["path"]]).hexdigest() == value["oid"]
        self.commits.append(files)
        return {"commitUrl": f"{address}/ada/ships/commit/{'0' * 40}", "commitOid": "0" * 40, "success": True}


@pytest.fixture
def hub() -> Iterator[tuple[Hub, str]]:
    made = Hub()
    with serving(made.handler()) as address:
        yield made, address


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "model"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 20)
    return tmp_path / "run"


def push(run: Path, address: str, *words: str, token: str = TOKEN) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: the hub's library reads its address when it is imported."""
    environment = os.environ | {"HF_ENDPOINT": address, "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "0"}
    asked = [sys.executable, "-m", "text2grad", "push", str(run), "ada/ships", *words]
    return subprocess.run(asked, env=environment, capture_output=True, text=True)


def test_a_model_and_its_card_arrive_in_one_commit(hub: tuple[Hub, str], run: Path) -> None:
    done = push(run, hub[1], "--private")
    assert done.returncode == 0, done.stderr
    assert hub[0].repositories == {"ada/ships": True}
    (files,) = hub[0].commits
    assert files == {path.name: path.read_bytes() for path in (run / "model").iterdir()}
    assert done.stdout.strip().endswith("/ada/ships/commit/" + "0" * 40)
    assert "3 files" in done.stderr and TOKEN not in done.stdout + done.stderr


def test_a_wrong_token_is_said_and_not_shown(hub: tuple[Hub, str], run: Path) -> None:
    wrong = "hf_" + "wrong" * 6
    done = push(run, hub[1], token=wrong)
    assert done.returncode == 2 and "did not take ada/ships" in done.stderr and "HF_TOKEN" in done.stderr
    assert wrong not in done.stderr and hub[0].commits == []


def test_a_hub_out_of_reach_is_said(run: Path) -> None:
    done = push(run, "http://127.0.0.1:9")
    assert done.returncode == 2 and "http://127.0.0.1:9 did not take ada/ships" in done.stderr
    assert "the network" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", [".env", "notes.py", "x.yml", "x.toml", "x.jsonl", "deep/in/it"])
@pytest.mark.parametrize(
    "text",
    [
        f"HF={TOKEN}",
        "k: sk-proj-0123456789abcdef",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        'token = "abcd1234efgh5678"',
        "# mine\nexport HF_TOKEN=abcd1234efgh5678",
        "hub:\n  token: abcd1234efgh5678",
        "x" * (1 << 20) + f" {TOKEN}",
        "é" * ((1 << 20) - 10) + f" {TOKEN}",  # across two pieces
    ],
)
def test_every_text_is_looked_at(name: str, text: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "model" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert main(["push", str(run), "ada/ships", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert f"{name}: holds what looks like a key" in said and text[-16:] not in said
    path.write_text(text, encoding="utf-16")
    assert main(["push", str(run), "ada/ships", "--dry-run"]) == 2


def test_what_models_hold_is_no_key(run: Path) -> None:
    """A vocabulary, settings of a tokenizer, prose, and weights in which anything may stand."""
    vocabulary = {"token": 5, "password": 17835, "secret": 12, "sk-learn": 1, "hf_": 3, "api_key": 1234567890123456}
    (run / "model" / "vocab.json").write_text(json.dumps(vocabulary))
    (run / "model" / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>", "pad_token": "<pad0123456789>"}')
    (run / "model" / "notes.py").write_text("import sk-learn-pipelines-of-old\npassword = getpass.getpass()\n")
    (run / "model" / "run.yaml").write_text("sampling.max_new_tokens: 1234567890123456\ntoken: null\n")
    (run / "model" / "model.safetensors").write_bytes(bytes(8) + TOKEN.encode())
    assert main(["push", str(run), "ada/ships", "--dry-run"]) == 0


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"base_model_name_or_path": null}', "[" * 100_000])
def test_a_broken_adapter_is_said(config: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "model" / "adapter_config.json").write_text(config)
    assert main(["push", str(run), "ada/ships", "--dry-run"]) == 2
    assert "adapter_config.json: should be a JSON object with the name of the adapter's base" in capsys.readouterr().err


@pytest.mark.parametrize("secret", [TOKEN, "sk-proj-0123456789abcdef"])
def test_what_looks_like_a_key_is_not_sent(
    secret: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (run / "model" / "README.md").write_text(CARD + f"| `critics.note` | `{secret}` |\n")
    assert main(["push", str(run), "ada/ships"]) == 2
    said = capsys.readouterr().err
    assert "holds what looks like a key" in said and secret not in said


def test_a_dry_run_shows_the_card_and_sends_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(run), "ada/ships", "--dry-run"]) == 0
    assert capsys.readouterr().out == CARD + "\n"


def test_what_cannot_be_pushed(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["push", str(run), "ships"]) == 2
    assert "a repository as user/name" in capsys.readouterr().err
    assert main(["push", str(run), "ada/ships", "--part", "best"]) == 2
    assert "best: is not there" in capsys.readouterr().err
    (run / "adapter").mkdir()
    (run.parent / "bases" / "mine").mkdir(parents=True)
    monkeypatch.chdir(run.parent)
    for base in ("/home/ada/base", "./mine/local", "../local", "~/base", "runs/first/model", "bases/mine"):
        (run / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
        assert main(["push", str(run), "ada/ships", "--part", "adapter"]) == 2
        assert f"base is {base}, a folder of this machine, so nobody else could load it" in capsys.readouterr().err
    (run / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "ada/base"}))
    assert main(["push", str(run), "ada/ships", "--part", "adapter", "--dry-run"]) == 0
