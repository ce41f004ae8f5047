"""Seeded bugs: one-line mutants of programs that a test kills, for measuring who points at the mutated line.

Enters: a program's source. Leaves: mutants: the source with one word or statement of one line replaced, all other lines
as they were. Four kinds are those that the critic `code` tries as repairs (`faults.py`), six are not: another name,
another function, arguments the other way round, a slice without a bound, `break` for `continue`, a statement left out.
"""

import ast
import random
from collections.abc import Iterator

from text2grad.feedback.critics.faults import Change, Trial, applied, own_parts, trials

CALLS = {"min": "max", "max": "min", "sum": "max", "sorted": "list", "any": "all", "all": "any", "abs": "int"}
CALLS |= {"append": "extend", "upper": "lower", "lower": "upper", "set": "list", "ceil": "floor", "floor": "ceil"}


def mutants(source: str) -> list[Trial]:
    """All of them that parse; `line` is where the mutated statement begins."""
    tree, rows = ast.parse(source), source.split("\n")
    bodies = [part for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for part in node.body]
    inner = {part.lineno for body in bodies for part in ast.walk(body) if isinstance(part, ast.stmt)}
    found = trials(source, sorted(inner), most=10_000)
    names = sorted(
        {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    )
    names += sorted({part.arg for part in ast.walk(tree) if isinstance(part, ast.arg)} - {*names})
    for line, parts in own_parts(tree).items():
        for change in (change for part in parts if line in inner for change in _changes(part, names, rows)):
            found.append(applied(source, line, change))
    return [mutant for mutant in dict.fromkeys(found) if mutant.source != source and _parses(mutant.source)]


def drawn(source: str, draw: random.Random) -> Iterator[Trial]:
    """In random order: a kind first, then one of the kind, so that a program full of numbers is not all constants."""
    left = mutants(source)
    while left:
        kind = draw.choice(sorted({mutant.kind for mutant in left}))
        chosen = draw.choice([mutant for mutant in left if mutant.kind == kind])
        left.remove(chosen)
        yield chosen


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def _changes(node: ast.AST, names: list[str], rows: list[str]) -> Iterator[Change]:
    line, end = getattr(node, "lineno", 0), getattr(node, "end_col_offset", 0)
    if not line or line != getattr(node, "end_lineno", 0):
        return
    here = line, getattr(node, "col_offset", 0), end
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in names:
            yield from (Change("name", *here, name) for name in names if name != node.id)
        elif node.id in CALLS:
            yield Change("call", *here, CALLS[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in CALLS:
        yield Change("call", line, end - len(node.attr), end, CALLS[node.attr])
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        (a, b), (c, d) = ((part.col_offset, part.end_col_offset or 0) for part in node.args)
        row = rows[line - 1].encode()
        yield Change("arguments", line, a, d, (row[c:d] + row[b:c] + row[a:b]).decode())
    elif isinstance(node, ast.Slice):
        bounds = [part for part in (node.lower, node.upper) if part is not None]
        yield from (Change("slice", line, part.col_offset, part.end_col_offset or 0, "") for part in bounds)
    elif isinstance(node, ast.Break | ast.Continue):
        yield Change("jump", *here, "continue" if isinstance(node, ast.Break) else "break")
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr):
        yield Change("missing", *here, "pass")
