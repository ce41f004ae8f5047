"""Where a GPU waits: its idle time, by what the host was doing meanwhile; and where it works, by kernel. Used by
`step.py --waiting`.

Enters: the kernels of torch's profiler, and samples of the main thread's stack, a thousand a second. Leaves: seconds of
idle time, by the line of the training loop and the innermost function of text2grad that was running.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

Span = tuple[int, int]
"""Begin and end, in nanoseconds since 1970."""
EVERY = 0.001
"""Seconds between two samples."""


@dataclass
class StackSampler:
    """Notes what the main thread is doing, from `with` to its end."""

    samples: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """(when, the functions on the stack, innermost first)."""

    def __enter__(self) -> Self:
        self._main, self._over = threading.get_ident(), threading.Event()
        self._before = sys.getswitchinterval()
        sys.setswitchinterval(EVERY / 2)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        sys.setswitchinterval(self._before)

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            frame = sys._current_frames().get(self._main)
            self.samples.append((time.time_ns(), functions(frame)))


def functions(frame: FrameType | None) -> tuple[str, ...]:
    """The functions on a stack, innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append(f"{code.co_filename.rpartition('/src/')[2]}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return tuple(found)


def kernel_seconds(profiler: Any, most: int = 40) -> list[tuple[float, int, str]]:
    """(seconds, how often, name) of kernels and copies, those that took most first."""
    seconds, times = Counter[str](), Counter[str]()
    for event in profiler.profiler.kineto_results.events():
        if event.device_type().name == "CUDA" and not event.is_user_annotation():
            seconds[event.name()[:100]] += event.duration_ns()
            times[event.name()[:100]] += 1
    return [(spent / 1e9, times[name], name) for name, spent in seconds.most_common(most)]


def busy_spans(profiler: Any) -> list[Span]:
    """When the device had at least one kernel or copy under way; in order, none touching another."""
    found = []
    for event in profiler.profiler.kineto_results.events():
        # Ranges that the host has marked cover idle time as well.
        if event.device_type().name == "CUDA" and not event.is_user_annotation():
            found.append((event.start_ns(), event.start_ns() + event.duration_ns()))
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """
    >>> merged([(5, 6), (0, 2), (1, 3)])
    [(0, 3), (5, 6)]
    """
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def gaps(busy: Sequence[Span], begin: int, end: int) -> list[Span]:
    """
    >>> gaps([(2, 3), (5, 9)], 0, 10)
    [(0, 2), (3, 5), (9, 10)]
    """
    edges = [begin, *(moment for span in busy for moment in span), end]
    pairs = [(max(begin, start), min(end, stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return [(start, stop) for start, stop in pairs if stop > start]


def waiting(
    busy: Sequence[Span], samples: Sequence[tuple[int, tuple[str, ...]]], ours: str = "text2grad/"
) -> list[tuple[float, str]]:
    """(idle seconds, innermost function of ours), most first. A gap between two kernels is shared among the samples in
    it; one that has none goes to the next sample.

    >>> waiting([(0, 10), (30, 40)], [(5, ("text2grad/a:1 f",)), (20, ("torch:7 g", "text2grad/b:2 h"))])
    [(2e-08, 'text2grad/b:2 h < torch:7 g')]
    """
    if not samples or not busy:
        return []
    idle: dict[str, float] = {}
    place = 0
    for start, stop in gaps(busy, busy[0][0], busy[-1][1]):
        while place + 1 < len(samples) and samples[place][0] < start:
            place += 1
        last = place
        while last + 1 < len(samples) and samples[last + 1][0] < stop:
            last += 1
        inside = samples[place : last + 1]
        for _, stack in inside:
            name = _named(stack, ours)
            idle[name] = idle.get(name, 0.0) + (stop - start) / len(inside)
    most_first = sorted(idle.items(), key=lambda item: -item[1])
    return [(nanoseconds / 1e9, name) for name, nanoseconds in most_first]


def _named(stack: Sequence[str], ours: str) -> str:
    own = next((name for name in stack if name.startswith(ours)), "")
    verb = next((name.partition("rl.py")[2].partition(" ")[0] for name in stack if name.endswith(" Trainer.train")), "")
    inner = own if not stack or stack[0] == own else f"{own} < {stack[0].rpartition('/')[2]}"
    return f"rl.py{verb} {inner}" if verb else inner
