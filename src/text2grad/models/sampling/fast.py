"""Completions with a static cache, for Llama-like and Qwen2-like models: the same draws as `plain`, much sooner.

Enters: prompts as ids. Leaves: `Sampled` in their order, or `UnsupportedModel` with the reason. Each call first takes
over the model's weights (weights.py says what that costs), reads each different prompt once, and then decodes step by
step: on a GPU by replaying a CUDA graph, elsewhere by few operations, rows that ended leaving the batch now and then.
Before the first completions, its logits are compared with the model's own. Refuses to know any model's code.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from text2grad.errors import UnsupportedModel
from text2grad.models.memory import free_memory
from text2grad.models.modes import evaluating
from text2grad.models.sampling import Ended, Sampled, SamplingSettings
from text2grad.models.sampling.plain import AT_ONCE, as_sampled, values_of
from text2grad.models.sampling.steps import DecodingState, Replays, advance, emit, logits_of, new_state, prefill, step
from text2grad.models.sampling.weights import Weights
from text2grad.optim.batch import sent

log = logging.getLogger("text2grad")

GROWTH, SLACK = 1.25, 16
"""A group of prompts read at once holds lengths up to GROWTH times its shortest, or SLACK tokens more: so at most a
fifth of it is padding, or SLACK tokens a prompt."""
SPAN = 64
"""On a GPU the cache is looked at in steps of this many places: a graph each, captured when first needed."""
ROOM = 128
"""On a GPU a cache has a multiple of this many places."""
SHARE, MOST = 0.25, 512
"""With sampling.batch=auto on a GPU: the share of the free memory that keys and values may take; most completions."""
ROWS = 16
"""On a GPU a batch smaller than the setting is filled up to a multiple of this, so that few shapes are captured."""
PASS = 32
"""On a GPU a pass over short prompts costs what its launches cost: for fewer passes, this much padding a prompt."""
LOOK_EVERY = 8
"""Steps between two looks at whether all rows have ended; each look waits for the GPU."""
TOLERANCE, LOOSE = 5e-3, 0.1
"""Root mean square difference from the model's own logits, as a share of their spread; LOOSE for 16-bit numbers. A
wrong layer is off by the whole spread, TF32 alone by a thousandth."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)
"""Numbers that the kernels know."""
TRIAL = 80
"""Tokens of the trial of the kernels: more than they look at together."""


