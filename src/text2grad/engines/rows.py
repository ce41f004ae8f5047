"""Neutral rows: what a trainer needs to learn from a completion, as ids and numbers, in JSONL or Parquet.

Enters: rollouts, or a file of rows. Leaves: `TrainingRow`s, checked; docs/engines/README.md is their contract. Knows no
torch, no tokenizer and no engine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from text2grad._checked import Flag, InOrder, Int, Real, checked
from text2grad.errors import InvalidData, MissingExtra, RunError
from text2grad.runs import aside, encode_row, read_jsonl, write_atomic
from text2grad.runs.tables import read_table
from text2grad.types import Identity, Ids, Noun, Numbers, Rollout

RowFormat = Literal["jsonl", "parquet"]
Bits = Annotated[tuple[Annotated[Int, Ge(0)], ...], InOrder]


@checked(InvalidData)
class TrainingRow(Noun):
    """One completion, ready to be learned from. Every stream has one entry per completion id.

    >>> row = TrainingRow("a", "1-0", prompt_ids=(5, 6), completion_ids=(7, 0), mask=(1, 1), token_rewards=(-1.0, 0.0))
    >>> row.scored, TrainingRow.from_json(row.to_json()) == row
    (True, True)
    >>> TrainingRow("a", "1-0", prompt_ids=(5,), completion_ids=(7, 0), mask=(1, 1), token_rewards=(-1.0,))
    Traceback (most recent call last):
    text2grad.errors.InvalidData: TrainingRow: token_rewards should hold one entry per completion id, got 1 for 2 ids; \
write 0 where there is nothing to say
    """

    id: Identity
    """Of the example."""
    group: Identity
    """Completions of the same prompt and the same update share it: baselines are taken within a group."""
    prompt_ids: Ids
    completion_ids: Ids
    """As sampled, the end token included where the model wrote one."""
    mask: Bits
    """1: sampled by the policy, which learns from it. 0: written by a tool, or the row is unscored."""
    logprobs: Numbers | None = None
    """Of the completion ids, under the distribution that they were sampled from."""
    token_rewards: Numbers | None = None
    """In the critic's units. Null: the critic did not score it, which is not a reward of 0."""
    verdicts: Numbers | None = None
    """1 in good spans, −1 in poor ones, 0 elsewhere: what `anchored` and `local` need beside the rewards."""
    advantages: Numbers | None = None
    """As they go into the loss. Null: not computed."""
    score: Real | None = None
    """Of the whole completion."""
    truncated: Flag = False
    """Cut off at the length limit."""
    update: Annotated[Int, Ge(0)] | None = None
    """Of the run that sampled it."""

    def __post_init__(self) -> None:
        for name in ("prompt_ids", "completion_ids"):
            if not getattr(self, name):
                raise ValueError(f"{name} should hold at least one id, got none; leave the row out")
        length = len(self.completion_ids)
        for name in ("mask", "logprobs", *CREDIT):
            stream = getattr(self, name)
            if stream is not None and len(stream) != length:
                hint = "write 0 where there is nothing to say" if name != "logprobs" else "or leave the field out"
                raise ValueError(
                    f"{name} should hold one entry per completion id, got {len(stream)} for {length} ids; {hint}"
                )
        if wrong := [bit for bit in self.mask if bit not in (0, 1)]:
            raise ValueError(f"mask should hold 0 and 1, got {wrong[0]}")
        if self.logprobs is not None and (above := [each for each in self.logprobs if each > 1e-4]):
            raise ValueError(f"logprobs should be at most 0, got {above[0]}; are these probabilities?")
        if other := [each for each in self.verdicts or () if each not in (-1, 0, 1)]:
            raise ValueError(f"verdicts should hold 1, -1 and 0, got {other[0]}; amounts belong into token_rewards")
        if not self.scored and (any(self.mask) or self.advantages is not None or self.score is not None):
            raise ValueError(
                "token_rewards is missing, so the row is unscored: then mask should be all 0, advantages and score "
                "null; write the rewards, or clear the others"
            )
        for name in CREDIT:
            stream = getattr(self, name) or ()
            spilt = [i for i, (bit, each) in enumerate(zip(self.mask, stream, strict=False)) if each and not bit]
            for place in spilt[:1]:
                raise ValueError(
                    f"{name}[{place}] should be 0 because mask[{place}] is 0, got {stream[place]}; "
                    f"move what it holds to a token that was sampled"
                )

    @property
    def scored(self) -> bool:
        return self.token_rewards is not None

    def learned_from(self, engine: str) -> tuple[Numbers, Numbers]:
        """Its log-probs and its advantages, both of which this engine needs."""
        if self.advantages is None or self.logprobs is None:
            raise InvalidData(
                f"the row of example {self.id!r} should have logprobs and advantages for {engine}; "
                f"judge(…, logprobs=…) keeps the one, text2grad.with_advantages(rows) makes the other"
            )
        return self.logprobs, self.advantages


CREDIT = ("token_rewards", "verdicts", "advantages")
"""Streams that are 0 where the mask is."""


