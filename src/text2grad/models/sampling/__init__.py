"""Prompts → completions: `ModelSampler(model, settings, end_ids=…, pad_id=…).sample(prompts, Seed(…))`.

Two decoders: `plain` knows every causal model, `fast` the Llama-like and Qwen2-like ones. Both speak ids only and give
the log-probs of the distribution they sampled from. Servers of another engine are asked by `engines/vllm.py`. Torch and
numpy are imported when a sampler is made: the settings, which `--help` prints, need neither.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from annotated_types import Ge, Gt

from text2grad._checked import Address, Int, Real
from text2grad.config import settings
from text2grad.errors import InvalidData, UnsupportedModel
from text2grad.plugins import find_plugin, import_object
from text2grad.runs.world import ALONE, World

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("text2grad")

SERVED = {"vllm": "text2grad.engines.vllm:ServedSampler", "sglang": "text2grad.engines.vllm:ServedSampler"}
"""Engines that are asked over HTTP → the sampler that asks them. By name: this room does not know that one."""
OURS = ("auto", "fast", "plain")
"""Samplers that run the policy's own modules here."""
_EXACT = (
    "there is none, on purpose: importance ratios are taken against the distribution that was sampled from, and the "
    "update knows only a temperature; set sampling.temperature"
)


@settings
class ServedSettings:
    """Rollouts by servers of another engine (sampling.sampler=vllm)."""

    folder: str = ""
    """Where the policy's weights are handed over: a folder that this machine and all servers see under the same path.
    Empty: a temporary one, which suits servers on this machine."""
    timeout: Annotated[Real, Gt(0)] = 600.0
    """Seconds that one completion, or taking over weights, may take."""
    retries: Annotated[Int, Ge(0)] = 6
    """Times that a server which fails is tried again, after 0.5, 1, 2, … seconds, at most 30. Its work goes to the
    others meanwhile. When all have failed so often, the run stops, and resumes later."""
    tolerance: Annotated[Real, Gt(0)] = 0.1
    """Mean difference of log-probs up to which a server counts as having the policy's weights: each push is followed
    by a short completion, whose log-probs are compared with the trainer's own. bf16 alone gives about 0.01."""
    cap: Annotated[Real, Ge(0)] = 2.0
    """Engine and trainer compute slightly different log-probs from the same weights. Each token's advantage is
    multiplied by min(p_trainer / p_engine, cap): truncated importance sampling. 0: no correction, and ratios are taken
    against the engine's log-probs."""


