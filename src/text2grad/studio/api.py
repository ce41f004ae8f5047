"""The studio's API: what the page asks for, one function each. `ROUTES` says which request goes to which.

Enters: the studio, a request of somebody who was let in, and its JSON. Leaves: plain values, or a refusal. All state is
in the store; what takes a model is a job for the worker. Imports no torch.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.report.completions import prompt_text
from text2grad.runs.jsonl import scan_lines
from text2grad.studio import people, words
from text2grad.studio.exports import FORMATS, exported
from text2grad.studio.settings import StudioSettings
from text2grad.studio.store import Row, Store
from text2grad.tasks.examples import example_of
from text2grad.types import Example

PARTS = {
    "direct": "Direct: words that people blamed become less likely where they stood, those they praised likelier, and "
    "what they put in instead as well; no critic is asked.",
    "rl": "RL: new completions are sampled, the critic judges them, and the policy is updated as by `text2grad train`.",
}


@dataclass
class Studio:
    """What the handlers need."""

    store: Store
    settings: StudioSettings
    note: Callable[[], str | None] = lambda: None
    """What is wrong with the worker, if anything is."""
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    """Told when there are new events."""
    last: int = 0


Handler = Callable[[Studio, Request, Any], Any]


class Refused(Exception):
    """An answer other than 400 to a request that cannot be done."""

    def __init__(self, status: int, **body: Any) -> None:
        self.status, self.body = status, body


def me_of(request: Request, *, needed: bool = True) -> str:
    name = (request.scope["session"] or {}).get("name")
    if name is None and needed:
        raise Refused(409, error="say who you are first: your name stands beside what you write")
    return str(name or "")


def set_me(studio: Studio, request: Request, data: Any) -> Any:
    name = " ".join((words.text_in(data, "name", 200, needed=True) or "").split())
    if not 1 <= len(name) <= 40 or not name.isprintable():
        raise InvalidData("name: should have 1 to 40 characters that can be seen")
    if not studio.store.name_session(request.scope["session"]["id"], name, again=data.get("again") is True):
        raise Refused(
            409,
            error=f"somebody is called {name} here already: if that is you, in another browser, say so; else take "
            f"another name",
            taken=True,
        )
    return {"me": name}


def shown_job(job: Row) -> dict[str, Any]:
    names = ("id", "kind", "state", "progress", "seconds_left", "message", "error", "author", "prompt")
    return {name: job[name] for name in names} | {
        "parts": [{"name": part, "what": PARTS[part]} for part in job.get("parts", [])],
        "version": job.get("version"),
    }


def learned_by(store: Store) -> dict[str, int]:
    """Critique → the edit of it that the current version has learned from."""
    return store.learned(store.get("version", 0))


def state(studio: Studio, request: Request, _: Any) -> Any:
    store, me = studio.store, me_of(request, needed=False)
    current, versions, jobs = store.get("version", 0), store.versions(), store.live_jobs()
    written = store.rows("SELECT id, author, time, version FROM critiques WHERE deleted = 0")
    learned = learned_by(store)
    (counts,) = store.rows(
        "SELECT (SELECT COUNT(*) FROM prompts) AS prompts, (SELECT COUNT(*) FROM completions) AS completions"
    )
    today = people.today_of(written)
    shown = ("version", "parent", "time", "updates", "critiques", "held_out", "kl")
    # What somebody waits for; completions that are sampled ahead are nobody's.
    job = next((job for job in jobs if job["kind"] != "sample"), next(iter(jobs), None))
    return {
        "me": me or None,
        "people": people.counts(written),
        "task": studio.settings.task,
        "model": studio.settings.model,
        "version": current,
        "versions": [{name: row.get(name) for name in shown} for row in versions],
        "can_undo": any(row["version"] == current and row["parent"] is not None for row in versions),
        "can_redo": bool(store.get("redo")),
        "critic": studio.settings.critic,
        "updates": studio.settings.learn.updates,
        "job": shown_job(job) if job else None,
        "counts": {
            **counts,
            "critiques": len(written),
            "today": len(today),
            "unlearned": sum(learned.get(str(row["id"])) != row["version"] for row in written),
        },
        "limits": {"feedback": studio.settings.feedback, "upload": studio.settings.upload},
        "ready": bool(versions),
        "note": studio.note() or (None if versions else _trouble(store)),
    }


def _trouble(store: Store) -> str | None:
    """Why there is no model, if that is known."""
    last = store.one("SELECT * FROM jobs WHERE kind = 'start' ORDER BY id DESC LIMIT 1")
    return f"The model could not be made: {last['error']}" if last and last["state"] == "failed" else None


def queue(studio: Studio, request: Request, _: Any) -> Any:
    asked = request.query_params
    offset, limit = (_number(asked.get(name, default), name) for name, default in (("offset", "0"), ("limit", "50")))
    order, only = asked.get("order", "uncertain"), asked.get("filter", "all")
    if order not in ("uncertain", "random", "file") or only not in ("all", "mine", "open"):
        raise InvalidData("order should be uncertain, random or file, and filter all, mine or open")
    total, rows = studio.store.queue(me_of(request, needed=False), order, only, offset, min(limit, 500))
    names = ("id", "completions", "critiques", "mine", "people", "uncertainty")
    items = [{name: row[name] for name in names} | {"prompt": prompt_text(words.example_in(row))[:200]} for row in rows]
    return {"total": total, "items": items}


def _number(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise InvalidData(f"{name}: should be a whole number, got {shorten(text)}")
    return int(text)


def add_prompt(studio: Studio, request: Request, data: Any) -> Any:
    prompt, reference = words.text_in(data, "prompt", 100_000, needed=True), words.text_in(data, "reference", 100_000)
    if not (prompt or "").strip():
        raise InvalidData("prompt: should have something in it that can be seen")
    example = Example("own", prompt or "", reference or None)
    (made,) = studio.store.add_prompts([words.example_body(example)], me_of(request))
    return {"id": made}


def upload(studio: Studio, request: Request, data: bytes) -> Any:
    """Prompts, or prompts with completions, one JSON object a line."""
    author, bodies, rejected = me_of(request), [], []
    rows, most = sum(1 for line in data.split(b"\n") if line.strip()), studio.settings.upload_rows
    if rows > most:
        raise Refused(413, error=f"a file should have at most {most:,} rows, got {rows:,}; nothing was added: split it")
    for _, number, row in scan_lines(BytesIO(data)):
        try:
            if isinstance(row, InvalidData):
                raise row
            given = words.text_in(row, "completion", 100_000)
            row.pop("completion", None)
            example = example_of(row, f"line-{number}")
            json.dumps(example.to_json(), ensure_ascii=False).encode()
            bodies.append(words.example_body(example, [given] if given else []))
        except UnicodeError:
            rejected.append({"line": number, "why": "should be text in UTF-8, got escapes that are none"})
        except (ValueError, RecursionError) as problem:
            rejected.append({"line": number, "why": str(problem)[:300]})
    made: list[int] = []
    if bodies:
        with studio.store.writing():
            made = studio.store.add_prompts(bodies, author)
            studio.store.put(f"upload {author}", [made[0], made[-1]])
    return {"added": len(made), "rejected": rejected[:100], "rejected_count": len(rejected)}


def undo_upload(studio: Studio, request: Request, _: Any) -> Any:
    """Takes this person's latest upload out of the queue again."""
    author = me_of(request)
    last = studio.store.get(f"upload {author}")
    if last is None:
        raise InvalidData("there is no upload of yours to undo")
    removed, left = studio.store.remove_prompts(last[0], last[1], author)
    with studio.store.writing():
        studio.store.put(f"upload {author}", None)
    return {"removed": removed, "left": left}


