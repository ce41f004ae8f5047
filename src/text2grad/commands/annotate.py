"""`text2grad annotate`: completions → critiques → spans, by people, programs or models; resumable, nothing lost.

Every line of the input ends in `OUT.jsonl` (the line plus critique, spans, missed) or in `OUT.rejected.jsonl` (with the
reason). The work is `feedback/annotation.py`'s, the books are `runs/ledger.py`'s.
"""

import argparse
import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Gt

from text2grad._checked import Int
from text2grad.commands import parsing
from text2grad.config import settings
from text2grad.errors import CriticError, InvalidData, UsageError
from text2grad.feedback.align.helpers import Helpers
from text2grad.feedback.align.locator import Locator, locator_of
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.annotation import Fields, Read, annotate_file, identity_of, input_digest, read_items, rereadable
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.critics.named import critic_named, models_in, sources_of
from text2grad.feedback.critics.openai import OpenAICritic, server_of
from text2grad.feedback.critics.protocol import Critic, described
from text2grad.feedback.people import PeopleSettings, write_argilla, write_label_studio
from text2grad.feedback.rows import Rejected, Row, check_writable, identity
from text2grad.feedback.settings import HOW_CRITICS_ARE_ASKED, MANY_MISSED, CriticSettings
from text2grad.models.reward import open_critic
from text2grad.runs import read_jsonl
from text2grad.runs.display import Display
from text2grad.runs.ledger import Ledger, check_target, rejects_of, write_rejects
from text2grad.tasks.annotated import Annotated as AnnotatedRow
from text2grad.tasks.annotated import fields_of
from text2grad.tasks.task import open_task, reads_data


@settings
class AnnotateSettings:
    COMMON: ClassVar = (
        *("task", "critic", "batch", "critics.openai.base_url", "critics.openai.task"),
        *("critics.openai.instruction", "critics.openai.rubric", "critics.openai.temperature"),
        *("critics.openai.concurrency", "critics.openai.budget.requests", "critics.openai.budget.tokens"),
        *("critics.openai.budget.money", "critics.code.seconds", "critics.code.workers", "critics.learned.device"),
        *("columns", "people.kind"),
        *("people.units", "align.locator", "align.quotes.ambiguous", "align.quotes.fuzzy", "align.paraphrase.use"),
    )
    RENAMED: ClassVar = {"people.columns": "columns"}
    task: str = "jsonl"
    """jsonl: the input is a file of rows, or of people. defacto, qa_feedback, slf5k, ultrafeedback: a data set's file
    as published; the critic `people` uses its feedback. Or your own task as package.module:object; leave IN out if it
    reads no file."""
    task_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task, as task_options.NAME=value."""
    critic: str = "people"
    """Who writes the critiques: people, reference, support, grounded, code, openai:MODEL, module:object, the folder
    of a reward model, or first(…), merge(…), weighted(0.7*a, 0.3*b) of these."""
    batch: Annotated[Int, Gt(0)] = 256
    """Lines that are read, judged and written together. Memory depends on this alone."""
    critics: CriticSettings = field(default_factory=CriticSettings)
    """Settings of the critics."""
    columns: dict[str, str] = field(default_factory=dict)
    """What our columns are called in the file, nested ones too: columns.completion=output
    columns.revision=feedback.summary columns.tests=test_list."""
    people: PeopleSettings = field(default_factory=PeopleSettings)
    """How exports of labelling tools are read."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How quotes are located; see `text2grad align --help`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad annotate [IN.jsonl] OUT.jsonl --critic NAME [key=value …] [--config FILE]"
    parser.add_argument("words", nargs="*", metavar="IN OUT key=value", help="input, output and settings")
    parsing.add_unsafe(parser)
    tasks = "write the rows as tasks for people to annotate, for this labelling tool, instead of asking a critic"
    parser.add_argument("--tasks", choices=sorted(TASKS), help=tasks)
    parsing.add_settings(parser, AnnotateSettings)


TASKS = {"argilla": write_argilla, "label_studio": write_label_studio}
FREE = ("batch", *HOW_CRITICS_ARE_ASKED)


