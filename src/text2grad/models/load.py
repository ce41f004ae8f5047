"""Name → model and tokenizer, ready to train: pad and end tokens set, failures explained.

A name is one of
  - an alias (`smollm2-135m`): fetched from the package index, checked, converted, cached;
  - a folder that `save_pretrained` wrote, of a model or of an adapter;
  - a `.gguf` file: de-quantised, converted, cached;
  - a hub id (`org/name`), through the hub's own cache.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import (
    ConfigError,
    CorruptModel,
    DownloadFailed,
    ModelError,
    ModelNotFound,
    first_line,
)
from text2grad.models.cache import ALIASES, check_complete, from_gguf, from_wheel, set_end_tokens
from text2grad.models.checks import (
    DATA,
    HUB_NAME,
    INDEX,
    WEIGHTS,
    check_config,
    check_files,
    check_sizes,
    check_tokenizer,
    damage_named,
    memory_bound,
    shards,
    within,
)
from text2grad.runs import no_space_named

EMBEDDED = Path(__file__).parent / "embedded"
"""The model that the package brings, by the name `embedded`: small, for the demo's task and for first tries."""
ADAPTER = "adapter_config.json"
DTYPES = ("float32", "bfloat16", "float16", "float64")
ADAPTER_SECONDS, CONFIG_SECONDS = 20.0, 60.0
ADAPTER_MEMORY, CONFIG_MEMORY = 2 << 30, 2 << 30
"""Bytes that reading an adapter may take beside eight times its files, and that reading settings may take."""
_HUB_ANSWERS_WITHIN = 10
"""Seconds; the hub's own library goes on trying for half a minute per file before it says that there is no network."""


def load_model(name: str, *, device: str = "cpu", dtype: str = "float32") -> tuple[Any, Any]:
    """(model, tokenizer) in evaluation mode on the device. `dtype` is torch's name for it, such as `bfloat16`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from text2grad.models.memory import keep_to_limit

    if dtype not in DTYPES:
        raise ModelError(f"dtype should be one of {', '.join(DTYPES)}, got {dtype!r}")
    kind = getattr(torch, dtype)
    device = device_named(device)
    keep_to_limit(device)
    if (base := adapted_base(name)) is not None:
        return _with_adapter(name, *load_model(base, device=device, dtype=dtype))
    tokenizer, place, options = _tokenizer(name)
    folder = Path(place) if Path(place).is_dir() else _fetched_weights(name, options)
    if folder is not None:
        with memory_bound(CONFIG_MEMORY):
            settings = _read(AutoConfig.from_pretrained, str(folder), name, {**DATA})
        _read(check_sizes, folder, name, {"config": settings})
    options |= {**WEIGHTS, "dtype": kind, "output_loading_info": True}
    model, loading = _read(AutoModelForCausalLM.from_pretrained, place, name, options)
    check_complete(loading, name)
    set_end_tokens(tokenizer, model, None, name)
    return model.to(device).eval(), tokenizer


def adapted_base(name: str) -> str | None:
    """The base model of a folder that holds an adapter alone (`save=adapter`); None for everything else."""
    folder = Path(name).expanduser()
    if not (folder / ADAPTER).is_file():
        return None
    if (folder / "config.json").is_file():
        raise CorruptModel(f"{name}: holds a model (config.json) and an adapter ({ADAPTER}); keep them in two folders")
    check_files(folder)
    try:
        said = json.loads((folder / ADAPTER).read_bytes())
        base = str(said["base_model_name_or_path"])
    except (ValueError, LookupError, TypeError, RecursionError) as problem:
        raise CorruptModel(
            f"{name}: {ADAPTER} should name its base model ({first_line(problem, named=True)})"
        ) from None
    if said.get("peft_type") != "LORA" or said.get("megatron_config"):
        # Other kinds cannot be merged; with Megatron settings, peft imports what `megatron_core` names.
        raise CorruptModel(f"{name}: {ADAPTER} should describe a plain LoRA adapter, of peft_type LORA")
    if (Path(base).expanduser() / ADAPTER).is_file():
        raise CorruptModel(f"{name}: {ADAPTER} should name a model as its base, and {shorten(base)} is an adapter, too")
    return base


def _with_adapter(name: str, model: Any, tokenizer: Any) -> tuple[Any, Any]:
    from peft import PeftModel

    # Its settings hold patterns, layers to repeat and ranks: as much as they like.
    weights = Path(name).expanduser() / "adapter_model.safetensors"
    # What it takes on the disk: a file with holes can be as long as it likes.
    size = min(weights.stat().st_blocks * 512, 64 << 30) if weights.is_file() else 0
    with within(ADAPTER_SECONDS + size / 2e7, "it"), memory_bound(ADAPTER_MEMORY + 8 * size):
        adapted = _read(lambda place: PeftModel.from_pretrained(model, place), str(Path(name).expanduser()), name, {})
    return adapted.merge_and_unload().eval(), tokenizer


def published_dtype(name: str) -> Any:
    """The dtype that a model's files are in, as torch knows it; None where they do not say."""
    import torch
    from transformers import AutoConfig

    base = adapted_base(name) or name
    place = locate(base)
    options = {**DATA} if Path(place).is_dir() else {**DATA, "local_files_only": True}
    with memory_bound(CONFIG_MEMORY):
        found = getattr(_read(AutoConfig.from_pretrained, place, base, options), "dtype", None)
    return getattr(torch, found, None) if isinstance(found, str) else found


