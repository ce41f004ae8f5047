"""Runs training jobs in children that can be killed: started once by `trainings.py`, because importing torch costs more
than a run of the tiny model. Reads a JSON job a line, forks, writes the child's number, waits, writes how it ended.

A job: {"run": folder, "log": file, "settings": [a=b …], "critic": name, "die": [point, n] | null}; with "stage":
"reward-model" or "dpo" the settings are those of that command, and say all; or {"argv": […]} for the command line.
`die` kills the child with SIGKILL at the n-th passage of a point of the loop.
"""

import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import accelerate  # noqa: F401
import numpy as np
import peft  # noqa: F401
import torch
import transformers

import text2grad.cli
from text2grad import config
from text2grad.feedback.critics.protocol import Critiques
from text2grad.models.backbone import Backbone
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs.folder import RunFolder
from text2grad.runs.run import Run
from text2grad.training.preference import DPOTrainer
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.rl import Trainer
from text2grad.training.settings import DPOSettings, RewardModelSettings, TrainSettings
from text2grad.types import Critique, Example, Quote

EXAMPLES = [Example(f"train-{n}", f"Which river runs through valley {n}?", columns={"n": n}) for n in range(7)]
HELD_OUT = [Example(f"held-{n}", f"Name the crane of harbour {n}.") for n in range(3)]
PAIRS, HELD_PAIRS = (
    [replace(e, columns={**e.columns, "chosen": f"The Mura {e.id}.", "rejected": "No idea at all."}) for e in examples]
    for examples in (EXAMPLES, HELD_OUT)
)


def quoting(texts: Sequence[str], score: Callable[[str], float]) -> list[Critique | None]:
    """The first half is good, the more so the more vowels there are; the second half is poor. The running scale of
    verdicts is then neither 0 nor the same in every update: to lose it would show."""
    critiques: list[Critique | None] = []
    for text in texts:
        half, share = len(text) // 2, sum(character in "aeiou " for character in text) / (len(text) + 1)
        quotes = [
            Quote(text[start:end], verdict, severity=severity, start=start)  # type: ignore[arg-type]
            for start, end, verdict, severity in (
                (0, half, "good", 0.05 + 0.9 * share**2),
                (half, len(text), "poor", 0.1),
            )
            if text[start:end].strip()
        ]
        critiques.append(Critique("", quotes=tuple(quotes), score=score(text)))
    return critiques


def steady(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    return quoting(completions, lambda text: sum(character in "aeiou " for character in text) / (len(text) + 1))


def drawing(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """Draws from every global state that there is."""
    return quoting(
        completions, lambda _: random.gauss(0, 1) + float(np.random.standard_normal()) + float(torch.rand(()))
    )


def counting(_prompts: Any, completions: Sequence[str], n: Sequence[Any] = (), **_: Any) -> list[Critique | None]:
    """Leaves a line for each completion that it is asked about; those of held-out examples have no number."""
    with Path(os.environ["COUNTED"]).open("a") as file:
        file.writelines(f"{n[place] if n else '-'}\t{text!r}\n" for place, text in enumerate(completions))
    return steady(None, completions)


def unwilling(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """Scores every other completion."""
    return [said if place % 2 else None for place, said in enumerate(steady(None, completions))]


def refusing(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """Scores nothing, and says why."""
    return Critiques([None] * len(completions), {0: "the harbour is closed"})


CRITICS = {"refusing": refusing, "steady": steady, "drawing": drawing, "counting": counting, "unwilling": unwilling}


class Die:
    """SIGKILL at the n-th passage, after `first` was done if given."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, first: Callable[[], object] = lambda: None) -> None:
        self.left -= 1
        if self.left == 0:
            first()
            os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, die: Die, first: Callable[..., object] = lambda *_a, **_k: None) -> None:
    """Pass a point of death before each call of a method."""
    real = getattr(owner, name)

    def patched(*args: Any, **named: Any) -> Any:
        die(lambda: first(*args, **named))
        return real(*args, **named)

    setattr(owner, name, patched)


def half_written(_state_dict: Any, place: Path) -> None:
    place.write_bytes(b"PK half a checkpoint")


def half_saved(_policy: Any, place: Path, *_: Any, **__: Any) -> None:
    place.mkdir()
    (place / "model.safetensors").write_bytes(b"half")


def half_logged(run: Run, metrics: dict[str, Any], rollouts: Any = (), held_out: Any = ()) -> None:
    """All the rollouts, and half a line of the metrics."""
    assert run.folder is not None
    rows = [{"update": metrics["update"], **rollout.to_json()} for rollout in (*rollouts, *held_out)]
    run.folder.rollouts.append(rows)
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(json.dumps(metrics).encode()[:40])


def arrange(point: str, n: int, critic: Any) -> Any:
    """The critic, with death at the point."""
    die = Die(n)
    if point == "critic":

        def mortal(*args: Any, **named: Any) -> Any:
            die()
            return critic(*args, **named)

        return mortal
    owner, name, first = {
        "buffer": (Run, "keep", None),
        "step": (torch.optim.AdamW, "step", None),
        "log": (Run, "log", half_logged),
        "checkpoint": (Run, "_save", None),
        "save": (torch, "save", half_written),
        "prune": (RunFolder, "prune", None),
        "forget": (Run, "_forget", None),
        "model": (Backbone, "save_pretrained", half_saved),
        "look": (RewardModelTrainer, "_predict", None),
    }[point]
    before(owner, name, die, *([first] if first else []))
    return critic


def perform(job: dict[str, Any]) -> int:
    if "argv" in job:
        return text2grad.cli.main(job["argv"])
    critic: Any = CRITICS[job["critic"]]
    if job.get("die"):
        point, number = job["die"]
        critic = arrange(point, number, critic)
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, hidden_size=16, layers=1)
    if job.get("stage") == "reward-model":
        judged = config.load(RewardModelSettings, None, job["settings"])
        return RewardModelTrainer(judged, job["run"], model=model, tokenizer=tokenizer).train().status
    if job.get("stage") == "dpo":
        preferred = config.load(DPOSettings, None, job["settings"])
        given: Any = {"examples": PAIRS, "held_out": HELD_PAIRS, "critic": critic}
        return DPOTrainer(preferred, job["run"], model=model, tokenizer=tokenizer, **given).train().status
    settings = config.load(TrainSettings, None, job["settings"])
    trainer = Trainer(
        settings,
        job["run"],
        model=model,
        tokenizer=tokenizer,
        examples=EXAMPLES,
        held_out=HELD_OUT,
        critic=critic,
    )
    return trainer.train().status


def child(job: dict[str, Any]) -> int:
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(job.get("environment", {}))
    os.chdir(job.get("cwd", "."))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return perform(job)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main() -> None:
    # Imported by name when first used: once here, not in each child.
    assert transformers.LlamaForCausalLM and transformers.PreTrainedTokenizerFast
    for line in sys.stdin:
        job = json.loads(line)
        number = os.fork()
        if number == 0:
            os._exit(child(job))
        print(number, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
