"""The critic `code`: runs a completion's program against its tests and says where it goes wrong.

Enters: prompts, completions, and the columns `tests` (any published format), `entry_point` and `test_setup`. Leaves: a
critique whose score is the fraction of tests passed, and whose sentences quote the completion exactly, with positions:
a syntax error, a name that nobody defines, the statement that raises or never ends, or the statements that failing
tests run and passing ones do not. Rows without usable tests are not scored. Knows nothing of processes: see `sandbox`.

A program that passes everything is praised without a quote: every line had a part in it, and none more than another.
Counts of tests, values and messages are no words about lines: a critique says `quotes_only`, and its `verdict` is
`in_process` as soon as one test shared a process with the program.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from text2grad._checked import shorten
from text2grad.feedback.critics.lint import syntax_error, undefined_names
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.source import Place, Source, find
from text2grad.feedback.critics.spectrum import Suspect, blamed
from text2grad.feedback.settings import CodeSettings
from text2grad.sandbox import Job, Limits, Report, Sandbox, TestResult, UnusableTests, plan
from text2grad.types import Critique, Isolation, Quote

_WITHOUT_RESULT = {"died", "not_run", "timeout", "load", "syntax"}
"""Kinds of failure after which there is no value to compare."""


@dataclass(slots=True)
class _Remarks:
    """Sentences and quotes as they come up."""

    source: Source
    sentences: list[str] = field(default_factory=list)
    quotes: list[Quote] = field(default_factory=list)

    def add(self, place: Place | None, sentence: str, severity: float | None = None) -> None:
        """`sentence` holds `{}` for the quoted words. Words that stand outside the completion are named, not quoted."""
        if place is None:
            self.sentences.append(sentence.replace("{}", "a line outside the completion", 1))
            return
        text = self.source.completion[slice(*place)]
        comment = sentence.replace("{}", f"`{text}`", 1)
        self.sentences.append(comment)
        self.quotes.append(Quote(text, "poor", severity=severity, comment=comment, start=place[0]))


class CodeCritic:
    """`CodeCritic(settings)(prompts, completions, tests=[…])`; a sandbox of one's own can be handed in."""

    def __init__(self, settings: CodeSettings | None = None, sandbox: Sandbox | None = None) -> None:
        self.settings = settings or CodeSettings()
        chosen = self.settings
        self.sandbox = sandbox or Sandbox(
            Limits(seconds=chosen.seconds, wall=chosen.wall, memory=chosen.memory << 20),
            packages=chosen.packages,
            workers=chosen.workers or None,
            unsafe=chosen.unsafe,
            in_process=chosen.in_process,
        )

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        empty = [None] * len(completions)
        tests, entries = columns.get("tests", empty), columns.get("entry_point", empty)
        setups = columns.get("test_setup", empty)
        critiques = Critiques([None] * len(completions))
        jobs: dict[int, Job] = {}
        sources: dict[int, Source] = {}
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            job = _job(tests[index], entries[index], setups[index])
            if isinstance(job, str):
                critiques.reasons[index] = job
                continue
            sources[index] = source = find(prompt, completion, _wanted(job))
            jobs[index] = Job(source.text, job.tests, job.setup, job.entry_point)
        for index, report in zip(jobs, self.sandbox.run_many(jobs.values()), strict=True):
            critiques[index] = self.critique(sources[index], report)
            if critiques[index] is None:
                critiques.reasons[index] = _why_not(report)
        return critiques

    def critique(self, source: Source, report: Report) -> Critique | None:
        """Words for a report; None where no test counts."""
        results = report.results
        if not results:
            return None
        failed = [result for result in results if not result.passed]
        score = (len(results) - len(failed)) / len(results)
        shared = sum(result.isolation == "in_process" for result in results)
        isolation: Isolation = "in_process" if shared else "isolated"
        if not failed:
            return Critique(_praise(len(results), shared), score=score, verdict=isolation, quotes_only=True)
        remarks = _Remarks(source)
        remarks.sentences.append(_opening(len(failed), len(results)))
        if shared:
            ran = f"{shared} of {_some(len(results), 'test')} ran in one process with the program"
            remarks.sentences.append(f"{ran} (verdict: in_process).")
        if (fault := syntax_error(source.text)) is not None:
            place = source.line(fault.line) if fault.line else None
            if place is None:
                remarks.sentences.append(f"Python cannot read the program: {fault.words}.")
            else:
                remarks.add(place, f"Python cannot read the program at {{}}: {fault.words}.")
        else:
            explained = _undefined(remarks, failed)
            explained |= _raised(remarks, [result for result in failed if result.name not in explained])
            _suspected(remarks, results, [r for r in failed if r.name not in explained], self.settings.most_suspects)
        feedback = " ".join(remarks.sentences)
        return Critique(feedback, tuple(remarks.quotes), score=score, verdict=isolation, quotes_only=True)


def _why_not(report: Report) -> str:
    """Why a report has no test that counts."""
    if report.skipped:
        reasons = "; ".join(f"{name[:60]}: {reason}" for name, reason in report.skipped[:5])
        return f"no test is left that counts: {reasons}"
    return f"its tests cannot be used: {report.unusable}"


