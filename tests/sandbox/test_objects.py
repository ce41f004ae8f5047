"""Tests that turn out to need the program's objects while they run: judged in one process then, and marked."""

import pytest

from tests.sandbox.test_attacks import EQUALS_ALL
from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

TIMES = "def times(n):\n    return lambda x: x * n\n"
V = "class V:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return V(self.x + o.x)\n"
V += "    def __eq__(self, o): return isinstance(o, V) and self.x == o.x\n    def __iter__(self): yield self.x\n"
CARD = "class Card:\n    def __init__(self, n): self.n = n\n    def __str__(self): return f'A{self.n}'\n"
CARD += "    def __eq__(self, o): return self.n == o.n\ndef draw(n): return Card(n)\n"
CARD += "def deck(): return [Card(n) for n in range(3)]\n"
HOLDS = "class Bag:\n    def __iter__(self): return iter([1, 2])\ndef bag(): return Bag()\n"
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
    "a class with one letter": (V, "assert V(1) + V(2) == V(3)", "self.x + o.x", "self.x - o.x"),
    "its items": (V, "assert list(V(3)) == [3]", "yield self.x", "yield 0"),
    "unlike plain data": (V, "assert V(1) != 'x' and not V(1) == 1\nassert V(1) + V(1) == V(2)", "self.x + o.x", "0"),
    "objects of a function": (CARD, "assert draw(3) == draw(3)\nassert draw(3) != draw(4)", "self.n ==", "self.n <="),
    "its text": (CARD, "assert str(draw(3)) == 'A3'", "A{", "B{"),
    "a holder": (HOLDS, "assert 2 in bag() and 3 not in bag()", "2]", "3]"),
    "their number": (CARD, "assert len(deck()) == 3", "range(3)", "range(4)"),
    "a match": (
        "import re\ndef f(s): return re.match('ab', s)\n",
        "assert f('abc')\nassert not f('x')",
        "match",
        "sub",
    ),
    "a UUID": ("import uuid\ndef f(): return uuid.UUID(int=5)\n", "assert str(f())[-1] == '5'", "=5", "=4"),
    "an array": (
        "import array\ndef f(): return array.array('i', [1, 2])\n",
        "assert list(f()) == [1, 2]",
        ", 2",
        ", 3",
    ),
    "a value that is no function": (
        "import re\nWORD = re.compile('a')\n",
        "import re\nassert bool(WORD)\nassert re.match(WORD, 'a')",
        "('a')",
        "('b')",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_program_passes_and_the_wrong_one_does_not(sandbox: Sandbox, name: str) -> None:
    program, test, old, new = RIGHT[name]
    assert old in program
    right, wrong = sandbox.run(program, [test]), sandbox.run(program.replace(old, new), [test])
    assert [(result.passed, result.verdict, result.message) for result in right.results] == [(True, "in_process", "")]
    assert "not plain data" in right.results[0].unplain
    assert wrong.score == 0.0


def test_only_what_needs_it_shares_a_process(sandbox: Sandbox) -> None:
    tests = ["double = times(2)\nassert double(4) == 8", "assert one() == 1", "assert times(3)(1) == 3"]
    report = sandbox.run(TIMES + "def one(): return 1", tests)
    assert [(result.passed, result.verdict, bool(result.unplain)) for result in report.results] == [
        (True, "in_process", True),
        (True, "isolated", False),
        (True, "in_process", False),
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
    "closeness": "import math\nassert math.isclose(f(2), 4)",
}


@pytest.mark.parametrize("name", LIES)
def test_an_object_that_lies_wins_nothing_by_being_judged_in_one_process(sandbox: Sandbox, name: str) -> None:
    report = sandbox.run(LIAR + "def f(x): return Any()", [LIES[name]])
    assert [(result.passed, result.verdict) for result in report.results] == [(False, "in_process")]
    assert report.results[0].kind != "test_error", report.results[0].message


def test_a_need_that_a_test_catches_is_remembered(sandbox: Sandbox) -> None:
    test = "try:\n    times(2)\nexcept BaseException: pass\nassert one() == 1"
    (result,) = sandbox.run(TIMES + "def one(): return 1", [test]).results
    assert (result.passed, result.verdict) == (True, "in_process")
    (result,) = sandbox.run(LIAR + "def times(n): return Any()\ndef one(): return 2", [test]).results
    assert (result.passed, result.verdict) == (False, "in_process")
