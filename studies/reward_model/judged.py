"""What a reward model said of completions (learn.py) → how far it agrees with people.

Thresholds are chosen on the rows that are chosen by, and the rows that are measured on are read with them. Curves are
of the rows that are measured on; beside each stands what a threshold gives that was chosen elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from studies.reward_model.baselines import supported
from studies.reward_model.measures import by_content, calibration_error, content_scores, curve
from studies.reward_model.measures import replies as counted
from studies.reward_model.run import SPANS, Part, Row, measured

from text2grad import config
from text2grad.feedback.agreement import Judged
from text2grad.feedback.align.ladder import align
from text2grad.feedback.labels import Calibration, Words, critique_of, label_tokens
from text2grad.feedback.replies import read_reply
from text2grad.models.reward.calibrate import calibrated
from text2grad.optim.labels import read_out
from text2grad.tasks.annotated import Annotated
from text2grad.types import Span

THRESHOLDS = np.round(np.arange(0.02, 0.97, 0.01), 2).tolist()
CURVE_POINTS = 200


class Heard:
    """One completion, and the span head's numbers of it; none: it had no room."""

    def __init__(self, row: Row, said: dict[str, Any] | None) -> None:
        self.row, self.scored = row, said is not None
        known = said or {"offsets": [], "out": [[0.0] * 5]}
        self.offsets = np.array(known["offsets"], dtype=np.int64).reshape(-1, 2)
        self.out = torch.tensor(known["out"])
        self.probs, self.sizes = np.zeros((1, 3)), np.zeros((1, 2))

    def read(self, weights_3: torch.Tensor, by: Calibration) -> None:
        probs, sizes = read_out(self.out, weights_3, by.temperature)
        self.probs, self.sizes = probs.double().numpy(), sizes.double().numpy() * by.scale

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in self.offsets]

    def judged(self, by: Calibration) -> Judged:
        if not self.scored:
            return Judged.of(self.row, None)
        said = critique_of(self.row["completion"], self.offsets, self.probs, self.sizes, by)
        spans = [Span(q.start or 0, (q.start or 0) + len(q.text), q.verdict) for q in said.quotes]
        return Judged.of(self.row, spans, self.places)


def by_head(said: dict[str, Any], part: Part) -> dict[str, Any]:
    """At the thresholds that were chosen, and at every other."""
    weights_3 = torch.tensor(said["class_weights"])
    sides = {
        side: [Heard(*pair) for pair in zip(getattr(part, side), said[side], strict=True)]
        for side in ("choosing", "held_out")
    }
    by = _calibration(config.build(Calibration, said["calibration"], "calibration"), weights_3, sides["choosing"])
    for heard in (*sides["choosing"], *sides["held_out"]):
        heard.read(weights_3, by)
    curves = {side: _sweep(heard, by) for side, heard in sides.items()}
    held_out = sides["held_out"]
    scores, poor, weight = _content(held_out, 0, "poor")
    drawn = curve(scores, poor, weight)
    places = np.unique(np.linspace(0, len(drawn.recall) - 1, CURVE_POINTS).astype(int))
    return {
        **measured([heard.judged(by) for heard in held_out]),
        "average_precision": drawn.average_precision,
        "base": drawn.base,
        "calibration_error": {name: _error(held_out, kind, name) for kind, name in ((0, "poor"), (2, "good"))},
        "curve": {
            name: [round(float(value), 4) for value in getattr(drawn, name)[places]]
            for name in ("recall", "precision", "thresholds")
        },
        "recall_at_precision": {
            f"{wanted:.3f}": drawn.at_precision(wanted)[0] for wanted in np.arange(0.4, 0.9, 0.005)
        },
        "span_curves": curves["held_out"],
        "as_support": {
            "content": _content_as_support(sides, part),
            **{name: _as_support(curves, part, name) for name in SPANS},
        },
        "calibration": config.plain(by),
        "unscored": sum(not heard.scored for heard in held_out),
    }


def _calibration(trained: Calibration, weights_3: torch.Tensor, choosing: Sequence[Heard]) -> Calibration:
    """As at the end of training, from what was said then."""
    there = [heard for heard in choosing if heard.scored]
    rows = [Annotated.of(heard.row) for heard in there]
    labels = [
        label_tokens(row.critique, row.alignment, heard.offsets, "verdicts")
        for row, heard in zip(rows, there, strict=True)
    ]
    model: Any = SimpleNamespace(class_weights_3=weights_3, calibration=trained)
    return calibrated(
        model,
        [heard.out for heard in there],
        [torch.from_numpy(label.verdicts) for label in labels],
        [Words.of(heard.row["completion"], heard.offsets) for heard in there],
    )


