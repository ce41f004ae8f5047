"""The one place that pads, shifts and masks."""

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.optim.made import made_batch, rollouts
from text2grad.errors import InvalidData
from text2grad.optim.batch import collate, collate_ids, micro_batches, unlearned

LENGTHS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 7)), min_size=1, max_size=8)


@given(LENGTHS)
def test_every_token_is_found_behind_the_place_where_it_was_chosen(lengths: list[tuple[int, int]]) -> None:
    given_rollouts = rollouts([prompt for prompt, _ in lengths], [length for _, length in lengths])
    batch = collate(given_rollouts)
    row_N, position_N, ids_N = batch.where()
    wanted = [
        (row, len(rollout.prompt_ids) + t - 1, token)
        for row, rollout in enumerate(given_rollouts)
        for t, token in enumerate(rollout.completion.token_ids)
    ]
    assert list(zip(row_N.tolist(), position_N.tolist(), ids_N.tolist(), strict=True)) == wanted
    assert batch.logprobs_BT[batch.mask_BT].tolist() == pytest.approx(
        [number for rollout in given_rollouts for number in rollout.logprobs or ()]
    )


@given(LENGTHS, st.data())
def test_some_rows_are_those_rows_collated_alone(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    given_rollouts = rollouts([prompt for prompt, _ in lengths], [length for _, length in lengths])
    index = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    some = collate(given_rollouts).rows(torch.tensor(index))
    alone = collate([given_rollouts[row] for row in index])
    assert some.own_BT is None and alone.own_BT is None, "nobody looked yet"
    for field in fields(some):
        if field.name not in ("own_BT", "reference_BT", "importance_BT"):
            assert torch.equal(getattr(some, field.name), getattr(alone, field.name)), field.name


@given(LENGTHS, st.integers(1, 9), st.data())
def test_micro_batches_hold_every_row_once_and_neighbours_in_length(
    lengths: list[tuple[int, int]], size: int, data: st.DataObject
) -> None:
    batch = collate(rollouts([prompt for prompt, _ in lengths], [length for _, length in lengths]))
    index = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    parts = list(micro_batches(batch, torch.tensor(index), size))
    assert sorted(row for part in parts for row in part.tolist()) == sorted(index)
    assert all(len(part) <= size for part in parts)
    totals = [sum(lengths[row]) for part in parts for row in part.tolist()]
    assert totals == sorted(totals)


def test_a_stream_that_only_some_have_is_refused() -> None:
    some = rollouts()
    with pytest.raises(InvalidData, match="7 of 8 rollouts have `values`, the others lack it"):
        collate([replace(some[0], values=None), *some[1:]])


def test_streams_that_nobody_has_are_absent() -> None:
    batch = collate([replace(rollout, values=None) for rollout in rollouts()])
    assert batch.values_BT is None and batch.reference_BT is None
    assert batch.rows(torch.tensor([1])).values_BT is None


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=5))
def test_rows_to_read_are_prompts_before_one_token_of_which_nothing_is_learned(rows: list[list[int]]) -> None:
    made = collate_ids(rows, [(0,)] * len(rows), loss_weights=[(0.0,)] * len(rows))
    found = unlearned(rows)
    for field in fields(made):
        here, there = getattr(found, field.name), getattr(made, field.name)
        if field.name != "group_B" and there is not None:
            assert here.dtype == there.dtype and torch.equal(here, there)


def test_no_rows_at_all() -> None:
    assert len(made_batch().rows(torch.tensor([], dtype=torch.long))) == 0
