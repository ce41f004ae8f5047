"""Small GGUF files, quantised for real, for tests of reading them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYERS, WIDTH, INNER, HEADS, KV_HEADS = 2, 64, 128, 4, 2


def tiny_gguf(path: Path, tokenizer: Any, end_token: bool = True) -> Path:
    """A two-layer Llama in Q4_1 with this byte-level tokenizer; `end_token` False leaves its end token out."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokenizer))
    _add_tokenizer(writer, tokenizer, end_token)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = rng.normal(0, 0.1, (rows, columns)).astype(np.float32)
        quantised = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor(name, quantised, raw_dtype=gguf.GGMLQuantizationType.Q4_1)

    matrix("token_embd.weight", len(tokenizer), WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    for layer in range(LAYERS):
        head = WIDTH // HEADS
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", KV_HEADS * head, WIDTH),
            ("attn_v", KV_HEADS * head, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", INNER, WIDTH),
            ("ffn_up", INNER, WIDTH),
            ("ffn_down", WIDTH, INNER),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, tokenizer: Any, end_token: bool) -> None:
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    special = set(tokenizer.all_special_tokens) | {token["content"] for token in state["added_tokens"]}
    tokens = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in state["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.convert_tokens_to_ids("<|im_start|>"))
    if end_token:
        writer.add_eos_token_id(tokenizer.eos_token_id)
        writer.add_pad_token_id(tokenizer.pad_token_id)
