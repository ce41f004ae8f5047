"""Which statements of a failing program are wrong: from what its tests ran, and from small changes that are tried out.

Enters: source, results of tests, and which tests each trial passes. Leaves: suspects, the likeliest first. Knows
nothing of running. The spectrum (Ochiai's measure: Abreu, Zoeteweij, van Gemund 2007) suspects lines that failing tests
run and passing tests do not. A handful of tests runs nearly every line, so it ties. What breaks ties, from strong to
weak:

1. a trial: with one small change of this statement, failing tests pass and passing ones still do
2. the statement raised
3. how much there is in a statement to be wrong: signs, numbers and names
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from text2grad.sandbox import TestResult

_TRIED, _RAISED, _PART = 1.0, 0.003, 0.001
"""Ochiai is in (0, 1]: a part or an exception decides between equals only, a trial against everything."""
_PARTS = (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.AugAssign, ast.Constant, ast.Slice, ast.Name)
_SIGNS: dict[type[ast.AST], str] = {ast.And: "and", ast.Or: "or"}
_SIGNS |= {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
_SIGNS |= {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}
_SIGNS |= {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in"}
_SIGNS |= {ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}
_INSTEAD = {"+": "- *", "-": "+ *", "*": "+ ** //", "/": "// *", "//": "/ %", "%": "// /", "**": "* +"}
_INSTEAD |= {"&": "| ^", "|": "& ^", "^": "& |", "<<": ">>", ">>": "<<", "and": "or", "or": "and"}
_INSTEAD |= {"<": "<= > >=", "<=": "< >= >", ">": ">= < <=", ">=": "> <= <", "==": "!= >= <=", "!=": "== < >"}
"""Sign → what to try for it, the likeliest first."""
_WORDS = {"in": ("not in",), "not in": ("in",), "is": ("is not",), "is not": ("is",)}
_INNER = ("body", "orelse", "finalbody", "handlers", "cases")


class Suspect(NamedTuple):
    line: int
    suspicion: float
    """Ochiai, in (0, 1]."""
    failing: int
    """Failing tests that run it."""
    passing: int
    """Passing tests that run it."""
    evidence: float = 0.0
    """What else speaks against it."""


def suspects(runs: Sequence[tuple[Collection[int], bool]]) -> list[Suspect]:
    """Every line that a failing test runs, the most suspicious first.

    >>> [(suspect.line, round(suspect.suspicion, 2)) for suspect in suspects([({1, 2}, False), ({1, 3}, True)])]
    [(2, 1.0), (1, 0.71)]
    """
    failed = sum(not passed for _, passed in runs)
    ranked = []
    for line in {line for lines, passed in runs if not passed for line in lines}:
        failing = sum(line in lines for lines, passed in runs if not passed)
        passing = sum(line in lines for lines, passed in runs if passed)
        ranked.append(Suspect(line, failing / sqrt(failed * (failing + passing)), failing, passing))
    return sorted(ranked, key=lambda suspect: (-suspect.suspicion, suspect.line))


def blamed(runs: Sequence[tuple[Collection[int], bool]], most: int) -> list[Suspect]:
    """The lines to point at: those that share the highest suspicion, if they are at most `most`, and if some line that
    ran is less suspicious. A tie over everything that ran says nothing, unless that is a single line.

    >>> blamed([({1, 2}, False), ({1, 3}, True)], most=3)
    [Suspect(line=2, suspicion=1.0, failing=1, passing=0, evidence=0.0)]
    >>> blamed([({1, 2}, False), ({1, 2}, False)], most=3)
    []
    """
    ranked = suspects(runs)
    top = [suspect for suspect in ranked if suspect.suspicion == ranked[0].suspicion]
    everything = {line for lines, _ in runs for line in lines}
    if len(top) > most or (len(top) == len(everything) and len(top) > 1):
        return []
    return top


def ranked(source: str, results: Sequence[TestResult], repairs: "Repairs | None" = None) -> list[Suspect]:
    """Every statement that a failing test ran, the likeliest first."""
    parts, repairs = own_parts(ast.parse(source)), repairs or {}
    raised = [result.frames[-1] for result in results if not result.passed and result.frames]
    found = []
    for suspect in suspects([(result.lines, result.passed) for result in results]):
        line = suspect.line
        evidence = _PART * sum(isinstance(part, _PARTS) for part in parts.get(line, ()))
        evidence += _RAISED * raised.count(line) + _TRIED * (repairs[line][1] if line in repairs else 0.0)
        found.append(suspect._replace(evidence=evidence))
    return sorted(found, key=lambda suspect: (-(suspect.suspicion + suspect.evidence), suspect.line))


# --------------------------------------------------------------------------------------------------------------- trials


class Trial(NamedTuple):
    line: int
    """Where the statement begins."""
    kind: str
    """comparison, arithmetic, boolean or constant."""
    old: str
    new: str
    source: str


class Change(NamedTuple):
    """One line's bytes from `start` to `end`, replaced."""

    kind: str
    line: int
    start: int
    end: int
    new: str


