"""Examples → completions: prompts through the tokenizer, ids from the sampler, exact text and offsets of what came.

Enters: examples, or a prompt. Leaves: rollouts that are sampled and not judged yet, or pieces of text. Training,
evaluation and `text2grad generate` complete examples through this one door. Texts come from the sampled ids by
`models/offsets.py`, never from tokenising again.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from text2grad.errors import InvalidData, ModelNotFound, RunError
from text2grad.models.chat import Format, end_ids, prompt_ids
from text2grad.models.load import load_model
from text2grad.models.modes import evaluating, gathered_ends, memory_named, without_plans
from text2grad.models.offsets import completion_of, decode
from text2grad.models.sampling import Sampled, Sampler, SamplingSettings, Seed, sampler_for, uniforms
from text2grad.models.sampling.plain import pick
from text2grad.runs.world import ALONE, World
from text2grad.types import Completion, Example, Message, Rollout

BATCH_TOKENS = 8192
"""Of a pass over given continuations, padding included."""
KEPT = 16384
"""Prompts whose ids are kept: going through the template and the tokenizer again would keep a GPU waiting."""


class Loaded(NamedTuple):
    """A model that is only sampled from, as samplers take a policy."""

    model: Any
    base: Any
    value_head: None = None


class Writer:
    """A policy that completes examples."""

    def __init__(
        self,
        policy: Any,
        tokenizer: Any,
        settings: SamplingSettings,
        form: Format = "auto",
        *,
        world: World = ALONE,
        limit_key: str = "sampling.max_new_tokens",
    ) -> None:
        """`policy`: a `Policy`, or a `Loaded` model. `limit_key`: what the command calls the limit of a completion, for
        messages."""
        self.policy, self.tokenizer, self.settings, self.form = policy, tokenizer, settings, form
        self.world, self.limit_key = world, limit_key
        self.end_ids = end_ids(tokenizer, policy.base)
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end_ids[0]
        self.sampler: Sampler = sampler_for(policy, settings, end_ids=self.end_ids, pad_id=pad_id, world=world)
        self.positions = getattr(policy.base.config.get_text_config(), "max_position_embeddings", None)
        self.room = None if self.positions is None else self.positions - settings.max_new_tokens
        """Tokens that a prompt may have."""
        self._prompts: dict[int, tuple[Example, array[int]]] = {}
        """Ids of prompts that were asked for, and the examples, which keep their numbers as long as they are here."""
        self.on_progress: Callable[[int], object] | None = None
        """Called with the number of completions that have ended meanwhile."""

    @classmethod
    def load(
        cls, name: str, settings: SamplingSettings, form: Format, device: str, dtype: str, **options: Any
    ) -> "Writer":
        """`name`: an alias, a model folder, a run folder, a .gguf file or a hub id."""
        without_plans()
        model, tokenizer = load_model(model_in(name), device=device, dtype=dtype)
        return cls(Loaded(model, model), tokenizer, settings, form, **options)

    def fitted(self, examples: Sequence[Example]) -> "Writer":
        """A writer whose completions also fit behind the longest of these prompts. A limit of 1 is the lowest."""
        if self.positions is None:
            return self
        longest = max(len(self._ids(example, None)) for example in examples)
        limit = max(min(self.settings.max_new_tokens, self.positions - longest), 1)
        return Writer(
            self.policy,
            self.tokenizer,
            replace(self.settings, max_new_tokens=limit),
            self.form,
            world=self.world,
            limit_key=self.limit_key,
        )

    def prompt(self, example: Example) -> list[int]:
        """The ids of its prompt; an error names the example."""
        known = self._prompts.get(id(example))
        if known is not None:
            return known[1].tolist()
        ids = self._ids(example, self.room)
        if len(self._prompts) < KEPT:
            self._prompts[id(example)] = example, array("i", ids)
        return ids

    def _ids(self, example: Example, room: int | None) -> list[int]:
        try:
            return prompt_ids(self.tokenizer, example.prompt, self.form, room=room, key=self.limit_key)
        except InvalidData as problem:
            raise InvalidData(f"example {example.id!r}: {problem}") from None

    def __call__(self, examples: Sequence[Example], seed: Seed | None = None) -> list[Rollout]:
        """One completion for each; without a seed, the likeliest token each time."""
        return self.rollouts(examples, *self.sample(examples, seed))

    def sample(
        self,
        examples: Sequence[Example],
        seed: Seed | None = None,
        on_ended: Callable[[Example, Completion], object] | None = None,
    ) -> tuple[list[list[int]], list[Sampled]]:
        """(ids of prompts, sampled tokens): the same before it is text, which a GPU can go on with. `on_ended`: called
        with completions that end while others are sampled, where the sampler tells."""
        # The completions of a prompt stand side by side here: it goes through the template once.
        read = {
            id(example): self.prompt(example) for example in {id(example): example for example in examples}.values()
        }
        prompts = [read[id(example)] for example in examples]
        tells = hasattr(self.sampler, "on_ended") and (on_ended is not None or self.on_progress is not None)
        if tells:
            self.sampler.on_ended = partial(self._told, examples, on_ended)  # type: ignore[attr-defined]
        try:
            samples = self._sample(prompts, seed)
        finally:
            if tells:
                self.sampler.on_ended = None  # type: ignore[attr-defined]
        if self.on_progress is not None and not tells:
            self.on_progress(len(prompts))
        return prompts, samples

    def _told(
        self,
        examples: Sequence[Example],
        on_ended: Callable[[Example, Completion], object] | None,
        place: int,
        sampled: Sampled,
    ) -> None:
        if place >= len(examples):
            return  # what is sampled to spare is nobody's
        if self.on_progress is not None:
            self.on_progress(1)
        if on_ended is not None:
            on_ended(examples[place], completion_of(self.tokenizer, sampled.token_ids))

    def rollouts(
        self, examples: Sequence[Example], prompts: Sequence[Sequence[int]], samples: Sequence[Sampled]
    ) -> list[Rollout]:
        """What was sampled, as text."""
        return [
            Rollout(
                example,
                completion_of(self.tokenizer, sample.token_ids),
                prompt_ids=tuple(prompt),
                logprobs=sample.logprobs,
                values=sample.values,
                truncated=sample.truncated,
            )
            for example, prompt, sample in zip(examples, prompts, samples, strict=True)
        ]

    def rewritten(self, rollouts: Sequence[Rollout], kept: Sequence[int], seed: Seed) -> list[Rollout]:
        """The same completions up to `kept` tokens each, and sampled anew from there, up to the same limit. One that
        would not fit the model's positions comes back as it is."""
        limit = self.settings.max_new_tokens
        prompts = [
            list(rollout.prompt_ids + rollout.completion.token_ids[:count])
            for rollout, count in zip(rollouts, kept, strict=True)
        ]
        fits = [self.positions is None or len(prompt) + limit <= self.positions for prompt in prompts]
        places = [place for place, fit in enumerate(fits) if fit]
        drawn = Seed(seed.run, seed.step, [seed.indices[place] for place in places])
        again = list(rollouts)
        for place, sample in zip(places, self._sample([prompts[place] for place in places], drawn), strict=True):
            before, room = rollouts[place].completion.token_ids[: kept[place]], limit - kept[place]
            ids = before + sample.token_ids[:room]
            again[place] = Rollout(
                rollouts[place].example,
                completion_of(self.tokenizer, ids),
                prompt_ids=rollouts[place].prompt_ids,
                truncated=sample.truncated or len(sample.token_ids) > room,
            )
        return again

    def reflected(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Each completion written again, greedily, by a policy that sees it and its critique. One that has no critique,
        or does not fit the model's positions with it, comes back as it is."""
        chat = self.form != "plain" and bool(getattr(self.tokenizer, "chat_template", None))
        again, places = list(rollouts), []
        for place, rollout in enumerate(rollouts):
            if rollout.critique is None:
                continue
            example = replace(rollout.example, prompt=_asked_again(rollout, chat))
            if self.room is None or len(self._ids(example, None)) <= self.room:
                again[place] = replace(rollout, example=example)
                places.append(place)
        written = self([again[place].example for place in places])
        for place, rollout in zip(places, written, strict=True):
            again[place] = replace(rollout, example=rollouts[place].example)
        return again

    def followed(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """The answer to each example's next turn (its column `turns`), in sight of the completion so far. The example
        that comes back has that conversation for a prompt, and the turns that are left."""
        examples = []
        for rollout in rollouts:
            prompt, columns = rollout.example.prompt, dict[str, Any](rollout.example.columns)
            turns, references = columns.pop("turns"), columns.pop("turn_references", None) or []
            if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
                raise InvalidData(f"example {rollout.example.id!r}: turns should be a list of texts, got {turns!r:.60}")
            before = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
            asked = (*before, Message("assistant", rollout.completion.text), Message("user", str(turns[0])))
            left = {"turns": turns[1:], "turn_references": references[1:]}
            columns |= {name: value for name, value in left.items() if value}
            reference = str(references[0]) if references else None
            examples.append(replace(rollout.example, prompt=asked, reference=reference, columns=columns))
        return self(examples)

    def likelihoods(self, pairs: Sequence[tuple[Example, str]]) -> list[tuple[float, int]]:
        """(log-prob, number of tokens) of each text as a completion of its example."""
        chat = self.form != "plain" and bool(getattr(self.tokenizer, "chat_template", None))
        given = []
        for example, text in pairs:
            joined = text if chat or text[:1].isspace() else f" {text}"
            given.append((self.prompt(example), self.tokenizer.encode(joined, add_special_tokens=False)))
        module = self.policy if isinstance(self.policy, torch.nn.Module) else self.policy.model
        with memory_named("reading choices", "sampling.batch"), evaluating(module):
            sums = continuation_logprobs(self.policy.model, given, self.end_ids[0])
        return [(found, len(ids)) for found, (_, ids) in zip(sums, given, strict=True)]

    @property
    def other_engine(self) -> bool:
        """Whether something else than the policy's own modules samples."""
        return bool(getattr(self.sampler, "other_engine", False))

    def _sample(self, prompts: list[list[int]], seed: Seed | None) -> list[Sampled]:
        if self.other_engine:
            self.sampler.load(self.policy)
            return self.sampler.sample(prompts, seed)
        # Where weights are gathered from other processes, all decode equally many; what is too much is thrown away.
        spare = self.world.all_max(len(prompts)) - len(prompts) if self.world.sharded else 0
        if seed is not None:
            seed = Seed(seed.run, seed.step, [*seed.indices, *[0] * spare])
        module = self.policy if isinstance(self.policy, torch.nn.Module) else self.policy.model
        with (
            memory_named("sampling", "sampling.batch or sampling.prefill_tokens"),
            evaluating(module),
            gathered_ends(module),
        ):
            self.sampler.load(self.policy)
            samples = self.sampler.sample(prompts + [[0]] * spare, seed)[: len(prompts)]
        if not all(np.isfinite(sample.logprobs).all() for sample in samples):
            raise RunError(
                "the policy gives log-probs that are not finite: its weights have run away, or were so when it began. "
                "Start again in another folder with a lower update.learning_rate"
            )
        return samples

    def stream(self, prompt: str | Sequence[Message], seed: Seed | None = None) -> Iterator[str]:
        """The same completion as a call gives, piece by piece while it is written."""
        ids = self.prompt(Example("prompt", prompt if isinstance(prompt, str) else tuple(prompt)))
        return pieces(self.tokenizer, self._tokens(ids, seed))

    def _tokens(self, prompt: Sequence[int], seed: Seed | None) -> Iterator[int]:
        limit, model = self.settings.max_new_tokens, self.policy.model
        draws_BT = None
        if seed is not None:
            draws_BT = torch.from_numpy(uniforms(seed.run, seed.step, seed.indices, limit)).to(model.device)
        feed_BP, cache = torch.tensor([list(prompt)], device=model.device), None
        for step in range(limit):
            with torch.no_grad():
                output = model(input_ids=feed_BP, past_key_values=cache, use_cache=True)
            draw_B = None if draws_BT is None else draws_BT[:, step]
            ids_B, _ = pick(output.logits[:, -1], draw_B, self.settings.temperature)
            yield int(ids_B)
            if int(ids_B) in self.end_ids:
                return
            feed_BP, cache = ids_B[:, None], output.past_key_values


@torch.no_grad()
def continuation_logprobs(model: Any, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], pad_id: int) -> list[float]:
    """The sum over each continuation's tokens of log p(token | prompt, tokens before it); 0 for an empty one."""
    sums = [0.0] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda place: -sum(map(len, pairs[place])))
    while order:
        width = max(2, sum(map(len, pairs[order[0]])))
        chosen, order = order[: max(1, BATCH_TOKENS // width)], order[max(1, BATCH_TOKENS // width) :]
        rows = [[*pairs[place][0], *pairs[place][1]] for place in chosen]
        ids_BT = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows], device=model.device)
        mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
        logits_BTV = model(input_ids=ids_BT, attention_mask=mask_BT).logits
        for row, place in enumerate(chosen):
            begin, end = len(pairs[place][0]), len(rows[row])
            if begin == end:
                continue
            # The logits before a token say how likely it is. Only these rows of the vocabulary become float32.
            logprobs_TV = logits_BTV[row, begin - 1 : end - 1].float().log_softmax(-1)
            taken_T = ids_BT[row, begin:end, None]
            sums[place] = float(logprobs_TV.gather(-1, taken_T).sum())
    return sums