def fingerprint(model: Any, tokenizer: Any) -> str:
    """sha256 of every weight, the tokenizer and its chat template, then one of what the settings say and of the weights
    that live in buffers; the same on every device. A run of an earlier version has written down the first alone."""
    digest = hashlib.sha256()
    _digest_tensors(digest, model.named_parameters())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        parts: Any = sorted(tokenizer.get_vocab().items())
    else:
        # Truncation and padding are left over from the last call.
        parts = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    told = [parts, tokenizer.special_tokens_map, getattr(tokenizer, "chat_template", None)]
    digest.update(json.dumps(told, sort_keys=True, default=str).encode())
    more = hashlib.sha256()
    stored = model.state_dict().keys()  # without those that are computed from the settings
    _digest_tensors(more, ((name, buffer) for name, buffer in model.named_buffers() if name in stored))
    said = {key: value for key, value in model.config.to_diff_dict().items() if key not in _NOT_COMPUTED}
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    more.update(json.dumps([said, ends], sort_keys=True, default=str).encode())
    return digest.hexdigest() + more.hexdigest()


_NOT_COMPUTED = (
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)
"""Settings that change no number that a model computes from its weights, or that loading sets."""


def _digest_tensors(digest: Any, tensors: Iterable[tuple[str, Any]]) -> None:
    import torch

    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def read_pair(from_pretrained: Any, name: str) -> tuple[Any, Any]:
    """(model, tokenizer) of another kind than a policy: an encoder. The same names, the same failures explained."""
    tokenizer, place, options = _tokenizer(name)
    return _read(from_pretrained, place, name, options | WEIGHTS), tokenizer


