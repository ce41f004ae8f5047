"""The same prompts before and after training: which are picked, what the cells hold, and when there is no table."""

import io
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from tests.report.made_runs import SCRIPT, rewarded, row, write_rows, write_run
from text2grad.report.before_after import LONGEST, BeforeAfter, Piece, show_change
from text2grad.report.folders import read_runs
from text2grad.report.page import Page, build
from text2grad.types import Alignment, Critique, Example, Span

Scores = tuple[float | None, ...]


def run_of(folder: Path, arm: str, scores: Mapping[str, Scores], start: str = "") -> Path:
    """A run with held-out rows at the updates 0, 4, 8, …: “ID wrote UPDATE.”, where the first word is good and the
    last poor. A score of None: not logged."""
    write_run(folder, arm, updates=4, held_out=0)
    rows = []
    for name, values in scores.items():
        for number, score in enumerate(values):
            if score is not None:
                text = f"{name} wrote {number or start or 'nothing'}."
                rows.append(held_out(name, text, 4 * number, score, arm if number else ""))
    write_rows(folder / "rollouts.jsonl", rows)
    return folder


def held_out(name: str, text: str, update: int, score: float, more: str = "") -> dict[str, object]:
    text = f"{text} {more}".strip()
    last = text.rindex(" ") + 1
    spans = (Span(0, len(name), "good", comment="right"), Span(last, len(text), "poor", comment="“wrong”"))
    critique = Critique("x", omissions=("the cause",), score=score)
    alignment = Alignment(spans, omissions=("the cause",))
    made = rewarded(Example(name, f"Tell of {name}.\n"), text, critique, alignment, random.Random(1), held_out=True)
    return {**made.to_json(), "update": update, "held_out": True}


def page_of(*folders: Path) -> Page:
    return build(read_runs(folders))


def table_of(*folders: Path) -> BeforeAfter:
    table = page_of(*folders).before_after
    assert table is not None
    return table


def names_of(table: BeforeAfter) -> list[str]:
    return [prompt.removeprefix("Tell of ").removesuffix(".") for prompt, _ in table.examples]


def test_the_best_changes_are_shown_and_the_worst(tmp_path: Path) -> None:
    a = {"p": (0.0, 0.1), "q": (0.0, 0.4), "r": (0.5, 0.5), "s": (0.5, 0.3), "t": (0.0, 0.2), "u": (0.0, 0.3)}
    b = {"p": (0.0, 0.9), "q": (0.0, 0.4), "r": (0.5, 0.4), "s": (0.5, 0.5), "t": (0.0, 0.0), "u": (0.0, 0.3)}
    table = table_of(run_of(tmp_path / "a", "span", a), run_of(tmp_path / "b", "scalar", b))
    # Mean changes: p 0.5, q 0.4, u 0.3, t 0.1, r −0.05, s −0.1.
    assert names_of(table) == ["p", "q", "u", "s"] and table.total == 6
    assert table.columns == ["Before training", "a after 4 updates", "b after 4 updates"]
    assert [cell.score for cell in table.examples[3][1]] == ["0.500", "0.300", "0.500"]
    # Before: 1.0 / 6. a: 1.8 / 6; p, q, t and u rose, s fell. b: 2.5 / 6; p, q and u rose, r fell.
    assert table.means == ["0.167", "0.300 (4 better, 1 worse)", "0.417 (3 better, 1 worse)"]
    assert "4 of the 6 held-out prompts" in table.picked and "the 3 with the best change" in table.picked


def test_few_examples_are_all_shown(tmp_path: Path) -> None:
    table = table_of(run_of(tmp_path / "a", "span", {"p": (0.4, 0.1), "q": (0.0, 0.0)}))
    assert names_of(table) == ["q", "p"] and table.columns == ["Before training", "a after 4 updates"]
    assert table.picked.startswith("All 2 held-out prompts") and table.means[1] == "0.050 (0 better, 1 worse)"


def test_cells_mark_what_the_critique_is_about(tmp_path: Path) -> None:
    (_, (before, after)), *_ = table_of(run_of(tmp_path / "a", "span", {"p": (0.4, 0.1)})).examples
    assert before.pieces == [
        *(Piece("p", "good", "right"), Piece(" wrote"), Piece(" ")),
        Piece("nothing.", "poor", "“wrong”"),
    ]
    assert "".join(piece.text for piece in after.pieces) == "p wrote 1. span" and after.omissions == ["the cause"]


def test_only_the_first_and_the_last_evaluation_count(tmp_path: Path) -> None:
    scores = {"p": (0.1, 0.9, 0.2), "q": (None, 0.0, 0.9), "r": (0.0, 0.8, None), "s": (0.3, None, None)}
    table = table_of(run_of(tmp_path / "a", "span", scores))
    assert names_of(table) == ["p"] and table.means == ["0.100", "0.200 (1 better, 0 worse)"]


def test_arms_that_begin_apart_have_a_column_each(tmp_path: Path) -> None:
    folders = [
        run_of(tmp_path / "a", "span", {"p": (0.0, 0.1)}),
        run_of(tmp_path / "b", "scalar", {"p": (0.0, 0.2)}, "x"),
    ]
    expected = ["a before training", "a after 4 updates", "b before training", "b after 4 updates"]
    assert table_of(*folders).columns == expected


