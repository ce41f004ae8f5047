"""Name → model and tokenizer, ready to train: pad and end tokens set, failures explained.

A name is one of
  - an alias (`smollm2-135m`): fetched from the package index, checked, converted, cached;
  - a folder that `save_pretrained` wrote;
  - a `.gguf` file: de-quantised, converted, cached;
  - a hub id (`org/name`), through the hub's own cache.
"""

import difflib
import re
from pathlib import Path
from typing import Any

from text2grad.errors import CorruptModel, DownloadFailed, ModelError, ModelNotFound
from text2grad.models.cache import ALIASES, from_gguf, from_wheel, set_end_tokens

_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


def load_model(name: str, *, device: str = "cpu", dtype: str = "float32") -> tuple[Any, Any]:
    """(model, tokenizer) in evaluation mode on the device. `dtype` is torch's name for it, such as `bfloat16`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise ModelError(f"dtype should be a floating-point type of torch such as float32 or bfloat16, got {dtype!r}")
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r} was asked for, but torch {torch.__version__} finds no CUDA device here")
    place = locate(name)
    tokenizer = _read(AutoTokenizer.from_pretrained, place, name)
    model = _read(AutoModelForCausalLM.from_pretrained, place, name, dtype=kind)
    set_end_tokens(tokenizer, model, None, name)
    return model.to(device).eval(), tokenizer


def load_tokenizer(name: str) -> Any:
    """The tokenizer alone, with pad and end tokens as `load_model` sets them where the model is not needed."""
    from transformers import AutoTokenizer

    tokenizer = _read(AutoTokenizer.from_pretrained, locate(name), name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def locate(name: str) -> str:
    """What `from_pretrained` takes for this name: a folder on this machine, made if need be, or a hub id."""
    if name in ALIASES:
        return str(from_wheel(name, ALIASES[name]))
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelNotFound(f"{name}: should be a model folder or a .gguf file, got another kind of file")
        return str(from_gguf(path))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFound(f"{name}: should be a folder that save_pretrained wrote, but has no config.json")
        return str(path)
    if name.lower().endswith(".gguf") or not _HUB_ID.fullmatch(name):
        raise ModelNotFound(f"{name}: there is no such folder or file")
    return name


def _read(from_pretrained: Any, place: str, name: str, **options: Any) -> Any:
    from safetensors import SafetensorError

    try:
        return from_pretrained(place, **options)
    except (OSError, ValueError, SafetensorError, KeyError, TypeError) as problem:
        raise _explained(problem, place, name) from problem


def _explained(problem: Exception, place: str, name: str) -> ModelError:
    """Not there, out of reach, or broken: the hub's own errors are in the chain of causes."""
    if Path(place).is_dir():
        return CorruptModel(f"{name}: its files could not be read ({_first_line(problem)}); write or fetch them again")
    causes = {type(cause).__name__ for cause in _chain(problem)}
    if causes & {"GatedRepoError"}:
        return DownloadFailed(f"{name}: the hub asks you to accept its terms and to log in first (`hf auth login`)")
    if causes & {"RepositoryNotFoundError", "HFValidationError", "RemoteEntryNotFoundError", "EntryNotFoundError"}:
        near = difflib.get_close_matches(name, ALIASES, n=1)
        hint = f"did you mean the alias {near[0]}?" if near else f"the aliases are {', '.join(ALIASES)}"
        return ModelNotFound(
            f"{name}: is no folder or file here, and no model that the hub shows you; {hint} (private models need "
            f"`hf auth login`)"
        )
    return DownloadFailed(
        f"{name}: is no folder or file here, and the hub could not be reached ({_first_line(problem)}). Check the "
        f"network and HF_HUB_OFFLINE; the alias {next(iter(ALIASES))} comes from the package index instead"
    )


def _chain(problem: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while problem is not None and problem not in chain:
        chain.append(problem)
        problem = problem.__cause__ or problem.__context__
    return chain


def _first_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0][:200]}"
