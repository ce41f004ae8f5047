"""The settings of a reward model as a critic, and how its folder is recognised. The model itself has tensors, so it
lives in `models/reward/`; `critic_named(..., opened=...)` takes the function that opens it."""

import hashlib
from pathlib import Path

from text2grad.runs.folder import file_digest

CARD = "reward_model.json"
"""The file that makes a model folder a reward model: its template and its calibration."""


def is_checkpoint(name: str) -> bool:
    """Whether a critic's name is the folder of a reward model."""
    try:
        return (Path(name).expanduser() / CARD).is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def checkpoint_digest(name: str) -> str:
    """sha256 over the files of a reward model: a critic that was trained on is another critic."""
    digest = hashlib.sha256()
    for path in sorted(Path(name).expanduser().iterdir()):
        if path.is_file():
            digest.update(f"{path.name} {file_digest(path)}".encode())
    return digest.hexdigest()