REFLECT = "A reviewer says: {feedback}\n\nWrite it again, without these faults. Write nothing else."


def _asked_again(rollout: Rollout, chat: bool) -> str | tuple[Message, ...]:
    """The prompt, the completion and its critique, as a conversation where the model knows them, else as a text."""
    assert rollout.critique is not None
    critique, prompt, text = rollout.critique, rollout.example.prompt, rollout.completion.text
    omitted = [f"It does not mention {part}." for part in critique.omissions if part not in critique.feedback]
    said = REFLECT.format(feedback=" ".join([critique.feedback.strip(), *omitted]))
    if not chat and isinstance(prompt, str):
        return f"{prompt}{text}\n\n{said}\n\n"
    turns = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
    return (*turns, Message("assistant", text), Message("user", said))


def pieces(tokenizer: Any, tokens: Iterable[int]) -> Iterator[str]:
    """Token ids → text as soon as it is settled. A character that is not complete yet waits for its other tokens."""
    ids: list[int] = []
    shown = text = ""
    for token in tokens:
        ids.append(token)
        text, _ = decode(tokenizer, ids)
        settled = text.rstrip("\ufffd")
        if len(settled) > len(shown) and settled.startswith(shown):
            yield settled[len(shown) :]
            shown = settled
    if len(text) > len(shown):
        yield text[len(shown) :]


def model_in(name: str) -> str:
    """The model that a name means: of a run folder, the model that the run has trained.

    >>> model_in("smollm2-135m")
    'smollm2-135m'
    """
    folder = Path(name).expanduser()
    if not (folder / "config.yaml").is_file() or (folder / "config.json").is_file():
        return name
    if not (folder / "model" / "config.json").is_file():
        raise ModelNotFound(f"{name}: this run has no model yet; run its command again to finish it")
    return str(folder / "model")
