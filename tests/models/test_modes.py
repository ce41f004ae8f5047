"""What holds for a stretch of work and no longer."""

from collections.abc import Iterator

import pytest
import torch

from text2grad.models.modes import one_thread


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_work_beside_a_gpu_takes_one_thread() -> None:
    with one_thread(torch.device("cuda")):
        assert torch.get_num_threads() == 1
        with one_thread(torch.device("cuda")):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), one_thread(torch.device("cuda")):
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_where_the_device_is_the_cpu_its_threads_are_left_alone() -> None:
    with one_thread(torch.device("cpu")):
        assert torch.get_num_threads() == 2
