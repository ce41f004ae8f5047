"""Seconds of a training step by part: sample, critic, align, forward (reference, look-back), update, everything else.

A small Llama built in code, the critic `reference`, the settings' defaults (16 prompts of 4 completions, 64 new tokens,
2 epochs of 2 minibatches, KL penalty, LoRA, log-probs of some completions taken again). The time of a step is taken by
the clock from one step's end to the next, so what is written to the disk between them is in it, under "other". Asserts
that every step sampled, scored and updated; prints the shares, and last what is neither sampling nor update.

The reference reads each prompt once and each completion once, the update reads both six times (two epochs, forward and
backward): so the share falls with the length of the prompts. The default is that of short news; with --sentences 3,
prompts of 74 tokens, it is 0.11 to 0.12: 7 % for the reference, 3 % for the look-back, most of it matrix products.

    python benchmarks/step.py [--updates 6] [--hidden 256] [--layers 4] [--sentences 14]
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from text2grad import config
from text2grad.models.chat import prompt_ids
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.training.rl import Trainer
from text2grad.training.settings import TrainSettings
from text2grad.types import Example

PLACES = ("harbour", "valley", "bridge", "quay", "market", "station", "tower", "mill")
THINGS = ("crane", "ferry", "tram", "lorry", "dam", "gate", "kiln", "boiler")
PARTS = ("sample", "critic", "align", "forward", "update", "other")


def examples(sentences: int) -> list[Example]:
    """Invented news and their summaries; so many sentences of 15 to 20 tokens follow the one that matters."""
    found = []
    for number, (place, thing) in enumerate((place, thing) for place in PLACES for thing in THINGS):
        more = [
            f"Work on the {thing} began in May.",
            f"The town had asked for a second {place} twice, and twice the council put the matter off.",
            f"Repairs will take {number + 3} days.",
            f"Until then a {thing} from the next {place} is lent, said a clerk who did not give her name.",
            f"It was the {number + 2}th accident at the {place} since the {thing} was built.",
        ]
        source = " ".join(
            [f"The {place} was closed at noon after a {thing} fell; nobody was hurt, said the port's master on Monday."]
            + [more[turn % len(more)] for turn in range(sentences)]
        )
        summary = f"A {thing} fell at noon and closed the {place}; nobody was hurt."
        found.append(Example(str(number), f"Summarise: {source}", summary))
    return found


def measure(updates: int, hidden: int, layers: int, sentences: int, overrides: list[str]) -> dict[str, float]:
    """Mean seconds of each part, the first step left out: it warms up."""
    given = examples(sentences)
    tokenizer = tiny_tokenizer([f"{one.prompt} {one.reference}" for one in given], vocab_size=4096)
    model = tiny_model(tokenizer, hidden_size=hidden, layers=layers)
    lengths = [len(prompt_ids(tokenizer, one.prompt)) for one in given]
    print(f"prompts of {min(lengths)} to {max(lengths)} tokens, {sum(p.numel() for p in model.parameters()):,} weights")
    rows: list[Mapping[str, Any]] = []
    ends = [time.perf_counter()]

    def note(_: Trainer, metrics: Mapping[str, Any]) -> None:
        rows.append(metrics)
        ends.append(time.perf_counter())

    settings = config.load(TrainSettings, None, [f"updates={updates + 1}", "device=cpu", *overrides])
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            settings, Path(folder) / "run", model=model, tokenizer=tokenizer, examples=given, callbacks=[note]
        )
        trainer.train()
    for row in rows:
        assert row["critic/unscored_frac"] == 0 and row["update/steps"] == 4 and row["length/mean"] > 32, row
    timed = rows[1:]
    seconds = {part: sum(row[f"time/{part}"] for row in timed) / len(timed) for part in PARTS[:-1]}
    whole = (ends[-1] - ends[1]) / len(timed)
    return seconds | {"other": whole - sum(seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=14, help="of the text that is summarised, after its first")
    parser.add_argument("settings", nargs="*", help="settings of the run, as key=value")
    args = parser.parse_args()
    seconds = measure(args.updates, args.hidden, args.layers, args.sentences, args.settings)
    whole = sum(seconds.values())
    print(f"{torch.get_num_threads()} threads, {whole:.2f} s a step")
    for part in PARTS:
        print(f"  {part:<8} {seconds[part]:8.3f} s  {seconds[part] / whole:6.1%}")
    print(f"other_than_sampling_and_update={1 - (seconds['sample'] + seconds['update']) / whole:.3f}")


if __name__ == "__main__":
    main()
