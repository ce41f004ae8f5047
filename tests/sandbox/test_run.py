"""Formats, results, limits and refusals of the sandbox, with real processes."""

import stat
from pathlib import Path
from typing import ClassVar

import pytest

from text2grad.errors import SandboxError
from text2grad.sandbox import Job, Limits, Sandbox, UnsafeWarning, bubble, plan

KODCODE = """
import pytest
from solution import divide, Stack

@pytest.fixture
def four():
    return 4

def test_divides():
    assert divide(6, 3) == 2

@pytest.mark.parametrize("a, b, wanted", [(1, 1, 1), (9, 3, 3)])
def test_rows(a, b, wanted):
    assert divide(a, b) == pytest.approx(wanted)

def test_raises():
    with pytest.raises(ZeroDivisionError, match="division"):
        divide(1, 0)

def test_fixture(four):
    assert divide(four, 2) == 2

def test_stack():
    stack = Stack()
    stack.push(1)
    assert stack.pop() == 1

def test_prints(capsys):
    divide(1, 1)
    assert capsys.readouterr().out == ""

class TestMore:
    def test_method(self):
        assert divide(8, 2) == 4

if __name__ == "__main__":
    pytest.main()
"""
DIVIDE = "class Stack:\n    def __init__(self): self.held = []\n    def push(self, x): self.held.append(x)\n"
DIVIDE += "    def pop(self): return self.held.pop()\n\ndef divide(a, b):\n    return a / b\n"


