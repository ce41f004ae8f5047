"""Every error that text2grad raises on purpose.

    Text2GradError
    ├── InvalidData        (ValueError)   a noun, a row or a file whose content breaks its contract
    ├── ConfigError        (ValueError)   a setting that does not exist, or a value it cannot take
    ├── UsageError         (ValueError)   command-line words that do not go together
    ├── RunError           (RuntimeError) a run folder that cannot be used as asked
    │   └── RunLocked                     another process holds it
    ├── CriticError        (RuntimeError) a critic that cannot be had, or does not keep the protocol
    │   └── BudgetSpent                   it may not spend more
    ├── MissingExtra       (ImportError)  a package that `pip install text2grad` does not bring: an extra does
    ├── SandboxError       (RuntimeError) model-written code cannot be run safely here
    └── ModelError         (RuntimeError) a model or tokenizer that cannot be had
        ├── ModelNotFound                 no such alias, folder, file or hub id
        ├── DownloadFailed                it exists, but it could not be fetched
        ├── CorruptModel                  it arrived, but it is not what it should be
        ├── UnsupportedTokenizer          its decoder is of a kind whose offsets are not known
        └── UnsupportedModel              its layers are of a kind that the fast sampler does not know

Each message says what was wanted, what came, where, and what to do. Each class also derives from the standard
library's class for the same thing, so callers who never heard of text2grad can still catch it.
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec


class Text2GradError(Exception):
    """Base of all of them; the command line prints these without a traceback."""


class InvalidData(Text2GradError, ValueError):
    pass


class ConfigError(Text2GradError, ValueError):
    pass


class UsageError(Text2GradError, ValueError):
    pass


class RunError(Text2GradError, RuntimeError):
    pass


class RunLocked(RunError):
    pass


class CriticError(Text2GradError, RuntimeError):
    pass


class BudgetSpent(CriticError):
    pass


class MissingExtra(Text2GradError, ImportError):
    @classmethod
    def of(cls, problem: ModuleNotFoundError, wanted: str) -> "MissingExtra | None":
        """The same problem with the command that solves it; None if no extra brings the module.

        >>> str(MissingExtra.of(ModuleNotFoundError(name="torch.nn"), "text2grad train"))
        "text2grad train needs PyTorch and transformers: pip install 'text2grad[train]' (there is no module `torch`)"
        """
        package = (problem.name or "").partition(".")[0]
        return cls._naming([package], wanted) if package in EXTRAS else None

    @classmethod
    def among(cls, modules: Iterable[str], wanted: str) -> "MissingExtra | None":
        """One command for all of these modules that are missing; None if none is."""
        missing = [module for module in modules if find_spec(module) is None]
        return cls._naming(missing, wanted) if missing else None

    @classmethod
    def _naming(cls, modules: Sequence[str], wanted: str) -> "MissingExtra":
        extras = list(dict.fromkeys(EXTRAS[module] for module in modules))
        needs, gone = ", ".join(NEEDS[extra] for extra in extras), ", ".join(f"`{name}`" for name in modules)
        return cls(
            f"{wanted} needs {needs}: pip install 'text2grad[{','.join(extras)}]' (there is no module {gone})",
            name=modules[0],
        )


EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "accelerate": "train",
    "peft": "train",
    "safetensors": "train",
    "gguf": "train",
    "huggingface_hub": "train",
    "openai": "api",
    "pyarrow": "parquet",
    "trl": "trl",
    "msgspec": "prime-rl",
    "rouge_score": "eval",
    "sacrebleu": "eval",
    "starlette": "studio",
    "uvicorn": "studio",
    "psycopg": "postgres",
}
"""Module → the extra of pyproject.toml that brings it."""
NEEDS = {
    "train": "PyTorch and transformers",
    "api": "the openai package",
    "parquet": "pyarrow",
    "trl": "TRL",
    "prime-rl": "msgspec",
    "eval": "rouge-score and sacrebleu",
    "studio": "Starlette and uvicorn",
    "postgres": "psycopg",
}
"""Extra → what to call it."""


class SandboxError(Text2GradError, RuntimeError):
    pass


class ModelError(Text2GradError, RuntimeError):
    pass


class ModelNotFound(ModelError):
    pass


class DownloadFailed(ModelError):
    pass


class CorruptModel(ModelError):
    pass


class UnsupportedTokenizer(ModelError):
    pass


class UnsupportedModel(ModelError):
    pass


def first_line(problem: BaseException, *, named: bool = False) -> str:
    """What somebody else's error says, cut to fit into a message of ours: its class, where it says nothing. `named`:
    its class in any case.

    >>> first_line(ValueError("no such device\\nCompile with CUDA"), named=True)
    'ValueError: no such device'
    """
    name, lines = type(problem).__name__, str(problem).strip().splitlines()
    if not lines:
        return name
    return f"{name}: {lines[0][:160]}" if named else lines[0][:160]


def panicked(problem: BaseException) -> bool:
    """Whether a library in Rust gave up, as tokenizers do on rules that they cannot follow. What it raises is not an
    `Exception`, and its class cannot be imported."""
    return type(problem).__name__ == "PanicException"
