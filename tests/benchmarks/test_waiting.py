"""Where a GPU waits and where it works, from the events of a profiler and samples of a stack; no GPU is needed."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.waiting import StackSampler, busy_spans, gaps, kernel_seconds, merged, waiting


def event(start: int, length: int, name: str = "gemm", kind: str = "CUDA", *, marked: bool = False) -> Any:
    return SimpleNamespace(
        name=lambda: name,
        start_ns=lambda: start,
        duration_ns=lambda: length,
        device_type=lambda: SimpleNamespace(name=kind),
        is_user_annotation=lambda: marked,
    )


def profiler_of(*events: Any) -> Any:
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events)))


def test_busy_time_counts_overlaps_once_and_leaves_out_what_the_host_marked() -> None:
    events = [event(50, 10), event(0, 20), event(10, 20), event(12, 3), event(0, 90, kind="CPU")]
    assert busy_spans(profiler_of(*events, event(0, 99, marked=True))) == [(0, 30), (50, 60)]


def test_kernels_are_added_up_by_name() -> None:
    events = [event(0, 20), event(5, 10), event(9, 40, "copy"), event(0, 99, "copy", "CPU"), event(0, 1, "add")]
    assert kernel_seconds(profiler_of(*events), most=2) == [(40e-9, 1, "copy"), (30e-9, 2, "gemm")]


def test_spans_that_touch_are_one_and_gaps_are_what_is_between() -> None:
    assert merged([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert gaps([(2, 3), (5, 9)], 0, 10) == [(0, 2), (3, 5), (9, 10)]
    assert gaps([(0, 10)], 0, 10) == []


def test_idle_time_goes_to_what_the_host_was_doing() -> None:
    """Busy from 0 to 10, 30 to 40 and 60 to 70. The first gap has two samples, the second none: the next says."""
    loop = "text2grad/training/rl.py:160 Trainer.train"
    samples = [
        (5, ("text2grad/a.py:1 sent", loop)),
        (15, ("torch/nn.py:7 linear", "text2grad/b.py:2 forward", loop)),
        (25, ("text2grad/c.py:3 collate", loop)),
        (65, ("text2grad/d.py:4 judge",)),
    ]
    found = waiting([(0, 10), (30, 40), (60, 70)], samples)
    assert {name: seconds for seconds, name in found} == pytest.approx(
        {
            "rl.py:160 text2grad/b.py:2 forward < nn.py:7 linear": 10e-9,
            "rl.py:160 text2grad/c.py:3 collate": 10e-9,
            "text2grad/d.py:4 judge": 20e-9,
        }
    )
    assert waiting([], samples) == waiting([(0, 1)], []) == []


def test_stacks_are_sampled_while_the_main_thread_works() -> None:
    with StackSampler() as sampler:
        deadline = time.monotonic() + 30
        while len(sampler.samples) < 3 and time.monotonic() < deadline:
            pass
    names = [name for _, stack in sampler.samples for name in stack]
    assert any("test_stacks_are_sampled" in name for name in names)
    kept = len(sampler.samples)
    time.sleep(0.01)
    assert len(sampler.samples) == kept, "it ends with the block"
