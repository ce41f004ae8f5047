"""Warm interpreters: quick, and no program sees anything of another or of what forks it."""

import os
import threading
from collections.abc import Iterator

import pytest

from text2grad.sandbox import Job, Limits, Report, Sandbox
from text2grad.sandbox.warm import _Pool

pytestmark = pytest.mark.system("bwrap")


@pytest.fixture(scope="module")
def one() -> Iterator[Sandbox]:
    """One worker, so that programs come one after another from the same interpreter."""
    made = Sandbox(Limits(seconds=1.0, wall=4.0), workers=1)
    assert made.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
    if made.cold:
        pytest.skip(f"no warm interpreters on this machine: {made.cold}")
    yield made
    made.close()


def interpreters(sandbox: Sandbox, role: str = "candidate") -> list[int]:
    return [warm.process.pid for warm in sandbox._processes._pool.idle[role]]


def after(sandbox: Sandbox, first: str, second: str, test: str) -> Report:
    """The report on the second program, which the same interpreter forks after the first one ran and returned 1."""
    before = interpreters(sandbox)
    said = sandbox.run(first, ["assert f() == 1"])
    assert [(result.passed, result.message, result.got) for result in said.results] == [(True, "", None)]
    report = sandbox.run(second, [test])
    assert interpreters(sandbox) == before
    return report


def check(report: Report) -> None:
    assert [(result.name, result.message, result.got) for result in report.results if not result.passed] == []
    assert report.results


def test_programs_are_forked_by_one_interpreter(one: Sandbox) -> None:
    before = interpreters(one)
    assert len(before) == 1
    assert [report.score for report in one.run_many([Job("def f(): return 1", ["assert f() == 1"])] * 3)] == [1.0] * 3
    assert interpreters(one) == before


def test_a_warm_verdict_is_the_cold_one(one: Sandbox) -> None:
    cold = Sandbox(one.limits, warm=False)
    programs = {
        "right": "def f(x):\n    return x + 1",
        "wrong": "def f(x):\n    if x > 1:\n        return 0\n    return x + 1",
        "raises": "def f(x):\n    return x + y",
        "dies": "import os\ndef f(x):\n    os._exit(0)",
        "is killed": "import os\ndef f(x):\n    os.kill(os.getpid(), 9)",
        "unreadable": "def f(x:",
        "random": "import random\ny = random.random()\ndef f(x):\n    return random.random()",
        "order of a set": "def f(x):\n    return list({'a', 'b', 'c', 'd', str(x)})",
    }
    mbpp, kodcode = (
        ["assert f(1) == 2", "assert f(2) == 3"],
        "from solution import f\ndef test_f():\n    assert f(1) == 2",
    )
    for tests in (mbpp, kodcode):
        for program in programs.values():
            assert one.run(program, tests) == cold.run(program, tests)
        endless = [boxed.run("def f(x):\n    while x: pass\n    return 1", tests) for boxed in (one, cold)]
        # On a busy machine the clock may come before the processor's time, and then nobody knows the line.
        assert [{result.kind for result in report.results} for report in endless] == [{"timeout"}, {"timeout"}]


BOTH = """
import builtins, math, os, random, resource, signal, socket, sys
Candidate = sys.modules["text2grad.sandbox.inside.candidate"].Candidate
def nobody(): raise SystemExit
"""
LEAVE: dict[str, tuple[str, str, object]] = {
    # what it leaves, how the next one looks for it, what it finds
    "a file": ("open('left', 'w').close(); open('/tmp/too', 'w').close()", "os.listdir('.') + os.listdir('/tmp')", []),
    "a variable of the environment": ("os.environ['LEFT'] = 'x'", "os.getenv('LEFT')", None),
    "a module": ("sys.modules['left'] = os", "'left' in sys.modules", False),
    "a patched module": ("math.pi = 3; os.listdir = nobody", "(math.pi > 3.1, os.listdir('/tmp'))", (True, [])),
    "a patched built-in": (
        "builtins.left = 1; builtins.sum = nobody",
        "(hasattr(builtins, 'left'), sum([2]))",
        (False, 2),
    ),
    "a patched candidate": ("Candidate.load = nobody", "Candidate.load is nobody", False),
    "a path": ("sys.path.insert(0, '/tmp')", "'/tmp' in sys.path", False),
    "a seed": ("random.seed(7)", "random.random()", 0.8444218515250481),
    "a handler": ("signal.signal(15, signal.SIG_IGN)", "signal.getsignal(15) == signal.SIG_IGN", False),
    "a mask of signals": ("signal.pthread_sigmask(0, {10})", "len(signal.pthread_sigmask(0, []))", 0),
    "a limit": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0]",
        64,
    ),
    "a mode of files": ("os.umask(0o777)", "os.umask(0) == 0o777", False),
    "a working folder": ("os.chdir('/')", "os.getcwd()", "/tmp"),
    "a priority": ("os.nice(1)", "os.nice(0)", os.nice(0)),
    "an abstract socket": (
        "s = sys.left = socket.socket(socket.AF_UNIX); s.bind(chr(0) + 'left'); s.listen()",
        "socket.socket(socket.AF_UNIX).connect_ex(chr(0) + 'left') == 0",
        False,
    ),
}


