"""Training runs of a tiny model for tests: in this process, or in children that can be killed (`train_driver.py`)."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from text2grad import config
from text2grad.models.sampling import Sampled
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import read_jsonl
from text2grad.training.rl import Trainer
from text2grad.training.settings import TrainSettings
from text2grad.types import Critique, Example, Quote

SMALL = [
    "updates=5",
    "prompts=3",
    "completions=2",
    "checkpoint_every=2",
    "evaluation.every=2",
    "sampling.max_new_tokens=8",
    "update.learning_rate=1e-2",
    "update.micro_batch=3",
    "policy.lora.rank=2",
    "device=cpu",
]


class Driver:
    """Starts training runs in children and says how they ended."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process, self._folder = process, folder

    def begin(self, run: Path, settings: Sequence[str] = (), critic: str = "steady", **more: Any) -> int:
        """The number of the child; `end` waits for it."""
        words = [*([] if more.pop("bare", False) else SMALL), *settings]
        job = {"run": str(run), "log": str(run) + ".log", "settings": words, "critic": critic, **more}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        child = self._line()
        # A status that an earlier test left unread, taken for a process and killed, would be a whole group of them.
        assert child > 1, f"the driver's answers are out of step: got {child}"
        return child

    def end(self) -> int:
        """Its exit status; −9 if it was killed."""
        return self._line()

    def __call__(self, run: Path, settings: Sequence[str] = (), critic: str = "steady", **more: Any) -> int:
        self.begin(run, settings, critic, **more)
        return self.end()

    def cli(self, *words: str, log: Path, **more: Any) -> int:
        self.begin(log, argv=list(words), **more)
        return self.end()

    def _line(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def driving(folder: Path) -> Iterator[Driver]:
    program = Path(__file__).parent / "train_driver.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Driver(process, folder)
        assert process.stdin is not None
        process.stdin.close()


def said(run: Path) -> str:
    """What the last child of this run printed."""
    return Path(str(run) + ".log").read_text()


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The metrics without the times."""
    rows = read_jsonl(run / "metrics.jsonl")
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


def assert_same(run: Path, undisturbed: Path) -> None:
    """Bitwise the same run, and nothing left lying about."""
    assert metrics_of(run) == metrics_of(undisturbed)
    for name in ("rollouts.jsonl", "model/model.safetensors", "config.yaml"):
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert not list(run.rglob(".aside-*"))
    assert not (run / "buffer").exists()
    kept = [path.name for path in sorted((run / "checkpoints").iterdir())]
    assert kept == [path.name for path in sorted((undisturbed / "checkpoints").iterdir())]


def vowels(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:  # noqa: ARG001
    """Vowels are good, other letters are poor; the score is the share of vowels."""
    found: list[Critique | None] = []
    for text in completions:
        runs = [(match.group(), match.start()) for match in re.finditer(r"[aeiou]+|[b-df-hj-np-tv-z]+", text)]
        quotes = [Quote(said, "good" if said[0] in "aeiou" else "poor", start=start) for said, start in runs]
        score = sum(len(said) for said, _ in runs if said[0] in "aeiou") / (len(text) or 1)
        found.append(Critique("", quotes=tuple(quotes), score=score))
    return found


EXAMPLES = [Example(f"train-{n}", f"Which river runs through valley {n}?") for n in range(7)]
HELD_OUT = [Example(f"held-{n}", f"Name the crane of harbour {n}.") for n in range(3)]


def trainer(folder: Path, *settings: str, critic: Any = vowels, **more: Any) -> Trainer:
    """A run of the tiny model in this process."""
    tokenizer = more.pop("tokenizer", None) or tiny_tokenizer()
    more = {"examples": EXAMPLES, "model": tiny_model(tokenizer, hidden_size=16, layers=1), **more}
    resolved = config.load(TrainSettings, None, [*SMALL, *settings])
    return Trainer(resolved, folder, tokenizer=tokenizer, critic=critic, **more)


class Fixed:
    """A sampler that gives the same completions for any prompts, in turn."""

    def __init__(self, *samples: Sampled) -> None:
        self.samples = samples

    def load(self, policy: Any) -> None: ...

    def sample(self, prompts: Sequence[Any], seed: Any) -> list[Sampled]:  # noqa: ARG002
        return list(islice(cycle(self.samples), len(prompts)))


def rows_of(run: Path, *, held_out: bool = False) -> list[dict[str, Any]]:
    """Rows of rollouts.jsonl, of training or of the held-out examples."""
    return [row for row in read_jsonl(run / "rollouts.jsonl") if row.get("held_out", False) == held_out]


def weights_of(one: Any) -> dict[str, Any]:
    return {name: weight.detach().clone() for name, weight in one.policy.named_parameters()}
