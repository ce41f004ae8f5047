"""Programs that cheat where they share a process with their tests: the doors that are known are closed."""

import pytest

from tests.sandbox.test_attacks import EQUALS_ALL
from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

LIVE = ["box = Box(2)\nassert box.add(3) == 5", "assert Box(10).add(-4) == 6"]
"""Tests that need the program's own objects, so program and tests share a process."""
BOX = "class Box:\n    def __init__(self, a): self.a = a\n    def add(self, b):\n"

SKIP = "def skip():\n    raise next(c for c in BaseException.__subclasses__() if c.__name__ == '{}')('x')\n"
HANDLER = """
import signal
def handler(number, frame):
    while frame is not None:
        if 'names' in frame.f_locals:
            frame.f_locals['self'].checks['__compare__'] = lambda *a: None
            frame.f_locals['names']['__compare__'] = frame.f_locals['self'].checks['__compare__']
        frame = frame.f_back
signal.signal(10, handler)
"""

LIVE_ATTACKS = {
    "exits at import": "import sys\nsys.exit(0)",
    "exits hard at import": "import os\nos._exit(0)",
    "exits hard when called": "import os\n" + BOX + "        os._exit(0)",
    "returns what equals everything": EQUALS_ALL.format(base="") + BOX + "        return Any()",
    "returns an integer that equals everything": EQUALS_ALL.format(base="(int)") + BOX + "        return Any(0)",
    "poses as a class of the library": (
        "class Any:\n    __module__ = 'decimal'\n    def __eq__(self, other): return True\n"
        + BOX
        + "        return Any()"
    ),
    "patches the built-ins": (
        "import builtins\nbuiltins.bool = builtins.type = builtins.isinstance = lambda *a: True\n"
        + BOX
        + "        return 0"
    ),
    "patches the runner": (
        "import sys\nfor name, module in list(sys.modules.items()):\n"
        "    if 'text2grad' in name or name == '__main__':\n"
        "        for key, value in list(vars(module).items()):\n            if callable(value):\n"
        "                setattr(module, key, lambda *a, **k: None)\n" + BOX + "        return 0"
    ),
    "changes the caller": (
        "import sys\n" + BOX + "        f = sys._getframe(1)\n        f.f_globals['__compare__'] = lambda *a: None\n"
        "        return 0"
    ),
    "changes the caller through inspect": (
        "import inspect\n" + BOX + "        f = inspect.currentframe().f_back\n"
        "        f.f_globals['__compare__'] = lambda *a: None\n        return 0"
    ),
    "changes the caller through a traceback": (
        BOX + "        try: 1 / 0\n        except Exception as e: f = e.__traceback__.tb_frame.f_back\n"
        "        f.f_globals['__compare__'] = lambda *a: None\n        return 0"
    ),
    "searches memory": (
        "import gc\n"
        + BOX
        + "        for o in gc.get_objects():\n            if isinstance(o, dict) and '__compare__' in o:\n"
        "                o['__compare__'] = lambda *a: None\n        return 0"
    ),
    "writes events": (
        "import os\n" + BOX + "        for fd in range(64):\n"
        '            try: os.write(fd, b\'{"result": {"index": 0, "passed": true, "kind": "passed"}}\\n\')\n'
        "            except OSError: pass\n        os._exit(0)"
    ),
    "patches the built-ins of the library": (
        "import os\nfound = os.path.join.__globals__['__builtins__']\n"
        "found = found if isinstance(found, dict) else vars(found)\n"
        "found['bool'] = found['type'] = found['isinstance'] = lambda *a: True\n" + BOX + "        return 0"
    ),
    "patches what writes the result": (
        "import json.encoder\nwrite = json.encoder.JSONEncoder.encode\ndef encode(self, said):\n"
        "    if 'result' in said:\n        said['result'].update(passed=True, kind='passed')\n"
        "    return write(self, said)\njson.encoder.JSONEncoder.encode = encode\n" + BOX + "        return 0"
    ),
    "asks for frames under a false name": (
        "code = compile('import sys\\ndef grab(): return sys._getframe(2)', '/lib/collections.py', 'exec')\n"
        "names = {}\nexec(code, names)\n" + BOX + "        frame = names['grab']()\n        while frame:\n"
        "            if '__compare__' in frame.f_globals:\n"
        "                frame.f_globals['__compare__'] = lambda *a: None\n            frame = frame.f_back\n"
        "        return 0"
    ),
    "patches pytest": (
        "import sys\nfake = sys.modules.get('pytest')\nif fake: fake.raises.__exit__ = lambda *a: True\n"
        + BOX
        + "        sys.modules.get('pytest', sys).approx = lambda x: x\n        return 0"
    ),
    "patches the judge's class": (
        "for found in type.__subclasses__(object):\n    if found.__name__ == 'Tester':\n"
        "        found.run = lambda self, unit: {'index': unit['index'], 'passed': True, 'kind': 'passed', 'ran': []}\n"
        + BOX
        + "        return 0"
    ),
    "patches what calls the tests": (
        "import inspect, itertools\nitertools.product = lambda *a: []\ninspect.signature = None\n"
        + BOX
        + "        return 0"
    ),
    "raises a skip": SKIP.format("Unusable") + BOX + "        skip()",
    "raises a need for its own process": SKIP.format("NeedsLive") + BOX + "        skip()",
    "gets the frames of the test from a signal": HANDLER + BOX + "        signal.raise_signal(10)\n        return 0",
    "gets the frames of the test from a signal of a fresh module": (
        "import sys\nfor name in ('signal', '_signal'): del sys.modules[name]\n"
        + HANDLER
        + BOX
        + "        signal.raise_signal(10)\n        return 0"
    ),
    "takes the timer away": (
        "import signal, time\n" + BOX + "        signal.setitimer(signal.ITIMER_PROF, 0)\n"
        "        signal.signal(signal.SIGPROF, signal.SIG_IGN)\n        end = time.process_time() + 0.7\n"
        "        while time.process_time() < end: pass\n        return self.a + b"
    ),
    "never ends": BOX + "        while True: pass",
    "forks": "import os\n" + BOX + "        return 5 if os.fork() else 6",
}