@pytest.mark.parametrize("what", LEAVE)
def test_nothing_is_left_for_the_next_program(one: Sandbox, what: str) -> None:
    leave, look, wanted = LEAVE[what]
    first, second = f"{BOTH}\ndef f():\n    {leave}\n    return 1", f"{BOTH}\ndef g():\n    return {look}"
    check(after(one, first, second, f"assert g() == {wanted!r}"))


QUEUE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def f():
    libc.mq_open(b"/left", 0o102, 0o600, None)
    return 1
def g():
    return libc.mq_open(b"/left", 0), ctypes.get_errno()
"""


def test_a_message_queue_is_refused(one: Sandbox) -> None:
    report = after(one, QUEUE, QUEUE, "assert g() == (-1, 1)")
    check(report)


SEES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)

def attempt(work):
    try:
        return work()
    except BaseException as problem:
        return type(problem).__name__

def see():
    header, caps = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, caps)
    return {
        "capabilities": list(caps),
        "no new privileges": libc.prctl(39, 0, 0, 0, 0),
        "filter": libc.prctl(21, 0, 0, 0, 0),
        "pid": os.getpid(),
        "session": os.getsid(0) == os.getpid() or os.getsid(0),
        "open files": [n for n in range(3, 4096) if attempt(lambda: os.fstat(n)) != "OSError"],
        "mount": libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "unmount": libc.umount2(b"/tmp", 2),
        "namespace": libc.unshare(0x10000000),
        "processes": [n for n in range(1, 400) if attempt(lambda: os.kill(n, 0)) is None],
        "other descriptors": [attempt(lambda: libc.syscall(438, os.pidfd_open(1), n, 0)) for n in range(9)],
        "arguments": sys.argv[1:],
        "proc": os.path.exists("/proc"),
        "shared memory": os.path.exists("/dev/shm"),
        "environment": dict(os.environ),
    }
"""


@pytest.mark.parametrize(
    ("what", "wanted"),
    {
        "capabilities": [0] * 6,
        "no new privileges": 1,
        "filter": 2,
        "pid": 2,
        "session": 1,
        "open files": [3, 4],
        "mount": -1,
        "unmount": -1,
        "namespace": -1,
        "processes": [1, 2],
        "other descriptors": [-1] * 9,
        "arguments": [],
        "proc": False,
        "shared memory": False,
        "environment": {},
    }.items(),
)
def test_what_a_forked_program_has(one: Sandbox, what: str, wanted: object) -> None:
    check(one.run(SEES, [f"assert see()[{what!r}] == {wanted!r}"]))


SIGNALS = {
    "the group": "os.kill(0, 9)",
    "its own group by name": "os.killpg(os.getpgid(0), 9)",
    "everybody": "os.kill(-1, 9)",
    "the parent": "os.kill(os.getppid(), 9)",
    "the parent, politely": "os.kill(os.getppid(), 2)",
    "every number": "[os.kill(n, 9) for n in range(1, 3)]",
    "the group of the interpreter": "os.setpgid(0, 0); os.kill(-1, 15)",
}


@pytest.mark.parametrize("how", SIGNALS)
def test_a_signal_reaches_nobody_outside(one: Sandbox, how: str) -> None:
    before = interpreters(one)
    program = f"import os\ndef f():\n    {SIGNALS[how]}\n    return 1"
    one.run(program, ["assert f() == 2"])
    assert one.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
    assert interpreters(one) == before


