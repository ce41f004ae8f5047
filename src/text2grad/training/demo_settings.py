"""The settings of the demo; no torch."""

from typing import Annotated

from annotated_types import Ge, Gt

from text2grad._checked import Int, Real
from text2grad.config import settings


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
    updates: Annotated[Int, Gt(0)] = 56
    """Updates of each arm."""
    prompts: Annotated[Int, Gt(0)] = 16
    """Reports per update."""
    completions: Annotated[Int, Gt(1)] = 8
    """Bulletins of each report; they are compared with each other."""
    learning_rate: Annotated[Real, Gt(0)] = 2e-4
    """Of both arms, at its peak: the best of both (studies/words)."""
    held_out: Annotated[Int, Gt(0)] = 128
    """Reports with unseen combinations, on which both are measured."""
    held_out_seed: Annotated[Int, Ge(0)] = 8
    """Of the generator that makes them; the settings were chosen on those of another seed (studies/words)."""
    evaluate_every: Annotated[Int, Gt(0)] = 8
    """Updates between two measurements."""


SMALLER = ("start_updates=8", "updates=4", "prompts=4", "completions=4", "held_out=16", "evaluate_every=2")
"""What a model larger than ours does on a CPU unless something else is asked for."""


def slow(options: DemoSettings) -> bool:
    """Whether a model larger than ours is to be trained on a CPU."""
    if options.model == "embedded" or options.device not in ("cpu", "auto"):
        return False
    import torch

    return options.device == "cpu" or not torch.cuda.is_available()
