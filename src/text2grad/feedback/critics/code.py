"""The critic `code`: runs a completion's program against its tests and says where it goes wrong.

Enters: prompts, completions, and the columns `tests` and `hidden_tests` (any published format), `entry_point` and
`test_setup`. Leaves: a critique whose sentences quote the completion exactly, with positions: a syntax error, a wrong
name or signature, a name that nobody defines, the statement with which one small change makes every test pass, the one
that raises or never ends, or those that failing tests run and passing ones do not. A program that stops in the middle
lacks its end; no words of it are to blame for that. Rows without usable tests are not scored. Knows nothing of
processes: see `sandbox`.

The score is (the lesser of the shares of visible and of hidden tests that pass) ** `partial`. Hidden tests are the
column's, or a part of `tests` that is held back. A critique counts them and quotes what they show to be wrong; their
inputs and values stay unsaid. A program that passes everything is praised without a quote. Counts of tests, values and
messages are no words about lines: a critique says `quotes_only`, and its `verdict` is `in_process` as soon as one test
shared a process with the program.
"""

import builtins
import re
from asyncio import CancelledError
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any

from text2grad._checked import shorten
from text2grad.feedback.critics.faults import Repairs, Suspect, blamed, ranked, trials, weighed
from text2grad.feedback.critics.lint import syntax_error, undefined_names, unfinished
from text2grad.feedback.critics.protocol import Critiques, Prompt, is_cancelled
from text2grad.feedback.critics.source import Place, Source, find
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.settings import CodeCriticSettings
from text2grad.runs.tables import nearest
from text2grad.sandbox import Job, Limits, Plan, Report, Sandbox, TestResult, UnusableTests, plan
from text2grad.types import Critique, Isolation, Quote