def run(args: argparse.Namespace) -> int:
    files, overrides = parsing.split_overrides(args.words)
    options = parsing.resolve(args, AnnotateSettings, overrides)
    if options is None:
        return 0
    source, target = _source_and_target(files, options.task)
    check_target(source, target)
    opened: AbstractContextManager[Path | None] = nullcontext() if source is None else rereadable(source)
    with opened as readable:
        if args.tasks is not None:
            return _write_tasks(args.tasks, target, _reader(options, readable))
        return _annotate(readable, target, options)


def _source_and_target(files: list[str], task: str) -> tuple[Path | None, Path]:
    """IN and OUT. A task of one's own may have no IN."""
    own = ":" in task
    if len(files) == 1 and own:
        return None, Path(files[0])
    if len(files) != 2:
        raise UsageError(f"wants IN.jsonl and OUT.jsonl, got {len(files)} files; see text2grad annotate --help")
    if own and not reads_data(task):
        raise UsageError(
            f"task={task} takes no data, and got {files[0]}; leave IN out: text2grad annotate {files[1]} task={task}"
        )
    return Path(files[0]), Path(files[1])


def _reader(options: AnnotateSettings, source: Path | None) -> Read:
    """How the input is read: as rows, or by a task."""
    if options.task == "jsonl":
        assert source is not None
        return partial(read_items, source, options.people, options.columns)

    def read() -> Iterator[tuple[int, Fields | Rejected]]:
        task = open_task(options.task, data=str(source or ""), options=options.task_options, columns=options.columns)
        rows = chain.from_iterable(task.annotated(split) for split in task.annotations or ("train",))
        for number, row in enumerate(rows, 1):
            yield number, _read(number, row, options.task)

    return read


def _read(number: int, row: object, task: str) -> Fields | Rejected:
    """What a task gives, as fields that can be written."""
    if isinstance(row, Rejected):
        return row
    if not isinstance(row, AnnotatedRow):
        raise InvalidData(f"task={task}: item {number} should be Annotated or Rejected, got {type(row).__name__}")
    fields = fields_of(row)
    try:
        check_writable(fields)
    except InvalidData as problem:
        return Rejected(number, identity(fields), str(problem))
    except TypeError as problem:
        return Rejected(number, identity(fields), f"should hold plain values only: {problem}")
    return fields


def _annotate(source: Path | None, target: Path, options: AnnotateSettings) -> int:
    # One budget for one output, whoever of several models spends it.
    budget = Budget(options.critics.openai.budget)
    critic = critic_named(options.critic, options.critics, open_critic, budget)
    locator = locator_of(options.align, options.critics, budget)
    read = _reader(options, source)
    depends_on = identity_of(options, FREE, sources_of(options.critic))
    if ":" in options.task:
        # Whatever it reads: an edited task, or one that reads another file, makes another annotation.
        depends_on["task_sha256"] = input_digest(read)
    if models_in(critic) or locator is not None:
        # Wherever the address comes from: another server's critiques are another annotation.
        depends_on["settings"]["critics"]["openai"]["base_url"] = server_of(options.critics.openai)
    with Ledger(source, target, depends_on) as ledger:
        if ledger.finished:
            print(f"{target} is complete already: nothing to do", file=sys.stderr)
        else:
            _work(source, read, ledger, critic, locator, budget, options)
        # The output is finished, and its receipt says what it cost.
        budget.journal_of(target).unlink(missing_ok=True)
    annotated = ledger.done - ledger.rejected
    print(f"{annotated:,} annotated in {target}, {ledger.rejected:,} rejected", file=sys.stderr)
    tell_missed(target)
    if ledger.rejected:
        tell_rejected(target)
    return 0 if not ledger.rejected else 1 if annotated else 2


def tell_missed(target: Path) -> None:
    """Say so where many of the critic's quotes were not located: what is not located is not learned from."""
    reasons: Counter[str] = Counter()
    located = 0
    for row in read_jsonl(target):
        # A quote that is found in several places (align.quotes.ambiguous=all) has several spans, and is one quote.
        found = [span for span in row["spans"] if span["provenance"] != "given"]
        located += len({(span.get("comment", ""), row["completion"][span["start"] : span["end"]]) for span in found})
        reasons.update(missed["reason"] for missed in row["missed"])
    missed = reasons.total()
    if missed > MANY_MISSED * (missed + located):
        reason, count = reasons.most_common(1)[0]
        print(
            f"{missed:,} of {missed + located:,} quotes ({missed / (missed + located):.0%}) were not found in their "
            f"completions; {count:,} times because: {reason}. Look at `missed` in {target}: a quote should be words of "
            f"the completion as it is",
            file=sys.stderr,
        )