def test_an_honest_class_passes(sandbox: Sandbox) -> None:
    report = sandbox.run(BOX + "        return self.a + b", LIVE)
    assert (report.score, {result.verdict for result in report.results}) == (1.0, {"in_process"})


@pytest.mark.parametrize("name", LIVE_ATTACKS)
def test_an_attack_in_the_tests_own_process_is_scored_as_failing(sandbox: Sandbox, name: str) -> None:
    report = sandbox.run(LIVE_ATTACKS[name], LIVE)
    assert [result.passed for result in report.results] == [False, False]
    assert {result.verdict for result in report.results} == {"in_process"}


def test_a_function_of_the_tests_does_not_lead_to_their_checks(sandbox: Sandbox) -> None:
    program = "def call(f):\n    f.__globals__['__compare__'] = lambda *a: None\n    return 0"
    report = sandbox.run(program, ["assert call(lambda: 3) == 3"])
    assert (report.score, report.results[0].verdict) == (0.0, "in_process")


def test_no_program_chooses_the_process_it_is_judged_in(sandbox: Sandbox) -> None:
    tests = ["assert join(split('abc')) == 'abc'"]
    honest = sandbox.run("def split(s):\n    yield from s\ndef join(x):\n    return ''.join(x)", tests)
    sly = sandbox.run("def split(s):\n    return iter(s)\ndef join(x):\n    return 'no'", tests)
    assert [(report.score, report.results[0].verdict) for report in (honest, sly)] == [
        (1.0, "isolated"),
        (0.0, "isolated"),
    ]


@pytest.mark.parametrize(
    "test",
    [
        "box = Box(1)\nassert box.add(2) == 3 and box.add(3) == 4",
        "box = Box(1)\nassert 3 == box.add(2) == 3",
        "box = Box(1)\nif box.add(2) != 3: assert False",
        "box = Box(1)\nassert all(box.add(k) == k + 1 for k in range(3))",
        "box = Box(1)\nassert [box.add(2)] == [3]",
        "box = Box(1)\nassert {'a': (box.add(2),)} == {'a': (3,)}",
    ],
)
def test_an_object_that_equals_everything_wins_nowhere(sandbox: Sandbox, test: str) -> None:
    honest = sandbox.run(BOX + "        return self.a + b", [test])
    sly = sandbox.run(EQUALS_ALL.format(base="") + BOX + "        return Any()", [test])
    assert [(report.score, report.results[0].verdict) for report in (honest, sly)] == [
        (1.0, "in_process"),
        (0.0, "in_process"),
    ]


def test_unittest_does_not_ask_the_program_either(sandbox: Sandbox) -> None:
    tests = "import unittest\nfrom solution import Box\nclass T(unittest.TestCase):\n"
    tests += "    def test_a(self):\n        box = Box(1)\n        self.assertEqual(box.add(2), 3)\n"
    assert sandbox.run(BOX + "        return self.a + b", tests).score == 1.0
    assert sandbox.run(EQUALS_ALL.format(base="") + BOX + "        return Any()", tests).score == 0.0
