"""A studio's folder: it opens with the store that it was begun with and with no other, and leaves nothing behind where
it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing, unavailable
from tests.studio.made import postgres
from text2grad.cli import main
from text2grad.errors import UsageError
from text2grad.studio.folder import Folder
from text2grad.studio.settings import StudioSettings
from text2grad.studio.store import Store


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if (trouble := missing("postgres")) is not None:
        unavailable(trouble)
    with postgres() as place:
        yield f"postgresql://postgres:verysecret@/postgres?host={place}"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def begun(folder: Path, url: str | None = None) -> Path:
    Folder(folder, StudioSettings(), url).close()
    return folder


def other(url: str, name: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE DATABASE {name}")
    return url.replace("@/postgres?", f"@/{name}?")


def test_a_team_s_folder_does_not_open_without_its_store(tmp_path: Path, url: str) -> None:
    mine = other(url, "mine")
    folder = begun(tmp_path / "team", mine)
    assert "verysecret" not in (folder / "store.json").read_text()
    with pytest.raises(UsageError, match=r"PostgreSQL, at postgresql:///mine.*--store URL"):
        Folder(folder, None)
    # Another database, with nothing in it: neither opened nor written to.
    empty = other(url, "empty")
    with pytest.raises(UsageError, match="holds nothing of this studio"):
        Folder(folder, None, empty)
    untouched = Store(empty, new=False)
    assert not untouched.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = 'text2grad_studio'")
    untouched.close()
    begun(tmp_path / "others", theirs := other(url, "theirs"))
    with pytest.raises(UsageError, match="another studio"):
        Folder(folder, None, theirs)
    assert "studio.sqlite" not in names(folder)
    Folder(folder, None, mine).close()


def test_a_folder_with_sqlite_opens_with_no_url_and_not_without_its_file(tmp_path: Path) -> None:
    folder = begun(tmp_path / "mine")
    begun(folder)
    with pytest.raises(UsageError, match=r"its own studio\.sqlite: leave --store away"):
        Folder(folder, None, "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(UsageError, match="URL of a PostgreSQL server"):
        Folder(tmp_path / "new", None, "mysql://host/name")
    (folder / "studio.sqlite").unlink()
    with pytest.raises(UsageError, match="put it back"):
        Folder(folder, None)
    assert "studio.sqlite" not in names(folder)


def test_a_team_s_folder_from_before_the_record_is_refused_as_well(tmp_path: Path, url: str) -> None:
    folder = begun(tmp_path / "old", other(url, "old"))
    (folder / "store.json").unlink()
    with pytest.raises(UsageError, match="if its store is in PostgreSQL, name it"):
        Folder(folder, None)


def test_export_takes_the_store_of_the_folder_and_makes_none(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begun(tmp_path / "team", mine := other(url, "exported"))
    before = names(folder)
    assert main(["studio", "export", str(folder)]) == 2
    assert "--store URL" in capsys.readouterr().err and names(folder) == before
    assert main(["studio", "export", str(folder), "--store", mine]) == 0
    assert names(folder) == before | {"critiques.jsonl"}


def test_a_store_that_does_not_answer_is_named_as_it_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "postgresql://postgres:verysecret@127.0.0.1:1/none"
    assert main(["studio", "--out", str(tmp_path / "new"), "--store", wrong]) == 2
    said = capsys.readouterr().err
    assert "postgresql://user@host/name" in said and "verysecret" not in said


def test_a_critic_or_port_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    assert main(["studio", "--out", str(folder), "critic=bulletin"]) == 2
    assert "there is no critic 'bulletin'" in capsys.readouterr().err
    assert main(["studio", "--out", str(folder), "--port", "70000"]) == 2
    assert "from 0 to 65535" in capsys.readouterr().err and not folder.exists()
