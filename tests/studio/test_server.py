"""The studio's HTTP: what the page asks, who is let in, and what hostile input does not do."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.studio.made import TEXT, TOKEN, Client, Served, body, filled
from tests.test_architecture import TENSORS
from text2grad.studio.security import PAUSE, POLICY, Gate
from text2grad.studio.settings import StudioSettings
from text2grad.studio.store import Store


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = Store(tmp_path / "studio.sqlite")
    filled(store)
    with Served(store, StudioSettings(upload=3000)) as served:
        yield served
    store.close()


@pytest.fixture
def ada(served: Served) -> Client:
    return served.client("Ada")


# ------------------------------------------------------------------------------------------------ reading and writing


def test_a_critique_is_located_while_it_is_typed(ada: Client) -> None:
    asked = {"completion": 1, "feedback": 'A good start, but "on Tuesday" is wrong.'}
    status, found = ada("POST", "/api/align", asked)
    (span,) = found["spans"]
    assert status == 200
    assert (TEXT[span["start"] : span["end"]], span["verdict"], span["provenance"]) == ("on Tuesday", "poor", "exact")
    assert asked["feedback"][slice(*span["phrase"])] == "on Tuesday"  # type: ignore[index]
    assert found["rewards"] == [0, 0, 0, -1, -1, 0, 0]
    assert ["on Tuesday", "span", [0]] in found["pieces"]
    assert ada.get("/api/state")["counts"]["critiques"] == 0  # nothing was stored
    _, found = ada("POST", "/api/align", {"completion": 1, "feedback": '"ten cars" is wrong.'})
    assert found["spans"] == [] and found["missed"][0]["quote"] == "ten cars" and found["missed"][0]["reason"]


def test_notes_corrections_and_spans_by_hand(ada: Client) -> None:
    note = {"start": 0, "end": 4, "verdict": "good", "comment": "the count", "severity": 0.3}
    _, found = ada("PUT", "/api/critiques", {"completion": 1, "feedback": "", "notes": [note], "base": None})
    (span,) = found["spans"]
    assert [span[name] for name in ("start", "end", "verdict", "severity", "note", "provenance")] == [
        *(0, 4, "good", 0.3, 0, "given")
    ]
    assert found["notes"] == [note] and not found["by_hand"]
    corrected = {"completion": 2, "feedback": "", "revision": "Nine ships left on Monday.", "base": None}
    _, found = ada("PUT", "/api/critiques", corrected)
    assert [TEXT[s["start"] : s["end"]] for s in found["spans"]] == ["Tuesday"]
    by_hand = [{"start": 5, "end": 10, "verdict": "poor"}]
    said = {"completion": 2, "feedback": '"Nine" is right.', "spans": by_hand, "base": found["version"]}
    _, found = ada("PUT", "/api/critiques", said)
    assert [(s["start"], s["end"]) for s in found["spans"]] == [(5, 10)] and found["by_hand"]


def test_two_tabs_meet_a_409_with_what_is_there(served: Served, ada: Client) -> None:
    first = {"completion": 1, "feedback": '"Nine" is wrong.', "base": None}
    _, saved = ada("PUT", "/api/critiques", first)
    status, refused = ada("PUT", "/api/critiques", first | {"feedback": "Other words."})
    assert status == 409 and refused["current"]["feedback"] == '"Nine" is wrong.'
    status, now = ada("PUT", "/api/critiques", first | {"feedback": "Other words.", "base": saved["version"]})
    assert (status, now["version"]) == (200, 2)
    ben = served.client("Ben")
    status, refused = ben("DELETE", f"/api/critiques/{now['id']}")
    assert status == 400 and "Ada's" in refused["error"]
    assert ada("DELETE", f"/api/critiques/{now['id']}", {"base": 1})[0] == 409
    assert ada("DELETE", f"/api/critiques/{now['id']}")[1]["deleted"] is True
    assert ada("POST", f"/api/critiques/{now['id']}/undo")[1]["feedback"] == "Other words."
    assert ada("POST", f"/api/critiques/{now['id']}/redo")[1]["deleted"] is True


def test_learn_says_why_there_is_nothing_to_learn(served: Served, ada: Client) -> None:
    status, refused = ada("POST", "/api/learn")
    assert status == 400 and "nobody has written" in refused["error"]
    ada("PUT", "/api/critiques", {"completion": 1, "feedback": "Well.", "base": None})
    if not served.store.critiques()[0]["alignment"]["spans"]:
        status, refused = ada("POST", "/api/learn")
        assert status == 400 and "none of the 1 critiques" in refused["error"]
    ada("PUT", "/api/critiques", {"completion": 2, "feedback": '"Nine" is wrong.', "base": None})
    status, job = ada("POST", "/api/learn", {"updates": 2})
    assert status == 200
    shown = ada.get(f"/api/jobs/{job['job']}")
    assert (shown["kind"], shown["state"], [part["name"] for part in shown["parts"]]) == ("learn", "queued", ["direct"])
    assert ada("POST", "/api/learn")[0] == 409
    assert ada("POST", "/api/learn/undo")[0] == 409
    assert ada("POST", f"/api/jobs/{job['job']}/cancel")[1]["state"] == "interrupted"
    assert "this is the start" in ada("POST", "/api/learn/undo")[1]["error"]
    assert "started without one" in ada("POST", "/api/learn", {"critic": True})[1]["error"]


def test_a_prompt_without_completions_is_sampled_once(served: Served, ada: Client) -> None:
    _, made = ada("POST", "/api/prompts", {"prompt": "Report: a dam broke."})
    first, again = (ada.get(f"/api/prompts/{made['id']}") for _ in range(2))
    assert first["completions"] == [] and first["sampling"] == again["sampling"]
    assert served.store.job(first["sampling"])["prompt"] == made["id"]


def test_an_upload_names_its_bad_lines(ada: Client) -> None:
    lines = [
        b'{"prompt": "One?", "completion": "Yes."}',
        b"no json",
        b'{"prompt": "Two?"}',
        b'{"question": 3}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\xff"}',
    ]
    _, _, content = ada.raw("POST", "/api/upload", b"\n".join(lines))
    found = json.loads(content)
    assert found["added"] == 2 and [each["line"] for each in found["rejected"]] == [2, 4, 5, 6]
    assert ada.raw("POST", "/api/upload", b"x" * 3001)[0] == 413


def test_two_hundred_completions_and_thousands_of_prompts(served: Served, ada: Client) -> None:
    served.store.add_prompts(
        [{"example": str(n), "prompt": f"P{n}", "reference": None, "columns": {}, "given": []} for n in range(3000)]
    )
    found = ada.get("/api/queue?order=file&offset=2990&limit=5")
    assert found["total"] == 3003 and len(found["items"]) == 5
    with served.store.writing():
        served.store.add_completions({1: [body()] * 200}, 0)
    assert len(ada.get("/api/prompts/1")["completions"]) == 202


# ------------------------------------------------------------------------------------------------ events


def test_events_resume_where_a_page_stopped(served: Served, ada: Client) -> None:
    ada("PUT", "/api/critiques", {"completion": 1, "feedback": '"Nine" is wrong.', "base": None})
    job = served.store.add_job("sample", prompt=1, count=2)
    link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    link.request("GET", "/api/events", headers={"Cookie": ada.cookie, "Last-Event-ID": "0"})
    answer = link.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    heard: list[tuple[str, str]] = []
    kind = ""
    while ("job", "queued") not in heard:
        line = answer.readline().decode().strip()
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            heard.append((kind, data["job"]["state"] if kind == "job" else ""))
            assert kind != "job" or data["job"]["id"] == job
    link.close()
    assert ("critique", "") in heard and ("queue", "") in heard


# ------------------------------------------------------------------------------------------------ who is let in


def test_without_the_token_there_is_nothing(served: Served, ada: Client) -> None:
    stranger = Client.__new__(Client)
    stranger.port, stranger.cookie = served.port, ""
    assert stranger("GET", "/api/state")[0] == 401
    assert stranger.raw("GET", "/")[0] == 401
    assert stranger.raw("GET", "/?token=wrong")[0] == 403
    stranger.cookie = f"text2grad_studio_{served.port}=0123456789abcdef"
    assert stranger("GET", "/api/state")[0] == 401
    status, headers, _ = stranger.raw("GET", f"/?token={TOKEN}")
    assert status == 303 and headers["location"] == "/"
    assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
    assert ada.cookie.partition("=")[2] not in served.store.place  # the value itself is stored nowhere
    assert not served.store.rows("SELECT id FROM sessions WHERE id = ?", ada.cookie.partition("=")[2])


def test_other_sites_cannot_do_anything(served: Served, ada: Client) -> None:
    said = {"completion": 1, "feedback": '"Nine" is wrong.', "base": None}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{served.port + 1}"},
        {"X_Text2Grad": None},
        {"Sec_Fetch_Site": "cross-site"},
    ):
        assert ada("PUT", "/api/critiques", said, **headers)[0] == 403, headers
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", f"127.0.0.1:{served.port + 1}", ""):
        assert ada("GET", "/api/state", Host=host)[0] == 421, host
    assert served.store.critiques() == []
    status, headers, _ = ada.raw("OPTIONS", "/api/critiques", Origin="http://evil.example")
    assert status == 403 and not any(name.startswith("access-control") for name in headers)
    assert ada("GET", "/api/state", Host=f"localhost:{served.port}", Origin=f"http://localhost:{served.port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static//etc/passwd",
        "/static/..%2f..%2fcli.py",
        "/static/base.html",
        "/static/",
        "/static/\\..\\x",
    ],
)
def test_files_are_those_of_the_page_and_no_others(ada: Client, path: str) -> None:
    assert ada.raw("GET", path)[0] == 404


def test_every_reply_forbids_scripts_of_others(ada: Client) -> None:
    for path in ("/", "/api/state", "/api/nothing", "/static/shared.css", "/static/nothing"):
        headers = ada.raw("GET", path)[1]
        assert headers["content-security-policy"] == POLICY and headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"feedback": "x" * 20_001}, "at most 20,000"),
        ({"feedback": "\ud800"}, "surrogate"),
        ({"feedback": 7}, "should be a text"),
        ({"feedback": ""}, "should say something"),
        ({"completion": "1"}, "should be the id"),
        ({"completion": 10**30}, ""),
        ({"spans": [{"start": 0, "end": 999, "verdict": "poor"}]}, "should end within"),
        ({"spans": [{"start": 3, "end": 3, "verdict": "poor"}]}, "behind start"),
        ({"spans": [{"start": 0, "end": 3, "verdict": "<b>"}]}, "verdict"),
        ({"spans": [{}] * 1001}, "at most 1000"),
        ({"notes": {"a": 1}}, "should be a list"),
        ({"score": "NaN"}, "should be a number"),
        ({"base": "1"}, "base"),
    ],
)
def test_what_is_not_meant_is_refused_with_a_reason(ada: Client, change: dict[str, object], words: str) -> None:
    status, found = ada("PUT", "/api/critiques", {"completion": 1, "feedback": "Fine.", "base": None} | change)
    assert status in (400, 404) and words in found["error"]


def test_hostile_texts_are_texts(served: Served, ada: Client) -> None:
    evil = "<script>alert(1)</script>\x00 \u202e ' OR 1=1; --"
    _, saved = ada("PUT", "/api/critiques", {"completion": 1, "feedback": evil, "score": 0.5, "base": None})
    assert saved["feedback"] == evil
    assert ada("POST", "/api/me", {"name": "<b>Ada</b>"})[1]["me"] == "<b>Ada</b>"
    for name in ("", " ", "x" * 41, "a\x00b", "a\nb\u202e", "\ud800", None):
        assert ada("POST", "/api/me", {"name": name})[0] == 400, name
    for data in (b"{", b"[]", b"7", b"[" * 100_000, b"\xff"):
        assert ada.raw("PUT", "/api/critiques", data)[0] == 400
    assert ada.raw("PUT", "/api/critiques", b" " * 1_000_001)[0] == 413
    for path in ("/api/prompts/x", "/api/prompts/-1", "/api/jobs/1e9", "/api/queue?offset=-1", "/api/queue?order=evil"):
        assert ada("GET", path)[0] == 400, path
    for path in ("/api/prompts/999", "/api/jobs/999", "/api/learned/9", "/api/learned/0"):
        assert ada("GET", path)[0] == 404, path
    assert served.client(None)("POST", "/api/prompts", {"prompt": "x"})[0] == 409  # nobody yet


def test_a_password_lets_other_machines_in(tmp_path: Path) -> None:
    store = Store(tmp_path / "studio.sqlite")
    filled(store)
    with Served(store, password="correct horse") as served:
        client = Client.__new__(Client)
        client.port, client.cookie = served.port, ""
        host = f"192.0.2.7:{served.port}"  # by its number, as from another machine
        assert client.raw("GET", "/", Host=host)[1]["location"] == "/login"
        form = {"Content_Type": "application/x-www-form-urlencoded", "Host": host, "X_Text2Grad": None}
        assert client.raw("POST", "/login", b"password=wrong", **form)[1]["location"] == "/login?wrong"
        time.sleep(PAUSE)
        assert client.raw("POST", "/login", b"password=correct+horse", Origin="http://evil.example", **form)[0] == 403
        status, headers, _ = client.raw("POST", "/login", b"password=correct+horse", **form)
        assert status == 303
        client.cookie = headers["set-cookie"].partition(";")[0]
        assert client("GET", "/api/state", Host=host)[0] == 200
        assert client("GET", "/api/state", Host=f"evil.example:{served.port}")[0] == 421
    store.close()


def test_the_server_brings_no_torch() -> None:
    names = ("commands.studio", "studio.server", "studio.folder", "studio.store", "studio.exports", "studio.people")
    code = f"import importlib, sys\n[importlib.import_module('text2grad.' + n) for n in {names}]\n"
    code += f"print(set(sys.modules) & {TENSORS!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_a_wrong_password_is_answered_at_once_and_not_looked_at_twice_a_second(tmp_path: Path) -> None:
    store = Store(tmp_path / "studio.sqlite")
    with Served(store, password="correct horse") as served:
        client = Client.__new__(Client)
        client.port, client.cookie = served.port, ""
        with ThreadPoolExecutor(30) as pool:
            found = [*pool.map(lambda _: client.raw("POST", "/login", b"password=wrong"), range(30))]
        assert [status for status, _, _ in found].count(429) >= 25
        assert all(headers["retry-after"] == "1" for status, headers, _ in found if status == 429)
    gate = Gate(served.server.config.app, store, TOKEN, host="h", port=1, password="correct horse")  # type: ignore[arg-type]
    assert gate.right_password("wrong", "a") is False and gate.right_password("correct horse", "a") is None
    assert gate.right_password("correct horse", "b") is True and gate.right_password("correct horse", "b") is True
    assert [gate.right_password("wrong", str(n)) for n in range(25)] == [False] * 19 + [None] * 6
    store.close()


def test_sessions_end_with_the_password_and_with_their_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "studio.sqlite")
    for password, known in (("correct horse", False), ("correct horse", True), ("battery staple", False)):
        Gate(None, store, TOKEN, host="h", port=1, password=password)  # type: ignore[arg-type]
        assert (store.session("mine") is not None) is known
        if not known:
            store.add_session("mine")
    assert "staple" not in json.dumps(store.get("password"))
    with store.writing():
        store._run("UPDATE sessions SET time = time - ?", 90 * 86400)
    assert store.session("mine") is None
    store.close()


def test_of_many_learns_at_once_one_begins(ada: Client) -> None:
    ada("PUT", "/api/critiques", {"completion": 2, "feedback": '"Nine" is wrong.', "base": None})
    for _ in range(5):
        with ThreadPoolExecutor(12) as pool:
            found = [*pool.map(lambda _: ada("POST", "/api/learn"), range(12))]
        assert sorted(status for status, _ in found) == [200] + [409] * 11
        (job,) = (answer["job"] for status, answer in found if status == 200)
        ada("POST", f"/api/jobs/{job}/cancel")


def test_a_name_is_not_taken_silently(served: Served) -> None:
    kim, other = served.client("Kim"), served.client(None)
    status, refused = other("POST", "/api/me", {"name": "Kim"})
    assert status == 409 and refused["taken"] and other.get("/api/state")["me"] is None
    assert kim("POST", "/api/me", {"name": "Kim"})[0] == 200
    assert other("POST", "/api/me", {"name": "Kim", "again": True})[0] == 200
    # Kim has another name now, and what she wrote is still hers.
    kim("PUT", "/api/critiques", {"completion": 1, "feedback": "Fine.", "base": None})
    for client in (kim, other):
        assert client("POST", "/api/me", {"name": "Lee", "again": True})[0] == 200
    assert served.client(None)("POST", "/api/me", {"name": "Kim"})[0] == 409


def test_lines_of_an_upload_end_at_newlines_only(ada: Client) -> None:
    rows = ['{"prompt": "a\u2028b\u0085c"}', '{"prompt": "d"}']
    found = json.loads(ada.raw("POST", "/api/upload", b"\xef\xbb\xbf" + "\r\n".join(rows).encode())[2])
    assert (found["added"], found["rejected"]) == (2, [])
    status, refused = ada("POST", "/api/prompts", {"prompt": " \n\u3000"})
    assert status == 400 and "can be seen" in refused["error"]


def test_an_upload_is_bounded_in_rows_and_can_be_undone(tmp_path: Path) -> None:
    store = Store(tmp_path / "studio.sqlite")
    filled(store)
    with Served(store, StudioSettings(upload_rows=3)) as served:
        ada, ben = served.client("Ada"), served.client("Ben")
        status, _, said = ada.raw("POST", "/api/upload", b'{"prompt": "a"}\n' * 4)
        assert status == 413 and b"at most 3 rows, got 4" in said and ada.get("/api/queue")["total"] == 3
        assert ada("POST", "/api/upload/undo")[0] == 400
        assert ada.raw("POST", "/api/upload", b'{"prompt": "a"}\n' * 3)[0] == 200
        assert "Ada's" in ben("DELETE", "/api/prompts/4")[1]["error"]
        assert "the task's" in ada("DELETE", "/api/prompts/1")[1]["error"]
        with store.writing():
            store.add_completions({4: [body()], 5: [body()]}, 0)
        (one,) = ada.get("/api/prompts/5")["completions"]
        ben("PUT", "/api/critiques", {"completion": one["id"], "feedback": "Fine.", "base": None})
        assert ada("DELETE", "/api/prompts/5")[0] == 409
        assert ada("DELETE", "/api/prompts/4")[0] == 200 and ada("GET", "/api/prompts/4")[0] == 404
        assert not store.completions(4, 0)
        assert ada("POST", "/api/upload/undo")[1] == {"removed": 1, "left": 1}
        assert ada.get("/api/queue")["total"] == 4
    store.close()


def test_a_strange_last_event_is_none(served: Served, ada: Client) -> None:
    link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    link.request("GET", "/api/events", headers={"Cookie": ada.cookie, "Last-Event-ID": "9" * 5000})
    assert link.getresponse().status == 200
    link.close()


def test_a_name_of_this_machine_is_answered_where_it_was_given(tmp_path: Path) -> None:
    store = Store(tmp_path / "studio.sqlite")
    gate = Gate(None, store, TOKEN, host="h", port=80, password="correct horse", names=["Studio.example"])  # type: ignore[arg-type]
    assert gate.known_host("studio.example") and not gate.known_host("evil.example")
    store.close()