def test_programs_cannot_talk_to_the_host(one: Sandbox) -> None:
    """The socket on which the host ends a process is not among its descriptors, in memory or on disk."""
    program = (
        "import gc, os, socket, struct\n"
        "def f():\n"
        "    for fd in range(4096):\n"
        "        for word in (b'ready', b'ended', b'end', b'begin'):\n"
        "            try: os.write(fd, word)\n"
        "            except OSError: pass\n"
        "    return 1\n"
    )
    before = interpreters(one), interpreters(one, "tester")
    assert one.run(program, ["assert f() == 1", "assert f() == 1"]).score == 0.0
    held = "import gc, socket\ndef f(): return [s.fileno() for s in gc.get_objects() if isinstance(s, socket.socket)]"
    check(one.run(held, ["assert f() == [-1]"]))
    assert (interpreters(one), interpreters(one, "tester")) == before


def test_tests_are_forked_too_and_leave_nothing(one: Sandbox) -> None:
    for _ in range(2):
        check(one.run("def f(): return 1", ["import math\nassert (f(), math.pi > 3) == (1, True)\nmath.pi = 3"]))


def test_programs_at_the_same_time_have_their_own_interpreters() -> None:
    boxed = Sandbox(workers=3)
    program = "import os, time\ndef f(n):\n    open(f'/tmp/{n}', 'w').close()\n    time.sleep(0.2)\n"
    program += "    return os.listdir('/tmp')"
    reports = boxed.run_many([Job(program, [f"assert f({n}) == ['{n}']"]) for n in range(6)])
    assert [report.score for report in reports] == [1.0] * 6
    assert len(interpreters(boxed)) == 3
    boxed.close()


def test_an_interpreter_that_died_is_replaced(one: Sandbox) -> None:
    (before,) = interpreters(one)
    os.kill(before, 9)
    one._processes._pool.idle["candidate"][0].process.wait()
    assert one.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
    assert interpreters(one) != [before]


@pytest.mark.parametrize("role", ["candidate", "tester"])
def test_an_interpreter_that_somebody_kills_is_not_the_programs_fault(one: Sandbox, role: str) -> None:
    assert one.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
    (pid,) = interpreters(one, role)
    threading.Timer(0.3, os.kill, (pid, 9)).start()
    report = one.run("import time\ndef f():\n    time.sleep(0.5)\n    return 1", ["assert f() == 1"])
    assert [(result.passed, result.message) for result in report.results] == [(True, "")]
    assert interpreters(one, role) not in ([], [pid]) and one.cold is None


def test_pytest_is_started_before_the_first_program(one: Sandbox) -> None:
    """A test is part of the session that the interpreter began; to begin one takes longer than to run three tests."""
    tests = "from solution import f\ndef test_f(request):\n    plugins = request.config.pluginmanager.get_plugins()\n"
    tests += "    (ours,) = [vars(each) for each in plugins if type(each).__name__ == '_Pytest']\n"
    tests += "    assert f() == 1 and id(ours.get('session')) == id(request.session)\n"
    check(one.run("def f(): return 1", tests))


def test_the_thread_that_asked_first_may_end() -> None:
    boxed, scores = Sandbox(), []
    thread = threading.Thread(target=lambda: scores.append(boxed.run("def f(): return 1", ["assert f() == 1"]).score))
    thread.start()
    thread.join()
    before = interpreters(boxed)
    assert scores == [boxed.run("def f(): return 1", ["assert f() == 1"]).score] == [1.0]
    assert interpreters(boxed) == before != []
    boxed.close()


def test_where_it_cannot_be_warm_it_is_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    boxed = Sandbox()
    monkeypatch.setattr(boxed._launcher, "start_warm", lambda *_: _broken())
    assert boxed.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
    assert boxed.cold == "no namespaces here"


def _broken() -> object:
    raise OSError("no namespaces here")


def test_nobody_waits_for_an_interpreter_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    boxed = Sandbox()
    boxed.run("def f(): return 1", ["assert f() == 1"])
    (warm,) = boxed._processes._pool.idle["candidate"]
    monkeypatch.setattr(warm, "heard", lambda _: False)
    assert boxed.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
    assert warm.process.poll() is not None and warm.process.pid not in interpreters(boxed)
    boxed.close()


def test_a_forked_process_of_the_host_leaves_its_parents_interpreters(one: Sandbox) -> None:
    pool = _Pool()
    pool.owner = -1
    pool.idle["candidate"] = one._processes._pool.idle["candidate"]
    pool.close()
    assert one.run("def f(): return 1", ["assert f() == 1"]).score == 1.0
