"""Seeded bugs: one changed line each, drawn the same way each time; and what a tie is worth."""

import ast
import random

import pytest
from benchmarks.gold.seeded import drawn, mutants
from benchmarks.localise import chance

PROGRAM = """def f(items, most):
    total = 0
    for item in items[1:]:
        if item > most:
            break
        total += min(item, most)
    return total
"""


def test_every_mutant_differs_in_its_line_alone() -> None:
    made = mutants(PROGRAM)
    assert {mutant.kind for mutant in made} == {
        *("constant", "arithmetic", "comparison", "name", "slice", "jump", "call", "arguments", "missing"),
    }
    for mutant in made:
        ast.parse(mutant.source)
        pairs = zip(PROGRAM.split("\n"), mutant.source.split("\n"), strict=True)
        assert [number for number, (a, b) in enumerate(pairs, 1) if a != b] == [mutant.line]
    assert len({mutant.source for mutant in made}) == len(made)
    assert "total += max(item, most)" in "".join(mutant.source for mutant in made)


def test_they_are_drawn_the_same_way_each_time_and_all_of_them() -> None:
    first, second = (list(drawn(PROGRAM, random.Random(3))) for _ in range(2))
    assert first == second != list(drawn(PROGRAM, random.Random(4)))
    assert {*first} == {*mutants(PROGRAM)}


@pytest.mark.parametrize(
    ("line", "first", "wanted"),
    [(1, 3, 1.0), (2, 3, 2 / 3), (3, 3, 2 / 3), (5, 3, 0.0), (2, 1, 0.0), (1, 1, 1.0), (5, 5, 1.0)],
)
def test_ties_count_as_their_expected_value(line: int, first: int, wanted: float) -> None:
    assert chance({1: 0.9, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.1}, line, first) == pytest.approx(wanted)
