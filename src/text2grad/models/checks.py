"""A model is data that a stranger may have made: looked at before libraries read it, and stopped where it does not end.

Enters: a model folder, its settings, its tokenizer's file. Leaves: nothing, or a `CorruptModel` in one line. Runs no
code of the folder, and reads no pickled file, for reading one runs what its maker likes.
"""

import itertools
import json
import math
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from text2grad.errors import CorruptModel, Text2GradError, first_line, panicked

HUB_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
"""Of a model on a hub: `owner/name`, or `name` for the oldest ones."""
DATA = {"trust_remote_code": False}
"""For every `from_pretrained`: without it transformers asks on standard input whether the folder's code may run."""
WEIGHTS = {**DATA, "use_safetensors": True}
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
INDEX = "model.safetensors.index.json"
_PACKED = 8
"""Weights that one stored element may hold at most: four bits each."""
_ATTENTIONS = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
"""What settings may ask for. Any other word can name a repository of kernels, which is code that runs."""
_MODULES = 64
"""Modules that a model may have for each stored tensor: layers by any name are counted, not read from settings."""
_TABLES = 2 << 30
"""Bytes that a model may compute for itself, beside as many as its weights take: masks, angles of positions."""
_MOST_ADDED = 10_000
"""Ids that a tokenizer may add to every text."""
_MOST_GROWTH = 1e4
"""Times that a tokenizer may lengthen a text before it cuts it."""


def check_files(folder: Path) -> None:
    """Refuse weights that are pickled, lie outside the folder, or are no files: a pipe would be waited for."""
    files = list(folder.iterdir())
    for file in files:
        if not (file.is_file() or file.is_dir()):
            raise CorruptModel(f"{file}: should be a file, and is a pipe, a device or a broken link")
        if file.is_file() and not _belongs(file.resolve(), folder.resolve()):
            raise CorruptModel(f"{file}: should lie in this folder, and is a link that leads out of it")
    names = {file.name for file in files if file.is_file()}
    for shard in shards(folder) if INDEX in names else ():
        if shard not in names or not shard.endswith(".safetensors"):
            raise CorruptModel(f"{folder / INDEX}: should name .safetensors files of this folder, got {shard[:80]!r}")
    pickled = sorted(name for name in names if name.endswith(_PICKLED) and name != "training_args.bin")
    # What libraries read first. Any other .safetensors file beside a pickled one would not keep them from it.
    first = {"adapter_model.safetensors"} if "adapter_config.json" in names else {"model.safetensors", INDEX}
    if pickled and not first & names:
        raise CorruptModel(
            f"{folder}: has its weights in {pickled[0]}, and a pickled file can run any code when it is read; take "
            f"the model's .safetensors files, or convert it where that does no harm"
        )


def _belongs(file: Path, folder: Path) -> bool:
    """Whether a file lies in the folder, or, in the hub's cache, among the blobs of the same repository."""
    repository = folder.parent.parent
    cached = folder.parent.name == "snapshots" and repository.name.startswith("models--")
    return file.is_relative_to(folder) or (cached and file.is_relative_to(repository / "blobs"))


def shards(folder: Path) -> set[str]:
    """The files of the weights, as the folder's index names them."""
    if not (folder / INDEX).exists():
        return {"model.safetensors"}
    listed = _read(folder / INDEX).get("weight_map")
    return set(map(str, listed.values())) if isinstance(listed, dict) else {str(listed)}


def check_sizes(folder: Path, config: Any) -> None:
    """Refuse settings that ask for more weights than the files hold, before memory is asked for them."""
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    stored, tensors = 0, 0
    for shard in shards(folder):
        with safe_open(folder / shard, "pt") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
        stored, tensors = stored + sum(map(math.prod, shapes)), tensors + len(shapes)
    layers = getattr(config.get_text_config(), "num_hidden_layers", 1)
    if not 0 < layers <= tensors:
        raise CorruptModel(
            f"{folder}: its config.json asks for {layers:,} layers, and its files hold {tensors} tensors"
        )
    made = itertools.count()

    def count(*_: object) -> None:
        if next(made) > _MODULES * (1 + tensors):
            raise CorruptModel(f"{folder}: its config.json asks for more layers than {tensors} stored tensors can fill")

    hook = torch.nn.modules.module.register_module_module_registration_hook(count)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, **DATA)
    finally:
        hook.remove()
    if (asked := sum(weight.numel() for weight in model.parameters())) > _PACKED * stored:
        raise CorruptModel(f"{folder}: its config.json asks for {asked:,} weights, and its files hold {stored:,}")
    if (tables := sum(table.numel() * table.element_size() for table in model.buffers())) > _TABLES + 4 * stored:
        raise CorruptModel(f"{folder}: its config.json asks for {tables / 2**30:,.0f} GiB of tables beside its weights")


