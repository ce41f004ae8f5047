"""A loaded model that completes examples: what the Evaluator calls, and what `text2grad generate` streams from.

Enters: the name of a model, then examples or a prompt. Leaves: rollouts that are not judged yet, or pieces of text.
Texts come from the sampled ids by `models.offsets`, never from tokenising again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from text2grad.errors import InvalidData, ModelNotFound
from text2grad.models.chat import Format, end_ids, prompt_ids
from text2grad.models.load import load_model
from text2grad.models.offsets import completion_of, decode
from text2grad.models.sampling import SamplingSettings, Seed, make_sampler, uniforms
from text2grad.models.sampling.pick import pick
from text2grad.types import Example, Message, Rollout


class Writer:
    """Completes prompts with one model."""

    def __init__(self, model: Any, tokenizer: Any, sampling: SamplingSettings, form: Format = "auto") -> None:
        self.model, self.tokenizer, self.settings, self.form = model, tokenizer, sampling, form
        self.end_ids = end_ids(tokenizer, model)
        self.positions: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end_ids[0]
        self._sampler = make_sampler(model, sampling, end_ids=self.end_ids, pad_id=pad_id)
        self.on_progress: Callable[[int], object] = lambda _count: None
        """Called with the number of completions after each batch."""

    @classmethod
    def load(cls, name: str, sampling: SamplingSettings, form: Format, device: str, dtype: str) -> "Writer":
        """`name`: an alias, a model folder, a run folder, a .gguf file or a hub id."""
        return cls(*load_model(model_in(name), device=device_named(device), dtype=dtype), sampling, form)

    def __call__(self, examples: Sequence[Example], seed: Seed | None) -> list[Rollout]:
        """One completion for each; without a seed, the likeliest token each time."""
        prompts = [self.prompt_ids(example.prompt, example.id) for example in examples]
        rollouts: dict[int, Rollout] = {}
        # Short prompts first, so that the prompts of a batch have about the same length.
        order = sorted(range(len(prompts)), key=lambda place: (len(prompts[place]), place))
        for start in range(0, len(order), self.settings.batch):
            places = order[start : start + self.settings.batch]
            draw = None if seed is None else Seed(seed.run, seed.step, [seed.indices[place] for place in places])
            sampled = self._sampler.sample([prompts[place] for place in places], draw)
            for place, one in zip(places, sampled, strict=True):
                rollouts[place] = Rollout(
                    examples[place],
                    completion_of(self.tokenizer, one.token_ids),
                    prompt_ids=tuple(prompts[place]),
                    logprobs=one.logprobs,
                    truncated=one.truncated,
                )
            self.on_progress(len(places))
        return [rollouts[place] for place in range(len(examples))]

    def prompt_ids(self, prompt: str | Sequence[Message], name: str) -> list[int]:
        """The ids of a prompt; an error names the example."""
        try:
            ids = prompt_ids(self.tokenizer, prompt, self.form)
        except InvalidData as problem:
            raise InvalidData(f"example {name!r}: {problem}") from None
        limit = self.settings.max_new_tokens
        if self.positions is not None and len(ids) + limit > self.positions:
            raise InvalidData(
                f"example {name!r}: the prompt has {len(ids)} tokens, which with max_new_tokens={limit} is more than "
                f"the {self.positions} positions of the model: shorten the prompt, or lower max_new_tokens"
            )
        return ids

    def stream(self, prompt: str | Sequence[Message], seed: Seed | None) -> Iterator[str]:
        """The same completion as a call gives, piece by piece while it is written."""
        return pieces(self.tokenizer, self._tokens(self.prompt_ids(prompt, "prompt"), seed))

    def _tokens(self, prompt: Sequence[int], seed: Seed | None) -> Iterator[int]:
        limit, device = self.settings.max_new_tokens, self.model.device
        draws_BT = None
        if seed is not None:
            draws_BT = torch.from_numpy(uniforms(seed.run, seed.step, seed.indices, limit)).to(device)
        feed_BP, cache = torch.tensor([list(prompt)], device=device), None
        for step in range(limit):
            with torch.no_grad():
                output = self.model(input_ids=feed_BP, past_key_values=cache, use_cache=True)
            draw_B = None if draws_BT is None else draws_BT[:, step]
            ids_B, _ = pick(output.logits[:, -1], draw_B, self.settings.temperature)
            yield int(ids_B)
            if int(ids_B) in self.end_ids:
                return
            feed_BP, cache = ids_B[:, None], output.past_key_values


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


def device_named(name: str) -> str:
    """`auto` is cuda where there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


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
