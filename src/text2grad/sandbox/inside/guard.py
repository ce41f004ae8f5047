"""What can be done for tests that share a process with the program they judge.

Not a wall: in one process a determined program can reach everything. It closes the doors that are known: the modules of
the judge are taken out of sight; program, tests and judge each have their own copy of the built-in names, so that
patching them reaches no further; what judges is compared with what it was; tests compute with copies of the library's
modules; and questions that lead to frames and memory are refused (`watch`). Its verdicts are marked `in_process`, so
that whoever trains on them can leave them out. What is left open: docs/sandbox.md.
"""

import builtins
import gc
import operator
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

from text2grad.sandbox.inside.watch import watch
from text2grad.sandbox.inside.wire import settle

_UNTOUCHED = dict(vars(builtins))
"""As they were before any program was loaded."""


def copied_builtins() -> dict[str, Any]:
    return dict(_UNTOUCHED)


def close_doors() -> dict[str, Any]:
    """Before the program is loaded, and after all of ours is. The built-in names that the program is to use: those that
    `import builtins` shows, so that a test's `patch("builtins.input")` reaches it."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("text2grad", "__main__")]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")
    shown = types.ModuleType("builtins")
    shown.__dict__.update(_UNTOUCHED)
    sys.modules["builtins"] = shown
    _deafen()
    watch()
    return shown.__dict__


def seal() -> tuple[Callable[[], bool], Callable[[], bool]]:
    """Taken before the doors close. (whether the judge's modules, classes and built-in names are still what they were;
    the same, and the functions of what tests compute with). A program finds the classes by `object.__subclasses__()`.
    Neither looks anything up that a program could change."""
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("text2grad.sandbox.inside.")]
    found = {id(value): vars(value) for names in modules for value in names.values() if _ours(value)}
    found |= {id(value): vars(value) for value in settle()}
    own = {id(names["__builtins__"]): names["__builtins__"] for names in modules}
    tables = {id(value): value for names in modules for value in names.values() if type(value) is dict}
    kept = [(names, dict(names)) for names in (*modules, *found.values(), *{**own, **tables}.values())]
    # In one go, since it is done before each check; and no object is asked whether it is the same.
    seen = [(names, list(before.values())) for names, before in kept]
    lent = [(names, _functions(names)) for names in _lent()]
    missing, size, each, every, same = object(), len, map, all, operator.is_
    shown = {name: sys.modules[name] for name in PURE if name in sys.modules}
    places, found_there, there = list(shown), list(shown.values()), sys.modules.get

    def sound() -> bool:
        if not every(each(same, each(there, places), found_there)):
            return False
        return every([size(names) == size(old) and every(each(same, names.values(), old)) for names, old in seen])

    def whole() -> bool:
        for names, before in lent:
            for name, value in before.items():
                if names.get(name, missing) is not value:
                    return False
        return sound()

    return sound, whole


def _ours(value: Any) -> bool:
    return isinstance(value, type) and value.__module__.startswith("text2grad.")


PURE = {"math", "cmath", "operator", "itertools", "functools", "collections", "re", "json", "string", "statistics"}
PURE |= {"copy", "decimal", "fractions", "numbers", "unittest", "unittest.case", "heapq", "bisect"}
"""Modules that tests compute with and that have no state worth changing."""


def _lent() -> list[Any]:
    """The names of those that are loaded, and of their classes."""
    modules = [vars(sys.modules[name]) for name in PURE if name in sys.modules]
    classes = [value for names in modules for value in names.values() if isinstance(value, type)]
    return [*modules, *(vars(value) for value in classes if value.__module__.partition(".")[0] in PURE)]


def _functions(names: Any) -> dict[str, Any]:
    return {name: value for name, value in names.items() if callable(value)}


def lend(names: dict[str, Any]) -> dict[str, Any]:
    """What tests have imported before the program is there: the same values, and copies of modules that no program can
    reach to patch `math.isclose`."""
    made = {}
    for name, value in names.items():
        if value is builtins:
            continue  # what tests patch there is to reach the program
        if isinstance(value, types.ModuleType) and value.__name__ in PURE:
            made[name] = types.ModuleType(value.__name__)
            made[name].__dict__.update(vars(value))
        else:
            made[name] = value
    return made


def _deafen() -> None:
    """Handlers and timers that a program sets are not set: a handler is given the frames of the test, and the timer is
    what ends a test. Nor does the garbage collector keep what it finds, frames among them."""
    setattr(gc, "set_debug", _unheard)  # noqa: B010
    for name in ("signal", "setitimer", "alarm", "pthread_sigmask", "siginterrupt", "set_wakeup_fd"):
        for module in (signal, sys.modules["_signal"]):
            if hasattr(module, name):
                setattr(module, name, _UNHEARD.get(name, _unheard))


def _unheard(*_: Any, **__: Any) -> int:
    return 0


_UNHEARD = {
    "signal": lambda *_: signal.SIG_DFL,
    "setitimer": lambda *_: (0.0, 0.0),
    "pthread_sigmask": lambda *_: set(),
    "set_wakeup_fd": lambda *_, **__: -1,
}
