"""Which settings of each family a study takes, by a rule that is fixed before the runs:

    python -m studies.summarization.choose runs/choose          # prints the words to put behind the study's command

Enters: the folder of a comparison by `choose.yaml`, or by another file of the same kind (`--config`; words that stood
behind its command are repeated here), and the study's file (`--study`). Leaves: of `scalar_*` and of `text2grad_*` the
arm with the highest last ROUGE-L, mean over its seeds, among those whose length stays within 20 % of the supervised
start's and whose copying is at most 0.02 above it. Where no arm of a family stays within both: the highest of all. Arms
that did not finish, and arms whose critic is not the study's, are not taken.

Printed is every setting in which the arm that was taken, with the common settings of its comparison, differs from the
study's arm of that name with the common settings of the study. Left out is what belongs to the study: data, budget,
evaluation, what is saved, and sizes that change the speed alone.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.pages import loaded

from text2grad import config
from text2grad.errors import ConfigError
from text2grad.training.compare import KINDS, CompareSettings

HERE = Path(__file__).parent
LENGTH, COPIED = 0.2, 0.02
FAMILIES = ("scalar", "text2grad")
START = "sft"
_OF_ARM = ("command", "start", "seeds", "n")
"""Keys of an arm that are not settings of its command."""
_OF_STUDY = (
    *("model", "task", "task_options", "data", "held_out", "columns", "seed", "metrics", "evaluation", "log"),
    *("updates", "prompts", "completions", "checkpoint_every", "keep_checkpoints", "save", "save_best", "device"),
    *("sampling.batch", "sampling.prefill_tokens", "sampling.url", "sampling.served", "update.micro_batch"),
    *("policy.packing", "policy.cuda_graphs", "policy.gradient_checkpointing", "policy.compile"),
)
"""Settings, and groups of settings, that an arm has from its study."""
_CRITIC = ("critic", "critics")


def last_metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    """Arm → the last metrics of each of its seeds, from the rows of results.json."""
    last: dict[tuple[str, int], Mapping[str, Any]] = {}
    for row in rows:
        key = row["arm"], row["seed"]
        if key not in last or row["update"] >= last[key]["update"]:
            last[key] = row
    arms: dict[str, list[Mapping[str, float]]] = {}
    for (arm, _), row in last.items():
        arms.setdefault(arm, []).append(row["metrics"])
    return arms


def mean(metrics: Sequence[Mapping[str, float]], key: str) -> float:
    return sum(each[key] for each in metrics) / len(metrics)


def refused(options: CompareSettings, study: CompareSettings, finished: Mapping[str, Iterable[int]]) -> dict[str, str]:
    """Arm → why it is not taken. `finished`: the seeds that came to their end."""
    found = {}
    for name, tree in options.arms.items():
        seeds = tree.get("seeds", options.seeds)
        planned = options.seeds[:1] if seeds == "shared" else seeds
        missing = sorted(set(planned) - set(finished.get(name, ())))
        family = next((family for family in FAMILIES if name.startswith(f"{family}_")), None)
        critics = [key for key in differences(options, name, study, family) if _below(key, _CRITIC)] if family else []
        if missing:
            found[name] = f"its run of seed {', '.join(map(str, missing))} did not finish"
        elif critics:
            found[name] = f"its critic is not the study's: {', '.join(critics)} differ{'s'[: len(critics) == 1]}"
    return found


def chosen(rows: Iterable[Mapping[str, Any]], left_out: Mapping[str, str]) -> dict[str, str]:
    """Family → the arm that it takes."""
    arms, picked = last_metrics(row for row in rows if row["arm"] not in left_out), {}
    if START not in arms:
        raise SystemExit(f"choose: `{START}`, the start that lengths are compared with: {_why(START, left_out)}")
    before = arms[START]
    for family in FAMILIES:
        members = [name for name in arms if name.startswith(f"{family}_")]
        if not members:
            others = [f"{name}: {why}" for name, why in left_out.items() if name.startswith(f"{family}_")]
            raise SystemExit(f"choose: no arm `{family}_*` can be taken: {'; '.join(others) or 'there is none'}")
        within = [
            name
            for name in members
            if abs(mean(arms[name], "length") / mean(before, "length") - 1) <= LENGTH
            and mean(arms[name], "copied") <= mean(before, "copied") + COPIED
        ]
        picked[family] = max(within or members, key=lambda name: mean(arms[name], "rouge_l"))
    return picked


def _why(name: str, left_out: Mapping[str, str]) -> str:
    return left_out.get(name, "results.json has no evaluation of it")


def resolved(options: CompareSettings, name: str) -> dict[str, Any]:
    """Every setting of an arm, the common ones and defaults included, but for those that it has from its study."""
    tree = options.arms[name]
    kind: type = KINDS[tree.get("command", "train")].settings
    known = [setting.key for setting in config.describe(kind)]
    common = {
        key: value for key, value in config.flat(options.settings).items() if any(_below(key, [leaf]) for leaf in known)
    }
    own = config.flat({key: value for key, value in tree.items() if key not in _OF_ARM})
    made: Any = config.load(kind, None, [f"{key}={config.inline(value)}" for key, value in {**common, **own}.items()])
    return {key: value for key, value in config.flat(config.plain(made)).items() if not _below(key, _OF_STUDY)}


def _below(key: str, groups: Iterable[str]) -> bool:
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def differences(options: CompareSettings, name: str, study: CompareSettings, arm: str) -> dict[str, Any]:
    """Setting → its value in an arm of the choice, where the study's arm has another one."""
    if arm not in study.arms:
        raise SystemExit(f"choose: the study has no arm `{arm}`; it has {', '.join(study.arms) or 'none'}")
    ours, theirs = resolved(options, name), resolved(study, arm)
    return {key: value for key, value in ours.items() if key not in theirs or theirs[key] != value}


def words(options: CompareSettings, study: CompareSettings, picked: Mapping[str, str]) -> list[str]:
    """What makes the arms of the study like those that were picked."""
    return [
        f"arms.{family}.{key}={config.inline(value)}"
        for family, name in picked.items()
        for key, value in differences(options, name, study, family).items()
    ]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the comparison")
    parser.add_argument("words", nargs="*", help="what was put behind its command, as settings.task=defacto")
    parser.add_argument("--config", type=Path, default=HERE / "choose.yaml", help="of the comparison")
    parser.add_argument(
        "--study", type=Path, default=HERE / "scitldr.yaml", help="the file whose arms get the settings"
    )
    args = parser.parse_intermixed_args(argv)
    rows, comparison = (
        loaded(args.folder / f"{name}.json", "choose wants the folder of a comparison by `text2grad compare`")
        for name in ("results", "comparison")
    )
    try:
        options, study = config.load(CompareSettings, args.config, args.words), config.load(CompareSettings, args.study)
        finished = {name: arm["seeds"] for name, arm in comparison.get("arms", {}).items()}
        left_out = refused(options, study, finished)
        picked = chosen([row for row in rows if row["arm"] in options.arms], left_out)
        found = words(options, study, picked)
    except ConfigError as problem:
        raise SystemExit(f"choose: {problem}") from None
    for name, why in left_out.items():
        print(f"left out: {name}: {why}", file=sys.stderr)
    print(f"taken: {', '.join(picked.values())}", file=sys.stderr)
    print(" ".join(found))


if __name__ == "__main__":
    main(sys.argv[1:])
