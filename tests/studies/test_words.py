"""The study of words: its damage does what it says, its numbers are worked by hand, its page is that of its files."""

import random
import shutil
from pathlib import Path

import pytest
from studies.words import tables
from studies.words.arms import ARMS
from studies.words.critics import CRITICS, all_or_nothing, changed, deleted, flipped, moved
from studies.words.run import HERE, jobs_of, tuning

from text2grad.report.differences import over_seeds
from text2grad.tasks.bulletin_critic import bulletin
from text2grad.types import Critique

SAID = Critique("“fire” is right. “9 houses” is wrong: the report says 7 houses. It does not say why.", score=0.25)
TEXT = "A fire in Norwick damaged 9 houses."
DRAW = random.Random(0)


def test_damage() -> None:
    assert deleted(SAID, TEXT, DRAW) == Critique("", score=0.25)
    turned = flipped(SAID, TEXT, DRAW)
    assert turned.feedback == "“fire” is wrong. “9 houses” is right. It does not say why." and turned.score == 0.25
    elsewhere = moved(SAID, TEXT, DRAW).feedback
    assert elsewhere != SAID.feedback and elsewhere.count("“") == 2 and "the report says 7 houses" in elsewhere
    assert [all_or_nothing(Critique("", score=score), TEXT, DRAW).score for score in (0.99, 1.0)] == [0.0, 1.0]


def test_damage_hits_about_the_share_that_is_asked_for_and_the_same_ones_each_time() -> None:
    facts, texts = (
        {"what": ["fire"], "where": ["Norwick"]},
        [f"A fire in Halden damaged {n} houses." for n in range(400)],
    )
    asked = [""] * len(texts), texts
    plain = bulletin(*asked, facts=[facts] * len(texts))
    some = changed(bulletin, flipped, 0.2)(*asked, facts=[facts] * len(texts))
    assert 50 < sum(one != other for one, other in zip(plain, some, strict=True)) < 110
    assert some == changed(bulletin, flipped, 0.2)(*asked, facts=[facts] * len(texts))


def test_every_arm_names_a_critic_and_jobs_come_seed_by_seed() -> None:
    assert {settings["critic"] for settings in (*ARMS.values(), *tuning().values())} <= CRITICS.keys()
    seeds = [job["seed"] for job in jobs_of("study")]
    assert seeds == sorted(seeds) and len(seeds) == 10 * len(ARMS)
    assert {job["arm"] for job in jobs_of("again")} == {"words", "scalar rloo", "words, two slopes"}
    assert len(jobs_of("again")) == 30 and len(jobs_of("corrected")) == 20


def test_intervals_and_areas_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, deviation 1, standard error 1/√3; t for two degrees of freedom is 4.303.
    mean, low, high = over_seeds([1.0, 2.0, 3.0])
    assert (mean, high - mean, mean - low) == pytest.approx((2.0, 4.303 / 3**0.5, 4.303 / 3**0.5))
    # From 0 to 1 over two updates, then 1 for another two: 1 + 2 of 4.
    assert tables.area({0: {"x": 0.0}, 2: {"x": 1.0}, 4: {"x": 1.0}}, "x") == 0.75


def test_the_page_is_that_of_its_files(tmp_path: Path) -> None:
    for name in ("README.md", "results.json", "tuning.json", "again.json", "corrected.json"):
        shutil.copy(HERE / name, tmp_path / name)
    shutil.copy(tables.RESULTS, tmp_path / "main.md")
    tables.write(tmp_path, tmp_path / "main.md")
    assert (tmp_path / "main.md").read_text() == tables.RESULTS.read_text(), "python -m studies.words.run table"
    for name in ("README.md", "curves.svg"):
        assert (tmp_path / name).read_text() == (HERE / name).read_text(), f"python -m studies.words.run table ({name})"
