"""Metrics of programs: numbers worked by hand."""

from itertools import combinations
from typing import Any

import pytest

from text2grad.evaluation.code import metrics, pass_at, tables
from text2grad.evaluation.named import metrics_named
from text2grad.types import Alignment, Completion, Critique, Example, Rollout


def rollout(task: str, text: str, score: float | None, verdict: Any = "isolated", **columns: Any) -> Rollout:
    columns = {"tests": ["assert add(2, 3) == 5"], "hidden_tests": ["assert add(1, 1) == 2"], **columns}
    prompt = "Write add.\nYour code should pass this test:\nassert add(2, 3) == 5"
    example = Example(task, prompt, columns=columns)
    tokens = tuple(range(len(text)))
    completion = Completion(text, tokens, tuple((n, n + 1) for n in tokens))
    if score is None:
        return Rollout(example, completion)
    critique = Critique("x", score=score, verdict=verdict)
    rewards = (0.0,) * len(text)
    return Rollout(
        example, completion, critique=critique, alignment=Alignment((), (), ()), token_rewards=rewards, score=score
    )


def measured(rollouts: list[Rollout]) -> dict[str, float | None]:
    return {metric.key: metric.measure(rollouts) for metric in metrics()}


@pytest.mark.parametrize(("samples", "passed"), [(4, 1), (5, 2), (8, 0), (8, 8), (6, 5)])
def test_pass_at_k_is_the_share_of_draws_with_a_passing_program(samples: int, passed: int) -> None:
    for k in range(1, samples + 1):
        draws = list(combinations([True] * passed + [False] * (samples - passed), k))
        assert pass_at(k, samples, passed) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_1_and_4_over_tasks() -> None:
    right, wrong = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a - b"
    rows = [rollout("a", right, 1.0)] + [rollout("a", wrong, 0.0)] * 3 + [rollout("b", wrong, 0.125)] * 4
    found = measured(rows)
    assert found["pass_1"] == pytest.approx(1 / 8)
    assert found["pass_4"] == pytest.approx(0.5)
    assert found["pass_8"] is None and found["pass_1_humaneval"] is None


def test_what_another_critic_judged_or_nobody_is_not_counted() -> None:
    rows = [rollout("a", "x", None), rollout("b", "x", 1.0, verdict=None), rollout("c", "x = 1", 1.0)]
    assert measured(rows)["pass_1"] == 1.0


def test_suites_are_counted_apart() -> None:
    rows = [
        rollout("a", "x", 1.0),
        rollout("b", "x", 0.0, suite="humaneval"),
        rollout("c", "x", 1.0, suite="humaneval"),
    ]
    assert (measured(rows)["pass_1"], measured(rows)["pass_1_humaneval"]) == (1.0, 0.5)


def test_programs_that_parse_and_have_no_static_errors() -> None:
    texts = [
        "def add(a, b):\n    return a + b",
        "Here:\n```python\ndef add(a, b):\n    return plus(a, b)\n```\nDone.",
        "def add(a, b:",
        "",
    ]
    found = measured([rollout(str(n), text, 0.0) for n, text in enumerate(texts)])
    assert (found["parses"], found["no_static_errors"]) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("def add(a, b):\n    if a == 2 and b == 3:\n        return 5\n    return 0 * a", True),
        ("def add(a, b):\n    return {(2, 3): 5}.get((a, b), a)", True),
        ("def add(a, b):\n    table = {(2, 3): 5}\n    return table[a, b]", True),
        ("def add(a, b):\n    match a, b:\n        case 2, 3:\n            return 5\n    return a", True),
        ("def add(a, b):\n    return 5", True),
        ("def add(a, b):\n    return a + b", False),
        ("def add(a, b):\n    if a == 2:\n        return b + 2\n    return a + b", False),
        ("def add(a, b):\n    total = 5\n    return total - 5 + a + b", False),
    ],
)
def test_a_program_that_tables_the_shown_test(program: str, wanted: bool) -> None:
    assert tables(program, [2, 3], 5) is wanted
    assert measured([rollout("a", program, 0.0)])["hard_coded"] == float(wanted)


def test_a_value_that_is_true_or_false_is_no_table() -> None:
    even = "def even(x):\n    if x % 2 == 0:\n        return True\n    return False"
    assert not tables(even, [4], True)
    assert tables("def even(x):\n    if x == 4:\n        return True\n    return x is None", [4], True)


def test_a_program_that_chooses_between_given_words_is_no_table() -> None:
    parity = "def parity(x):\n    if x % 2 == 0:\n        return 'Even'\n    return 'Odd'"
    assert not tables(parity, [10], "Even")
    assert tables("def parity(x):\n    if x:\n        return 'Even'\n    return 'Even'", [10], "Even")


def test_a_test_that_the_prompt_does_not_show_is_no_shown_case() -> None:
    hidden = rollout("a", "def add(a, b):\n    return 7", 0.0, tests=["assert add(3, 4) == 7"])
    assert measured([hidden])["hard_coded"] == 0.0


def test_they_have_a_name() -> None:
    assert [metric.key for metric in metrics_named(["code"])] == [metric.key for metric in metrics()]
