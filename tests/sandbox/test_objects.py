"""What a test does with an object of the program decides how it is judged; the program does not."""

import pytest

from tests.attacks.test_sandbox import EQUALS_ALL
from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

TIMES = "def times(n):\n    return lambda x: x * n\n"
STATE = "def state(x):\n    held = [x]\n    return (lambda: held[0]), held.__setitem__\n"
RETRY = """
def retry(n):
    def outer(f):
        def inner(*args):
            for _ in range(n - 1):
                try: return f(*args)
                except ValueError: pass
            return f(*args)
        return inner
    return outer
"""
MANAGED = "import contextlib\n@contextlib.contextmanager\ndef managed(log):\n    log.append('in')\n    yield 5\n"
MANAGED += "    log.append('out')\n"

RIGHT = {
    "a function that is kept": (TIMES, "double = times(2)\nassert double(4) == 8", "x * n", "x + n"),
    "a function for map": (TIMES, "assert list(map(times(2), [1, 4])) == [2, 8]", "x * n", "x + n"),
    "functions in a dict": (
        "def ops():\n    return {'add': lambda a, b: a + b}\n",
        "assert ops()['add'](1, 2) == 3",
        "+",
        "-",
    ),
    "two functions": (STATE, "get, put = state(1)\nput(0, 7)\nassert get() == 7", "held[0])", "x)"),
    "a decorator in a test": (
        RETRY,
        "calls = []\n@retry(3)\ndef odd():\n    calls.append(1)\n    if len(calls) < 3: raise ValueError\n"
        "    return 1\nassert odd() == 1",
        "range(n - 1)",
        "range(n - 2)",
    ),
    "a context": (
        MANAGED,
        "log = []\nwith managed(log) as v: assert v == 5\nassert log == ['in', 'out']",
        "'out'",
        "''",
    ),
    "an object of a function": (
        "class card:\n    def __init__(self, n): self.n = n\ndef draw(n): return card(n)\n",
        "assert draw(3).n == 3",
        "= n",
        "= 2",
    ),
    "objects in a list": (
        "class card:\n    def __init__(self, n): self.n = n\ndef deck(): return [card(n) for n in range(3)]\n",
        "assert [card.n for card in deck()] == [0, 1, 2]",
        "= n",
        "= 2",
    ),
    "a named tuple": (
        "import collections\nP = collections.namedtuple('P', 'x y')\ndef f(): return P(1, 2)\n",
        "assert f().y == 2",
        "P(1, 2)",
        "P(2, 1)",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_test_does_with_an_object_says_that_it_needs_it(shared: Sandbox, sandbox: Sandbox, name: str) -> None:
    program, test, old, new = RIGHT[name]
    assert old in program
    right, wrong = shared.run(program, [test]), shared.run(program.replace(old, new), [test])
    assert [(result.passed, result.isolation, result.message) for result in right.results] == [(True, "in_process", "")]
    assert wrong.score == 0.0
    assert "needs live objects" in (sandbox.run(program, [test]).unusable or "")


@pytest.mark.parametrize("test", ["times(2)\nassert one() == 1", "assert len([times(2)]) == one()"])
def test_an_object_that_is_not_used_does_not_matter(sandbox: Sandbox, test: str) -> None:
    (result,) = sandbox.run(TIMES + "def one(): return 1", [test]).results
    assert (result.passed, result.isolation) == (True, "isolated")


def test_only_what_needs_it_shares_a_process(shared: Sandbox) -> None:
    tests = ["double = times(2)\nassert double(4) == 8", "assert one() == 1", "assert times(3)(1) == 3"]
    report = shared.run(TIMES + "def one(): return 1", tests)
    assert [(result.passed, result.isolation) for result in report.results] == [
        (True, "in_process"),
        (True, "isolated"),
        (True, "in_process"),
    ]


def test_without_the_setting_they_are_left_out_with_a_reason(sandbox: Sandbox) -> None:
    tests = ["double = times(2)\nassert double(4) == 8", "assert one() == 1", "print(open)\nassert one() == 1"]
    report = sandbox.run(TIMES + "def one(): return 1", tests)
    assert [(result.passed, result.isolation) for result in report.results] == [(True, "isolated")]
    assert [reason.partition(")")[0] for _, reason in report.skipped] == [
        "needs live objects (the test calls an object of type function, which is not plain data",
        "needs live objects (it shares `open` with the program",
    ]


LIAR = (
    EQUALS_ALL.format(base="")
    + """
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = __eq__
    def __sub__(self, other=None): return 0.0
    def __iter__(self): return iter([Any()])
    def __getitem__(self, index): return Any()
    __rsub__ = __abs__ = __mod__ = __truediv__ = __floordiv__ = __rtruediv__ = __float__ = __sub__
"""
)
LIES = {
    "equality": "assert f(2) == 4",
    "equality, turned": "assert 4 == f(2)",
    "order": "assert 3 < f(2) < 5",
    "a difference": "assert abs(f(2) - 4) < 1e-9",
    "a difference, turned": "assert abs(4 - f(2)) < 1e-9",
    "a fraction": "assert abs(f(2) / 4 - 1) < 1e-9",
    "a rest": "assert f(2) % 4 == 0 and f(2) == 4",
    "a list": "assert [f(2), 1] == [4, 1]",
    "a list with an object": "x = f(2)\nassert [f(2), x] == [4, x]",
    "an object of the library": "import uuid\nassert f(2) == uuid.UUID(int=5)",
    "an object of the library in a list": "import uuid\nassert [f(2)] == [uuid.UUID(int=5)]",
    "one of several": "assert f(2) in (4, 5)",
    "a holder": "assert 4 in f(2)",
    "a holder, with others": "assert 4 in f(2) and 'a' not in f(2)",
    "an item": "assert f(2)[0] == 4",
    "items": "assert sorted(f(2)) == [4]",
    "tolerance": "import pytest\nassert f(2) == pytest.approx(4)",
    "a value for another function": "assert same(f(2)) == 4",
    "a constant that is none": "assert same(LIMIT) == 4",
    "a constant": "assert LIMIT == 4",
    "a function of the program": "assert same(f) == 4",
    "a name that is not there": "assert same(nowhere) == 4",
    "closeness": "import math\nassert math.isclose(f(2), 4)",
}


@pytest.mark.parametrize("name", LIES)
def test_an_object_where_the_test_wants_data_has_failed(shared: Sandbox, name: str) -> None:
    """Even where tests in one process count: no program chooses to be judged in its own."""
    report = shared.run(LIAR + "def f(x): return Any()\ndef same(x): return 4\nLIMIT = f", [LIES[name]])
    assert [(result.passed, result.kind, result.isolation) for result in report.results] == [
        (False, "not_plain", "isolated")
    ]


def test_a_need_that_a_test_catches_is_remembered(sandbox: Sandbox) -> None:
    test = "try:\n    times(2) == 3\nexcept BaseException: pass\nassert one() == 1"
    (result,) = sandbox.run(TIMES + "def one(): return 1", [test]).results
    assert (result.passed, result.kind) == (False, "not_plain")