def _content(heard: Sequence[Heard], kind: int, verdict: str) -> tuple[Any, Any, Any]:
    """Scores of content words; words of a completion that was not scored are never called."""
    columns = []
    for one in heard:
        item = Judged.of(one.row, None)
        people = [replace(span, verdict="poor") for span in item.people if span.verdict == verdict]
        columns.append(content_scores(item.text, one.places, one.probs[:-1, kind], people))
    scores, is_so, weight = (np.concatenate(column) for column in zip(*columns, strict=True))
    return scores, is_so, weight


def _error(heard: Sequence[Heard], kind: int, verdict: str) -> float:
    scores, is_so, weight = _content([one for one in heard if one.scored], kind, verdict)
    return calibration_error(np.clip(scores, 0, 1), is_so, weight)


Points = dict[str, list[float]]


def _sweep(heard: Sequence[Heard], by: Calibration) -> dict[str, Points]:
    """Poor spans at every threshold of poor, by every measure of spans."""
    found: dict[str, Points] = {name: {"thresholds": THRESHOLDS, "precision": [], "recall": []} for name in SPANS}
    for at in THRESHOLDS:
        judged = [one.judged(replace(by, poor=at)) for one in heard]
        for name, measure in SPANS.items():
            poor = measure(judged)["poor"]
            found[name]["precision"].append(round(poor.precision, 4))
            found[name]["recall"].append(round(poor.recall, 4))
    return found


def _content_as_support(sides: dict[str, list[Heard]], part: Part) -> dict[str, float]:
    """The same in characters of content words, where a curve has all thresholds."""
    theirs = {
        side: by_content([Judged.of(row, supported(row)) for row in getattr(part, side)])["poor"] for side in sides
    }
    drawn = {side: curve(*_content(heard, 0, "poor")) for side, heard in sides.items()}
    held_out, (_, chosen) = drawn["held_out"], drawn["choosing"].at_precision(theirs["choosing"].precision)
    read_off, threshold = held_out.at_precision(theirs["held_out"].precision)
    precision, recall = held_out.at_threshold(chosen)
    return {
        "read_off_threshold": threshold,
        "read_off_recall": read_off,
        "support_precision": theirs["held_out"].precision,
        "support_recall": theirs["held_out"].recall,
        "chosen_threshold": chosen,
        "chosen_precision": precision,
        "chosen_recall": recall,
    }


def _as_support(curves: dict[str, dict[str, Points]], part: Part, name: str) -> dict[str, float]:
    """Poor spans as precise as `support`'s. `read_off`: the most recall that a threshold gives with its precision, on
    the rows that are measured on. `chosen`: what the threshold gives there that gives the most on the rows that are
    chosen by, with the precision that `support` has on those."""
    found: dict[str, float] = {}
    for side, kind in (("held_out", "read_off"), ("choosing", "chosen")):
        theirs = SPANS[name]([Judged.of(row, supported(row)) for row in getattr(part, side)])["poor"]
        points = curves[side][name]
        enough = [place for place, precision in enumerate(points["precision"]) if precision >= theirs.precision]
        best = max(enough, key=lambda place: points["recall"][place], default=len(THRESHOLDS) - 1)
        measured_on = curves["held_out"][name]
        found |= {f"{kind}_{key.removesuffix('s')}": measured_on[key][best] for key in measured_on}
        if side == "held_out":
            found |= {"support_precision": theirs.precision, "support_recall": theirs.recall}
    return found


def by_writing(said: dict[str, Any], part: Part) -> dict[str, Any]:
    """What the model wrote, parsed, and located by the aligner. What cannot be read is wrong."""
    located, reasons = [], {}
    for place, (row, one) in enumerate(zip(part.held_out, said["held_out"], strict=True)):
        reply = None if one is None else read_reply(one["text"], cut=one["cut"], shown=row["completion"])
        critique = None if reply is None else reply.critique
        if critique is None:
            reasons[place] = "no room" if reply is None else str(reply.reason)
        said_so = None if critique is None else align(row["completion"], replace(critique, quotes_only=True))
        located.append(said_so)
    counts = counted(located)
    judged = [
        Judged.of(row, None if one is None else one.spans) for row, one in zip(part.held_out, located, strict=True)
    ]
    rates = {"parse_rate": counts.parse_rate, "quote_found_rate": counts.quote_found_rate}
    return {**measured(judged), **rates, "reasons": reasons}
