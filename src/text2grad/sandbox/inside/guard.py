"""What can be done for tests that share a process with the program they judge.

Not a wall: in one process a determined program can reach everything. It closes the doors that are known: the modules of
the judge are taken out of sight; program, tests and judge each have their own copy of the built-in names, so that
patching them reaches no further; and asking Python for frames, the garbage collector's objects, trace hooks or foreign
functions is refused to the program. Its verdicts are marked `in_process`, so that whoever trains on them can leave them
out.
"""

import builtins
import signal
import sys
import types
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from text2grad.sandbox.inside.program import FILE

_EVENTS = {
    "sys._getframe",
    "sys._current_frames",
    "sys.settrace",
    "sys.setprofile",
    "sys.addaudithook",
    "gc.get_objects",
    "gc.get_referrers",
    "gc.get_referents",
    "code.__new__",
    "function.__new__",
}
_ATTRIBUTES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", "__code__"}
_MODULES = {
    "ctypes",
    "_ctypes",
    "_signal",
    "gc",
    "_testcapi",
    "_testinternalcapi",
    "_xxsubinterpreters",
    "_interpreters",
}
_GO_BETWEENS = ("inspect.py", "traceback.py", "threading.py", "bdb.py", "linecache.py", "/signal.py")


_UNTOUCHED = dict(vars(builtins))
"""As they were before any program was loaded."""


def copied_builtins() -> dict[str, Any]:
    return dict(_UNTOUCHED)


def as_json(value: Any) -> str:
    """JSON of dicts, lists, texts, whole numbers and None, by nothing that a program can patch: `json` looks its own
    methods up each time."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is list:
        return f"[{', '.join([as_json(item) for item in value])}]"
    if type(value) is dict:
        return f"{{{', '.join([f'{_quoted(key)}: {as_json(item)}' for key, item in value.items()])}}}"
    return _quoted(value)


def close_doors() -> None:
    """Before the program is loaded, and after all of ours is."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("text2grad", "__main__")]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")
    shown = types.ModuleType("builtins")
    shown.__dict__.update(_UNTOUCHED)
    sys.modules["builtins"] = shown
    _deafen()
    sys.addaudithook(_watch(sys._getframe))


def seal() -> Callable[[], bool]:
    """Taken before the doors close: tells whether the judge's modules and classes are still what they were. A program
    finds the classes by `object.__subclasses__()`."""
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("text2grad.sandbox.inside.")]
    found = {id(value): vars(value) for names in modules for value in names.values() if _ours(value)}
    kept = [(names, dict(names)) for names in (*modules, *found.values())]
    missing = object()

    def whole() -> bool:
        for names, before in kept:
            if len(names) != len(before):
                return False
            for name, value in before.items():
                if names.get(name, missing) is not value:
                    return False
        return True

    return whole


def _ours(value: Any) -> bool:
    return isinstance(value, type) and value.__module__.startswith("text2grad.")


def _deafen() -> None:
    """Handlers and timers that a program sets are not set: a handler is given the frames of the test, and the timer is
    what ends a test."""
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


def _watch(frame_of: Any) -> Any:
    blocked = PermissionError

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "import":
            asked = args[0] in _MODULES
        elif event == "object.__getattr__":
            asked = args[1] in _ATTRIBUTES
        else:
            asked = event in _EVENTS
        if asked and not busy:
            busy.append(True)
            try:
                by_program = _asked_by_program(frame_of(1))
            finally:
                busy.clear()
            if by_program:
                raise blocked(f"{event} is refused to a program that shares a process with its tests")

    busy: list[bool] = []
    return hook


def _asked_by_program(frame: types.FrameType | None) -> bool:
    """The caller, or whom the caller asks for: `inspect.currentframe()` is a way of asking too."""
    while frame is not None and frame.f_code.co_filename.endswith(_GO_BETWEENS):
        frame = frame.f_back
    # Import machinery is frozen: what it imports, somebody above asked for.
    while frame is not None and frame.f_code.co_filename.startswith("<frozen"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == FILE