def test_an_arm_with_other_prompts_is_left_out_and_seeds_give_one_column(tmp_path: Path) -> None:
    folders = [run_of(tmp_path / "a", "span", {"p": (0.0, 0.1)}), run_of(tmp_path / "b", "scalar", {"q": (0.0, 0.2)})]
    assert table_of(*folders).columns == ["Before training", "a after 4 updates"]
    seeds = [write_run(tmp_path / f"span-seed-{seed}", "span", seed, updates=8) for seed in (1, 2)]
    assert table_of(*seeds).columns == ["Before training", "span-seed-1 after 8 updates"]


@pytest.mark.parametrize("scores", [{}, {"p": (0.5,)}, {"p": (None, 0.5)}])
def test_without_two_evaluations_there_is_no_table(tmp_path: Path, scores: dict[str, Scores]) -> None:
    page = page_of(run_of(tmp_path / "a", "span", scores))
    assert page.before_after is None and b"before-after" not in page.html.split(b"</style>")[1]


def test_unscored_rows_and_missing_files_make_no_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=4)
    chance = random.Random(1)
    rows = [row(update, chance, 0.5, held_out=True, unscored=True) for update in (0, 4)]
    for made in rows:
        made["example"] = rows[0]["example"]
    write_rows(folder / "rollouts.jsonl", rows)
    assert page_of(folder).before_after is None
    (folder / "rollouts.jsonl").unlink()
    assert page_of(folder).before_after is None


def test_the_page_escapes_what_it_shows(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "a", "span", {})
    rows = [held_out("<b>p</b>", f"<b>p</b> \u202e{SCRIPT}", update, 0.1) for update in (0, 4)]
    rows[0]["alignment"]["spans"][0]["comment"] = '"><i>x</i>'  # type: ignore[index]
    write_rows(folder / "rollouts.jsonl", rows)
    html = page_of(folder).html.decode()
    section = html.split('<section id="before-after">')[1].split("</section>")[0]
    assert not re.findall(r"<(?:b|i|script|img)\b", section) and "\u202e" not in section
    assert "&lt;b&gt;p&lt;/b&gt;</mark>" in section and "&lt;script&gt;window.hacked" in section
    assert 'title="&#34;&gt;&lt;i&gt;x&lt;/i&gt;"' in section and html.count("<script") == 2


def test_long_texts_are_cut_and_empty_ones_said(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "a", "span", {})
    words = "word " * 400  # 2,000 characters; then "p." and a space before it
    nothing = rewarded(Example("p", "Tell of p.\n"), "", Critique("x"), Alignment(), random.Random(1), held_out=True)
    rows = [{**nothing.to_json(), "update": 0, "held_out": True}, held_out("p", f"p {words}p.", 4, 0.0)]
    write_rows(folder / "rollouts.jsonl", rows)
    page = page_of(folder)
    assert page.before_after is not None and b"(nothing)" in page.html
    ((_, (before, after)),) = page.before_after.examples
    assert before.pieces == [] and LONGEST == 1500
    assert "".join(piece.text for piece in after.pieces) == f"p {words}"[:1500] + " […504 more characters]"


def said(table: BeforeAfter, *, colour: bool = False) -> str:
    stream = io.StringIO()
    system = "truecolor" if colour else None
    console = Console(file=stream, width=80, force_terminal=colour, color_system=system, markup=False)  # type: ignore[arg-type]
    show_change(console, table, "report")
    return stream.getvalue()


def test_the_terminal_shows_the_best_and_the_worst_of_the_first_arm(tmp_path: Path) -> None:
    scores = {"p": (0.4, 0.1), "q": (0.0, 0.9), "[red]": (0.2, 0.3)}
    table = table_of(run_of(tmp_path / "a", "span", scores), run_of(tmp_path / "b", "scalar", scores))
    lines = [line.rstrip() for line in said(table).splitlines()]
    assert lines[0] == "a after 4 updates: best and worst change of score of 3 held-out reports"
    assert lines[1] == "(⟦+good⟧, ⟦−poor⟧)"
    assert lines[2:] == [
        *(
            "report  Tell of q.",
            "before  ⟦+q⟧ wrote ⟦−nothing.⟧  score 0",
            "after   ⟦+q⟧ wrote 1. ⟦−span⟧  score 0.900",
        ),
        *("report  Tell of p.", "before  ⟦+p⟧ wrote ⟦−nothing.⟧  score 0.400"),
        "after   ⟦+p⟧ wrote 1. ⟦−span⟧  score 0.100",
    ]
    coloured = said(table, colour=True)
    assert "\x1b[1;38;2;240;160;48mspan\x1b[0m" in coloured and "⟦" not in coloured


def test_one_example_is_shown_once_and_markup_is_not_obeyed(tmp_path: Path) -> None:
    text = said(table_of(run_of(tmp_path / "a", "span", {"[red]x": (0.4, 0.1)})))
    assert text.count("Tell of [red]x.") == 1 and "change of score of 1 held-out report (" in text
