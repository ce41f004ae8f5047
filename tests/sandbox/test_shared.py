"""Patches of built-in names, warnings, logs, printed text: what tests watch a program with, besides its results."""

import pytest

from text2grad.sandbox import Sandbox

pytestmark = pytest.mark.system("bwrap")

IN = "import builtins, io, logging, os, sys, unittest, warnings\nimport pytest\n"
IN += "from unittest.mock import patch, mock_open\n"
IN += "from solution import ask, hello, old, note, home, twice, read\n"
PROGRAM = """
import functools, logging, os, sys, warnings
def ask(): return input('n? ')[::-1]
def hello(n): print('hi', n)
def read(p):
    with open(p) as f: return f.read().strip()
def old():
    warnings.warn('use new', DeprecationWarning)
    return 1
def note(): logging.getLogger('x').warning('hey')
def home(): return os.environ.get('HOME_OF')
def twice(f):
    @functools.wraps(f)
    def g(*a): return f(*a), f(*a)
    return g
"""
WRONG = "def ask(): return ''\nhello = note = home = lambda *a: None\ndef old(): return 1\ndef read(p): return ''\n"
WRONG += "def twice(f): return f\n"

TESTS = {
    "input": "def test_a():\n    with patch('builtins.input', return_value='abc'):\n        assert ask() == 'cba'",
    "input, in a decorator": "@patch('builtins.input', side_effect=['xy'])\ndef test_a(m):\n    assert ask() == 'yx'",
    "print": "def test_a():\n    with patch('builtins.print') as p:\n        hello(1)\n"
    "    p.assert_called_once_with('hi', 1)",
    "open": "def test_a():\n    with patch('builtins.open', mock_open(read_data='x ')):\n"
    "        assert read('no') == 'x'",
    "warns": "def test_a():\n    with pytest.warns(DeprecationWarning, match='new') as w:\n        assert old() == 1\n"
    "    assert len(w) == 1",
    "deprecated": "def test_a():\n    with pytest.deprecated_call():\n        old()",
    "records warnings": "def test_a():\n    with warnings.catch_warnings(record=True) as w:\n"
    "        warnings.simplefilter('always')\n        old()\n    assert len(w) == 1",
    "unittest's warnings": "class T(unittest.TestCase):\n    def test_a(self):\n"
    "        with self.assertWarns(Warning): old()",
    "a handler": "def test_a():\n    told = []\n    class H(logging.Handler):\n"
    "        def emit(self, r): told.append(r.msg)\n"
    "    logging.getLogger('x').addHandler(H())\n    note()\n    assert told == ['hey']",
    "unittest's logs": "class T(unittest.TestCase):\n    def test_a(self):\n        with self.assertLogs('x'): note()",
    "caplog": "def test_a(caplog: pytest.LogCaptureFixture):\n    with caplog.at_level('INFO'):\n        note()\n"
    "    assert caplog.messages == ['hey'] and 'hey' in caplog.text",
    "capsys": "def test_a(capsys: pytest.CaptureFixture[str]):\n    hello(2)\n"
    "    assert capsys.readouterr().out == 'hi 2\\n'",
    "monkeypatch": "def test_a(monkeypatch):\n    monkeypatch.setattr('builtins.input', lambda _: 'ab')\n"
    "    assert ask() == 'ba'",
    "monkeypatch of a module": "def test_a(monkeypatch):\n    monkeypatch.setattr(builtins, 'input', lambda _: 'ab')\n"
    "    monkeypatch.setattr(os.path, 'sep', '!')\n    assert ask() == 'ba'",
    "monkeypatch, environment": "def test_a(monkeypatch):\n    monkeypatch.setenv('HOME_OF', 'x')\n"
    "    assert home() == 'x'",
    "stdin": "def test_a(monkeypatch):\n    monkeypatch.setattr(sys, 'stdin', io.StringIO('ab\\n'))\n"
    "    assert ask() == 'ba'",
    "a file": "def test_a(tmp_path):\n    (tmp_path / 'x').write_text('y ')\n    assert read(tmp_path / 'x') == 'y'",
    "a decorator at the top": "@twice\ndef both(x): return x\ndef test_a():\n    assert both(2) == (2, 2)",
}


@pytest.mark.parametrize("name", TESTS)
def test_they_see_what_the_program_does(shared: Sandbox, name: str) -> None:
    right, wrong = shared.run(PROGRAM, IN + TESTS[name]), shared.run(WRONG, IN + TESTS[name])
    assert [(result.passed, result.isolation, result.message) for result in right.results] == [(True, "in_process", "")]
    assert (wrong.score, wrong.skipped) == (0.0, ())


def test_patches_are_put_back(shared: Sandbox) -> None:
    tests = IN + TESTS["monkeypatch, environment"] + "\ndef test_b(tmp_path):\n    assert home() is None\n"
    assert [result.passed for result in shared.run(PROGRAM, tests).results] == [True, True]
