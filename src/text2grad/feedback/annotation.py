"""Annotation: rows in → critic → alignment → rows out. Every item of the input ends as a row or as `Rejected`.

Read top to bottom: `read_items` gives the items of a file, `annotate` judges and aligns a batch of them, and
`annotate_file` does so for a whole file and enters the results in a `Ledger`, where they survive a kill.
"""

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from text2grad import config
from text2grad.errors import InvalidData, UsageError
from text2grad.feedback.align.helpers import NO_HELP, Helpers, Memory
from text2grad.feedback.align.ladder import in_rounds
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.named import models_in
from text2grad.feedback.critics.protocol import Critic, Prompt, ask
from text2grad.feedback.people import PeopleSettings
from text2grad.feedback.people.read import numbered
from text2grad.feedback.rows import Rejected, Row, identity, spans_in
from text2grad.runs import no_space_named
from text2grad.runs.ledger import Ledger
from text2grad.types import Alignment, Critique, Message

OWN = ("id", "prompt", "completion")
"""Fields with a meaning of their own; every other one goes to the critic as a column."""
_RESERVED = ("self", "prompts", "completions")
"""Names of the protocol's own arguments: a column of such a name stays in the row, and no critic is given it."""

_NO_REASON = "the critic gave no critique, and no reason"

Fields = dict[str, Any]
Read = Callable[[], Iterable[tuple[int, Fields | Rejected]]]
"""The input: (ascending number, fields or why there are none), the same each time."""


@contextmanager
def rereadable(source: Path) -> Iterator[Path]:
    """`source` itself; of a pipe (`<(…)`, /dev/stdin, a FIFO) a copy of the same name, deleted after the block."""
    try:
        mode = source.stat().st_mode
    except OSError as problem:
        raise InvalidData(f"{source}: should be a readable file of JSON lines: {problem.strerror}") from None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or source.resolve() == Path(os.devnull):
        yield source
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise UsageError(f"{source}: should be a file or a pipe, got a device; copy what it holds to a file first")
    with tempfile.TemporaryDirectory(prefix="text2grad-") as folder:
        copy = Path(folder) / source.name
        with no_space_named(copy), source.open("rb") as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file)
        yield copy


def read_items(
    source: Path, people: PeopleSettings, columns: Mapping[str, str]
) -> Iterator[tuple[int, Fields | Rejected]]:
    """(ascending number, fields or why there are none) of any file of rows or of people. Ids are unique."""
    number = 0
    for line, row in numbered(source, people, columns):
        # A labelling tool's item may be several rows.
        number = max(number + 1, line)
        yield number, row


async def annotate(
    items: Sequence[tuple[int, Fields | Rejected]],
    critic: Critic,
    settings: AlignSettings,
    helpers: Helpers = NO_HELP,
) -> list[Fields | Rejected]:
    """For each item, in order: the fields with `critique`, `spans` and `missed`, or why not. `helpers`: those that the
    settings name, opened."""
    results: list[Fields | Rejected] = [found for _, found in items]
    asked: list[tuple[int, Fields, Row, Prompt]] = []
    for index, (number, fields) in enumerate(items):
        if isinstance(fields, Rejected):
            continue
        try:
            asked.append((index, fields, Row.unjudged(fields), _prompt(fields)))
        except InvalidData as problem:
            results[index] = Rejected(number, identity(fields), str(problem))
    critiques = await _ask(critic, [(fields, item.completion, prompt) for _, fields, item, prompt in asked])
    judged: list[tuple[int, Fields, Row]] = []
    for (index, fields, item, _), (critique, brought) in zip(asked, critiques, strict=True):
        try:
            if isinstance(critique, str):
                raise InvalidData(critique)
            judged.append((index, fields, _judged(fields, item, critique, brought)))
        except InvalidData as problem:
            results[index] = Rejected(items[index][0], identity(fields), str(problem))
    memory, found = Memory(helpers), list[Alignment | InvalidData]()
    for _ in in_rounds([row.pair for *_, row in judged], settings, memory, found):
        await memory.settle_async()
    for (index, fields, row), alignment in zip(judged, found, strict=True):
        if isinstance(alignment, InvalidData):
            results[index] = Rejected(items[index][0], identity(fields), str(alignment))
        else:
            located = row.with_given(alignment)
            said = row.critique.to_json() | {"omissions": list(located.omissions)}
            results[index] = fields | {"critique": said} | {key: located.to_json()[key] for key in ("spans", "missed")}
    return results


async def annotate_file(
    read: Read,
    critic: Critic,
    settings: AlignSettings,
    ledger: Ledger,
    batch: int,
    told: Callable[[int], None],
    helpers: Helpers = NO_HELP,
) -> None:
    """Annotate what the ledger does not have yet, batch by batch. What is done when this stops, however it stops, stays
    done."""
    async with AsyncExitStack() as stack:
        for model in (*models_in(critic), *models_in(helpers.locate)):
            await stack.enter_async_context(model)
        left = (item for item in read() if item[0] > ledger.last)
        while items := list(islice(left, batch)):
            results = await annotate(items, critic, settings, helpers)
            ledger.append(
                [
                    {"line": number} | ({"rejected": r.to_json()} if isinstance(r, Rejected) else {"row": r})
                    for (number, _), r in zip(items, results, strict=True)
                ]
            )
            told(ledger.done)


def input_digest(read: Read) -> str:
    """sha256 of an input that is more than a file's bytes."""
    digest = hashlib.sha256()
    for number, found in read():
        plain = found.to_json() if isinstance(found, Rejected) else found
        digest.update(json.dumps([number, plain]).encode() + b"\n")
    return digest.hexdigest()


def identity_of(options: Any, free: Sequence[str], sources: Mapping[str, str]) -> dict[str, Any]:
    """What a result depends on beside the input: the settings, without those (`free`) that change only how the work is
    done, and the hashes of the critics' own `sources`, where there are any."""
    tree = config.plain(options)
    for key in free:
        *above, last = key.split(".")
        branch = tree
        for part in above:
            branch = branch[part]
        branch.pop(last)
    return {"settings": tree} | ({"critics": dict(sources)} if sources else {})


def _prompt(fields: Fields) -> Prompt:
    prompt = fields.get("prompt")
    return tuple(map(Message.from_json, prompt)) if isinstance(prompt, list) else prompt or ""


async def _ask(critic: Critic, items: Sequence[tuple[Fields, str, Prompt]]) -> list[tuple[Critique | str, bool]]:
    """For each item its critique, or why there is none; and whether what the row brings is part of it. All at once;
    where the critic refuses a column's content, one by one, so that only that row is rejected."""
    if not items:
        return []
    names = dict.fromkeys(name for fields, *_ in items for name in fields if name not in (*OWN, *_RESERVED))
    columns = {name: [fields.get(name) for fields, *_ in items] for name in names}
    try:
        critiques = await ask(critic, [prompt for *_, prompt in items], [text for _, text, _ in items], columns)
    except InvalidData as problem:
        if len(items) == 1:
            return [(str(problem), False)]
        return [(await _ask(critic, [item]))[0] for item in items]
    return [
        (critique or f"not scored: {critiques.reasons.get(index) or _NO_REASON}", index in critiques.brought)
        for index, critique in enumerate(critiques)
    ]


def _judged(fields: Fields, row: Row, critique: Critique, brought: bool) -> Row:
    """`brought`: the row's own spans, revision and verdict are part of what was said. Otherwise people said them, and
    they are no part of what another critic says."""
    spans = spans_in(fields, row.completion) if brought else ()
    judged = row if brought else replace(row, revision=None, verdict=None)
    return replace(judged, critique=critique, spans=spans)
