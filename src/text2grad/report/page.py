"""The page: one HTML file with everything in it, which needs no network.

Enters: `LoggedRun`s. Leaves: bytes. Text reaches the page in two ways only, both escaped: through the template, and as
JSON that the script turns into text nodes. The page's own policy allows its one script and its one style sheet, by
their hashes, and nothing from outside.
"""

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from text2grad import __version__
from text2grad.report.arms import Arm, arms_of
from text2grad.report.before_after import BeforeAfter, before_and_after
from text2grad.report.charts import Chart, swatch
from text2grad.report.completions import BYTES, Shown, embedded, read_completions
from text2grad.report.folders import LoggedRun
from text2grad.report.panels import LOCALITY, chart_of, locality_gaps, panels_of, style_of, time_by_part
from text2grad.report.words import Comparison, compare, counted, infos_of, number, ranged, signed

_STYLES = ("shared.css", "report.css")
_SCRIPTS = ("shared.js", "charts.js", "completions.js")
_FACTS = ("text2grad", "torch", "transformers", "python", "platform", "device", "started")


@dataclass(frozen=True)
class Table:
    """A table of a comparison, at the top of the page."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Page:
    html: bytes
    comparison: Comparison
    completions: int
    """On the page, of all runs."""
    unread: tuple[str, ...] = ()
    """Files of which something could not be read, and what."""
    before_after: BeforeAfter | None = None


def build(
    runs: Sequence[LoggedRun],
    budget: int = BYTES,
    *,
    arms: Sequence[Arm] = (),
    comparison: Comparison | None = None,
    tables: Sequence[Table] = (),
) -> Page:
    """The page of these runs. A planned comparison brings its arms, what it found, and its tables; else runs that
    differ only in the seed are an arm, and the sentences follow from the curves."""
    arms = arms or arms_of(runs)
    comparison = comparison or compare(arms)
    shown = [read_completions(run.rollouts, budget // len(runs)) for run in runs]
    panels = panels_of(arms, comparison.key)
    before_after = before_and_after(arms, {run.path: rows for run, rows in zip(runs, shown, strict=True)})
    style, script = "\n".join(map(_asset, _STYLES)), "\n".join(map(_asset, _SCRIPTS))
    environment = Environment(
        loader=PackageLoader("text2grad.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("report.html.j2").render(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded(_data(runs, shown))),
        comparison=comparison,
        tables=tables,
        main=_main(arms, comparison),
        before_after=before_after,
        panels=panels,
        arms=[_arm(index, arm, comparison) for index, arm in enumerate(arms)],
        key=[(swatch(style_of(index)), arm.name) for index, arm in enumerate(arms)],
        locality_key=[(swatch(style), key.partition("/")[2]) for key, style in LOCALITY.items()],
        drawing=_drawing(panels.known + panels.more),
        gaps=locality_gaps(arms),
        time=time_by_part(arms),
        runs=[_run(run, _trouble(run, rows)) for run, rows in zip(runs, shown, strict=True)],
        any_rows=any(rows.during or rows.pairs for rows in shown),
        version=__version__,
    )
    count = sum(len(rows.during) + sum(map(len, rows.pairs)) for rows in shown)
    trouble = [f"{run.path}/{line}" for run, rows in zip(runs, shown, strict=True) for line in _trouble(run, rows)]
    unread = [line for line in trouble if ".jsonl: " in line]
    # A path may hold bytes that are no text; they become question marks.
    return Page(html.encode("utf-8", "replace"), comparison, count, tuple(unread), before_after)


def _asset(name: str) -> str:
    return resources.files("text2grad.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(runs: Sequence[LoggedRun], shown: Sequence[Shown]) -> dict[str, Any]:
    """What the script reads. Prompts are kept once, however many completions they have."""
    prompts: dict[str, int] = {}

    def lean(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "prompt": prompts.setdefault(row["prompt"], len(prompts))}

    listed = [
        {
            "name": run.name,
            "during": [lean(row) for row in rows.during],
            "pairs": [[lean(row) for row in pair] for pair in rows.pairs],
            "duringTotal": rows.during_total,
            "pairsTotal": rows.pairs_total,
        }
        for run, rows in zip(runs, shown, strict=True)
    ]
    return {"runs": listed, "prompts": list(prompts), "scales": _scales(shown)}


def _scales(shown: Sequence[Shown]) -> dict[str, float]:
    """The number that gets the full colour, the same for every run: the smallest of the runs' 95th percentiles, so that
    sums on last tokens (scalar PPO) do not wash out what spans earn."""
    scales: dict[str, list[float]] = {"rewards": [], "advantages": [], "change": []}
    for rows in shown:
        every = [*rows.during, *(row for pair in rows.pairs for row in pair)]
        streams = {name: [value for row in every for value in row.get(name, ())] for name in ("rewards", "advantages")}
        changes = (zip(row.get("before", ()), row.get("after", ()), strict=False) for row in every)
        streams["change"] = [after - before for pairs in changes for before, after in pairs]
        for name, values in streams.items():
            sizes = sorted(abs(value) for value in values if value)
            scales[name] += [round(sizes[int(0.95 * (len(sizes) - 1))], 4)] if sizes else []
    return {name: min(filter(None, found), default=1.0) for name, found in scales.items()}


def _main(arms: Sequence[Arm], comparison: Comparison) -> Chart | None:
    if not any(arm.series(comparison.key) for arm in arms):
        return None
    chart = chart_of(arms, comparison.key, infos_of(arms)[comparison.key])
    note = f"{chart.title} per update. {chart.note} {_drawing([chart])}".strip()
    return Chart("Comparison", note, chart.lines)


def _drawing(charts: Sequence[Chart]) -> str:
    """How to read the lines, where that needs saying."""
    smoothed = any(chart.smoothed for chart in charts)
    seeds = any(line.spread for chart in charts for line in chart.lines)
    if seeds:
        kind = "running means over" if smoothed else "means of"
        return f"Lines are {kind} the seeds; bands reach from the lowest seed to the highest."
    return "Lines are running means, single updates faint." if smoothed else ""


def _arm(index: int, arm: Arm, comparison: Comparison) -> dict[str, Any]:
    points = arm.series(comparison.key)
    return {
        "swatch": swatch(style_of(index)),
        "name": arm.name,
        "runs": len(arm.runs),
        "updates": f"{arm.updates:,}",
        "first": number(points[0].mean) if points else "–",
        "last": ranged(points[-1]) if points else "–",
        "change": signed(points[-1].mean - points[0].mean) if len(points) > 1 else "–",
        "differs": ", ".join(f"{key} = {value}" for key, value in arm.differs.items()) or "–",
    }


def _trouble(run: LoggedRun, shown: Shown) -> list[str]:
    """What is missing or unreadable, in words."""
    if not shown.unreadable:
        return list(run.trouble)
    rows = counted(shown.unreadable, "row")
    return [*run.trouble, f"rollouts.jsonl: {rows} could not be read, the first because: {shown.reason}"]


def _run(run: LoggedRun, trouble: Sequence[str]) -> dict[str, Any]:
    data, command = run.facts.get("data"), run.facts.get("command")
    return {
        "name": run.name,
        "path": str(run.path),
        "seed": "–" if run.seed is None else str(run.seed),
        "updates": counted(run.last_update, "update"),
        "facts": [(key, str(run.facts[key])) for key in _FACTS if run.facts.get(key) is not None],
        "data": [(str(key), str(value)) for key, value in data.items()] if isinstance(data, Mapping) else [],
        "command": shlex.join(map(str, command)) if isinstance(command, list) else "",
        "config": run.config_text,
        "warnings": run.warnings[:100],
        "warnings_total": len(run.warnings),
        "trouble": trouble,
    }
