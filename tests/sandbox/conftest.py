"""One sandbox for all of these tests, with limits short enough for a test suite."""

import pytest

from text2grad.sandbox import Limits, Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    return Sandbox(Limits(seconds=0.4, wall=2.4))