@settings
class SamplingSettings:
    """How completions are drawn. There is no top-p, no top-k, no beam and no repetition penalty, on purpose: importance
    ratios are taken against the distribution that was sampled from, and the update knows only a temperature."""

    REFUSED: ClassVar = dict.fromkeys(("top_p", "top_k", "min_p", "repetition_penalty", "num_beams"), _EXACT)
    sampler: str = "auto"
    """fast: a static cache, for Llama-like and Qwen2-like models. plain: calls the model step by step, for every causal
    model. auto: fast where it can be. vllm, sglang: servers at sampling.url. Or your own as package.module:object."""
    url: Address = ""
    """Addresses of the servers, each with scheme, host and port; several with commas between them. The same model must
    be served there. VLLM_API_KEY in the environment is their key, if they want one."""
    served: ServedSettings = field(default_factory=ServedSettings)
    """How servers get the weights, and what happens when one fails."""
    max_new_tokens: Annotated[Int, Ge(1)] = 64
    """Longest completion in tokens; one that is cut off here is marked as truncated."""
    temperature: Annotated[Real, Gt(0)] = 1.0
    """Divides the logits before the softmax. Log-probs are those of the divided logits."""
    batch: Annotated[Int, Ge(1)] | Literal["auto"] = "auto"
    """Completions decoded at once. auto: 64 on a CPU; on a GPU as many as a quarter of its free memory holds, at most
    512, and half as many whenever memory runs out. With vllm: requests under way per server and process; auto: 64."""
    prefill_tokens: Annotated[Int, Ge(1)] = 16384
    """Prompt tokens, padding included, that `fast` reads at once: bounds the memory of the first pass."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of sampling. auto: the model's own; bfloat16 in a run with policy.precision=bfloat16, on a GPU or a CPU
    with bf16 instructions. A run writes down what auto was when it began, and keeps to it on resume, whatever the
    machine. The softmax is always float32. Sampled log-probs in bfloat16 differ slightly from those of a training pass.
    With vllm and policy.lora.rank=0: the precision of the weights that servers get; auto: as they are held."""

    def __post_init__(self) -> None:
        if (self.sampler in SERVED) != bool(self.url):
            raise ValueError(
                f"sampler: {self.sampler} and url: {self.url or 'none'} do not go together; servers are asked with "
                f"sampling.sampler=vllm sampling.url=http://host:8000"
            )


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as it was sampled: what importance ratios are taken against."""

    token_ids: tuple[int, ...]
    """The sampled ids, the end token included where it was sampled; never empty."""
    logprobs: tuple[float, ...]
    """Of each id, under the distribution that it was drawn from: the temperature is in it."""
    values: tuple[float, ...] | None
    """What the value head said before each id was drawn; None without a value head."""
    truncated: bool
    """Whether it came to the limit without an end token."""


Ended = Callable[[Mapping[int, Sampled]], object]
"""Told by a decoder: rows of the batch → their completions, as soon as they have ended."""


@dataclass(frozen=True, slots=True)
class Seed:
    """What random draws are a function of: nothing else, so they do not depend on batching, processes or resuming."""

    run: int
    """The seed of the run."""
    step: int
    """The update."""
    indices: Sequence[int]
    """Of each prompt's completion in its update, over all processes."""


class Sampler(Protocol):
    """Prompts → completions, in the order of the prompts. The seam for another engine. One whose `other_engine` is true
    does not run the policy's own modules: its log-probs are compared with the policy's, and corrected for."""

    def load(self, policy: Any) -> None:
        """Sample from this policy's current weights from now on. Called before every update."""
        ...

    def sample(self, prompts: Sequence[Sequence[int]], seed: Seed | None) -> list[Sampled]:
        """One completion for each prompt; without a seed, the likeliest id each time. The same prompt may stand there
        many times: a group."""
        ...


