"""Seeded bugs: one-line mutants of programs, for measuring who points at the mutated line.

Enters: a program's source, a random generator. Leaves: `Mutant`s: the source with one expression or statement of one
line replaced, all other lines as they were. The kinds are more than the critic `code` tries as repairs, so that bugs
can be counted apart that no trial undoes.
"""

import ast
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "/", "%": "//", "**": "*", "&": "|", "|": "&", "^": "&"}
ARITHMETIC |= {"<<": ">>", ">>": "<<"}
COMPARED = {"<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",)}
COMPARED |= {"in": ("not in",), "not in": ("in",), "is": ("is not",), "is not": ("is",)}
CALLS = {"min": "max", "max": "min", "sum": "max", "sorted": "list", "any": "all", "all": "any", "abs": "int"}
CALLS |= {"append": "extend", "upper": "lower", "lower": "upper", "set": "list", "ceil": "floor", "floor": "ceil"}
SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
SYMBOLS |= {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}
SYMBOLS |= {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in"}
SYMBOLS |= {ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}


class Mutant(NamedTuple):
    kind: str
    line: int
    source: str


def mutants(source: str) -> list[Mutant]:
    """All of them. Each differs from the source in one line, and parses."""
    lines, tree = source.split("\n"), ast.parse(source)
    found: dict[str, Mutant] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = sorted({part.id for part in ast.walk(function) if isinstance(part, ast.Name) and _stored(part)})
        names += [argument.arg for argument in function.args.args]
        for node in (part for statement in function.body for part in ast.walk(statement)):
            for kind, line, start, end, text in _changes(node, names, lines):
                row = lines[line - 1].encode()
                changed = (row[:start] + text.encode() + row[end:]).decode()
                mutated = "\n".join([*lines[: line - 1], changed, *lines[line:]])
                if mutated != source and _parses(mutated):
                    found.setdefault(mutated, Mutant(kind, line, mutated))
    return list(found.values())


def drawn(source: str, most: int, draw: random.Random) -> Iterator[Mutant]:
    """In random order, a kind first and then one of the kind, so that a program full of numbers is not all constants."""
    left = mutants(source)
    del most
    while left:
        kind = draw.choice(sorted({mutant.kind for mutant in left}))
        chosen = draw.choice([mutant for mutant in left if mutant.kind == kind])
        left.remove(chosen)
        yield chosen


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


_Change = tuple[str, int, int, int, str]
"""(kind, line, first and last byte in the line, text)."""


def _changes(node: ast.AST, names: list[str], lines: list[str]) -> Iterator[_Change]:
    line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if not line or line != end:
        return
    here = line, getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
    if isinstance(node, ast.BinOp | ast.Compare | ast.AugAssign):
        yield from _operators(node, lines)
    elif isinstance(node, ast.Constant):
        yield from (("constant", *here, text) for text in _constants(node.value))
    elif isinstance(node, ast.BoolOp):
        first, second = node.values[:2]
        word = "or" if isinstance(node.op, ast.And) else "and"
        if first.end_lineno == second.lineno:
            yield "boolean", line, first.end_col_offset or 0, second.col_offset, f" {word} "
    elif isinstance(node, ast.UnaryOp):
        yield "boolean", line, here[1], node.operand.col_offset, ""
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in names:
            yield from (("name", *here, name) for name in names if name != node.id)
        elif node.id in CALLS:
            yield "call", *here, CALLS[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in CALLS:
        yield "call", line, here[2] - len(node.attr), here[2], CALLS[node.attr]
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        yield "arguments", *_between(node.args[0], node.args[1], lines)
    elif isinstance(node, ast.Slice):
        yield from (("slice", line, p.col_offset, p.end_col_offset or 0, "") for p in (node.lower, node.upper) if p)
    elif isinstance(node, ast.Break | ast.Continue):
        yield "jump", *here, "continue" if isinstance(node, ast.Break) else "break"
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr):
        yield "missing", *here, "pass"


def _operators(node: ast.BinOp | ast.Compare | ast.AugAssign, lines: list[str]) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        left, operator, right = node.left, node.ops[0], node.comparators[0]
    elif isinstance(node, ast.BinOp):
        left, operator, right = node.left, node.op, node.right  # type: ignore[assignment]
    else:
        left, operator, right = node.target, node.op, node.value  # type: ignore[assignment]
    symbol = SYMBOLS.get(type(operator))
    if symbol is None or left.end_lineno != right.lineno:
        return
    row = lines[left.end_lineno - 1].encode()
    start, end = left.end_col_offset or 0, right.col_offset
    between = row[start:end].decode()
    place = re.search(re.escape(symbol).replace(r"\ ", r"\s+"), between)
    if place is None:
        return
    others = COMPARED.get(symbol, ()) if isinstance(node, ast.Compare) else (ARITHMETIC[symbol],)
    kind = "comparison" if isinstance(node, ast.Compare) else "arithmetic"
    for other in others:
        yield kind, left.end_lineno, start, end, f"{between[: place.start()]}{other}{between[place.end() :]}"


def _constants(value: object) -> list[str]:
    if isinstance(value, bool):
        return [str(not value)]
    if isinstance(value, int):
        return [str(value + 1), str(value - 1) if value > 0 else f"({value - 1})"]
    return [repr(value + "x"), "''"] if isinstance(value, str) and value else []


def _between(first: ast.expr, second: ast.expr, lines: list[str]) -> tuple[int, int, int, str]:
    """The two the other way round."""
    start, middle, after, end = first.col_offset, first.end_col_offset or 0, second.col_offset, second.end_col_offset or 0
    row = lines[first.lineno - 1].encode()
    return first.lineno, start, end, (row[after:end] + row[middle:after] + row[start:middle]).decode()