@pytest.mark.system("bwrap")
class TestFormats:
    def test_mbpp_asserts_with_their_set_up(self, shared: Sandbox) -> None:
        report = shared.run("def area(r):\n    return 3 * r", ["assert math.floor(area(r)) == 6"], "import math\nr = 2")
        assert report.score == 1.0

    def test_humaneval_asserts_are_tests_of_their_own(self, shared: Sandbox) -> None:
        tests = "def check(candidate):\n    x = 3\n    assert candidate(x) == 4\n    for k in range(3):\n"
        tests += "        assert candidate(k) == k + 1\n    assert candidate(0) == 2\n\ncheck(up)"
        report = shared.run("def up(x):\n    return x + 1", tests, entry_point="up")
        assert [result.passed for result in report.results] == [True, True, False]

    def test_kodcode_functions(self, shared: Sandbox) -> None:
        report = shared.run(DIVIDE, KODCODE)
        verdicts = {result.name: result.isolation for result in report.results}
        assert report.score == 1.0
        assert {name for name, verdict in verdicts.items() if verdict == "in_process"} == {"test_stack", "test_prints"}
        assert (len(verdicts), report.skipped) == (7, ())

    def test_an_item_that_asserts_nothing_is_no_test(self, shared: Sandbox) -> None:
        report = shared.run("def f(x):\n    return x", ["x = f(2)", "assert x == 3", "f(1)"])
        assert [(result.name, result.passed) for result in report.results] == [("assert x == 3", False)]

    def test_an_entry_point_that_is_no_name(self, shared: Sandbox) -> None:
        for name in ("class", "f()", "a.b"):
            report = shared.run("x = 1", "def check(c):\n    assert c(1)", entry_point=name)
            assert "should be a name" in (report.unusable or "")

    def test_unittest_classes(self, shared: Sandbox) -> None:
        tests = (
            "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n    def setUp(self): self.x = 1\n"
        )
        tests += (
            "    def test_a(self): self.assertEqual(f(self.x), 2)\n    def test_b(self): self.assertEqual(f(2), 2)\n"
        )
        report = shared.run("def f(x):\n    return 2", tests + "unittest.main()")
        assert [(result.name, result.passed) for result in report.results] == [("T.test_a", True), ("T.test_b", True)]
        assert shared.run("def f(x):\n    return 3", tests).score == 0.0

    @pytest.mark.parametrize(
        "head",
        [
            "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): cls.x = 1\n",
            "class TestT:\n    @classmethod\n    def setup_class(cls): cls.x = 1\n",
            "class TestT:\n    def setup_class(cls): cls.x = 1\n",
        ],
    )
    def test_a_class_is_set_up(self, shared: Sandbox, head: str) -> None:
        tests = f"from solution import f\n{head}    def test_a(self):\n        assert f(self.x) == 2\n"
        assert shared.run("def f(x):\n    return x + 1", tests).score == 1.0

    def test_plain_code(self, shared: Sandbox) -> None:
        tests = "seen = f([3, 1])\nassert seen == [1, 3]\ncopy = [2, 1]\nf(copy)\nassert copy == [2, 1]\n"
        report = shared.run("def f(x):\n    return sorted(x)", tests)
        assert [result.passed for result in report.results] == [True, True]

    def test_a_function_named_as_a_builtin(self, shared: Sandbox) -> None:
        assert shared.run("def sum(a, b):\n    return a * b", ["assert sum(3, 4) == 12"]).score == 1.0

    @pytest.mark.parametrize(
        ("tests", "reason"),
        [
            ("assert f(1 ==", "should be Python"),
            ([], "assert nothing"),
            ("x = 1", "assert nothing"),
            (["import no_such_module\nassert f(1) == 1"], "No module named 'no_such_module'"),
            ("y = 1 / 0\nassert f(1) == 1", "ZeroDivisionError"),
            ("def check(candidate):\n    assert candidate(1)", "entry_point"),
            ("import pytest\nfrom solution import f\n@pytest.mark.skip\ndef test_f():\n    assert f(1)", "skip"),
        ],
    )
    def test_unusable_tests_say_why_and_score_nothing(
        self, shared: Sandbox, tests: str | list[str], reason: str
    ) -> None:
        report = shared.run("def f(x):\n    return x", tests)
        assert (report.score, report.results) == (None, ())
        assert reason in (report.unusable or "")

    @pytest.mark.parametrize(
        "tests",
        [
            ["assert True"],
            ["def g():\n    assert f() == 2"],
            ["x = 1\nassert x == 1, f(2)"],
            "from solution import f\ndef test_a():\n    yield\n    assert f(1) == 1\n",
            "from solution import f\nasync def test_a():\n    assert f(1) == 1\n",
            "from solution import f\ndef helper():\n    return f(1)\ndef test_a():\n    x = 1\n    assert x\n",
            "import pytest\nfrom solution import f\n@pytest.mark.parametrize('x', [])\ndef test_a(x):\n"
            "    assert f(x)\n",
            "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
            "    def test_a(self): self.assertTrue(True)\n",
        ],
    )
    def test_what_every_program_passes_is_no_test(self, shared: Sandbox, tests: str | list[str]) -> None:
        for program in ("", "def f(*x):\n    return 1"):
            report = shared.run(program, tests)
            assert (report.score, report.results) == (None, ())
            assert report.unusable

    def test_an_assert_about_nothing_counts_for_nothing(self, shared: Sandbox) -> None:
        tests = (
            "def check(candidate):\n    assert True, 'simple'\n    assert candidate(1) == 1\n    assert True, 'edge'\n"
        )
        report = shared.run("x = 1", tests, entry_point="f")
        assert (report.score, len(report.results), report.skipped[0]) == (
            0.0,
            1,
            ("assert True, 'simple'", "never uses the program"),
        )

    def test_what_does_not_run_is_skipped_with_a_reason(self, shared: Sandbox) -> None:
        tests = (
            "from solution import f\nasync def test_a():\n    assert f(1) == 1\ndef test_b():\n    assert f(1) == 0\n"
        )
        report = shared.run("def f(x):\n    return 0", tests)
        assert (report.score, [name for name, _ in report.skipped]) == (1.0, ["test_a"])

    @pytest.mark.parametrize(
        "tests",
        [
            ["a = [2, 1]\nf(a)", "assert a == [1, 2]"],
            ["def g(x):\n    f(x)\n    assert x == [1, 2]", "g([2, 1])"],
            ["def test_f():\n    x = [2, 1]\n    f(x)\n    assert x == [1, 2]"],
            "import solution\ndef test_f():\n    assert solution.f([1]) is None\n",
            "from solution import *\nclass TestF:\n    def setup_method(self):\n        self.x = [2, 1]\n"
            "        f(self.x)\n    def test_f(self):\n        assert self.x == [1, 2]\n",
            "import pytest\nfrom solution import f\n@pytest.fixture\ndef done():\n    x = [2, 1]\n    f(x)\n"
            "    return x\ndef test_f(done):\n    assert done == [1, 2]\n",
            "import pytest\nfrom solution import f\n@pytest.mark.parametrize('g', [f])\ndef test_f(g):\n"
            "    assert g([]) is None\n",
            "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
            "    def same(self, x, y):\n        f(x)\n        self.assertEqual(x, y)\n"
            "    def test_f(self):\n        self.same([2, 1], [1, 2])\n",
            "def check(candidate):\n    def sort(x):\n        candidate(x)\n        assert x == [1, 2]\n"
            "    sort([2, 1])\n",
        ],
    )
    def test_the_program_is_used_in_many_ways(self, shared: Sandbox, tests: str | list[str]) -> None:
        report = shared.run("def f(x):\n    x.sort()", tests, entry_point="f")
        assert (report.score, len(report.results), report.skipped) == (1.0, 1, ())
        assert shared.run("def f(x):\n    return 3", tests, entry_point="f").score == 0.0