_WITHOUT_RESULT = {"died", "not_run", "timeout", "load", "syntax"}
"""Kinds of failure after which there is no value to compare."""
_UNSAID = {"timeout": "it did not end in time", "died": "it ended its own process", "not_run": "it was not run"}
"""What a hidden test says of them: the words of a report may come from the program, which saw the test's values."""
STOPS_WITHIN = 0.2
"""Seconds until Ctrl-C is heard while programs run."""
_COLUMNS = ("tests", "hidden_tests", "entry_point", "test_setup")
_HIDDEN = "hidden test"
_GUESS = 0.3
"""Severity of the likeliest statement where the tests tell none from another: so often it is the one."""
_ARITY = re.compile(r"TypeError: (?:\w+\.)*(\w+)\(\) (?:takes|missing|got an unexpected|got multiple|got some)\b")
"""The function, in Python's words about a call that its parameters do not take."""
_UNDEFINED = re.compile(r"NameError: name '(\w+)' is not defined")


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
    """`CodeCritic(settings)(prompts, completions, tests=[…])`."""

    needs = "tests"
    """The column without which nothing is scored."""

    def __init__(self, settings: CodeCriticSettings | None = None) -> None:
        self.settings = chosen = settings or CodeCriticSettings()
        self.sandbox = Sandbox(
            Limits(seconds=chosen.seconds, wall=chosen.wall, memory=chosen.memory << 20),
            packages=chosen.packages,
            workers=chosen.workers or None,
            unsafe=chosen.unsafe,
            in_process=chosen.in_process,
        )
        self._begun: dict[str, Future[tuple[Critique | None, str]]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, prompt: Prompt, completion: str, **row: Any) -> None:
        """Judge one completion in the background, while others are still written; the next call takes what came out.
        `row`: its columns."""
        self._pool = self._pool or ThreadPoolExecutor(self.sandbox.workers, thread_name_prefix="code")
        key = _key(prompt, completion, row)
        if key not in self._begun:
            self._begun[key] = self._pool.submit(self._judge, prompt, completion, row)

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        known = {name: values for name, values in columns.items() if name not in ("prompt", "completion")}
        rows = [{name: values[place] for name, values in known.items()} for place in range(len(completions))]
        items = list(zip(prompts, completions, rows, strict=True))
        for prompt, completion, row in items:
            self.begin(prompt, completion, **row)
        begun, self._begun = self._begun, {}
        critiques = Critiques()
        try:
            for item in items:
                future = begun[_key(*item)]
                while not wait([future], STOPS_WITHIN).done:
                    if is_cancelled():
                        raise CancelledError
                critiques.add(*future.result())
        finally:
            # Where that was interrupted, no more programs are begun.
            for future in begun.values():
                future.cancel()
        return critiques

    def _judge(self, prompt: Prompt, completion: str, row: Mapping[str, Any]) -> tuple[Critique | None, str]:
        """A critique, or None and why."""
        job = _job(row.get("tests"), row)
        secret = _job(row["hidden_tests"], row) if row.get("hidden_tests") else None
        if isinstance(job, str):
            return None, job if "tests" in row else f"{job}; {nearest('tests', row)}"
        if isinstance(secret, str):
            return None, f"hidden_tests: {secret}"
        parts, names = _planned(job), set[str]()
        source = find(prompt, completion, parts.wanted if parts else ())
        if secret is not None and parts is not None and (joined := _joined(job, secret, parts)) is not None:
            (job, names), secret = joined, None
        jobs = [replace(each, program=source.text) for each in (job, secret) if each is not None]
        reports = [self.sandbox.execute(each) for each in jobs]
        if parts is None or not reports[0].results:
            return None, _why_not(reports[0])
        visible, hidden = reports[0].results, reports[-1].results
        if secret is None:
            names = names or self._held_back({unit.name for unit in parts.units}, prompt_text(prompt))
            hidden = tuple(result for result in visible if result.name in names)
            visible = tuple(result for result in visible if result.name not in names)
        if row.get("hidden_tests") and not hidden:
            return None, f"hidden_tests: {_why_not(reports[-1])}"
        return self.critique(source, visible, hidden, parts.wanted, self._repairs(source, jobs, reports)), ""

    def _repairs(self, source: Source, jobs: Iterable[Job], reports: Iterable[Report]) -> Repairs:
        """Small changes of a program that fails a test with a wrong result; hidden tests are asked where the others say
        nothing."""
        for job, report in zip(jobs, reports, strict=True) if self.settings.trials else ():
            if any(map(_went_wrong, report.results)) and syntax_error(source.text) is None:
                lines = [each.line for each in ranked(source.text, report.results) if source.statement(each.line)]
                made = trials(source.text, lines, self.settings.trials)
                passed = self.sandbox.try_variants(job, [trial.source for trial in made])
                return weighed(zip(made, passed, strict=True), report.results)
        return {}

    def _held_back(self, names: Collection[str], prompt: str) -> set[str]:
        """Which of these tests to hide: a share of them, by their text alone, whatever the program."""
        shown, wanted = alike(prompt), int(self.settings.held_back * len(names))
        unseen = sorted((sha256(name.encode()).digest(), name) for name in names if alike(name) not in shown)
        return {name for _, name in unseen[:wanted]}

    def critique(
        self,
        source: Source,
        visible: Sequence[TestResult],
        hidden: Sequence[TestResult] = (),
        wanted: Sequence[str] = (),
        repairs: Repairs | None = None,
    ) -> Critique:
        """Words for results. `wanted`: the names that the tests use; `repairs`: what small changes did."""
        results = [*visible, *_sealed(hidden, source.text, wanted)]
        failed = [result for result in results if not result.passed]
        shares = [sum(result.passed for result in part) / len(part) for part in (visible, hidden) if part]
        score = min(shares) ** self.settings.partial
        shared = sum(result.isolation == "in_process" for result in results)
        isolation: Isolation = "in_process" if shared else "isolated"
        if not failed:
            return Critique(_praise(len(results), shared), score=score, verdict=isolation, quotes_only=True)
        remarks = _Remarks(source)
        remarks.sentences.append(_opening(visible, hidden))
        if shared:
            ran = f"{shared} of {_some(len(results), 'test')} ran in one process with the program"
            remarks.sentences.append(f"{ran} (verdict: in_process).")
        omissions: tuple[str, ...] = ()
        if (fault := syntax_error(source.text)) is None:
            explained = _undefined(remarks, failed) | _misnamed(remarks, failed, wanted) | _miscalled(remarks, failed)
            if not (repairs and _repaired(remarks, repairs, failed, self.settings.most_suspects)):
                explained |= _raised(remarks, [result for result in failed if result.name not in explained])
                left = [result for result in failed if result.name not in explained]
                _suspected(remarks, results, left, self.settings.most_suspects, repairs)
        elif source.ends_the_completion and unfinished(source.text):
            # Perhaps cut off at the length limit; if it stopped by itself, stopping was the mistake.
            omissions = ("the end of the program",)
            remarks.sentences.append(f"The program does not end: {fault.words}.")
        elif fault.line and (place := source.line(fault.line)) is not None:
            remarks.add(place, f"Python cannot read the program at {{}}: {fault.words}.")
        else:
            remarks.sentences.append(f"Python cannot read the program: {fault.words}.")
        feedback, quotes = " ".join(remarks.sentences), tuple(remarks.quotes)
        return Critique(feedback, quotes, omissions, score=score, verdict=isolation, quotes_only=True)


