"""Lines of data → the same lines with critique, spans and what was missed; or the reason why not.

Enters: lines as bytes (or what is known to be none) and a critic. Leaves: for each line the completed row, or an
`Unannotated`. Knows no files: the stage reads and writes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from text2grad.errors import InvalidData
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.protocol import Answers, Critic, Prompt, ask
from text2grad.feedback.rows import Row, check_numbers, identity, read_object
from text2grad.types import Critique, Message

OWN = ("id", "prompt", "completion")
"""Fields with a meaning of their own; every other one goes to the critic as a column."""
BROUGHT = ("spans", "revision", "verdict")
"""What people said in a row beside their critique: no part of what another critic says of it."""
_RESERVED = ("self", "prompts", "completions")
"""Names of the protocol's own arguments: a column of such a name stays in the row, and no critic is given it."""


@dataclass(frozen=True, slots=True)
class Unannotated:
    """A line that was not annotated."""

    id: Any
    reason: str
    line: int | None = None
    """Of the file, where that is not the number of the item."""


@dataclass(frozen=True, slots=True)
class _Item:
    row: dict[str, Any]
    prompt: Prompt
    completion: str


async def annotate(
    lines: Sequence[bytes | Unannotated], critic: Critic, settings: AlignSettings
) -> list[dict[str, Any] | Unannotated]:
    """One result a line, in order."""
    found: list[dict[str, Any] | Unannotated | None] = [None] * len(lines)
    items: dict[int, _Item] = {}
    for index, line in enumerate(lines):
        if isinstance(line, Unannotated):
            found[index] = line
            continue
        try:
            items[index] = _item(read_object(line))
        except InvalidData as problem:
            found[index] = Unannotated(identity(line), str(problem))
    answers = await _ask_each(critic, list(items.values()))
    for (index, item), (critique, brought) in zip(items.items(), answers, strict=True):
        found[index] = (
            Unannotated(item.row["id"], critique)
            if isinstance(critique, str)
            else _completed(item, critique, settings, brought)
        )
    return [result for result in found if result is not None]


def reject(line: int, result: Unannotated) -> dict[str, Any]:
    """The row of `OUT.rejected.jsonl`."""
    return {"line": result.line or line, "id": result.id, "reason": result.reason}


def _item(row: dict[str, Any]) -> _Item:
    check_numbers(row)
    # Not the critique: what came is read by `people`, and by nobody else.
    checked = Row.of({**row, "critique": {"feedback": ""}, "spans": None})
    prompt = row.get("prompt")
    messages = tuple(Message.from_json(turn) for turn in prompt) if isinstance(prompt, list) else prompt or ""
    return _Item(row, messages, checked.completion)


async def _ask_each(critic: Critic, items: Sequence[_Item]) -> list[tuple[Critique | str, bool]]:
    """A critique an item, or why there is none; and whether what the row brings is part of it. All at once; where the
    critic refuses a column's content, one by one, so that only that row is rejected."""
    if not items:
        return []
    try:
        judged = await _ask(critic, items)
        return [
            (critique or _not_scored(judged.reasons.get(index)), index in judged.brought)
            for index, critique in enumerate(judged)
        ]
    except InvalidData as problem:
        if len(items) == 1:
            return [(str(problem), False)]
    return [(await _ask_each(critic, [item]))[0] for item in items]


async def _ask(critic: Critic, items: Sequence[_Item]) -> Answers:
    names = dict.fromkeys(name for item in items for name in item.row if name not in (*OWN, *_RESERVED))
    columns = {name: [item.row.get(name) for item in items] for name in names}
    return await ask(critic, [item.prompt for item in items], [item.completion for item in items], columns)


def _not_scored(reason: str | None) -> str:
    return f"not scored: {reason or 'the critic gave no critique, and no reason'}"


def _completed(item: _Item, critique: Critique, settings: AlignSettings, brought: bool) -> dict[str, Any] | Unannotated:
    row = item.row if brought else {**item.row, **dict.fromkeys(BROUGHT)}
    try:
        found = Row.of({**row, "critique": critique.to_json()}).align(settings)
    except InvalidData as problem:
        return Unannotated(item.row["id"], str(problem))
    said = critique.to_json() | {"omissions": list(found.omissions)}
    plain = found.to_json()
    return {**item.row, "critique": said, "spans": plain["spans"], "missed": plain["missed"]}
