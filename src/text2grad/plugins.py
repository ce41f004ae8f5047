"""Names → objects: a registry of ours, or a user's own as `package.module:object`."""

import difflib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from text2grad.errors import ConfigError


def find_plugin(name: str, known: Mapping[str, Any], setting: str) -> Any:
    """The object that a setting names; an unknown name is an error that suggests the nearest.

    >>> find_plugin("gae", {"gae": 1}, "advantage.estimator")
    1
    >>> find_plugin("gea", {"gae": 1}, "advantage.estimator")
    Traceback (most recent call last):
    text2grad.errors.ConfigError: advantage.estimator: there is no 'gea'; did you mean `gae`?
    """
    if name in known:
        return known[name]
    if ":" in name:
        return import_object(name, setting)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}, and package.module:object"
    raise ConfigError(f"{setting}: there is no {name!r}; {hint}")


def import_object(name: str, setting: str) -> Any:
    """`package.module:object`, also from the folder that the command is run in."""
    module, _, path = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        # As `python -m` does: a module beside the data can be named.
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(f"{setting}={name}: {problem}; is it installed, or in the folder you are in?") from problem
    return found
