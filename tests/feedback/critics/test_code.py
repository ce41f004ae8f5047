"""The critic `code`: real programs in the real sandbox; its words quote the completion, its score counts tests."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import ConfigError, SandboxError
from text2grad.feedback.align import AlignSettings, align
from text2grad.feedback.annotation import annotate
from text2grad.feedback.critics import ask_now
from text2grad.feedback.critics.code import CodeCritic, _job
from text2grad.feedback.critics.source import find
from text2grad.feedback.rows import Row
from text2grad.feedback.settings import CodeSettings
from text2grad.sandbox import Frame, Report, TestResult
from text2grad.types import Critique, Message

ADD = ["assert add(2, 3) == 5", "assert add(0, 0) == 0", "assert add(4, 1) == 5"]


@pytest.fixture(scope="session")
def critic() -> CodeCritic:
    return CodeCritic(CodeSettings(seconds=0.4, wall=4.0, in_process=True))


def said(
    critic: CodeCritic, completion: str, tests: Any = ADD, prompt: Any = "Write add(a, b).", **columns: Any
) -> Any:
    (critique,) = ask_now(critic, [prompt], [completion], {"tests": [tests], **{k: [v] for k, v in columns.items()}})
    if critique is not None:
        exact(completion, critique)
    return critique


def exact(completion: str, critique: Critique) -> None:
    """The law of all quotes: they stand where they say, and alignment finds them there."""
    for quote in critique.quotes:
        assert quote.start is not None
        assert completion[quote.start : quote.start + len(quote.text)] == quote.text
        assert quote.comment in critique.feedback
    found = align(completion, critique)
    assert sorted((quote.start or 0, quote.text) for quote in critique.quotes) == [
        (span.start, span.slice(completion)) for span in found.spans
    ]
    assert (found.missed, found.omissions) == ((), ())


def quoted(critique: Critique) -> list[str]:
    return [quote.text for quote in critique.quotes]


@pytest.mark.system("bwrap")
class TestWhatItSays:
    def test_the_statement_that_only_failing_tests_run(self, critic: CodeCritic) -> None:
        completion = "def add(a, b):\n    if a:\n        return a - b\n    return b\n"
        critique = said(critic, completion)
        assert critique.feedback == (
            "2 of 3 tests fail. `return a - b` runs in all 2 failing tests and in no passing one: expected 5, got -1."
        )
        assert (quoted(critique), critique.quotes[0].verdict) == (["return a - b"], "poor")
        assert critique.score == pytest.approx(1 / 3)

    def test_a_single_statement_is_a_span_even_if_all_fail(self, critic: CodeCritic) -> None:
        critique = said(
            critic, "def add(a, b):\n    return a - b\n", ["assert add(2, 3) == 5", "assert add(1, 1) == 2"]
        )
        assert (
            "`return a - b` runs in all 2 failing tests and in no passing one: expected 5, got -1" in critique.feedback
        )

    def test_a_tie_over_the_whole_function_is_no_span(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    c = a\n    c -= b\n    return c\n", ["assert add(2, 3) == 5"])
        assert (critique.quotes, critique.score) == ((), 0.0)
        assert critique.feedback == "The only test fails. `assert add(2, 3) == 5` fails: expected 5, got -1."

    def test_a_syntax_error(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    return (a + b\n")
        assert quoted(critique) == ["return (a + b"]
        assert "cannot read the program at `return (a + b`: SyntaxError: '(' was never closed" in critique.feedback
        assert critique.score == 0.0

    def test_an_undefined_name(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    return plus(a, b)\n")
        assert quoted(critique) == ["plus"]
        assert "3 tests ended in NameError: name 'plus' is not defined" in critique.feedback

    def test_the_frame_that_raises(self, critic: CodeCritic) -> None:
        completion = "def inner(x):\n    return 1 / x\n\ndef add(a, b):\n    return a + b + 0 * inner(a)\n"
        critique = said(critic, completion)
        assert quoted(critique) == ["return 1 / x"]
        assert "`return 1 / x` raises ZeroDivisionError: division by zero, first in `assert add(0, 0) == 0`" in (
            critique.feedback
        )
        assert critique.score == pytest.approx(2 / 3)

    def test_a_frame_inside_a_long_statement_quotes_all_of_it(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    return [\n        a,\n        1 / 0,\n    ]\n", ADD[:1])
        assert quoted(critique) == ["return [\n        a,\n        1 / 0,\n    ]"]

    def test_a_loop_that_does_not_end(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    while b:  # forever\n        a = a + 1\n    return a\n", ADD[:1])
        assert quoted(critique) == ["while b:"]
        assert "does not end in time in 1 test" in critique.feedback

    def test_an_error_while_loading(self, critic: CodeCritic) -> None:
        critique = said(critic, "import no_such_module\ndef add(a, b): return a + b\n")
        assert quoted(critique) == ["import no_such_module"]
        assert "ModuleNotFoundError" in critique.feedback
        assert critique.score == 0.0

    def test_a_program_that_ends_its_process(self, critic: CodeCritic) -> None:
        critique = said(critic, "import os\nos._exit(0)\n")
        assert (critique.score, critique.quotes) == (0.0, ())
        assert "3 tests got no result: the program ended its own process" in critique.feedback

    def test_praise_has_no_quote(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    return a + b\n")
        assert critique == Critique("Correct in all 3 cases.", score=1.0, verdict="isolated", quotes_only=True)

    @pytest.mark.parametrize("tests", [["assert Box(1).get() == 1"], ["assert Box(1).get() == 1", "assert two() == 2"]])
    def test_praise_marks_no_line(self, critic: CodeCritic, tests: list[str]) -> None:
        program = "class Box:\n    def __init__(self, x):\n        self.x = x\n\n    def get(self):\n"
        program += "        return self.x\n\ndef two():\n    for k in range(3):\n        pass\n    return k\n"
        critique = said(critic, program, tests)
        assert critique.score == 1.0
        assert "1 with verdict: in_process" in critique.feedback
        for feedback in (critique.feedback, "Correct in all 3 cases.", "Correct in the only case."):
            assert align(program, Critique(feedback, score=1.0)).spans == ()

    def test_what_shared_a_process_is_said(self, critic: CodeCritic) -> None:
        program = "class Box:\n    def one(self): return 1\n\ndef two():\n    return 3\n"
        critique = said(critic, program, ["assert Box().one() == 1", "assert two() == 2"])
        assert critique.verdict == "in_process"
        assert Critique.from_json(critique.to_json()) == critique
        opening = "1 of 2 tests fails. 1 of 2 tests ran in one process with the program (verdict: in_process). "
        assert critique.feedback.startswith(opening)

    @pytest.mark.parametrize(
        ("completion", "tests"),
        [
            ("def add(a, b):\n    c = a\n    c -= b\n    return c\n", ADD),
            ("def tests(a, b):\n    fail = a\n    fail -= b\n    return fail\n", ["assert tests(2, 3) == 5"]),
            ("# line 1 of add(2, 3) == 5\nimport os\nos._exit(0)\n", ADD),
            ("def add(a, b):\n    print('the assertion does not hold')\n    c = add\n    return c\n", ADD[:1]),
            (
                "All tests fail. The program does not hold.\n```python\ndef add(a, b):\n    c = 1\n    return c\n```",
                ADD,
            ),
        ],
    )
    def test_blame_without_quotes_marks_no_line(self, critic: CodeCritic, completion: str, tests: list[str]) -> None:
        critique = said(critic, completion, tests)
        assert critique.quotes == ()
        assert critique.score < 1.0
        assert align(completion, Critique.from_json(critique.to_json())).spans == ()

    def test_a_message_that_no_file_can_hold(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    raise ValueError('\\ud800')\n", ADD[:1])
        assert "raises ValueError: ?" in critique.feedback


@pytest.mark.system("bwrap")
def test_rows_of_annotate_hold_the_verdict_and_no_span_but_the_quotes(critic: CodeCritic) -> None:
    program = "class Box:\n    def one(self):\n        x = 1\n        return x\n\n"
    program += "def tests(fail):\n    fail = 3\n    return fail\n"
    cases = [["assert Box().one() == 1"], ["assert Box().one() == 2", "assert tests(1) == 3"], ["assert tests(1) == 2"]]
    items = [
        (k, {"id": k, "prompt": "Write it.", "completion": program, "tests": tests}) for k, tests in enumerate(cases)
    ]
    rows: list[Any] = asyncio.run(annotate(items, critic, AlignSettings()))
    assert [row["critique"]["verdict"] for row in rows] == ["in_process", "in_process", "isolated"]
    assert [row["critique"]["score"] for row in rows] == [1.0, 0.5, 0.0]
    for row in rows:
        assert [span["start"] for span in row["spans"]] == [quote["start"] for quote in row["critique"]["quotes"]]
        assert Row.of(row).align(AlignSettings()).to_json()["missed"] == row["missed"] == []


@pytest.mark.system("bwrap")
class TestWhereTheProgramIs:
    BODY = "    c = a\n    if a:\n        return a - b\n    return b\n"

    def test_a_body_that_continues_the_prompt(self, critic: CodeCritic) -> None:
        prompt = 'def add(a, b):\n    """Add, as in add(2, 3) == 5."""\n'
        critique = said(critic, self.BODY, prompt=prompt)
        assert (quoted(critique), critique.quotes[0].start) == (["return a - b"], self.BODY.index("return a - b"))
        assert said(critic, "    return a + b\n", prompt=prompt).score == 1.0

    def test_a_line_of_the_prompt_is_not_quoted(self, critic: CodeCritic) -> None:
        prompt = "def inner(x):\n    return 1 / 0\n\ndef add(a, b):\n"
        critique = said(critic, "    return inner(a) + b\n", prompt=prompt)
        assert quoted(critique) == ["return inner(a) + b"]

    def test_a_fence_in_prose(self, critic: CodeCritic) -> None:
        completion = (
            f"Here it is — naïve 🙂:\r\n\n```python\ndef add(a, b):\n{self.BODY}```\nUse `add(2, 3)`. return a - b"
        )
        critique = said(critic, completion)
        assert quoted(critique) == ["return a - b"]
        assert critique.quotes[0].start == completion.index("return a - b")

    def test_the_fence_that_defines_what_is_tested(self, critic: CodeCritic) -> None:
        completion = "```\nprint('a much longer example than the program itself, to be run first')\n```\n"
        completion += "```python\ndef add(a, b):\n    return a + b"
        assert said(critic, completion).score == 1.0

    def test_windows_line_ends_and_wide_characters(self, critic: CodeCritic) -> None:
        completion = "def add(a, b):\r\n    s = '漢字🙂'; return a - b\r\n"
        assert quoted(said(critic, completion, ADD[:1])) == ["s = '漢字🙂'; return a - b"]

    def test_a_conversation_as_prompt(self, critic: CodeCritic) -> None:
        prompt = [Message("user", "Write add.")]
        assert said(critic, "```py\ndef add(a, b): return a + b\n```", prompt=prompt).score == 1.0

    @pytest.mark.parametrize("completion", ["", "   ", "I cannot do that.", "```python\n```", "return 5"])
    def test_no_program_at_all_scores_nothing(self, critic: CodeCritic, completion: str) -> None:
        assert said(critic, completion).score == 0.0


@pytest.mark.system("bwrap")
class TestColumns:
    RIGHT = "def add(a, b):\n    return a + b\n"

    @pytest.mark.parametrize(
        ("tests", "columns"),
        [
            (ADD, {}),
            ("\n".join(ADD), {}),
            ("def check(candidate):\n    assert candidate(1, 2) == 3\n", {"entry_point": "add"}),
            ({"test": "def check(candidate):\n    assert candidate(1, 2) == 3\n", "entry_point": "add"}, {}),
            ({"test_list": ["assert add(one, 2) == 3"], "test_setup_code": "one = 1"}, {}),
            ({"test_list": ["assert add(math.pi, 0) > 3"], "test_imports": ["import math"]}, {}),
            (["assert add(one, 2) == 3"], {"test_setup": "one = 1"}),
            ("from solution import add\n\ndef test_add():\n    assert add(1, 2) == 3\n", {}),
        ],
    )
    def test_every_format(self, critic: CodeCritic, tests: Any, columns: dict[str, Any]) -> None:
        assert said(critic, self.RIGHT, tests, **columns).score == 1.0
        assert said(critic, "def add(a, b):\n    return None\n", tests, **columns).score == 0.0

    @pytest.mark.parametrize("tests", [None, "", [], {}, 3, [1], {"test_list": []}, "assert add(", "x = 1"])
    def test_missing_or_unusable_tests_are_not_scored(self, critic: CodeCritic, tests: Any) -> None:
        assert said(critic, self.RIGHT, tests) is None

    def test_rows_keep_their_places(self, critic: CodeCritic) -> None:
        found = critic(["p"] * 3, [self.RIGHT, self.RIGHT, "x"], tests=[ADD, None, ADD])
        assert [critique and critique.score for critique in found] == [1.0, None, 0.0]

    def test_without_the_column_nothing_is_scored(self, critic: CodeCritic) -> None:
        assert critic(["p"], [self.RIGHT]) == [None]

    def test_tests_that_share_the_process_can_be_left_out(self, critic: CodeCritic) -> None:
        program = "class Box:\n    def one(self): return 1\n\ndef two(): return 2\n"
        strict = CodeCritic(CodeSettings(seconds=0.4, wall=4.0))
        live, plain = "assert Box().one() == 1", "assert two() == 3"
        assert said(critic, program, [live, plain]).score == 0.5
        assert said(strict, program, [live, plain]).score == 0.0
        answers = strict(["p"], [program], tests=[[live]])
        assert answers == [None]
        assert "needs live objects (it uses the class `Box`), and such tests count only with" in answers.reasons[0]

    @pytest.mark.parametrize("gives", ["object()", "lambda: 3", "(lambda v: [v := [v] for _ in range(400)][-1])(1)"])
    def test_leaving_them_out_is_no_way_out_of_a_test(self, critic: CodeCritic, gives: str) -> None:
        program = f"def one(): return 1\n\ndef give(): return {gives}\n\ndef take(x): return 3\n"
        critique = said(critic, program, ["assert one() == 1", "assert take(give()) == 4"])
        assert (critique.score, critique.verdict) == (0.5, "isolated")

    def test_a_broken_sandbox_is_no_score(self, monkeypatch: pytest.MonkeyPatch) -> None:
        critic = CodeCritic()
        monkeypatch.setattr(critic.sandbox._launcher, "_walls", ["/bin/false"])
        with pytest.raises(SandboxError):
            critic(["p"], [self.RIGHT], tests=[ADD])


def test_without_bubblewrap_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        CodeCritic()


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="seconds"):
        CodeSettings(seconds=0)


KINDS = ["mismatch", "assertion", "error", "test_error", "timeout", "died", "not_plain", "syntax", "load", "not_run"]
LINES = st.integers(-2, 12)
RESULTS = st.builds(
    lambda kind, lines, frames, name: TestResult(
        name, kind == "passed", kind, "isolated", "said", "1", "2", tuple(Frame(n, "f") for n in frames), lines
    ),
    st.sampled_from(["passed", *KINDS]),
    st.frozensets(LINES, max_size=8),
    st.lists(LINES, max_size=3),
    st.sampled_from(["assert a", "assert b", "assert c"]),
)
FRAGMENTS = [
    "def add(a, b):",
    "\n",
    "\r\n",
    "    ",
    "return a - b",
    "if a:",
    "x = 1; y = 2",
    "while 1:",
    "```python\n",
    "é🙂",
]
FRAGMENTS += [
    "# note",
    '"""',
    "(",
    ")",
    "\t",
    "\f",
    "match a:",
    "case 1:",
    "@d",
    "class C:",
    "try:",
    "finally:",
    "\\\n",
    "z",
]
COMPLETIONS = st.lists(st.sampled_from(FRAGMENTS), max_size=24).map("".join)