def alike(text: str) -> str:
    """Without white space, and with one kind of quotation mark: as `ast.unparse` may have changed it."""
    return "".join(text.replace('"', "'").split())


def _sealed(results: Iterable[TestResult], program: str, wanted: Sequence[str]) -> list[TestResult]:
    """Results without what their tests put in and expect. Of an exception Python's own type is left, and Python's words
    about signatures and about names that stand in the program or in the tests: a program that raises may say what it
    was given."""
    sealed, names = [], {*re.findall(r"\w+", program), *wanted}
    for number, result in enumerate(results, 1):
        kind, said = result.kind, result.message
        undefined = _UNDEFINED.fullmatch(said)
        if not ((undefined and undefined[1] in names) or (_ARITY.match(said) and not result.frames)):
            raised = said.partition(":")[0] if kind in ("error", "load", "syntax") else ""
            said = _UNSAID.get(kind, raised if hasattr(builtins, raised) else "an exception" if raised else "")
        sealed.append(replace(result, name=f"{_HIDDEN} {number}", message=said, expected=None, got=None))
    return sealed


def _why_not(report: Report) -> str:
    """Why a report has no test that counts."""
    if report.skipped:
        reasons = "; ".join(f"{name[:60]}: {reason}" for name, reason in report.skipped[:5])
        return f"no test is left that counts: {reasons}"
    return f"its tests cannot be used: {report.unusable}"


def _job(tests: Any, row: Mapping[str, Any]) -> Job | str:
    """A row's tests, or why there are none to speak of. A mapping is a row as MBPP or HumanEval publish it."""
    given, entry_point = {"test_setup": row.get("test_setup")}, row.get("entry_point")
    if isinstance(tests, Mapping):
        given |= {name: tests.get(name) for name in ("test_imports", "test_setup_code")}
        entry_point = entry_point or tests.get("entry_point")
        tests = tests.get("test_list") or tests.get("test")
    if not tests and (tests is None or isinstance(tests, str | Sequence)):
        return "it has no tests"
    if _texts(tests) is None:
        return f"tests should be texts, got {shorten(tests)}"
    parts: list[str] = []
    for name, value in given.items():
        if (lines := _texts([] if value is None else value)) is None:
            return f"{name} should be a text or a list of texts, got {shorten(value)}"
        parts += lines
    return Job("", tests, "\n".join(parts), entry_point if isinstance(entry_point, str) else None)


def _texts(value: Any) -> Sequence[str] | None:
    """A text, or several; None if it is something else."""
    lines = [value] if isinstance(value, str) else value
    return lines if isinstance(lines, Sequence) and all(isinstance(line, str) for line in lines) else None


def _key(prompt: Prompt, completion: str, row: Mapping[str, Any]) -> str:
    return repr((prompt_text(prompt), completion, [row.get(name) for name in _COLUMNS]))


def _joined(job: Job, secret: Job, shown: Plan) -> tuple[Job, set[str]] | None:
    """Both in one execution, and the names of the hidden tests, where both are lists of asserts."""
    hidden = _planned(secret)
    if isinstance(job.tests, str) or isinstance(secret.tests, str) or hidden is None:
        return None
    known = {unit.name: unit.source for unit in shown.units}
    if any(known.get(unit.name, unit.source) != unit.source for unit in hidden.units):
        return None  # a name is the beginning of a test, and here two tests begin alike
    names = {unit.name for unit in hidden.units} - {*known}
    both = replace(job, tests=[*job.tests, *secret.tests])
    return (both, names) if names and _planned(both) is not None else None


