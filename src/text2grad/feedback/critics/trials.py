"""Small changes of one line, to try out on a program that fails: another sign, a number that is one more or less.

Enters: source. Leaves: `Trial`s, each the source with one word of one statement replaced. A change that makes failing
tests pass shows which statement is wrong, and what is wrong with it. Knows nothing of running.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
