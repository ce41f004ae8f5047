"""The files for prime-rl, read as its trainer reads them: a struct of our own with the fields of its `MicroBatch`."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text2grad import TrainingRow
from text2grad.engines.prime_rl import FIELDS, write_step
from text2grad.errors import InvalidData


class MicroBatch(msgspec.Struct, array_like=True):
    """As prime-rl 0.8 declares it, and with a field that a later version appended."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]
    ref_logprobs: list[float] | None = None


def read(path: Path) -> list[MicroBatch]:
    return msgspec.msgpack.decode(path.read_bytes(), type=list[MicroBatch])


def row(prompt: int, rewards: tuple[float, ...], **given: object) -> TrainingRow:
    ids, length = tuple(range(10, 10 + prompt)), len(rewards)
    streams = {"logprobs": (-0.5,) * length, "token_rewards": rewards, "advantages": rewards} | given
    return TrainingRow("a", "0", ids, tuple(range(50, 50 + length)), (1,) * length, **streams)  # type: ignore[arg-type]


def test_a_step_by_hand(tmp_path: Path) -> None:
    """Rows of 5, 4 and 3 tokens in sequences of 8: the first takes the last in, and one is left."""
    unscored = TrainingRow("b", "0", (1,), (2,), (0,))
    rows = [row(1, (0.5, -1.0)), unscored, row(3, (1.0, 0.0)), row(2, (0.0, 2.0))]
    assert write_step(tmp_path / "rollouts", 7, rows, seq_len=8) == 3
    first, second = read(tmp_path / "rollouts" / "step_7" / "rank_0.bin")
    assert first.input_ids == [10, 11, 12, 50, 51, 10, 50, 51]
    assert first.loss_mask == [False, False, False, True, True, False, True, True]
    assert first.advantages == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.5, -1.0]
    assert first.inference_logprobs == [0.0, 0.0, 0.0, -0.5, -0.5, 0.0, -0.5, -0.5]
    assert first.position_ids == [0, 1, 2, 3, 4, 0, 1, 2] and first.sequence_lengths == first.seq_lens == [5, 3]
    assert first.env_names == ["text2grad"] * 8 and first.temperatures == [1.0] * 8
    assert second.advantages == [0.0, 0.0, 0.0, 2.0] and tuple(MicroBatch.__struct_fields__[:9]) == FIELDS


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8), ranks=st.integers(1, 3))
def test_nothing_is_lost_and_ranks_agree(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], ranks: int
) -> None:
    folder = tmp_path_factory.mktemp("prime")
    rows = [row(prompt, tuple(1.0 + place for place in range(length))) for prompt, length in sizes]
    write_step(folder, 0, rows, seq_len=12, ranks=ranks)
    grid = [read(folder / "step_0" / f"rank_{rank}.bin") for rank in range(ranks)]
    assert len({len(part) for part in grid}) == 1
    batches = [batch for part in grid for batch in part]
    for batch in batches:
        streams = [getattr(batch, name) for name in FIELDS if name not in ("sequence_lengths", "seq_lens")]
        assert {len(stream) for stream in streams} == {sum(batch.seq_lens)} and sum(batch.seq_lens) <= 12
    assert sum(sum(batch.loss_mask) for batch in batches) == sum(length for _, length in sizes)
    assert sum(sum(batch.advantages) for batch in batches) == sum(sum(each.advantages or ()) for each in rows)


def test_what_a_trainer_could_not_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"has 3 tokens, over seq_len=2"):
        write_step(tmp_path, 0, [row(1, (1.0, 1.0))], seq_len=2)
    with pytest.raises(InvalidData, match="should have logprobs and advantages for prime-rl"):
        write_step(tmp_path, 0, [row(1, (1.0,), advantages=None)], seq_len=9)
    with pytest.raises(InvalidData, match="skip the step"):
        write_step(tmp_path, 0, [TrainingRow("b", "0", (1,), (2,), (0,))], seq_len=9)
    assert not list(tmp_path.iterdir())
