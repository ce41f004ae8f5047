"""Suspects and trials: Ochiai's measure by hand, its laws, and what a trial shows."""

import ast
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.critics.faults import Trial, blamed, own_parts, ranked, suspects, trials, weighed
from text2grad.sandbox import TestResult

PROGRAM = "def f(x):\n    y = x\n    if y < 3 and x:\n        y += 1\n    return -y\n"


def result(name: str, passed: bool, lines: set[int], frame: int | None = None) -> TestResult:
    frames = (frame,) if frame else ()
    return TestResult(
        name, passed, "passed" if passed else "mismatch", "isolated", frames=frames, lines=frozenset(lines)
    )


def test_every_trial_changes_one_line_and_names_what_it_changed() -> None:
    made = trials(PROGRAM, [3, 4, 5], 99)
    assert [(t.line, t.kind, t.old, t.new) for t in made[:4]] == [
        (3, "boolean", "and", "or"),
        (3, "comparison", "<", "<="),
        (3, "constant", "3", "4"),
        (4, "arithmetic", "+", "-"),
    ]
    assert (5, "boolean", "-", "") in [(t.line, t.kind, t.old, t.new) for t in made]
    for trial in made:
        pairs = zip(PROGRAM.split("\n"), trial.source.split("\n"), strict=True)
        assert [number for number, (a, b) in enumerate(pairs, 1) if a != b] == [trial.line]
        ast.parse(trial.source)


def test_there_are_no_more_than_wanted_and_the_likeliest_come_first() -> None:
    assert [trial.new for trial in trials(PROGRAM, [4, 3], 3)] == ["-", "2", "or"]
    assert trials(PROGRAM, [], 9) == [] == trials(PROGRAM, [3], 0)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("é = 'ü' + x\n", "é = 'ü' - x\n"),
        ("a = (1 if b  not   in c else 2)\n", "a = (1 if b  in c else 2)\n"),
        ("a = b if True else c\n", "a = b if False else c\n"),
    ],
)
def test_signs_are_found_wherever_they_stand(source: str, wanted: str) -> None:
    assert wanted in [trial.source for trial in trials(source, [1], 99)]


def test_a_sign_between_two_lines_is_left_alone() -> None:
    assert trials("a = (b +\n     c)\n", [1], 9) == []


@given(st.integers(-50, 50), st.sampled_from(["<", "+", "and", "//", "!=", "**"]))
def test_all_trials_parse(number: int, sign: str) -> None:
    for trial in trials(f"x = a {sign} ({number})\n", [1], 99):
        ast.parse(trial.source)


def test_a_statement_owns_its_header_and_not_its_body() -> None:
    parts = own_parts(ast.parse(PROGRAM))
    assert {part.id for part in parts[3] if isinstance(part, ast.Name)} == {"x", "y"}
    assert not any(isinstance(part, ast.AugAssign) for part in parts[3])


def test_a_gain_is_what_passes_now_less_what_fails_now() -> None:
    results = [result("a", False, {2}), result("b", False, {2}), result("c", True, {2}), result("d", True, {2})]
    one, two, three = (Trial(line, "constant", "1", "2", "") for line in (2, 3, 4))
    repairs = weighed(
        [(one, {"a", "c", "d"}), (two, {"a", "b", "c"}), (three, {"d"}), (two, {"a", "b", "c", "d"})], results
    )
    assert {line: gain for line, (_, gain) in repairs.items()} == {2: 0.5, 3: 1.0}
    assert repairs[3][0] == two


def test_a_repair_outweighs_the_spectrum_and_an_exception_a_tie() -> None:
    results = [result("a", False, {2, 3, 4, 5}, frame=5), result("b", True, {2, 3, 5})]
    assert [suspect.line for suspect in ranked(PROGRAM, results)] == [4, 3, 5, 2]
    trial = trials(PROGRAM, [3], 1)[0]
    found = ranked(PROGRAM, results, weighed([(trial, {"a", "b"})], results))
    assert (found[0].line, round(found[0].suspicion, 6), round(found[0].evidence, 3)) == (3, 0.707107, 1.005)


def test_without_other_evidence_the_fuller_statement_comes_first() -> None:
    results = [result("a", False, {2, 3, 5})]
    assert [suspect.line for suspect in ranked(PROGRAM, results)] == [3, 2, 5]


RUNS = st.lists(st.tuples(st.frozensets(st.integers(1, 6)), st.booleans()), max_size=6)


def test_ochiai_by_hand() -> None:
    # Line 1 runs in all four tests, line 2 in both failing ones, line 3 in one failing and one passing one.
    runs = [({1, 2, 3}, False), ({1, 2}, False), ({1, 3}, True), ({1}, True)]
    assert [(s.line, s.suspicion, s.failing, s.passing) for s in suspects(runs)] == [
        (2, 1.0, 2, 0),
        (1, pytest.approx(2 / sqrt(2 * 4)), 2, 2),
        (3, pytest.approx(1 / sqrt(2 * 2)), 1, 1),
    ]
    assert [suspect.line for suspect in blamed(runs, most=3)] == [2]


def test_a_tie_is_blamed_only_if_it_is_small_and_something_else_ran() -> None:
    runs = [({1, 2, 3, 4}, False), ({1}, True)]
    assert [suspect.line for suspect in blamed(runs, most=3)] == [2, 3, 4]
    assert blamed(runs, most=2) == []
    assert blamed([({1, 2}, False)], most=3) == []
    assert [suspect.line for suspect in blamed([({7}, False), ({7}, True)], most=3)] == [7]


@given(RUNS)
def test_the_laws_of_ochiai(runs: list[tuple[frozenset[int], bool]]) -> None:
    found = suspects(runs)
    failing = [lines for lines, passed in runs if not passed]
    assert {suspect.line for suspect in found} == {line for lines in failing for line in lines}
    for suspect in found:
        assert 0 < suspect.suspicion <= 1
        always = suspect.failing == len(failing) and suspect.passing == 0
        assert (suspect.suspicion == pytest.approx(1.0)) == always
    assert [s.suspicion for s in found] == sorted((s.suspicion for s in found), reverse=True)
    if not failing:
        assert blamed(runs, most=3) == []
