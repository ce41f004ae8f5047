"""Prompts as ids: through the model's template or plain, never with an end token, never more than there is room for."""

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken

from text2grad.errors import ConfigError, InvalidData, ModelError
from text2grad.models.chat import end_ids, prompt_ids, turn_end
from text2grad.models.tiny import tiny_tokenizer
from text2grad.types import Message


@pytest.fixture
def bare() -> Any:
    """Without a template."""
    made = tiny_tokenizer()
    made.chat_template = None
    return made


def test_a_text_is_one_user_turn_where_there_is_a_template(tokenizer: Any) -> None:
    wanted = "<|im_start|>user\nHi 🙂<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(prompt_ids(tokenizer, "Hi 🙂")) == wanted
    assert tokenizer.decode(prompt_ids(tokenizer, "Hi 🙂", "chat")) == wanted


def test_plain_is_the_text_as_it_is(tokenizer: Any, bare: Any) -> None:
    assert tokenizer.decode(prompt_ids(tokenizer, "Hi", "plain")) == "Hi"
    assert bare.decode(prompt_ids(bare, "Hi")) == "Hi"


def test_a_conversation_ends_where_the_assistant_writes(tokenizer: Any) -> None:
    turns = [Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Ho"), Message("user", "And?")]
    decoded = tokenizer.decode(prompt_ids(tokenizer, turns))
    assert decoded.endswith("Ho<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n")
    assert decoded.startswith("<|im_start|>system\nBe brief.")


def test_an_end_token_that_the_tokenizer_adds_is_taken_off(tokenizer: Any) -> None:
    class Closing:
        chat_template = None
        eos_token_id = tokenizer.eos_token_id

        def __call__(self, text: str, **_: Any) -> Any:
            return SimpleNamespace(input_ids=[*tokenizer(text).input_ids, self.eos_token_id])

    assert prompt_ids(Closing(), "Hi") == tokenizer("Hi").input_ids


def test_what_cannot_be_a_prompt(tokenizer: Any, bare: Any) -> None:
    with pytest.raises(InvalidData, match="ends with its turn"):
        prompt_ids(tokenizer, [Message("user", "Hi"), Message("assistant", "Ho")])
    with pytest.raises(ConfigError, match="use format=plain"):
        prompt_ids(bare, "Hi", "chat")
    with pytest.raises(ConfigError, match="wants a tokenizer with a chat template"):
        prompt_ids(bare, [Message("user", "Hi")])
    with pytest.raises(InvalidData, match=r"has 2 tokens, and the model has room for 1 .*max_new_tokens"):
        prompt_ids(bare, "Hi", room=1)
    assert len(prompt_ids(bare, "Hi", room=2)) == 2


def test_a_template_that_refuses_a_role_says_so() -> None:
    strict = tiny_tokenizer()
    strict.chat_template = "{{ raise_exception('no system turns here') }}"
    with pytest.raises(InvalidData, match="chat template refuses this conversation: no system turns here"):
        prompt_ids(strict, [Message("system", "Be brief."), Message("user", "Hi")])


def test_end_ids_are_those_of_tokenizer_and_model(tokenizer: Any) -> None:
    def model(named: Any) -> Any:
        return SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=named))

    end = tokenizer.eos_token_id
    assert end_ids(tokenizer, model(None)) == (end,)
    assert end_ids(tokenizer, model(end)) == (end,)
    assert end_ids(tokenizer, model([end, 7])) == (end, 7)
    assert end_ids(SimpleNamespace(eos_token_id=None), model(7)) == (7,)
    assert end_ids(tokenizer, SimpleNamespace(generation_config=None)) == (end,)
    with pytest.raises(ModelError, match=r"set tokenizer\.eos_token"):
        end_ids(SimpleNamespace(eos_token_id=None), model(None))


def test_the_token_that_the_template_closes_a_turn_with_ends_a_completion() -> None:
    """As base models with a chat template have it: the end token ends texts, another one ends turns."""
    made = tiny_tokenizer()
    made.eos_token = "<|endoftext|>"
    text_end, closing = made.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=text_end))
    ends = end_ids(made, model)
    assert ends == (text_end, closing)
    assert turn_end(made, "Hi", ends) == closing
    assert turn_end(made, [Message("user", "Hi")], ends, "plain") == closing
    assert turn_end(made, "Hi", ends, "plain") == text_end
    # A template that closes a turn with nothing of its own, and one that refuses the question.
    made.chat_template = "{% for turn in messages %}{{ turn.content }}{% endfor %}"
    assert end_ids(made, model) == (text_end,)
    made.chat_template = "{{ raise_exception('no') }}"
    assert end_ids(made, model) == (text_end,)


def test_a_template_that_wants_a_system_turn_is_asked_with_one() -> None:
    made = tiny_tokenizer()
    made.eos_token = "<|endoftext|>"
    text_end, closing = made.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    refuses = "{% if messages[0].role != 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    made.chat_template = refuses + made.chat_template
    ends = end_ids(made, SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=text_end)))
    assert ends == (text_end, closing)
    assert turn_end(made, [Message("system", "Be brief."), Message("user", "Hi")], ends) == closing


def test_a_blank_line_ends_no_completion() -> None:
    """Tokenizers that add runs of line ends list them beside their special tokens."""
    made = tiny_tokenizer()
    made.add_tokens([AddedToken("\n\n", normalized=False)])
    made.chat_template = "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\n\n{% endfor %}"
    blank = made.convert_tokens_to_ids("\n\n")
    assert blank in made("One.\n\nTwo.").input_ids
    assert blank not in end_ids(made, SimpleNamespace(generation_config=None))