def _planned(job: Job) -> Plan | None:
    try:
        return plan(job.tests, job.setup, job.entry_point)
    except UnusableTests:
        return None


def _went_wrong(result: TestResult) -> bool:
    """Whether a test ran the program to a wrong end, which a small change may set right."""
    return not result.passed and bool(result.lines) and result.kind in ("mismatch", "assertion", "error", "test_error")


def _undefined(remarks: _Remarks, failed: Iterable[TestResult]) -> set[str]:
    """Names that nobody defines; the tests whose failure that explains."""
    explained: set[str] = set()
    source = remarks.source
    for fault in undefined_names(source.text):
        message = f"NameError: name {fault.words!r} is not defined"
        hit = [result for result in failed if result.message.startswith(message)]
        explained |= {result.name for result in hit}
        ending = f", and {_some(len(hit), 'test')} ended in {message}" if hit else ""
        if source.ends_the_completion and source.text.endswith(fault.words):
            # Cut off within a name, perhaps: not the fault of these words.
            remarks.sentences.append("The program is cut off: its last word is not a defined name.")
        elif fault.line is not None:
            remarks.add(source.name(fault.line, fault.column, fault.words), f"{{}} is not defined{ending}.")
    return explained


def _misnamed(remarks: _Remarks, failed: Sequence[TestResult], wanted: Iterable[str]) -> set[str]:
    """Functions under other names than the tests call; the tests whose failure that explains."""
    source, right, explained = remarks.source, set(wanted), set[str]()
    for name in wanted:
        message = f"NameError: name {name!r} is not defined"
        hit = [result for result in failed if result.message.startswith(message) and not result.frames]
        found = source.misnamed(name, right) if hit else None
        if found is not None:
            sentence = f"{{}} should be called `{name}`: {_some(len(hit), 'test')} ended in {message}."
            remarks.add(source.functions[found][0], sentence)
            right.add(found)
            explained |= {result.name for result in hit}
    return explained


def _miscalled(remarks: _Remarks, failed: Iterable[TestResult]) -> set[str]:
    """Parameters that do not take what the tests call the function with; the tests that they explain."""
    groups: dict[tuple[str, str], list[TestResult]] = {}
    for result in failed:
        if (match := _ARITY.match(result.message)) and not result.frames:
            groups.setdefault((match[1], result.message), []).append(result)
    explained: set[str] = set()
    for (name, message), results in groups.items():
        if name in remarks.source.functions:
            sentence = f"{{}} does not take what {_some(len(results), 'test')} called `{name}` with: {message}."
            remarks.add(remarks.source.functions[name][1], sentence)
            explained |= {result.name for result in results}
    return explained


def _raised(remarks: _Remarks, failed: Iterable[TestResult]) -> set[str]:
    """Statements that raise or do not end; the tests that they explain."""
    groups: dict[tuple[int, bool, str], list[TestResult]] = {}
    for result in failed:
        lines = [line for line in result.frames if remarks.source.line(line) is not None] or result.frames
        if result.kind in ("error", "load", "timeout") and lines:
            line = remarks.source.owner(lines[-1]) or lines[-1]
            if late := result.kind == "timeout":
                line = remarks.source.loop(line) or line
            groups.setdefault((line, late, result.message.partition(":")[0]), []).append(result)
    for (line, late, _), results in groups.items():
        first = f"first in `{results[0].name}`" if results[0].kind != "load" else "while the program is loaded"
        what = f"does not end in time in {_some(len(results), 'test')}" if late else f"raises {results[0].message}"
        where = f", {first}" if late or len(results) == 1 else f" in {len(results)} tests, {first}"
        remarks.add(remarks.source.statement(line), f"{{}} {what}{where}.")
    return {result.name for results in groups.values() for result in results}


