"""One sandbox for all of these tests, with limits short enough for a test suite."""

import pytest

from text2grad.sandbox import Limits, Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    return Sandbox(Limits(seconds=0.4, wall=2.4))


@pytest.fixture(scope="session")
def shared() -> Sandbox:
    """Runs tests that need live objects, too."""
    return Sandbox(Limits(seconds=1.0, wall=6.0), in_process=True)
