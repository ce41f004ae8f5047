"""Test functions, run by pytest itself; their outcomes become the tester's events.

Enters: a tester, the imported test file, which functions are wanted. Leaves: each function's outcome, told through the
tester. A function with several parameter rows passes if all its rows pass.
"""

import io
import os
import types
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from text2grad.sandbox.inside.remote import FILE

if TYPE_CHECKING:
    from text2grad.sandbox.inside.tester import Tester

_OPTIONS = ["-q", "-s", "--assert=plain", "-c", "/dev/null", "--rootdir=.", "--confcutdir=.", "-p", "no:cacheprovider"]
_LEFT_OUT = (
    *("faulthandler", "doctest", "junitxml", "pastebin", "unraisableexception", "threadexception"),
    *("setuponly", "setupplan", "stepwise"),
)
_OPTIONS += [word for name in _LEFT_OUT for word in ("-p", f"no:{name}")]


class _Pytest:
    """The file of the tests is a module that is at hand. `wait`: called once, where pytest would collect tests."""

    def __init__(self, module: types.ModuleType, wait: Callable[[], None] | None = None) -> None:
        self.module, self.wait = module, wait
        self.session: pytest.Session | None = None
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def main(self, *plugins: object) -> None:
        Path(FILE).touch()
        if self.session is None:
            pytest.main([*_OPTIONS, FILE], plugins=[self, *plugins])
            return
        for plugin in plugins:
            self.session.config.pluginmanager.register(plugin)
        with suppress(BaseException):  # whatever a test raises ends pytest, as it does in `pytest.main`
            self.session.config.hook.pytest_collection(session=self.session)
            self.session.config.hook.pytest_runtestloop(session=self.session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        if self.wait is None:
            return None
        wait, self.wait, self.session = self.wait, None, session
        wait()
        return True

    def pytest_pycollect_makemodule(self, module_path: Path, parent: Any) -> Any:
        made = type("Tests", (pytest.Module,), {"_getobj": lambda _: self.module})
        return made.from_parent(parent, path=module_path)  # type: ignore[attr-defined]


_WARM: list[_Pytest] = []


def started(wait: Callable[[], None]) -> None:
    """Let pytest run a test that nobody wrote, start a second session, and wait where it would collect tests. A process
    that is forked while it waits continues from there."""
    module = types.ModuleType("tests")
    module.__dict__["test_nothing"] = pytest.mark.usefixtures("tmp_path", "monkeypatch")(lambda: None)
    with redirect_stdout(io.StringIO()):
        _Pytest(module).main()
    _WARM.append(_Pytest(module, wait))
    _WARM[0].main()


def run(tester: "Tester", module: types.ModuleType, functions: dict[str, int], asked: int) -> bool:
    """Run the functions, given by name with the index of their unit; `asked`: how often the import of the test file
    asked the program. False: pytest was interrupted, and some functions are left."""
    plugin = _Plugin(tester, functions, asked)
    warm = _WARM.pop() if _WARM else _Pytest(module)
    warm.module = module
    warm.main(plugin)
    if not (tester.over or plugin.interrupted):
        for index in {*functions.values()} - plugin.told:
            if asked:
                tester.say(result=index, kind="test_error", message=plugin.uncollected, ran=[])
            else:
                tester.say(skipped=index, reason=plugin.uncollected)
    return not plugin.interrupted


class _Plugin:
    def __init__(self, tester: "Tester", functions: dict[str, int], asked: int) -> None:
        self.tester, self.functions = tester, functions
        self.asked = asked
        """How often the program was asked by what may serve several tests: the test file, set-ups, fixtures."""
        self.told: set[int] = set()
        self.rows: Counter[int] = Counter()
        """Rows of each function that are still to come."""
        self.checked: Counter[int] = Counter()
        self.held: dict[int, dict[str, Any]] = {}
        """What the rows so far say, where none failed."""
        self.uncollected = "pytest does not collect it"
        self.problem: BaseException | None = None
        self.interrupted = False

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.uncollected = f"pytest does not collect it: {report.longrepr}"[:300]

    def _index(self, item: Any) -> int | None:
        name = getattr(item, "originalname", None) or item.name
        return self.functions.get(f"{item.cls.__name__}.{name}" if getattr(item, "cls", None) else name)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self._index(item) is not None]
        for item in items:
            self.rows[self._index(item)] += 1  # type: ignore[index]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        if item.get_closest_marker("xfail"):
            pytest.skip("marked xfail")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if call.excinfo is not None and self.problem is None:
            self.problem = call.excinfo.value
        if call.when == "setup":
            self.asked += self.tester.program.asked
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        index: Any = self._index(item)
        tester, before = self.tester, self.tester.checks.count
        if index not in self.told:
            tester.say(start=index)
        self.problem = None
        try:
            tester.program.begin()
            return (yield)
        except BaseException as problem:  # the program's own, as far as pytest does not catch it
            self.interrupted, self.problem = True, self.problem or problem
            raise
        finally:
            self.rows[index] -= 1
            self.checked[index] += tester.checks.count - before
            self._settle(item, index)
            if tester.over:
                item.session.shouldstop = "the program is gone, or ran out of time too often"

    def _settle(self, item: Any, index: int) -> None:
        """Tell a failure at once, anything else after the last row."""
        last, asked = not self.rows[index], self.asked + self.tester.program.asked
        checked = not last or self.checked[index] > 0
        event, words = self.tester.outcome(self.problem, checked, 0 if self._skipped(item) else asked)
        if index in self.told:
            return
        if event != "skipped" and words.get("kind") != "passed":
            self.told.add(index)
            self.tester.say(**{event: index, **words})
            return
        before = self.held.get(index)
        if event == "result":
            self.held[index] = {**words, "ran": sorted({*words["ran"], *(before or {}).get("ran", ())})}
        elif before is None:
            self.held[index] = words
        if last:
            self.told.add(index)
            self.tester.say(**{"result" if "kind" in self.held[index] else "skipped": index, **self.held[index]})

    def _skipped(self, item: Any) -> bool:
        """Whether the test's own text skips it, whatever the program."""
        if type(self.problem).__name__ not in ("Skipped", "SkipTest"):
            return False
        if any(getattr(part, "__unittest_skip__", False) for part in (item.obj, item.cls)):
            return True
        if item.get_closest_marker("xfail"):
            return True
        by_program = self.asked and not self.tester.program.shares_process
        rowless = "got empty parameter set" in str(self.problem)
        skips = item.get_closest_marker("skipif") or rowless
        return bool((skips and not by_program) or (item.get_closest_marker("skip") and not rowless))
