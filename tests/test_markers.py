"""The rule about system packages holds: skip with a reason where one is missing, fail where CI promised it. A test that
needs a GPU is skipped without one, unless its module may be tried elsewhere."""

from pathlib import Path

import pytest

PROBE = """
import pytest

@pytest.mark.system("no-such-program")
def test_probe():
    raise AssertionError("a test whose program is missing must not run")
"""

ON_A_GPU = """
import os
import pytest

DEVICE = os.environ.get("TEXT2GRAD_TEST_DEVICE", "cuda")

@pytest.mark.gpu
def test_probe():
    pass
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    text = Path(__file__).with_name("conftest.py").read_text().replace('pytest_plugins = ["pytester"]', "")
    pytester.makeconftest(text)
    pytester.makeini("[pytest]\nmarkers = system(command): x\n  gpu: x")
    pytester.makepyfile(PROBE)
    monkeypatch.delenv("CI", raising=False)
    return pytester


def test_a_missing_program_skips_with_the_install_command(inner: pytest.Pytester) -> None:
    result = inner.runpytest("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs `no-such-program`: apt-get install*"])


def test_a_missing_program_fails_in_ci(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = inner.runpytest()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*CI=true, so nothing may be missing*no-such-program*"])


def test_a_gpu_test_is_tried_on_the_device_that_is_named(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner.makepyfile(ON_A_GPU, test_elsewhere=ON_A_GPU.replace("DEVICE =", "OTHER ="))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("TEXT2GRAD_TEST_DEVICE", raising=False)
    inner.runpytest_inprocess().assert_outcomes(skipped=2)
    monkeypatch.setenv("TEXT2GRAD_TEST_DEVICE", "cpu")
    inner.runpytest_inprocess().assert_outcomes(passed=1, skipped=1)