@pytest.mark.system("bwrap")
class TestResults:
    def test_a_wrong_value_says_what_was_expected(self, shared: Sandbox) -> None:
        (result,) = shared.run("def f(x):\n    y = x\n    return y", ["assert 4 == f(3), 'no'"]).results
        assert (result.kind, result.expected, result.got, result.message) == ("mismatch", "4", "3", "no")
        assert result.lines == {2, 3}

    def test_the_side_of_the_program_is_what_came(self, shared: Sandbox) -> None:
        tests = "from solution import f\ndef test_f():\n    assert 4 == f(3)"
        (result,) = shared.run("def f(x):\n    return x", tests).results
        assert (result.expected, result.got) == ("4", "3")

    def test_an_exception_has_its_frames(self, shared: Sandbox) -> None:
        program = "def inner(x):\n    return 1 / x\n\ndef f(x):\n    return inner(x)\n"
        (result,) = shared.run(program, ["assert f(0) == 1"]).results
        assert (result.kind, result.message) == ("error", "ZeroDivisionError: division by zero")
        assert result.frames == (5, 2)

    def test_lines_are_those_of_the_test_alone(self, shared: Sandbox) -> None:
        program = "def f(x):\n    if x:\n        return 1\n    elif x is None:\n        return 2\n"
        program += "    else:\n        return 3\n"
        report = shared.run(program, ["assert f(1) == 1", "assert f(None) == 2", "assert f(0) == 3"])
        assert [sorted(result.lines) for result in report.results] == [[2, 3], [2, 4, 5], [2, 4, 7]]

    def test_after_a_death_the_other_tests_still_run(self, shared: Sandbox) -> None:
        program = "import os\ndef f(x):\n    return x if x else os._exit(0)"
        report = shared.run(program, ["assert f(1) == 1", "assert f(0) == 0", "assert f(2) == 2"])
        assert [(r.passed, r.kind) for r in report.results] == [(True, "passed"), (False, "died"), (True, "passed")]

    def test_chances_are_limited(self) -> None:
        report = Sandbox(Limits(seconds=0.2, chances=1)).run(
            "def f(x):\n    while True: pass", ["assert f(1)", "assert f(2)"]
        )
        assert [result.kind for result in report.results] == ["timeout", "not_run"]
        report = Sandbox(Limits(chances=1)).run("import os\ndef f(x): os._exit(0)", ["assert f(1)", "assert f(2)"])
        assert [result.kind for result in report.results] == ["died", "not_run"]

    def test_a_program_that_uses_up_the_clock_breaks_no_sandbox(self) -> None:
        program = "import os, time\ndef f(x):\n    time.sleep(0.2)\n    os._exit(0)"
        for wall in (0.22, 0.3, 0.4):
            report = Sandbox(Limits(seconds=0.2, wall=wall, chances=9)).run(
                program, [f"assert f({k})" for k in range(4)]
            )
            assert report.score == 0.0

    def test_arguments_changed_in_place_are_seen(self, shared: Sandbox) -> None:
        program = "def f(a, b, c):\n    a.sort()\n    b[0].append(9)\n    c['k'] = {1}\n    del c['old']"
        tests = ["a, b, c = [2, 1], ([3],), {'old': 0}\ninner = b[0]\nf(a, b, c=c)\n"]
        tests[0] += "assert (a, b, inner, c) == ([1, 2], ([3, 9],), [3, 9], {'k': {1}})"
        assert shared.run(program, tests).score == 1.0

    def test_generators_cross_as_their_items(self, shared: Sandbox) -> None:
        program = "def up():\n    n = 0\n    while True:\n        yield n\n        n += 1\n\n"
        program += "def one():\n    yield 1\n    1 / 0\n"
        tests = ["u = up()\nassert [next(u), next(u)] == [0, 1]", "assert list(one()) == [1]"]
        report = shared.run(program, tests)
        assert [(r.passed, r.kind, r.isolation) for r in report.results] == [
            (True, "passed", "isolated"),
            (False, "test_error", "isolated"),
        ]

    @pytest.mark.parametrize(
        ("program", "test"),
        [
            ("class F:\n    def go(self): return 3", "assert F().go() == 3"),
            ("def call(f):\n    return f(2)", "assert call(lambda x: x + 1) == 3"),
            ("def adder(a):\n    return lambda b: a + b", "assert adder(1)(2) == 3"),
            ("def same(x):\n    return x", "x = [1]\nassert same(x) is x"),
            (
                "class Node:\n    def __init__(self): self.next = None",
                "n = Node()\nassert n != None and n.next == None",
            ),
            ("class Node:\n    pass", "assert Node() != Node()"),
            ("class LRU(dict): put = dict.__setitem__", "c = LRU()\nc.put('a', 1)\nassert c.get('a') == 1"),
            ("class LRU:\n    def get(self, k): return k", "c = LRU()\nassert c.get('a') == 'a'"),
            ("class A:\n    def count(self): return 1", "a = A()\nassert a.count() == 1"),
            ("class box:\n    put = pop = lambda *_: 3", "b = box()\nb.put(3)\nassert b.pop() == 3"),
            (
                "def words(p):\n    return open(p).read()",
                "open('/tmp/a', 'w').write('x')\nassert words('/tmp/a') == 'x'",
            ),
            ("async def go(x):\n    return x", "import asyncio\nassert asyncio.run(go(3)) == 3"),
            (
                "def hi():\n    print('hi')",
                "import io, contextlib\ns = io.StringIO()\nwith contextlib.redirect_stdout(s): hi()\n"
                "assert s.getvalue() == 'hi\\n'",
            ),
            ("class Bad(ValueError): pass\ndef f(): raise Bad", "try:\n    f()\n    assert 0\nexcept Bad: pass"),
        ],
    )
    def test_live_objects_are_marked(self, shared: Sandbox, program: str, test: str) -> None:
        report = shared.run(program, [test])
        assert [(result.passed, result.isolation) for result in report.results] == [(True, "in_process")]

    def test_many_at_a_time_keep_their_order(self, shared: Sandbox) -> None:
        jobs = [Job(f"def f():\n    return {k}", [f"assert f() == {k % 2}"]) for k in range(6)]
        assert [report.score for report in shared.run_many(jobs)] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]

    def test_a_set_has_the_same_order_in_every_run(self, shared: Sandbox) -> None:
        program = "import random\ndef f():\n    return ''.join({'a', 'b', 'c', 'd', 'e'}) + str(random.random())"
        seen = {shared.run(program, ["assert f() == 1"]).results[0].got for _ in range(3)}
        assert len(seen) == 1

    def test_packages_can_be_shown(self, tmp_path: Path) -> None:
        (tmp_path / "helper.py").write_text("VALUE = 7\n")
        program = "import helper\ndef f():\n    return helper.VALUE"
        assert Sandbox(packages=[str(tmp_path)]).run(program, ["assert f() == 7"]).score == 1.0
        assert Sandbox().run(program, ["assert f() == 7"]).score == 0.0


