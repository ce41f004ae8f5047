"""The study of the demo says what its files hold, and what it says is what was promised."""

import importlib.util
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

FILES = ("tuning", "tuning-span", "results")
HERE = Path(__file__).parent.parent.parent / "studies" / "demo"


@pytest.fixture(scope="module")
def study() -> Any:
    spec = importlib.util.spec_from_file_location("demo_study", HERE / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_files(study: Any) -> None:
    page = (HERE / "README.md").read_text()
    assert page.split(study.MARK)[1].strip() == study.tables(HERE).strip()


def test_seeds_and_reports_of_the_choice_are_not_those_of_the_study() -> None:
    files = {name: json.loads((HERE / f"{name}.json").read_text())["runs"] for name in FILES}
    for key in ("seed", "reports"):
        scalar, span, measured = ({run[key] for run in runs} for runs in files.values())
        assert not (scalar | span) & measured
    assert {run["lam"] for run in files["tuning"]} >= {0.95, 1.0}


def test_text2grad_needs_at_most_half_of_the_updates_in_the_median() -> None:
    runs = json.loads((HERE / "results.json").read_text())["runs"]
    curves = {(run["arm"], run["seed"]): run["curve"] for run in runs}
    seeds = {seed for _, seed in curves}
    assert len(seeds) == 5
    shares = []
    for seed in seeds:
        last = curves["scalar", seed][-1]
        reached = [point["update"] for point in curves["text2grad", seed] if point["score"] >= last["score"]]
        shares.append(min(reached, default=float("inf")) / last["update"])
        assert last["score"] > curves["scalar", seed][0]["score"], "scalar PPO should have learned something, too"
    assert statistics.median(shares) <= 0.5


def test_what_is_measured_from_now_on_says_what_it_was_made_with(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = [{"update": 4, "score": 0.5, "facts_right": 0.5}]
    monkeypatch.setattr(study, "all_of", lambda jobs, *_: [{**job, "curve": curve} for job in jobs])
    monkeypatch.setattr("sys.argv", ["run.py", "tune", "--out", str(tmp_path)])
    study.main()
    found = json.loads((tmp_path / "tuning.json").read_text())["versions"]
    assert found.keys() >= {"python", "text2grad", "torch", "transformers"}
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found.get("commit", "0" * 40))


def test_the_first_evaluation_at_the_goal_counts(study: Any) -> None:
    def run(arm: str, scores: list[float]) -> dict[str, Any]:
        points = [{"update": 4 * n, "score": score, "facts_right": 0.5} for n, score in enumerate(scores)]
        return {"arm": arm, "seed": 0, "curve": points}

    lines = study.results([run("scalar", [0.1, 0.2, 0.3]), run("text2grad", [0.1, 0.3, 0.2])])
    assert lines[2].endswith("| 0.300 | 4 | 8 |") and "update 4 of 8, 0.50" in lines[-2]
    lines = study.results([run("scalar", [0.1, 0.4, 0.3]), run("text2grad", [0.1, 0.3, 0.4])])
    assert lines[2].endswith("| 0.300 | 4 | 4 |") and "1.00 in the median" in lines[-1]
