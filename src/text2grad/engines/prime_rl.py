"""prime-rl: rows → the batch files that its trainer reads. Page: docs/engines/prime-rl.md.

prime-rl has no hook for code of ours, and needs none: its trainer reads micro batches with one advantage per token from
files. Enters: rows of one step. Leaves: `step_N/rank_R.bin`, msgpack. Imports no prime-rl.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from text2grad.engines.rows import TrainingRow
from text2grad.errors import InvalidData, MissingExtra
from text2grad.runs import write_atomic

FIELDS = (
    "input_ids",
    "loss_mask",
    "advantages",
    "inference_logprobs",
    "position_ids",
    "sequence_lengths",
    "temperatures",
    "env_names",
    "seq_lens",
)
"""Of prime-rl's `MicroBatch`, in the order of the wire. Later versions append fields with defaults, which may be left
out; streams have one entry per token, prompt tokens included."""


def write_step(
    folder: str | Path,
    step: int,
    rows: Sequence[TrainingRow],
    *,
    seq_len: int,
    ranks: int = 1,
    temperature: float = 1.0,
    env_name: str = "text2grad",
) -> int:
    """Write what the trainer's step reads, for each of its data ranks; how many rows went in. Unscored ones do not.

    `folder`: `OUTPUT/rollouts` of prime-rl 0.8, `OUTPUT/batches` of later versions. `seq_len`: the trainer's; a
    longer row is refused, because its end, which would be cut off, is the decision to stop."""
    try:
        import msgspec
    except ModuleNotFoundError as problem:
        raise MissingExtra.of(problem, "writing batches of prime-rl") or problem from None
    learned = [_sequence(row, seq_len) for row in rows if row.scored]
    if not learned:
        raise InvalidData(f"step {step} should have a row that was scored, got {len(rows)} without; skip the step")
    batches = [_micro_batch(each, temperature, env_name) for each in _packed(learned, seq_len)]
    # Every rank needs as many micro batches as the others: one of which nothing counts fills the gap.
    idle = {**batches[0], "loss_mask": [False] * len(batches[0]["input_ids"])}
    idle["advantages"] = [0.0] * len(idle["input_ids"])
    batches += [idle] * (-len(batches) % ranks)
    for rank in range(ranks):
        grid = [[batch[name] for name in FIELDS] for batch in batches[rank::ranks]]
        write_atomic(Path(folder) / f"step_{step}" / f"rank_{rank}.bin", msgspec.msgpack.encode(grid))
    return len(learned)


def _sequence(row: TrainingRow, seq_len: int) -> dict[str, list[Any]]:
    logprobs, advantages = row.learned_from("prime-rl")
    before = len(row.prompt_ids)
    if before + len(row.completion_ids) > seq_len:
        raise InvalidData(
            f"the row of example {row.id!r} has {before + len(row.completion_ids)} tokens, over seq_len={seq_len}; "
            f"leave it out, or raise the trainer's seq_len"
        )
    return {
        "input_ids": [*row.prompt_ids, *row.completion_ids],
        "loss_mask": [*[False] * before, *map(bool, row.mask)],
        "advantages": [*[0.0] * before, *advantages],
        "inference_logprobs": [*[0.0] * before, *logprobs],
    }


def _packed(sequences: list[dict[str, list[Any]]], seq_len: int) -> Iterator[list[dict[str, list[Any]]]]:
    """Several sequences in a row, each where it first fits, the longest first."""
    bins: list[list[dict[str, list[Any]]]] = []
    for sequence in sorted(sequences, key=lambda each: -len(each["input_ids"])):
        size = len(sequence["input_ids"])
        fits = (each for each in bins if sum(len(one["input_ids"]) for one in each) + size <= seq_len)
        found = next(fits, None)
        if found is None:
            bins.append(found := [])
        found.append(sequence)
    yield from bins


def _micro_batch(sequences: list[dict[str, list[Any]]], temperature: float, env_name: str) -> dict[str, Any]:
    joined: dict[str, Any] = {name: [value for each in sequences for value in each[name]] for name in FIELDS[:4]}
    lengths = [len(each["input_ids"]) for each in sequences]
    joined["position_ids"] = [place for length in lengths for place in range(length)]
    joined["sequence_lengths"] = joined["seq_lens"] = lengths
    joined["temperatures"] = [temperature] * sum(lengths)
    joined["env_names"] = [env_name] * sum(lengths)
    return joined
