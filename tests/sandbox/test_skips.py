"""A test that skips itself: before it asked the program it is none, afterwards it has failed."""

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
def test_no_program_gets_a_test_skipped(sandbox: Sandbox, test: str, verdict: str) -> None:
    report = sandbox.run(WRONG, f"{IN}def test_a():\n{test}\n{OTHER}")
    assert [(result.name, result.passed, result.verdict) for result in report.results] == [
        ("test_a", False, verdict),
        ("test_other", True, "isolated"),
    ]
    assert report.skipped == ()


@pytest.mark.parametrize("uses", ["f(2) == 4", "Box().size() == 4"])
@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("def test_a():\n    if sys.version_info > (3, 0): pytest.skip('new')\n    assert {}", "skips itself: new"),
        ("def test_a():\n    pytest.importorskip('nosuch')\n    assert {}", "skips itself: no module 'nosuch'"),
        ("@pytest.mark.skip\ndef test_a():\n    assert {}", "marked skip"),
        ("@unittest.skip('x')\ndef test_a():\n    assert {}", "marked skip"),
        ("@unittest.skipIf(True, 'x')\nclass T(unittest.TestCase):\n    def test_a(self): assert {}", "marked skip"),
        (
            "class T(unittest.TestCase):\n    def test_a(self):\n        self.skipTest('x'); assert {}",
            "skips itself: x",
        ),
    ],
)
def test_what_is_skipped_whatever_the_program_is_no_test(sandbox: Sandbox, test: str, reason: str, uses: str) -> None:
    report = sandbox.run(WRONG, f"{IN}{test.format(uses)}\n{OTHER}")
    assert [(result.name, result.passed) for result in report.results] == [("test_other", True)]
    assert [said for _, said in report.skipped] == [reason]
