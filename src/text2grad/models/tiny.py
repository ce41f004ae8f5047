"""A tiny Llama with random weights and a tokenizer to match, built in code in a moment: for tests and tutorials.

It writes noise, but its shapes, cache, templates and byte-level tokens behave as those of the real ones.
"""

from collections.abc import Iterable
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_TEXT = (
    "The harbour was closed at noon after a crane fell; nobody was hurt, said the port's master on Monday.",
    "def add(a, b):\n    return a + b\n\n\tfor i in range(10): print(i)  # tabs and spaces",
    "Which river runs through the valley? The answer names the Drava, but the text says the Mura.",
    "Naïve café, 漢字かな交じり文, Привет, שלום, 🙂🚒👩‍🚀",
)


def tiny_tokenizer(texts: Iterable[str] = _TEXT, vocab_size: int = 400) -> Any:
    """A byte-level BPE tokenizer trained on a few sentences; every text encodes, decoding gives it back."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(tokenizer: Any, *, seed: int = 0, hidden_size: int = 32, layers: int = 2) -> Any:
    """A Llama of a few ten thousand parameters for this tokenizer; the same seed gives the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()
