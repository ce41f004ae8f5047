"""One step of decoding as a CUDA graph: captured once for a shape, replayed for each token, no launch by launch.

Enters: weights and a state that stay at their places in memory. Leaves: the state, one token further. Knows nothing of
prompts. A captured step reads and writes only the state and the weights; what lies between is in the graphs' own pool,
which they share, because they are replayed one after the other and keep nothing in it.
"""

import logging
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from text2grad.models.sampling.steps import State, step
from text2grad.models.sampling.weights import Weights

log = logging.getLogger("text2grad")

TAKE_A_MASK = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""A mask a row rules the flash kernel out; which other one is taken differs between versions of torch."""
WARM_UPS = 2
"""Runs before capturing, on a stream of their own: libraries then have made their plans and their work space."""


class Replays:
    """The captured steps of one state: one a span of the cache and a way of drawing. Where a step cannot be captured,
    a line in the log says so, and steps run launch by launch: slower, and the same."""

    def __init__(self, weights: Weights, state: State) -> None:
        self.weights, self.state = weights, state
        self._pool: Any = None
        self._graphs: dict[tuple[int, bool], Any] = {}
        self._refused = False

    def __call__(self, span: int, greedy: bool) -> None:
        with torch.cuda.device(self.weights.device):
            key = span, greedy
            if key not in self._graphs and not self._refused:
                self._try(span, greedy)
            if key in self._graphs:
                self._graphs[key].replay()
            else:
                step(self.weights, self.state, span, greedy)

    def _try(self, span: int, greedy: bool) -> None:
        kept = [tensor.clone() for tensor in self.state.moving()]
        try:
            self._warm_up(span, greedy, kept)
            self._graphs[span, greedy] = self._capture(span, greedy)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as problem:
            self._refused = True
            log.warning("decoding without a CUDA graph, which is slower: it could not be captured (%s)", problem)
            self._restore(kept)

    def _warm_up(self, span: int, greedy: bool, kept: list[Tensor]) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), sdpa_kernel(TAKE_A_MASK):
            for _ in range(WARM_UPS):
                step(self.weights, self.state, span, greedy)
                # What was drawn and cached stands at places that the real step writes anew.
                self._restore(kept)
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, span: int, greedy: bool) -> Any:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool), sdpa_kernel(TAKE_A_MASK):
            step(self.weights, self.state, span, greedy)
        return graph

    def _restore(self, kept: list[Tensor]) -> None:
        for tensor, before in zip(self.state.moving(), kept, strict=True):
            tensor.copy_(before)