def delete_prompt(studio: Studio, request: Request, _: Any) -> Any:
    row, author = studio.store.prompt(_id(request)), me_of(request)
    if row["author"] != author:
        raise InvalidData(f"prompt {row['id']} is {row['author'] or 'the task'}'s; you can take out only your own")
    if not studio.store.remove_prompts(row["id"], row["id"], author)[0]:
        raise Refused(409, error="somebody has written about this prompt, so it stays")
    return {"removed": 1}


def get_prompt(studio: Studio, request: Request, _: Any) -> Any:
    store = studio.store
    row, version = store.prompt(_id(request)), store.get("version", 0)
    shown: dict[str, Any] = {
        "id": row["id"],
        "prompt": prompt_text(words.example_in(row)),
        "reference": row["reference"],
        "author": row["author"],
        "version": version,
    }
    here = store.completions(row["id"], version)
    criticised = store.rows(
        "SELECT * FROM completions WHERE prompt = ? AND version <> ? AND id IN "
        "(SELECT completion FROM critiques WHERE prompt = ? AND deleted = 0) ORDER BY id DESC LIMIT 20",
        *(row["id"], version, row["id"]),
    )
    by_completion: dict[int, list[Row]] = {}
    for critique in store.critiques("prompt = ?", row["id"]):
        by_completion.setdefault(critique["completion"], []).append(critique)
    learned = learned_by(store)

    def with_critiques(each: Row) -> dict[str, Any]:
        said = [words.shown_critique(one, each["text"], learned) for one in by_completion.get(each["id"], [])]
        return words.shown_completion(each) | {"critiques": said}

    shown |= {"completions": [*map(with_critiques, here)], "earlier": [*map(with_critiques, criticised)]}
    if not here:
        shown["sampling"] = store.add_job("sample", prompt=row["id"], count=studio.settings.completions)
    return shown


