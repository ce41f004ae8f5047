"""One step of decoding as a CUDA graph: captured once for a shape, replayed for each token, no launch by launch.

Enters: weights and a state that stay at their places in memory. Leaves: the state, one token further. Knows nothing of
prompts. A captured step reads and writes only the state and the weights; what lies between is in the graphs' own pool,
which they share, because they are replayed one after the other and keep nothing in it.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from text2grad.models.sampling.steps import State, step
from text2grad.models.sampling.weights import Weights

WARM_UPS = 2
"""Runs before capturing, on a stream of their own: libraries then have made their plans and their work space."""


class Replays:
    """The captured steps of one state: one a span of the cache and a way of drawing."""

    def __init__(self, weights: Weights, state: State) -> None:
        self.weights, self.state = weights, state
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}

    def __call__(self, span: int, greedy: bool) -> None:
        key = span, greedy
        if key not in self._graphs:
            self._graphs[key] = self._capture(span, greedy)
        self._graphs[key].replay()

    def _capture(self, span: int, greedy: bool) -> torch.cuda.CUDAGraph:
        kept = [tensor.clone() for tensor in self.state.moving()]
        stream = torch.cuda.Stream(self.weights.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.weights.device))
        # A mask a row rules the flash kernel out; of those that take one, torch's versions choose differently.
        with torch.cuda.stream(stream), sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            for _ in range(WARM_UPS):
                step(self.weights, self.state, span, greedy)
                # Back to where it was: the real step writes the same places anew.
                for tensor, before in zip(self.state.moving(), kept, strict=True):
                    tensor.copy_(before)
        torch.cuda.current_stream(self.weights.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool), sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            step(self.weights, self.state, span, greedy)
        return graph
