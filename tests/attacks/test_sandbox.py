"""Programs that cheat or break things are scored as failing, and leave no trace on the machine."""

import errno
import os
import platform
import socket
import textwrap
from pathlib import Path

import pytest

from text2grad.feedback.critics.code import CodeCritic
from text2grad.feedback.settings import CodeCriticSettings
from text2grad.sandbox import Job, Limits, Report, Sandbox, seccomp

pytestmark = pytest.mark.system("bwrap")

TESTS = ["assert add(2, 3) == 5", "assert add(10, -4) == 6"]

EQUALS_ALL = """
class Any{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
"""

SLOW = "import signal, time\ndef add(a, b):\n    {}\n    end = time.process_time() + 0.7\n"
SLOW += "    while time.process_time() < end: pass\n    return a + b"

ANSWERS = "import os, struct\nbody = b'{}'\ndef add(a, b):\n    os.write(4, struct.pack('>I', len(body)) + body)"
"""A reply of the program's own making; the true one comes too late."""

ATTACKS = {
    "exits at import": "import sys\nsys.exit(0)",
    "exits hard at import": "import os\nos._exit(0)",
    "exits when called": "import sys\ndef add(a, b):\n    sys.exit(0)",
    "exits hard when called": "import os\ndef add(a, b):\n    os._exit(0)",
    "exits by raising": "def add(a, b):\n    raise SystemExit(0)",
    "prints passed": "print('passed\\n2 passed in 0.01s')\ndef add(a, b):\n    print('passed')",
    "returns what equals everything": EQUALS_ALL.format(base="") + "def add(a, b):\n    return Any()",
    "returns an integer that equals everything": EQUALS_ALL.format(base="(int)") + "def add(a, b):\n    return Any(0)",
    "returns a text that equals everything": EQUALS_ALL.format(base="(str)") + "def add(a, b):\n    return Any('x')",
    "returns a list that equals everything": EQUALS_ALL.format(base="(list)") + "def add(a, b):\n    return Any([])",
    "is a class that equals everything": (
        "class add:\n    def __init__(self, a, b): pass\n    def __eq__(self, other): return True"
    ),
    "has a metaclass that equals everything": (
        "class M(type):\n    def __eq__(self, o): return True\n    __hash__ = None\n"
        "class X(metaclass=M): pass\ndef add(a, b):\n    return X"
    ),
    "raises an assertion": "def add(a, b):\n    raise AssertionError('passed')",
    "raises a skip": "import unittest\ndef add(a, b):\n    raise unittest.SkipTest('skipped')",
    "patches the built-ins": (
        "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.AssertionError = Warning\n"
        "builtins.type = builtins.repr = lambda *a: int\ndef add(a, b):\n    return None"
    ),
    "patches json": (
        "import json\njson.dumps = lambda *a, **k: '{\"value\": 7}'\njson.loads = lambda *a, **k: {'op': 'end'}\n"
        "def add(a, b):\n    return 0"
    ),
    "patches the runner": (
        "import sys\nfor name, module in list(sys.modules.items()):\n"
        "    for key, value in list(vars(module).items()):\n"
        "        if 'text2grad' in name and callable(value):\n            setattr(module, key, lambda *a, **k: {})\n"
        "def add(a, b):\n    return 0"
    ),
    "patches operator and pytest": (
        "import operator, sys, types\noperator.eq = lambda a, b: True\nsys.modules['pytest'] = types.ModuleType('p')\n"
        "def add(a, b):\n    return 0"
    ),
    "traces": (
        "import sys\ndef trace(frame, event, arg):\n    frame.f_locals['passed'] = True\n    return trace\n"
        "sys.settrace(trace)\ndef add(a, b):\n    return 0"
    ),
    "reads the callers": (
        "import sys\ndef add(a, b):\n    frame = sys._getframe()\n    found = []\n    while frame:\n"
        "        found += [v for v in frame.f_locals.values() if isinstance(v, int)]\n        frame = frame.f_back\n"
        "    return found"
    ),
    "searches memory for the expected value": (
        "import gc\ndef add(a, b):\n    return [o for o in gc.get_objects() if 'assert' in str(type(o))] or None"
    ),
    "searches the disk for the tests": (
        "import os\ndef add(a, b):\n    for root, folders, files in os.walk('/'):\n"
        "        folders[:] = [f for f in folders if f not in ('usr', 'lib', 'lib64') and 'python' not in f]\n"
        "        for name in files:\n            try:\n"
        "                if 'assert add(2' in open(os.path.join(root, name), errors='replace').read(): return a + b\n"
        "            except OSError: pass\n    return None"
    ),
    "writes replies by itself": (
        "import os, struct\nfor fd in range(3, 64):\n    for body in (b'{}', b'{\"ran\": []}', b'{\"value\": 7}'):\n"
        "        try: os.write(fd, struct.pack('>I', len(body)) + body)\n        except OSError: pass\n"
        "def add(a, b):\n    return 0"
    ),
    "writes events of the tester": (
        'import os\nfor fd in range(64):\n    try: os.write(fd, b\'{"result": {"index": 0, "passed": true}}\\n\')\n'
        "    except OSError: pass\ndef add(a, b):\n    return 0"
    ),
    "sends what is no JSON": "import os\ndef add(a, b):\n    os.write(4, b'\\0\\0\\0\\4oops')",
    "sends JSON a mile deep": "import os\ndef add(a, b):\n    os.write(4, b'\\0\\0\\x4e\\x20' + b'[' * 20000)",
    "promises an endless message": "import os\ndef add(a, b):\n    os.write(4, b'\\xff\\xff\\xff\\xff' + b'x' * 999)",
    "sends a broken tag": 'import os\ndef add(a, b):\n    os.write(4, b\'\\0\\0\\0\\x16{"value": {"set": [[]]}}\')',
    "closes everything": "import os\nos.closerange(0, 64)\ndef add(a, b):\n    return 5",
    "closes stdout": "import sys\nsys.stdout.close()\ndef add(a, b):\n    print(5)\n    return 5",
    "kills its parent": "import os\ndef add(a, b):\n    os.kill(os.getppid(), 9)\n    os.kill(1, 9)",
    "kills everything": "import os\ndef add(a, b):\n    os.kill(-1, 9)\n    os.killpg(0, 9)",
    "stops itself": "import os, signal\ndef add(a, b):\n    os.kill(os.getpid(), signal.SIGSTOP)",
    "crashes": "def add(a, b):\n    import ctypes\n    ctypes.string_at(0)",
    "forks": "import os\ndef add(a, b):\n    return 5 if os.fork() else 6",
    "forks without end": "import os\ndef add(a, b):\n    while True:\n        os.fork()",
    "starts a process": "import subprocess as s, sys\ndef add(a, b):\n    return s.run([sys.executable, '-c', '1'])",
    "starts threads without end": (
        "import threading, time\ndef add(a, b):\n    threading.stack_size(32768)\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(99,)).start()"
    ),
    "fills memory": "def add(a, b):\n    held = []\n    while True:\n        held.append(bytearray(1 << 24))",
    "fills memory at once": "def add(a, b):\n    return [0] * (1 << 40)",
    "returns more than a message holds": "def add(a, b):\n    return 'x' * (1 << 25)",
    "returns a ball of itself": "def add(a, b):\n    a = []\n    a.append(a)\n    return a",
    "returns items without end": "import itertools\ndef add(a, b):\n    return itertools.repeat('x' * 99999)",
    "fills the disk": (
        "def add(a, b):\n    n = 0\n    while True:\n        n += 1\n"
        "        open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))"
    ),
    "writes a huge file": (
        "def add(a, b):\n    with open('/tmp/x', 'wb') as f:\n        f.write(bytes(1 << 25))\n    return a + b"
    ),
    "prints gigabytes": "def add(a, b):\n    while True:\n        print('x' * (1 << 20))",
    "prints a lot and is right": "def add(a, b):\n    print('x' * (1 << 24), flush=True)\n    return a + b",
    "never ends": "def add(a, b):\n    while True:\n        pass",
    "never ends and swallows the timer": (
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass"
    ),
    "never ends at import": "while True:\n    pass",
    "never ends with the timer off": (
        "import signal\nsignal.setitimer = lambda *a: (0, 0)\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\n"
        "def add(a, b):\n    while True: pass"
    ),
    "takes the timer away and is right too late": SLOW.format("signal.setitimer(signal.ITIMER_PROF, 0)"),
    "ignores the timer and is right too late": SLOW.format("signal.signal(signal.SIGPROF, signal.SIG_IGN)"),
    "sleeps": "import time\ndef add(a, b):\n    time.sleep(1e6)\n    return 5",
    "recurses without end": "def add(a, b):\n    return add(a, b)",
    "recurses through the C stack": "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b):\n    return add(a, b)",
    "computes a number without end": "def add(a, b):\n    return 9 ** 9 ** 9 ** 9",
    "writes at exit": (
        "import atexit, os, struct\nbody = b'{\"value\": 5}'\n"
        "atexit.register(lambda: os.write(4, struct.pack('>I', len(body)) + body))\n"
        "def add(a, b):\n    raise SystemExit(0)"
    ),
    "leaves a thread that writes replies": (
        'import os, struct, threading\nbody = b\'{"ran": [], "error": null}\'\ndef write():\n    while True:\n'
        "        os.write(4, struct.pack('>I', len(body)) + body)\n"
        "threading.Thread(target=write, daemon=True).start()\n"
        "def add(a, b):\n    return 0"
    ),
    "raises what nobody catches": "class Odd(BaseException): pass\ndef add(a, b):\n    raise Odd",
    "raises an interrupt": "def add(a, b):\n    raise KeyboardInterrupt",
    "raises a stop": "def add(a, b):\n    raise StopIteration(a + b)",
    "raises the end of a generator": "def add(a, b):\n    raise GeneratorExit",
    "raises what has no message": (
        "class Odd(Exception):\n    def __str__(self): raise SystemExit(0)\n    args = property(lambda self: 1 / 0)\n"
        "def add(a, b):\n    raise Odd"
    ),
    "lies about its class": (
        "class Any:\n    __class__ = int\n    def __eq__(self, o): return True\n    def __index__(self): return 5\n"
        "def add(a, b):\n    return Any()"
    ),
    "has numbers of its own": (
        "class N(int):\n    def __add__(self, o): return 5\n    def __eq__(self, o): return True\n    __hash__ = None\n"
        "def add(a, b):\n    return N(0)"
    ),
    "gives something else each time": "seen = []\ndef add(a, b):\n    seen.append(1)\n    return (k for k in seen * 5)",
    "patches what writes": (
        "import os, struct\nwrite = os.write\nos.write = lambda fd, data: write(fd, bytes(data).replace(b'0', b'5'))\n"
        "struct.pack = lambda *a: b'\\0\\0\\0\\x0c'\ndef add(a, b):\n    return 0"
    ),
    "patches its own loader": (
        "import sys, types\nsys.modules['text2grad'] = sys.modules['solution'] = types.ModuleType('x')\n"
        "sys.modules['solution'].add = lambda a, b: 5\ndef add(a, b):\n    return 0"
    ),
    "answers with a broken error": ANSWERS.format('{"error": {"names": 5, "args": {"set": 1}, "frames": [[0]]}}'),
    "answers with a broken place": ANSWERS.format('{"syntax": 5}'),
    "answers with a skip": ANSWERS.format('{"error": {"names": ["Unusable", "BaseException"]}}'),
    "answers with a need for its own process": ANSWERS.format('{"error": {"names": ["NeedsLive", "BaseException"]}}'),
    "answers that it is too late": ANSWERS.format('{"timeout": {}}'),
    "answers with what was never there": ANSWERS.format('{"value": {"again": 7}}'),
    "answers with what holds itself": ANSWERS.format('{"value": [{"again": 0}]}'),
    "answers with what is small and huge": ANSWERS.format(
        '{"value": ' + "[" * 60 + "[]" + "".join(f', {{"again": {k}}}]' for k in range(60, 0, -1)) + "}"
    ),
    "does not parse": "def add(a, b:\n    return 5",
    "is nested beyond reason": "x = " + "(" * 5000 + ")" * 5000,
    "holds a null byte": "def add(a, b):\n    return 5\0",
    "is empty": "",
    "defines the test's built-ins instead": "def abs(x): return 0\ndef len(x): return 5",
}