def _repaired(remarks: _Remarks, repairs: Repairs, failed: Sequence[TestResult], most: int) -> bool:
    """Statements of which one small change makes every test pass; False where there are none, or too many to choose."""
    complete = {line: trial for line, (trial, gain) in repairs.items() if gain == 1.0}
    found = {line: trial for line, trial in complete.items() if remarks.source.statement(line) is not None}
    if not 0 < len(found) <= most:
        return False
    told = not any(result.name.startswith(_HIDDEN) for result in failed)  # a number that is right may be a test's own
    for line, trial in found.items():
        change = f"with `{trial.new}` instead of `{trial.old}`" if trial.new else f"without `{trial.old.strip()}`"
        change = change if told else "with one small change of it"
        sentence = f"{{}} is wrong ({_wrong(failed[0])}): {change} every test passes."
        remarks.add(remarks.source.statement(line), sentence, severity=1.0)
    return True


def _suspected(
    remarks: _Remarks, results: Sequence[TestResult], failed: Sequence[TestResult], most: int, repairs: Repairs | None
) -> None:
    """Statements that failing tests run and passing ones do not, or, where the tests run all the same, the one that the
    rest of the evidence is against; tests that failed for a known reason are left out."""
    if not failed:
        return
    if {result.kind for result in failed} <= _WITHOUT_RESULT:
        remarks.sentences.append(f"{_some(len(failed), 'test')} got no result: {_wrong(failed[0])}.")
        return
    names = {result.name for result in failed}
    judged = [result for result in results if result.lines and (result.passed or result.name in names)]
    statement = remarks.source.statement
    judged = [replace(result, lines=frozenset(filter(statement, result.lines))) for result in judged]
    runs = [(result.lines, result.passed) for result in judged]
    chosen = [(suspect, suspect.suspicion) for suspect in blamed(runs, most)]
    if not chosen and all(map(_went_wrong, failed)):
        chosen = [(suspect, _GUESS) for suspect in ranked(remarks.source.text, judged, repairs)[:1]]
    for suspect, severity in chosen:
        example = next(result for result in judged if not result.passed and suspect.line in result.lines)
        sentence = f"{{}} runs in {_counted(suspect, len(failed), runs)}: {_wrong(example)}."
        remarks.add(statement(suspect.line), sentence, severity=round(severity, 3))
    if not remarks.quotes:
        remarks.sentences.append(f"`{failed[0].name}` fails: {_wrong(failed[0])}.")


def _counted(suspect: Suspect, failed: int, runs: Sequence[tuple[Any, bool]]) -> str:
    first = f"{'all ' if suspect.failing == failed else f'{suspect.failing} of '}{failed} failing tests"
    second = f"{suspect.passing} of {sum(passed for _, passed in runs)} passing ones"
    return f"{'the failing test' if failed == 1 else first} and in {second if suspect.passing else 'no passing one'}"


def _wrong(result: TestResult) -> str:
    if result.expected is not None and result.got is not None:
        return f"expected {result.expected}, got {result.got}"
    return result.message or "the assertion does not hold"


def _opening(visible: Sequence[TestResult], hidden: Sequence[TestResult]) -> str:
    failed, unseen = (sum(not result.passed for result in part) for part in (visible, hidden))
    if not hidden:
        return _failing(failed, len(visible))
    said = [_failing(failed, len(visible), "visible ")] if failed else []
    if visible and not failed:
        said = [f"What it can see, it passes ({_some(len(visible), 'test')})."]
    return " ".join([*said, _failing(unseen, len(hidden), "hidden ")] if unseen else said)


def _failing(failed: int, total: int, which: str = "") -> str:
    if failed == total:
        return f"The only {which}test fails." if total == 1 else f"All {total} {which}tests fail."
    return f"{failed} of {total} {which}tests fail{'s' if failed == 1 else ''}."


def _praise(total: int, shared: int) -> str:
    """Of the whole, in words that no line of a program shares, should somebody align the words alone."""
    cases = "the only case" if total == 1 else f"all {total} cases"
    return f"Correct in {cases} ({shared} with verdict: in_process)." if shared else f"Correct in {cases}."


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@cache
def _shown_tests_critic() -> CodeCritic:
    return CodeCritic(CodeCriticSettings(held_back=0, partial=1, trials=0))


def shown_tests(prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
    """The critic of somebody who has the column `tests` and no hidden ones: what may choose among samples when hidden
    tests measure (`best_of_critic: text2grad.feedback.critics.code:shown_tests`)."""
    return _shown_tests_critic()(prompts, completions, **{k: v for k, v in columns.items() if k != "hidden_tests"})
