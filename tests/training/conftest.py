"""The driver of training runs, one for all tests of a session."""

from collections.abc import Iterator

import pytest

from tests.training.trainings import Driver, driving


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("driver")) as started:
        yield started