Repairs = Mapping[int, tuple[Trial, float]]
"""Line → the change that helped most, and how much: the share of failing tests that it makes pass less the share of
passing ones that it makes fail. Only what helps."""


def weighed(trials: Iterable[tuple[Trial, Collection[str]]], results: Sequence[TestResult]) -> Repairs:
    """Trials with the names of the tests that each passed."""
    failed = {result.name for result in results if not result.passed}
    passed = {result.name for result in results if result.passed}
    best: dict[int, tuple[Trial, float]] = {}
    for trial, passes in trials:
        gain = len(failed & {*passes}) / len(failed) - len(passed - {*passes}) / max(1, len(passed))
        if gain > best.get(trial.line, (trial, 0.0))[1]:
            best[trial.line] = trial, gain
    return best


def trials(source: str, lines: Sequence[int], most: int) -> list[Trial]:
    """At most so many, of the statements that begin on these lines: for all the likeliest change of every word, then
    the next.

    >>> [(trial.old, trial.new) for trial in trials("if a < 1: pass", [1], 9)]
    [('<', '<='), ('1', '2'), ('<', '>'), ('1', '0'), ('<', '>=')]
    """
    statements = own_parts(ast.parse(source))
    turns: list[tuple[int, int, Trial]] = []
    for rank, line in enumerate(lines):
        for node in statements.get(line, ()):
            for turn, change in enumerate(_changes(node, source.split("\n"))):
                turns.append((turn, rank, applied(source, line, change)))
    return [trial for _, _, trial in sorted(turns, key=lambda each: each[:2])][:most]


def own_parts(tree: ast.AST) -> dict[int, list[ast.AST]]:
    """First line of each statement → its nodes, without those of the statements in its body."""
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            fields = [value for name, value in ast.iter_fields(node) if name not in _INNER]
            parts = [part for value in fields for part in (value if isinstance(value, list) else [value])]
            own = [inner for part in parts if isinstance(part, ast.AST) for inner in ast.walk(part)]
            found.setdefault(node.lineno, []).extend([node, *own])
    return found


def applied(source: str, line: int, change: Change) -> Trial:
    """The change made, as a trial of the statement on `line`."""
    rows = source.split("\n")
    row = rows[change.line - 1].encode()
    rows[change.line - 1] = (row[: change.start] + change.new.encode() + row[change.end :]).decode()
    return Trial(line, change.kind, row[change.start : change.end].decode(), change.new, "\n".join(rows))


def _changes(node: ast.AST, rows: Sequence[str]) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, sign, right in zip(sides, node.ops, sides[1:], strict=False):
            yield from _sign("comparison", left, sign, right, rows)
    elif isinstance(node, ast.BinOp):
        yield from _sign("arithmetic", node.left, node.op, node.right, rows)
    elif isinstance(node, ast.AugAssign):
        yield from _sign("arithmetic", node.target, node.op, node.value, rows)
    elif isinstance(node, ast.BoolOp):
        yield from _sign("boolean", node.values[0], node.op, node.values[1], rows)
    elif isinstance(node, ast.UnaryOp) and node.lineno == node.operand.lineno:
        yield Change("boolean", node.lineno, node.col_offset, node.operand.col_offset, "")
    elif isinstance(node, ast.Constant) and node.lineno == node.end_lineno:
        for new in _numbers(node.value):
            yield Change("constant", node.lineno, node.col_offset, node.end_col_offset or 0, new)


def _sign(kind: str, left: ast.expr, sign: ast.AST, right: ast.expr, rows: Sequence[str]) -> Iterator[Change]:
    """Other signs between two operands on the same line."""
    word = _SIGNS.get(type(sign))
    if word is None or left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    between = rows[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
    if (place := re.search(re.escape(word).replace("\\ ", r"\s+"), between)) is not None:
        start = left.end_col_offset + len(between[: place.start()].encode())
        for new in _WORDS.get(word) or _INSTEAD[word].split():
            yield Change(kind, right.lineno, start, start + len(place[0].encode()), new)


def _numbers(value: object) -> list[str]:
    if isinstance(value, bool):
        return [str(not value)]
    return [str(value + 1), str(value - 1) if value > 0 else f"({value - 1})"] if isinstance(value, int) else []
