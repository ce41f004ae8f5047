"""What tests of the studio share: completions that were never sampled, a server in a thread, a client that can
misbehave, a PostgreSQL server, and a folder with a tiny model and its prompts."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import uvicorn

from text2grad.models.sampling import SamplingSettings
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.studio import words
from text2grad.studio.api import Studio
from text2grad.studio.server import make_app
from text2grad.studio.settings import LearnSettings, StudioSettings
from text2grad.studio.store import Store
from text2grad.types import Example

TEXT = "Nine ships left on Tuesday."
TOKENS = ["Nine", " ships", " left", " on", " Tuesday", ".", ""]
TOKEN = "the-token"


def body(text: str = TEXT, pieces: list[str] | None = None) -> dict[str, Any]:
    """A completion as the worker stores it: one id for each piece, the last one the end."""
    pieces, offsets, at = pieces if pieces is not None else TOKENS, [], 0
    for piece in pieces:
        offsets.append([at, at + len(piece)])
        at += len(piece)
    assert at == len(text)
    numbers = [-0.5 - 0.1 * place for place in range(len(pieces))]
    return {
        "text": text,
        "token_ids": list(range(5, 5 + len(pieces))),
        "offsets": offsets,
        "prompt_ids": [3, 4],
        "logprobs": numbers,
        "truncated": False,
        "score": None,
    }


def filled(store: Store, prompts: int = 3, completions: int = 2) -> None:
    """A store as it is when the worker has made the start and sampled."""
    examples = [Example(f"e{number}", f"Report {number}: seven ships left.") for number in range(prompts)]
    numbers = store.add_prompts([words.example_body(example) for example in examples])
    with store.writing():
        start = {"updates": 0, "parts": [], "critiques": 0, "learned": {}, "held_out": None, "kl": 0.0}
        store.add_version(0, None, start, {})
        store.add_completions({number: [body()] * completions for number in numbers}, 0)


class Client:
    """One browser, more or less: it keeps the cookie, and sends what it is told to send."""

    def __init__(self, port: int, name: str | None = "Ada") -> None:
        self.port, self.cookie = port, ""
        _, headers, _ = self.raw("GET", f"/?token={TOKEN}")
        self.cookie = headers["set-cookie"].partition(";")[0]
        if name is not None:
            assert self("POST", "/api/me", {"name": name, "again": True})[0] == 200

    def raw(
        self, method: str, path: str, data: bytes | None = None, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        sent = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie, "X-Text2Grad": "1"}
        sent |= {key.replace("_", "-"): value for key, value in headers.items()}  # type: ignore[misc]
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for key, value in sent.items():
                if value is not None:
                    link.putheader(key, value)
            if data is not None:
                link.putheader("Content-Length", str(len(data)))
            link.endheaders(data)
            answer = link.getresponse()
            found = {key.lower(): value for key, value in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            link.close()

    def __call__(self, method: str, path: str, data: Any = None, **headers: str | None) -> tuple[int, Any]:
        sent = None if method == "GET" else json.dumps(data if data is not None else {}).encode()
        status, _, content = self.raw(method, path, sent, **headers)
        return status, json.loads(content)

    def get(self, path: str) -> Any:
        status, found = self("GET", path)
        assert status == 200, found
        return found


class Served:
    """The real server, in a thread of this process; no worker."""

    def __init__(self, store: Store, settings: StudioSettings | None = None, password: str | None = None) -> None:
        self.store = store
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        studio = Studio(store, settings or StudioSettings())
        app = make_app(studio, TOKEN, host="127.0.0.1", port=self.port, password=password)
        options = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(options)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)

    def client(self, name: str | None = "Ada") -> Client:
        return Client(self.port, name)


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server of one's own, on a UNIX socket; gives the folder of the socket."""
    (programs, *_) = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), _on_path()]
    # It refuses to run as root; Debian's package makes a user for it.
    as_other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="t2g-pg-", dir="/tmp"))
    if as_other:
        shutil.chown(folder, "postgres", "postgres")

    def run(program: str, *more: str) -> None:
        subprocess.run([*as_other, str(programs / program), *more], check=True, cwd="/", stdout=subprocess.DEVNULL)

    data = str(folder / "data")
    try:
        run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield str(folder)
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _on_path() -> Path:
    return Path(shutil.which("initdb") or "/nowhere/initdb").parent


SOURCES = ("A crane fell at noon.", "The harbour was closed.", "The river runs through the valley.", "Nobody was hurt.")


def tiny_studio(folder: Path, **changes: Any) -> StudioSettings:
    """A tiny model and prompts for it in a folder, and the settings of a studio on them."""
    from text2grad.models.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    for name, copies in (("train", 3), ("held_out", 1)):
        rows = [
            {"id": f"{name}-{number}-{copy}", "prompt": f"{copy}: {source}", "reference": source}
            for copy in range(copies)
            for number, source in enumerate(SOURCES)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named: dict[str, Any] = {
        "model": str(folder / "tiny"),
        "task": "jsonl",
        "data": str(folder / "train.jsonl"),
        "held_out": str(folder / "held_out.jsonl"),
        "format": "plain",
        "device": "cpu",
        "policy": PolicySettings(lora=LoraSettings(rank=0)),
        "sampling": SamplingSettings(max_new_tokens=12),
        "learn": LearnSettings(updates=4, learning_rate=2e-3, kept=4, compared=2, prompts=2, completions=2),
        "ahead": 4,
    }
    return StudioSettings(**(named | changes))
