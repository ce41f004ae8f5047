"""`text2grad export`: a checkpoint → a model folder, for a run that was stopped."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from text2grad import config
from text2grad.errors import RunError, UsageError
from text2grad.training.settings import DPOSettings, SFTSettings, TrainSettings

STAGES = {"train": TrainSettings, "sft": SFTSettings, "dpo": DPOSettings}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad export RUN[/checkpoints/step-…] MODEL_FOLDER [--adapter]"
    parser.add_argument(
        "words", nargs="*", metavar="CHECKPOINT MODEL_FOLDER", help="a run stands for its last checkpoint"
    )
    parser.add_argument("--adapter", action="store_true", help="write the LoRA adapter alone, for peft")


def run(args: argparse.Namespace) -> int:
    if len(args.words) != 2:
        raise UsageError(f"wants a checkpoint and a folder to write, got {len(args.words)} words")
    source, target = Path(args.words[0]).expanduser(), Path(args.words[1]).expanduser()
    if target.exists():
        raise UsageError(f"{target} exists already; name another folder, or delete it")
    checkpoint = last_checkpoint(source)
    folder = checkpoint.parent.parent
    stage = recorded(folder)
    if stage not in STAGES:
        raise RunError(
            f"{folder} holds a run of `{stage}`, and only {', '.join(STAGES)} can be exported; resume it instead"
        )
    settings: Any = config.load(STAGES[stage], folder / "config.yaml")
    if args.adapter and not settings.policy.lora.rank:
        raise UsageError(
            f"{folder}: this run trains all weights (policy.lora.rank=0), so it has no adapter; leave out --adapter"
        )
    from text2grad.training.export import export

    update = export(folder, checkpoint, settings, stage, target, adapter=args.adapter)
    print(f"wrote {target}: the weights after update {update}", file=sys.stderr)
    return 0


def last_checkpoint(source: Path) -> Path:
    """The checkpoint that is meant: itself, or the last one of a run."""
    if source.name.startswith("step-") and source.is_dir():
        return source.resolve()
    inside = source if source.name == "checkpoints" else source / "checkpoints"
    steps = sorted(path for path in inside.glob("step-*") if path.name[5:].isdecimal())
    if not steps:
        raise RunError(f"{source}: has no checkpoint; name a run folder, or RUN/checkpoints/step-…")
    return steps[-1].resolve()


def recorded(folder: Path) -> str:
    try:
        return str(json.loads((folder / "run.json").read_bytes())["stage"])
    except (OSError, ValueError, LookupError, TypeError):
        raise RunError(f"{folder}: this is not a run folder, because it has no run.json that can be read") from None
