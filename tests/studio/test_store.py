"""The store keeps every word, in SQLite and in PostgreSQL alike: two writers, undo of everything, jobs, versions."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import missing, unavailable
from tests.studio.made import filled, postgres
from text2grad.errors import InvalidData, UsageError
from text2grad.studio.store import Store

Open = Callable[[], Store]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if (trouble := missing("postgres")) is not None:
        unavailable(trouble)
    with postgres() as place:
        yield place


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same database again and again, as several processes do."""
    place = str(tmp_path / "studio.sqlite")
    if request.param == "postgresql":
        import psycopg

        folder = request.getfixturevalue("server")
        name = f"t{abs(hash(str(tmp_path)))}"
        with psycopg.connect(f"postgresql://postgres@/postgres?host={folder}", autocommit=True) as link:
            link.execute(f"CREATE DATABASE {name}")
        place = f"postgresql://postgres@/{name}?host={folder}"
    made: list[Store] = []

    def make() -> Store:
        made.append(Store(place))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(opened: Open) -> Store:
    store = opened()
    filled(store)
    return store


def test_two_writers_never_overwrite_each_other(store: Store) -> None:
    saved, first = store.save_critique(1, "Ada", {"feedback": "one"}, None)
    assert (saved, first["version"], first["feedback"]) == (True, 1, "one")
    # Another tab, which has not seen it.
    assert store.save_critique(1, "Ada", {"feedback": "two"}, None)[0] is False
    saved, second = store.save_critique(1, "Ada", {"feedback": "two"}, 1)
    assert (saved, second["version"]) == (True, 2)
    saved, there = store.save_critique(1, "Ada", {"feedback": "three"}, 1)
    assert (saved, there["feedback"]) == (False, "two")
    # Another person has a critique of their own.
    assert store.save_critique(1, "Ben", {"feedback": "mine"}, None)[0] is True
    assert [row["feedback"] for row in store.critiques()] == ["two", "mine"]


