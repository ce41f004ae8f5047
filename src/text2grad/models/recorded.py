"""Passes over packed rows as CUDA graphs: recorded once, then launched whole.

A pass of a small model, forward and backward, is 12,000 launches of short kernels, and the GPU waits for most of them.
A graph holds the launches of a pass; replaying it is one. Rows have to come in few shapes (`packed(…, rounded=True)`):
a shape is run launch by launch when it is first seen, and recorded when it comes again. The same kernels run either
way, so the numbers are the same, bit for bit.
"""

import logging
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from text2grad.models.packed import Packed

log = logging.getLogger("text2grad")

MOST = 48
"""Graphs; further shapes run launch by launch."""

NamedWeights = dict[str, nn.Parameter]


class Pass(Protocol):
    """A pass over a row."""

    def __call__(self, embedded_SH: Tensor, row: Packed, weights: NamedWeights | None = None) -> Tensor:
        """Embedded tokens → hidden states, both (S, H), with these weights in place of the model's own."""


class Recorder:
    """Runs passes, and records those whose shape comes again.

    The graphs share one pool of memory: they are replayed one after the other. So a pass whose gradients are still to
    be taken keeps the others from being replayed; these run launch by launch."""

    def __init__(self, run: Pass, weights: NamedWeights) -> None:
        self.run, self.weights = run, weights
        self.gradients: list[Tensor] = []
        """Where every graph leaves those of `learned`."""
        self._refused = False
        self._waiting: Callable[[], Any] = lambda: None
        """Gives something as long as a replayed pass can still be asked for its gradients."""
        self._stream: Any = None
        self._pool: Any = None
        self._graphs: dict[Hashable, _Graph] = {}
        self._seen: set[Hashable] = set()
        self._places: list[int] = []

    @property
    def learned(self) -> list[nn.Parameter]:
        """The weights that are trained. Asked at each pass: while adapters are switched off, as for the reference, peft
        takes the mark off theirs."""
        return [weight for weight in self.weights.values() if weight.requires_grad]

    def __deepcopy__(self, _: Any) -> None:
        """A copy of a model has other weights; it starts without."""
        return

    def __call__(self, embedded_SH: Tensor, row: Packed, kind: Hashable = None) -> Tensor:
        """`kind`: whatever else the pass depends on, such as whether adapters are in use."""
        places = [weight.data_ptr() for weight in self.weights.values()]
        if places != self._places:
            self.release()
            self._places = places
        key = row.shape, embedded_SH.dtype, torch.is_grad_enabled() and bool(self.learned), kind
        if self._refused or self._waiting() is not None:
            return self.run(embedded_SH, row)
        if key not in self._graphs:
            known = key in self._seen
            self._seen.add(key)
            if not known or len(self._graphs) >= MOST or not self._try(key, embedded_SH, row):
                return self.run(embedded_SH, row)
        graph = self._graphs[key]
        if graph.backward is None:
            return graph.replay(embedded_SH, row)
        replayed: Tensor = _Replayed.apply(graph, embedded_SH, row, *self.learned)  # type: ignore[no-untyped-call]
        return replayed

    def release(self) -> None:
        """Forget all graphs, and let go of their memory."""
        self._graphs.clear()
        self._seen.clear()
        self._pool, self._places, self.gradients = None, [], []

    def wait_for(self, token: "_Token") -> None:
        self._waiting = weakref.ref(token)

    def _try(self, key: Hashable, embedded_SH: Tensor, row: Packed) -> bool:
        try:
            self._graphs[key] = _Graph(self, embedded_SH, row)
        except torch.OutOfMemoryError:
            self.release()
            raise
        except RuntimeError as problem:
            self._refused = True
            self.release()
            _reset_random_numbers()
            cause = problem.__context__ or problem
            log.warning("passes without CUDA graphs, which is slower: one could not be recorded (%s)", cause)
        return not self._refused

    def recording(self, graph: Any) -> Any:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        # Other threads may use the device meanwhile.
        return torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")

    def warm_up(self, work: Callable[[], Any]) -> None:
        """Once on the stream that is recorded on: what a library sets up at first use does not belong in a graph."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream().wait_stream(self._stream)


class _Token:
    """There as long as a pass can be asked for its gradients."""


class _Graph:
    """One shape: where its input has to be put, and where its output is found."""

    def __init__(self, recorder: Recorder, embedded_SH: Tensor, row: Packed) -> None:
        self.recorder, self.row = recorder, row.copied()
        learns = torch.is_grad_enabled() and bool(recorder.learned)
        self.embedded_SH = embedded_SH.detach().clone().requires_grad_(learns and embedded_SH.requires_grad)
        # The same memory under other names: a weight that an earlier pass still holds on to belongs to the stream of
        # that pass, which must not wait for one that is recorded on.
        weights = {
            name: nn.Parameter(weight.detach(), weight.requires_grad) for name, weight in recorder.weights.items()
        }
        wanted: list[Tensor] = [weight for weight in weights.values() if weight.requires_grad]
        wanted += [self.embedded_SH] if self.embedded_SH.requires_grad else []

        def passed() -> Tensor:
            return recorder.run(self.embedded_SH, self.row, weights)

        def gradients(hidden_SH: Tensor, by_hidden_SH: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(hidden_SH, wanted, by_hidden_SH, allow_unused=True)

        def both() -> None:
            hidden_SH = passed()
            if learns:
                gradients(hidden_SH, torch.zeros_like(hidden_SH))

        recorder.warm_up(both)
        self.forward, self.backward = torch.cuda.CUDAGraph(), None
        with recorder.recording(self.forward):
            hidden_SH = passed()
        # Without its history: what that holds on to is the pool's, for the next graph as well.
        self.hidden_SH = hidden_SH.detach()
        if not learns:
            return
        if not recorder.gradients:
            recorder.gradients = [torch.zeros_like(weight) for weight in recorder.learned]
        self.by_hidden_SH, self.backward = torch.zeros_like(self.hidden_SH), torch.cuda.CUDAGraph()
        with recorder.recording(self.backward):
            found = list(gradients(hidden_SH, self.by_hidden_SH))
            # Those of the input are left where they are.
            self.by_embedded_SH = found.pop() if self.embedded_SH.requires_grad else None
            pairs = [(to, one) for to, one in zip(recorder.gradients, found, strict=True) if one is not None]
            torch._foreach_copy_([to for to, _ in pairs], [one for _, one in pairs])
        self.found = [to if one is not None else None for to, one in zip(recorder.gradients, found, strict=True)]
        self.embedded_SH.requires_grad_(False)

    def replay(self, embedded_SH: Tensor, row: Packed) -> Tensor:
        """The hidden states; they stand until the next replay of any graph."""
        self.embedded_SH.copy_(embedded_SH)
        torch._foreach_copy_(self.row.looked_at(), row.looked_at())
        self.forward.replay()
        return self.hidden_SH.detach()


def _reset_random_numbers() -> None:
    """A recording that failed leaves torch's generator in the belief that it is still being recorded."""
    with suppress(Exception):
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        generator.graphsafe_set_state(generator.clone_state())


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: _Graph, embedded_SH: Tensor, row: Packed, *_: Tensor) -> Tensor:
        ctx.graph, ctx.token = graph, _Token()
        graph.recorder.wait_for(ctx.token)
        return graph.replay(embedded_SH, row)

    @staticmethod
    def backward(ctx: Any, by_hidden_SH: Tensor) -> tuple[Tensor | None, ...]:
        graph = ctx.graph
        graph.by_hidden_SH.copy_(by_hidden_SH)
        graph.backward.replay()
        del ctx.token
        return None, graph.by_embedded_SH, None, *graph.found
