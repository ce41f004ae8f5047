"""How many completions are in memory at once: settings that are `auto`, as numbers.

Enters: the settings, the policy and the first batch. Leaves: the number of completions in a pass with and without
gradients. On a GPU it is measured once and written into run.json, so that a resumed run sums in the same order; running
out of memory halves it. On a CPU it is a constant.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from text2grad.models.memory import free_memory
from text2grad.models.policy import Policy
from text2grad.models.writer import Writer
from text2grad.optim.batch import Batch
from text2grad.runs.run import Run

T = TypeVar("T")
ON_CPU = 16
MOST_TOKENS = 16384
"""In a pass with gradients: more does not make a GPU faster."""
MOST_RECORDED = 4096
"""The same, where a pass is launched as a whole."""
READING = 4
"""A pass without gradients takes so many times as many: it keeps nothing."""
SHARE = 0.8
"""Of the free memory that a pass may take: the backward pass and the vocabulary projection want some as well."""
RECORD = "sizes"


class Sizes:
    """Completions in a pass."""

    def __init__(self, run: Run, micro_batch: int | str, device: torch.device, writer: Writer) -> None:
        self.run, self.device = run, device
        self.sampler: Any = writer.sampler
        self.policy: Policy | None = None
        self.auto, kept = micro_batch == "auto", run.recorded(RECORD) or {}
        self.micro_batch: int | None = None if isinstance(micro_batch, str) else micro_batch
        if self.auto:
            self.micro_batch = kept.get("micro_batch") or (None if device.type == "cuda" else ON_CPU)
        self.auto_sampling = hasattr(self.sampler, "batch") and writer.settings.batch == "auto"
        if self.auto_sampling and kept.get("sampling"):
            self.sampler.batch = kept["sampling"]  # type: ignore[attr-defined]

    @property
    def reading(self) -> int:
        """Completions in a pass without gradients."""
        assert self.micro_batch is not None
        return self.micro_batch * (READING if self.auto and self.device.type == "cuda" else 1)

    def settle(self, policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, minibatches: int) -> None:
        """Measure what is not known yet, and write it down."""
        self.policy = policy
        if self.micro_batch is None:
            fit = fitting(policy, batch, free_memory(self.device) * SHARE - _still_to_come(optimizer))
            most, group = -(-len(batch) // minibatches), len(batch) // len({*batch.group_B.tolist()})
            self.micro_batch = min(self.run.world.all_gather(in_equal_parts(most, fit, group)))
        if self.device.type == "cuda":
            self._write_down()

    def within_memory(self, work: Callable[[int], T]) -> T:
        """Do this with so many completions at once, and again with half of them if memory does not hold them."""
        while True:
            try:
                return work(self.reading)
            except torch.OutOfMemoryError:
                if not self.halves:
                    raise
            # Outside of `except`: what the exception holds on to is free again here.
            self.halve()

    @property
    def halves(self) -> bool:
        """Whether there is a smaller size to go on with. Over several processes all would have to halve together."""
        return self.auto and self.run.world.size == 1 and self.micro_batch is not None and self.micro_batch > 1

    def halve(self) -> int:
        assert self.micro_batch is not None
        self.micro_batch = max(1, self.micro_batch // 2)
        if self.device.type == "cuda":
            if self.policy is not None:
                self.policy.backbone.release()
            torch.cuda.empty_cache()
        self.run.note(f"memory ran out: {self.micro_batch} completions at once from now on (update.micro_batch)")
        self._write_down()
        return self.micro_batch

    def _write_down(self) -> None:
        sizes = {
            "micro_batch": self.micro_batch if self.auto else None,
            "sampling": self.sampler.batch if self.auto_sampling else None,
        }
        self.run.record(RECORD, sizes)


def in_equal_parts(most: int, fit: int, group: int) -> int:
    """Rows in a part, of which at most `fit` are in memory at once. Parts are of equal size: a small last one takes as
    long as a large one. The `group` completions of a prompt stay together, where they fit, so that it is read once.

    >>> [in_equal_parts(64, fit, 4) for fit in (100, 58, 31, 22, 3)]
    [64, 32, 24, 16, 3]
    """
    fit = max(1, min(fit, most))
    group = group if group <= fit else 1
    whole = fit // group * group
    rows = -(-most // -(-most // whole))
    return -(-rows // group) * group


def fitting(policy: Policy, batch: Batch, memory: float) -> int:
    """Completions of which a pass with gradients keeps no more than this in memory, by two trials with the longest
    ones. Where passes of fewer tokens are as fast, no more than these."""
    total_B, backbone = batch.prompt_B + batch.lengths_B, policy.backbone
    recorded = backbone.packs() and backbone.records()  # asked before anything is measured: the answer takes memory
    rows = (batch.group_B == batch.group_B[total_B.argmax()]).nonzero()[:, 0]
    while (small := _kept(policy, batch.rows(rows))) is None:
        if len(rows) == 1:
            return 1  # the pass itself will say that it does not fit
        rows = rows[: len(rows) // 2]
    twice = batch.rows(torch.cat([rows, rows]))
    apart = torch.arange(len(twice), device=rows.device) >= len(rows)
    large = _kept(policy, replace(twice, group_B=twice.group_B + apart * (1 + batch.group_B.max())))
    trials = (len(rows), small), (len(rows), small) if large is None else (2 * len(rows), large)
    prompts = {group: int(length) for group, length in zip(batch.group_B.tolist(), batch.prompt_B, strict=True)}
    tokens = sum(prompts.values()) + int(batch.lengths_B.sum())
    most = MOST_TOKENS
    if recorded:
        # A shape is launched when it is first seen, and recorded when it comes again: its memory is held twice.
        memory, most = memory / 2, MOST_RECORDED
    return max(1, int(min(rows_within(memory, *trials), most * len(batch) / tokens)))


def _kept(policy: Policy, trial: Batch) -> int | None:
    """Bytes that a pass over these rows keeps for its backward pass; None if there is no memory for them."""
    before = torch.cuda.memory_allocated(policy.device)
    try:
        with torch.random.fork_rng(devices=[policy.device]), torch.enable_grad():
            policy.train()
            kept = policy.backbone.completion_hidden(trial, share=policy.backbone.shares_prompts())
        taken = torch.cuda.memory_allocated(policy.device) - before
        del kept
        return taken
    except torch.OutOfMemoryError:
        pass
    finally:
        policy.eval()
    # Outside of `except`: what the exception holds on to is free again here.
    policy.backbone.release()
    torch.cuda.empty_cache()
    return None


def rows_within(memory: float, small: tuple[int, float], large: tuple[int, float]) -> float:
    """How many rows fit, by two trials of (rows, bytes). A pass takes something whatever its rows, above all weights in
    its own precision. Where the trials cannot tell that apart, all of it counts as the rows'.

    >>> rows_within(100, (4, 28), (8, 36)), rows_within(100, (4, 28), (4, 28)), rows_within(100, (4, 40), (8, 40))
    (40.0, 14.285714285714286, 20.0)
    """
    (few, less), (many, more) = small, large
    each = (more - less) / (many - few) if many > few and more > less else max(more, 1) / many
    return (memory - max(more - many * each, 0)) / each


def _still_to_come(optimizer: torch.optim.Optimizer) -> float:
    """Bytes of gradients, and of what AdamW keeps, that are not there yet."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    return float(size * (1 if optimizer.state else 3))
