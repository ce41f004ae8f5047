"""Models are data: what a folder or a GGUF file holds runs nothing, hangs nothing, and ends in one clear line."""

import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.gguf_files import tiny_gguf
from tests.models.test_load import load_from_hub
from text2grad.cli import main
from text2grad.models import chat, load
from text2grad.models.checks import within
from text2grad.models.load import load_model

PROMPT = ["--prompt", "Say " + "a" * 40 + "b, please.", "device=cpu", "max_new_tokens=4"]
Damage = Callable[[Path], object]


def changed(file: str, **values: Any) -> Damage:
    """Settings of a JSON file laid over what is there."""

    def damage(folder: Path) -> None:
        path = folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return damage


def config(**values: Any) -> Damage:
    return changed("config.json", **values)


def written(file: str, text: str) -> Damage:
    return lambda folder: (folder / file).write_text(text)


def pipe(file: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / file).unlink()
        os.mkfifo(folder / file)

    return damage


def moved(name: str) -> Damage:
    """The weights lie elsewhere, and the index says where."""

    def damage(folder: Path) -> None:
        target = folder / name.format(folder.parent)
        weights = load_file(folder / "model.safetensors")
        shutil.move(folder / "model.safetensors", target)
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name.format(folder.parent))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return damage


def linked(name: str) -> Damage:
    """The weights lie beside the folder; a link of this name leads there, and an index where it is another name."""

    def damage(folder: Path) -> None:
        if name != "model.safetensors":
            moved(name)(folder)
        shutil.move(folder / name, folder.parent / "above.safetensors")
        (folder / name).symlink_to("../above.safetensors")

    return damage


class Runs:
    """Pickled, it touches a file when it is read."""

    def __reduce__(self) -> Any:
        return os.system, ("touch PWNED",)


def pickled(content: Any) -> Damage:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(content or weights, folder / "pytorch_model.bin")

    return damage


