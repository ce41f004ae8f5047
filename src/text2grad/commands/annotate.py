"""`text2grad annotate`: completions → critiques → spans, by people, programs or models; resumable, nothing lost.

Every line of the input ends in `OUT.jsonl` (the line plus critique, spans, missed) or in `OUT.rejected.jsonl` (with the
reason). While it works, what is done lies in `OUT.jsonl.partial`; a rerun goes on from there. The finished files are
written whole, and `OUT.receipt.json` says what made them.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from text2grad import config
from text2grad._checked import Int
from text2grad.commands import parsing
from text2grad.commands._input import rereadable
from text2grad.commands._ledger import Items, Ledger, check_files, identity_of
from text2grad.commands._rejects import check_target, rejects_of, write_rejects
from text2grad.commands._spent import Spent
from text2grad.config import settings
from text2grad.errors import CriticError, InvalidData, UsageError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.annotate import Unannotated, reject
from text2grad.feedback.critics.budget import estimate
from text2grad.feedback.critics.named import CriticSettings, critic_named, models_in, sources_of
from text2grad.feedback.critics.openai import public_server_of
from text2grad.feedback.critics.protocol import Critic, said_of
from text2grad.feedback.people import PeopleSettings, Rejected, read_people, write_argilla, write_label_studio
from text2grad.feedback.people.items import Ids
from text2grad.feedback.rows import Row, check_numbers, identity, read_object
from text2grad.models.reward import open_critic
from text2grad.runs import encode_row


@settings
class AnnotateSettings:
    critic: str = "people"
    """Who writes the critiques: people, reference, support, code, openai:MODEL, module:object, the folder of a reward
    model, or first(…), merge(…), weighted(0.7*a, 0.3*b) of these."""
    batch: Annotated[Int, Gt(0)] = 256
    """Lines that are read, judged and written together; memory grows with it, and with nothing else."""
    critics: CriticSettings = field(default_factory=CriticSettings)
    """Settings of the critics."""
    people: PeopleSettings = field(default_factory=PeopleSettings)
    """How files of people and labelling tools are read."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How quotes are located; see `text2grad align --help`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad annotate IN.jsonl OUT.jsonl --critic NAME [key=value …] [--config FILE]"
    parser.add_argument("words", nargs="*", metavar="IN OUT key=value", help="input, output and settings")
    parser.add_argument("--critic", metavar="NAME", help="who writes the critiques; the same as critic=NAME")
    parser.add_argument(
        "--unsafe-no-sandbox",
        action="store_true",
        help="let the critic `code` run programs without a sandbox, as you, with your files and your network: only on "
        "a machine that can be thrown away",
    )
    parser.add_argument(
        "--tasks",
        choices=sorted(TASKS),
        help="write the rows as tasks for people to annotate, for this labelling tool, instead of asking a critic",
    )
    parsing.add_settings(parser, AnnotateSettings)


PEOPLES_FILES = (".csv", ".tsv", ".json")
"""Kinds of files that are read as people's, whatever the settings say."""
TASKS = {"argilla": write_argilla, "label_studio": write_label_studio}
FREE = (
    "batch",
    *(f"critics.openai.{name}" for name in ("api_key", "concurrency", "timeout", "retries")),
    *(f"critics.openai.{name}" for name in ("longest_wait", "drain", "cache", "budget", "structured")),
    "critics.code.workers",
    "critics.learned.batch_tokens",
)
"""Settings that change how the work is done, not what comes out: a rerun may change them and go on."""


def run(args: argparse.Namespace) -> int:
    files, overrides = parsing.split_overrides(args.words)
    if args.critic is not None:
        overrides.append(f"critic={config.inline(args.critic)}")
    if args.unsafe_no_sandbox:
        overrides.append("critics.code.unsafe=true")
    options = parsing.resolve(args, AnnotateSettings, overrides)
    if options is None:
        return 0
    if len(files) != 2:
        raise UsageError(f"wants IN.jsonl and OUT.jsonl, got {len(files)} files; see text2grad annotate --help")
    source, target = map(Path, files)
    check_target(source, target)
    check_files(target)
    with rereadable(source) as readable:
        return _run(readable, target, options, args.tasks)