@pytest.mark.system("bwrap")
@given(st.sampled_from(["", "Write it.", "def add(a, b):\n"]), COMPLETIONS, st.lists(RESULTS, max_size=4))
def test_whatever_is_reported_the_quotes_are_exact(
    critic: CodeCritic, prompt: str, completion: str, results: list[TestResult]
) -> None:
    critique = critic.critique(find(prompt, completion), Report(tuple(results)))
    if not results:
        assert critique is None
        return
    assert critique is not None
    spans = align(completion, critique).spans
    assert {(span.start, span.slice(completion)) for span in spans} <= {(q.start, q.text) for q in critique.quotes}
    assert critique.score == sum(result.passed for result in results) / len(results)
    assert critique.score < 1.0 or not critique.quotes
    for quote in critique.quotes:
        assert quote.start is not None
        assert completion[quote.start : quote.start + len(quote.text)] == quote.text


@given(COMPLETIONS, COMPLETIONS)
def test_a_source_never_changes_the_text(prompt: str, completion: str) -> None:
    source = find(prompt, completion)
    inside = source.text[max(0, -source.offset) :]
    start = max(0, source.offset)
    assert completion[start : start + len(inside)] == inside


@pytest.mark.system("bwrap")
def test_published_solutions_pass(critic: CodeCritic) -> None:
    """Where MBPP's file is at hand: its own solutions pass its own tests."""
    folder = os.environ.get("TEXT2GRAD_DATA")
    path = Path(folder or "") / "code" / "mbpp.jsonl"
    if folder is None or not path.is_file():
        pytest.skip("needs mbpp.jsonl: set TEXT2GRAD_DATA")
    rows = [json.loads(line) for line in path.read_text().splitlines()[:40]]
    found = critic([row["text"] for row in rows], [row["code"] for row in rows], tests=rows)
    assert [critique and critique.score for critique in found] == [1.0] * len(rows)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"tests": ["assert f() == 1"], "test_setup": 5}, "test_setup"),
        ({"tests": ["assert f() == 1"], "test_setup": {"a": 1}}, "test_setup"),
        ({"tests": {"test_list": ["assert f() == 1"], "test_imports": 5}}, "test_imports"),
        ({"tests": {"test_list": ["assert f() == 1"], "test_imports": ["import os", 5]}}, "test_imports"),
        ({"tests": {"test_list": ["assert f() == 1"], "test_setup_code": 5}}, "test_setup_code"),
    ],
)
def test_a_setup_that_is_no_text_rejects_its_row(columns: dict[str, Any], named: str) -> None:
    job = _job(columns["tests"], None, columns.get("test_setup"))
    assert isinstance(job, str) and job.startswith(f"{named} should be a text or a list of texts, got ")
