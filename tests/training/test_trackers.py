"""Metrics go to a real tracker as they go to metrics.jsonl: TensorBoard's event files, written through accelerate."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.training.trainings import metrics_of, trainer
from text2grad.errors import RunError

event_pb2 = pytest.importorskip(
    "tensorboardX.proto.event_pb2", reason="pip install tensorboardX: to write and read events"
)


def events(run: Path) -> Iterator[Any]:
    """In the order of writing. A record: length, its checksum, the event, its checksum."""
    for path in sorted((run / "text2grad").glob("events.*"), key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            yield event_pb2.Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]


def shown(run: Path) -> dict[tuple[str, int], float]:
    """(tag, step) → value as TensorBoard shows it: a session that starts at a step hides what was there from it on."""
    found: dict[tuple[str, int], float] = {}
    for event in events(run):
        if event.HasField("session_log"):
            found = {key: value for key, value in found.items() if key[1] < event.step}
        for each in event.summary.value:
            if each.HasField("simple_value"):
                assert (each.tag, event.step) not in found, "twice"
                found[each.tag, event.step] = each.simple_value
    return found


def written(run: Path) -> dict[tuple[str, int], float]:
    return {(key, row["update"]): n for row in metrics_of(run) for key, n in row.items() if key != "warnings"}


class Killed(Exception):
    pass


def dies(_: Any, metrics: Mapping[str, Any]) -> None:
    if metrics["update"] == 3:
        raise Killed


def test_a_run_that_goes_on_is_one_run_to_its_tracker(tmp_path: Path) -> None:
    """Update 3 comes after the last checkpoint, so it is done again, and shown once."""
    run, words = tmp_path / "run", ("log.trackers=[tensorboard]", "evaluation.every=2")
    with pytest.raises(Killed):
        trainer(run, *words, callbacks=[dies]).train()
    assert max(step for _, step in shown(run)) == 3
    trainer(run, *words).train()
    came = {key: value for key, value in shown(run).items() if not key[0].startswith("time/")}
    assert came == pytest.approx(written(run), rel=1e-6)
    assert {step for _, step in came} == {1, 2, 3, 4, 5}
    (settings,) = run.glob("text2grad/*/hparams.yml")
    assert "sampling.max_new_tokens: 8" in settings.read_text()
    before = len(list(events(run)))
    trainer(run, *words).train()
    assert len(list(events(run))) == before, "a run that is over says nothing more"


def test_a_tracker_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError("no room for events")

    monkeypatch.setattr("accelerate.tracking.TensorBoardTracker.start", refuses)
    with pytest.raises(RunError, match=r"log\.trackers: tensorboard could not be started \(no room for events\)"):
        trainer(tmp_path / "run", "log.trackers=[tensorboard]").train()
    assert not (tmp_path / "run").exists(), "the mended command begins anew"
