"""`text2grad evaluate`: a task's metrics of any model. What happens is in `evaluation/evaluate.py`."""

import argparse
import json
import os
from typing import TYPE_CHECKING

from text2grad.commands import launching, parsing
from text2grad.errors import CriticError, UsageError
from text2grad.evaluation.settings import EvaluateSettings
from text2grad.runs import check_target, encode_row, write_atomic
from text2grad.runs.world import ALONE, World

if TYPE_CHECKING:
    from text2grad.evaluation.evaluate import Results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad evaluate MODEL task=NAME [data=FILE] [key=value …] [--out FILE] [--rollouts FILE]"
    parser.add_argument(
        "words", nargs="*", metavar="MODEL key=value", help="alias, model or run folder, .gguf file or hub id; settings"
    )
    parser.add_argument("--judge", metavar="openai:MODEL", help="the same as judge=openai:MODEL")
    parser.add_argument("--grader", metavar="openai:MODEL", help="the same as grader=openai:MODEL")
    parser.add_argument("--out", metavar="FILE", help="write the results here as JSON")
    parser.add_argument("--rollouts", metavar="FILE", help="write every completion with its critique here as JSONL")
    parsing.add_unsafe(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    launching.add_launch(parser)
    parsing.add_settings(parser, EvaluateSettings)


def run(args: argparse.Namespace) -> int:
    models, overrides = parsing.split_overrides(args.words)
    overrides += [f"{key}={name}" for key in ("judge", "grader") if (name := getattr(args, key))]
    settings = parsing.resolve(args, EvaluateSettings, overrides)
    if settings is None:
        return 0
    if len(models) != 1:
        raise UsageError(f"wants one model, got {len(models)}; see text2grad evaluate --help")
    from text2grad.feedback.critics.named import refuse_people

    refuse_people(settings.critic)
    refuse_people(settings.best_of_critic)
    for file in filter(None, (args.out, args.rollouts)):
        check_target(file)
    if args.launch or args.processes is not None:
        named = {f"--{flag}": getattr(args, flag) for flag in ("judge", "grader", "out", "rollouts")}
        words = [word for flag, name in named.items() if name for word in (flag, name)]
        return launching.launch(args, "evaluate", [*words, *parsing.flags_again(args)])
    from text2grad.evaluation.evaluate import evaluate

    launching.set_threads()
    world, device = launched(settings.device)
    results = evaluate(models[0], settings, world=world, device=device, show=not args.quiet)
    if world.is_main:
        print_table(results)
        if args.out:
            write_atomic(args.out, json.dumps(results.to_json(), indent=2, ensure_ascii=False).encode() + b"\n")
        if args.rollouts:
            rows = [{"part": name, **one.to_json()} for name, part in results.parts.items() for one in part.rollouts]
            write_atomic(args.rollouts, map(encode_row, rows))
        if results.failed:
            raise CriticError(f"everything else was measured; {results.failed}")
    return launching.ended(0)


def launched(device: str) -> tuple[World, str]:
    """The processes of this run, and the device of this one. Accelerate is asked only where there are several."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE, device
    from text2grad.models.load import device_named
    from text2grad.models.parallel import AccelerateWorld

    world = AccelerateWorld(device_named(device))
    return world, str(world.device)


def print_table(results: "Results") -> None:
    """One row per metric, one column per way of writing."""
    from rich.console import Console
    from rich.table import Table

    settings, examples = results.settings, f"{results.examples} {results.split} examples"
    print(f"{results.model} on {settings.task}: {examples}, scored by {results.critic}")
    table = Table("metric")
    titles = {
        "greedy": "greedy",
        "reflection": "written again",
        "samples": f"{max(settings.samples, settings.best_of)} samples",
        "best_of": f"best of {settings.best_of}",
    }
    for part in results.parts:
        table.add_column(titles.get(part, part.replace("_", " ")), justify="right")
    keys = dict.fromkeys(key.partition("/")[2] for key in results.metrics)
    for key in keys:
        numbers = [results.metrics.get(f"{part}/{key}") for part in results.parts]
        title = results.infos[f"greedy/{key}"].title
        table.add_row(title, *("" if number is None else f"{number:.4g}" for number in numbers))
    Console().print(table)
    if results.judged is not None:
        said = results.judged.to_json()
        rate = "no pair could be read"
        if said["win_rate"] is not None:
            rate = f"wins {said['win_rate']:.1%} ({said['low']:.1%} to {said['high']:.1%})"
        print(
            f"{said['judge']}, against {settings.against}: {rate}; {said['wins']} won, {said['ties']} tied, "
            f"{said['losses']} lost, {said['unreadable']} not readable"
        )
    if results.grades is not None:
        said = results.grades.to_json()
        grade = "no grade could be read" if said["grade"] is None else f"{said['grade']:.2f} of 10"
        error = "" if said["error"] is None else f" ± {said['error']:.2f}"
        print(f"{said['judge']}: {grade}{error}; {said['graded']} graded, {said['unreadable']} not readable")
        for means in (said["turns"], said["categories"]):
            if len(means) > 1:
                print("  " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items() if mean is not None))