def uniforms(seed: int, step: int, indices: Sequence[int], length: int) -> "NDArray[np.float32]":
    """(len(indices), length) numbers in [0, 1), without a state: row r is a function of the seed, the step and
    `indices[r]`, the completion's number in this step. The start of a row does not depend on its length.

    >>> uniforms(7, 0, [3, 4], 2).tolist() == [uniforms(7, 0, [i], 5)[0, :2].tolist() for i in (3, 4)]
    True
    """
    import numpy as np

    rows = np.empty((len(indices), length), dtype=np.float32)
    key = np.array([seed % 2**64, step % 2**64], dtype=np.uint64)
    for row, index in zip(rows, indices, strict=True):
        # Philox counts up in the first word of its counter; the second one holds the index, so no two rows meet.
        # The raw words are numpy's promise for all versions, which the numbers of its Generator are not.
        counter = np.array([0, index % 2**64, 0, 0], dtype=np.uint64)
        words = np.random.Philox(key=key, counter=counter).random_raw((length + 1) // 2)
        halves = words.astype("<u8").view("<u4")[:length]
        row[:] = (halves >> 8) * np.float32(2**-24)
    return rows


def sampler_for(
    policy: Any, settings: SamplingSettings, *, end_ids: Sequence[int], pad_id: int, world: World = ALONE
) -> Sampler:
    """The sampler of a training run. A user's own is named as `package.module:object` and made the same way."""
    if settings.sampler in SERVED:
        served: Sampler = import_object(SERVED[settings.sampler], "sampling.sampler")(
            policy, settings, end_ids=end_ids, world=world
        )
        return served
    own = find_plugin(settings.sampler, dict.fromkeys((*OURS, *SERVED)), "sampling.sampler")
    if own is None:
        if settings.dtype == "auto" and in_bf16(policy):
            settings = replace(settings, dtype="bfloat16")
        return ModelSampler(policy.model, settings, end_ids=end_ids, pad_id=pad_id, value_head=policy.value_head)
    sampler: Sampler = own(policy, settings, end_ids=end_ids, pad_id=pad_id)
    return sampler


def in_bf16(policy: Any) -> bool:
    """Whether `sampling.dtype=auto` is bfloat16 here, and not the model's own dtype: the policy is trained in it, and
    the device multiplies bf16 matrices faster than those of 32 bits."""
    from text2grad.models.products import multiplies_bf16

    device, trained_in = policy.model.device, getattr(getattr(policy, "options", None), "precision", "float32")
    return trained_in == "bfloat16" and (device.type == "cuda" or (device.type == "cpu" and multiplies_bf16()))


class ModelSampler:
    """Samples from a model in this process, whose weights are read anew in each call. Fast until it meets a model, or
    an adapter, that the fast sampler does not know; with the setting `fast` that raises `UnsupportedModel`."""

    def __init__(
        self, model: Any, settings: SamplingSettings, *, end_ids: Sequence[int], pad_id: int, value_head: Any = None
    ) -> None:
        """`model`: a causal model of transformers, or peft's around one. `value_head`: None, or hidden (…, H) → (…) or
        (…, 1), read from the hidden state that gives the logits."""
        self.settings, self.end_ids, self.pad_id = settings, tuple(end_ids), pad_id
        self.on_ended: Callable[[int, Sampled], object] | None = None
        """Called with a prompt's place and its completion while others are still sampled, once for each; again
        only where memory ran out, and sampling once more gave other ids."""
        self._over(model, value_head)

    def _over(self, model: Any, value_head: Any) -> None:
        from text2grad.models.sampling.fast import FastDecoder
        from text2grad.models.sampling.plain import PlainDecoder

        self.model = model
        self._positions: int | None = getattr(model.config, "max_position_embeddings", None)
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        if not 0 <= self.pad_id < self._vocabulary:
            # Rows that have ended are fed it.
            raise InvalidData(
                f"pad_id should be an id that the model reads, 0 to {self._vocabulary - 1}, got {self.pad_id}; any "
                f"will do"
            )
        options = (model, self.settings, self.end_ids, self.pad_id, value_head)
        self._plain = PlainDecoder(*options)
        self.decoder: PlainDecoder | FastDecoder = self._plain
        if self.settings.sampler != "plain":
            try:
                self.decoder = FastDecoder(*options)
            except UnsupportedModel as reason:
                self._fall_back(reason)

    @property
    def batch(self) -> int:
        """Completions decoded at once."""
        return self.decoder.batch

    @batch.setter
    def batch(self, rows: int) -> None:
        self.decoder.batch = rows

    def load(self, policy: Any) -> None:
        if policy.model is not self.model:
            self._over(policy.model, policy.value_head)

    def sample(self, prompts: Sequence[Sequence[int]], seed: Seed | None) -> list[Sampled]:
        limit = self.settings.max_new_tokens
        return self(prompts, None if seed is None else uniforms(seed.run, seed.step, seed.indices, limit))

    def __call__(self, prompts: Sequence[Sequence[int]], draws: "NDArray[np.float32] | None") -> list[Sampled]:
        """`draws`: one row per prompt, `max_new_tokens` numbers in [0, 1) each; None takes the likeliest id."""
        self._check(prompts, draws)
        try:
            return self._within_memory(prompts, draws)
        except UnsupportedModel as reason:
            self._fall_back(reason)
            return self._within_memory(prompts, draws)

    def _within_memory(self, prompts: Sequence[Sequence[int]], draws: "NDArray[np.float32] | None") -> list[Sampled]:
        """Half as many at once whenever memory runs out, if the setting leaves it to us."""
        import torch

        results: dict[int, Sampled] = {}
        told: dict[int, tuple[int, ...]] = {}
        while True:
            try:
                return self._decoded(prompts, draws, results, told)
            except torch.OutOfMemoryError:
                if self.settings.batch != "auto" or self.decoder.batch <= 1:
                    raise
            # Outside of `except`: what the exception holds on to is free again here.
            self.decoder.halve()
            log.warning("sampling: memory ran out, so %d completions at once from now on", self.decoder.batch)

    def _decoded(
        self,
        prompts: Sequence[Sequence[int]],
        draws: "NDArray[np.float32] | None",
        results: dict[int, Sampled],
        told: dict[int, tuple[int, ...]],
    ) -> list[Sampled]:
        """In batches: short prompts first, equal ones side by side. `results`: what there is already. `told`: the ids
        of the rows that `on_ended` has heard of."""
        missing = (row for row in range(len(prompts)) if row not in results)
        order = sorted(missing, key=lambda row: (len(prompts[row]), tuple(prompts[row])))
        with self.decoder.ready(prompts):
            for start in range(0, len(order), self.decoder.batch):
                rows = order[start : start + self.decoder.batch]
                chosen = [tuple(prompts[row]) for row in rows]
                self.decoder.ended = None if self.on_ended is None else partial(self._ended, rows, told)
                decoded = self.decoder.decode(chosen, None if draws is None else draws[rows])
                results.update(zip(rows, decoded, strict=True))
                self._ended(rows, told, dict(enumerate(decoded)))
        return [results[row] for row in range(len(prompts))]

    def _ended(self, rows: Sequence[int], told: dict[int, tuple[int, ...]], sampled: Mapping[int, Sampled]) -> None:
        """Tell of the rows of a batch that have ended and were not told yet, or differently."""
        if self.on_ended is not None:
            for place, completion in sampled.items():
                if told.get(rows[place]) != (ids := tuple(completion.token_ids)):
                    told[rows[place]] = ids
                    self.on_ended(rows[place], completion)

    def _check(self, prompts: Sequence[Sequence[int]], draws: "NDArray[np.float32] | None") -> None:
        """Raise `InvalidData` for what the model cannot read, before any tensor is made."""
        new_tokens, most = self.settings.max_new_tokens, self._vocabulary - 1
        for place, prompt in enumerate(prompts):
            if len(prompt) == 0:
                raise InvalidData(
                    f"prompt {place} is empty, and a model needs a token to go on from: begin it with the tokenizer's "
                    f"begin-of-text or end-of-text id"
                )
            if self._positions is not None and len(prompt) + new_tokens > self._positions:
                raise InvalidData(
                    f"prompt {place} has {len(prompt)} tokens, which with max_new_tokens={new_tokens} is more than the "
                    f"{self._positions} positions of the model: shorten the prompt, or lower max_new_tokens"
                )
            if min(prompt) < 0 or max(prompt) > most:
                # On a GPU such an id would end the process, with a message about something else.
                raise InvalidData(
                    f"prompt {place} should hold ids from 0 to {most}, got {min(prompt)} to {max(prompt)}: is "
                    f"its tokenizer the model's?"
                )
        if draws is not None and draws.shape != (len(prompts), new_tokens):
            raise InvalidData(
                f"draws should have the shape ({len(prompts)}, {new_tokens}), a row a prompt and max_new_tokens "
                f"numbers in each, got {draws.shape}"
            )

    def _fall_back(self, reason: UnsupportedModel) -> None:
        if self.settings.sampler == "fast":
            raise reason
        self.decoder = self._plain
        log.warning(
            "sampling with the plain sampler, which is slower: the fast one does not know this model (%s)", reason
        )