def _id(request: Request) -> int:
    return _number(request.path_params["id"], "id")


def sample(studio: Studio, request: Request, data: Any) -> Any:
    count = data.get("n", studio.settings.completions)
    if type(count) is not int or not 1 <= count <= 4:
        raise InvalidData(f"n: should be a number of completions from 1 to 4, got {shorten(count)}")
    prompt = studio.store.prompt(_id(request))
    return {"job": studio.store.add_job("sample", me_of(request), prompt=prompt["id"], count=count, more=True)}


def align(studio: Studio, _: Request, data: Any) -> Any:
    completion, example = _completion(studio.store, data)
    return words.preview(example, completion, data, studio.settings.feedback, studio.settings.align)


def _completion(store: Store, data: Any) -> tuple[Row, Example]:
    number = data.get("completion")
    if type(number) is not int or not 0 < number < 2**53:
        raise InvalidData(f"completion: should be the id of one, got {shorten(number)}")
    row = store.completion(number)
    return row, words.example_in(store.prompt(row["prompt"]))


def save_critique(studio: Studio, request: Request, data: Any) -> Any:
    author, store = me_of(request), studio.store
    row, example = _completion(store, data)
    said, found, by_hand = words.read(
        example, words.completion_in(row), data, studio.settings.feedback, studio.settings.align
    )
    if not said.feedback.strip() and said.revision is None and said.score is None and not found.spans:
        raise InvalidData(
            "a critique should say something: write what is good or poor, mark words, correct or score it"
        )
    base = data.get("base")
    if base is not None and type(base) is not int:
        raise InvalidData(f"base: should be the version of the critique that was edited, or null, got {shorten(base)}")
    body = words.critique_body(said, found, by_hand, data.get("notes"))
    return _saved(store, store.save_critique(row["id"], author, body, base), row["text"])


def _saved(store: Store, outcome: tuple[bool, Row], text: str) -> Any:
    done, there = outcome
    shown = words.shown_critique(there, text, learned_by(store))
    if not done:
        raise Refused(
            409,
            error=f"this critique was changed meanwhile, in another tab or by another request: it is at version "
            f"{there['version']}; look at it, and save again from there",
            current=shown,
        )
    return shown


def delete_critique(studio: Studio, request: Request, data: Any) -> Any:
    outcome = studio.store.delete_critique(_id(request), me_of(request), data.get("base"))
    return _saved(studio.store, outcome, studio.store.completion(outcome[1]["completion"])["text"])


def step_critique(by: int) -> Handler:
    def step(studio: Studio, request: Request, _: Any) -> Any:
        there = studio.store.step_critique(_id(request), me_of(request), by)
        return _saved(studio.store, (True, there), studio.store.completion(there["completion"])["text"])

    return step


def learn(studio: Studio, request: Request, data: Any) -> Any:
    author, store, settings = me_of(request), studio.store, studio.settings
    updates, critic = data.get("updates", settings.learn.updates), data.get("critic", settings.critic is not None)
    if type(updates) is not int or not 1 <= updates <= 1000:
        raise InvalidData(f"updates: should be a whole number from 1 to 1000, got {shorten(updates)}")
    if critic and settings.critic is None:
        raise InvalidData("critic: this studio was started without one; start it with critic=NAME to add RL")
    with store.writing():  # no other Learn begins between the look and the job
        _refuse_while_learning(store)
        return {"job": store.add_job("learn", author, updates=updates, parts=_parts(store, critic))}


