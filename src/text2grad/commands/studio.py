"""`text2grad studio`: write critiques in the browser, and watch the model learn from them. And `studio export`."""

import argparse
import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

from text2grad import config
from text2grad.commands import parsing
from text2grad.errors import MissingExtra, UsageError
from text2grad.secrets import remember, without_password
from text2grad.studio.settings import StudioSettings

PASSWORD, STORE = "TEXT2GRAD_STUDIO_PASSWORD", "TEXT2GRAD_STUDIO_STORE"
FROM_RUN = (
    *("task", "data", "held_out", "columns", "task_options", "format", "seed"),
    *("policy.lora.rank", "sampling.max_new_tokens", "sampling.temperature"),
)
"""Settings that a studio takes over from a run whose model it opens."""
DEMO = "(made by text2grad.tasks.bulletin)"
"""The data of a run of the demo."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "text2grad studio [RUN | MODEL] [--out DIR] [--port N] [key=value …]\n"
        "       text2grad studio export DIR [--store URL] [--format FORMAT]"
    )
    parser.add_argument("words", nargs="*", metavar="RUN | MODEL key=value", help="a model or a run, and settings")
    parser.add_argument("--out", default="studio", metavar="DIR", help="the studio's folder (default: studio)")
    parser.add_argument("--port", type=int, default=8265, metavar="N", help="0: any free one (default: 8265)")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; other than loopback only with a password")
    name = "with --host: a DNS name of this machine, also twice"
    parser.add_argument("--name", action="append", default=[], metavar="HOST", help=name)
    parser.add_argument("--password", metavar="WORD", help=f"for people on other machines; better in {PASSWORD}")
    parser.add_argument(
        "--store", metavar="URL", help="postgresql://…, for a team, or in TEXT2GRAD_STUDIO_STORE; else SQLite"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--format", default="jsonl", choices=("jsonl", "label_studio", "argilla"), help="of `export`")
    parsing.add_settings(parser, StudioSettings)


def run(args: argparse.Namespace) -> int:
    others, overrides = parsing.split_overrides(args.words)
    remember(args.password, os.environ.get(PASSWORD))
    without_password(os.environ.get(STORE) or "")  # remembers it
    if others[:1] == ["export"]:
        return _export(args, others[1:], overrides)
    if len(others) > 1:
        raise UsageError(f"wants one model or run folder at most, got {len(others)}; see text2grad studio --help")
    if others:
        overrides = [*_of(others[0]), *overrides]
    settings = parsing.resolve(args, StudioSettings, overrides)
    if settings is None:
        return 0
    # PyTorch is the worker's: said before anybody waits for it.
    needed = ["starlette", "uvicorn", "torch", "transformers"]
    if (args.store or os.environ.get(STORE) or "").startswith("postgres"):
        needed.append("psycopg")
    if (missing := MissingExtra.among(needed, "text2grad studio")) is not None:
        raise missing
    from text2grad.studio.folder import Folder, read_settings
    from text2grad.studio.security import is_loopback

    password = args.password or os.environ.get(PASSWORD) or None
    if not is_loopback(args.host) and not password:
        raise UsageError(f"--host {args.host} lets other machines in, so it wants a password: set {PASSWORD}")
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port should be from 0 to 65535, got {args.port}")
    if password is not None and len(password) < 8:
        raise UsageError("the password should have at least 8 characters")
    plain = not others and not overrides and args.config is None and (Path(args.out) / "settings.yaml").exists()
    _check_critic(read_settings(Path(args.out)) if plain else settings)
    with Folder(Path(args.out), None if plain else settings, args.store or os.environ.get(STORE) or None) as folder:
        return _serve(args, folder, password)


def _check_critic(settings: StudioSettings) -> None:
    """A critic that cannot be had is refused here, where it is read; a reward model is opened by the worker."""
    from text2grad.feedback.critics.named import critic_named, refuse_people
    from text2grad.studio.settings import OF_TASK

    if settings.critic not in (None, OF_TASK):
        refuse_people(settings.critic)
        critic_named(settings.critic, settings.critics, lambda *_: critic_named("reference", settings.critics))


def _of(name: str) -> list[str]:
    """Settings for a run folder, or for a model by its name; a model alone brings no prompts: people add theirs."""
    path = Path(name).expanduser() / "config.yaml"
    words = [f"model={config.inline(name)}"]
    if not path.is_file():
        return [*words, "task=jsonl"]
    there = config.read(path)
    there |= {"task": "bulletin", "data": ""} if there.get("data") == DEMO else {}
    there |= config.flat(there)
    return [*words, *(f"{key}={config.inline(there[key])}" for key in FROM_RUN if there.get(key) not in (None, "", {}))]


def _serve(args: argparse.Namespace, folder: Any, password: str | None) -> int:
    import uvicorn

    from text2grad.studio.api import Studio
    from text2grad.studio.folder import Workshop, shown_store
    from text2grad.studio.server import make_app

    listening = _bound(args.host, args.port)
    port = listening.getsockname()[1]
    token, workshop = folder.new_token(), Workshop(folder)
    shown = (args.name or ["127.0.0.1"])[0] if args.host in ("0.0.0.0", "::") else args.host
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
    studio = Studio(folder.store, folder.settings, workshop.note)
    app = make_app(studio, token, host=shown, port=port, password=password, names=args.name)
    options = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=2, server_header=False
    )
    workshop.start()
    try:
        where = f"everything is in {folder.path}"
        if folder.url:
            where = f"what people write is in {shown_store(folder.url)}, the weights are in {folder.path}"
        print(f"the studio is open: {address}?token={token}\nCtrl-C closes it; {where}", flush=True)
        if args.open and not webbrowser.open(f"{address}?token={token}"):
            print("no browser could be started here: open the address yourself")
        uvicorn.Server(options).run(sockets=[listening])
    finally:
        workshop.stop()
    return 0


def _bound(host: str, port: int) -> Any:
    import socket

    six = ":" in host
    family, both = socket.AF_INET6 if six else socket.AF_INET, six and socket.has_dualstack_ipv6()
    try:
        # Whoever comes before the server is up waits.
        return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=both)
    except OSError as problem:
        raise UsageError(
            f"--host {host} --port {port}: cannot listen there ({problem.strerror}); name another --port"
        ) from None


def _export(args: argparse.Namespace, words: list[str], overrides: list[str]) -> int:
    if len(words) != 1 or overrides or not (Path(words[0]) / "settings.yaml").is_file():
        raise UsageError(
            "export wants the folder of a studio: text2grad studio export DIR [--store URL] [--format FORMAT]"
        )
    from text2grad.runs import write_atomic
    from text2grad.studio.exports import exported
    from text2grad.studio.folder import check_store, database_of
    from text2grad.studio.store import Store

    url = args.store or os.environ.get(STORE) or None
    check_store(Path(words[0]), url)
    store = Store(database_of(Path(words[0]), url), new=False)
    name, content = exported(store, args.format)
    store.close()
    target = Path(words[0]) / name
    write_atomic(target, content)
    print(f"wrote {target}", file=sys.stderr)
    return 0
