"""The page: one HTML file with everything in it, which asks nothing of any network.

Enters: `Run`s. Leaves: bytes. Text reaches the page in two ways only, both escaped: through the template, and as JSON
that the script turns into text nodes. The page's own policy allows no script and no style but the two in it, by their
hashes, and nothing from outside.
"""

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from text2grad import __version__
from text2grad.report import panels
from text2grad.report.arms import Arm, Point, arms_of
from text2grad.report.charts import Bars, Chart, swatch
from text2grad.report.completions import BYTES, Shown, embedded, read_completions
from text2grad.report.folders import Run
from text2grad.report.words import Comparison, compare, counted, number, signed

WIDE, NARROW, SMALL, TALL = (960, 380), (400, 300), (440, 236), (440, 312)
_SCRIPTS = ("base.js", "charts.js", "completions.js")
_VERSIONS = ("text2grad", "torch", "transformers", "python", "platform", "device", "started")


@dataclass(frozen=True)
class Page:
    html: bytes
    comparison: Comparison
    completions: int
    """On the page, of all runs."""


def build(runs: Sequence[Run], budget: int = BYTES) -> Page:
    arms = arms_of(runs)
    comparison = compare(arms)
    shown = [read_completions(run.rollouts, budget // len(runs)) for run in runs]
    shared = _shared(runs)
    same_data = len(runs) > 1 and all(_hashes(run) == _hashes(runs[0]) for run in runs)
    said = {*shared, *(("data",) if same_data else ())}
    charts = list(panels.over_updates(arms, besides=comparison.key))
    style, script = _asset("report.css"), "\n".join(map(_asset, _SCRIPTS))
    page = _environment().get_template("report.html.j2")
    html = page.render(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded(_data(runs, shown))),
        comparison=comparison,
        main=_main(arms, comparison),
        arms=[_arm(index, arm, comparison) for index, arm in enumerate(arms)],
        key=[(swatch(panels.style_of(index)), arm.name) for index, arm in enumerate(arms)],
        over_updates=[_figure(chart) for chart in charts],
        locality=[_figure(chart, labels=True) for chart in panels.locality(arms)],
        examined=[_figure(chart, labels=True) for chart in panels.against_examiner(arms)],
        drawing=_drawing(charts),
        time=_figure(bars) if (bars := panels.time_by_part(arms)) else None,
        shared=shared,
        shared_data=_hashes(runs[0]) if same_data else [],
        runs=[_run(run, rows, said) for run, rows in zip(runs, shown, strict=True)],
        any_rows=any(rows.during or rows.pairs for rows in shown),
        version=__version__,
    )
    count = sum(len(rows.during) + sum(map(len, rows.pairs)) for rows in shown)
    # A path may hold bytes that are no text; they become question marks.
    return Page(html.encode("utf-8", "replace"), comparison, count)


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("text2grad.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> str:
    return resources.files("text2grad.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(runs: Sequence[Run], shown: Sequence[Shown]) -> dict[str, Any]:
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
    """The number that gets the full colour, the same for every run: the smallest of the runs' own, so that sums on last
    tokens (scalar PPO) do not wash out what spans earn."""
    runs = [_scale(rows) for rows in shown]
    return {
        name: min((found for run in runs if (found := run[name]) is not None), default=1.0)
        for name in ("rewards", "advantages", "change")
    }


def _scale(rows: Shown) -> dict[str, float | None]:
    """Of one run: the 95th percentile of those that are not 0."""
    streams: dict[str, list[float]] = {"rewards": [], "advantages": [], "change": []}
    for row in [*rows.during, *(row for pair in rows.pairs for row in pair)]:
        for name in ("rewards", "advantages"):
            streams[name] += [abs(value) for value in row.get(name, ()) if value]
        pairs = zip(row.get("before", ()), row.get("after", ()), strict=False)
        streams["change"] += [abs(after - before) for before, after in pairs if after != before]
    return {name: (round(_percentile(values), 4) or None) if values else None for name, values in streams.items()}


def _percentile(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def _main(arms: Sequence[Arm], comparison: Comparison) -> dict[str, Any] | None:
    lines = panels.lines_of(arms, comparison.key)
    if not lines:
        return None
    note = f"{comparison.measure[0].upper()}{comparison.measure[1:]} against updates."
    chart = Chart("Comparison", f"{note} {_drawing([Chart('', '', lines)])}".strip(), lines)
    return {
        **_figure(chart),
        "wide": chart.svg(*WIDE, labels=True),
        "narrow": chart.svg(*NARROW),
    }


def _drawing(charts: Sequence[Chart]) -> str:
    """How to read the lines, where that needs saying."""
    smoothed = any(chart.smoothed for chart in charts)
    seeds = any(line.spread for chart in charts for line in chart.lines)
    if seeds:
        kind = "running means over" if smoothed else "means of"
        return f"Lines are {kind} the seeds; bands reach from the lowest seed to the highest."
    return "Lines are running means, single updates faint." if smoothed else ""


def _figure(chart: Chart | Bars, labels: bool = False) -> dict[str, Any]:
    header, rows, remark = chart.table()
    figure = {"title": chart.title, "note": chart.note, "header": header, "rows": rows, "remark": remark}
    if isinstance(chart, Bars):
        return {**figure, "wide": chart.svg(WIDE[0]), "narrow": chart.svg(NARROW[0]), "parts": chart.parts}
    return {**figure, "svg": chart.svg(*(TALL if chart.stacked else SMALL), labels=labels)}


def _arm(index: int, arm: Arm, comparison: Comparison) -> dict[str, Any]:
    points = arm.series(comparison.key)
    return {
        "swatch": swatch(panels.style_of(index)),
        "name": arm.name,
        "runs": len(arm.runs),
        "updates": f"{arm.updates:,}",
        "first": number(points[0].mean) if points else "–",
        "last": _spread(points[-1]) if points else "–",
        "change": signed(points[-1].mean - points[0].mean) if len(points) > 1 else "–",
        "differs": ", ".join(f"{key} = {value}" for key, value in arm.differs.items()) or "–",
    }


def _spread(point: Point) -> str:
    return number(point.mean) + (f" ({number(point.low)}–{number(point.high)})" if point.low != point.high else "")


def _shared(runs: Sequence[Run]) -> dict[str, str]:
    """Facts that several runs have in common are said once."""
    if len(runs) < 2:
        return {}
    return {
        key: str(runs[0].facts[key])
        for key in _VERSIONS
        if runs[0].facts.get(key) is not None and len({str(run.facts.get(key)) for run in runs}) == 1
    }


def _hashes(run: Run) -> list[tuple[str, str]]:
    data = run.facts.get("data")
    return [(str(key), str(value)) for key, value in data.items()] if isinstance(data, Mapping) else []


def _run(run: Run, shown: Shown, said: set[str]) -> dict[str, Any]:
    trouble = list(run.trouble)
    if shown.unreadable:
        were = counted(shown.unreadable, "row")
        trouble.append(f"rollouts.jsonl: {were} could not be read, the first because: {shown.reason}")
    return {
        "name": run.name,
        "path": str(run.path),
        "seed": "–" if run.seed is None else str(run.seed),
        "updates": counted(run.last_update, "update"),
        "facts": [
            (key, str(run.facts[key])) for key in _VERSIONS if key not in said and run.facts.get(key) is not None
        ],
        "data": [] if "data" in said else _hashes(run),
        "command": command(run),
        "guessed": not isinstance(run.facts.get("command"), list),
        "config": run.config_text,
        "warnings": [(update, text) for update, text in run.warnings[:100]],
        "warnings_total": len(run.warnings),
        "trouble": trouble,
    }


def command(run: Run) -> str:
    """What to type to get this run again; from the settings alone where the run does not say how it was called."""
    words = run.facts.get("command")
    if isinstance(words, list) and words:
        first = Path(str(words[0]))
        # However it was started: what a reader types is the command.
        ours = first.name == "text2grad" or (first.name, first.parent.name) == ("__main__.py", "text2grad")
        return shlex.join(["text2grad" if ours else str(words[0]), *map(str, words[1:])])
    return f"text2grad train --config {shlex.quote(str(run.path / 'config.yaml'))}" if run.config_text else ""
