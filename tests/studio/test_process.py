"""`text2grad studio` as people run it: server and worker in processes of their own, killed at any moment."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.studio.made import Client, postgres, tiny_studio
from text2grad import config

Found = Callable[[Any], bool]


class Running:
    """A studio with a tiny model, in a folder; started again after it was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "studio"
        self.settings = folder / "tiny.yaml"
        self.settings.write_text(config.dump(tiny_studio(folder)))
        self.port, self.client = 0, None
        self.process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> Client:
        words = [sys.executable, "-m", "text2grad", "studio", "--out", str(self.folder), "--port", str(self.port)]
        if not (self.folder / "settings.yaml").exists():
            words += ["--config", str(self.settings)]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        with (self.folder.parent / "log").open("ab") as log:
            self.process = subprocess.Popen([*words, *more], stdout=subprocess.PIPE, stderr=log, env=env, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)/\?token=(\S+)", line)
        assert found, (line, (self.folder.parent / "log").read_text())
        self.port = int(found[1])
        client = Client.__new__(Client)
        client.port, client.cookie = self.port, ""
        client.cookie = client.raw("GET", f"/?token={found[2]}")[1]["set-cookie"].partition(";")[0]
        client("POST", "/api/me", {"name": "Ada", "again": True})
        return client

    def workers(self) -> list[int]:
        """Of this studio, by what their processes were started with."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"text2grad.studio.worker" in words and os.fsencode(self.folder) in words:
                found.append(int(entry.name))
        return found

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None:
            return
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.end()


def wait(client: Client, path: str, wanted: Found, seconds: float = 200) -> Any:
    """Ask until the answer is as wanted."""
    until = time.monotonic() + seconds
    while True:
        found = client.get(path)
        if wanted(found):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.05)


def ready(client: Client) -> None:
    wait(client, "/api/state", lambda state: state["ready"])
    found = wait(client, "/api/prompts/1", lambda prompt: bool(prompt["completions"]))
    one = found["completions"][0]
    note = {"start": 0, "end": min(6, len(one["text"])), "verdict": "poor", "comment": "no"}
    status, saved = client("PUT", "/api/critiques", {"completion": one["id"], "notes": [note], "base": None})
    assert status == 200, saved


def over(job: Any) -> bool:
    return job["state"] not in ("queued", "running")


def learning(client: Client, updates: int = 300) -> int:
    """A Learn that has begun its updates."""
    job = int(client("POST", "/api/learn", {"updates": updates})[1]["job"])
    wait(client, f"/api/jobs/{job}", lambda found: found["message"].startswith("update") or over(found))
    return job


def test_a_killed_worker_is_started_again_and_does_its_job(running: Running) -> None:
    client = running.start()
    ready(client)
    job = learning(client)
    (worker,) = running.workers()
    os.kill(worker, signal.SIGKILL)
    found = wait(client, f"/api/jobs/{job}", over)
    assert (found["state"], found["version"]) == ("done", 1)
    state = client.get("/api/state")
    assert (state["version"], state["counts"]["unlearned"]) == (1, 0) and "started again" in state["note"]
    # The server itself never loaded torch, and the other worker is gone.
    assert running.process is not None and len(running.workers()) == 1
    assert "libtorch" not in Path(f"/proc/{running.process.pid}/maps").read_text()


def test_a_killed_server_takes_its_worker_along_and_loses_nothing(running: Running) -> None:
    client = running.start()
    ready(client)
    job = learning(client)
    before = [row["feedback"] for row in client.get("/api/prompts/1")["completions"][0]["critiques"]]
    running.end(signal.SIGKILL)
    until = time.monotonic() + 60
    while running.workers():
        assert time.monotonic() < until
        time.sleep(0.05)
    old = client
    client = running.start()
    assert old.get("/api/state")["me"] == "Ada"  # the page that was open goes on: its session is still known
    found = wait(client, f"/api/jobs/{job}", over)
    assert found["state"] == "done"
    assert client.get(f"/api/learned/{found['version']}")["criticised"]
    earlier = client.get("/api/prompts/1")["earlier"]
    assert [row["feedback"] for each in earlier for row in each["critiques"]] == before
    # Undo, by way of another restart: exactly the completions of the start.
    job = client("POST", "/api/learn/undo")[1]["job"]
    wait(client, f"/api/jobs/{job}", over)
    state = client.get("/api/state")
    assert (state["version"], state["can_redo"]) == (0, True)
    assert client.get("/api/prompts/1")["completions"][0]["critiques"][0]["learned"] is False


@pytest.mark.system("postgres")
def test_a_team_s_store_in_postgresql(running: Running) -> None:
    with postgres() as place:
        url = f"postgresql://postgres@/postgres?host={place}"
        client = running.start("--store", url)
        ready(client)
        job = learning(client)
        running.end(signal.SIGKILL)
        client = running.start("--store", url)
        assert wait(client, f"/api/jobs/{job}", over)["state"] == "done"
        job = client("POST", "/api/learn/undo")[1]["job"]
        assert wait(client, f"/api/jobs/{job}", over)["version"] == 0
        assert not (running.folder / "studio.sqlite").exists()
        with ThreadPoolExecutor(12) as pool:  # of many Learns at once one begins, here as well
            found = [*pool.map(lambda _: client("POST", "/api/learn", {"updates": 1})[0], range(12))]
        assert sorted(found) == [200] + [409] * 11
        assert len(client.raw("GET", "/api/export")[2].splitlines()) == 1
        running.end()


def test_one_folder_one_studio_and_its_settings_stay(running: Running) -> None:
    running.start()

    def refused(*words: str) -> str:
        command = [sys.executable, "-m", "text2grad", "studio", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2, done.stdout
        return done.stderr

    assert "open in another studio" in refused("--out", str(running.folder), "--port", "0")
    running.end()
    assert "other settings" in refused("--out", str(running.folder), "seed=3", "--config", str(running.settings))
    assert "wants a password" in refused("--out", str(running.folder), "--host", "0.0.0.0")
    assert "at least 8" in refused("--out", str(running.folder), "--host", "0.0.0.0", "--password", "short")
    assert "name another --port" in refused("--out", str(running.folder), "--host", "192.0.2.1", "--password", "a" * 9)
    assert (running.folder / "token").stat().st_mode & 0o077 == 0
    done = subprocess.run(
        [sys.executable, "-m", "text2grad", "studio", "export", str(running.folder)], capture_output=True, text=True
    )
    assert done.returncode == 0 and (running.folder / "critiques.jsonl").read_bytes() == b""


def test_a_model_that_cannot_be_had_is_said(running: Running) -> None:
    client = running.start("model=/nowhere/at/all")
    state = wait(client, "/api/jobs/1", over)
    assert state["state"] == "failed" and "/nowhere/at/all" in state["error"]
    found = client.get("/api/state")
    assert found["ready"] is False and "/nowhere/at/all" in found["note"]