def check_gguf(path: Path) -> None:
    """The same for the layers and widths of a GGUF file."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    widest = max((int(size) for tensor in reader.tensors for size in tensor.shape), default=0)
    for name, field in reader.fields.items():
        if name.endswith((".feed_forward_length", ".embedding_length", ".vocab_size")):
            said = field.contents()
            width = max((int(one) for one in (said if isinstance(said, list) else [said])), default=0)
            if width > widest:
                raise CorruptModel(f"{path.name}: {name} is {width:,}, and its widest tensor has {widest:,} rows")
        if name.endswith(".block_count") and not 0 < int(field.contents()) <= len(reader.tensors):
            raise CorruptModel(
                f"{path.name}: asks for {int(field.contents()):,} layers, and holds {len(reader.tensors)} tensors"
            )


def check_tokenizer(folder: Path) -> None:
    """Refuse a tokenizer that makes a text many times as long: forty rules `a` → `aa` never end."""
    path = folder / "tokenizer.json"
    tree = _read(path) if path.is_file() else {}
    rules = [part for key in ("normalizer", "pre_tokenizer", "decoder") for part in _parts(tree.get(key))]
    growth = 1.0
    for rule in rules:
        if rule.get("type") == "Replace":
            pattern = (rule.get("pattern") or {}).get("String") if isinstance(rule.get("pattern"), dict) else None
            growth *= max(1.0, len(str(rule.get("content"))) / len(pattern or "x"))
    if growth > _MOST_GROWTH:
        raise CorruptModel(f"{path}: its rules make a text up to {growth:.0e} times as long")
    added = 0
    for rule in _parts(tree.get("post_processor")):
        known = rule.get("special_tokens")
        for form in ("single", "pair"):
            for piece in _parts(rule.get(form) if isinstance(known, dict) else None):
                token = known.get(str(piece.get("id")))  # type: ignore[union-attr]
                added += len(token["ids"]) if isinstance(token, dict) and isinstance(token.get("ids"), list) else 0
    if added > _MOST_ADDED:
        raise CorruptModel(f"{path}: its post-processor adds {added:,} ids to every text")


def check_config(folder: Path) -> None:
    """Refuse settings that name a kernel of others as the attention, at whatever depth."""
    path = folder / "config.json"
    for part in _parts(_read(path)):
        for key, value in part.items():
            if not key.startswith(("attn_implementation", "_attn_implementation")):
                continue
            words = value.values() if isinstance(value, dict) else [value]
            if bad := [word for word in words if word is not None and word not in _ATTENTIONS]:
                raise CorruptModel(
                    f"{path}: {key} should be one of {', '.join(_ATTENTIONS)}, for another word can name a "
                    f"repository of code; got {str(bad[0])[:80]!r}"
                )


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """The objects in a tree of JSON, such as the rules of a tokenizer, sequences taken apart."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _parts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _parts(value)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
        if isinstance(tree, dict):
            return tree
        problem = f"got {type(tree).__name__}"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise CorruptModel(f"{path}: its files could not be read: should be one JSON object: {problem[:100]}")


@contextmanager
def damage_named(what: str, remedy: str) -> Iterator[None]:
    """Whatever libraries raise on files that are damaged or hostile, as a `CorruptModel`; one in Rust may panic."""
    try:
        yield
    except Text2GradError:
        raise
    except BaseException as problem:
        if not (isinstance(problem, Exception) or panicked(problem)):
            raise
        raise CorruptModel(f"{what} ({first_line(problem, named=True)}). {remedy}") from problem


_LIMITED = threading.Lock()


@contextmanager
def memory_bound(most: int) -> Iterator[None]:
    """A `MemoryError` where the process asks for more bytes than these, on top of what it has. On Linux."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (ImportError, OSError):
        yield
        return
    with _LIMITED:  # threads share the limit
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bound = pages * resource.getpagesize() + most
        given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([bound, *given]), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Raise a `TimeoutError` in Python code that takes longer. Other threads than the main one cannot be stopped so."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise TimeoutError(f"{what} did not end within {seconds:g} s")

    began, before = time.monotonic(), signal.signal(signal.SIGALRM, ring)
    # It rings again, should somebody's `except Exception` have swallowed the first: jinja's optimizer does.
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))


def ends_apart(work: Callable[[], object], seconds: float, what: str) -> None:
    """Do it first in a process of its own, which can be killed: `within` is heard between two steps of Python, and one
    step can be made to take for ever. Raises a `TimeoutError`; whatever else goes wrong, goes wrong here again. On
    Linux, in the main thread."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks beside threads: nothing of theirs is used
        child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    until = time.monotonic() + seconds
    pause = 0.0005
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            used = os.wait4(child, 0)[2]
            # One that waits for a lock of another thread of ours has done nothing.
            if used.ru_utime + used.ru_stime > seconds / 4:
                raise TimeoutError(f"{what} did not end within {seconds:g} s")
            return
        time.sleep(pause)
        pause = min(0.05, 2 * pause)
