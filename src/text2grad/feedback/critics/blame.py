"""Which statements of a failing program to point at: the spectrum of its tests, ties broken by evidence.

Enters: source, results of tests, and what trials changed. Leaves: suspects, the likeliest first. A handful of tests
runs nearly every line, so that the spectrum alone ties. What breaks ties, from strong to weak:

1. a trial: with one small change of this statement, failing tests pass and passing ones still do
2. the statement raised
3. how much there is in a statement to be wrong: signs, numbers and names
"""

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from text2grad.feedback.critics.spectrum import Suspect, suspects
from text2grad.feedback.critics.trials import Trial, own_parts
from text2grad.sandbox import TestResult

_TRIED, _RAISED, _PART = 1.0, 0.003, 0.001
"""Ochiai is in (0, 1]: a part or an exception decides between equals only, a trial against everything."""
_PARTS = (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.AugAssign, ast.Constant, ast.Slice, ast.Name)


@dataclass(frozen=True, slots=True)
class Tried:
    """What the trials of a program did."""

    repairs: Mapping[int, tuple[Trial, float]] = field(default_factory=dict)
    """Line → the change that helped most, and how much: the share of failing tests that it makes pass less the share of
    passing ones that it makes fail. Only what helps."""

    @property
    def complete(self) -> dict[int, Trial]:
        """Changes after which every test passes."""
        return {line: trial for line, (trial, gain) in self.repairs.items() if gain == 1.0}


def weighed(trials: Iterable[tuple[Trial, Collection[str]]], results: Sequence[TestResult]) -> Tried:
    """Trials with the names of the tests that each passed."""
    failed = {result.name for result in results if not result.passed}
    passed = {result.name for result in results if result.passed}
    best: dict[int, tuple[Trial, float]] = {}
    for trial, passes in trials:
        gain = len(failed & {*passes}) / len(failed) - len(passed - {*passes}) / max(1, len(passed))
        if gain > best.get(trial.line, (trial, 0.0))[1]:
            best[trial.line] = trial, gain
    return Tried(best)


def ranked(source: str, results: Sequence[TestResult], tried: Tried | None = None) -> list[Suspect]:
    """Every statement that a failing test ran, the likeliest first."""
    parts = own_parts(ast.parse(source))
    raised = [result.frames[-1].line for result in results if not result.passed and result.frames]
    repairs = tried.repairs if tried is not None else {}
    found = []
    for suspect in suspects([(result.lines, result.passed) for result in results]):
        line = suspect.line
        evidence = _PART * sum(isinstance(part, _PARTS) for part in parts.get(line, ()))
        evidence += _RAISED * raised.count(line) + _TRIED * (repairs[line][1] if line in repairs else 0.0)
        found.append(suspect._replace(evidence=evidence))
    return sorted(found, key=lambda suspect: (-(suspect.suspicion + suspect.evidence), suspect.line))