def load_tokenizer(name: str) -> Any:
    """The tokenizer alone, with the pad token that `load_model` would give it."""
    tokenizer, _, _ = _tokenizer(name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def locate(name: str) -> str:
    """What `from_pretrained` takes for this name: a folder on this machine, made if need be, or a hub id."""
    if name in ALIASES:
        return str(from_wheel(name, ALIASES[name]))
    try:
        path = EMBEDDED if name == "embedded" else Path(name).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as problem:
        raise ModelNotFound(f"{shorten(name)}: cannot be the name of a model: {problem}") from None
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelNotFound(f"{name}: should be a model folder or a .gguf file, got another kind of file")
        return str(from_gguf(path))
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFound(f"{name}: should be a folder that save_pretrained wrote, but has no config.json")
        check_files(path)
        check_config(path)
        check_tokenizer(path)
        return str(path)
    if name.lower().endswith(".gguf") or not HUB_NAME.fullmatch(name):
        raise ModelNotFound(f"{name or 'the empty name'}: there is no such folder or file")
    return name


def check_there(name: str) -> None:
    """Refuse a name that no model has; nothing is fetched, converted or loaded."""
    if (base := adapted_base(name)) is not None:
        check_there(base)
    elif name not in ALIASES and not (name.lower().endswith(".gguf") and Path(name).expanduser().is_file()):
        place = locate(name)
        if not Path(place).is_dir():
            _ask_hub(name)


def device_named(name: str) -> str:
    """The device to use; auto: cuda where there is one. One that is not there is refused before a model is loaded."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    # torch has no common error for a device that is no word, not built in, or not there.
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as problem:
        raise ConfigError(
            f"device={name}: cannot be used here ({first_line(problem, named=True)}); `text2grad env` lists the "
            f"devices, and device=cpu always works"
        ) from None
    return name


def _tokenizer(name: str) -> tuple[Any, str, dict[str, Any]]:
    """The tokenizer, where it was, and how `from_pretrained` has to read the model from there."""
    from transformers import AutoTokenizer

    place = locate(name)
    options: dict[str, Any] = {**DATA}
    if not Path(place).is_dir():
        options["local_files_only"] = not _ask_hub(name)
        if (snapshot := _fetched(name, options, "config.json", "tokenizer.json")) is not None:
            check_config(snapshot)
            check_tokenizer(snapshot)
    # It reads the model's settings, too. A folder is there already; the hub takes as long as the network does.
    clock = within(CONFIG_SECONDS, "it") if Path(place).is_dir() else nullcontext()
    with clock, memory_bound(CONFIG_MEMORY):
        tokenizer = _read(AutoTokenizer.from_pretrained, place, name, options)
    _read(lambda _: tokenizer.decode(tokenizer("The crane, 12 m.").input_ids), place, name, {})  # does it work at all?
    return tokenizer, place, options


def _fetched(name: str, options: dict[str, Any], *files: str) -> Path | None:
    """The folder of the hub's cache with those of these files that the hub has; None where it has none of them."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    def fetch(place: str, file: str) -> Path | None:
        try:
            return Path(hf_hub_download(place, file, local_files_only=options["local_files_only"])).parent
        except EntryNotFoundError:
            return None

    folders = [_read(fetch, name, name, {"file": file}) for file in files]
    return next(filter(None, folders), None)


def _fetched_weights(name: str, options: dict[str, Any]) -> Path | None:
    """The folder of the hub's cache with all the weights; None where they are not stored as a model's are."""
    folder = _fetched(name, options, INDEX) or _fetched(name, options, "model.safetensors")
    if folder is not None:
        _fetched(name, options, *(shard for shard in shards(folder) if "/" not in shard))
        check_files(folder)
    return folder


def _ask_hub(name: str) -> bool:
    """Whether the hub has it. False: the hub is out of reach, but an earlier download is here to be used."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    # The base classes of the hub's HTTP error are its network library's, whichever one that is, and OSError.
    unreachable: tuple[type[BaseException], ...] = HfHubHTTPError.__bases__
    try:
        HfApi().model_info(name, timeout=_HUB_ANSWERS_WITHIN)
    except GatedRepoError:
        raise DownloadFailed(
            f"{name}: the hub asks you to accept its terms and to log in first (`hf auth login`)"
        ) from None
    except (RepositoryNotFoundError, HFValidationError):
        near = difflib.get_close_matches(name, ALIASES, n=1)
        hint = f"did you mean the alias {near[0]}?" if near else f"the aliases are {', '.join(ALIASES)}"
        raise ModelNotFound(
            f"{name}: is no folder or file here, and no model that the hub shows you; {hint} (private models need "
            f"`hf auth login`)"
        ) from None
    except unreachable as problem:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return False
        raise DownloadFailed(
            f"{name}: is no folder or file here, and the hub could not be reached ({first_line(problem, named=True)}). "
            f"Check the network and HF_HUB_OFFLINE; the alias {next(iter(ALIASES))} comes from the package index"
        ) from problem
    return True


def _read(from_pretrained: Any, place: str | Path, name: str, options: dict[str, Any]) -> Any:
    from huggingface_hub.constants import HF_HUB_CACHE

    where = place if Path(place).is_dir() else HF_HUB_CACHE
    damage = damage_named(f"{name}: its files could not be read", f"Write or fetch them again; they are in {where}")
    with damage, no_space_named(Path(HF_HUB_CACHE) / name), quiet_bars():
        return from_pretrained(place, **options)


@contextmanager
def quiet_bars() -> Iterator[None]:
    """Without transformers' bars over its files: they last a moment, and tear up our own display. What its warnings say
    of weights is an error here."""
    from transformers.utils import logging

    shown, told = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(told)
        if shown:
            logging.enable_progress_bar()
