"""Several people: how far they agree, what they did today, and what leaves the studio comes back as it was."""

import io
import json
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.studio.made import TEXT, Client, Served, filled
from text2grad.feedback.people import PeopleSettings, Rejected, read_people
from text2grad.studio.exports import critique_rows
from text2grad.studio.people import agreement_of, day_of, progress_of
from text2grad.studio.store import Store
from text2grad.tasks.annotated import load_annotated


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = Store(tmp_path / "studio.sqlite")
    filled(store)
    with Served(store) as served:
        yield served
    store.close()


def say(client: Client, completion: int, **said: Any) -> dict[str, Any]:
    status, found = client("PUT", "/api/critiques", {"completion": completion, "feedback": "", "base": None} | said)
    assert status == 200, found
    return dict(found)


def marks(*words: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"start": TEXT.index(w), "end": TEXT.index(w) + len(w), "verdict": v, "comment": ""} for w, v in words]


def test_agreement_on_the_same_completion(served: Served) -> None:
    ada, ben = served.client("Ada"), served.client("Ben")
    assert "No completion has been criticised by two" in ada.get("/api/agreement")["note"]
    # Five words. Ada blames Nine and ships, Ben blames Nine and left; both praise Tuesday.
    say(ada, 1, notes=marks(("Nine", "poor"), ("ships", "poor"), ("Tuesday", "good")))
    say(ben, 1, notes=marks(("Nine", "poor"), ("left", "poor"), ("Tuesday", "good")))
    say(ada, 2, notes=marks(("Nine", "good")))  # hers alone
    found = ada.get("/api/agreement")
    assert (found["pairs"], found["completions"]) == (1, 1)
    (pair,) = found["people"]
    assert (pair["a"], pair["b"], pair["completions"]) == ("Ada", "Ben", 1)
    assert pair["poor"] == 0.5 and pair["good"] == 1.0
    assert pair["characters"] == pytest.approx(2 / 3)  # 2 of 3 words, each way
    # Observed 3 of 5; by chance 2/5·2/5 + 1/5·1/5 + 2/5·2/5 = 9/25.
    assert pair["verdict"] == pytest.approx((3 / 5 - 9 / 25) / (1 - 9 / 25))
    assert found["overall"]["verdict"] == pytest.approx(pair["verdict"])


def test_progress_by_day_and_person(served: Served) -> None:
    ada, ben = served.client("Ada"), served.client("Ben")
    say(ada, 1, feedback="Good.")
    say(ada, 2, feedback="Good.")
    say(ben, 1, feedback="Good.")
    gone = say(ben, 2, feedback="Good.")
    ben("DELETE", f"/api/critiques/{gone['id']}")
    with served.store.writing():
        served.store._run("UPDATE critiques SET time = time - ? WHERE completion = 2", 2 * 86400)
    found = progress_of(served.store)
    now = time.time()
    assert [(day["day"], day["critiques"], day["people"]) for day in found["days"]] == [
        (day_of(now - 2 * 86400), 1, {"Ada": 1}),
        (day_of(now), 2, {"Ada": 1, "Ben": 1}),
    ]
    assert ada.get("/api/state")["people"] == [
        {"name": "Ada", "critiques": 2, "today": 1},
        {"name": "Ben", "critiques": 1, "today": 1},
    ]


def written(served: Served) -> list[dict[str, Any]]:
    ada = served.client("Ada")
    say(ada, 1, feedback='"Nine" is wrong. It leaves out the reason.', score=-0.5)
    # Read from the words this would blame Nine; corrected by hand, it is about the ships, gravely.
    by_hand = [{"start": 5, "end": 10, "verdict": "poor", "severity": 0.6, "comment": "“which?” 🦩"}]
    say(ada, 2, feedback='"Nine" is wrong.', spans=by_hand)
    say(served.client("Ben #2"), 2, revision="Nine ships left on Monday.")
    return critique_rows(served.store)


def places(rows: Any) -> list[list[tuple[int, int, str]]]:
    return [[(span["start"], span["end"], span["verdict"]) for span in row["spans"]] for row in rows]


PLACES = [[(0, 4, "poor")], [(5, 10, "poor")], [(19, 26, "poor")]]


def test_jsonl_is_what_reward_model_reads(served: Served, tmp_path: Path) -> None:
    rows = written(served)
    assert places(rows) == PLACES
    status, headers, content = served.client().raw("GET", "/api/export?format=jsonl")
    assert status == 200 and "critiques.jsonl" in headers["content-disposition"]
    (tmp_path / "critiques.jsonl").write_bytes(content)
    read = load_annotated(tmp_path / "critiques.jsonl")
    assert [[(s.start, s.end, s.verdict) for s in row.alignment.spans] for row in read] == PLACES
    assert read[0].critique.score == -0.5 and read[0].alignment.omissions and read[0].prompt == rows[0]["prompt"]
    assert read[1].alignment.spans[0].severity == 0.6 and read[2].critique.revision == "Nine ships left on Monday."
    # And what `agree` and `annotate` read: ids that name the completion and who wrote.
    back = [row for row in read_people(tmp_path / "critiques.jsonl") if not isinstance(row, Rejected)]
    assert [row["id"] for row in back] == ["1#Ada", "2#Ada", "2#Ben #2"] and places(back) == PLACES


@pytest.mark.parametrize("kind", ["label_studio", "argilla"])
def test_labelling_tools_bring_back_the_same_spans(served: Served, tmp_path: Path, kind: str) -> None:
    rows = written(served)
    content = served.client().raw("GET", f"/api/export?format={kind}")[2]
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert sorted(packed.namelist()) == [
            f"{kind}.json",
            f"{kind}.{'xml' if kind == 'label_studio' else 'settings.json'}",
        ]
        (tmp_path / "items.json").write_bytes(packed.read(f"{kind}.json"))
    items = tmp_path / "items.json"
    assert len(json.loads(items.read_bytes())) == 3
    found = list(read_people(tmp_path / "items.json", PeopleSettings()))
    back = [row for row in found if not isinstance(row, Rejected)]
    assert len(back) == len(found) == 3
    assert places(back) == PLACES and [row["id"] for row in back] == [row["id"] for row in rows]
    # People's words are theirs, not a machine's suggestions, and have their names.
    assert [row["annotator"] for row in back] == ["Ada", "Ada", "Ben #2"]
    assert back[0]["critique"] == {"feedback": rows[0]["critique"]["feedback"], "score": -0.5}
    assert back[1]["critique"] == rows[1]["critique"]["feedback"]
    assert not any(item.get("predictions") or item.get("suggestions") for item in json.loads(items.read_bytes()))
    if kind == "label_studio":
        assert back[1]["spans"][0]["severity"] == 0.6
    assert back[2]["revision"] == "Nine ships left on Monday."


def test_nothing_to_agree_on_is_no_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "studio.sqlite")
    assert agreement_of(store)["people"] == [] and critique_rows(store) == []
    store.close()
