"""The settings of a reward model as a critic, and how its folder is recognised. The model itself has tensors, so it
lives in `models/reward/`; `critic_named(..., opened=...)` takes the function that opens it."""

import hashlib
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from text2grad._checked import Flag, Int, Real
from text2grad.config import settings

CARD = "reward_model.json"
"""The file that makes a model folder a reward model: its template and its calibration."""


@settings
class LearnedSettings:
    """Settings of a reward model as a critic."""

    RENAMED: ClassVar = {"caution": None}
    by: Literal["head", "generation"] = "head"
    """head: the span head judges every token in one forward pass. generation: the language head writes a critique,
    which is aligned like any other; a completion whose critique cannot be parsed is not scored."""
    write: Flag = False
    """Also write the feedback of every critique with the language head, which is slow. False: the feedback is one
    sentence that lists the spans, and `train` writes it in full only for the completions that it logs."""
    device: str = "auto"
    """Where the model runs: cpu, cuda, …; auto takes cuda if there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 halves the memory and is faster on a GPU; the span head stays in float32."""
    batch_tokens: Annotated[Int, Gt(0)] = 16384
    """Tokens per forward pass, padding included. Lower it if memory runs out."""
    confidence: Annotated[Real, Ge(0), Le(1)] | None = None
    """Completions with a confidence below this are not scored; none: the threshold that was chosen in training."""


def is_checkpoint(name: str) -> bool:
    """Whether a critic's name is the folder of a reward model."""
    try:
        return (Path(name).expanduser() / CARD).is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def digest_of(name: str) -> str:
    """sha256 over the files of a reward model: a critic that was trained on is another critic."""
    digest = hashlib.sha256()
    for path in sorted(Path(name).expanduser().iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
