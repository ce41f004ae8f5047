"""Programs that share a process with their tests and go to some length: patch and put back, ask under false names."""

import pytest

from tests.sandbox.test_attacks import EQUALS_ALL
from tests.sandbox.test_live_attacks import BOX, LIVE
from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

FIND = """
def every(kind):
    for found in type.__subclasses__(kind):
        yield found
        if found is not type: yield from every(found)
def judge(name):
    return next(c for c in every(object) if c.__name__ == name and 'text2grad' in c.__module__)
"""
ZERO = BOX + "        return 0"
"""Wrong."""
AS_LIBRARY = "import collections\nFILE = collections.__file__\n"
GRAB = """
import sys
def grab():
    frame = sys._getframe(1)
    while frame is not None:
        for held in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if callable(held) and getattr(held, '__name__', '') == 'say':
                held(result={'index': 0, 'passed': True, 'kind': 'passed'})
                held(result={'index': 1, 'passed': True, 'kind': 'passed'})
                held(done=True)
        frame = frame.f_back
"""
SAY = """
for held in gc.get_objects():
    if callable(held) and getattr(held, '__name__', '') == 'say':
        held(result={'index': 0, 'passed': True, 'kind': 'passed'})
        held(result={'index': 1, 'passed': True, 'kind': 'passed'})
        held(done=True)
"""
CALLS = BOX + "        try: grab()\n        except PermissionError: pass\n        return 0"

