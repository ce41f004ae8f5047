"""A small task with a truth, tiny reward models, and the batches that they learn from."""

import random
from pathlib import Path
from typing import Any

from text2grad.models.reward.model import RewardModel
from text2grad.models.settings import LoraSettings, PolicySettings, Template
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import encode_row
from text2grad.tasks.annotated import Annotated
from text2grad.training.settings import SupervisedSettings
from text2grad.types import Alignment, Critique, Span

TEMPLATE = Template(max_tokens=200, critique_tokens=40)
FULL = PolicySettings(lora=LoraSettings(rank=0))
FAST = SupervisedSettings(batch=8, micro_batch=8, learning_rate=5e-3)
WORDS = ("river", "harbour", "crane", "valley", "noon")


def rows(count: int = 24, seed: int = 0, *, each: int = 1, score: bool = False) -> list[Annotated]:
    """Sentences in which `Drava` is poor and `Mura` is good: what a token is, is written on it."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        prompt = f"Which river runs through valley {number // each}?"
        said = [*draw.choices(WORDS, k=2), "Drava" if draw.random() < 0.5 else "Mura", draw.choice(WORDS)]
        if draw.random() < 0.3:
            said.insert(1, "Drava")
        text, spans = "", []
        for word in said:
            at = len(text) + bool(text)
            text += f"{' ' if text else ''}{word}"
            if word in ("Drava", "Mura"):
                spans.append(Span(at, len(text), "poor" if word == "Drava" else "good"))
        total = sum(1.0 if span.verdict == "good" else -1.0 for span in spans)
        words = "Drava is wrong." if total < 0 else "Mura is right."
        critique = Critique(words, score=total if score else None)
        found.append(Annotated(f"r{number}", prompt, text, critique, Alignment(tuple(spans))))
    return found


def write_rows(path: Path, made: list[Annotated]) -> Path:
    """As `text2grad annotate` leaves them."""
    path.write_bytes(
        b"".join(
            encode_row(
                {
                    "id": row.id,
                    "prompt": row.prompt,
                    "completion": row.completion,
                    "critique": row.critique.to_json(),
                    "spans": [span.to_json() for span in row.alignment.spans],
                }
            )
            for row in made
        )
    )
    return path


def untrained(options: PolicySettings = FULL, template: Template = TEMPLATE, **more: Any) -> tuple[RewardModel, Any]:
    """A reward model whose span head has opinions, by chance."""
    import torch

    tokenizer = tiny_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = RewardModel(tiny_model(tokenizer, **more), options, template)
        torch.nn.init.normal_(model.span_head.linear.weight, std=0.3)
    return model.eval(), tokenizer
