"""The critic `code`: real programs in the real sandbox; its words quote the completion, its score counts tests."""

import asyncio
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import ConfigError, SandboxError
from text2grad.feedback.align import AlignSettings, align
from text2grad.feedback.annotation import annotate
from text2grad.feedback.critics import ask, ask_now
from text2grad.feedback.critics.code import CodeCritic, _job
from text2grad.feedback.critics.source import find
from text2grad.feedback.rows import Row
from text2grad.feedback.settings import CodeCriticSettings
from text2grad.sandbox import TestResult
from text2grad.types import Critique, Message

ADD = ["assert add(2, 3) == 5", "assert add(0, 0) == 0", "assert add(4, 1) == 5"]


@pytest.fixture(scope="session")
def critic() -> CodeCritic:
    return CodeCritic(CodeCriticSettings(seconds=0.4, wall=4.0, in_process=True, held_back=0, partial=1, trials=0))


@pytest.fixture(scope="session")
def trying() -> CodeCritic:
    return CodeCritic(CodeCriticSettings(seconds=0.4, wall=4.0, held_back=0, partial=1))


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
    assert (found.missed, found.omissions) == ((), critique.omissions)


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

    def test_of_a_tie_over_the_whole_function_the_likeliest_is_quoted_lightly(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    c = a\n    c -= b\n    return c\n", ["assert add(2, 3) == 5"])
        assert ([(quote.text, quote.severity) for quote in critique.quotes], critique.score) == ([("c -= b", 0.3)], 0.0)

    def test_a_change_that_makes_every_test_pass(self, trying: CodeCritic) -> None:
        program = "def add(a, b):\n    c = a\n    d = b\n    c -= d\n    return c\n"
        critique = said(trying, program)
        assert critique.feedback == (
            "2 of 3 tests fail. `c -= d` is wrong (expected 5, got -1): with `+` instead of `-` every test passes."
        )
        assert [(quote.text, quote.severity) for quote in critique.quotes] == [("c -= d", 1.0)]
        assert critique.score == pytest.approx(1 / 3)

    def test_a_change_that_is_no_more_than_a_part_of_the_cure_is_not_told(self, trying: CodeCritic) -> None:
        program = "def add(a, b):\n    c = a - b\n    if a > 5:\n        c = c - 1\n    return c\n"
        critique = said(trying, program, ["assert add(2, 3) == 5", "assert add(7, 1) == 8", "assert add(9, 9) == 18"])
        assert "every test passes" not in critique.feedback

    def test_trials_of_a_program_that_is_right_or_cannot_be_read_are_not_made(self, trying: CodeCritic) -> None:
        asked: list[Any] = []
        kept = trying.sandbox.try_variants
        trying.sandbox.try_variants = lambda *given: asked.append(given) or []  # type: ignore
        said(trying, "def add(a, b):\n    return a + b\n")
        said(trying, "def add(a, b:\n    return a + b\n")
        trying.sandbox.try_variants = kept  # type: ignore[method-assign]
        assert asked == []

    def test_a_syntax_error(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    return (a + b\n\ndef two():\n    return 2\n")
        assert quoted(critique) == ["return (a + b"] and critique.omissions == ()
        assert "cannot read the program at `return (a + b`: SyntaxError: '(' was never closed" in critique.feedback
        assert critique.score == 0.0

    @pytest.mark.parametrize(
        "completion",
        [
            "def add(a, b):\n    return (a +",
            "def add(a, b):\n    return a +",
            "def add(a, b):\n    return a if a el",
            "def add(a, b):\n    s = 'the sum of",
            "def add(a, b):\n",
            "Sure:\n```python\ndef add(a, b):\n    if a =",
        ],
    )
    def test_a_program_that_is_cut_off_lacks_its_end_and_blames_no_words(
        self, critic: CodeCritic, completion: str
    ) -> None:
        critique = said(critic, completion)
        assert (critique.quotes, critique.omissions, critique.score) == ((), ("the end of the program",), 0.0)
        assert "The program does not end: " in critique.feedback

    def test_cut_off_within_a_name_blames_no_words(self, critic: CodeCritic) -> None:
        critique = said(critic, "def add(a, b):\n    t = a + b\n    retur")
        assert quoted(critique) == []
        assert "The program is cut off: its last word is not a defined name." in critique.feedback

    @pytest.mark.parametrize("closed", ["```\n", "\n```"])
    def test_behind_a_closed_fence_nothing_was_cut_off(self, critic: CodeCritic, closed: str) -> None:
        critique = said(critic, f"```python\ndef add(a, b):\n    return (a +\n{closed.lstrip()}")
        assert quoted(critique) == ["return (a +"] and critique.omissions == ()

    def test_a_function_of_another_name(self, critic: CodeCritic) -> None:
        completion = "def one(x):\n    return x\n\ndef plus(a, b):\n    return one(a) + b\n"
        critique = said(critic, completion)
        assert (quoted(critique), critique.quotes[0].start) == (["plus"], completion.index("plus"))
        assert critique.feedback == (
            "All 3 tests fail. `plus` should be called `add`: 3 tests ended in NameError: name 'add' is not defined."
        )

    def test_a_function_of_another_name_that_calls_itself(self, critic: CodeCritic) -> None:
        completion = "def plus(a, b):\n    return plus(a - 1, b + 1) if a else b\n"
        assert quoted(said(critic, completion)) == ["plus"]

    @pytest.mark.parametrize(
        ("names", "meant"),
        [
            ("count_vowel, main > count_vowel", "count_vowel"),  # `main` is what nobody uses
            ("main > count_vowel, count_vowel", "count_vowel"),
            ("count_vowel, show > count_vowel", "count_vowel"),
            ("count_vowel, count_words", "count_vowel"),
            ("count_words, countVowels", "countVowels"),
            ("is_vowel, vowel_count > is_vowel, test_it > vowel_count", "vowel_count"),
            ("vowels_in, vowel_number > vowels_in", "vowel_number"),  # a helper has a part of the name
            ("solve, main > solve", "solve"),
            ("main", "main"),
            ("solve, run", None),
            ("count_vowel1, count_vowel2", None),
        ],
    )
    def test_the_function_that_was_meant(self, critic: CodeCritic, names: str, meant: str | None) -> None:
        """`a > b`: a uses b."""
        parts = [part.split(" > ") for part in names.split(", ")]
        completion = "\n".join(f"def {name}(s):\n    return {''.join(used) or 's'}\n" for name, *used in parts)
        (critique,) = critic([""], [f"{completion}\nprint({parts[0][0]})\n"], tests=[["assert count_vowels('a') == 1"]])
        assert critique is not None and quoted(critique) == ([meant] if meant else [])
        assert (f"`{meant}` should be called `count_vowels`" in critique.feedback) == bool(meant)

    def test_two_functions_of_other_names(self, critic: CodeCritic) -> None:
        completion = "def decod(s):\n    return s\n\ndef encod(s):\n    return s\n"
        (critique,) = critic([""], [completion], tests=[["assert encode('a') == 'a'", "assert decode('a') == 'a'"]])
        assert critique is not None and quoted(critique) == ["encod", "decod"]
        assert "`decod` should be called `decode`: 1 test ended" in critique.feedback

    def test_of_two_functions_of_another_name_none_is_blamed(self, critic: CodeCritic) -> None:
        critique = said(critic, "def plus(a, b):\n    return a + b\n\ndef minus(a, b):\n    return a - b\n")
        assert critique.quotes == () and "NameError: name 'add' is not defined" in critique.feedback

    @pytest.mark.parametrize(
        ("header", "parameters", "words"),
        [
            ("def add(a):", "(a)", "takes 1 positional argument but 2 were given"),
            ("def add():", "()", "takes 0 positional arguments but 2 were given"),
            ("def add(a, b, c=(1, 2), *, d):", "(a, b, c=(1, 2), *, d)", "missing 1 required keyword-only argument"),
            ("def add(\n    a,\n    b,\n    c,\n) -> int:", "(\n    a,\n    b,\n    c,\n)", "missing 1 required"),
        ],
    )
    def test_parameters_that_do_not_take_what_the_tests_give(
        self, critic: CodeCritic, header: str, parameters: str, words: str
    ) -> None:
        critique = said(critic, f"{header}\n    return 5\n")
        assert quoted(critique) == [parameters]
        assert f"does not take what 3 tests called `add` with: TypeError: add() {words}" in critique.feedback

    def test_a_wrong_call_within_the_program_is_the_calls_fault(self, critic: CodeCritic) -> None:
        critique = said(critic, "def one(x):\n    return x\n\ndef add(a, b):\n    return one(a, b)\n", ADD[:1])
        assert quoted(critique) == ["return one(a, b)"]

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
            ("# line 1 of add(2, 3) == 5\nimport os\nos._exit(0)\n", ADD),
            ("def add(a, b):\n    print('the assertion does not hold')\n    c = add\n    return c\n", ADD[:1]),
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

    def test_a_fence_in_a_docstring_ends_nothing(self, critic: CodeCritic) -> None:
        completion = 'Here:\n```python\ndef add(a, b):\n    """\n    ```\n    add(2, 3)\n    ```\n    """\n'
        assert said(critic, completion + "    return a + b\n```\nDone.").score == 1.0

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
        strict = CodeCritic(CodeCriticSettings(seconds=0.4, wall=4.0, held_back=0, partial=1))
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


SQUARES = [f"assert square({n}) == {n * n}" for n in (2, 3, 5, 7, 11, 13)]
TABLE = "def square(n):\n    if n == {}:\n        return {}\n    if n == {}:\n        return {}\n    return 0\n"


@pytest.mark.system("bwrap")
class TestHiddenTests:
    def score(self, program: str, tests: Any = SQUARES[:2], prompt: str = "Square it.", **settings: Any) -> Critique:
        hidden = settings.pop("hidden", None)
        found = CodeCritic(CodeCriticSettings(**settings))([prompt], [program], tests=[tests], hidden_tests=[hidden])
        assert found[0] is not None, found.reasons
        return found[0]

    def test_a_table_of_the_visible_tests_earns_nothing_and_is_told_no_value(self) -> None:
        critique = self.score(TABLE.format(2, 4, 3, 9), hidden=SQUARES[2:])
        assert critique.score == 0.0
        assert critique.feedback == (
            "What it can see, it passes (2 tests). All 4 hidden tests fail. `return 0` runs in all 4 failing tests and "
            "in no passing one: the assertion does not hold."
        )
        assert self.score("def square(n):\n    return n * n\n", hidden=SQUARES[2:]).score == 1.0

    def test_the_lesser_share_counts_to_the_third_power(self) -> None:
        odd = "def square(n):\n    return n * n if n % 2 else 0\n"  # visible 1 of 2, hidden 4 of 4
        assert self.score(odd, hidden=SQUARES[2:]).score == pytest.approx(1 / 8)
        low = "def square(n):\n    return n * n if n < 6 else 0\n"  # visible 2 of 2, hidden 1 of 4
        assert self.score(low, hidden=SQUARES[2:]).score == pytest.approx(1 / 64)
        assert self.score(low, hidden=SQUARES[2:], partial=1).score == pytest.approx(1 / 4)

    def test_a_constant_that_is_right_by_luck_earns_next_to_nothing(self) -> None:
        tests = [f"assert sign({n}) == {1 if n else 0}" for n in range(8)]
        assert self.score("def sign(n):\n    return 0\n", tests, held_back=0).score == pytest.approx(1 / 512)

    def test_without_the_column_a_third_is_held_back_the_same_for_every_program(self) -> None:
        tests = SQUARES[:3]
        said = [self.score(TABLE.format(*_pair(tests, test)), tests).score for test in tests]
        # The table of the visible ones fails the hidden one; the other two fail one of two visible ones.
        assert sorted(said, key=str) == [0.0, 0.125, 0.125]
        right = "def square(n):\n    return n * n\n"
        assert self.score(right, tests).score == 1.0
        wrong = [self.score(f"def square(n):\n    return n + {k}\n", tests) for k in (100, 200)]
        assert all("All 2 visible tests fail. The only hidden test fails." in critique.feedback for critique in wrong)
        hidden = [test for test in tests if _expected(test) not in "".join(critique.feedback for critique in wrong)]
        assert len(hidden) >= 1

    def test_what_the_prompt_shows_and_too_few_tests_stay_visible(self) -> None:
        table = TABLE.format(2, 4, 3, 9)
        assert self.score(table, SQUARES[:2]).feedback == "Correct in all 2 cases."
        shown = "Square it.\n" + "\n".join(SQUARES[:3]).replace(" ==", "  ==")
        three = table.replace("return 0", "return 25")
        assert self.score(three, SQUARES[:3]).score == 1.0
        assert "hidden" not in self.score(table, SQUARES[:3], prompt=shown).feedback
        assert self.score(table, SQUARES[:3], held_back=0).feedback.startswith("1 of 3 tests fails.")

    def test_a_message_about_a_hidden_test_names_no_value(self) -> None:
        program = "def square(n):\n    if n > 3:\n        raise ValueError(f'{n} is too much')\n    return n * n\n"
        critique = self.score(program, hidden=SQUARES[2:])
        assert "raises ValueError in 4 tests, first in `hidden test 1`." in critique.feedback
        assert not any(number in critique.feedback for number in ("5", "25", "49", "121"))

    @pytest.mark.parametrize("error", ["NameError(f'given {n}')", "TypeError(f'square() takes {n}')"])
    def test_a_program_does_not_say_what_a_hidden_test_gives_it(self, error: str) -> None:
        program = f"def square(n):\n    if n > 3:\n        raise {error}\n    return n * n\n"
        critique = self.score(program, hidden=SQUARES[2:])
        assert f"raises {error.partition('(')[0]} in 4 tests, first in `hidden test 1`." in critique.feedback

    @pytest.mark.parametrize(
        "error", ["type(f'E{n}', (Exception,), {})()", "NameError(f\"name 'v{n}' is not defined\")"]
    )
    def test_nor_in_the_name_of_an_exception_or_of_a_name(self, error: str) -> None:
        program = f"def square(n):\n    if n > 3:\n        raise {error}\n    return n * n\n"
        critique = self.score(program, hidden=["assert square(7777) == 60481729"])
        assert "first in `hidden test 1`" in critique.feedback and "7777" not in critique.feedback

    def test_where_no_visible_test_counts_hidden_ones_stay_unsaid(self) -> None:
        needs_objects = ["assert square(print) is square"]
        critique = self.score("def square(n):\n    return n * n - 1\n", needs_objects, hidden=SQUARES[2:])
        assert critique.feedback.startswith("All 4 hidden tests fail. ") and critique.score == 0.0
        assert not any(word in critique.feedback for word in ("25", "24", "instead of"))

    def test_a_hidden_test_that_begins_as_a_visible_one_stays_unsaid(self) -> None:
        many = list(range(120))
        tests, hidden = (
            [f"assert square({many}, 0) == 0"],
            [f"assert square({many}, 7) == 777", "assert square(5) == 0"],
        )
        critique = self.score("def square(n, k=0):\n    return 0\n", tests, hidden=hidden)
        assert critique.feedback.startswith("What it can see, it passes (1 test). 1 of 2 hidden tests fails.")
        assert "777" not in critique.feedback and critique.score == 0.125

    def test_a_number_that_sets_hidden_tests_right_is_not_said(self) -> None:
        program = "def square(n):\n    if n == 5:\n        return 24\n    return n * n\n"
        critique = self.score(program, hidden=SQUARES[2:])
        assert "`return 24` is wrong (the assertion does not hold): with one small change of it every test passes." in (
            critique.feedback
        )
        assert "25" not in critique.feedback

    def test_hidden_tests_that_cannot_be_used_are_no_score(self) -> None:
        found = CodeCritic()(["p"] * 2, ["x = 1"] * 2, tests=[SQUARES] * 2, hidden_tests=["assert (", 5])
        assert found == [None, None]
        assert all(found.reasons[row].startswith("hidden_tests: ") for row in range(2))


def _pair(tests: list[str], left_out: str) -> list[str]:
    """n, n², m, m² of the tests that are not left out."""
    numbers = [test.split("(")[1].split(")")[0] for test in tests if test != left_out]
    return [part for number in numbers for part in (number, str(int(number) ** 2))]


def _expected(test: str) -> str:
    return f"expected {test.rsplit(' ', 1)[1]},"


def test_without_bubblewrap_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        CodeCritic()


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="seconds"):
        CodeCriticSettings(seconds=0)


KINDS = ["mismatch", "assertion", "error", "test_error", "timeout", "died", "not_plain", "syntax", "load", "not_run"]
LINES = st.integers(-2, 12)
RESULTS = st.builds(
    lambda kind, lines, frames, name: TestResult(
        name,
        kind == "passed",
        kind,
        "isolated",
        "said: WANTED",
        "WANTED",
        "2",
        tuple(frames),
        lines,
    ),
    st.sampled_from(["passed", *KINDS]),
    st.frozensets(LINES, max_size=8),
    st.lists(LINES, max_size=3),
    st.sampled_from(["assert a", "assert b", "assert c"]),
)
SOME = st.lists(RESULTS, min_size=1, max_size=4)
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
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_hidden_test_expects_stays_unsaid(critic: CodeCritic, kind: Any) -> None:
    seen = TestResult("assert a", True, "passed", "isolated", "", None, None, (), frozenset())
    hidden = replace(seen, passed=False, kind=kind, message="said: WANTED", expected="WANTED", got="2")
    for completion in ("", "def add(a, b):\n    return a - b\n"):
        critique = critic.critique(find("", completion), [seen], [hidden], ["add"])
        assert "WANTED" not in critique.feedback and critique.score == 0


@pytest.mark.system("bwrap")
@given(st.sampled_from(["", "Write it.", "def add(a, b):\n"]), COMPLETIONS, SOME, st.just([]) | SOME)
def test_whatever_is_reported_the_quotes_are_exact(
    critic: CodeCritic, prompt: str, completion: str, results: list[TestResult], hidden: list[TestResult]
) -> None:
    critique = critic.critique(find(prompt, completion), results, hidden, ["add"])
    spans = align(completion, critique).spans
    assert {(span.start, span.slice(completion)) for span in spans} <= {(q.start, q.text) for q in critique.quotes}
    assert critique.score == min(
        sum(result.passed for result in part) / len(part) for part in (results, hidden) if part
    )
    if all(result.passed for result in results):  # then nothing but hidden tests could say what was expected
        assert "WANTED" not in critique.feedback
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
    job = _job(columns["tests"], columns)
    assert isinstance(job, str) and job.startswith(f"{named} should be a text or a list of texts, got ")


def test_without_a_column_of_tests_the_columns_are_named(critic: CodeCritic) -> None:
    found = critic(["Write f."], ["def f(): ..."], test_list=[["assert f() is None"]])
    assert found.reasons == {0: "it has no tests; the columns are test_list; try columns.tests=test_list"}
    assert critic(["Write f."], ["def f(): ..."], tests=[None], test_list=[[]]).reasons == {0: "it has no tests"}


@pytest.mark.system("bwrap")
class TestInTheBackground:
    ROWS: ClassVar = [
        ("def add(a, b):\n    return a + b\n", ADD),
        ("def add(a, b):\n    return a - b\n", ADD),
        ("def add(a, b):\n    return a + b\n", ADD),
        ("def add(a, b):\n    return a\n", None),
    ]

    def test_what_was_begun_is_what_a_call_says(self) -> None:
        texts, tests = [text for text, _ in self.ROWS], [tests for _, tests in self.ROWS]
        critic = CodeCritic()
        wanted = critic(["p"] * 4, texts, tests=tests)
        for place in (0, 2, 3):
            critic.begin("p", texts[place], tests=tests[place], other=1)
        asked: list[int] = []
        inner = critic._judge
        critic._judge = lambda *given: asked.append(1) or inner(*given)  # type: ignore
        found = critic(["p"] * 4, texts, tests=tests, other=[1] * 4)
        assert (list(found), found.reasons) == (list(wanted), wanted.reasons)
        assert asked == [1], "one was left to judge"
        assert critic._begun == {}

    def test_what_nobody_asks_about_is_forgotten(self) -> None:
        critic = CodeCritic()
        critic.begin("p", self.ROWS[0][0], tests=ADD)
        assert critic(["p"], ["x"], tests=[ADD])[0] is not None
        assert critic._begun == {}


@pytest.mark.system("bwrap")
def test_ctrl_c_is_heard_while_programs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred programs in one call; those that have not begun never do."""
    begun: list[str] = []

    def slow(_self: CodeCritic, _prompt: Any, completion: str, _row: Any) -> tuple[None, str]:
        begun.append(completion)
        if len(begun) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        return None, ""

    monkeypatch.setattr(CodeCritic, "_judge", slow)
    programs = [f"def f(): return {k}" for k in range(100)]
    # A shell that starts the tests in the background makes them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(
                ask(CodeCritic(CodeCriticSettings(workers=2)), [""] * 100, programs, {"tests": [["assert f()"]] * 100})
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert 3 <= len(begun) < 20