def test_many_writers_at_once_of_whom_one_wins(opened: Open) -> None:
    store = opened()
    filled(store)
    others = [opened() for _ in range(6)]
    wins, barrier = [], threading.Barrier(len(others))

    def write(number: int) -> None:
        barrier.wait()
        if others[number].save_critique(2, "Ada", {"feedback": str(number)}, None)[0]:
            wins.append(str(number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(others))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = store.critiques()
    assert wins == [row["feedback"]]
    # Event numbers came in order, without a gap that a page could miss.
    numbers = [event["id"] for event in store.events(0)]
    assert numbers == sorted(numbers) and numbers[-1] == store.last_event()


def test_everything_can_be_undone_and_redone(store: Store) -> None:
    number = store.save_critique(1, "Ada", {"feedback": "one"}, None)[1]["id"]
    store.save_critique(1, "Ada", {"feedback": "two"}, 1)
    assert store.delete_critique(number, "Ada")[1]["deleted"] == 1
    assert store.critiques() == []
    assert store.step_critique(number, "Ada", -1)["feedback"] == "two"
    one = store.step_critique(number, "Ada", -1)
    assert (one["feedback"], one["deleted"]) == ("one", 0)
    assert store.step_critique(number, "Ada", -1)["deleted"] == 1  # before it was written
    with pytest.raises(InvalidData, match="nothing to undo"):
        store.step_critique(number, "Ada", -1)
    assert [store.step_critique(number, "Ada", 1)["deleted"] for _ in range(3)] == [0, 0, 1]
    with pytest.raises(InvalidData, match="nothing to redo"):
        store.step_critique(number, "Ada", 1)
    # Each step is an edit of its own: a tab that missed one is told.
    assert store.critique(number)["version"] == 9
    store.step_critique(number, "Ada", -1)
    store.save_critique(1, "Ada", {"feedback": "three"}, 10)
    with pytest.raises(InvalidData, match="nothing to redo"):
        store.step_critique(number, "Ada", 1)
    with pytest.raises(InvalidData, match="is Ada's"):
        store.step_critique(number, "Ben", -1)


def test_odd_characters_come_back(store: Store) -> None:
    said = 'NUL \x00, an emoji 🦩, a quote " and a line\u2028end, ünï ? %s {}'
    store.save_critique(1, "Ünï ? %s", {"feedback": said}, None)
    (row,) = store.critiques("author = ?", "Ünï ? %s")
    assert row["feedback"] == said


def test_a_job_is_taken_once_and_a_dead_worker_s_job_twice_at_most(opened: Open) -> None:
    store, other = opened(), opened()
    first = store.add_job("sample", prompt=7)
    assert store.add_job("sample", prompt=7) == first  # the same wish
    second = store.add_job("learn", "Ada", updates=3, parts=["direct"])
    taken, next_taken = store.next_job(), other.next_job()
    assert taken and next_taken and (taken["id"], next_taken["id"]) == (first, second)
    assert store.next_job() is None
    store.orphans()
    again = [store.next_job(), store.next_job()]
    assert [job["id"] for job in again if job] == [first, second]
    store.orphans()
    assert [store.job(number)["state"] for number in (first, second)] == ["interrupted", "interrupted"]
    assert "nothing changed" in store.job(second)["message"]


def test_a_change_that_fails_leaves_nothing(store: Store) -> None:
    before = store.last_event()
    with pytest.raises(ZeroDivisionError), store.writing():
        store.add_version(1, 0, {}, {})
        raise ZeroDivisionError
    assert [row["version"] for row in store.versions()] == [0]
    assert (store.get("version"), store.last_event()) == (0, before)


def test_the_queue_is_ordered_filtered_and_paged(store: Store) -> None:
    with store.writing():
        for prompt, number in ((1, 0.2), (2, 0.9)):
            store._run("UPDATE prompts SET uncertainty = ? WHERE id = ?", number, prompt)
        store._run("UPDATE prompts SET uncertainty = NULL WHERE id = 3")
    store.save_critique(1, "Ada", {"feedback": "one"}, None)
    store.save_critique(1, "Ben", {"feedback": "one"}, None)
    store.save_critique(2, "Ben", {"feedback": "one"}, None)

    def numbers(order: str, only: str, offset: int = 0, limit: int = 50) -> tuple[int, list[int]]:
        total, rows = store.queue("Ada", order, only, offset, limit)
        return total, [row["id"] for row in rows]

    assert numbers("uncertain", "all") == (3, [2, 1, 3])
    assert numbers("file", "all", 1, 1) == (3, [2])
    assert numbers("file", "mine") == (1, [1])
    assert numbers("file", "open") == (2, [2, 3])
    assert sorted(numbers("random", "all")[1]) == [1, 2, 3] and numbers("random", "all") == numbers("random", "all")
    (row,) = [row for row in store.queue("Ada", "file", "all", 0, 9)[1] if row["id"] == 1]
    assert [row[name] for name in ("critiques", "mine", "people", "completions")] == [3, 1, 2, 2]


def test_connections_that_were_lost_are_made_again(store: Store) -> None:
    if not store.postgres:
        pytest.skip("SQLite has no connections to lose")
    import psycopg

    for act in (lambda: store.get("version"), lambda: store.add_job("sample", prompt=1)):
        with psycopg.connect(store.place, autocommit=True) as link:
            link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert act() in (0, 1)


def test_connections_do_not_grow_with_threads(store: Store) -> None:
    for _ in range(20):
        thread = threading.Thread(target=store.versions)
        thread.start()
        thread.join()
    assert len(store._free) == 1


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(UsageError, match="--store should name a PostgreSQL server") as problem:
        Store("postgresql://ada:hunter2secret@/x?host=/nowhere/at/all")
    assert "hunter2secret" not in str(problem.value)
