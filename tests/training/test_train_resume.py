"""`kill -9` at any moment, resume, and the run ends bitwise as if nothing had happened."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.training.trainings import Driver, assert_same, metrics_of, said
from text2grad.runs import read_jsonl

KILLED = -signal.SIGKILL

KINDS = {
    "gae, LoRA": ["policy.lora.rank=2"],
    "gae, all weights": ["policy.lora.rank=0"],
    "gae, all weights, KL looked at": ["policy.lora.rank=0", "kl.coefficient=0", "kl.measure=true"],
    "span_rloo": ["advantage.estimator=span_rloo"],
    "grpo": ["advantage.estimator=grpo"],
    "local": ["advantage.estimator=local"],
    "anchored, two slopes": ["advantage.estimator=anchored", "scoring.slopes=two"],
    "anchored, by length": ["advantage.estimator=anchored", "scoring.by_length=true"],
    "dropout, schedule": ["policy.lora.dropout=0.3", "update.schedule=cosine", "update.warmup=2"],
}
POINTS = {
    "in the critic": [["critic", 2], ["critic", 4]],
    "between sampling and the buffer": [["buffer", 2], ["buffer", 1]],
    "in the middle of an update": [["step", 6], ["step", 3], ["step", 1]],
    "in the middle of a line": [["log", 2], ["log", 3]],
    "between metrics and checkpoint": [["checkpoint", 1], ["checkpoint", 2]],
    "in the middle of a checkpoint": [["save", 1], ["save", 2]],
    "between the last checkpoint and the old ones": [["prune", 4], ["prune", 1]],
    "between checkpoint and buffer": [["forget", 1], ["forget", 2]],
    "in the middle of the model": [["model", 1], ["model", 1]],
}


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind that nothing happened to."""
    runs = {}
    for number, (kind, settings) in enumerate(KINDS.items()):
        runs[kind] = tmp_path_factory.mktemp("undisturbed") / str(number)
        assert driver(runs[kind], settings) == 0, said(runs[kind])
    return runs


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_chosen_points(driver: Driver, undisturbed: dict[str, Path], tmp_path: Path, point: str) -> None:
    run, kind = tmp_path / "run", "gae, LoRA"
    for die in POINTS[point]:
        assert driver(run, KINDS[kind], die=die) == KILLED, said(run)
    assert driver(run, KINDS[kind]) == 0, said(run)
    assert_same(run, undisturbed[kind])


@pytest.mark.parametrize("kind", list(KINDS)[1:])
def test_every_kind_of_run(driver: Driver, undisturbed: dict[str, Path], tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    for die in (["step", 3], ["log", 3], ["critic", 2], ["save", 2], ["step", 2]):
        assert driver(run, KINDS[kind], die=die) == KILLED, said(run)
    assert driver(run, KINDS[kind]) == 0, said(run)
    assert_same(run, undisturbed[kind])


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(driver: Driver, undisturbed: dict[str, Path], tmp_path: Path, seed: int) -> None:
    run, moments, kind = tmp_path / "run", random.Random(seed), list(KINDS)[seed]
    began = time.monotonic()
    assert driver(tmp_path / "measured", KINDS[kind]) == 0
    whole = time.monotonic() - began
    status, killed = KILLED, 0
    for attempt in range(8):
        if status == 0:
            # The machine has become quicker since it was measured: nothing was killed, so begin anew, and kill sooner.
            run, whole = tmp_path / f"run-{attempt}", whole / 2
        child = driver.begin(run, KINDS[kind])
        time.sleep(moments.uniform(0.1, 0.8) * whole)
        with contextlib.suppress(ProcessLookupError):  # it may have been quicker
            os.kill(child, signal.SIGKILL)
        status = driver.end()
        killed += status == KILLED
        if (status == 0 and killed) or killed == 5:
            break
    if status != 0:
        assert driver(run, KINDS[kind]) == 0, said(run)
    assert killed
    assert_same(run, undisturbed[kind])


def test_a_critic_that_draws_from_global_states(driver: Driver, tmp_path: Path) -> None:
    settings = ["policy.lora.dropout=0.2"]
    assert driver(tmp_path / "whole", settings, critic="drawing") == 0
    for die in (["step", 3], ["critic", 3], ["checkpoint", 1], ["step", 5]):
        assert driver(tmp_path / "run", settings, critic="drawing", die=die) == KILLED
    assert driver(tmp_path / "run", settings, critic="drawing") == 0
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_what_was_judged_is_not_asked_again(driver: Driver, tmp_path: Path) -> None:
    counted = {name: {"COUNTED": str(tmp_path / name)} for name in ("whole.txt", "run.txt")}
    once = ["log.hindsight=0"]  # What is written anew to be measured is asked about again.
    assert driver(tmp_path / "whole", once, critic="counting", environment=counted["whole.txt"]) == 0
    for die in (["log", 1], ["step", 2], ["log", 3], ["step", 6], ["log", 1], ["checkpoint", 1], ["step", 7]):
        assert driver(tmp_path / "run", once, critic="counting", environment=counted["run.txt"], die=die) == KILLED
    assert driver(tmp_path / "run", once, critic="counting", environment=counted["run.txt"]) == 0
    asked = {name: Counter((tmp_path / name).read_text().splitlines()) for name in counted}
    assert asked["run.txt"].total() == 5 * 3 * 2 + 4 * 3  # four evaluations of three held-out examples
    assert asked["run.txt"] == asked["whole.txt"]


def test_rows_are_neither_lost_nor_doubled(undisturbed: dict[str, Path]) -> None:
    for run in undisturbed.values():
        assert [row["update"] for row in metrics_of(run)] == [0, 1, 2, 3, 4, 5]
        rows = [(row["update"], row.get("held_out", False), row["index"]) for row in read_jsonl(run / "rollouts.jsonl")]
        assert len(set(rows)) == len(rows)
        assert [update for update, held_out, index in rows if held_out and index == 0] == [0, 2, 4, 5]
        assert Counter(update for update, held_out, _ in rows if not held_out) == dict.fromkeys(range(1, 6), 6)


def test_the_last_checkpoints_are_kept(undisturbed: dict[str, Path]) -> None:
    kept = sorted(path.name for path in (undisturbed["span_rloo"] / "checkpoints").iterdir())
    assert kept == ["step-00000004", "step-00000005"]


def test_a_corrupt_checkpoint_says_what_to_do(driver: Driver, undisturbed: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert driver(run, KINDS["span_rloo"], die=["model", 1]) == KILLED
    newest = run / "checkpoints" / "step-00000005"
    whole = (newest / "state.pt").read_bytes()
    for torn in (b"", whole[:1000]):
        (newest / "state.pt").write_bytes(torn)
        assert driver(run, KINDS["span_rloo"]) == 99
        assert f"{newest}: is damaged, for state.pt is not what was written" in said(run)
    assert "delete this checkpoint folder to resume from the one before it" in said(run)
    shutil.rmtree(newest)
    assert driver(run, KINDS["span_rloo"]) == 0, said(run)
    assert_same(run, undisturbed["span_rloo"])


def test_why_nothing_was_scored_outlasts_a_kill(driver: Driver, tmp_path: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    warned = ["guard.nothing_learned=warn"]
    assert driver(undisturbed, warned, critic="refusing") == 0
    assert driver(run, warned, critic="refusing", die=["log", 1]) == KILLED
    assert driver(run, warned, critic="refusing") == 0
    assert_same(run, undisturbed)
    assert "It says: the harbour is closed." in str(metrics_of(run))
