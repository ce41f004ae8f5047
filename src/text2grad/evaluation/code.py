"""Metrics of programs: `metrics=code`, for completions that the critic `code` judged.

Enters: rollouts. Leaves: `Metric`s. A program passes where every test does, shown and hidden: then its score is 1,
whatever the critic's settings. Executions are not repeated; whether a program parses, uses names that nobody defines or
tables the tests that the prompt shows is read from its text.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import comb
from typing import Any

from text2grad.feedback.critics.code import alike
from text2grad.feedback.critics.lint import syntax_error, undefined_names
from text2grad.feedback.critics.source import find
from text2grad.feedback.critics.words import prompt_text, texts_in
from text2grad.sandbox import UnusableTests, plan
from text2grad.tasks.task import Mean, Metric, mean_of
from text2grad.types import Example, Rollout

KS = (4, 8)
_ANY = "Chance that one of {} programs for a task passes every test: the unbiased estimate from samples."
_HUMANEVAL = "Share of programs for HumanEval's tasks that pass every test, where they are held out beside others."
_STATIC = "Share of completions whose program can be read, and uses no name that nobody defines."
_TABLED = "Share of programs that hold a test of the prompt as a case: its arguments, and its value to return."


def pass_at(k: int, samples: int, passed: int) -> float:
    """The chance that one of `k` programs passes, drawn without putting back from `samples` of which `passed` do: the
    unbiased estimate of pass@k (Chen et al. 2021).

    >>> pass_at(1, 4, 1), pass_at(2, 4, 1), pass_at(2, 4, 3)
    (0.25, 0.5, 1.0)
    """
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def metrics() -> list[Metric]:
    """What is measured, in the order of the table."""
    said: dict[str, tuple[str, str, Callable[[Sequence[Rollout]], float | None]]] = {
        "pass_1": ("pass@1", "Share of programs that pass every test.", Mean(_each_passes)),
        **{f"pass_{k}": (f"pass@{k}", _ANY.format(k), partial(_pass_at_k, k=k)) for k in KS},
        "pass_1_humaneval": ("pass@1, HumanEval", _HUMANEVAL, Mean(partial(_each_passes, suite="humaneval"))),
        "parses": ("Parses", "Share of completions that hold a program that Python can read.", mean_of(_parses)),
        "no_static_errors": ("No static errors", _STATIC, mean_of(_clean)),
        "hard_coded": ("Shown tests tabled", _TABLED, mean_of(_hard_coded)),
    }
    return [
        Metric(key, title, help, "lower" if key == "hard_coded" else "higher", measure)
        for key, (title, help, measure) in said.items()
    ]


def _each_passes(rollouts: Sequence[Rollout], suite: str | None = None) -> list[float | None]:
    """Of the rollouts of a suite; None also where another critic judged, or none could."""
    return [
        float(one.score == 1.0)
        if one.score is not None and one.example.columns.get("suite") == suite and one.critique and one.critique.verdict
        else None
        for one in rollouts
    ]


def _pass_at_k(rollouts: Sequence[Rollout], k: int) -> float | None:
    groups: dict[str, list[float]] = defaultdict(list)
    for rollout, passes in zip(rollouts, _each_passes(rollouts), strict=True):
        if passes is not None:
            groups[rollout.example.id].append(passes)
    values = [pass_at(k, len(some), round(sum(some))) for some in groups.values() if len(some) >= k]
    return sum(values) / len(values) if values else None


def _program(example: Example, text: str) -> str:
    return find(example.prompt, text, _plan_of(example)[0]).text


def _plan_of(example: Example) -> tuple[tuple[str, ...], list[str]]:
    """(names that the tests want, tests that the prompt shows)."""
    tests, entry = example.columns.get("tests"), example.columns.get("entry_point")
    given = tests if isinstance(tests, str) else texts_in(tests, "tests", 0)
    try:
        parts = plan(given, "", entry if isinstance(entry, str) else None)
    except UnusableTests:
        return (), []
    prompt = alike(prompt_text(example.prompt))
    return parts.wanted, [unit.source for unit in parts.units if unit.source and alike(unit.source) in prompt]


def _parses(example: Example, text: str) -> float:
    program = _program(example, text)
    return float(bool(program.strip()) and syntax_error(program) is None)


def _clean(example: Example, text: str) -> float:
    return float(_parses(example, text) and not undefined_names(_program(example, text)))


def _hard_coded(example: Example, text: str) -> float | None:
    program = _program(example, text)
    if syntax_error(program) is not None:
        return None
    shown = [case for source in _plan_of(example)[1] if (case := _case(source)) is not None]
    return float(any(tables(program, *case) for case in shown))


def _case(test: str) -> tuple[list[Any], Any] | None:
    """(arguments, value) of `assert f(…) == value`, as literals."""
    body = ast.parse(test).body
    check = body[-1].test if body and isinstance(body[-1], ast.Assert) else None
    if not isinstance(check, ast.Compare) or len(check.ops) != 1 or not isinstance(check.ops[0], ast.Eq):
        return None
    call = check.left
    if not isinstance(call, ast.Call) or not call.args:
        return None
    try:
        return [ast.literal_eval(argument) for argument in call.args], ast.literal_eval(check.comparators[0])
    except (ValueError, TypeError, SyntaxError):
        return None


def tables(program: str, arguments: Sequence[Any], value: Any) -> bool:
    """Whether a program compares with all these arguments, or looks them up, and holds the value to give back; or gives
    the value back whatever the arguments. Two branches that return "Yes" and "No" are not a table.

    >>> tables("def add(a, b):\\n    if (a, b) == (2, 3): return 5\\n    return a", [2, 3], 5)
    True
    >>> tables("def add(a, b):\\n    return a + b", [2, 3], 5)
    False
    """
    tree = ast.parse(program)
    keys, given = [*_literals(_keys(tree))], [*_literals(_results(tree))]
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    constant = [*_literals(returned)]
    if (
        len(constant) == len(returned)
        and len({*map(repr, constant)}) == 1
        and not isinstance(value, bool | None.__class__)
    ):
        return _in(value, constant)
    flat = [*keys, *(part for key in keys if isinstance(key, tuple) for part in key)]
    return _in(value, given) and (_in(tuple(arguments), keys) or all(_in(argument, flat) for argument in arguments))


def _keys(tree: ast.AST) -> Iterable[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.Is | ast.In):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.MatchValue):
            yield node.value


def _results(tree: ast.AST) -> Iterable[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return | ast.Assign) and node.value is not None:
            yield node.value
        elif isinstance(node, ast.Dict):
            yield from node.values
        elif isinstance(node, ast.IfExp):
            yield from (node.body, node.orelse)


def _literals(nodes: Iterable[ast.expr]) -> Iterable[Any]:
    for node in nodes:
        try:
            yield ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue


def _in(value: Any, some: Iterable[Any]) -> bool:
    """Equal and of one type: `True` is not 1."""
    return any(type(each) is type(value) and each == value for each in some)
