"""A program, loaded so that it is known which of its statements ran.

Enters: source. Leaves: a module named `solution`, and the first lines of the statements that ran since the last reset.
Instead of a trace function, which slows loops tenfold and which programs can take away, every statement is preceded by
a mark in a byte array: a few per cent of the time, on every version of Python.
"""

import ast
import sys
import types
from types import FrameType, TracebackType
from typing import Any

FILE = "solution.py"
_MARKS = "__ran__"


class Stop(BaseException):
    """This test cannot go on; `kind` and `message` are its result. Not an `Exception`: `except Exception` in a program
    or a test does not swallow it."""

    def __init__(self, kind: str, message: str, frames: list[int] | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.frames = kind, message, frames or []


class Program:
    """One loaded program."""

    def __init__(self, source: str) -> None:
        self.module = types.ModuleType("solution")
        self.module.__file__ = FILE
        tree = ast.parse(source, FILE)
        self.marks = bytearray(max((getattr(node, "lineno", 0) for node in ast.walk(tree)), default=0) + 1)
        self._code = compile(marked(tree), FILE, "exec", dont_inherit=True)

    def run(self) -> None:
        """Execute the module; what it raises, it raises."""
        self.module.__dict__[_MARKS] = self.marks
        sys.modules["solution"] = self.module
        exec(self._code, self.module.__dict__)

    def reset(self) -> None:
        self.marks[:] = bytes(len(self.marks))
        if (randomness := sys.modules.get("random")) is not None:
            randomness.seed(0)  # the same verdict on every run

    def ran(self) -> list[int]:
        return [line for line, mark in enumerate(self.marks) if mark]


def marked(tree: ast.Module) -> ast.Module:
    """The same tree with `__ran__[line] = 1` before each statement that does something."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                pairs = ([part] if _silent(part) else [_mark(part), part] for part in body)
                setattr(node, field, [statement for pair in pairs for statement in pair])
    return ast.fix_missing_locations(tree)


def _silent(statement: ast.stmt) -> bool:
    """A docstring, and what has to stand before other statements."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, str)
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    return future or isinstance(statement, ast.Global | ast.Nonlocal)


def _mark(statement: ast.stmt) -> ast.stmt:
    at: Any = {"lineno": statement.lineno, "col_offset": 0, "end_lineno": statement.lineno, "end_col_offset": 0}
    place = ast.Subscript(ast.Name(_MARKS, ast.Load(), **at), ast.Constant(statement.lineno, **at), ast.Store(), **at)
    return ast.Assign([place], ast.Constant(1, **at), **at)


def out_of_time(_signal: int, frame: FrameType | None) -> None:
    """The handler of the timer. It interrupts the program, or what that called; elsewhere there is nothing to do."""
    while frame is not None:
        if frame.f_code.co_filename == FILE:
            raise Stop("timeout", "did not end in time")
        frame = frame.f_back


def frames(traceback: TracebackType | None) -> list[int]:
    """The line of each frame in the program's own file, outermost first; deep recursion keeps both ends."""
    lines = []
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == FILE:
            lines.append(traceback.tb_lineno)
        traceback = traceback.tb_next
    return lines if len(lines) <= 20 else lines[:10] + lines[-10:]