class TestRefusals:
    def test_without_bubblewrap_it_says_how_to_install_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(
            SandboxError, match=r"apt-get install bubblewrap.*dnf install.*pacman -S.*unsafe-no-sandbox"
        ):
            Sandbox()

    def test_forbidden_namespaces_are_explained(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        fake = tmp_path / "bwrap"
        fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
        fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        with pytest.raises(SandboxError, match=r"No permissions.*user namespaces.*sysctl"):
            Sandbox()

    def test_packages_should_be_folders(self) -> None:
        with pytest.raises(SandboxError, match="absolute paths, got 'here'"):
            Sandbox(packages=["here"])

    @pytest.mark.system("bwrap")
    def test_a_sandbox_that_breaks_later_is_an_error_and_no_score(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sandbox = Sandbox()
        monkeypatch.setattr(sandbox._launcher, "_walls", ["/bin/false"])
        with pytest.raises(SandboxError, match="did not come up"):
            sandbox.run("def f(): return 1", ["assert f() == 1"])


@pytest.mark.system("bwrap")
def test_without_pytest_it_says_which_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubble, "_pytest_files", list)
    sandbox = Sandbox()
    plain = "from solution import f\ndef test_f():\n    assert f() == 1\n"
    assert sandbox.run("def f(): return 1", plain).score == 1.0
    report = sandbox.run("def f(): return 1", "import pytest\n" + plain)
    assert (report.score, report.unusable) == (
        None,
        "pytest runs such tests, and it is not installed: `pip install pytest`",
    )
    assert sandbox.run("def f(): return 1", ["assert f() == 1"]).score == 1.0


CALLED = """
from solution import f, g
KNOWN = f(1)

def shown(x):
    assert f(x) == x

def test_right():
    assert f(2) == 2

def test_helper():
    shown(3)

def test_wrong():
    assert f(4) == 5

def test_raises():
    assert g(1) == 1

def test_expects():
    try:
        g(1)
    except ZeroDivisionError:
        return
    raise AssertionError("no error")

def test_known():
    assert KNOWN == 1

def test_checks_nothing():
    for x in f([]):
        assert x

def test_never_asks():
    assert sum([1]) == 1

def test_own_fault():
    assert nobody == f(1)

def test_exits():
    assert f(1) == 1
    raise SystemExit

def test_skips():
    import unittest
    raise unittest.SkipTest("not today")

def test_skips_late():
    import unittest
    f(1)
    raise unittest.SkipTest("not today")

def test_ends_the_process():
    assert f("end") == 1

def test_object():
    assert f(f) == f

def test_last():
    assert f(7) == 7
"""


@pytest.mark.system("bwrap")
@pytest.mark.parametrize("in_process", [False, True])
def test_functions_that_are_called_have_the_verdicts_of_pytest(in_process: bool) -> None:
    program = (
        "import os\ndef f(x):\n    if x == 'end':\n        os._exit(0)\n    return x\ndef g(x):\n    return x / 0\n"
    )
    sandbox = Sandbox(Limits(seconds=0.4, wall=8.0), in_process=in_process)
    called, run = (sandbox.run(program, start + CALLED) for start in ("", "'for pytest'\n"))
    assert [plan(start + CALLED).by_pytest for start in ("", "'for pytest'\n")] == [False, True]
    assert [(each.name, each.kind, each.expected, each.got, each.lines) for each in called.results] == [
        (each.name, each.kind, each.expected, each.got, each.lines) for each in run.results
    ]
    assert called.skipped == run.skipped and len(called.results) >= 11


@pytest.mark.system("bwrap")
@pytest.mark.parametrize("name", ["capsys", "capfd", "caplog", "monkeypatch", "recwarn", "tmp_path", "tmpdir"])
def test_every_fixture_of_pytest_is_there(name: str) -> None:
    tests = f"from solution import f\ndef test_a({name}, tmp_path_factory, tmpdir_factory):\n    assert f() == 1\n"
    report = Sandbox(in_process=True).run("def f(): return 1", tests)
    assert [(result.passed, result.isolation) for result in report.results] == [(True, "in_process")]


@pytest.mark.parametrize("line", ["setup_function = lambda: f(0)", "from helpers import teardown_module"])
def test_set_up_by_any_way_needs_pytest(line: str) -> None:
    assert plan(f"{line}\ndef test_a():\n    assert f(1) == 1\n").by_pytest


def test_tests_are_read_once_for_all_programs() -> None:
    assert plan(["assert f(1)"]) is plan(["assert f(1)"]) is not plan(["assert f(1)"], "x = 1")


@pytest.mark.system("bwrap")
def test_a_test_function_that_its_file_takes_away_is_skipped() -> None:
    tests = "from solution import f\ndef test_a():\n    assert f()\ndel test_a\ndef test_b():\n    assert f()\n"
    report = Sandbox().run("def f(): return 1", tests)
    assert [result.name for result in report.results if result.passed] == ["test_b"]
    assert [name for name, _ in report.skipped] == ["test_a"]


@pytest.mark.parametrize(
    "test",
    [
        "import pytest\ndef test_f():\n    assert f()",
        "def setup_function():\n    pass\ndef test_f():\n    assert f()",
        "def test_f(x):\n    assert f()",
        "@mark\ndef test_f():\n    assert f()",
        "def test_f():\n    yield\n    assert f()",
        "async def test_f():\n    assert f()",
        "class TestF:\n    def test_f(self):\n        assert f()",
        "pytestmark = []\ndef test_f():\n    assert f()",
    ],
)
def test_what_pytest_does_more_with_is_left_to_it(test: str) -> None:
    assert plan(f"from solution import f\n{test}").by_pytest


class TestUnsafe:
    @pytest.fixture
    def unsafe(self, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
        monkeypatch.setenv("PATH", "/nowhere")
        bubble._warn_once.cache_clear()
        with pytest.warns(UnsafeWarning, match="WITHOUT a sandbox"):
            return Sandbox(Limits(seconds=0.4, wall=3.0), unsafe=True)

    def test_it_says_so_once_and_loudly(self, unsafe: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
        assert unsafe.limits.wall == 3.0
        Sandbox(unsafe=True)
        assert "UNSAFE" not in capsys.readouterr().err
        bubble._warn_once.cache_clear()
        with pytest.warns(UnsafeWarning):
            Sandbox(unsafe=True)
        assert capsys.readouterr().err.startswith("UNSAFE: model-written code runs WITHOUT a sandbox")

    @pytest.mark.parametrize(
        ("body", "score"),
        [
            ("return a + b", 1.0),
            ("return a - b", 0.0),
            ("while True: pass", 0.0),
            ("return [0] * (1 << 40)", 0.0),
            ("import os; os._exit(0)", 0.0),
            ("print('x' * (1 << 24), flush=True); return a + b", 0.0),
            ("return type('X', (), {'__eq__': lambda *a: True})()", 0.0),
            ("import os; return a + b if not os.environ else 0", 1.0),
        ],
    )
    def test_processes_and_limits_are_the_same(self, unsafe: Sandbox, body: str, score: float) -> None:
        assert unsafe.run(f"def add(a, b):\n    {body}", ["assert add(2, 3) == 5"]).score == score

    def test_pytest_runs_there_too(self, unsafe: Sandbox) -> None:
        tests = "from solution import add\ndef test_add():\n    assert add(2, 3) == 5\n"
        assert unsafe.run("def add(a, b):\n    return a + b", tests).score == 1.0
        assert unsafe.run("def add(a, b):\n    return a - b", tests).score == 0.0


@pytest.mark.system("bwrap")
class TestVariants:
    TESTS: ClassVar = ["assert f(1) == 1", "assert f(0) == 0", "assert f(3) == 3"]
    PROGRAM = "def f(x):\n    if x > {}:\n        return x\n    return 0\n"

    def tried(self, sandbox: Sandbox, *variants: str) -> list[list[int]]:
        names = [unit.name for unit in plan(self.TESTS).units]
        found = sandbox.try_variants(Job("", self.TESTS), variants)
        return [sorted(names.index(name) for name in passed) for passed in found]

    def test_each_is_told_which_tests_it_passes(self, sandbox: Sandbox) -> None:
        assert self.tried(sandbox, *(self.PROGRAM.format(n) for n in (0, 1, 3))) == [[0, 1, 2], [1, 2], [1]]

    def test_what_cannot_be_read_or_never_ends_passes_nothing_and_the_next_one_runs(self, sandbox: Sandbox) -> None:
        variants = "def f(x:", "def f(x):\n    while True: pass", "def f(x): 1 / 0", self.PROGRAM.format(0)
        assert self.tried(sandbox, *variants) == [[], [], [], [0, 1, 2]]

    def test_one_that_dies_ends_the_others_and_not_the_run(self, sandbox: Sandbox) -> None:
        variants = self.PROGRAM.format(0), "import os\ndef f(x): os._exit(0)", self.PROGRAM.format(0)
        assert self.tried(sandbox, *variants) == [[0, 1, 2], [], []]

    def test_a_function_that_is_gone_is_not_that_of_the_variant_before(self, sandbox: Sandbox) -> None:
        assert self.tried(sandbox, self.PROGRAM.format(0), "def g(x): return x") == [[0, 1, 2], []]

    def test_none_are_none_and_test_functions_are_not_tried(self, sandbox: Sandbox) -> None:
        test = "from solution import f\ndef test_f():\n    assert f(1) == 1\n"
        assert sandbox.try_variants(Job("", self.TESTS), []) == []
        assert sandbox.try_variants(Job("", test), ["def f(x): return x"]) == [frozenset()]