def _refuse_while_learning(store: Store) -> None:
    if any(job["kind"] in ("learn", "undo", "redo") for job in store.live_jobs()):
        raise Refused(409, error="the model is learning, or going back, already; wait for it, or cancel it")


def _parts(store: Store, critic: bool) -> list[str]:
    """What a Learn consists of; there has to be something."""
    written = store.critiques()
    teaching = [row for row in written if teaches(row)]
    if not teaching and not critic:
        why = (
            "nobody has written a critique yet"
            if not written
            else (
                f"none of the {len(written)} critiques says which words are good or poor, corrects them, or scores two "
                f"completions of one prompt"
            )
        )
        raise InvalidData(f"there is nothing to learn from: {why}")
    return [*(["direct"] if teaching else []), *(["rl"] if critic else [])]


def teaches(row: Row) -> bool:
    """Whether the direct loss can learn from a critique."""
    found = row["alignment"]
    return bool(
        any(span["verdict"] != "neutral" for span in found["spans"])
        or found["omissions"]
        or row["revision"]
        or row["score"] is not None
    )


def go(kind: str) -> Handler:
    def back_or_forth(studio: Studio, request: Request, _: Any) -> Any:
        store, author = studio.store, me_of(request)
        with store.writing():
            _refuse_while_learning(store)
            if kind == "redo" and not store.get("redo"):
                raise InvalidData("there is no learning to redo")
            if kind == "undo" and store.version(store.get("version", 0))["parent"] is None:
                raise InvalidData("there is no learning to undo: this is the start")
            return {"job": store.add_job(kind, author)}

    return back_or_forth


def cancel(studio: Studio, request: Request, _: Any) -> Any:
    studio.store.cancel_job(_id(request), me_of(request))
    return shown_job(studio.store.job(_id(request)))


def get_job(studio: Studio, request: Request, _: Any) -> Any:
    return shown_job(studio.store.job(_id(request)))


def learned(studio: Studio, request: Request, _: Any) -> Any:
    row, found = studio.store.version(_id(request)), studio.store.comparison(_id(request))
    if not found:
        raise LookupError(f"version {row['version']} is the start: nothing was learned there")
    return found | {
        "version": row["version"],
        "parts": [{"name": n, "what": PARTS[n]} for n in row["parts"]],
    }


def agreement(studio: Studio, _: Request, __: Any) -> Any:
    return people.agreement_of(studio.store)


def progress(studio: Studio, _: Request, __: Any) -> Any:
    return people.progress_of(studio.store)


def export(studio: Studio, request: Request, _: Any) -> Any:
    kind = request.query_params.get("format", "jsonl")
    if kind not in FORMATS:
        raise InvalidData(f"format: should be one of {', '.join(FORMATS)}, got {shorten(kind)}")
    name, content = exported(studio.store, kind)
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


ROUTES: list[tuple[str, Handler, str]] = [
    ("me", set_me, "POST"),
    ("state", state, "GET"),
    ("queue", queue, "GET"),
    ("prompts", add_prompt, "POST"),
    ("upload", upload, "POST"),
    ("upload/undo", undo_upload, "POST"),
    ("prompts/{id}", get_prompt, "GET"),
    ("prompts/{id}", delete_prompt, "DELETE"),
    ("prompts/{id}/sample", sample, "POST"),
    ("align", align, "POST"),
    ("critiques", save_critique, "PUT"),
    ("critiques/{id}/undo", step_critique(-1), "POST"),
    ("critiques/{id}/redo", step_critique(+1), "POST"),
    ("critiques/{id}", delete_critique, "DELETE"),
    ("learn", learn, "POST"),
    ("learn/undo", go("undo"), "POST"),
    ("learn/redo", go("redo"), "POST"),
    ("jobs/{id}/cancel", cancel, "POST"),
    ("jobs/{id}", get_job, "GET"),
    ("learned/{id}", learned, "GET"),
    ("agreement", agreement, "GET"),
    ("progress", progress, "GET"),
    ("export", export, "GET"),
]