def _run(source: Path, target: Path, options: AnnotateSettings, tasks: str | None) -> int:
    items = partial(_items, source, options.people)
    if tasks is not None:
        return _write_tasks(tasks, items, target)
    critic = critic_named(options.critic, options.critics, open_critic)
    identity = identity_of(options, FREE, sources_of(options.critic))
    if models_in(critic):
        # Wherever the address comes from: another server's critiques are another annotation.
        identity["settings"]["critics"]["openai"]["base_url"] = public_server_of(options.critics.openai)
    with Ledger(source, target, identity, items) as ledger:
        if ledger.finished:
            Spent(target, options.critics.openai.budget).forget()
            print(f"{target} is complete already: nothing to do", file=sys.stderr)
        else:
            _work(ledger, critic, options)
        return _report(ledger)


def _items(source: Path, options: PeopleSettings) -> Iterator[tuple[int, bytes | Unannotated]]:
    """JSON lines as they are; any other file, or one that the settings describe, as people's. Ids are unique."""
    if source.suffix not in PEOPLES_FILES and options.kind == "auto":
        with source.open("rb") as stream, Ids() as ids:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, _once(line, ids)
        return
    for number, found in enumerate(read_people(source, options), 1):
        if isinstance(found, Rejected):
            yield number, Unannotated(found.id, found.reason, found.line)
        else:
            yield number, encode_row(found)


def _once(line: bytes, ids: Ids) -> bytes | Unannotated:
    """The line, unless its id was there before. A line that has none is dealt with where lines are read."""
    try:
        row = read_object(line)
    except InvalidData:
        return line
    before = row.get("id")
    if not isinstance(before, str | int) or isinstance(before, bool):
        return line
    if (reason := ids.repeated(row)) is not None:
        return Unannotated(row["id"], reason)
    return line if row["id"] == before else _encoded(row)


def _encoded(row: dict[str, Any]) -> bytes | Unannotated:
    try:
        check_numbers(row)
    except InvalidData as problem:
        return Unannotated(row.get("id"), str(problem))
    return encode_row(row)


def _write_tasks(tool: str, items: Items, target: Path) -> int:
    """Tasks for a labelling tool; what cannot be read is reported beside them. Nothing that exists is written over."""
    for path in (target, target.with_suffix(".xml"), target.with_suffix(".settings.json")):
        if path.exists():
            raise UsageError(f"{path} exists already; name another file for the tasks, or delete it")
    rows: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    for number, item in items():
        if isinstance(item, Unannotated):
            rejected.append(reject(number, item))
            continue
        try:
            row = read_object(item)
            check_numbers(row)
            Row.of({**row, "critique": row.get("critique") or {"feedback": ""}})
            rows.append(row)
        except InvalidData as problem:
            rejected.append(reject(number, Unannotated(identity(item), str(problem))))
    TASKS[tool](rows, target)
    write_rejects(target, rejected)
    print(f"{len(rows):,} tasks in {target}, {len(rejected):,} rejected", file=sys.stderr)
    return 0 if not rejected else 1 if rows else 2


def _work(ledger: Ledger, critic: Critic, options: AnnotateSettings) -> None:
    models = models_in(critic)
    for model in models:
        left = ledger.lines - ledger.done
        sent = ledger.characters * left // max(ledger.lines, 1) + left * model.overhead()
        most = estimate(sent, left, model.options.max_tokens, model.options.budget)
        print(f"{model.__name__}: {most}, if nothing is remembered", file=sys.stderr)
    names = " + ".join(model.__name__ for model in models)
    with Spent(ledger.target, options.critics.openai.budget) as spent:
        for model in models:
            # One budget for one output, whoever spends it.
            model.tally, model.say = spent.tally, partial(print, file=sys.stderr)
        try:
            with _progress() as progress:
                task = progress.add_task("annotate", total=ledger.lines, completed=ledger.done)
                told = partial(_told, progress, task)
                try:
                    asyncio.run(ledger.work(critic, options.align, options.batch, told))
                except SystemExit as problem:
                    # From a task that the critic began: the loop passes it on, past all that is waiting.
                    raise CriticError(f"the critic {options.critic} raised {said_of(problem)}; mend it") from problem
            ledger.finish({"tally": {names: str(spent.tally)} if models else {}})
            spent.forget()
        finally:
            if models:
                print(f"{names}: {spent.tally}", file=sys.stderr)


def _told(progress: Progress, task: TaskID, done: int) -> None:
    progress.update(task, completed=done)


def _report(ledger: Ledger) -> int:
    annotated = ledger.done - ledger.rejected
    print(f"{annotated:,} annotated in {ledger.target}, {ledger.rejected:,} rejected", file=sys.stderr)
    if ledger.rejected:
        print(f"the reasons are in {rejects_of(ledger.target)}", file=sys.stderr)
    return 0 if not ledger.rejected else 1 if annotated else 2


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f}/s" if task.speed else "")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
