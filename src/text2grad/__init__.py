"""Train language models from written feedback. The public names (`__init__.pyi` lists them) are imported when first
asked for: those of the core bring no torch, trainers, models and estimators need the extra `train`."""

import importlib
from functools import cache
from typing import Any

__version__ = "0.2.0"


@cache
def _homes() -> dict[str, str]:
    """Public name → the module it lives in."""
    import ast
    from importlib.resources import files

    stub = ast.parse(files(__name__).joinpath("__init__.pyi").read_text(encoding="utf-8"))
    found = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in found for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_homes())
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"module 'text2grad' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_homes()[name]), name)
    except ModuleNotFoundError as problem:
        from text2grad.errors import MissingExtra

        raise MissingExtra.of(problem, f"text2grad.{name}") or problem from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