def _job(tests: Any, entry_point: Any, setup: Any) -> Job | str:
    """A row's tests, or why there are none to speak of. A mapping is a row as MBPP or HumanEval publish it."""
    given = {"test_setup": setup}
    if isinstance(tests, Mapping):
        given |= {name: tests.get(name) for name in ("test_imports", "test_setup_code")}
        entry_point = entry_point or tests.get("entry_point")
        tests = tests.get("test_list") or tests.get("test")
    if not isinstance(tests, str) and not (
        isinstance(tests, Sequence) and all(isinstance(test, str) for test in tests)
    ):
        return "it has no tests" if tests is None else f"tests should be texts, got {shorten(tests)}"
    if not tests:
        return "it has no tests"
    parts: list[str] = []
    for name, value in given.items():
        lines = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(lines, Sequence) or not all(isinstance(line, str) for line in lines):
            return f"{name} should be a text or a list of texts, got {shorten(value)}"
        parts += lines
    return Job("", tests, "\n".join(parts), entry_point if isinstance(entry_point, str) else None)


def _wanted(job: Job) -> Sequence[str]:
    try:
        return plan(job.tests, job.setup, job.entry_point).wanted
    except UnusableTests:
        return ()


def _undefined(remarks: _Remarks, failed: Iterable[TestResult]) -> set[str]:
    """Names that nobody defines; the tests whose failure that explains."""
    explained: set[str] = set()
    for fault in undefined_names(remarks.source.text):
        message = f"NameError: name {fault.words!r} is not defined"
        hit = [result for result in failed if result.message.startswith(message)]
        explained |= {result.name for result in hit}
        ending = f", and {_some(len(hit), 'test')} ended in {message}" if hit else ""
        if fault.line is not None:
            remarks.add(remarks.source.name(fault.line, fault.column, fault.words), f"{{}} is not defined{ending}.")
    return explained


def _raised(remarks: _Remarks, failed: Iterable[TestResult]) -> set[str]:
    """Statements that raise or do not end; the tests that they explain."""
    groups: dict[tuple[int, bool, str], list[TestResult]] = {}
    for result in failed:
        frames = [frame for frame in result.frames if remarks.source.line(frame.line) is not None] or result.frames
        if result.kind in ("error", "load", "timeout") and frames:
            line = remarks.source.owner(frames[-1].line) or frames[-1].line
            if late := result.kind == "timeout":
                line = remarks.source.loop(line) or line
            groups.setdefault((line, late, result.message), []).append(result)
    for (line, late, message), results in groups.items():
        first = f"first in `{results[0].name}`" if results[0].kind != "load" else "while the program is loaded"
        what = f"does not end in time in {_some(len(results), 'test')}" if late else f"raises {message}"
        where = f", {first}" if late or len(results) == 1 else f" in {len(results)} tests, {first}"
        remarks.add(remarks.source.statement(line), f"{{}} {what}{where}.")
    return {result.name for results in groups.values() for result in results}


def _suspected(remarks: _Remarks, results: Sequence[TestResult], failed: Sequence[TestResult], most: int) -> None:
    """Statements that failing tests run and passing ones do not; tests that failed for a known reason are left out."""
    if not failed:
        return
    if {result.kind for result in failed} <= _WITHOUT_RESULT:
        remarks.sentences.append(f"{_some(len(failed), 'test')} got no result: {_wrong(failed[0])}.")
        return
    names = {result.name for result in failed}
    judged = [result for result in results if result.lines and (result.passed or result.name in names)]
    runs = [(_quotable(remarks.source, result.lines), result.passed) for result in judged]
    for suspect in blamed(runs, most):
        example = next(result for result in judged if not result.passed and suspect.line in result.lines)
        sentence = f"{{}} runs in {_counted(suspect, len(failed), runs)}: {_wrong(example)}."
        remarks.add(remarks.source.statement(suspect.line), sentence, severity=round(suspect.suspicion, 3))
    if not remarks.quotes:
        remarks.sentences.append(f"`{failed[0].name}` fails: {_wrong(failed[0])}.")


def _quotable(source: Source, lines: Iterable[int]) -> set[int]:
    return {line for line in lines if source.statement(line) is not None}


def _counted(suspect: Suspect, failed: int, runs: Sequence[tuple[Any, bool]]) -> str:
    first = f"{'all ' if suspect.failing == failed else f'{suspect.failing} of '}{failed} failing tests"
    second = f"{suspect.passing} of {sum(passed for _, passed in runs)} passing ones"
    return f"{'the failing test' if failed == 1 else first} and in {second if suspect.passing else 'no passing one'}"


def _wrong(result: TestResult) -> str:
    if result.expected is not None and result.got is not None:
        return f"expected {result.expected}, got {result.got}"
    return result.message or "the assertion does not hold"


def _opening(failed: int, total: int) -> str:
    if failed == total:
        return "The only test fails." if total == 1 else f"All {total} tests fail."
    return f"{failed} of {total} tests fail{'s' if failed == 1 else ''}."


def _praise(total: int, shared: int) -> str:
    """Of the whole, in words that no line of a program shares, should somebody align the words alone."""
    cases = "the only case" if total == 1 else f"all {total} cases"
    return f"Correct in {cases} ({shared} with verdict: in_process)." if shared else f"Correct in {cases}."


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
