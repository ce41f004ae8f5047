"""Clauses that quote nothing → spans and omissions: code references where the completion is code, paraphrase where it
is prose.

Enters: the completion, the clauses that no quote has settled, the source. Leaves: spans, and what is missing. A
completion with fenced code is both: its code is read as code, the words around it as prose.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from text2grad.feedback.align import code
from text2grad.feedback.align.code_lines import Line, code_lines
from text2grad.feedback.align.evidence import Support
from text2grad.feedback.align.omissions import finds_missing, split_clauses
from text2grad.feedback.align.paraphrase import Prose, Similarity, best_words, paraphrases, span_of
from text2grad.feedback.align.places import Place
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.align.tagger import line_scorer
from text2grad.feedback.align.text import Text
from text2grad.feedback.parse import Clause
from text2grad.types import Span, Verdict

_FENCE = re.compile(r"^```[^\n]*\n(.*?)(?:^```[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"(?:[^\n]*\S[^\n]*\n?)+")
_FUNCTION = re.compile(r"\b(?:def|function|func|fn)\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Regions:
    """Which stretches of a completion are code and which are prose."""

    lines: tuple[Line, ...]
    prose: tuple[Place, ...] | None
    """None: all of it."""


def regions_of(raw: str) -> Regions:
    fences = list(_FENCE.finditer(raw))
    if not fences:
        lines = code_lines(raw)
        return Regions(tuple(lines), ()) if lines else Regions((), None)
    lines = [line for fence in fences for line in code_lines(fence[1], fence.start(1), certain=True) or ()]
    edges = [0, *(edge for fence in fences for edge in fence.span()), len(raw)]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if raw[start:end].strip()]
    inside = [
        place for place in Text(raw).sentences if any(start <= place[0] and place[1] <= end for start, end in gaps)
    ]
    return Regions(tuple(lines), tuple(inside))


def split_omissions(
    clauses: Sequence[Clause], completion: Text, support: Support | None
) -> tuple[list[Clause], list[tuple[Clause, str]]]:
    """(clauses that are about something that is there, clauses about something that is not, with its words)."""
    if not any(finds_missing(clause) for clause in clauses):
        return list(clauses), []
    return split_clauses(clauses, Support.of(completion.raw).stems, support.stems if support else None)


def from_clauses(
    text: Text,
    critique: str,
    clauses: Sequence[Clause],
    default: Verdict,
    source: Text | None,
    support: Support | None,
    settings: AlignSettings,
    quoted: Sequence[Span],
    similar: Similarity | None = None,
) -> list[Span]:
    """Spans of the clauses; blame and praise apart, so that neither lends the other its words."""
    spans: list[Span] = []
    clauses = clauses[: settings.paraphrase.longest]
    regions = regions_of(text.raw)
    places = [(span.start, span.end) for span in quoted]
    groups: list[tuple[Verdict, list[Clause]]] = [
        ("poor" if default == "good" else default, [clause for clause in clauses if clause.verdict != "good"]),
        ("good", [clause for clause in clauses if clause.verdict == "good"]),
    ]
    if regions.lines and settings.code.use:
        if broken := code.broken_line(regions.lines, critique):
            line = regions.lines[broken[0]]
            spans.append(Span(line.start, line.end, "poor", provenance="code", confidence=0.95, comment=broken[1]))
        for verdict, group in groups:
            spans += _in_code(regions.lines, group, verdict, source, settings, places)
    if settings.paraphrase.use and regions.prose != () and any(group for _, group in groups):
        prose = Prose(text, support, regions.prose)
        blocks = [match.span() for match in _BLOCK.finditer(text.raw)]
        for verdict, group in groups:
            if group:
                spans += paraphrases(prose, group, verdict, settings.paraphrase, places, blocks, similar)
    return _without_repeats(spans)


def _in_code(
    lines: Sequence[Line],
    clauses: Sequence[Clause],
    verdict: Verdict,
    source: Text | None,
    settings: AlignSettings,
    quoted: Sequence[Place],
) -> list[Span]:
    spans: list[Span] = []
    rest: list[Clause] = []
    for clause in clauses:
        named = code.named_lines(lines, clause.plain)
        for index in sorted(named):
            line = lines[index]
            spans.append(span_of((line.start, line.end), clause.verdict or verdict, 0.95, clause, "code"))
        if not named:
            rest.append(clause)
    for scope, group in _scopes(lines, rest):
        spans += _scored(scope, group, verdict, source, settings, quoted)
    return spans


def _scopes(lines: Sequence[Line], clauses: Sequence[Clause]) -> list[tuple[Sequence[Line], list[Clause]]]:
    """Clauses that name one of several functions are about its lines; the others may be about any."""
    bodies = code.functions_in(lines)
    if len(bodies) < 2:
        return [(lines, list(clauses))] if clauses else []
    groups: dict[str | None, list[Clause]] = {}
    for clause in clauses:
        named = [name for name in bodies if re.search(rf"\b{re.escape(name)}\b", clause.text)]
        groups.setdefault(named[0] if len(named) == 1 else None, []).append(clause)
    return [(bodies[name] if name else lines, group) for name, group in groups.items()]


def _scored(
    lines: Sequence[Line],
    rest: Sequence[Clause],
    verdict: Verdict,
    source: Text | None,
    settings: AlignSettings,
    quoted: Sequence[Place],
) -> list[Span]:
    spans: list[Span] = []
    rows = code.line_evidence(lines, code.talk_of(rest, praise=verdict == "good"), quoted, functions_of(source))
    if not rows[:, code.TOUCHED].any():
        # "I don't understand this": the scorer would only name the lines that are wrong most often.
        return []
    probabilities = line_scorer()(rows)
    if verdict == "good":
        # Trained on blame; of praise only what is named without doubt, the only line of its kind above all.
        pointed = rows[:, code.POINTED].max(axis=1)
        chosen = (pointed >= 1) | ((probabilities >= 0.6) & (pointed > 0))
        probabilities = np.maximum(probabilities, 0.6 * chosen)
    else:
        chosen = best_words(probabilities, np.array([len(line.tight) for line in lines]), settings.code)
    for index in np.flatnonzero(chosen).tolist():
        line = lines[index]
        clause = max(rest, key=lambda clause: code.nearness(line, clause))
        confidence = float(probabilities[index])
        spans.append(span_of((line.start, line.end), clause.verdict or verdict, confidence, clause, "code"))
    return spans


def functions_of(source: Text | None) -> frozenset[str]:
    """Functions that the prompt has begun and the completion goes on with: a call of one is recursion."""
    return frozenset(match[1] for match in _FUNCTION.finditer(source.raw)) if source else frozenset()


def _without_repeats(spans: Sequence[Span]) -> list[Span]:
    """One span per place and verdict: the surest."""
    best: dict[tuple[int, int, str], Span] = {}
    for span in spans:
        key = (span.start, span.end, span.verdict)
        if key not in best or span.confidence > best[key].confidence:
            best[key] = span
    return list(best.values())
