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
    """Of `path/to/checkpoint`."""

    RENAMED: ClassVar = {"caution": None}
    by: Literal["head", "generation"] = "head"
    """head: the span head, in one pass. generation: the critique is written token by token and aligned like any other;
    a completion whose critique cannot be parsed is not scored."""
    write: Flag = False
    """Have the language head write the feedback of every critique. False: the feedback is a sentence that lists the
    spans; `train` still has it written for the completions that it logs."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: weights and products in bf16, half the memory and faster on a GPU; the span head stays in fp32."""
    batch_tokens: Annotated[Int, Gt(0)] = 16384
    """Tokens that are read at once, padding included; lower it when memory runs out."""
    confidence: Annotated[Real, Ge(0), Le(1)] | None = None
    """Completions below this confidence are not scored; none: the floor that was chosen in training."""


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
