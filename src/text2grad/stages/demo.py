"""`text2grad demo`: see a model learn from words in a few minutes. The settings and the command line.

A small model of our own reads invented incident reports and writes one-sentence bulletins; its critic knows the facts.
A supervised start, then two arms that differ in one switch: rewards where the critique points (Text2Grad), and the same
sum on the last token (scalar PPO). Same data, seeds, updates. What happens is in `_demo.py`.
"""

import argparse
import shlex
from typing import Annotated

from annotated_types import Ge, Gt, Le

from text2grad import config
from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import UsageError
from text2grad.stages import _settings


@settings
class DemoSettings:
    model: str = "embedded"
    """`embedded`: our own, 1.2 million parameters. Or any name that `text2grad train` takes (smollm2-135m): made for a
    GPU. On a CPU the counts below are smaller then, unless they are given: 8 and 4 updates, of 4 reports each,
    measured on 16 every 2."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of everything that is random."""
    start_updates: Annotated[Int, Gt(0)] = 40
    """Supervised updates on plain reports, before both arms."""
    updates: Annotated[Int, Gt(0)] = 48
    """Updates of each arm."""
    prompts: Annotated[Int, Gt(0)] = 16
    """Reports an update."""
    completions: Annotated[Int, Gt(0)] = 4
    """Bulletins of each report."""
    learning_rate: Annotated[Real, Gt(0)] = 1e-4
    """Of both arms; chosen for scalar PPO (studies/demo)."""
    span_lam: Annotated[Real, Ge(0), Le(1)] = 0.8
    """λ of GAE for Text2Grad, whose rewards lie near what they are about (studies/demo)."""
    scalar_lam: Annotated[Real, Ge(0), Le(1)] = 1.0
    """λ of GAE for scalar PPO: below 1 an end-only reward is handicapped (studies/demo)."""
    held_out: Annotated[Int, Gt(0)] = 128
    """Reports with unseen combinations, on which both are measured."""
    held_out_seed: Annotated[Int, Ge(0)] = 8
    """Of the generator that makes them; the settings were chosen on those of another seed (studies/demo)."""
    evaluate_every: Annotated[Int, Gt(0)] = 4
    """Updates between two measurements."""


SMALLER = ("start_updates=8", "updates=4", "prompts=4", "held_out=16", "evaluate_every=2")
"""What a model larger than ours does on a CPU unless something else is asked for."""


def slow(options: DemoSettings) -> bool:
    """Whether a model larger than ours is to be trained on a CPU."""
    if options.model == "embedded" or options.device not in ("cpu", "auto"):
        return False
    import torch

    return options.device == "cpu" or not torch.cuda.is_available()


def command(options: DemoSettings, out: str) -> str:
    """What to type to go on with this demo.

    >>> command(DemoSettings(device="cuda", updates=8), "my demo")
    "text2grad demo --out 'my demo' --device cuda updates=8"
    """
    before, now = config.plain(DemoSettings()), config.plain(options)
    changed = {key: config.inline(value) for key, value in now.items() if value != before[key]}
    flags = [word for key in ("model", "device") if key in changed for word in (f"--{key}", now[key])]
    words = [f"{key}={value}" for key, value in changed.items() if key not in ("model", "device")]
    named = ["--out", out] if not out.startswith("-") else [f"--out={out}"]
    return shlex.join(["text2grad", "demo", *named, *flags, *words])


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad demo [--out DIR] [--model NAME] [--device NAME] [--open] [key=value …]"
    parser.add_argument("words", nargs="*", metavar="key=value", help="settings")
    parser.add_argument("--out", default="demo", metavar="DIR", help="where the runs and the report go (default: demo)")
    parser.add_argument("--model", metavar="NAME", help="another model than the embedded one; the same as model=NAME")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda; the same as device=NAME")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    _settings.add_settings(parser, DemoSettings)


def run(args: argparse.Namespace) -> int:
    others, overrides = _settings.split_overrides(args.words)
    for name in ("model", "device"):
        if (value := getattr(args, name)) is not None:
            overrides.append(f"{name}={config.inline(value)}")
    if slow(config.load(DemoSettings, args.config, overrides)):
        given = config.read(args.config) if args.config is not None else {}
        overrides = [*(word for word in SMALLER if word.partition("=")[0] not in given), *overrides]
    options = _settings.resolve(args, DemoSettings, overrides)
    if options is None:
        return 0
    if others:
        raise UsageError(f"wants settings only, got {others[0]!r}; the folder is named with --out")
    if not args.out.strip():
        raise UsageError("--out should name a folder to write to, got the empty name")
    from text2grad.stages._demo import show

    return show(options, args.out, display=not args.quiet, browser=args.open)
