"""What a comparison found: run folders → results.json, comparison.json and report.html. No torch.

Enters: the jobs of `training/compare.py`, finished or not. Leaves: rows `{"arm", "seed", "update", "metrics", "cost"}`,
one per evaluation; the last metrics of each arm with their spread over seeds; paired differences to the baseline with
95 % intervals, over seeds and examples where each example has a value, else over seeds (`report/differences.py`).
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from text2grad.errors import RunError, Text2GradError
from text2grad.evaluation.judge import Verdicts, judge_pairs
from text2grad.evaluation.metrics import MEASURED
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.critics.words import prompt_text
from text2grad.report.arms import Arm
from text2grad.report.differences import Interval, over_seeds, over_seeds_and_examples
from text2grad.report.folders import LoggedRun, read_runs
from text2grad.report.page import Table, build
from text2grad.report.words import Comparison, infos_of, number, signed
from text2grad.runs import read_jsonl, write_atomic
from text2grad.tasks.task import task_of
from text2grad.training.compare import ArmJob, CompareSettings, baseline_of, paired
from text2grad.types import MetricInfo

Row = dict[str, Any]
HELD_OUT = "held_out/"
ALWAYS = ("length", "copied", "repetition")
"""Metrics without a direction that are shown all the same: a score that rises with them may be a trick."""


@dataclass(frozen=True)
class Found:
    """What one run has left so far."""

    job: ArmJob
    run: LoggedRun
    rows: list[Row]
    each: Mapping[str, list[Any]]
    """Of the last evaluation: `id`, `text`, and numbers, one for each held-out example."""

    @property
    def last(self) -> Mapping[str, float]:
        metrics: Mapping[str, float] = self.rows[-1]["metrics"]
        return metrics


def record(job: ArmJob) -> bytes:
    """What stays of a run that has ended, and is enough for the table; see `ArmJob.mark`."""
    if not job.kind.measured:
        return json.dumps({"rows": [], "each": {}, "infos": {}}).encode()
    if (found := read(job)) is None:
        raise RunError(f"{job.folder}: its run ended, and there is no evaluation in it")
    infos = {key: info.to_json() for key, info in infos_of([Arm(job.arm, (found.run,), {})]).items() if HELD_OUT in key}
    return json.dumps({"rows": found.rows, "each": found.each, "infos": infos}, ensure_ascii=False).encode()


def recorded(job: ArmJob) -> Found:
    """A finished run by its mark. The curves of its training are drawn where its folder is still there."""
    try:
        kept = job.record()
        rows = [row | {"arm": job.arm, "seed": job.seed} for row in kept["rows"]]
        infos = {key: MetricInfo.from_json(info) for key, info in kept["infos"].items()}
        drawn = {row["update"]: {HELD_OUT + key: value for key, value in row["metrics"].items()} for row in rows}
        run = LoggedRun(job.folder, f"{job.arm}/seed-{job.seed}", drawn, declared=infos, facts={"seed": job.seed})
        found = Found(job, run, rows, kept["each"])
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        raise RunError(f"{job.mark}: is damaged ({problem!r}); delete it to read the run again") from None
    if job.kind.command != "evaluate" and (job.folder / "metrics.jsonl").is_file():
        with suppress(Text2GradError):
            found = replace(found, run=read_runs([job.folder])[0])
    return found


def read(job: ArmJob) -> Found | None:
    """What the folder of a run holds, finished or not. None: nothing has been evaluated yet."""
    if job.kind.command == "evaluate":
        return _read_evaluation(job)
    if not (job.folder / "metrics.jsonl").is_file():
        return None
    (run,) = read_runs([job.folder])
    rows: list[Row] = []
    each: Mapping[str, list[Any]] = {}
    completions, tokens, seconds = 0, 0.0, 0.0
    for logged in read_jsonl(job.folder / "metrics.jsonl"):
        if logged["update"]:
            completions += job.completions
            tokens += job.completions * logged.get("length/mean", 0.0)
        spent = {key: value for key, value in logged.items() if key.startswith("time/") and not key.endswith("_frac")}
        seconds += sum(value for key, value in spent.items() if key != "time/evaluate")
        metrics = {
            key.removeprefix(HELD_OUT): value
            for key, value in logged.items()
            if key.startswith(HELD_OUT) and isinstance(value, int | float)
        }
        if "length" not in metrics:  # no completion was measured
            continue
        cost = {"completions": completions, "tokens": round(tokens), "critic_calls": completions, "seconds": seconds}
        rows.append(_row(job, logged["update"], metrics, cost))
        each = logged.get("held_out/each", {})
    return Found(job, run, rows, each) if rows else None


def _read_evaluation(job: ArmJob) -> Found | None:
    path, part = job.folder / "evaluation.json", job.kind.part
    if not path.is_file():
        return None
    stored = json.loads(path.read_bytes())
    metrics = {key.removeprefix(f"{part}/"): value for key, value in stored["metrics"].items() if key.startswith(part)}
    examples, each = stored["examples"], stored["each"]
    lengths = {name: sum(values["length"]) for name, values in each.items()}
    made, calls = (each * examples for each in job.per_example)
    sampled = {"greedy": ("greedy",), "reflection": ("greedy", "reflection")}.get(part, ("samples",))
    tokens = sum(lengths.get(name, 0) for name in sampled)
    cost = {"completions": made, "tokens": tokens, "critic_calls": calls}
    infos = {
        HELD_OUT + key.removeprefix(f"{part}/"): MetricInfo.from_json(info)
        for key, info in stored["info"].items()
        if key.startswith(f"{part}/")
    }
    # Several completions of one example are no pair to one of another arm.
    alone = {"id": [], "text": []} if part == "samples" else each[part]
    drawn = {0: {HELD_OUT + key: value for key, value in metrics.items()}}
    run = LoggedRun(job.folder, f"{job.arm}/seed-{job.seed}", drawn, declared=infos, facts={"seed": job.seed})
    return Found(job, run, [_row(job, 0, metrics, cost | {"seconds": stored["seconds"]})], alone)


def _row(job: ArmJob, update: int, metrics: Mapping[str, float], cost: Mapping[str, float]) -> Row:
    return {"arm": job.arm, "seed": job.seed, "update": update, "metrics": dict(metrics), "cost": dict(cost)}


class Compared:
    """The whole table."""

    def __init__(
        self, options: CompareSettings, jobs: Sequence[ArmJob], failed: Mapping[str, str] | None = None
    ) -> None:
        self.options, self.jobs, self.failed = options, jobs, dict(failed or {})
        self.found = [found for job in jobs if (found := self._read(job)) is not None]
        self.baseline = baseline_of(options)
        self.names = list(dict.fromkeys(job.arm for job in jobs if job.kind.measured))
        """Of the arms that are policies."""
        self.wins: dict[tuple[str, int], Verdicts] = {}
        """What the judge says of an arm's run against the baseline's of the same seed."""

    def _read(self, job: ArmJob) -> Found | None:
        """A run that cannot be read is told, and costs no other."""
        if not job.kind.measured:
            return None
        try:
            return recorded(job) if job.done else read(job)
        except (Text2GradError, OSError, LookupError, TypeError, ValueError) as problem:
            self.failed.setdefault(job.name, f"cannot be read: {problem}")
            return None

    @property
    def rows(self) -> list[Row]:
        return [row for found in self.found for row in found.rows]

    def of(self, arm: str) -> list[Found]:
        """Its runs that are finished: one that stopped early has no final metrics."""
        return [found for found in self.found if found.job.arm == arm and found.job.done]

    @cached_property
    def arms(self) -> list[Arm]:
        """All runs, also those under way, for the charts."""
        runs = {name: [found.run for found in self.found if found.job.arm == name] for name in self.names}
        return [Arm(name, tuple(some), {}) for name, some in runs.items() if some]

    @cached_property
    def infos(self) -> dict[str, MetricInfo]:
        """Of the metrics that two arms or more have, by key: the primary one, those of the task and by name, the score,
        then what is measured always."""
        infos = {key.removeprefix(HELD_OUT): info for key, info in infos_of(self.arms).items() if HELD_OUT in key}
        shared = {key for key in infos if sum(bool(arm.series(HELD_OUT + key)) for arm in self.arms) > 1}
        few = len(self.arms) < 2
        shown = [key for key in infos if (key in shared or few) and (infos[key].better != "neither" or key in ALWAYS)]
        shown.sort(key=lambda key: (key != self.options.primary, key in MEASURED, key != "score"))
        return {key: infos[key] for key in shown}

    def final(self, arm: str, key: str) -> dict[int, float]:
        """Seed → the last value."""
        return {found.job.seed: found.last[key] for found in self.of(arm) if key in found.last}

    def difference(self, arm: str, key: str) -> tuple[Interval, int, int] | None:
        """(arm − baseline, seeds, examples that it is taken over; 0 examples: of the metrics as a whole)."""
        pairs = self.pairs(arm)
        tables = [_apart(ours.each, theirs.each, key) for ours, theirs in pairs]
        # Examples that any run has no value for, as where the critic said nothing, are left out of all.
        if pairs and (shared := [name for name in tables[0] if all(name in values for values in tables)]):
            matrix = [[values[name] for name in shared] for values in tables]
            return over_seeds_and_examples(matrix), len(matrix), len(shared)
        apart = [ours.last[key] - theirs.last[key] for ours, theirs in pairs if key in ours.last and key in theirs.last]
        return (over_seeds(apart), len(apart), 0) if apart else None

    def pairs(self, arm: str) -> list[tuple[Found, Found]]:
        """An arm's runs and the baseline's, by seed; a shared run stands for every seed of the other."""
        ours, theirs = self.of(arm), self.of(self.baseline)
        return [(one, other) for one in ours for other in theirs if paired(one.job, other.job)]

    def ask_judge(self, folder: Path) -> None:
        """Compare the last completions of every arm with the baseline's. Replies are cached: nothing is paid twice, and
        all questions share one budget, which FOLDER/judge.spent keeps."""
        settings = [found.job.settings.critics.openai for found in self.found]
        with (budget := Budget(settings[0].budget)).kept_beside(folder / "judge"):
            for arm in self.names:
                for ours, theirs in self.pairs(arm) if arm != self.baseline else ():
                    self._judge(ours, theirs, budget)

    def _judge(self, ours: Found, theirs: Found, budget: Budget) -> None:
        assert self.options.judge is not None
        made, texts = ours.job.settings, dict(zip(theirs.each["id"], theirs.each["text"], strict=True))
        prompts = {example.id: prompt_text(example.prompt) for example in task_of(made).held_out()}
        shared = [place for place, name in enumerate(ours.each["id"]) if name in texts and name in prompts]
        names = [ours.each["id"][place] for place in shared]
        said = judge_pairs(
            self.options.judge,
            made.critics.openai,
            [prompts[name] for name in names],
            [ours.each["text"][place] for place in shared],
            [texts[name] for name in names],
            budget,
        )
        self.wins[ours.job.arm, (theirs if ours.job.shared else ours).job.seed] = said
        rate = said.to_json()["win_rate"]
        # A shared run has one row and several rates: they are in comparison.json.
        if rate is not None and (not ours.job.shared or theirs.job.shared):
            ours.rows[-1]["metrics"] |= {"win_rate": rate}

    # ------------------------------------------------------------------------------------------------ what is written

    def to_json(self) -> dict[str, Any]:
        """comparison.json."""
        arms = {}
        for arm in self.names:
            final = {key: self.final(arm, key) for key in self.infos}
            differences = {key: self.difference(arm, key) for key in self.infos if arm != self.baseline}
            arms[arm] = {
                "seeds": [found.job.seed for found in self.of(arm)],
                "final": {
                    key: {"mean": statistics.mean(some.values()), "seeds": some} for key, some in final.items() if some
                },
                "difference": {
                    key: {"mean": found[0].mean, "low": _end(found[0].low), "high": _end(found[0].high)}
                    | {"seeds": found[1], "examples": found[2]}
                    for key, found in differences.items()
                    if found is not None
                },
                "judge": {seed: said.to_json() for (name, seed), said in self.wins.items() if name == arm},
                "cost": self._cost(arm),
            }
        return {"baseline": self.baseline, "primary": self.options.primary, "arms": arms, "failed": self.failed}

    def _samples(self, arm: str) -> bool:
        """Whether it has finished runs that learn from what they sample."""
        return any(found.job.kind.samples for found in self.of(arm))

    def _cost(self, arm: str) -> dict[str, float]:
        """Mean over its finished runs, at their end; what its start cost is not in it."""
        costs = [found.rows[-1]["cost"] for found in self.of(arm)]
        return {key: statistics.mean(cost[key] for cost in costs) for key in (costs[0] if costs else ())}

    def write(self, folder: Path, *, judge: bool = True) -> None:
        """The three files; once more when the judge has spoken, so that a failure costs nothing but its part.
        `judge`: False leaves it out for now."""
        self._write(folder)
        if judge and self.options.judge is not None and self.found:
            try:
                self.ask_judge(folder)
            except Text2GradError as problem:
                self.failed[f"judge {self.options.judge}"] = str(problem)
            self._write(folder)

    def _write(self, folder: Path) -> None:
        write_atomic(folder / "results.json", json.dumps(self.rows, ensure_ascii=False, indent=0).encode() + b"\n")
        write_atomic(
            folder / "comparison.json", json.dumps(self.to_json(), ensure_ascii=False, indent=1).encode() + b"\n"
        )
        if self.found:
            runs = [found.run for found in self.found]
            page = build(runs, arms=self.arms, comparison=self.words(), tables=self.tables())
            write_atomic(folder / "report.html", page.html)

    def words(self) -> Comparison:
        """The top of the page."""
        key, title = self.options.primary, self._title(self.options.primary)
        said = []
        for arm in self.names:
            if arm != self.baseline and (found := self.difference(arm, key)) is not None:
                over = f"{found[1]} seed{'s'[: found[1] != 1]}" + (f", {found[2]} examples" if found[2] else "")
                said.append(f"{arm} − {self.baseline}: {_interval(found[0])} ({title}, 95 %, {over}).")
        work = {arm: self._cost(arm)["completions"] for arm in self.names if self._samples(arm)}
        if len(set(work.values())) > 1:
            said.append(
                f"Not equal work: {', '.join(f'{arm} {n:,.0f}' for arm, n in work.items())} completions per run."
            )
        said += [f"{name} failed: {line}" for name, line in self.failed.items()]
        missing = [job.name for job in self.jobs if not job.done and job.name not in self.failed]
        said += [f"Not finished: {', '.join(missing)}."] if missing else []
        headline = f"{len(self.names)} arms: {title} compared with {self.baseline}"
        return Comparison(HELD_OUT + key, headline, tuple(said))

    def tables(self) -> list[Table]:
        """Final metrics, differences, cost."""
        keys = [key for key in self.infos if any(self.final(arm, key) for arm in self.names)]
        titles = [self._title(key) for key in keys]
        final = [[arm, str(len(self.of(arm))), *(_spread(self.final(arm, key)) for key in keys)] for arm in self.names]
        apart = [
            [arm, *("–" if (found := self.difference(arm, key)) is None else _interval(found[0]) for key in keys)]
            for arm in self.names
            if arm != self.baseline
        ]
        costs = {arm: self._cost(arm) for arm in self.names}
        spent = [[arm, *(f"{value:,.0f}" for value in cost.values())] for arm, cost in costs.items() if cost]
        note = "Over seeds and held-out examples where every example has a value, else over seeds by Student's t."
        tables = [
            Table("Final metrics", "Mean ± standard deviation over the seeds.", ["arm", "runs", *titles], final),
            Table(
                f"Difference to {self.baseline}",
                f"Paired by seed, with its 95 % interval. {note}",
                ["arm", *titles],
                apart,
            ),
            Table(
                "Cost",
                "Of one run, without its start and its evaluations; of best_of_n and reflection, of the evaluation.",
                ["arm", "completions", "sampled tokens", "critic calls", "seconds"],
                spent,
            ),
        ]
        if self.wins:
            tables.append(
                Table(
                    f"Win rate against {self.baseline}",
                    f"By {self.options.judge}, pairwise, in both orders.",
                    ["arm", "win rate", "wins", "ties", "losses", "not readable"],
                    self._win_rows(),
                )
            )
        return [table for table in tables if table.rows]

    def _win_rows(self) -> list[list[str]]:
        rows = []
        for arm in dict.fromkeys(name for name, _ in self.wins):
            said = [verdicts for (name, _), verdicts in self.wins.items() if name == arm]
            counts = Verdicts("", [value for each in said for value in each.each]).to_json()
            # Pairs with an unreadable reply in any seed are left out of all.
            whole = [row for row in zip(*(each.each for each in said), strict=False) if None not in row]
            found = over_seeds_and_examples(list(zip(*whole, strict=True))) if whole else None
            share = "–" if found is None else f"{found.mean:.1%} ({max(found.low, 0):.1%} to {min(found.high, 1):.1%})"
            rows.append([arm, share, *(str(counts[key]) for key in ("wins", "ties", "losses", "unreadable"))])
        return rows

    def _title(self, key: str) -> str:
        return self.infos[key].title.removeprefix("Held-out ").strip() if key in self.infos else key


def _apart(ours: Mapping[str, list[Any]], theirs: Mapping[str, list[Any]], key: str) -> dict[str, float]:
    """Example → the difference of its values, where both have one."""
    if key not in ours or key not in theirs:
        return {}
    other = dict(zip(theirs["id"], theirs[key], strict=True))
    values = zip(ours["id"], ours[key], strict=True)
    return {name: value - other[name] for name, value in values if None not in (value, other.get(name))}


def _end(value: float) -> float | None:
    """JSON has no infinity."""
    return value if abs(value) < float("inf") else None


def _interval(found: Interval) -> str:
    if _end(found.low) is None:
        return f"{signed(found.mean)} (one seed)"
    return f"{signed(found.mean)} ({signed(found.low)} to {signed(found.high)})"


def _spread(values: Mapping[int, float]) -> str:
    some = list(values.values())
    if not some:
        return "–"
    return number(some[0]) if len(some) == 1 else f"{number(statistics.mean(some))} ± {number(statistics.stdev(some))}"