def test_an_honest_program_passes(sandbox: Sandbox) -> None:
    report = sandbox.run("def add(a, b):\n    return a + b", TESTS)
    assert (report.score, {result.isolation for result in report.results}) == (1.0, {"isolated"})


ON_PYTEST = [
    "exits at import",
    "exits hard when called",
    "exits by raising",
    "returns what equals everything",
    "is a class that equals everything",
    "raises a skip",
    "raises a stop",
    "raises an interrupt",
    "patches operator and pytest",
    "writes events of the tester",
    "leaves a thread that writes replies",
    "never ends",
    "does not parse",
    "is empty",
]


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """All at a time: most of them wait for their limits."""
    jobs = {name: Job(program, TESTS) for name, program in ATTACKS.items()}
    jobs |= {f"pytest: {name}": Job(ATTACKS[name], PYTEST) for name in ON_PYTEST}
    done = Sandbox(Limits(seconds=0.25, wall=1.6), workers=6).run_many(jobs.values())
    return dict(zip(jobs, done, strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_scored_as_failing(reports: dict[str, Report], name: str) -> None:
    report = reports[name]
    assert report.unusable is None
    assert [result.passed for result in report.results] == [False, False]
    assert report.score == 0.0
    assert {result.isolation for result in report.results} == {"isolated"}
    assert all(result.kind != "passed" for result in report.results)


PYTEST = """
import pytest
from solution import add

@pytest.mark.parametrize("a, b, wanted", [(2, 3, 5), (10, -4, 6)])
def test_rows(a, b, wanted):
    assert add(a, b) == wanted

class TestMore:
    def test_close(self):
        assert add(2, 3) == pytest.approx(5)
"""


def test_an_honest_program_passes_tests_of_pytest(sandbox: Sandbox) -> None:
    report = sandbox.run("def add(a, b):\n    return a + b", PYTEST)
    assert [(result.name, result.passed, result.isolation) for result in report.results] == [
        ("test_rows", True, "isolated"),
        ("TestMore.test_close", True, "isolated"),
    ]


@pytest.mark.parametrize("name", ON_PYTEST)
def test_an_attack_on_tests_of_pytest_is_scored_as_failing(reports: dict[str, Report], name: str) -> None:
    report = reports[f"pytest: {name}"]
    assert (report.unusable, report.skipped, report.score) == (None, (), 0.0)
    assert {result.isolation for result in report.results} == {"isolated"}
    assert [result.name for result in report.results] == ["test_rows", "TestMore.test_close"]


LOOK = textwrap.dedent("""
    import os, socket, sys

    def attempt(work):
        try:
            return repr(work())
        except BaseException as problem:
            return type(problem).__name__

    def look(path):
        return {
            "environment": dict(os.environ),
            "root": sorted(os.listdir("/")),
            "tmp": os.listdir("/tmp"),
            "open files": [n for n in range(3, 64) if attempt(lambda: os.fstat(n))[:2] == "os"],
            "write to root": attempt(lambda: open("/x", "w")),
            "write to dev": attempt(lambda: open("/dev/x", "w")),
            "write to the library": attempt(lambda: open(os.__file__, "a")),
            "a user's file": attempt(lambda: open(path).read()),
            "password file": attempt(lambda: open("/etc/passwd").read()),
            "processes": attempt(lambda: os.listdir("/proc")),
            "shell": attempt(lambda: os.execv("/bin/sh", ["sh"])),
            "network": attempt(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
            "root user": os.getuid() == 0 or attempt(lambda: os.setuid(0)) == "None",
            "raise a limit": attempt(lambda: __import__("resource").setrlimit(
                __import__("resource").RLIMIT_AS, (-1, -1))),
        }
""")


def test_what_a_program_sees(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the user's own")
    monkeypatch.setenv("TEXT2GRAD_TEST_SECRET", "in the environment")
    wanted = {
        "environment": {},
        "tmp": [],
        "open files": [3, 4],
        "write to root": "OSError",
        "write to dev": "OSError",
        "write to the library": "OSError",
        "a user's file": "FileNotFoundError",
        "password file": "FileNotFoundError",
        "processes": "FileNotFoundError",
        "shell": "FileNotFoundError",
        "network": "PermissionError",
        "root user": False,
        "raise a limit": "ValueError",
    }
    tests = [f"assert look({str(secret)!r})[{key!r}] == {value!r}" for key, value in wanted.items()]
    report = sandbox.run(LOOK, tests)
    assert [(result.name, result.got) for result in report.results if not result.passed] == []


def test_no_network_not_even_to_this_machine(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket\ndef dial():\n    socket.create_connection(('127.0.0.1', {port}), 1)\n    return 1"
        report = sandbox.run(program, ["assert dial() == 1"])
    assert (report.score, "PermissionError" in report.results[0].message) == (0.0, True)


HOARD = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def shm():
    libc.shmat.restype = ctypes.c_void_p
    held = libc.shmget(0, 1 << 20, 0o1600)
    place = libc.shmat(held, None, 0)
    ctypes.memset(place, 1, 1 << 20) if held >= 0 else None
    return held, ctypes.get_errno()
def call(name, *arguments):
    return getattr(libc, name)(*arguments), ctypes.get_errno()
"""


@pytest.mark.parametrize(
    "call",
    ["shm()", "call('semget', 0, 1, 0o1600)", "call('msgget', 0, 0o1600)", "call('memfd_create', b'x', 0)"],
)
def test_no_memory_outside_the_limit(sandbox: Sandbox, call: str) -> None:
    report = sandbox.run(HOARD, [f"assert {call} == (-1, {errno.EPERM})"])
    assert [(result.isolation, result.got, result.message) for result in report.results if not result.passed] == []


@pytest.mark.parametrize("warm", [True, False])
def test_nothing_is_left_running(warm: bool) -> None:
    """Neither while a sandbox is held, beside its interpreters, nor after it."""
    before = _below(os.getpid())
    boxed = Sandbox(Limits(seconds=0.5, wall=1.0), warm=warm)
    boxed.run("def add(a, b): return a + b", TESTS)
    idle = _below(os.getpid()) - before
    for program in ("import time\ntime.sleep(31)", "import signal\nsignal.pause()", "while True: pass"):
        boxed.run(program, TESTS)
        assert _below(os.getpid()) - before == idle
    assert bool(idle) is warm
    boxed.close()
    assert not _below(os.getpid()) - before, "interpreters of an earlier test may end meanwhile"


def _below(pid: int) -> set[int]:
    """All processes that this one started, and those that they started."""
    parents = [(path.parent.name, _read(path).rpartition(")")[2].split()) for path in Path("/proc").glob("[0-9]*/stat")]
    own = {int(name) for name, fields in parents if len(fields) > 1 and int(fields[1]) == pid and fields[0] != "Z"}
    return own.union(*map(_below, own))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


ENDS = "def f(x):\n    raise StopIteration\n"
ENDS_LATER = "calls = []\ndef f(x):\n    calls.append(x)\n    if x > 1: raise StopIteration\n    return x\n"


@pytest.mark.parametrize(
    ("program", "test"),
    [
        (ENDS, "assert all(map(f, [1, 2]))"),
        (ENDS, "assert sum(map(f, [1, 2])) == 0"),
        (ENDS, "assert list(filter(f, [1, 2])) == []"),
        (ENDS_LATER, "for got, wanted in zip(map(f, [1, 2]), [1, 4]):\n    assert got == wanted"),
    ],
)
def test_the_end_of_an_iterator_wins_nothing(sandbox: Sandbox, program: str, test: str) -> None:
    (result,) = sandbox.run(program, [test]).results
    assert (result.kind, result.message, result.isolation) == ("error", "StopIteration: ", "isolated")


def test_a_test_that_expects_the_end_of_an_iterator_needs_live_objects(sandbox: Sandbox, shared: Sandbox) -> None:
    test = "try:\n    f(1)\n    assert False\nexcept StopIteration:\n    assert True"
    assert "StopIteration" in str(sandbox.run(ENDS, [test]).unusable)
    assert [result.isolation for result in shared.run(ENDS, [test]).results] == ["in_process"]


@pytest.mark.parametrize("where", ["{}\ndef add(a, b): return 5", "def add(a, b):\n    {}"])
@pytest.mark.parametrize("in_process", [False, True])
def test_a_time_out_by_the_clock_is_told_as_one(where: str, in_process: bool) -> None:
    program = where.format("__import__('time').sleep(60)") + "\nclass Box: value = 5"
    boxed = Sandbox(Limits(seconds=0.3, wall=1.0), in_process=in_process)
    tests = ["assert add(2, 3) == 5", *(["assert add(2, 3) is Box.value"] if in_process else [])]
    report = boxed.run(program, tests)
    assert {result.kind for result in report.results} == {"timeout"}
    assert not any("ended its own process" in result.message for result in report.results)


FAMILIES = """
import socket
def family(number, pair=False):
    try:
        (socket.socketpair if pair else socket.socket)(number)
    except OSError as problem:
        return problem.errno
    return 0
"""


def test_every_socket_family_but_unix_is_refused(sandbox: Sandbox) -> None:
    tests = [f"assert family({number}) == {errno.EPERM}" for number in range(2, 46)]
    report = sandbox.run(FAMILIES, ["assert family(1) == 0", "assert family(1, True) == 0", *tests])
    assert [(result.name, result.got) for result in report.results if not result.passed] == []


REFUSED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def refused(numbers):
    found = []
    for number in numbers:
        ctypes.set_errno(0)
        found += [] if (libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()) == (-1, 1) else [number]
    return found
"""


@pytest.mark.skipif(platform.machine() not in seccomp._REFUSED, reason="no filter is known for this processor")
@pytest.mark.parametrize("warm", [True, False])
def test_every_refused_call_is_refused_warm_and_cold(warm: bool) -> None:
    """Another process, tracing, namespaces, mounts, keys, BPF, io_uring, memory outside the limits."""
    numbers = [*seccomp._REFUSED[platform.machine()], *seccomp._HOARDS[platform.machine()]]
    boxed = Sandbox(Limits(), warm=warm)
    report = boxed.run(REFUSED, [f"assert refused({numbers}) == []"])
    boxed.close()
    assert [(result.kind, result.got, result.message) for result in report.results] == [("passed", None, "")]


def test_threads_are_bounded_for_every_user() -> None:
    program = (
        "import threading\ndef most():\n    wait, started = threading.Event(), 0\n    threading.stack_size(65536)\n"
        "    try:\n        while started < 99:\n            threading.Thread(target=wait.wait, daemon=True).start()\n"
        "            started += 1\n    except RuntimeError: pass\n    return started"
    )
    boxed = Sandbox(Limits(seconds=2.0, processes=16))
    assert boxed.run(program, ["assert most() < 16"]).score == 1.0


ODD_EVENTS = """
import os, signal
for change in ("signal.getsignal(signal.SIGPROF).__self__.end = lambda: [[1]]", "signal.signal(signal.SIGPROF, 1 / 0)"):
    try: exec(change)
    except Exception: pass
class Box:
    def size(self):
        odd = ['[[1]]', '{"a": 1}', '1e999', '-1', '"x"', 'null', 'true']
        odd.append('[[[1], "f"], [-5, 3], [' + '9' * 40 + ', {}]]')
        for fd in range(3, 9):
            for value in odd:
                for key in ("result", "start", "skipped", "objects", "done", "kind"):
                    line = f'{{"{key}": {value}, "result": 0, "kind": {value}, "ran": {value}, "frames": {value}}}'
                    try: os.write(fd, b"\\n" + line.encode() + b"\\n")
                    except OSError: pass
def add(a, b): return Box().size()
"""


@pytest.mark.parametrize("in_process", [False, True])
def test_nothing_a_program_says_ends_the_hosts_run(in_process: bool) -> None:
    critic = CodeCritic(CodeCriticSettings(in_process=in_process))
    tests = [["assert add(2, 3) == 5", "assert Box().size() == 1"]]
    (critique,) = critic(["p"], [ODD_EVENTS], tests=tests)
    assert critique is not None and critique.score == 0.0


def test_tests_in_one_process_are_out_of_training_unless_asked_for() -> None:
    assert CodeCriticSettings().in_process is False
    report = Sandbox().run("class Box:\n    def size(self): return 1", ["assert Box().size() == 1"])
    assert report.results == () and "in_process=true" in str(report.unusable)


def test_an_index_error_ends_the_iteration_of_a_tests_own_class(sandbox: Sandbox) -> None:
    """Not stopped: docs/sandbox.md lists it. A length that is checked finds it."""
    program = "def item(index):\n    raise IndexError\n"
    row = "class Row:\n    def __getitem__(self, index):\n        return item(index)\n"
    report = sandbox.run(program, [f"{row}assert all(Row())", f"{row}assert len(list(Row())) == 3"])
    assert [result.passed for result in report.results] == [True, False]
