"""A checkpoint → a model folder: the base model of the run, with the weights that the checkpoint holds."""

import json
from pathlib import Path
from typing import Any

import torch

from text2grad.errors import RunError
from text2grad.models.load import fingerprint, load_model, published_dtype
from text2grad.models.parallel import Processes
from text2grad.models.policy import Policy
from text2grad.runs import aside
from text2grad.runs.run import same_model
from text2grad.training.saving import card_of, writers_of
from text2grad.training.state import trained_weights


def export(folder: Path, checkpoint: Path, settings: Any, stage: str, target: Path, *, adapter: bool) -> int:
    """Write the model; the number of the update that it is from. Works on the CPU."""
    model, tokenizer = load_model(settings.model)
    if not same_model(json.loads((folder / "run.json").read_bytes()).get("model"), fingerprint(model, tokenizer)):
        raise RunError(f"{folder} was started from another model than {settings.model} is now; put that one back")
    model.saves_as = published_dtype(settings.model)
    world = Processes("cpu")
    policy = Policy(model, settings.policy, value_head=False)
    parameters = policy.trainable()
    found = trained_weights(checkpoint, parameters)
    weights = {name: weight for name, weight in found.items() if not name.startswith("value_head.")}
    if weights.keys() != parameters.keys():
        raise RunError(
            f"{checkpoint}: holds other weights than {settings.model} has; did the model change under the run?"
        )
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[name].copy_(weight)
    update = int(checkpoint.name.removeprefix("step-"))
    card = card_of(folder, settings, stage, update)
    write = writers_of(policy, tokenizer, world, card, "adapter" if adapter else "merged")["model"]
    with aside(target) as scratch:
        write(scratch)
    return update
