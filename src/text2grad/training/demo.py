"""The demo: a supervised start, two arms on the same data, a verdict in plain words, a report.

Enters: its settings and a folder. Leaves: DIR/start, DIR/text2grad and DIR/scalar (run folders), DIR/summary.json and
DIR/report.html; and DIR/settings.yaml, by which it resumes after a kill. The study over seeds (studies/words) is made
of the same functions.
"""

import json
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from text2grad import config
from text2grad.errors import RunError, UsageError
from text2grad.models.load import load_model
from text2grad.models.sampling import SamplingSettings
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.settings import AdvantageSettings, KLSettings, UpdateSettings
from text2grad.report.before_after import show_change
from text2grad.report.folders import read_runs
from text2grad.report.page import build
from text2grad.report.terminal import plain_console
from text2grad.runs import read_jsonl, write_atomic
from text2grad.tasks.bulletin import bulletins
from text2grad.tasks.bulletin_critic import FACTS_RIGHT, TRAINING_SEEDS, bulletin
from text2grad.training.rl import Trainer
from text2grad.training.settings import (
    DemoSettings,
    EvaluationSettings,
    LogSettings,
    SFTSettings,
    SupervisedSettings,
    TrainSettings,
    slow,
)
from text2grad.training.setup import Callback
from text2grad.training.sft import SFTTrainer

ARMS = {
    "text2grad": "[bold]Text2Grad[/bold]: reads the words; each phrase of the critique rewards the tokens it is about.",
    "scalar": "[bold]RLOO[/bold]: the same critiques as one number each, the strongest scalar rival (studies/words).",
}
"""Folder → what tells the two apart, for the reader."""
START_EXAMPLES, EXAMPLES = 2000, 2000
_BEFORE = (
    "A model ({model}) reads incident reports and writes bulletins. Its critic knows the facts and writes what is "
    "right, what is wrong and what is left out, and gives a score. First a supervised start on easy reports; then, "
    "twice from there, {updates} updates from critiques of its bulletins on hard ones."
)
_SLOW = (
    "\nWithout a GPU a model of this size is slow. Unless you ask for more, it makes few updates, which show that it "
    "works, not how well. With a GPU, --device cuda does all of it (in another folder: --out)."
)


def show(options: DemoSettings, out: Path, again: str, *, display: bool, browser: bool) -> int:
    """All of it; prints the verdict. `again`: what to type to resume it."""
    console = Console(quiet=not display)
    try:
        ours = not out.exists()
        settle(options, out)
    except OSError as problem:
        raise UsageError(f"--out should name a folder that can be written to, got {out}: {problem.strerror}") from None
    console.print(_BEFORE.format(model=options.model, updates=options.updates), highlight=False, markup=False)
    if slow(options):
        console.print(_SLOW, highlight=False)
    try:
        base = start(options, out / "start", show=display, again=again)
        for name, difference in ARMS.items():
            console.print(f"\n{difference}", highlight=False)
            arm(options, name, base, out / name, show=display, again=again)
    except BaseException:
        if not _begun(out):
            # There is no such model, or no such device: the mended command may have this folder.
            (out / "settings.yaml").unlink()
            if ours:
                with suppress(OSError):
                    out.rmdir()
        raise
    summary = summarise(options, out)
    write_atomic(out / "summary.json", json.dumps(summary, indent=2).encode() + b"\n")
    page = build(read_runs([out / name for name in ARMS]))
    write_atomic(out / "report.html", page.html)
    print("\n" + verdict(summary))
    if page.before_after:
        print()
        show_change(plain_console(), page.before_after, "report")
    print(f"\nThe report: {out / 'report.html'}; the same numbers: {out / 'summary.json'}")
    if browser and not webbrowser.open((out / "report.html").resolve().as_uri()):
        print("no browser could be started here: open the file yourself")
    return 0


def settle(options: DemoSettings, out: Path) -> None:
    """One folder, one demo: what it was begun with is kept there, and nothing else is mixed into it."""
    path, begun = out / "settings.yaml", _begun(out)
    if not path.exists() and begun:
        raise RunError(f"{out} holds runs, but not the settings of a demo; name another folder with --out")
    if begun:
        there, now = config.read(path, DemoSettings), config.plain(options)
        changed = [f"  {key}: {there.get(key)!r} there, {now[key]!r} now" for key in now if there.get(key) != now[key]]
        if changed:
            raise RunError(f"{out} holds a demo with other settings; choose another --out:\n" + "\n".join(changed))
        return
    write_atomic(path, config.dump(options).encode())


def _begun(out: Path) -> bool:
    return any((out / name).exists() for name in ("start", *ARMS))


def start(
    options: DemoSettings, folder: Path, *, show: bool = False, again: str = "", callbacks: Sequence[Callback] = ()
) -> Path:
    """The supervised start, on plain reports: fluent bulletins, many facts wrong. Gives the model's folder. `again`:
    what to type to resume after Ctrl-C."""
    if (folder / "model").is_dir():
        return folder / "model"
    small = options.model == "embedded"
    settings = SFTSettings(
        model=options.model,
        updates=options.start_updates,
        evaluate_every=options.start_updates,
        seed=options.seed,
        device=options.device,
        format="plain" if small else "auto",
        policy=_policy(options),
        update=SupervisedSettings(learning_rate=5e-4 if small else 2e-4, warmup=5, beta2=0.99),
    )
    model, tokenizer = load_model(options.model)
    loop = SFTTrainer(
        settings,
        folder,
        model=model,
        tokenizer=tokenizer,
        examples=bulletins(TRAINING_SEEDS + options.seed, START_EXAMPLES, plain=True),
        held_out=bulletins(options.held_out_seed, min(64, options.held_out), "held_out", plain=True),
        callbacks=callbacks,
        show=show,
        resume_with=again,
    )
    return _went(loop.train(), again)


