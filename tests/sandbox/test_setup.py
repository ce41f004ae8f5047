"""What surrounds a test: set-up and tear-down functions, fixtures, helpers, the program's module under any name."""

import pytest

from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

UP = "def f(x):\n    return x + 1"
LRU = "class LRU:\n    def __init__(self): self.held = {}\n    def put(self, k, v): self.held[k] = v\n"
LRU += "    def get(self, k): return self.held.get(k)\n"
IN = "import pytest, unittest\nimport solution\nfrom solution import {}\n"
ROUND = "    c.put(1, 2)\n    assert c.get(1) == 2\n"


@pytest.mark.parametrize(
    "tests",
    [
        "def setup_module():\n    global x\n    x = 1\ndef test_a():\n    assert f(x) == 2\n",
        "def setup_module(module):\n    module.x = f(1)\ndef test_a():\n    assert x == 2\n",
        "def setup_module():\n    global x\n    x = f(1)\ndef test_a():\n    assert x == 2\n",
        "x = []\ndef setup_function(function):\n    x.append(function.__name__)\n"
        "def test_a():\n    assert (f(1), x) == (2, ['test_a'])\n",
        "class TestA:\n    def setup_method(self, method):\n        self.x = 1\n"
        "    def test_a(self):\n        assert f(self.x) == 2\n",
        "def setUpModule():\n    global x\n    x = 1\nclass T(unittest.TestCase):\n"
        "    def test_a(self):\n        self.assertEqual(f(x), 2)\n",
        "x = []\n@pytest.fixture(autouse=True)\ndef ready():\n    x.append(1)\n    yield\n    x.clear()\n"
        "@pytest.mark.parametrize('k', [0, 1])\ndef test_a(k):\n    assert f(len(x)) == 2\n",
        "x = []\n@pytest.fixture\ndef ready():\n    x.append(1)\n"
        "@pytest.mark.usefixtures('ready')\ndef test_a():\n    assert f(len(x)) == 2\n",
        "class TestA:\n    @pytest.fixture\n    def one(self):\n        return 1\n"
        "    def test_a(self, one):\n        assert f(one) == 2\n",
        "@pytest.fixture(params=[1, 2], name='n')\ndef numbers(request):\n    return request.param\n"
        "def test_a(n):\n    assert f(n) == {1: 2, 2: 3}[n]\n",
        "@pytest.fixture\ndef base():\n    return []\n@pytest.fixture\ndef one(base):\n    base.append(1)\n"
        "def test_a(one, base):\n    assert f(base[0]) == 2\n",
    ],
)
def test_a_test_is_set_up(shared: Sandbox, tests: str) -> None:
    right = shared.run(UP, IN.format("f") + tests)
    assert [(result.passed, result.isolation, result.message) for result in right.results] == [(True, "isolated", "")]
    assert shared.run("def f(x):\n    return x", IN.format("f") + tests).score == 0.0


@pytest.mark.parametrize(
    "end",
    [
        "def teardown_module():\n    assert f(1) == 3\n",
        "def teardown_function(function):\n    assert f(1) == 3\n",
        "@pytest.fixture(autouse=True)\ndef ready():\n    yield\n    assert f(1) == 3\n",
        "@pytest.fixture(autouse=True)\ndef ready(request):\n    request.addfinalizer(lambda: pytest.fail('x'))\n",
    ],
)
def test_what_fails_while_tearing_down_fails(shared: Sandbox, end: str) -> None:
    tests = IN.format("f") + end + "def test_a():\n    assert f(1) == 2\n"
    assert shared.run(UP, tests).score == 0.0


def test_a_failure_says_more_than_the_tearing_down_after_it(shared: Sandbox) -> None:
    tests = IN.format("f") + "def teardown_module():\n    1 / 0\ndef test_a():\n    assert f(1) == 3\n"
    (result,) = shared.run(UP, tests).results
    assert (result.kind, result.expected, result.got) == ("mismatch", "3", "2")


@pytest.mark.parametrize(
    "tests",
    [
        "def test_a():\n    c = solution.LRU()\n" + ROUND,
        "def test_a():\n    assert solution.LRU().get(1) is None\n",
        "import solution as s\ndef test_a():\n    c = s.LRU()\n    assert c.get(1) is None\n",
        "def make():\n    return LRU()\ndef test_a():\n    c = make()\n" + ROUND,
        "@pytest.fixture\ndef c():\n    return LRU()\ndef test_a(c):\n" + ROUND,
        "@pytest.fixture\ndef c():\n    x = solution.LRU()\n    yield x\ndef test_a(c):\n    assert c.get(1) is None\n",
        "def setup_module():\n    global c\n    c = LRU()\ndef test_a():\n" + ROUND,
    ],
)
def test_objects_of_the_program_are_found_wherever_they_are_made(shared: Sandbox, tests: str) -> None:
    right = shared.run(LRU, IN.format("LRU") + tests)
    assert [(result.passed, result.isolation, result.message) for result in right.results] == [(True, "in_process", "")]
    assert shared.run(LRU.replace(".get(k)", ".get"), IN.format("LRU") + tests).score == 0.0


def test_a_module_under_another_name_is_still_isolated(shared: Sandbox) -> None:
    (result,) = shared.run(UP, "import solution as s\ndef test_a():\n    assert 3 == s.f(1)\n").results
    assert (result.isolation, result.expected, result.got) == ("isolated", "3", "2")


def test_an_unknown_fixture_is_a_reason(sandbox: Sandbox) -> None:
    tests = "@pytest.fixture\ndef own(nobody):\n    return 1\ndef test_a(own):\n    assert f(own) == 2\n"
    assert "needs the fixture 'nobody'" in (sandbox.run(UP, IN.format("f") + tests).unusable or "")
