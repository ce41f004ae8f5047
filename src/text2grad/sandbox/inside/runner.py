"""Calls one test the way pytest or unittest would: what sets it up, the test with its fixtures, what tears it down.

Enters: the name of a test function or method, the names that the tests' code defined. Leaves: nothing, or what the test
raised. Modules and classes are set up for each test anew, as the tests' code itself is run for each.
"""

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from text2grad.sandbox.inside import fakepytest
from text2grad.sandbox.inside.judge import copied

_FUNCTION, _METHOD = types.FunctionType, types.MethodType
_Compare = Callable[..., None]


class _Module:
    """What `setup_module(module)` is given: its attributes are the names of the tests."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__ = names


def found(qualified: str, names: dict[str, Any]) -> Any:
    """The function of a test, a method without its `self` among the arguments."""
    holder, _, name = qualified.rpartition(".")
    if not holder:
        return names[name]
    function = getattr(names.get(holder), name, None)
    return _METHOD(function, names[holder]) if isinstance(function, _FUNCTION) else function


def refusal(qualified: str, names: dict[str, Any]) -> str | None:
    """Why a test cannot be run here, whatever the program."""
    holder = names.get(qualified.rpartition(".")[0])
    if any(getattr(part, "__unittest_skip__", False) for part in (holder, found(qualified, names))):
        return "marked skip"
    if hasattr(holder, "assertEqual"):
        return fakepytest.refusal(found(qualified, names), {})
    return fakepytest.refusal(found(qualified, names), fakepytest.fixtures(names, holder))


def is_skip(problem: BaseException) -> bool:
    """Whether a test asked for it."""
    case = getattr(sys.modules.get("unittest"), "SkipTest", None)
    return any(problem is skip for skip in fakepytest.skips) or (case is not None and type(problem) is case)


def said(skip: BaseException) -> str:
    return str(skip) if isinstance(skip, fakepytest.Unusable) else f"skips itself: {skip}"


def call(qualified: str, names: dict[str, Any], compare: _Compare | None) -> None:
    """A test function, a method of a test class, or one of a `unittest.TestCase`, made to use `compare`."""
    module = _Module(names)
    for first in ("setup_module", "setUpModule"):
        _step(names.get(first), module)
    ends = [(names.get(last), module) for last in ("teardown_module", "tearDownModule")]
    try:
        holder, _, name = qualified.rpartition(".")
        if not holder:
            _function(names[name], names)
        elif hasattr(names[holder], "assertEqual"):
            _unittest(names[holder], name, compare)
        else:
            _method(names[holder], name, names)
    except BaseException:
        _end(ends)
        raise
    for step, given in ends:
        _step(step, given)


def _function(function: Any, names: dict[str, Any]) -> None:
    around = (
        lambda: _step(names.get("setup_function"), function),
        lambda: _step(names.get("teardown_function"), function),
    )
    fakepytest.call(function, fakepytest.fixtures(names, None), *around)


def _method(cls: Any, name: str, names: dict[str, Any]) -> None:
    _class_step(cls, "setup_class")
    made = cls()
    method = getattr(made, name)

    def before() -> None:
        for step in ("setup_method", "setUp"):
            _step(getattr(made, step, None), method)

    def after() -> None:
        for step in ("teardown_method", "tearDown"):
            _step(getattr(made, step, None), method)

    try:
        fakepytest.call(method, fakepytest.fixtures(names, made), before, after)
    except BaseException:
        _end([(lambda: _class_step(cls, "teardown_class"), None)])
        raise
    _class_step(cls, "teardown_class")


def _unittest(cls: Any, name: str, compare: _Compare | None) -> None:
    if compare is not None:
        _guard(cls, compare)
    cls.setUpClass()
    try:
        cls(name).debug()
    except BaseException:
        _end([(cls.tearDownClass, None)])
        raise
    cls.tearDownClass()


def _guard(cls: Any, compare: _Compare) -> None:
    """Its methods as they were before the program was loaded; those that compare do not ask the program's objects."""
    for name, method in _PRISTINE.items():
        if name in vars(cls) or not name.startswith(("assert", "fail", "_")):
            continue
        if name in _SIGNS:
            method = _comparing(compare, _SIGNS[name])
        elif "AlmostEqual" in name:
            method = _near(method)
        setattr(cls, name, method)


_SIGNS = {"assertEqual": "==", "assertNotEqual": "!=", "assertIn": "in", "assertNotIn": "not in", "assertLess": "<"}
_SIGNS |= {"assertLessEqual": "<=", "assertGreater": ">", "assertGreaterEqual": ">="}
_SIGNS |= {f"assert{kind}Equal": "==" for kind in ("List", "Tuple", "Set", "Dict", "Sequence", "MultiLine")}


def _comparing(compare: _Compare, sign: str) -> Any:
    return lambda _, first, second, msg=None, **__: compare(sign, first, second, False, lambda: msg or "")


def _near(method: Any) -> Any:
    def near(self: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> None:
        (plain, one), (same, other) = copied(first), copied(second)
        if not (plain and same):
            raise fakepytest.Failed(
                f"expected a number, got an object of type {type(second if plain else first).__name__}"
            )
        method(self, one, other, *args, **kwargs)

    return near


_PRISTINE: dict[str, Any] = {}
"""Methods of unittest's test case as they were before the program was loaded."""


def keep_unittest() -> None:
    """Before the program is loaded, where the tests use unittest: what checks is not looked up in its class later."""
    case = getattr(sys.modules.get("unittest"), "TestCase", None)
    if case is not None:
        _PRISTINE.update({name: method for name, method in vars(case).items() if isinstance(method, _FUNCTION)})


def _class_step(cls: Any, name: str) -> None:
    """pytest takes it with or without `classmethod`."""
    step = getattr(cls, name, None)
    if step is not None:
        step(*([] if isinstance(step, _METHOD) else [cls]))


def _step(step: Any, given: Any) -> None:
    """A step of set-up takes one argument or none; None: there is no such step."""
    if step is not None:
        step(*([given] if fakepytest.arguments(step) else []))


def _end(steps: Iterable[tuple[Any, Any]]) -> None:
    """After a failure: what tears down is run, and what it raises says less than the failure."""
    for step, given in steps:
        try:
            _step(step, given)
        except BaseException:  # noqa: BLE001
            continue
