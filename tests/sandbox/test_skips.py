"""A test that skips itself before it asked the program does not count; afterwards it has failed."""

import pytest

from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

IN = "import pytest, sys, unittest\nfrom solution import f, Box\n"
OTHER = "\ndef test_other():\n    assert f(0) is None\n"
WRONG = "class Box:\n    def size(self): return None\ndef f(x):\n    if x == 3: raise NotImplementedError\n"
WRONG += "    return None\nK = None\n"


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        ("    r = f(2)\n    if r is None:\n        pytest.skip('no')\n    assert r == 4", "isolated"),
        ("    try: r = f(3)\n    except NotImplementedError: pytest.skip('no')\n    assert r == 4", "isolated"),
        ("    if f(2) is None: raise unittest.SkipTest('no')\n    assert f(2) == 4", "isolated"),
        ("    if f(2) is None: pytest.xfail('no')\n    assert f(2) == 4", "isolated"),
        ("    import solution\n    if solution.K is None: pytest.skip('no')\n    assert f(2) == 4", "isolated"),
        ("    r = Box().size()\n    if r is None:\n        pytest.skip('no')\n    assert r == 4", "in_process"),
        (
            "    box = Box()\n    if box.size() is None: raise unittest.SkipTest\n    assert box.size() == 4",
            "in_process",
        ),
    ],
)
def test_no_program_gets_a_test_skipped(shared: Sandbox, test: str, verdict: str) -> None:
    report = shared.run(WRONG, f"{IN}def test_a():\n{test}\n{OTHER}")
    assert [(result.name, result.passed, result.isolation) for result in report.results] == [
        ("test_a", False, verdict),
        ("test_other", True, "isolated"),
    ]
    assert report.skipped == ()


@pytest.mark.parametrize("uses", ["f(2) == 4", "Box().size() == 4"])
@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("@pytest.mark.skip(reason='x')\ndef test_a():\n    assert {}", "skips itself: x"),
        ("@pytest.mark.skipif(True, reason='x')\ndef test_a():\n    assert {}", "skips itself: x"),
        ("@pytest.mark.xfail\ndef test_a():\n    assert {}", "skips itself: marked xfail"),
        ("@unittest.skip('x')\ndef test_a():\n    assert {}", "skips itself: x"),
        (
            "@unittest.skipIf(True, 'x')\nclass T(unittest.TestCase):\n    def test_a(self): assert {}",
            "skips itself: x",
        ),
    ],
)
def test_what_is_skipped_whatever_the_program_is_no_test(shared: Sandbox, test: str, reason: str, uses: str) -> None:
    report = shared.run(WRONG, f"{IN}{test.format(uses)}\n{OTHER}")
    assert [(result.name, result.passed) for result in report.results] == [("test_other", True)]
    assert [words for _, words in report.skipped] == [reason]


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("def test_a():\n    if sys.version_info > (3, 0): pytest.skip('x')\n    assert f(2) == 4", "skips itself: x"),
        ("def test_a():\n    pytest.importorskip('nosuch')\n    assert f(2) == 4", "could not import 'nosuch'"),
        (
            "class T(unittest.TestCase):\n    def test_a(self):\n        self.skipTest('x'); assert f(2) == 4",
            "itself: x",
        ),
    ],
)
def test_a_test_may_skip_itself_before_it_asks_the_program(sandbox: Sandbox, test: str, reason: str) -> None:
    report = sandbox.run(WRONG, f"{IN}{test}\n{OTHER}")
    assert [(result.name, result.passed) for result in report.results] == [("test_other", True)]
    assert [reason in words for _, words in report.skipped] == [True]


@pytest.mark.parametrize("mark", ["skipif(f(2) is None, reason='x')", "parametrize('x', f(2) or [])"])
def test_no_program_gets_a_test_marked(sandbox: Sandbox, mark: str) -> None:
    report = sandbox.run(WRONG, f"{IN}@pytest.mark.{mark}\ndef test_a(x=1):\n    assert f(2) == 4\n")
    assert [(result.name, result.passed) for result in report.results] == [("test_a", False)]
