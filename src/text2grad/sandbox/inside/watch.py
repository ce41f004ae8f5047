"""Questions that Python answers to anybody in a process, refused to a program that shares one with its tests.

Enters: audit events. Leaves: nothing, or a `PermissionError`. Frames lead to the tests and to their judge, so they are
for those parts of the library alone that use them and give none away; the garbage collector's objects, trace hooks and
foreign functions are for nobody. Which code asks is told by the name of its file; so no code gets a name that is not
its own: what is compiled or loaded under the name of a file of the library has to be that file.
"""

import builtins
import os
import sys
import types
import warnings
from _thread import get_ident as _thread
from collections.abc import Callable, Mapping
from typing import Any

_FUNCTION, _CODE = types.FunctionType, types.CodeType
_NEVER = {
    "sys._current_frames",
    "sys._current_exceptions",
    "sys.settrace",
    "sys.setprofile",
    "sys.addaudithook",
    "sys.monitoring.register_callback",
    "gc.get_objects",
    "gc.get_referrers",
    "gc.get_referents",
}
_SELDOM = {"sys._getframe", "code.__new__", "function.__new__"}
_SET_AND_GOT = {"object.__getattr__", "object.__setattr__", "object.__delattr__"}
_WATCHED = {"import", "compile", "marshal.loads", "marshal.load", *_NEVER, *_SELDOM, *_SET_AND_GOT}
_FAIR = {"__code__", "__defaults__", "__kwdefaults__"}
_ATTRIBUTES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", *_FAIR}
_MODULES = {"ctypes", "_ctypes", "_signal", "_imp", "_testcapi", "_testinternalcapi", "_xxsubinterpreters"}
_MODULES |= {"_interpreters", "_testlimitedcapi", "_xxtestfuzz", "gc"}
"""Not to be loaded anew; `guard` has loaded the collector, and taken from it what shows objects."""
_NEEDS_FRAMES = {("collections/__init__.py", "namedtuple"), ("typing.py", "_caller"), ("enum.py", "_create_")}
"""Functions of the library that look at a frame and hand none on."""
_LIBRARY = os.path.dirname(os.__file__) + "/"  # noqa: PTH120
_HERE = (lambda: 0).__code__.co_filename
_INSIDE = os.path.dirname(_HERE) + "/"  # noqa: PTH120
_LOADER = "<frozen importlib._bootstrap_external>"


def watch() -> None:
    """From now on, and for good. The hook works with names of its own: through this module a program could empty the
    lists that it goes by."""
    _keep_names()
    shared = globals()
    own: dict[str, Any] = {name: frozenset(value) if type(value) is set else value for name, value in shared.items()}
    own["__builtins__"] = dict(vars(builtins))
    for name, value in shared.items():
        if type(value) is _FUNCTION and value.__globals__ is shared:
            own[name] = _FUNCTION(value.__code__, own, name, value.__defaults__)
    folders = (_LIBRARY, _INSIDE, *(f"{folder}/" for folder in sys.path if folder))
    sys.addaudithook(own["_hook"](sys._getframe, folders))


def _hook(frame_of: Callable[[int], Any], folders: tuple[str, ...]) -> Any:
    blocked, busy, thread = PermissionError, set[int](), _thread

    def known(file: str) -> bool:
        return file == "tests.py" or (file.startswith(("<frozen ", *folders)) and "/../" not in file)

    def program_asks() -> bool:
        """Whether code of the program is at work, however far up; all that is not known is the program's. What a module
        of the library does while it is imported is its own doing."""
        frame = frame_of(3)
        if (*_place(frame),) in _NEEDS_FRAMES or _logs(frame):
            return False
        while frame is not None:
            if not known(frame.f_code.co_filename):
                return True
            if frame.f_code.co_name == "<module>":
                return False
            frame = frame.f_back
        return False

    def refused(event: str, args: tuple[Any, ...]) -> bool:
        if event in _NEVER or event.startswith("ctypes."):
            return True
        if event == "import":
            return args[0] in _MODULES or not (args[1] is None or known(args[1]))
        if event in ("compile", "marshal.loads", "marshal.load"):
            return _false_name(event, args, frame_of(2), known)
        if event in _SELDOM:
            return program_asks()
        if event in _SET_AND_GOT and args[1] in _ATTRIBUTES:
            return not (event == "object.__getattr__" and _harmless(*args[:2])) and program_asks()
        return False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in _WATCHED and event[:7] != "ctypes.":
            return
        me = thread()
        if me in busy:
            return
        busy.add(me)
        try:
            no = refused(event, args)
        finally:
            busy.discard(me)
        if no:
            raise blocked(f"{event} is refused to a program that shares a process with its tests")

    return hook


def _place(frame: Any) -> tuple[str, str]:
    file = frame.f_code.co_filename
    return (file[len(_LIBRARY) :] if file.startswith(_LIBRARY) else "", frame.f_code.co_name)


def _logs(frame: Any) -> bool:
    """`logging` looks for the line that logs; its function for that keeps the frame to itself."""
    above = frame.f_back
    return (
        _place(frame)[0] == "logging/__init__.py"
        and above is not None
        and _place(above)
        == (
            "logging/__init__.py",
            "findCaller",
        )
    )


def _harmless(function: Any, name: str) -> bool:
    """A function that holds nothing of the judge's: which arguments it takes is a fair question."""
    if name not in _FAIR or type(function) is not _FUNCTION:
        return False
    return not _holds_functions(function.__code__)


def _holds_functions(code: types.CodeType) -> bool:
    return any(_holds_functions(c) if type(c) is _CODE else callable(c) for c in code.co_consts)


def _false_name(event: str, args: tuple[Any, ...], asking: Any, known: Callable[[str], bool]) -> bool:
    """Whether code would get the name of a file that it does not come from."""
    if event == "compile":
        source, name = args[:2]
        if type(name) is not str:
            return name is not None
        return known(name) and not _is_file(name, source, 0)
    if asking.f_code.co_filename != _LOADER or event == "marshal.load":
        return True
    name, cached = asking.f_locals.get("source_path"), asking.f_locals.get("bytecode_path")
    if type(name) is not str or type(cached) is not str:
        return True
    return not (known(name) and _is_file(cached, args[0], 16))


def _is_file(path: str, content: Any, skipped: int) -> bool:
    if type(content) is str:
        content = content.encode("utf-8", "surrogatepass")
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()[skipped:] == bytes(content)
    except (OSError, TypeError, ValueError):
        return False


_CREATE = """
def create_builtin(spec):
    name = spec.name
    if type(name) is not str or name in "modules":
        raise PermissionError("this built-in module is not made anew")
    return "create"("spec"(name=name))
"""


def _keep_names() -> None:
    """`_imp` renames code and makes built-in modules anew, and tells no hook."""
    module: Any = sys.modules["_imp"]
    module._fix_co_filename = lambda *_: None
    given = {"modules": _MODULES, "create": module.create_builtin, "spec": types.SimpleNamespace}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a text is not callable: it will not be one
        code = bound(compile(_CREATE, _HERE, "exec"), given)
    names: dict[str, Any] = {"__builtins__": dict(vars(builtins))}
    exec(code, names)
    module.create_builtin = names["create_builtin"]


def bound(code: types.CodeType, values: Mapping[str, Any]) -> types.CodeType:
    """The same code with values in place of the constant texts that stand for them. A constant is reached through the
    code alone, which `__code__` gives to no program; names and closures are open to everybody."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            constants.append(bound(constant, values))
        else:
            constants.append(values.get(constant, constant) if type(constant) is str else constant)
    return code.replace(co_consts=tuple(constants))
