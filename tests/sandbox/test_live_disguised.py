"""Programs that share a process with their tests and put something false in the place of what judges them."""

import pytest

from tests.sandbox.test_attacks import EQUALS_ALL
from tests.sandbox.test_live_attacks import BOX, LIVE
from tests.sandbox.test_live_determined import FIND
from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

PIPES = """
import json, os, re, stat
kept, read = {}, {}
def is_pipe(fd):
    try: return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError: return False
for fd in [fd for fd in range(3, 64) if is_pipe(fd)]:
    out, into = os.pipe()
    kept[fd], read[fd] = os.dup(fd), out
    os.set_blocking(out, False)
    os.dup2(into, fd)
def cheat():
    for fd, out in read.items():
        try: said = os.read(out, 1 << 16)
        except OSError: continue
        found = re.search(rb'"nonce": "([0-9a-f]+)"', said)
        lead, head = said[:said.find(b'{')], {'nonce': found[1].decode()} if found else {}
        count = 10
        try: count = json.loads(said[said.find(b'{'):].splitlines()[-1])['count'] + 1
        except Exception: pass
        lines = [said]
        for event in [*({'result': {'index': i, 'passed': True, 'kind': 'passed'}} for i in range(2)), {'done': True}]:
            lines.append(lead + json.dumps({**head, 'count': count, **event}).encode() + b'\\n')
            count += 1
        os.write(kept[fd], b''.join(lines))
"""
FALSE_CLASS = """
import sys, types
class {name}:
    numerator = denominator = 1
    def __init__(self, *a): pass
    def __eq__(self, other): return True
    def __str__(self): return '1'
module = types.ModuleType('{module}')
module.{name} = {name}
sys.modules['{module}'] = module
"""
RETURNS = BOX + "        return {}"
GARBAGE = """
import gc
count = 0
def hook():
    global count
    count += 1
    if count == 1:
        problem = ValueError('x'); problem.me = problem
        raise problem
    gc.set_debug(gc.DEBUG_SAVEALL); gc.collect()
    for found in gc.garbage:
        if type(found).__name__ == 'frame' and 'unit' in found.f_locals and 'self' in found.f_locals:
            tester, calls = found.f_locals['self'], [0]
            for unit in tester.job['units']: unit['function'] = ''
            def checked():
                calls[0] += 1
                return calls[0]
            tester.checked = checked
            for index in tester.bodies: tester.bodies[index] = compile('', 'x', 'exec')
"""
APPROX = FIND + "Approx = judge('Approx')\napprox = Approx.__init__.__globals__['approx']\n"

DISGUISED = {
    "puts a pipe of its own before the results": PIPES + BOX + "        cheat()\n        return 0",
    "shows its own decimals": FALSE_CLASS.format(name="Decimal", module="decimal") + RETURNS.format("Decimal()"),
    "shows its own fractions": FALSE_CLASS.format(name="Fraction", module="fractions") + RETURNS.format("Fraction()"),
    "shows its own dates": (
        "import datetime\nclass E:\n    def isoformat(self): return '2024-01-01'\n"
        "    @classmethod\n    def fromisoformat(cls, text): return cls()\n    def __eq__(self, other): return True\n"
        "E.__name__ = 'date'\ndatetime.date = E\n" + RETURNS.format("E()")
    ),
    "patches fractions and puts them back": (
        "import fractions\nF = fractions.Fraction\nold = F.__eq__\ndef eq(a, b):\n    F.__eq__ = old\n    return True\n"
        + BOX
        + "        F.__eq__ = eq\n        return F(1, 7)"
    ),
    "returns a tolerance that equals everything": (
        APPROX + EQUALS_ALL.format(base="") + RETURNS.format("Approx(Any(), None, None, False)")
    ),
    "returns a tolerance without end": APPROX + RETURNS.format("Approx(0, None, 1e99, True)"),
    "has the test make the tolerance": (
        APPROX + "import functools\nclass Box:\n    def __init__(self, a): pass\n"
        "    add = staticmethod(functools.partial(approx, 0, None, 1e99))\n"
    ),
    "keeps garbage to find frames in it": GARBAGE + BOX + "        hook()\n        return 0",
    "keeps garbage by a fresh collector": (
        "import sys\ndel sys.modules['gc']\n" + GARBAGE + BOX + "        hook()\n        return 0"
    ),
}


@pytest.mark.parametrize("name", DISGUISED)
def test_a_disguise_is_scored_as_failing(sandbox: Sandbox, name: str) -> None:
    report = sandbox.run(
        DISGUISED[name], [*LIVE, "from fractions import Fraction\nassert Box(1).add(2) == Fraction(3)"]
    )
    assert [(result.passed, result.verdict) for result in report.results] == [(False, "in_process")] * 3


EXITS = """
class Box:
    value = 3
    def __init__(self, a): pass
    def __enter__(self): return self
    def __exit__(self, *a): return {}
def f(x): return 0
"""


@pytest.mark.parametrize(
    "check",
    [
        "assert box.value == 5",
        "assert not box.value",
        "pytest.fail('no')",
        "raise AssertionError",
        "unittest.TestCase().assertEqual(box.value, 5)",
    ],
)
def test_a_failed_check_is_not_swallowed_by_the_programs_context(sandbox: Sandbox, check: str) -> None:
    tests = (
        f"import pytest, unittest\nfrom solution import Box\ndef test_a():\n    with Box(1) as box:\n        {check}\n"
    )
    tests += "    assert box.value == 3\n"
    report = sandbox.run(EXITS.format("True"), tests)
    assert [(result.passed, result.verdict) for result in report.results] == [(False, "in_process")]


@pytest.mark.parametrize(
    "body",
    [
        "    with Box(1) as box:\n        raise KeyError\n    assert box.value == 3",
        "    with pytest.raises(AssertionError):\n        with Box(1) as box:\n            assert box.value == 5",
        "    with Box(1) as box, pytest.raises(AssertionError):\n        assert box.value == 5",
        "    with contextlib.suppress(AssertionError), Box(1) as box:\n        assert box.value == 5\n"
        "    assert box.value == 3",
    ],
)
def test_contexts_do_what_they_are_for(sandbox: Sandbox, body: str) -> None:
    tests = f"import contextlib, pytest\nfrom solution import Box\ndef test_a():\n{body}\n"
    report = sandbox.run(EXITS.format("a[0] is KeyError"), tests)
    assert [(result.passed, result.message) for result in report.results] == [(True, "")]


@pytest.mark.parametrize("side", ["pytest.approx(3)", "near", "approx(3)"])
def test_tolerances_of_the_tests_are_used(sandbox: Sandbox, side: str) -> None:
    tests = "import pytest\nfrom pytest import approx\nfrom solution import Box\ndef test_a():\n"
    tests += f"    near = pytest.approx(3)\n    box = Box(1)\n    assert box.add(2) == {side}\n"
    right, wrong = sandbox.run(RETURNS.format("3.0000001"), tests), sandbox.run(RETURNS.format("3.1"), tests)
    assert (right.score, wrong.score, right.results[0].verdict) == (1.0, 0.0, "in_process")
