"""The studio's server: the page, the way to its API (`api.py`), and the events by which every open page hears what the
others do.

Enters: HTTP requests that have come through the `Gate`. Leaves: JSON, or a file. Imports no torch.
"""

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from text2grad._checked import shorten
from text2grad.errors import InvalidData, Text2GradError, first_line
from text2grad.studio.api import ROUTES, Handler, Refused, Studio, shown_job, upload
from text2grad.studio.security import Gate
from text2grad.studio.store import Row, Store

LARGEST = 1_000_000
"""Bytes of a request that is no upload."""
SHARED = "shared."
"""How the files of the report begin that the studio's page uses as well."""
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def make_app(
    studio: Studio, token: str, *, host: str, port: int, password: str | None = None, names: Collection[str] = ()
) -> Gate:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        listening = asyncio.create_task(_listen(studio))
        yield
        listening.cancel()

    routes = [Route("/static/{name:path}", _static), Route("/api/events", _events)]
    for path, handler, method in ROUTES:
        routes.append(Route(f"/api/{path}", _api(handler), methods=[method]))
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.studio = studio
    gate = Gate(app, studio.store, token, host=host, port=port, password=password, names=names)
    app.router.routes[:0] = [
        Route("/", partial(_page, gate=gate)),
        Route("/login", partial(_login, gate=gate), methods=["GET", "POST"]),
    ]
    return gate


def _api(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        studio: Studio = request.app.state.studio
        try:
            most = studio.settings.upload if handler is upload else LARGEST
            data = None if request.method == "GET" else await _body(request, most, raw=handler is upload)
            found = await run_in_threadpool(handler, studio, request, data)
        except Refused as refusal:
            return JSONResponse(refusal.body, refusal.status)
        except LookupError as problem:
            return JSONResponse({"error": str(problem.args[0])}, 404)
        except (Text2GradError, ValueError) as problem:
            return JSONResponse({"error": str(problem)}, 400)
        except Exception as problem:  # noqa: BLE001 - the page shows it, the terminal has all of it
            traceback.print_exc()
            return JSONResponse({"error": f"the server failed ({first_line(problem, named=True)})"}, 500)
        return found if isinstance(found, Response) else JSONResponse(found)

    return answer


async def _body(request: Request, most: int, *, raw: bool) -> Any:
    """What came with a request, and never more than is allowed."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise Refused(413, error=f"a request should have at most {most:,} bytes; send less at once")
        parts.append(part)
    data = b"".join(parts)
    if raw:
        return data
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as problem:
        raise InvalidData(f"the request should hold JSON, and it does not: {str(problem)[:100]}") from None
    if not isinstance(found, dict):
        raise InvalidData(f"the request should hold a JSON object, got {shorten(found)}")
    return found


# ------------------------------------------------------------------------------------------------------ pages and files


def _file(name: str) -> Response:
    """A file of the page, or one that it shares with the report. Looked for among those that there are: a name is never
    made into a path."""
    for folder, prefix in ((files("text2grad.studio") / "page", ""), (files("text2grad.report") / "templates", SHARED)):
        for entry in folder.iterdir() if folder.is_dir() else ():
            kind = KINDS.get("." + entry.name.rpartition(".")[2])
            if entry.name == name and name.startswith(prefix) and kind is not None:
                return Response(entry.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})
    return JSONResponse({"error": f"there is no file {name[:80]!r}"}, 404)


def _static(request: Request) -> Response:
    return _file(request.path_params["name"])


async def _page(request: Request, gate: Gate) -> Response:
    if "token" in request.query_params:
        if not gate.right_token(request.url.query):
            return _says(403, "The token is not that of this studio: it is new at each start.")
        reply: Response = RedirectResponse("/", 303)
        reply.headers["set-cookie"] = await run_in_threadpool(gate.enter)
        return reply
    if request.scope["session"] is None:
        if gate.password is not None:
            return RedirectResponse("/login", 303)
        return _says(401, "Open the address that `text2grad studio` has printed, with its token.")
    return _file("index.html")


def _says(status: int, words: str) -> Response:
    return Response(f"{words}\n", status, media_type="text/plain; charset=utf-8")


async def _login(request: Request, gate: Gate) -> Response:
    if gate.password is None:
        return _says(404, "This studio has no password: open the address that was printed, with its token.")
    if request.method == "GET":
        return _file("login.html")
    form = parse_qs((await _raw(request)).decode("utf-8", "replace"))
    right = gate.right_password(form.get("password", [""])[0], request.client.host if request.client else "")
    if right is None:
        refusal = _says(429, "Too many tries: wait a second, go back, and try again.")
        refusal.headers["retry-after"] = "1"
        return refusal
    if not right:
        return RedirectResponse("/login?wrong", 303)
    reply = RedirectResponse("/", 303)
    reply.headers["set-cookie"] = await run_in_threadpool(gate.enter)
    return reply


async def _raw(request: Request) -> bytes:
    try:
        return bytes(await _body(request, 10_000, raw=True))
    except Refused:
        return b""


# ------------------------------------------------------------------------------------------------------ events


async def _listen(studio: Studio) -> None:
    """Look for new events, of this process and of the worker, and wake those who wait."""
    studio.last = await run_in_threadpool(studio.store.last_event)
    while True:
        await asyncio.sleep(0.2)
        last = await run_in_threadpool(studio.store.last_event)
        if last != studio.last:
            async with studio.news:
                studio.last = last
                studio.news.notify_all()


def _events(request: Request) -> Response:
    studio: Studio = request.app.state.studio
    asked = request.headers.get("last-event-id", request.query_params.get("after", ""))
    after = int(asked) if asked.isdecimal() and len(asked) <= 15 else None
    return StreamingResponse(_stream(studio, after), media_type="text/event-stream")


async def _stream(studio: Studio, after: int | None) -> AsyncIterator[str]:
    seen = studio.last if after is None else min(after, studio.last)
    yield f"retry: 1000\nid: {seen}\nevent: state\ndata: {{}}\n\n"
    while True:
        for event in await run_in_threadpool(_news, studio.store, seen):
            seen = event["id"]
            yield f"id: {seen}\nevent: {event['kind']}\ndata: {event['body']}\n\n"
        try:
            async with studio.news:
                await asyncio.wait_for(studio.news.wait_for(partial(_is_behind, studio, seen)), 15)
        except TimeoutError:
            yield ": still here\n\n"


def _is_behind(studio: Studio, seen: int) -> bool:
    return studio.last > seen


def _news(store: Store, after: int) -> list[Row]:
    """Events, those of jobs with the whole job as it is now."""
    found = store.events(after)
    for event in found:
        if event["kind"] == "job":
            event["body"] = json.dumps({"job": shown_job(store.job(json.loads(event["body"])["id"]))})
    return found
