"""`text2grad env`: what a bug report needs. Versions, devices, programs, folders; no secrets, no other environment."""

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata

from text2grad import __version__
from text2grad.runs import cache_folder

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "numpy", "pydantic", "PyYAML", "rich")
PROGRAMS = {"bubblewrap": ("bwrap",), "Chromium": ("chromium", "chromium-browser", "google-chrome")}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Paste the whole output into a bug report."


def run(_: argparse.Namespace) -> int:
    rows = list(environment())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0


def environment() -> Iterator[tuple[str, str]]:
    """(name, value) rows; a report stores the same."""
    yield "text2grad", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    yield "cpu", f"{os.cpu_count()} cores, {_memory()} of memory"
    for package in PACKAGES:
        yield package, _version(package)
    yield from _devices()
    for program, commands in PROGRAMS.items():
        yield program, next(filter(None, map(shutil.which, commands)), "not found")
    yield "cache", str(cache_folder())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> Iterator[tuple[str, str]]:
    try:
        import torch
    except ModuleNotFoundError:
        yield "devices", "unknown: PyTorch is not installed (pip install 'text2grad[train]')"
        return
    if not torch.cuda.is_available():
        yield "devices", f"cpu ({torch.get_num_threads()} threads); torch finds no CUDA device"
        return
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield f"cuda:{index}", f"{card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"


def _memory() -> str:
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return "an unknown amount"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