def arm(options: DemoSettings, name: str, base: Path, folder: Path, *, show: bool = False, again: str = "") -> Path:
    """One arm, from the supervised start; gives the model's folder."""
    model, tokenizer = load_model(str(base))
    loop = Trainer(
        train_settings(options, name),
        folder,
        model=model,
        tokenizer=tokenizer,
        examples=bulletins(TRAINING_SEEDS + options.seed, EXAMPLES),
        held_out=bulletins(options.held_out_seed, options.held_out, "held_out"),
        critic=bulletin,
        metrics=[FACTS_RIGHT],
        show=show,
        resume_with=again,
    )
    return _went(loop.train(), again)


def train_settings(options: DemoSettings, name: str) -> TrainSettings:
    """What both arms share, and the switch."""
    small = options.model == "embedded"
    return TrainSettings(
        model=options.model,
        data="(made by text2grad.tasks.bulletin)",
        critic="text2grad.tasks.bulletin_critic:bulletin",
        reward="scalar" if name == "scalar" else "span",
        updates=options.updates,
        prompts=options.prompts,
        completions=options.completions,
        seed=options.seed,
        device=options.device,
        format="plain" if small else "auto",
        checkpoint_every=8,
        policy=_policy(options),
        sampling=SamplingSettings(max_new_tokens=40 if small else 64, batch=128),
        advantage=AdvantageSettings(estimator="rloo" if name == "scalar" else "anchored"),
        kl=KLSettings(coefficient=0.0 if small else 0.02, measure=True),
        update=UpdateSettings(
            epochs=1,
            minibatches=2,
            micro_batch=128 if small else 16,
            learning_rate=options.learning_rate,
            schedule="linear",
            warmup=4,
        ),
        evaluation=EvaluationSettings(every=options.evaluate_every, examples=options.held_out),
        log=LogSettings(rollouts=12, locality=16),
    )


def summarise(options: DemoSettings, out: Path) -> dict[str, Any]:
    """The numbers of the verdict, from the runs' own files."""
    curves = {name: curve(out / name) for name in ARMS}
    goal = curves["scalar"][-1]["score"]
    arms = {}
    for name, points in curves.items():
        reached = next((point["update"] for point in points if point["score"] >= goal), None)
        arms[name] = {**points[-1], "reached_goal_at_update": reached, "curve": points}
    first = curves["scalar"][0]
    return {
        "seed": options.seed,
        "model": options.model,
        "updates": options.updates,
        "completions_per_update": options.prompts * options.completions,
        "held_out_reports": options.held_out,
        "before": {"score": first["score"], "facts_right": first["facts_right"]},
        "goal": {"score": goal, "meaning": "RLOO's score after its last update"},
        "arms": arms,
    }


def curve(folder: Path) -> list[dict[str, Any]]:
    """Held-out score and facts right at each measurement of a run."""
    rows = [row for row in read_jsonl(folder / "metrics.jsonl") if "held_out/score" in row]
    if not rows:
        raise RunError(f"{folder}: has no measurement; delete the folder and run the demo again")
    return [
        {
            "update": int(row["update"]),
            "score": float(row["held_out/score"]),
            "facts_right": float(row["held_out/facts_right"]),
            "length": float(row["held_out/length"]),
        }
        for row in rows
    ]


def verdict(summary: dict[str, Any]) -> str:
    """What a person wants to know, in plain words."""
    before, span, scalar = summary["before"], summary["arms"]["text2grad"], summary["arms"]["scalar"]
    after = f"after {summary['updates']} update{'s'[: summary['updates'] > 1]}"
    said = [
        f"Facts right on {summary['held_out_reports']} reports never seen in training:",
        f"  before           {before['facts_right']:.0%}",
        f"  RLOO, one number {scalar['facts_right']:.0%} {after}",
        f"  Text2Grad, words {span['facts_right']:.0%} {after}",
        "",
    ]
    goal, reached = summary["goal"]["score"], span["reached_goal_at_update"]
    own = scalar["reached_goal_at_update"]
    if goal <= before["score"]:
        said.append(f"RLOO did not get better than it began (score {goal:.2f}), so there is nothing to race for.")
    elif reached is None:
        said.append(f"Text2Grad did not reach RLOO's final score of {goal:.2f}. That can happen on one seed.")
    else:
        said.append(
            f"RLOO's final score, {goal:.2f}, was reached by Text2Grad at update {reached} and by RLOO at update {own}."
        )
    said.append(f"One seed ({summary['seed']}) is an anecdote; studies/words has ten, and damaged words as well.")
    return "\n".join(said)


def _policy(options: DemoSettings) -> PolicySettings:
    return PolicySettings(lora=LoraSettings(rank=0 if options.model == "embedded" else 16))


def _went(outcome: Any, again: str) -> Path:
    if outcome.interrupted:
        if outcome.status != 130:  # else the run has said it
            print(f"resume with: {again}", file=sys.stderr)
        raise KeyboardInterrupt
    if outcome.model is None:
        raise RunError("the run ended without a model; run the same command again to resume")
    return Path(outcome.model)
