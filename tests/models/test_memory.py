"""The share of a GPU that one of several runs may take."""

import math
from typing import Any

import pytest
import torch

from text2grad.errors import ConfigError
from text2grad.models import memory

GIB = 2**30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """139 GiB, of which others hold 99; this process holds 9 and uses 5 of them."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (31 * GIB, 139 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 9 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 5 * GIB)


@pytest.mark.parametrize(
    ("limit", "free"),
    [(None, 35), ("16", 11), ("100", 35), ("", 35), ("16.5", 11.5)],
)
@pytest.mark.usefixtures("gpu")
def test_what_can_still_be_had(monkeypatch: pytest.MonkeyPatch, limit: str | None, free: float) -> None:
    monkeypatch.delenv(memory.LIMIT, raising=False)
    if limit is not None:
        monkeypatch.setenv(memory.LIMIT, limit)
    assert memory.free_memory(torch.device("cuda")) == free * GIB


@pytest.mark.parametrize("limit", ["16GB", "-1", "0", "nan"])
def test_a_limit_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv(memory.LIMIT, limit)
    with pytest.raises(ConfigError, match=f"TEXT2GRAD_GPU_GIB should be a number of GiB above 0, got '{limit}'"):
        memory.limit_of_process()


def test_torch_refuses_what_is_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, int]] = []

    class Whole:
        total_memory = 64 * GIB

    def note(share: float, device: Any) -> None:
        # As torch's own function: it takes no device without a number.
        told.append((share, torch.cuda._utils._get_device_index(device)))

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Whole)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", note)
    monkeypatch.setenv(memory.LIMIT, "16")
    memory.keep_to_limit("cuda:1")
    memory.keep_to_limit("cpu")
    monkeypatch.setenv(memory.LIMIT, "80")
    memory.keep_to_limit("cuda")
    monkeypatch.delenv(memory.LIMIT)
    memory.keep_to_limit("cuda")
    assert told == [(0.25, 1), (1.0, 2)]
    assert memory.limit_of_process() == math.inf
