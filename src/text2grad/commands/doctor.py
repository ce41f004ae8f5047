"""`text2grad doctor`: what is there, what is missing, what it is for, and the command to get it."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from text2grad.commands.env import PROGRAMS
from text2grad.errors import EXTRAS, Text2GradError

PACKAGERS = {
    "apt-get": "sudo apt-get install",
    "dnf": "sudo dnf install",
    "pacman": "sudo pacman -S",
    "apk": "sudo apk add",
    "zypper": "sudo zypper install",
}
"""Program → how it installs a package."""
FOR = {
    "train": "train, sft, dpo, reward-model, evaluate, generate, export, demo",
    "api": "critics behind an API (openai:MODEL)",
    "parquet": "data files in Parquet",
    "eval": "metrics=[rouge, bleu]",
    "studio": "studio, together with [train]",
    "postgres": "studio --store postgresql://…",
}
"""Extra → what needs it."""


class Finding(NamedTuple):
    """One thing that was looked for."""

    what: str
    state: str
    """ok, missing, or broken: it is there and does not work."""
    says: str
    get: str = ""
    """The command that gets it, or what to do."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 1 if something is there and does not work; what is only missing you may not need."


def run(_: argparse.Namespace) -> int:
    findings = list(examine())
    width = max(len(finding.what) for finding in findings)
    for what, state, says, get in findings:
        print(f"{state:<8} {what:<{width}}  {says}")
        if get:
            print(f"{'':<8} {'':<{width}}  → {get}")
    return int(any(finding.state == "broken" for finding in findings))


def examine() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", "ok" if sys.version_info >= (3, 11) else "broken", f"{version}; 3.11 or newer is needed")
    for extra, purpose in FOR.items():
        there = all(find_spec(module) for module, brings in EXTRAS.items() if brings == extra)
        get = "" if there else f"pip install 'text2grad[{extra}]'"
        yield Finding(f"[{extra}]", "ok" if there else "missing", f"for {purpose}", get)
    yield gpu()
    yield sandbox()
    if browser := next(filter(None, map(shutil.which, PROGRAMS["Chromium"])), None):
        yield Finding("Chromium", "ok", browser)
    else:
        pictures = "for the report's own tests and pictures; a report opens in any browser"
        yield Finding("Chromium", "missing", pictures, install("chromium"))
    address = os.environ.get("OPENAI_BASE_URL")
    where = "OPENAI_BASE_URL names the server" if address else "OPENAI_BASE_URL is not set: OpenAI's own address"
    if os.environ.get("OPENAI_API_KEY"):
        yield Finding("API key", "ok", f"OPENAI_API_KEY is set; {where}")
    else:
        get = "export OPENAI_API_KEY=… (any word, without keys)"
        yield Finding("API key", "missing", f"for openai:MODEL; {where}", get)


def gpu() -> Finding:
    """Whether PyTorch sees the GPU that the machine has."""
    card = shutil.which("nvidia-smi")
    if find_spec("torch") is None:
        return Finding("GPU", "missing", "unknown without PyTorch" + (", and the machine has one" if card else ""))
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Finding("GPU", "ok", ", ".join(names))
    if card is not None:
        build = torch.version.cuda or "none: it was built for CPUs"
        says = f"nvidia-smi is here, and PyTorch finds no CUDA device (its CUDA: {build})"
        get = "install the PyTorch of your driver's CUDA first (pytorch.org shows the command), then text2grad[train]"
        return Finding("GPU", "broken", says, get)
    return Finding("GPU", "missing", "no NVIDIA driver here; small models train on the CPU")


def sandbox() -> Finding:
    """Whether model-written code can be run where it does no harm."""
    purpose = "for the critic `code`"
    if shutil.which("bwrap") is None:
        return Finding("bubblewrap", "missing", purpose, install("bubblewrap"))
    from text2grad.sandbox import Job, Sandbox

    try:
        boxed = Sandbox()
        (report,) = boxed.run_many([Job("def f(): return 1", ["assert f() == 1"])])
        boxed.close()
    except (Text2GradError, OSError) as problem:
        return Finding("bubblewrap", "broken", f"{purpose}: {problem}", "see docs/sandbox.md")
    works = [result.passed for result in report.results] == [True]
    said = f"{purpose}; a test program ran inside" if works else f"{purpose}: a test program did not run inside"
    said += f"; slowly, without warm interpreters: {boxed.cold}" if boxed.cold else ""
    return Finding("bubblewrap", "ok" if works else "broken", said, "" if works else "see docs/sandbox.md")


def install(package: str) -> str:
    """The command that installs a package of the system."""
    how = next((words for program, words in PACKAGERS.items() if shutil.which(program)), None)
    return f"{how} {package}" if how else f"install {package} with your system's packages"
