"""The lock beside a file: one holder at a time, and nothing stays behind."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from text2grad.errors import RunLocked
from text2grad.runs.folder import Lock


def test_one_holder_at_a_time_and_no_file_after_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with Lock(path, "busy"):
        assert path.exists()
        with pytest.raises(RunLocked, match="busy"):
            Lock(path, "busy")
        assert path.exists(), "who does not hold it does not remove it"
    assert not path.exists()
    Lock(path, "busy").close()


def test_a_place_where_nothing_can_be_written_is_not_busy(tmp_path: Path) -> None:
    if Path("/proc/self").exists():
        with pytest.raises(OSError, match="/proc"):
            Lock(Path("/proc/.lock"), "busy")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Lock(tmp_path / "file" / ".lock", "busy")


def test_whoever_takes_it_while_another_leaves_it_is_alone_with_it(tmp_path: Path) -> None:
    """Eight threads take and leave the lock; at any time one of them is inside."""
    inside: list[int] = []
    taken: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            try:
                lock = Lock(tmp_path / ".lock", "busy")
            except RunLocked:
                continue
            inside.append(number)
            assert inside == [number]
            inside.remove(number)
            taken.append(number)
            lock.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(taken) >= 300