def adapter(base: str, weights: str, decoy: str = "") -> Damage:
    """An adapter alone, of this base; beside it, perhaps, weights that nobody reads."""

    def damage(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": base}))
        torch.save({"x": Runs()}, folder / weights)
        if decoy:
            save_file({"x": torch.zeros(1)}, folder / decoy)

    return damage


def remote(folder: Path) -> None:
    config(model_type="evil", auto_map={"AutoConfig": "evil.E", "AutoModelForCausalLM": "evil.M"})(folder)
    (folder / "evil.py").write_text("open('PWNED', 'w')\nfrom transformers import PretrainedConfig as E\n")


def remote_tokenizer(folder: Path) -> None:
    changed("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}, tokenizer_class="Evil")(folder)
    (folder / "evil.py").write_text("open('PWNED', 'w')\n")


def replacing(times: int) -> Damage:
    rule = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return changed("tokenizer.json", normalizer={"type": "Sequence", "normalizers": [rule] * times})


def adding(pieces: int, ids: int) -> Damage:
    """A post-processor of few bytes that puts many ids before every text."""
    piece, token = {"SpecialToken": {"id": "x", "type_id": 0}}, {"id": "x", "ids": [0] * ids, "tokens": ["a"] * ids}
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    rule = {
        "type": "TemplateProcessing",
        "single": [piece] * pieces + text,
        "pair": text,
        "special_tokens": {"x": token},
    }
    return changed("tokenizer.json", post_processor=rule)


def split(regex: str) -> Damage:
    rule = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return changed("tokenizer.json", pre_tokenizer=rule)


def template(text: Any) -> Damage:
    def damage(folder: Path) -> None:
        (folder / "chat_template.jinja").unlink()
        changed("tokenizer_config.json", chat_template=text)(folder)

    return damage


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
LOOP += "{% endfor %}{% endfor %}{% endfor %}"

REFUSED: dict[str, tuple[Damage, str]] = {
    "code of the folder": (remote, "custom code"),
    "code of its tokenizer": (remote_tokenizer, "custom code"),
    "pickled code": (pickled({"x": Runs()}), "a pickled file can run any code"),
    "pickled weights": (pickled(None), "a pickled file can run any code"),
    "pickled shard": (moved("a.bin"), "should name .safetensors files of this folder"),
    "shard above": (moved("../above.safetensors"), "should name .safetensors files of this folder"),
    "shard elsewhere": (moved("{}/else.safetensors"), "should name .safetensors files of this folder"),
    "weights behind a link": (linked("model.safetensors"), "is a link that leads out of it"),
    "shard behind a link": (linked("a.safetensors"), "is a link that leads out of it"),
    "pickled adapter": (adapter("none", "adapter_model.bin"), "a pickled file can run any code"),
    "pickled adapter beside others": (
        adapter("none", "adapter_model.bin", decoy="model.safetensors"),
        "a pickled file can run any code",
    ),
    "pickled weights beside others": (
        lambda f: (pickled(None)(f), save_file({"x": torch.zeros(1)}, f / "other.safetensors")),
        "a pickled file can run any code",
    ),
    "adapter of itself": (adapter("model", "adapter_model.safetensors"), "is an adapter, too"),
    "adapter of nothing": (adapter("none/at all", "adapter_model.safetensors"), "there is no such folder"),
    "index of a number": (written("model.safetensors.index.json", '{"weight_map": 5}'), "should name .safetensors"),
    "index of a list": (written("model.safetensors.index.json", "[]"), "should be one JSON object"),
    "weights in a pipe": (pipe("model.safetensors"), "is a pipe"),
    "settings in a pipe": (pipe("config.json"), "has no config.json"),
    "tokenizer in a pipe": (pipe("tokenizer.json"), "is a pipe"),
    "weights cut off": (lambda f: os.truncate(f / "model.safetensors", 500), "could not be read"),
    "no weights at all": (lambda f: os.truncate(f / "model.safetensors", 0), "could not be read"),
    "settings without end": (written("config.json", '{"a":' * 50_000), "could not be read"),
    "settings in a list": (written("config.json", "[1]"), "could not be read"),
    "a number without end": (written("config.json", '{"hidden_size": ' + "9" * 6000 + "}"), "could not be read"),
    "width 0": (config(hidden_size=0), "could not be read"),
    "width below 0": (config(hidden_size=-1), "could not be read"),
    "width 1e9": (config(hidden_size=10**9), "asks for"),
    "width in words": (config(hidden_size="wide"), "could not be read"),
    "heads 0": (config(num_attention_heads=0), "could not be read"),
    "heads 3": (config(num_attention_heads=3), "could not be read"),
    "key heads 0": (config(num_key_value_heads=0), "could not be read"),
    "key heads 1e9": (config(num_key_value_heads=10**9), "asks for"),
    "head size 0": (config(head_dim=0), "could not be read"),
    "layers 1e7": (config(num_hidden_layers=10**7), "asks for 10,000,000 layers"),
    "layers by another name": (
        config(model_type="opt", num_hidden_layers=10**7, ffn_dim=8, word_embed_proj_dim=16),
        "asks for 10,000,000 layers",
    ),
    "decoder layers 1e7": (
        config(model_type="bart", d_model=16, decoder_layers=10**7, decoder_ffn_dim=8, decoder_attention_heads=2),
        "asks for more layers than",
    ),
    "attention types without end": (
        config(model_type="gpt_neo", attention_types=[[["global"], 10**9]]),
        "could not be read",
    ),
    "masks of 2 GiB": (
        config(
            model_type="gpt_neo",
            hidden_size=4,
            num_heads=1,
            intermediate_size=4,
            max_position_embeddings=16_500,
            num_layers=9,
            num_hidden_layers=9,
            attention_types=[[["global"], 9]],
        ),
        "asks for 2 GiB of tables",
    ),
    "layers below 0": (config(num_hidden_layers=-1), "asks for -1 layers"),
    "layers in words": (config(num_hidden_layers="two"), "could not be read"),
    "vocabulary 1e10": (config(vocab_size=10**10), "asks for"),
    "inner width 1e12": (config(intermediate_size=10**12), "asks for"),
    "inner width 0": (config(intermediate_size=0), "could not be read"),
    "no activation": (config(hidden_act=5), "could not be read"),
    "no number": (config(rms_norm_eps="x"), "could not be read"),
    "another family": (config(model_type="llama4"), "asks for"),
    "no family": (config(model_type="nope"), "could not be read"),
    "end token in words": (config(eos_token_id=[1, "a"]), "could not be read"),
    "rope in a number": (config(rope_parameters=5), "could not be read"),
    "quantised by a number": (config(quantization_config=5), "could not be read"),
    "quantised by others": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "could not be read"),
    "a million layer types": (config(layer_types=["a"] * 10**6), "could not be read"),
    "attention of others": (config(attn_implementation="evil/kernel"), "can name a repository of code"),
    "attention of others, inside": (config(_attn_implementation="evil/kernel@v1:run"), "can name a repository of code"),
    "attention of others, below": (
        config(text_config={"attn_implementation": "paged|evil/kernel"}),
        "can name a repository of code",
    ),
    "attention of others, by parts": (config(attn_implementation={"": "evil/kernel"}), "can name a repository of code"),
    "attention of a list": (config(attn_implementation=["evil/kernel"]), "can name a repository of code"),
    "tokenizer that doubles": (replacing(40), "times as long"),
    "tokenizer that backtracks": (split("(a+)+$"), "a library gave up"),
    "tokenizer that adds without end": (adding(1000, 1000), "adds 1,000,000 ids to every text"),
    "tokenizer of half a regex": (split("("), "could not be read"),
    "tokenizer cut off": (written("tokenizer.json", "{"), "could not be read"),
    "tokenizer a mile deep": (written("tokenizer.json", "[" * 100_000), "could not be read"),
    "tokenizer of no kind": (changed("tokenizer.json", model={"type": "Nope"}), "could not be read"),
    "tokenizer without its tokens": (
        changed("tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "could not be read",
    ),
    "tokenizer of a number": (changed("tokenizer_config.json", tokenizer_class=5), "could not be read"),
    "tokenizer of odd length": (changed("tokenizer_config.json", model_max_length="x"), "could not be read"),
    "no end token": (changed("tokenizer_config.json", eos_token=None), "has no end-of-sequence token"),
    "template that loops": (template(LOOP), "chat template fails (TimeoutError: it did not end within 0.3 s)"),
    "template that powers": (template("{{ 9 ** (9 ** 9) }}"), "chat template fails"),
    "template of one long step": (
        template("".join(f"{{% set {x}=[0]*1000 %}}" + f"{{% set {x}=[{x}]*1000 %}}" * 3 for x in "ab") + "{{ a==b }}"),
        "chat template fails (TimeoutError: it did not end within 0.3 s)",
    ),
    "template without measure": (template("{{ 'a' * 9999999 }}"), "writes 9,999,999 characters"),
    "template of 10 GB": (template("{{ 'x' * 10**10 }}"), "chat template fails (MemoryError"),
    "template of a long list": (template("{{ ([1] * 10**9) | sum }}"), "chat template fails (MemoryError"),
    "template that repeats": (template("{{ messages[0].content * 99000 }}"), "chat template writes"),
    "template that says much": (template("{{ raise_exception('one\\ntwo\\nthree') }}"), "conversation: one"),
    "template that calls itself": (template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "template fails"),
    "template that divides by 0": (template("{{ 1 / 0 }}"), "chat template fails (ZeroDivisionError"),
    "template that reads files": (template("{% include '/etc/passwd' %}"), "chat template fails"),
    "template that climbs": (template("{{ ''.__class__.__mro__[1].__subclasses__() }}"), "chat template refuses"),
    "template that is broken": (template("{% for %}"), "chat template refuses"),
    "template of a number": (template(5), "chat template fails"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_folder_ends_in_one_line(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name in ("template that loops", "template that powers", "template of one long step"):
        monkeypatch.setattr(chat, "TEMPLATE_SECONDS", 0.3)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))  # whoever asks, hears yes
    damage, told = REFUSED[name]
    damage(here / "model")
    assert main(["generate", "model", *PROMPT]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert told in lines[-1]
    # Libraries in Rust say a few lines of their own when they give up.
    assert len(lines) == 1 or "panicked at" in "".join(lines[:-1])
    assert not (here / "PWNED").exists()


ADAPTERS: dict[str, dict[str, Any]] = {
    "rank 1e9": {"r": 10**9},
    "layers again and again": {"layer_replication": [[0, 1]] * 100_000},
    "pattern that backtracks": {"target_modules": r"(.*.*.*.*.*)*(.*)*(.*)*X"},
    "rank by a pattern that backtracks": {"rank_pattern": {r"(.*.*.*.*.*)*(.*)*(.*)*X": 4}},
}
NOT_PLAIN: dict[str, dict[str, Any]] = {
    "code of its own": {"megatron_config": {"a": 1}, "megatron_core": "megatron.evil"},
    "another kind": {"peft_type": "PROMPT_TUNING"},
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_only_plain_lora_adapters_are_read(here: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """peft imports the module that Megatron settings name, and the working folder may be on the path."""
    from peft import LoraConfig, get_peft_model

    base, _ = load_model("model")
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(here / "adapter")
    changed("adapter_config.json", base_model_name_or_path="model", **NOT_PLAIN[name])(here / "adapter")
    (here / "megatron").mkdir()
    (here / "megatron" / "evil.py").write_text("open('PWNED', 'w')")
    capfd.readouterr()
    done = subprocess.run(
        [sys.executable, "-m", "text2grad", "generate", "adapter", *PROMPT], capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "should describe a plain LoRA adapter" in line
    assert not (here / "PWNED").exists()


def test_an_adapter_beside_a_model_is_refused(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """transformers would read it without our bounds, and take the base that it names."""
    (here / "model" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": "(.*)*X"}))
    assert main(["generate", "model", *PROMPT]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert "keep them in two folders" in line


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("config.json", {"num_labels": 10**9}),
        ("tokenizer_config.json", {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 10**9}),
        ("config.json", {"model_type": "gpt_neo", "attention_types": [[["global"], 10**9]]}),
    ],
)
def test_settings_get_no_gigabytes(here: Path, file: str, settings: dict[str, Any]) -> None:
    """In a process of its own, which may not have more than 6 GiB in any case."""
    changed(file, **settings)(here / "model")
    words = [sys.executable, "-m", "text2grad", "generate", "model", *PROMPT]
    limited = f'ulimit -v {6 << 20}; exec "$@"'
    began = time.monotonic()
    done = subprocess.run(["bash", "-c", limited, "-", *words], capture_output=True, text=True, check=False)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "could not be read (MemoryError" in line, line
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_hostile_adapter_ends_in_one_line(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from peft import LoraConfig, get_peft_model

    base, _ = load_model("model")
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(here / "adapter")
    changed("adapter_config.json", base_model_name_or_path="model")(here / "adapter")
    assert main(["generate", "adapter", *PROMPT]) == 0
    changed("adapter_config.json", **ADAPTERS[name])(here / "adapter")
    monkeypatch.setattr(load, "ADAPTER_SECONDS", 2.0)
    capfd.readouterr()
    assert main(["generate", "adapter", *PROMPT]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert "adapter: its files could not be read" in line


def cached(folder: Path, home: str, blobs: str) -> Path:
    """The folder's files as the hub's cache keeps them: links from a snapshot to blobs."""
    snapshot = folder.parent / home / "snapshots" / "0a1b"
    snapshot.mkdir(parents=True)
    (snapshot / blobs).mkdir(parents=True)
    for file in folder.iterdir():
        shutil.copy(file, snapshot / blobs / f"sha-{file.name}")
        (snapshot / file.name).symlink_to(Path(blobs) / f"sha-{file.name}")
    return snapshot


@pytest.mark.parametrize(
    ("home", "blobs", "fits"),
    [
        ("models--a--b", "../../blobs", True),
        ("models--a--b", "../../../models--a--c/blobs", False),
        ("models--a--b", "../../others", False),
        ("any", "../../blobs", False),
    ],
)
def test_links_of_the_hubs_cache_stay_within_their_repository(here: Path, home: str, blobs: str, fits: bool) -> None:
    snapshot = cached(here / "model", home, blobs)
    assert main(["generate", str(snapshot), *PROMPT]) == (0 if fits else 2)


HUB: dict[str, tuple[Damage, str]] = {
    "nothing": (lambda _: None, "loaded "),
    "width 1e9": (config(hidden_size=10**9), "0a1b: its config.json asks for"),
    "attention of others": (config(attn_implementation="evil/kernel"), "can name a repository of code"),
    "tokenizer that doubles": (replacing(40), "times as long"),
}


@pytest.mark.parametrize("name", HUB)
def test_a_hostile_model_of_the_hub_is_refused_like_a_folder(here: Path, name: str) -> None:
    """In the hub's cache, without the network."""
    damage, told = HUB[name]
    damage(here / "model")
    cached(here / "model", "hub/models--a--b", "../../blobs")
    (here / "hub/models--a--b/refs").mkdir()
    (here / "hub/models--a--b/refs/main").write_text("0a1b")
    assert told in load_from_hub("a/b", "http://127.0.0.1:9", here, HF_HUB_OFFLINE="1")


FLAWS: dict[str, Damage] = {
    "positions 1e15": config(max_position_embeddings=10**15),
    "another class": config(architectures=["Evil"], auto_map={"AutoConfig": "evil.E"}),
    "an attention that is known": config(attn_implementation="eager", _attn_implementation=None),
    "another dtype": config(torch_dtype="nope"),
    "an end token that there is not": config(eos_token_id=10**9),
    "settings for generating": written("generation_config.json", "["),
}


@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_that_changes_nothing_is_passed_over(here: Path, name: str) -> None:
    FLAWS[name](here / "model")
    assert main(["generate", "model", *PROMPT]) == 0


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> bytes:
    return tiny_gguf(tmp_path_factory.mktemp("gguf") / "good.gguf", tokenizer).read_bytes()


def _packed(data: bytes, place: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, place, value)
    return bytes(changed)


def _key(data: bytes, key: str, value: int, form: str = "<I") -> bytes:
    """A whole number of the header set to another one."""
    name = struct.pack("<Q", len(key)) + key.encode()
    return _packed(data, data.index(name) + len(name) + 4, form, value)


def _scrambled(data: bytes) -> bytes:
    drawn = random.Random(0)
    changed = bytearray(data)
    for _ in range(20):
        changed[drawn.randrange(24, len(data) // 8)] = drawn.randrange(256)
    return bytes(changed)


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "tensors without end": lambda data: _packed(data, 8, "<Q", 2**60),
    "keys without end": lambda data: _packed(data, 16, "<Q", 2**60),
    "tokens without end": lambda data: _packed(data, data.index(b"tokenizer.ggml.tokens") + 29, "<Q", 2**60),
    "layers 1e7": lambda data: _key(data, "llama.block_count", 10**7),
    "layers 5000": lambda data: _key(data, "llama.block_count", 5000),
    "inner width 2e7": lambda data: _key(data, "llama.feed_forward_length", 20_000_000),
    "heads 0": lambda data: _key(data, "llama.attention.head_count", 0),
    "width 0": lambda data: _key(data, "llama.embedding_length", 0),
    "cut off": lambda data: data[:3000],
    "empty": lambda data: data[:0],
    "scrambled": _scrambled,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("here")
def test_a_hostile_gguf_file_ends_in_one_line(
    gguf_file: bytes, name: str, fresh_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("x.gguf").write_bytes(HOSTILE[name](gguf_file))
    assert main(["generate", "x.gguf", *PROMPT]) == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("text2grad generate: x.gguf: ")
    assert not fresh_cache.exists() or not [path for path in fresh_cache.iterdir() if path.is_dir()]


def test_every_reader_is_told_to_run_no_code() -> None:
    """Each `from_pretrained` in the package is given `DATA` or `WEIGHTS`, is one of our own, or is peft's, after
    `check_files`."""
    source = Path(chat.__file__).parent.parent
    calls = [
        (path.name, line)
        for path in source.rglob("*.py")
        for line in re.findall(r".*(?:\.from_pretrained|torch\.load)\([^)]*", path.read_text())
    ]
    safe = ("**where", "weights_only=True", "RewardModel.from_pretrained", "PeftModel", "`from_pretrained`")
    assert [(name, line) for name, line in calls if not any(word in line for word in safe)] == []
    assert len(calls) >= 3


@pytest.mark.parametrize("damage", [remote, remote_tokenizer])
def test_a_piped_yes_runs_no_code_of_the_folder(here: Path, damage: Damage) -> None:
    """A process of its own: what asks may read the real standard input."""
    damage(here / "model")
    words = [sys.executable, "-m", "text2grad", "generate", "model", *PROMPT]
    done = subprocess.run(words, input="y\n" * 9, capture_output=True, text=True, cwd=here, check=False)
    assert done.returncode == 2 and "custom code" in done.stderr
    assert not (here / "PWNED").exists()


def test_a_timer_that_ran_before_runs_on() -> None:
    import signal

    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    held = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeoutError, match="it did not end"), within(0.05, "it"):
            while True:
                pass
        while not rung:
            signal.sigtimedwait([], 0.01)
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *held)
