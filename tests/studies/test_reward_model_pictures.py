"""The pictures of the reward model's study: what is drawn is what the files hold, counted by hand."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from studies.reward_model import run
from studies.reward_model.drawing import LEFT, TALL
from studies.reward_model.pictures import curves, draw, main, overoptimisation

HERE = Path(__file__).parent.parent.parent / "studies" / "reward_model"
KEYS = ("content", "spans", "covered", "touched")


def poor(precision: float, recall: float, called: int = 4) -> dict[str, Any]:
    return {key: {"poor": {"precision": precision, "recall": recall, "called": called}} for key in KEYS}


def head(seed: int) -> dict[str, Any]:
    """Three thresholds, one too low for spans that touch; a fourth finds nothing."""
    points = {"thresholds": [0.05, 0.1, 0.5, 0.9], "precision": [0.5, 0.25, 0.75, 0.0], "recall": [1.0, 1.0, 0.5, 0.0]}
    spans = dict.fromkeys(("spans", "covered", "touched"), points)
    return {**poor(0.75, 0.5), "seed": seed, "base": 0.25, "curve": points, "span_curves": spans}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    critics = {"majority": poor(0, 0, 0), "absent": poor(0.5, 0.5), "supported": poor(1, 0.25)}
    write(tmp_path / "baselines.json", {"defacto": {"rows": 3, "critics": critics}})
    for seed in (0, 1):
        write(tmp_path / f"defacto-head-{seed}.json", head(seed))
    write(tmp_path / "defacto-written-0.json", poor(0.5, 0.25))
    write(tmp_path / "defacto-written-1.json", poor(0, 0, 0))
    return tmp_path


def write(path: Path, what: Any) -> None:
    path.write_text(json.dumps(what))


def arm(*scores: float, said: float | None = None) -> list[dict[str, float]]:
    more = {} if said is None else {"critic_score": said}
    return [{"update": 8 * at, "score": score, **more} for at, score in enumerate(scores)]


def write_demo(folder: Path, *seeds: dict[str, Any]) -> None:
    titles = {
        "long-true": "true critic",
        "long-learned": "learned critic, KL",
        "free-middling": "middling critic, no KL",
    }
    judges = {"reward": {"held_out/poor_ap": 0.99}}
    write(
        folder / "demo.json",
        {
            "arms": titles,
            "reward_models": {"reward": "learned", "middling": "middling"},
            "seeds": {str(at): {"curves": one, "reward_models": judges} for at, one in enumerate(seeds)},
        },
    )


def of(kind: str, svg: str) -> list[ElementTree.Element]:
    """What has these classes, less what the key shows of them."""
    found = [one for one in ElementTree.fromstring(svg).iter() if one.attrib.get("class") == kind]
    return found[1:]


def names(svg: str) -> list[str]:
    return [str(one.text) for one in ElementTree.fromstring(svg).iter() if one.attrib.get("class") == "name ink"]


def test_curves_and_points_by_hand(folder: Path) -> None:
    svg = curves(folder)
    lines = of("line blue", svg)
    assert len(lines) == 4 * 2  # four measures, two seeds
    points = [line.attrib["d"].count("L") + 1 for line in lines]
    assert points == [3, 3, 3, 3, 3, 3, 2, 2]  # recall 0 is nowhere; of spans that touch the lowest threshold is not
    marks = [len(of(kind, svg)) for kind in ("hollow", "mark orange", "mark green", "mark violet")]
    assert marks == [4 * 2, 4, 4, 4]  # one of the two that write called nothing
    assert len(names(svg)) == 4


def test_a_point_is_where_its_numbers_say(folder: Path) -> None:
    """Recall 0.25 and precision 1: a quarter of the first panel from its left, at its top."""
    svg = curves(folder)
    grid = [one.attrib["d"] for one in ElementTree.fromstring(svg).iter() if one.attrib.get("class") == "grid soft"]
    left, foot, right, _ = (float(number) for number in re.findall(r"[\d.]+", grid[0]))
    diamond = of("mark orange", svg)[0].attrib["d"]
    x, y = (float(number) for number in re.findall(r"[\d.]+", diamond)[:2])
    assert left == LEFT and x == pytest.approx(left + (right - left) / 4, abs=0.11)
    assert y + 5 == pytest.approx(foot - TALL, abs=0.11)


def test_without_learned_runs_there_are_points_alone(folder: Path) -> None:
    for path in folder.glob("defacto-*.json"):
        path.unlink()
    svg = curves(folder)
    assert not of("line blue", svg) and len(of("mark orange", svg)) == 4


def test_arms_by_hand(folder: Path) -> None:
    full = {"long-true": arm(0, 0.1, 0.2, 0.3), "long-learned": arm(0, 0.1, 0.2, said=0.5)}
    write_demo(folder, full, {"long-learned": arm(0, 0.1, said=0.4)})
    svg = overoptimisation(folder)
    assert names(svg) == ["learned critic"]  # no seed has the middling one
    assert [line.attrib["d"].count("L") + 1 for line in of("line blue", svg)] == [3, 2]
    assert len(of("line dashed orange", svg)) == 2
    (reference,) = of("line grey", svg)
    assert reference.attrib["d"].count("L") + 1 == 3  # no further than the arm goes
    assert "KL, AP 0.990" in svg


def test_an_arm_without_a_reference_stands_alone(folder: Path) -> None:
    write_demo(folder, {"free-middling": arm(0, -0.1, said=0.5), "long-true": arm(0, 0.1)})
    svg = overoptimisation(folder)
    assert names(svg) == ["middling critic"] and not of("line grey", svg)
    write_demo(folder, {"free-middling": arm(0, -0.1, said=0.5), "demo-true": arm(0, 0.1)})
    assert len(of("line grey", overoptimisation(folder))) == 1  # no KL penalty there, either


def test_no_arm_at_all_is_an_empty_picture(folder: Path) -> None:
    write_demo(folder, {})
    assert names(overoptimisation(folder)) == []


def test_it_draws_what_there_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(folder)])
    assert capsys.readouterr().out == f"drew {folder / 'curve.svg'}\n"
    write_demo(folder, {"long-learned": arm(0, 0.1, said=0.4)})
    assert [path.name for path in draw(folder)] == ["curve.svg", "overoptimisation.svg"]


def test_the_pictures_are_those_of_the_files(tmp_path: Path) -> None:
    for path in HERE.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    drawn = {path.name: path.read_text(encoding="utf-8") for path in draw(tmp_path)}
    kept = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.svg")}
    assert kept == drawn, "run `python -m studies.reward_model.run table`"
    page = (HERE / "README.md").read_text(encoding="utf-8").split(run.MARK)[0]
    assert set(drawn) <= set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page))