DETERMINED = {
    "says it itself, from a frame": GRAB + CALLS,
    "says it itself, from a frame, under the library's name": (
        AS_LIBRARY + f"names = {{}}\nexec(compile({GRAB!r}, FILE, 'exec'), names)\ngrab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame, by another way to the library": (
        AS_LIBRARY + f"open('/tmp/x.py', 'w').write({GRAB!r})\n"
        "FILE = '/'.join(FILE.split('/')[:-2]) + '/..' * (FILE.count('/') - 2) + '/tmp/x.py'\n"
        f"names = {{}}\nexec(compile({GRAB!r}, FILE, 'exec'), names)\ngrab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame, under the tests' name": (
        f"names = {{}}\nexec(compile({GRAB!r}, 'tests.py', 'exec'), names)\ngrab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame, under a name given later": (
        AS_LIBRARY + f"import _imp\nnames = {{}}\ncode = compile({GRAB!r}, 'x', 'exec')\n"
        "_imp._fix_co_filename(code, FILE)\nexec(code, names)\ngrab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame, by a fresh module that gives names": (
        AS_LIBRARY + "import _imp, importlib.machinery\n"
        "_imp = _imp.create_builtin(importlib.machinery.ModuleSpec('_imp', None))\n"
        f"names = {{}}\ncode = compile({GRAB!r}, 'x', 'exec')\n_imp._fix_co_filename(code, FILE)\n"
        "exec(code, names)\ngrab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame, in a file of its own": (
        f"import sys\nopen('/tmp/helper.py', 'w').write({GRAB!r})\nsys.path.insert(0, '/tmp')\n"
        "from helper import grab\n" + CALLS
    ),
    "says it itself, from a frame, in marshalled code": (
        AS_LIBRARY + f"import marshal\ncode = compile({GRAB!r}, 'A' * len(FILE), 'exec')\n"
        "code = marshal.loads(marshal.dumps(code).replace(b'A' * len(FILE), FILE.encode()))\n"
        "names = {}\nexec(code, names)\ngrab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame, in a replaced code": (
        AS_LIBRARY + f"names = {{}}\nexec(compile({GRAB!r}, 'x', 'exec').replace(co_filename=FILE), names)\n"
        "grab = names['grab']\n" + CALLS
    ),
    "says it itself, from a frame that asyncio gives": (
        GRAB.replace("sys._getframe(1)", "frame_of()") + "import asyncio\ndef frame_of():\n    async def go():\n"
        "        return asyncio.current_task().get_stack()[0]\n    return asyncio.run(go())\n" + CALLS
    ),
    "says it itself, from a frame that logging gives": (
        GRAB.replace("sys._getframe(1)", "logging.currentframe()") + "import logging\n" + CALLS
    ),
    "says it itself, from memory": "import gc\n" + SAY + ZERO,
    "says it itself, from memory, under the library's name": (
        AS_LIBRARY + f"import gc\nexec(compile({SAY!r}, FILE, 'exec'), {{'gc': gc}})\n" + ZERO
    ),
    "loads foreign functions": "import ctypes\n" + BOX + "        return 5 if self.a == 2 else 6",
    "loads foreign functions by another way": (
        "import importlib\nimportlib.import_module('ctypes')\n" + BOX + "        return 5 if self.a == 2 else 6"
    ),
    "says it itself, from a frame, with nobody watching": (
        FIND + "names = judge('Tester').run.__globals__['guard'].watch.__globals__\n"
        "for name in [name for name in names if name.isupper()]:\n"
        "    if isinstance(names[name], set): names[name].clear()\n"
        "names.update(_WATCHED=(), _NEVER=(), _SELDOM=(), _harmless=lambda *a: True, _place=lambda f: ('', ''))\n"
        + GRAB
        + "try: grab()\nexcept PermissionError: pass\n"
        + ZERO
    ),
    "loads a library of its own": (
        "import importlib.machinery as m, glob, os, sysconfig\n"
        "found = glob.glob(sysconfig.get_path('stdlib') + '/lib-dynload/*.so')[0]\n"
        "open('/tmp/' + os.path.basename(found), 'wb').write(open(found, 'rb').read())\n"
        "name = os.path.basename(found).partition('.')[0]\n"
        "loader = m.ExtensionFileLoader(name, '/tmp/' + os.path.basename(found))\n"
        "loader.create_module(m.ModuleSpec(name, loader, origin=loader.path))\n"
        + BOX
        + "        return 5 if self.a == 2 else 6"
    ),
    "takes the timer away by the judge's own hand": (
        FIND + "import time\nstop = judge('Tester').run.__globals__['_set_timer']\n" + BOX + "        stop(2, 0)\n"
        "        end = time.process_time() + 0.7\n        while time.process_time() < end: pass\n"
        "        return self.a + b"
    ),
    "traces": (
        "import sys, threading\nsys.settrace(lambda *a: None)\n" + BOX + "        return 5 if self.a == 2 else 6"
    ),
    "profiles": "import sys\nsys.setprofile(lambda *a: None)\n" + BOX + "        return 5 if self.a == 2 else 6",
    "patches the judge and puts it back": (
        FIND + "T = judge('Tester')\nold = T.run\ndef run(self, unit):\n    T.run = old\n"
        "    return {'index': unit['index'], 'passed': True, 'kind': 'passed', 'ran': []}\nT.run = run\n" + ZERO
    ),
    "patches what describes a failure and puts it back": (
        FIND + "names = judge('Tester').run.__globals__\nold = names['_failure']\ndef failure(problem):\n"
        "    names['_failure'] = old\n    return {'passed': True, 'kind': 'passed'}\n"
        + BOX
        + "        names['_failure'] = failure\n        return 0"
    ),
    "patches the end of a test and puts it back": (
        FIND
        + "L = judge('Local')\nold = L.end\ndef end(self):\n    L.end = old\n    raise SystemExit(0)\n"
        + BOX
        + "        L.end = end\n        return 0"
    ),
    "patches the comparisons": (
        FIND + "for c in every(object):\n    if c.__name__ == 'Mismatch':\n"
        "        names = c.__init__.__globals__\n        for sign in names['_COMPARE']:\n"
        "            names['_COMPARE'][sign] = lambda a, b: True\n" + ZERO
    ),
    "patches the copying of values and puts it back": (
        FIND + "names = judge('Mismatch').__init__.__globals__\nold = names['decode']\ndef decode(data):\n"
        "    names['decode'] = old\n    return type('E', (), {'__eq__': lambda *a: True})()\n"
        + BOX
        + "        names['decode'] = decode\n        return 0"
    ),
    "patches the judge's built-in names": (
        FIND + "names = judge('Tester').run.__globals__['__builtins__']\nnames['bool'] = lambda x: True\n" + ZERO
    ),
    "gives a function of the judge other code": (
        FIND + "def run(self, unit):\n    return {'index': unit['index'], 'passed': True, 'kind': 'passed'}\n"
        "judge('Tester').run.__code__ = run.__code__\n" + ZERO
    ),
    "gives a function of the judge other defaults": (
        FIND + "judge('Approx').__init__.__defaults__ = (9, 9, True)\n" + BOX + "        return 5 if self.a == 2 else 6"
    ),
    "skips with the judge's own exception": (
        FIND + "names = judge('Approx').__init__.__globals__\n" + BOX + "        raise names['skipped']('x')"
    ),
    "leaves a thread that writes results": (
        "import os, threading\ndef write():\n    while True:\n        for fd in range(3, 9):\n"
        '            try: os.write(fd, b\'{"result": {"index": 0, "passed": true, "kind": "passed"}}\\n\')\n'
        "            except OSError: pass\nthreading.Thread(target=write, daemon=True).start()\n" + ZERO
    ),
    "leaves a thread that patches the writer": (
        FIND + "import threading, time\nnames = judge('Tester').run.__globals__\nold = names['os']\n"
        "class Fake:\n    def __getattr__(self, name): return getattr(old, name)\n"
        "    def write(self, fd, data): return old.write(fd, bytes(data).replace(b'false', b'true'))\n"
        "def patch():\n    while True:\n        names['os'] = Fake()\n        time.sleep(0)\n"
        "        names['os'] = old\n"
        "threading.Thread(target=patch, daemon=True).start()\n" + ZERO
    ),
    "writes at exit": (
        "import atexit, os\ndef last():\n    for fd in range(3, 9):\n"
        '        try: os.write(fd, b\'{"result": {"index": 0, "passed": true, "kind": "passed"}}\\n\')\n'
        "        except OSError: pass\natexit.register(last)\n" + BOX + "        raise SystemExit(0)"
    ),
    "patches when it is thrown away": (
        FIND + "names = judge('Tester').run.__globals__\n" + BOX + "        return 0\n    def __del__(self):\n"
        "        names['_failure'] = lambda problem: {'passed': True, 'kind': 'passed'}\n"
    ),
    "raises what nobody catches": "class Odd(BaseException): pass\n" + BOX + "        raise Odd",
    "raises an interrupt": BOX + "        raise KeyboardInterrupt",
    "raises a stop": BOX + "        raise StopIteration",
    "lies about its class": (
        "class Any:\n    __class__ = int\n    def __eq__(self, other): return True\n" + BOX + "        return Any()"
    ),
}


@pytest.mark.parametrize("name", DETERMINED)
def test_a_determined_program_is_scored_as_failing(sandbox: Sandbox, name: str) -> None:
    report = sandbox.run(DETERMINED[name], LIVE)
    assert [(result.passed, result.verdict) for result in report.results] == [(False, "in_process")] * 2


ANY = EQUALS_ALL.format(base="") + "class Many(list):\n    def __contains__(self, item): return True\n"


@pytest.mark.parametrize(
    ("tests", "lie"),
    [
        ("import pytest\nassert Box(1).add(2) == pytest.approx(3)", "Any()"),
        ("import pytest\nassert pytest.approx(3) == Box(1).add(2)", "Any()"),
        ("from decimal import Decimal\nbox = Box(1)\nassert box.add(2) == Decimal(3)", "Any()"),
        ("box = Box(1)\nassert box.add(2) in (3, 4)", "Any()"),
        ("box = Box(1)\nassert 3 in [box.add(2)]", "Any()"),
        ("box = Box(1)\nassert 3 in box.many(3)", "Many()"),
        ("box = Box(1)\nassert 4 not in box.many(3) and 3 in box.many(3)", "[Any()]"),
    ],
)
def test_what_equals_everything_is_not_asked(sandbox: Sandbox, tests: str, lie: str) -> None:
    right = BOX + "        return self.a + b\n    def many(self, x):\n        return [x]"
    wrong = ANY + BOX + f"        return {lie}\n    def many(self, x):\n        return {lie}"
    honest, sly = sandbox.run(right, [tests]), sandbox.run(wrong, [tests])
    assert [(report.score, report.results[0].verdict) for report in (honest, sly)] == [
        (1.0, "in_process"),
        (0.0, "in_process"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "self.assertEqual(box.add(2), 3)",
        "self.assertAlmostEqual(box.add(2), 3)",
        "self.assertAlmostEqual(3, box.add(2), delta=0.1)",
        "self.assertIn(box.add(2), [3])",
        "self.assertNotEqual(box.add(2), 4); self.assertGreater(box.add(2), 2)",
        "self.assertListEqual([box.add(2)], [3])",
        "self.assertDictEqual({'a': box.add(2)}, {'a': 3})",
        "self.assertTrue(box.add(2) == 3)",
        "self.assertCountEqual([box.add(2)], [3]); self.assertEqual(box.add(2), 3)",
    ],
)
def test_unittest_asks_no_object_that_equals_everything(sandbox: Sandbox, line: str) -> None:
    tests = "import unittest\nfrom solution import Box\nclass T(unittest.TestCase):\n    def test_a(self):\n"
    tests += f"        box = Box(1)\n        {line}\n"
    lies = EQUALS_ALL.format(base="") + "    __lt__ = __gt__ = __eq__\n" + BOX + "        return Any()"
    assert sandbox.run(BOX + "        return self.a + b", tests).score == 1.0
    assert sandbox.run(lies, tests).score == 0.0


PATCH = "\nold = {0}\ndef fake(*a, **k):\n    {1}\n    return {2}\n"


@pytest.mark.parametrize("back", ["pass", "put(old)"])
@pytest.mark.parametrize(
    ("tests", "place", "value"),
    [
        (
            "import math\nfrom solution import Box\ndef test_a():\n    assert math.isclose(Box(1).add(2), 3)\n",
            "math.isclose",
            "True",
        ),
        (
            "from math import isclose\nfrom solution import Box\ndef test_a():\n    assert isclose(Box(1).add(2), 3)\n",
            "math.isclose",
            "True",
        ),
        (
            "import unittest\nfrom solution import Box\nclass T(unittest.TestCase):\n    def test_a(self):\n"
            "        box = Box(1)\n        self.assertTrue(box.add(2) == 3)\n",
            "unittest.TestCase.assertTrue",
            "None",
        ),
    ],
)
def test_patches_of_the_library_reach_no_test(sandbox: Sandbox, tests: str, place: str, value: str, back: str) -> None:
    patch = f"import math, unittest\ndef put(f):\n    {place} = f" + PATCH.format(place, back, value) + "put(fake)\n"
    assert sandbox.run(BOX + "        return self.a + b", tests).score == 1.0
    report = sandbox.run(patch + ZERO, tests)
    assert (report.score, report.results[0].verdict) == (0.0, "in_process")


@pytest.mark.parametrize(
    "program",
    [
        "import collections\nP = collections.namedtuple('P', 'x y')\n" + BOX + "        return P(self.a, b).x + b",
        "import logging\n" + BOX + "        logging.warning('adding')\n        return self.a + b",
        "import dataclasses, enum, typing\nE = enum.Enum('E', 'A B')\nT = typing.NewType('T', int)\n"
        "@dataclasses.dataclass\nclass Box:\n    a: int\n    def add(self, b): return self.a + b\n",
        "def curry(f):\n    return f.__code__.co_argcount\n" + BOX + "        return self.a + b * curry(lambda x: x)",
        "import inspect, statistics, heapq, decimal, asyncio, threading\n" + BOX + "        return self.a + b",
        BOX + "        return eval('self.a + b')",
        "import concurrent.futures as c\n" + BOX + "        with c.ThreadPoolExecutor(2) as p:\n"
        "            return p.submit(lambda: self.a + b).result()",
        "class Box:\n    def __init__(self, a):\n        import functools\n"
        "        self.add = functools.lru_cache(lambda b: a + b)",
    ],
)
def test_honest_programs_may_use_the_library(sandbox: Sandbox, program: str) -> None:
    report = sandbox.run(program, LIVE)
    assert [(result.passed, result.message) for result in report.results] == [(True, "")] * 2
