"""The study of the reward model's economy: what runs when, and its page, by hand."""

import argparse
import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from studies.economy import tables
from studies.economy.run import HERE, SIZES, Board, Job, arms_of, has_room, jobs_of, kept_apart, updates_for, wanted
from studies.words.tables import FACTS, SCORE


def arguments(scratch: Path, **more: Any) -> argparse.Namespace:
    given = {"what": "study", "device": "cpu", "workers": 2, "models": 1, "scratch": scratch, "sizes": list(SIZES)}
    return argparse.Namespace(**given | {"seeds": None, "updates": 48, "batch": 32, "chunk": 12_800} | more)


def test_sizes_of_the_steps() -> None:
    # √1000 = 31.6, √4000 = 63.2, √16000 = 126.5; 5 √64000 = 1265 is beyond the most.
    assert [updates_for(size) for size in SIZES] == [293, 950, 950, 1975]
    assert [kept_apart(size) for size in SIZES] == [64, 200, 800, 800]


def test_steps_wait_for_what_they_need_and_larger_models_hold_the_smaller_ones_critiques(tmp_path: Path) -> None:
    jobs = jobs_of(arguments(tmp_path))
    made = {job.makes for job in jobs if job.makes}
    assert all(path in made for job in jobs for path in job.needs)
    of_seed = {job.what["size"]: job.needs for job in jobs if job.what["do"] == "reward" and job.what["seed"] == 1}
    assert [len(of_seed[size]) for size in SIZES] == [1, 1, 2, 5]
    assert all(set(of_seed[a]) <= set(of_seed[b]) for a, b in pairwise(SIZES))
    # Three starts, fifteen lists of critiques, twelve reward models, and of eleven arms three runs each.
    assert len(arms_of(SIZES)) == 11 and len(jobs) == 3 + 15 + 12 + 33
    assert len({job.name for job in jobs}) == len(jobs)


def test_only_what_is_missing_is_done(tmp_path: Path) -> None:
    jobs = jobs_of(arguments(tmp_path, seeds=[0], sizes=[1000]))
    every = {(job.arm, 0) for job in jobs if job.arm}
    assert wanted(jobs, set()) == jobs
    assert wanted(jobs, every) == []
    # One run is left, on a machine that has nothing: its reward model is made again, and no other run.
    left = wanted(jobs, every - {("1,000 critiques", 0)})
    assert [job.what["do"] for job in left] == ["start", "critiques", "reward", "rl"]
    for job in left[:3]:
        assert job.makes is not None
        job.makes.mkdir(parents=True)
    assert [job.name for job in wanted(jobs, every - {("1,000 critiques", 0)})] == ["1,000 critiques, seed 0"]


def test_reward_models_keep_their_places(tmp_path: Path) -> None:
    args = arguments(tmp_path)  # two workers, one model
    start, model, run = (Job(do, {"do": do}) for do in ("start", "reward", "rl"))
    assert has_room(start, [start, start], [model], args) and not has_room(start, [start] * 3, [model], args)
    assert not has_room(run, [run, run], [model], args) and not has_room(run, [run, run, model], [], args)
    assert has_room(run, [run, run], [run], args) and not has_room(run, [run] * 3, [], args)
    assert has_room(model, [run, run], [], args) and not has_room(model, [model], [], args)


def test_rows_replace_those_of_the_same_run(tmp_path: Path) -> None:
    board = Board(tmp_path / "results.json", 48)
    for score in (0.1, 0.2):
        board.add([{"arm": "true critic", "seed": 0, "update": 48, "metrics": {"x": score}, "cost": {}}])
    assert [row["metrics"]["x"] for row in Board(board.path, 48).rows] == [0.2] and board.done == {("true critic", 0)}


def results() -> dict[str, Any]:
    """Two seeds; the true critic gains 0.2, a reward model of 4,000 half of that."""
    rows = []
    for arm, gained in (("true critic", 0.2), ("4,000 critiques", 0.1)):
        for seed in (0, 1):
            for update in (0, 48):
                score = 0.1 + 0.05 * seed + gained * (update > 0)
                metrics = {SCORE: score, FACTS: score, tables.OWN: 0.5}
                rows.append({"arm": arm, "seed": seed, "update": update, "metrics": metrics, "cost": {}})
    metrics = {"held_out/poor_ap": 0.9, "held_out/good_ap": 0.8}
    cost = {"true_critiques": 4000, "seconds": 60.0}
    rows.append({"arm": "reward model, 4,000", "seed": 0, "update": 300, "metrics": metrics, "cost": cost})
    return {"updates": 48, "versions": {}, "rows": rows}


def test_the_page_says_what_the_rows_hold(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(results()))
    (tmp_path / "README.md").write_text(f"above\n\n{tables.MARK}\nold")
    tables.write(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("above\n") and "old" not in page
    assert "| nothing yet: the start | 0 | 2 | 12.5% ± 3.5 | 0.125 ± 0.035 |" in page
    assert "| true critic | 3,072 | 2 |" in page
    line = "| 4,000 critiques | 4,000 | 2 | 22.5% ± 3.5 | 0.225 ± 0.035 | 50%, 50% | -0.100 (-0.100 to -0.100) | 0.500"
    assert line in page
    assert "| 4,000 | 0.900 | 0.800 | 300 | 60 |" in page
    # 64,000 / 3,072 = 20.8 runs, 64,000 / 64 = 1,000 updates.
    assert "| 64,000 | 20.8 | 1,000 |  |" in page and "| 4,000 | 1.3 | 63 | 50% (4,000 critiques) |" in page
    svg = (tmp_path / "economy.svg").read_text()
    assert svg.count('class="hollow"') == 2 + 1  # a ring for each run, and one in the key
    assert "critiques, thousands" in svg and ">64<" in svg


def test_a_step_on_the_axis_is_twice_as_many() -> None:
    assert tables.place(500) == 0 and tables.place(64_000) == pytest.approx(math.log2(128)) == 7


@pytest.mark.skipif(not (HERE / "results.json").exists(), reason="has not been run yet")
def test_the_page_is_that_of_its_file(tmp_path: Path) -> None:
    for name in ("README.md", "results.json"):
        shutil.copy(HERE / name, tmp_path / name)
    tables.write(tmp_path)
    for name in ("README.md", "economy.svg"):
        assert (tmp_path / name).read_text() == (HERE / name).read_text(), "python -m studies.economy.run table"
