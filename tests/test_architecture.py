"""The rooms hold: imports flow one way, each room refuses what it says it refuses, functions fit in a head."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import text2grad

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "text2grad"

LAYERS = [
    {"errors", "secrets", "writing"},
    {"_checked", "plugins"},
    {"types", "config"},
    {"runs", "sandbox"},
    {"feedback", "optim", "report"},
    {"models", "tasks"},
    {"evaluation"},
    {"training", "engines"},
    {"studio"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
"""A room may import from the rows above its own, and from itself; rooms of one row do not know each other."""

TENSORS = {"torch", "transformers", "tokenizers", "accelerate", "peft", "safetensors", "gguf", "huggingface_hub"}
REFUSES = {
    "types": TENSORS,
    "config": TENSORS,
    "runs": TENSORS,
    "sandbox": TENSORS,
    "feedback": TENSORS,
    "report": TENSORS,
    "tasks": TENSORS,
    "optim": {"transformers", "tokenizers", "sentencepiece"},
}
"""Packages that a room never imports, at the top or inside a function."""

PUBLIC = {"__version__"}
"""What may be imported from `text2grad` itself: modules, and this. The public names are for users: each has a room."""

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
            if name == "text2grad" or (package == "text2grad" and other not in row_of and other not in PUBLIC):
                yield f"{path}:{line}: {name}: import from the room where it lives"
            if package in REFUSES.get(room, ()):
                yield f"{path}:{line}: {room} refuses {package}"
            if package == "text2grad" and other in row_of and other != room and row_of[other] >= row_of[room]:
                yield f"{path}:{line}: {room} may not import {other}: imports flow one way"
        if room == "optim":
            yield from (
                f"{path}:{node.lineno}: optim knows no tokenizer"
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Name | ast.arg | ast.Attribute)
                and any("tokenizer" in str(getattr(node, field, "")) for field in ("id", "arg", "attr"))
            )


def test_the_rooms_hold() -> None:
    assert list(violations(SOURCE)) == []


@pytest.mark.parametrize(
    ("place", "code", "expected"),
    [
        ("feedback/align.py", "import torch", "feedback refuses torch"),
        ("feedback/align.py", "def f():\n    from transformers import x", "feedback refuses transformers"),
        ("tasks/news.py", "import torch", "tasks refuses torch"),
        ("optim/loss.py", "import transformers", "optim refuses transformers"),
        ("optim/loss.py", "def f(tokenizer): ...", "optim knows no tokenizer"),
        ("feedback/align.py", "from text2grad.models import offsets", "feedback may not import models"),
        ("feedback/align.py", "from text2grad import commands", "feedback may not import commands"),
        ("optim/loss.py", "from text2grad.feedback import parse", "optim may not import feedback"),
        ("types.py", "from text2grad import align", "import from the room where it lives"),
        ("runs.py", "import text2grad", "import from the room where it lives"),
        ("optim/loss.py", "class A:\n    def f(self):\n        return self.tokenizer", "optim knows no tokenizer"),
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


def test_functions_fit_in_a_head() -> None:
    long = []
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "scripts").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and (length := (node.end_lineno or 0) - node.lineno + 1) > 60
            ):
                long.append(f"{path}:{node.lineno} {node.name}: {length} lines")
    assert long == []


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_a_class_name_has_one_meaning() -> None:
    """Private names aside. `Stop` of sandbox/inside is met by nobody outside the sandbox."""
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert shared.keys() <= {"Stop"}, shared


def test_the_readme_draws_every_room() -> None:
    drawn = set(re.findall(r"^  (\w+(?:\.py|/)) ", (ROOT / "README.md").read_text(), re.MULTILINE))
    files = {path.name for path in SOURCE.glob("*.py")} | {
        f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")
    }
    assert drawn == files - {"__main__.py"}


def test_the_language_room_runs_without_torch() -> None:
    """Whatever way it might be imported."""
    modules = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in (SOURCE / "feedback").rglob("*.py")
    ]
    code = (
        f"import importlib, sys\n[importlib.import_module(m) for m in {modules}]\nprint(set(sys.modules) & {TENSORS!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


TRAIN = {
    "Advantages",
    "DPOTrainer",
    "Estimator",
    "RewardModel",
    "RewardModelTrainer",
    "SFTTrainer",
    "Trainer",
    "estimator",
    "with_advantages",
}
"""Public names that need the extra `train`."""


def test_public_names_of_the_core_bring_no_torch() -> None:
    """Also in an environment that has it."""
    light = sorted(set(text2grad.__all__) - TRAIN)
    code = f"import sys, text2grad\n[getattr(text2grad, n) for n in {light}]\nprint(set(sys.modules) & {TENSORS!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
    assert {"align", "judge", "completion_of", "token_rewards", "Rollout", "Task", "TrainSettings"} <= set(light)
