"""What the documents show is what the code does."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["alignment.md", "demo-task.md", "evaluation.md"])
def test_examples(name: str) -> None:
    done = doctest.testfile(str(DOCS / name), module_relative=False, encoding="utf-8")
    assert (done.failed, done.attempted > 5) == (0, True)