def tell_rejected(target: Path) -> None:
    """Where the rejected rows are, and the commonest reason: numbers and values aside, it is mostly one."""
    rows = list(read_jsonl(rejects_of(target)))
    kinds = [re.sub(r"\d+|, got .*", "", row["reason"]) for row in rows]
    kind, count = Counter(kinds).most_common(1)[0]
    first = rows[kinds.index(kind)]
    print(
        f"{count:,} of {len(rows):,} rejected because, as in line {first['line']}: {first['reason']}", file=sys.stderr
    )
    print(f"all reasons are in {rejects_of(target)}", file=sys.stderr)


def _work(
    source: Path | None,
    read: Read,
    ledger: Ledger,
    critic: Critic,
    locator: Locator | None,
    budget: Budget,
    options: AnnotateSettings,
) -> None:
    judges = models_in(critic)
    models = [*judges, *models_in(locator)]
    helpers = Helpers(locate=locator)
    names = " + ".join(model.__name__ for model in models)
    items = sum(1 for _ in read())
    left = items - ledger.done
    for model in models:
        size = source.stat().st_size if source is not None else sum(len(str(fields)) for _, fields in read())
        cost = model.estimate(size * left // max(items, 1), left)
        print(f"{model.__name__}: {cost}, if nothing is remembered", file=sys.stderr)
    with budget.kept_beside(ledger.target) if models else nullcontext():
        try:
            with Display("annotate", items, ledger.done, show=True) as display:
                judged: Counter[OpenAICritic] = Counter()  # rows of a batch, which is written when all are done

                def one_more(model: OpenAICritic) -> None:
                    judged[model] += 1
                    display.step(ledger.done + max(judged.values()), {})

                def written(done: int) -> None:
                    judged.clear()
                    display.step(done, {})

                for model in judges:
                    model.told = partial(one_more, model)
                work = annotate_file(read, critic, options.align, ledger, options.batch, written, helpers)
                try:
                    asyncio.run(work)
                except KeyboardInterrupt:
                    most = max(judged.values(), default=0)
                    kept = f", and the replies to {most:,} more are remembered" if most else ""
                    display.note(f"{ledger.done:,} of {items:,} rows are written{kept}; the same command resumes there")
                    raise
                except SystemExit as problem:
                    # From a task that the critic began: the loop passes it on, past all that is waiting.
                    raise CriticError(f"the critic {options.critic} raised {described(problem)}; mend it") from problem
            ledger.finish({"tally": {names: str(budget)} if models else {}})
        finally:
            if models:
                print(f"{names}: {budget}", file=sys.stderr)
            if locator is not None:
                print(locator, file=sys.stderr)


def _write_tasks(tool: str, target: Path, read: Read) -> int:
    """Tasks for a labelling tool; what cannot be read is reported beside them. Nothing that exists is written over."""
    for path in (target, target.with_suffix(".xml"), target.with_suffix(".settings.json")):
        if path.exists():
            raise UsageError(f"{path} exists already; name another file for the tasks, or delete it")
    rows: list[dict[str, Any]] = []
    rejected: list[Rejected] = []
    for number, fields in read():
        if isinstance(fields, Rejected):
            rejected.append(fields)
            continue
        try:
            Row.of({**fields, "critique": fields.get("critique") or {"feedback": ""}})
            rows.append(fields)
        except InvalidData as problem:
            rejected.append(Rejected(number, identity(fields), str(problem)))
    TASKS[tool](rows, target)
    write_rejects(target, (each.to_json() for each in rejected))
    print(f"{len(rows):,} tasks in {target}, {len(rejected):,} rejected", file=sys.stderr)
    if rejected:
        tell_rejected(target)
    return 0 if not rejected else 1 if rows else 2
