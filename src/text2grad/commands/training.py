"""What the training commands share: a run folder, settings, several processes, the exit status.

A command names its settings class and where its trainer lives. The trainer's module brings torch, so it is imported
last, after everything that can be refused without it. A trainer is `Trainer(settings, folder, show=…)` with
`train() -> result` that has a `status`.
"""

import argparse
import importlib
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from text2grad.commands import launching, parsing
from text2grad.errors import UsageError


@dataclass(frozen=True, slots=True)
class TrainingCommand:
    """`text2grad NAME RUN key=value …`."""

    name: str
    settings: type
    trainer: str
    """As module:Class."""
    usage: str
    """The words that people give behind the run folder."""
    wants: str
    """Settings that are required if neither a task nor data is given."""
    sandbox: bool = False
    """Its critic may run programs."""
    dry_run: Callable[[Any], list[str]] | None = None
    """Settings → what the run would do and cost, in lines, without doing it."""
    check: Callable[[argparse.Namespace, Any], None] = lambda *_: None
    """Refuses settings that cannot work; asked once, before any process is started."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = f"text2grad {self.name} RUN {self.usage} [key=value …] [--config FILE] [--launch ddp]"
        parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
        if self.sandbox:
            parsing.add_unsafe(parser)
        if self.dry_run is not None:
            parser.add_argument("--dry-run", action="store_true", help="say what the run would do and cost, and stop")
        parser.add_argument("--quiet", action="store_true", help="no progress display")
        launching.add_launch(parser)
        parsing.add_settings(parser, self.settings)

    def run(self, args: argparse.Namespace) -> int:
        folders, overrides = parsing.split_overrides(args.words)
        settings: Any = parsing.resolve(args, self.settings, overrides)
        if settings is None:
            return 0
        if len(folders) != 1:
            raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad {self.name} --help")
        if not folders[0].strip():
            raise UsageError(f"the name of the run folder is empty; name one, as in text2grad {self.name} runs/first")
        if not settings.data and settings.task == "jsonl":
            raise UsageError(f"wants {self.wants}; see text2grad {self.name} --help")
        self.check(args, settings)
        launching.check_launch(args)
        if hasattr(settings, "sampling") and settings.sampling.url and not samples(settings):
            raise UsageError(f"sampling.url: text2grad {self.name} samples nothing with these settings; leave it out")
        if lines := self._instead(args, folders[0], settings):
            print("\n".join(lines))
            return 0
        if args.launch:
            return launching.launch(args, self.name, parsing.flags_again(args))
        launching.set_threads(Path(folders[0]))
        module, _, name = self.trainer.partition(":")
        made = getattr(importlib.import_module(module), name)(settings, folders[0], show=not args.quiet)
        outcome = made.train()
        if outcome.model is not None and made.world.is_main and not args.quiet:
            tell_end(Path(folders[0]), outcome.model, critic=self.name == "reward-model")
        return launching.ended(outcome.status)

    def _instead(self, args: argparse.Namespace, folder: str, settings: Any) -> list[str]:
        """What is printed in place of a run: a job file, the estimate, or both, the estimate as the file's comments."""
        estimate = self.dry_run(settings) if self.dry_run is not None and args.dry_run else []
        if not args.print_job:
            return estimate
        from text2grad.commands.jobs import job

        comments = [f"# {line}" for text in estimate for line in text.splitlines()]
        return [job(args, self.name, folder, settings).removesuffix("\n"), *comments]


def samples(settings: Any) -> bool:
    """Whether a run with these settings writes completions: dpo for its pairs, sft to judge held-out examples."""
    if hasattr(settings, "pairs"):
        return bool(settings.pairs == "samples")
    return hasattr(settings, "sampling") and getattr(settings, "evaluate_examples", 1) > 0


def tell_end(folder: Path, model: Path, *, critic: bool = False) -> None:
    """The last lines of a run: what changed, where the model is, how to look. `critic`: it is one."""
    from text2grad.report.arms import arms_of
    from text2grad.report.folders import read_runs
    from text2grad.report.words import compare, number

    arms = arms_of(read_runs([folder]))
    lines = list(compare(arms).sentences)
    points = [point for arm in arms for point in arm.series("held_out/score")]
    best = max(points[1:], key=lambda point: point.mean, default=None)
    if best is not None and points[0].update == 0 and best.mean < points[0].mean:
        lines.append(
            f"the start had a better held-out score ({number(points[0].mean)}) than every update (the best: "
            f"{number(best.mean)}, update {best.update}): the model that you began with may serve you better"
        )
    lines.append(f"the model is in {model}")
    if (folder / "best").is_dir():
        lines.append(f"an earlier one had better held-out numbers: it is in {folder / 'best'}")
    named = shlex.quote(str(folder)), shlex.quote(str(model))
    use = f"critic={named[1]} in train and annotate" if critic else f'text2grad generate {named[1]} "a prompt"'
    lines.append(f"look: text2grad report {named[0]} --open; {use}")
    print("\n".join(lines), file=sys.stderr)
