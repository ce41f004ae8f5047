"""A test that checked nothing is not passed; a test that checks in an unusual way is."""

import pytest

from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

IN = "import pytest, unittest\nfrom solution import f\n"
CLASS = IN + "class T(unittest.TestCase):\n    def test_a(self):\n"


@pytest.mark.parametrize(
    "tests",
    [
        IN + "def test_a():\n    for x in f():\n        assert x > 0\n",
        IN + "def test_a():\n    found = f()\n    if found:\n        assert found == [1]\n",
        IN + "def test_a():\n    for x in f():\n        if x < 0:\n            raise AssertionError(x)\n",
        IN + "def same(xs):\n    for x in xs:\n        assert x > 0\ndef test_a():\n    same(f())\n",
        IN + "def assert_all(xs):\n    for x in xs:\n        assert x > 0\ndef test_a():\n    assert_all(f())\n",
        CLASS + "        for x in f():\n            self.assertGreater(x, 0)\n",
        CLASS + "        for x in f():\n            with self.subTest(x):\n                assert x > 0\n",
        "def check(candidate):\n    for x in candidate():\n        assert x > 0\n",
        ["for x in f(): assert x > 0"],
        "from solution import f, K\ndef test_a():\n    for x in K:\n        assert f() == [1]\n",
        IN + "class A:\n    pass\ndef test_a():\n    for x in f():\n        assert isinstance(x, A) or x > 0\n",
    ],
)
def test_an_empty_result_passes_no_loop(shared: Sandbox, tests: str | list[str]) -> None:
    right = shared.run("def f():\n    return [1]\nK = [1]", tests, entry_point="f")
    empty = shared.run("def f():\n    return []\nK = []", tests, entry_point="f")
    assert (right.score, empty.score) == (1.0, 0.0)
    assert [(result.kind, "nothing was checked" in result.message) for result in empty.results] == [("assertion", True)]


@pytest.mark.parametrize(
    "tests",
    [
        IN + "def test_a():\n    with pytest.raises(ValueError):\n        f(-1)\n",
        IN + "def test_a():\n    pytest.raises(ValueError, f, -1)\n",
        IN + "from pytest import raises\ndef test_a():\n    with raises(ValueError, match='low'):\n        f(-1)\n",
        IN + "def test_a():\n    try:\n        f(-1)\n        assert False\n    except ValueError:\n        pass\n",
        IN + "def test_a():\n    try:\n        f(-1)\n    except ValueError:\n        return\n    raise KeyError\n",
        IN + "def test_a():\n    try:\n        f(-1)\n    except ValueError:\n        pass\n"
        "    else:\n        pytest.fail('x')\n",
        IN + "def test_a():\n    if f(1) != 2:\n        pytest.fail('not 2')\n",
        IN + "def test_a():\n    if f(1) != 2:\n        raise AssertionError\n",
        IN + "def same(a, b):\n    assert a == b\ndef test_a():\n    same(f(1), 2)\n",
        IN + "class Base:\n    def same(self, a, b):\n        assert a == b\nclass TestA(Base):\n"
        "    def test_a(self):\n        self.same(f(1), 2)\n",
        IN + "@pytest.fixture\ndef two():\n    def same(x):\n        assert x == 2\n    return same\n"
        "def test_a(two):\n    two(f(1))\n",
        CLASS + "        self.assertEqual(f(1), 2)\n",
        CLASS + "        with self.assertRaises(ValueError):\n            f(-1)\n",
        CLASS + "        self.assertRaises(ValueError, f, -1)\n",
        "def check(candidate):\n    try:\n        candidate(-1)\n        assert False\n    except ValueError: pass\n",
        ["import pytest\nwith pytest.raises(ValueError):\n    f(-1)"],
        ["ok = lambda: f(1) == 2\nassert ok()"],
    ],
)
def test_what_checks_in_its_own_way_is_passed_by_the_right_program_alone(
    shared: Sandbox, tests: str | list[str]
) -> None:
    right = "def f(x):\n    if x < 0:\n        raise ValueError('low')\n    return x + 1"
    report = shared.run(right, tests, entry_point="f")
    assert [(result.passed, result.message) for result in report.results] == [(True, "")]
    assert shared.run("def f(x):\n    return x", tests, entry_point="f").score == 0.0


def test_mocks_check(shared: Sandbox) -> None:
    tests = IN + "from unittest.mock import Mock\ndef test_a():\n    m = Mock()\n    f(m)\n    m.assert_called_once()\n"
    assert shared.run("def f(m):\n    m()", tests).score == 1.0
    assert shared.run("def f(m):\n    pass", tests).score == 0.0


def test_in_one_process_too(shared: Sandbox) -> None:
    tests = "from solution import Box\ndef test_a():\n    box = Box()\n    for x in box.items:\n        assert x == 1\n"
    program = "class Box:\n    def __init__(self):\n        self.items = {}\n"
    full, empty = shared.run(program.format("[1]"), tests), shared.run(program.format("[]"), tests)
    assert (full.score, empty.score, empty.results[0].isolation) == (1.0, 0.0, "in_process")


def test_a_test_that_can_check_nothing_is_none(shared: Sandbox) -> None:
    tests = IN + "def test_a():\n    f()\ndef test_b():\n    assert f() == 1\n"
    report = shared.run("def f(): return 1", tests)
    assert (report.score, [result.name for result in report.results]) == (1.0, ["test_b"])
    assert report.skipped == (("test_a", "checks nothing: no assert, no expected exception"),)


def test_a_test_that_never_comes_to_the_program_is_skipped(shared: Sandbox) -> None:
    tests = IN + "import sys\ndef test_a():\n    if sys.version_info < (3, 0):\n        assert f() == 1\n"
    report = shared.run("def f(): return 1", tests)
    assert (report.score, report.unusable) == (None, "checks nothing, and never asks the program")
