"""Prompts and conversations → ids, by the model's own chat template.

Enters: a tokenizer and what a user wrote. Leaves: ids that end where the completion begins. In a conversation only the
last assistant turn is ever written and trained; everything before it is prompt.
"""

from collections.abc import Sequence
from typing import Any, Literal

from jinja2 import TemplateError

from text2grad.errors import ConfigError, InvalidData, ModelError, first_line
from text2grad.models.checks import ends_apart, memory_bound, within
from text2grad.types import Message

TEMPLATE_SECONDS = 10.0
TEMPLATE_MEMORY = 1 << 30
MOST_WRITTEN, MOST_PER_CHARACTER = 200_000, 20
"""Characters that a template may write of its own, for some bring long instructions, and per character that is said."""
_TRIED: set[str] = set()
"""Templates that have ended once."""
Format = Literal["auto", "chat", "plain"]
"""chat: through the template, a text as one user turn. plain: the text as it is. auto: chat where the tokenizer has a
template."""


def prompt_ids(
    tokenizer: Any,
    prompt: str | Sequence[Message],
    form: Format = "auto",
    *,
    room: int | None = None,
    key: str = "sampling.max_new_tokens",
) -> list[int]:
    """Ids up to where the assistant begins to write; at least one, and no more than there is room for. `key`: what the
    setting is called that leaves so much room."""
    ids = _ids(tokenizer, prompt, form)
    if not ids:
        raise InvalidData("the prompt has no token, and a model needs one to go on from")
    if room is not None and len(ids) > room:
        raise InvalidData(
            f"the prompt has {len(ids)} tokens, and the model has room for {max(room, 0)} before a completion of "
            f"{key}; shorten the prompt, leave the example out, or lower {key}"
        )
    return ids


def _ids(tokenizer: Any, prompt: str | Sequence[Message], form: Format) -> list[int]:
    template = getattr(tokenizer, "chat_template", None)
    if form == "chat" and not template:
        raise ConfigError("format=chat wants a tokenizer with a chat template, and this one has none; use format=plain")
    if isinstance(prompt, str) and (form == "plain" or not template):
        return open_ids(tokenizer, prompt)
    if not template:
        raise ConfigError(
            "a prompt that is a conversation wants a tokenizer with a chat template, and this one has none; give "
            "prompts as texts, or set tokenizer.chat_template and save the model's folder again"
        )
    turns = [Message("user", prompt)] if isinstance(prompt, str) else list(prompt)
    if turns[-1].role == "assistant":
        raise InvalidData("a prompt should end where the assistant is to write, got one that ends with its turn")
    said = [{"role": turn.role, "content": turn.content} for turn in turns]
    try:
        text = rendered(tokenizer, said, add_generation_prompt=True)
    except TemplateError as problem:
        raise InvalidData(f"the model's chat template refuses this conversation: {first_line(problem)}") from None
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def rendered(tokenizer: Any, said: Sequence[dict[str, str]], **options: Any) -> str:
    """A conversation as the chat template writes it. A template is somebody else's program: one that does not end, or
    writes without measure, is stopped."""

    def render() -> Any:
        with memory_bound(TEMPLATE_MEMORY):
            return tokenizer.apply_chat_template(said, tokenize=False, **options)

    try:
        if (template := str(tokenizer.chat_template)) not in _TRIED:
            ends_apart(render, TEMPLATE_SECONDS, "it")
            _TRIED.add(template)
        with within(TEMPLATE_SECONDS, "it"):
            text = render()
    except TemplateError:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever the template does
        raise ModelError(f"the model's chat template fails ({first_line(problem, named=True)})") from None
    most = MOST_WRITTEN + MOST_PER_CHARACTER * sum(len(turn["content"]) for turn in said)
    if not isinstance(text, str) or len(text) > most:
        raise ModelError(f"the model's chat template writes {len(text):,} characters for a conversation that is short")
    return text


def open_ids(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text that is to go on: some tokenizers close every text with their end token."""
    ids = tokenizer(text, add_special_tokens=True).input_ids
    return list(ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids)


def completion_ids(tokenizer: Any, completion: str, end: int) -> list[int]:
    """Ids of a given completion, closed by an end token: what a policy should have written after `prompt_ids`."""
    return [*tokenizer(completion, add_special_tokens=False).input_ids, end]


def turn_end(tokenizer: Any, prompt: str | Sequence[Message], ends: Sequence[int], form: Format = "auto") -> int:
    """The one of the end tokens that closes a completion of this prompt: the template's, or the tokenizer's own."""
    own = int(tokenizer.eos_token_id)
    closing = None if form == "plain" and isinstance(prompt, str) else template_end(tokenizer)
    return closing if closing in ends else own  # type: ignore[return-value]


def template_end(tokenizer: Any) -> int | None:
    """The token that the chat template closes an assistant turn with: the first after its words that is no word."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    mark = "cranes"
    said = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": mark}]
    for turns in (said, [{"role": "system", "content": "Be brief."}, *said]):
        try:
            _, found, after = rendered(tokenizer, turns).rpartition(mark)
        except TemplateError:
            continue
        added = getattr(tokenizer, "added_tokens_decoder", {})
        # Some tokenizers add runs of spaces and line ends: those are in texts.
        own = {*tokenizer.all_special_ids, *(one for one, token in added.items() if str(token).strip())}
        ids = tokenizer(after, add_special_tokens=False).input_ids if found else []
        return next((int(one) for one in ids if one in own), None)
    return None


def end_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """Ids that end a completion: the tokenizer's end token, those that the model's own settings name, and the one that
    the chat template closes a turn with."""
    named = getattr(model.generation_config, "eos_token_id", None)
    listed = [named] if named is None or isinstance(named, int) else list(named)
    found = tuple(
        one for one in dict.fromkeys([tokenizer.eos_token_id, *listed, template_end(tokenizer)]) if one is not None
    )
    if not found:
        raise ModelError("neither the tokenizer nor the model names a token that ends a text; set tokenizer.eos_token")
    return found