class FastDecoder:
    """On a GPU the cache of a batch and its graphs stay from call to call."""

    def __init__(
        self, model: Any, settings: SamplingSettings, end_ids: tuple[int, ...], pad_id: int, value_head: Any
    ) -> None:
        self.model, self.settings, self.value_head = model, settings, value_head
        self.end_ids, self.pad_id = end_ids, pad_id
        self.weights = Weights(model, None if settings.dtype == "auto" else getattr(torch, settings.dtype))
        self.ended: Ended | None = None
        self._asked = self._places = 0
        self._batch: int | None = None if settings.batch == "auto" else settings.batch
        self._checked: tuple[torch.device, torch.dtype] | None = None
        self._kernels: Any = None
        self._static: tuple[int, Replays] | None = None

    @contextmanager
    def ready(self, prompts: Sequence[Sequence[int]]) -> Iterator[None]:
        """What batches of these prompts are decoded in, with the weights of this moment."""
        self._asked = len(prompts)
        self._places = max(map(len, prompts), default=0) + self.settings.max_new_tokens
        # Also where there is nothing to do: gathering sharded weights needs every process.
        self.weights.sync()
        device = self.weights.device
        here = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with evaluating(self.model, self.value_head), here:
            if self._checked != (device, self.weights.dtype):
                self._compare(self._rows())
            with torch.inference_mode():
                yield

    @property
    def batch(self) -> int:
        """Completions decoded at once: on a GPU those whose keys and values fit into a quarter of the free memory,
        measured when it is first asked for."""
        if self._batch is None:
            device, shape = self.weights.device, self.weights.shape
            if device.type != "cuda":
                self._batch = AT_ONCE
            else:
                place = 2 * shape.kv_heads * shape.head_dim * self.weights.dtype.itemsize * len(self.weights.layers)
                fits = int(free_memory(device) * SHARE / (place * _room(max(self._places, 1))))
                self._batch = max(ROWS, min(MOST, fits // ROWS * ROWS))
        return self._batch

    @batch.setter
    def batch(self, rows: int) -> None:
        self._batch = rows

    def halve(self) -> None:
        self._batch = max(1, self.batch // 2)
        self._static = None
        if self.weights.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def replays(self) -> bool:
        """Whether steps are captured and replayed, so that the state has to stay where it is."""
        return self.weights.device.type == "cuda"

    def _state(self, rows: int) -> DecodingState:
        """A state with enough room: on a GPU the one of the last call where it fits, elsewhere a new one."""
        if not self.replays:
            return self._new_state(rows, self._places)
        rows, places = self._rows(), _room(self._places)
        if self._static is not None and self._static[0] == self.weights.version:
            had_rows, had_places, _ = self._static[1].state.cache[0].shape
            if had_rows >= rows and had_places >= places:
                return self._static[1].state
            # One state for all calls to come, evaluations among them: each new one has to be captured again.
            rows, places = max(rows, had_rows), max(places, had_places)
        self._static = None  # gives its memory back first
        state = self._new_state(rows, places)
        self._static = self.weights.version, Replays(self.weights, state)
        return state

    def _rows(self) -> int:
        """Rows of a state on a GPU."""
        return min(self.batch, max(1, -(-self._asked // ROWS)) * ROWS)

    def _new_state(self, rows: int, places: int) -> DecodingState:
        self.weights.rope(places)
        return new_state(
            self.weights,
            self.settings,
            self.end_ids,
            self.pad_id,
            rows=rows,
            places=places,
            keep_hidden=self.value_head is not None,
            kernels=self._kernels,
        )

    def decode(self, prompts: list[tuple[int, ...]], uniforms: NDArray[np.float32] | None) -> list[Sampled]:
        state = self._state(len(prompts))
        hidden_BH = self._start(state, prompts)
        greedy = uniforms is None
        if uniforms is not None:
            state.uniform_BT[: len(prompts)] = torch.from_numpy(uniforms).to(state.uniform_BT.device)
        emit(self.weights, state, hidden_BH, greedy)
        longest = len(prompts[-1])
        if self.replays:
            assert self._static is not None
            self._replay(self._static[1], longest, greedy, len(prompts))
            return self._sampled(state)[: len(prompts)]
        return self._run(state, longest, greedy)

    def _start(self, state: DecodingState, prompts: list[tuple[int, ...]]) -> Tensor:
        """Everything as at the start, the prompts in the cache; the hidden state (B, H) after each. Rows that a graph
        needs and nobody asked for are finished from the start."""
        state.finished_B.zero_()
        state.finished_B[len(prompts) :] = True
        for tensor in (state.step_1, state.lengths_B, state.position_B, state.prompt_B):
            tensor.zero_()
        state.ids_BT.fill_(self.pad_id)
        hidden_BH = self.weights.embed.new_zeros(len(state.ids_B), self.weights.embed.shape[1])
        first: dict[tuple[int, ...], int] = {}
        for row, prompt in enumerate(prompts):
            first.setdefault(prompt, row)
        different = list(first)
        slack = PASS if self.replays else SLACK
        ends = [*(first[prompt] for prompt in different[1:]), len(prompts)]
        for start, end in alike([len(prompt) for prompt in different], self.settings.prefill_tokens, slack):
            chunk = different[start:end]
            row, stop = first[chunk[0]], ends[end - 1]
            place = {prompt: which for which, prompt in enumerate(chunk)}
            which_R = torch.tensor([place[prompt] for prompt in prompts[row:stop]])
            lengths_U = torch.tensor([len(prompt) for prompt in chunk])
            ids_UP = pad_sequence([torch.tensor(prompt) for prompt in chunk], batch_first=True)
            ids_UP, lengths_U, which_R = (sent(numbers, hidden_BH.device) for numbers in (ids_UP, lengths_U, which_R))
            hidden_BH[row:stop] = prefill(self.weights, state, ids_UP, lengths_U, which_R, row)
        return hidden_BH

    def _replay(self, replays: Replays, longest: int, greedy: bool, rows: int) -> None:
        state, told = replays.state, set[int]()
        places = state.cache[0].shape[1]
        for drawn in range(1, self.settings.max_new_tokens):
            if drawn % LOOK_EVERY == 0:
                finished = state.finished_B.tolist()
                if all(finished):
                    return
                new = [row for row in range(rows) if finished[row] and row not in told] if self.ended else []
                if self.ended is not None and new:
                    told.update(new)
                    self.ended(dict(zip(new, self._sampled(state, new), strict=True)))
            # The kernels stop at each row's position: for them one graph does.
            span = places if self._kernels is not None else min(places, -(-(longest + drawn) // SPAN) * SPAN)
            replays(span, greedy)

    def _run(self, state: DecodingState, longest: int, greedy: bool) -> list[Sampled]:
        """Step by step, without a graph. Rows that ended are put away once they are a quarter: moving the cache of the
        others costs about as much as one step over it."""
        members = list(range(len(state.ids_B)))
        results: dict[int, Sampled] = {}
        for drawn in range(1, self.settings.max_new_tokens):
            living = len(members) - int(state.finished_B.sum())
            if living == 0:
                break
            if 4 * living <= 3 * len(members):
                gone = state.finished_B.tolist()
                done = [place for place, finished in enumerate(gone) if finished]
                left = [place for place, finished in enumerate(gone) if not finished]
                put_away = dict(zip([members[place] for place in done], self._sampled(state, done), strict=True))
                if self.ended is not None:
                    self.ended(put_away)
                results.update(put_away)
                members = [members[place] for place in left]
                state = state.select(torch.tensor(left, device=self.weights.device))
            step(self.weights, state, longest + drawn, greedy)
        results.update(zip(members, self._sampled(state), strict=True))
        return [results[row] for row in range(len(results))]

    def _sampled(self, state: DecodingState, rows: list[int] | None = None) -> list[Sampled]:
        """The completions of these rows, or of all."""
        chosen: Any = slice(None) if rows is None else rows
        values_BT = None
        if self.value_head is not None and state.hidden_BTH is not None:
            values_BT = values_of(self.value_head, state.hidden_BTH[chosen])
        ids_BT, logprobs_BT = state.ids_BT[chosen], state.logprobs_BT[chosen]
        return as_sampled(ids_BT, logprobs_BT, values_BT, state.lengths_B[chosen], state.finished_B[chosen])

    @torch.no_grad()
    def _compare(self, rows: int) -> None:
        """Logits against the model's own: by the kernels, where they can be used (this compiles them, for as many
        rows), and by PyTorch's operations where they cannot."""
        self._kernels, trouble = kernels_for(self.weights), ""
        if self._kernels is not None:
            try:
                error = self._error(
                    rows, min(getattr(self.model.config, "max_position_embeddings", None) or TRIAL, TRIAL)
                )
                trouble = "" if error <= self._tolerance else f"logits are off by {error:.2g} of their spread"
            except torch.OutOfMemoryError:
                raise
            except Exception as problem:  # noqa: BLE001 - a compiler can fail in many ways, and steps go without it
                trouble = f"{type(problem).__name__}: {problem}"
        if trouble:
            self._kernels = None
            log.warning("sampling without its own kernels, which is slower: %s", trouble)
        if self._kernels is None and not (error := self._error(1, 9)) <= self._tolerance:
            raise UnsupportedModel(
                f"its logits come out different from the model's own, by {error:.2g} of their spread"
            )
        self._checked = self.weights.device, self.weights.dtype

    @property
    def _tolerance(self) -> float:
        return LOOSE if self.weights.dtype.itemsize == 2 else TOLERANCE

    def _error(self, rows: int, length: int) -> float:
        """Of the logits after a prompt and after one token more, as a share of the spread of the model's own from a
        pass over the same ids."""
        ids = torch.arange(1, length + 1, device=self.weights.device).mul_(7919).remainder_(len(self.weights.embed))
        expected_2V = self.model(ids[None]).logits[0, -2:].float()
        state = self._new_state(rows, length)
        which_B = torch.zeros_like(state.ids_B)
        before_BH = prefill(
            self.weights, state, ids[None, :-1], torch.tensor([length - 1], device=ids.device), which_B, 0
        )
        state.ids_B.copy_(ids[-1:].expand(rows))
        after_BH = advance(self.weights, state, length)
        found_2V = logits_of(self.weights, torch.stack([before_BH[-1], after_BH[-1]])).float()
        # The root mean square, not the largest: of fifty thousand bf16 logits some are far off after thirty layers.
        error = float((found_2V - expected_2V).square().mean().sqrt() / expected_2V.std())
        if self._kernels is not None and error <= self._tolerance:
            for greedy in (True, False):
                self._try_draw(state, after_BH, greedy)
        return error

    def _try_draw(self, state: DecodingState, hidden_BH: Tensor, greedy: bool) -> None:
        """One draw by the kernels: an id that can be drawn, with the log-prob that it has."""
        state.uniform_BT.fill_(0.5)
        state.finished_B.zero_()
        emit(self.weights, state, hidden_BH, greedy)
        state.step_1.zero_()
        logprobs_BV = (logits_of(self.weights, hidden_BH).float() / state.temperature).log_softmax(-1)
        ids_B1 = state.ids_BT[:, :1]
        wanted_B = logprobs_BV.max(-1).values if greedy else logprobs_BV.gather(1, ids_B1)[:, 0]
        # The middle of the distribution lies within what the drawn id covers, but for rounding.
        before_B = logprobs_BV.exp().cumsum(-1).gather(1, ids_B1)[:, 0] - logprobs_BV.gather(1, ids_B1)[:, 0].exp()
        aside = not greedy and bool(((before_B > 0.51) | (before_B + wanted_B.exp() < 0.49)).any())
        if aside or float((state.logprobs_BT[:, 0] - wanted_B).abs().max()) > 0.01:
            raise RuntimeError("it draws other ids, or with other log-probs, than the logits say")


def _room(places: int) -> int:
    """Places of a cache on a GPU: a few different numbers, so that longer prompts seldom need another one."""
    return -(-places // ROOM) * ROOM


def alike(lengths: Sequence[int], budget: int, slack: int = SLACK) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of ascending lengths that are read at once: within GROWTH or `slack` of the shortest, and
    `budget` tokens in all, padding included (a single prompt may be longer)."""
    start = 0
    for end, length in enumerate(lengths):
        most = max(int(lengths[start] * GROWTH), lengths[start] + slack)
        if end > start and (length > most or length * (end - start + 1) > budget):
            yield start, end
            start = end
    if lengths:
        yield start, len(lengths)


def kernels_for(weights: Weights) -> Any:
    """kernels.py where device, numbers and model allow for it, else None."""
    if weights.device.type != "cuda" or weights.dtype not in KINDS or not weights.gated_by_silu:
        return None
    if torch.cuda.get_device_capability(weights.device) < (8, 0):
        # Neither bfloat16 nor the flash kernel that reads prompts.
        log.info("sampling without its own kernels, which is slower: they want a GPU from Ampere on")
        return None
    try:
        from text2grad.models.sampling import kernels
    except Exception as problem:  # noqa: BLE001 - a broken Triton fails in its own ways, and steps go without it
        log.warning("sampling without its own kernels, which is slower: no Triton here (%s)", problem)
        return None
    return kernels
