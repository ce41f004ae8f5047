"""The rooms hold: imports flow one way, each room refuses what it says it refuses, files fit in a head."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "text2grad"

LAYERS = [
    {"errors"},
    {"_checked"},
    {"types", "config"},
    {"runs", "sandbox"},
    {"feedback", "optim", "report"},
    {"models", "tasks"},
    {"stages"},
    {"cli"},
    {"__main__"},
]
"""A room may import from the rows above its own, and from itself; rooms of one row do not know each other."""

TENSORS = {"torch", "transformers", "tokenizers", "accelerate", "peft", "safetensors"}
REFUSES = {
    "types": TENSORS,
    "config": TENSORS,
    "runs": TENSORS,
    "sandbox": TENSORS,
    "feedback": TENSORS,
    "report": TENSORS,
    "optim": {"transformers", "tokenizers", "sentencepiece"},
}
"""Packages that a room never imports, at the top or inside a function."""

HEAVY = TENSORS | {"pydantic", "numpy", "rich", "yaml"}
"""Never imported while `text2grad --help` answers."""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything a file imports; `from text2grad import x` counts as `text2grad.x`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the whole name"
            yield from ((node.lineno, f"{base}.{a.name}" if base == "text2grad" else base) for a in node.names)


def violations(source: Path) -> Iterator[str]:
    row_of = {room: row for row, rooms in enumerate(LAYERS) for room in rooms}
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        if room not in row_of:
            yield f"{path}: no such room; add it to LAYERS and to docs/architecture.md, or move the file"
            continue
        for line, name in imports(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package in REFUSES.get(room, ()):
                yield f"{path}:{line}: {room} refuses {package}"
            if package == "text2grad" and other in row_of and other != room and row_of[other] >= row_of[room]:
                yield f"{path}:{line}: {room} may not import {other}: imports flow one way"
        if room == "optim":
            yield from (
                f"{path}:{node.lineno}: optim knows no tokenizer"
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Name | ast.arg)
                and "tokenizer" in (node.id if isinstance(node, ast.Name) else node.arg)
            )


def test_the_rooms_hold() -> None:
    assert list(violations(SOURCE)) == []


@pytest.mark.parametrize(
    ("place", "code", "expected"),
    [
        ("feedback/align.py", "import torch", "feedback refuses torch"),
        ("feedback/align.py", "def f():\n    from transformers import x", "feedback refuses transformers"),
        ("optim/loss.py", "import transformers", "optim refuses transformers"),
        ("optim/loss.py", "def f(tokenizer): ...", "optim knows no tokenizer"),
        ("feedback/align.py", "from text2grad.models import offsets", "feedback may not import models"),
        ("feedback/align.py", "from text2grad import stages", "feedback may not import stages"),
        ("optim/loss.py", "from text2grad.feedback import parse", "optim may not import feedback"),
        ("types.py", "import text2grad.runs", "types may not import runs"),
        ("utils/misc.py", "x = 1", "no such room"),
    ],
)
def test_a_violation_is_found(tmp_path: Path, place: str, code: str, expected: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(code)
    (found,) = violations(tmp_path)
    assert expected in found


def test_files_and_functions_fit_in_a_head() -> None:
    long = []
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "scripts").glob("*.py")]:
        text = path.read_text()
        if text.count("\n") > 400:
            long.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (length := (node.end_lineno or 0) - node.lineno + 1) > 60:
                long.append(f"{path}:{node.lineno} {node.name}: {length} lines")
    assert long == []


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_the_readme_draws_every_room() -> None:
    tree = (ROOT / "README.md").read_text()
    rooms = {path.name for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {room for room in rooms - {"__main__.py"} if room not in tree} == set()
