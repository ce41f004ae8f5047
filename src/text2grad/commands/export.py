"""`text2grad export`: a checkpoint → a model folder, for a run that was stopped; its rollouts → neutral rows."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from text2grad import config
from text2grad.errors import RunError, Text2GradError, UsageError
from text2grad.training.settings import DPOSettings, SFTSettings, TrainSettings

STAGES = {"train": TrainSettings, "sft": SFTSettings, "dpo": DPOSettings}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "text2grad export RUN[/checkpoints/step-…] MODEL_FOLDER [--adapter]\n"
        "       text2grad export RUN [FILE] --format jsonl|parquet\n"
        "       text2grad export FILE --check"
    )
    words = "a run stands for its last checkpoint"
    parser.add_argument("words", nargs="*", metavar="CHECKPOINT MODEL_FOLDER", help=words)
    parser.add_argument("--adapter", action="store_true", help="write the LoRA adapter alone, for peft")
    rows = "write the logged rollouts as rows for other trainers (docs/engines/README.md); FILE: RUN/rows.jsonl"
    parser.add_argument("--format", choices=("jsonl", "parquet"), help=rows)
    parser.add_argument("--check", action="store_true", help="say what is wrong with a file of such rows")


def run(args: argparse.Namespace) -> int:
    if args.format or args.check:
        if args.adapter or (args.format and args.check):
            raise UsageError("--adapter, --format and --check exclude each other")
        return check_rows(args.words) if args.check else write_rows(args.words, args.format)
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
    from text2grad.training.saving import export

    update = export(folder, checkpoint, settings, stage, target, adapter=args.adapter)
    print(f"wrote {target}: the weights after update {update}", file=sys.stderr)
    return 0


def write_rows(words: list[str], form: Literal["jsonl", "parquet"]) -> int:
    """The rollouts that a run logged, as rows."""
    from text2grad.engines.rows import TrainingRow, rows_of_run, write_training_rows

    if len(words) not in (1, 2):
        raise UsageError(f"wants a run and, if you like, a file to write, got {len(words)} words")
    folder = Path(words[0]).expanduser()
    target = Path(words[1]).expanduser() if len(words) == 2 else folder / f"rows.{form}"
    if target.suffix in (".jsonl", ".parquet") and target.suffix != f".{form}":
        raise UsageError(f"{target}: its ending says {target.suffix[1:]}, --format says {form}; change one of them")
    if target.exists():
        raise UsageError(f"{target} exists already; name another file, or delete it")
    updates, unscored = set(), 0

    def seen() -> Iterator[TrainingRow]:
        nonlocal unscored
        for row in rows_of_run(folder):
            updates.add(row.update)
            unscored += not row.scored
            yield row

    count = write_training_rows(target, seen(), form)
    print(f"wrote {target}: {count:,} rows of {len(updates)} updates, {unscored:,} of them not scored", file=sys.stderr)
    sampled = 0
    with suppress(Text2GradError):
        if recorded(folder) == "train":
            settings = config.load(TrainSettings, folder / "config.yaml")
            sampled = settings.prompts * settings.completions
    if sampled and count < sampled * len(updates):
        print(
            f"the run logged {count:,} of {sampled * len(updates):,} completions; log.rollouts={sampled} logs all",
            file=sys.stderr,
        )
    return 0


def check_rows(words: list[str]) -> int:
    """Whether a file keeps the contract; 1 if not."""
    from text2grad.engines.rows import check_training_rows

    if len(words) != 1:
        raise UsageError(f"--check wants one file of rows, got {len(words)} words")
    found = check_training_rows(Path(words[0]).expanduser())
    for problem in found.problems:
        print(problem)
    verdict = "with problems, listed above" if found.problems else "no problems"
    print(
        f"{found.rows:,} rows in {found.groups:,} groups: {found.unscored:,} not scored, "
        f"{found.without_advantages:,} without advantages; {verdict}"
    )
    return 1 if found.problems else 0


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