def training_rows(rollouts: Iterable[Rollout], *, update: int | None = None) -> list[TrainingRow]:
    """Rollouts of one update, from `judge` or a run, as rows. Unscored ones are carried, with a mask of 0.

    Raises `InvalidData` where a rollout does not know its prompt: `judge(…, prompt_ids=…)` keeps it."""
    return [_row(rollout, update) for rollout in rollouts]


def _row(rollout: Rollout, update: int | None) -> TrainingRow:
    if not rollout.prompt_ids:
        raise InvalidData(
            f"the rollout of example {rollout.example.id!r} has no prompt_ids: runs of `train` log them, and "
            f"judge(…, prompt_ids=…) keeps them"
        )
    scored, length = rollout.scored, len(rollout.completion.token_ids)
    return TrainingRow(
        rollout.example.id,
        f"{'' if update is None else f'{update}-'}{rollout.group}",
        rollout.prompt_ids,
        rollout.completion.token_ids,
        (int(scored),) * length,
        rollout.logprobs,
        rollout.token_rewards,
        rollout.verdicts,
        rollout.advantages if scored else None,
        rollout.score if scored else None,
        rollout.truncated,
        update,
    )


# ------------------------------------------------------------------------------------------------------------ files


def read_training_rows(path: str | Path) -> Iterator[TrainingRow]:
    """The rows of a JSONL or Parquet file. The first one that breaks the contract is an `InvalidData` with its line."""
    for number, row in read_table(path):
        yield _checked_row(path, number, row)


def write_training_rows(path: str | Path, rows: Iterable[TrainingRow], form: RowFormat | None = None) -> int:
    """Write a file, whole or not at all; how many rows. `form`: null takes it from the name."""
    path, count = Path(path), 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in rows:
            count += 1
            yield row.to_json()

    if (form or path.suffix[1:]) == "parquet":
        _write_parquet(path, counted())
    else:
        write_atomic(path, (encode_row(row) for row in counted()))
    return count


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as problem:
        raise MissingExtra.of(problem, f"writing {path}") or problem from None
    ids, numbers = pyarrow.list_(pyarrow.int64()), pyarrow.list_(pyarrow.float64())
    kinds = {"id": pyarrow.string(), "group": pyarrow.string(), "prompt_ids": ids, "completion_ids": ids, "mask": ids}
    kinds |= dict.fromkeys(("logprobs", *CREDIT), numbers)
    kinds |= {"score": pyarrow.float64(), "truncated": pyarrow.bool_(), "update": pyarrow.int64()}
    schema = pyarrow.schema(list(kinds.items()))
    with aside(path) as scratch, parquet.ParquetWriter(scratch, schema) as writer:
        while part := list(islice(rows, 1024)):
            writer.write_table(pyarrow.Table.from_pylist(part, schema))


@dataclass(frozen=True, slots=True)
class RowsFound:
    """What `check_training_rows` saw."""

    rows: int
    unscored: int
    without_advantages: int
    """Scored rows that have none."""
    groups: int
    problems: tuple[str, ...]
    """File, line, field, and what to do; at most `MOST` of them."""


MOST = 20


def check_training_rows(path: str | Path) -> RowsFound:
    """Read a whole file and say everything that breaks the contract, laws between rows included."""
    problems: list[str] = []
    prompts: dict[str, tuple[int, tuple[int, ...]]] = {}
    rows = unscored = bare = 0
    for number, found in _readable(path, problems):
        rows += 1
        try:
            row = _checked_row(path, number, found)
        except InvalidData as problem:
            problems += str(problem).splitlines()
            continue
        unscored += not row.scored
        bare += row.scored and row.advantages is None
        first, ids = prompts.setdefault(row.group, (number, row.prompt_ids))
        if ids != row.prompt_ids:
            problems.append(
                f"{path}, line {number}: TrainingRow.group: {row.group!r} should have one prompt, but line {first} has "
                f"other prompt_ids; give each prompt of each update its own group"
            )
    return RowsFound(rows, unscored, bare, len(prompts), tuple(problems[:MOST]))


def _readable(path: str | Path, problems: list[str]) -> Iterator[tuple[int, dict[str, Any] | InvalidData]]:
    """The rows of a file up to where it cannot be read on, which is a problem of it. One that is not there is none."""
    try:
        yield from read_table(path)
    except InvalidData as problem:
        if not Path(path).expanduser().is_file():
            raise
        problems += str(problem).splitlines()


def _checked_row(path: str | Path, number: int, row: dict[str, Any] | InvalidData) -> TrainingRow:
    try:
        if isinstance(row, InvalidData):
            raise row
        return TrainingRow.from_json(row)
    except InvalidData as problem:
        where = f"{path}, line {number}: "
        raise InvalidData("\n".join(where + line for line in str(problem).splitlines())) from None


# ------------------------------------------------------------------------------------------------------- of a run


def rows_of_run(folder: str | Path) -> Iterator[TrainingRow]:
    """The training rollouts that a run logged, in their order; without the held-out ones."""
    path = Path(folder) / "rollouts.jsonl"
    if not path.is_file():
        raise RunError(f"{folder}: this is not a run folder with rollouts, because it has no rollouts.jsonl")
    for row in read_jsonl(path):
        if not row.get("held_out"):
            yield _row(Rollout.from_json(row), row.get("update"))
