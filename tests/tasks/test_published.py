"""Files in the shapes that data sets are published in: each is imported, and what comes out fits the commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from text2grad.cli import main
from text2grad.errors import InvalidData
from text2grad.evaluation.named import references_of
from text2grad.feedback.critics.code import CodeCritic
from text2grad.runs import read_jsonl
from text2grad.tasks.annotated import load_annotated
from text2grad.tasks.examples import load_examples
from text2grad.tasks.task import open_task

MBPP: dict[str, Any] = {
    "text": "Write a function that doubles a number.",
    "code": "def double(x): return 2 * x",
    "task_id": 601,
    "test_setup_code": "",
    "test_list": ["assert double(1) == 2", "assert double(3) == 6", "assert double(0) == 0"],
    "challenge_test_list": [],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\n",
}
KODCODE: dict[str, Any] = {
    "question_id": "K_1",
    "style": "instruct",
    "question": "Write a function that doubles a number.",
    "solution": "def double(x):\n    return 2 * x",
    "test": "from solution import double\n\ndef test_one():\n    assert double(1) == 2\n",
    "test_info": [{"function_name": "double", "function_declaration": "def double(x):"}],
    "gpt_difficulty": "easy",
}
SLF5K = {
    "id": "t3_1",
    "subreddit": "boats",
    "title": "Ships",
    "post": "Nine ships left the harbour at noon.",
    "tldr_human_reference_summary": "Nine ships left.",
    "generated_summary_for_feedback": "Seven ships left at noon.",
    "feedback": '"Seven" is wrong: it was nine.',
    "ideal_human_summary": "Nine ships left at noon.",
}
PAIRS = {
    "prompt": "How many?",
    "prompt_id": "p1",
    "chosen": [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Nine."}],
    "rejected": [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Seven."}],
    "score_chosen": 8.0,
    "score_rejected": 3.0,
}
CRITIQUES: dict[str, Any] = {
    "instruction": "How many?",
    "completions": [
        {"model": "a", "response": "Seven ships.", "critique": '"Seven" is wrong.', "overall_score": 3.0},
        {"model": "b", "response": "Nine ships.", "critique": "Right and brief.", "overall_score": "8"},
    ],
}


def imported(tmp_path: Path, name: str, rows: Any, status: int = 0, kind: str = "jsonl") -> list[dict[str, Any]]:
    source, target = tmp_path / f"in.{kind}", tmp_path / f"{name}.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)) if kind == "jsonl" else json.dumps(rows))
    assert main(["import", name, str(source), str(target)]) == status
    return list(read_jsonl(target)) if target.exists() else []


@pytest.mark.parametrize(("name", "row"), [("mbpp", MBPP), ("humaneval", HUMANEVAL), ("kodcode", KODCODE)])
def test_the_published_solution_passes_the_imported_tests(tmp_path: Path, name: str, row: dict[str, Any]) -> None:
    imported(tmp_path, name, [row])
    (example,) = load_examples(tmp_path / f"{name}.jsonl")
    assert example.reference is not None
    columns = {key: [value] for key, value in example.columns.items()}
    wrong = example.reference.replace("2 * x", "3 * x")
    for program, score in ((example.reference, 1.0), (wrong, 0.0)):
        (critique,) = CodeCritic()([example.prompt], [program], **columns)
        assert critique is not None and critique.score == score
    assert open_task(name, data=str(tmp_path / "in.jsonl")).critic == "code"


def test_the_prompt_of_mbpp_shows_one_test_and_the_file_holds_its_splits(tmp_path: Path) -> None:
    rows = [MBPP, MBPP | {"task_id": 511}, MBPP | {"task_id": 3}]
    first, second, third = imported(tmp_path, "mbpp", rows)
    assert [row["split"] for row in (first, second, third)] == ["train", "validation", "prompt"]
    assert MBPP["test_list"][0] in first["prompt"] and MBPP["test_list"][1] not in first["prompt"]
    task = open_task("mbpp", data=str(tmp_path / "in.jsonl"))
    assert [example.id for example in task.examples("train")] == ["mbpp-601"]
    assert [example.id for example in task.held_out()] == ["mbpp-511"]


def test_of_mbpp_the_first_assert_is_shown_and_the_others_score(tmp_path: Path) -> None:
    (row,) = imported(tmp_path, "mbpp", [MBPP | {"challenge_test_list": ["assert double(5) == 10"]}])
    assert row["prompt"].splitlines()[-2:] == [
        MBPP["test_list"][0],
        "Answer with the program alone, without explanation.",
    ]
    assert row["tests"] == MBPP["test_list"][:1]
    assert row["hidden_tests"] == [*MBPP["test_list"][1:], "assert double(5) == 10"]


@pytest.mark.parametrize(
    "change",
    [{"test_list": [5, 6]}, {"test_list": ["assert double(1) == 2", " "]}, {"challenge_test_list": "assert double(1)"}],
)
def test_tests_of_mbpp_that_are_no_texts_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(MBPP | change))
    with pytest.raises(InvalidData, match=f"line 1: {next(iter(change))} should be a list of texts"):
        open_task("mbpp", data=str(tmp_path / "in.jsonl"))


@pytest.mark.system("bwrap")
def test_a_program_that_tables_the_shown_assert_earns_nothing(tmp_path: Path) -> None:
    imported(tmp_path, "mbpp", [MBPP])
    (example,) = load_examples(tmp_path / "mbpp.jsonl")
    columns = {key: [value] for key, value in example.columns.items()}
    table = "def double(x):\n    if x == 1:\n        return 2\n    return None\n"
    (critique,) = CodeCritic()([example.prompt], [table], **columns)
    assert critique is not None and critique.score == 0.0
    assert "What it can see, it passes (1 test). All 2 hidden tests fail." in critique.feedback


def test_mbpp_is_evaluated_on_another_split_and_on_humaneval_when_asked(tmp_path: Path) -> None:
    source, other = tmp_path / "mbpp.jsonl", tmp_path / "humaneval.jsonl"
    source.write_text("\n".join(json.dumps(MBPP | {"task_id": number}) for number in (11, 510, 511, 600, 601, 974)))
    other.write_text(json.dumps(HUMANEVAL))
    held = {
        split: [example.id for example in open_task("mbpp", data=str(source), options=options).held_out()]
        for split, options in (("validation", {}), ("test", {"held_out_split": "test"}))
    }
    assert held == {"validation": ["mbpp-511", "mbpp-600"], "test": ["mbpp-11", "mbpp-510"]}
    task = open_task("mbpp", data=str(source), options={"held_out_split": "test", "humaneval": str(other)})
    suites = [(example.id, example.columns.get("suite")) for example in task.held_out()]
    assert suites == [("mbpp-11", None), ("mbpp-510", None), ("HumanEval/0", "humaneval")]
    assert [example.id for example in task.examples("train")] == ["mbpp-601", "mbpp-974"]
    with pytest.raises(InvalidData, match="held_out_split should be one of train, validation, test, got 'tset'"):
        open_task("mbpp", data=str(source), options={"held_out_split": "tset"})


@pytest.mark.parametrize(
    ("change", "prompt"),
    [
        ({"test_info": None}, "Write a function that doubles a number.\n\nDefine:\n`double`"),
        ({"test_info": "not JSON"}, "Define:\n`double`"),
        ({"test_info": [None, 5, {"function_declaration": 7}]}, "Define:\n`double`"),
        ({"test_info": {"function_declaration": "def double(x):"}}, "def double(x):"),
        ({"test_info": '[{"function_declaration": "def double(x):"}]'}, "def double(x):"),
        (
            {"test_info": None, "test": "import solution\ndef test_a():\n    assert solution.twice(1) == 2\n"},
            "Define:\n`twice`",
        ),
        ({"question": [{"role": "user", "content": "Double it."}], "test_info": []}, "Double it.\n\nDefine:\n`double`"),
        ({"question_id": None, "solution": None, "style": None}, "def double(x):"),
    ],
)
def test_rows_of_kodcode_come_in_odd_shapes(tmp_path: Path, change: dict[str, Any], prompt: str) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(KODCODE | change))
    (example,) = open_task("kodcode", data=str(tmp_path / "in.jsonl")).examples("train")
    assert str(example.prompt).endswith(prompt)


def test_what_is_left_out_of_kodcode_is_named_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    objects = "from solution import Stack\ndef test_a():\n    s = Stack()\n    assert s.pop() == 1\n"
    rows: list[dict[str, Any]]
    rows = [{"test": None}, {}, {"test": "def test_one(:"}, {"test": "x = 1"}, {"test": objects}, {"test": None}]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps(KODCODE | row) for row in rows))
    (example,) = open_task("kodcode", data=str(tmp_path / "in.jsonl")).examples("train")
    assert example.id == "K_1"
    (told,) = caplog.messages
    assert "5 of 6 rows are left out: 2 × test should be str, got None (line 1, …)" in told
    assert "1 × its tests need live objects: it uses the class `Stack` (line 5)" in told
    assert "its tests cannot be used: the tests assert nothing" in told


def test_an_object_of_objects_is_a_file_of_questions(tmp_path: Path) -> None:
    row = {
        "QUESTION": "Do ships float?",
        "CONTEXTS": ["Ships float."],
        "LONG_ANSWER": "They do.",
        "final_decision": "yes",
    }
    (found,) = imported(tmp_path, "pubmedqa", {"21645374": row}, kind="json")
    assert (found["id"], found["reference"], found["decision"]) == ("21645374", "They do.", "yes")
    hub = {
        "pubid": 7,
        "question": "Do ships float?",
        "context": {"contexts": ["Ships float."]},
        "long_answer": "They do.",
    }
    (tmp_path / "pubmedqa.jsonl").unlink()
    (other,) = imported(tmp_path, "pubmedqa", [hub])
    assert (other["id"], other["prompt"]) == ("7", found["prompt"])


def test_feedback_of_people_is_located(tmp_path: Path) -> None:
    (row,) = imported(tmp_path, "slf5k", [SLF5K])
    assert [row["completion"][span["start"] : span["end"]] for span in row["spans"]] == ["Seven"]
    assert row["reference"] == row["critique"]["revision"] == "Nine ships left at noon."
    (annotated,) = load_annotated(tmp_path / "slf5k.jsonl")
    assert annotated.id == "t3_1"


def test_both_kinds_of_ultrafeedback(tmp_path: Path) -> None:
    (pair,) = imported(tmp_path, "ultrafeedback", [PAIRS])
    assert (pair["id"], pair["chosen"], pair["rejected"]) == ("p1", "Nine.", "Seven.")
    assert pair["prompt"] == "How many?"  # a conversation only where there are several turns
    (tmp_path / "ultrafeedback.jsonl").unlink()
    first, second = imported(tmp_path, "ultrafeedback", [CRITIQUES])
    assert (first["id"], first["critique"]["score"], second["critique"]["score"]) == ("1.0", 3.0, 8.0)
    assert first["completion"][first["spans"][0]["start"] : first["spans"][0]["end"]] == "Seven"
    task = open_task("ultrafeedback", data=str(tmp_path / "in.jsonl"))
    assert len(task.examples("train")) == 1  # a prompt once, however many completions it has


def test_another_data_set_is_refused_with_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, "mbpp", [HUMANEVAL], status=2)
    told = capsys.readouterr().err
    assert "should hold rows of mbpp, got none; line 1: should have test_list" in told
    assert "the columns are task_id, prompt" in told and "try columns" not in told  # import maps no columns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]
    (tmp_path / "in.jsonl").write_text(json.dumps(MBPP | {"task_id": "x"}))
    with pytest.raises(InvalidData, match="task_id should be int, got 'x'"):
        open_task("mbpp", data=str(tmp_path / "in.jsonl"))


DEFACTO = {
    "article": "Nine ships left.",
    "abstract": "Nine left.",
    "candidate": "Seven ships left.",
    "doc_id": 1,
    "has_error": True,
    "feedback": {"explanation": "Nine.", "summary": "Nine ships left."},
}
QA = {
    "question": "How many?",
    "passages": [["Ships", "Nine left."]],
    "prediction 1": "Seven left.",
    "gold": "Nine.",
    "feedback": {"errors": [], "missing-info": []},
}


@pytest.mark.parametrize(
    ("name", "good", "bad", "reason"),
    [
        ("slf5k", SLF5K, SLF5K | {"id": "t3_2", "feedback": None}, "feedback should be str, got None"),
        ("kodcode", KODCODE, KODCODE | {"test": None}, "test should be str, got None"),
        ("ultrafeedback", CRITIQUES, CRITIQUES | {"completions": []}, "completions should not be empty"),
        ("mbpp", MBPP, MBPP | {"task_id": "x"}, "task_id should be int, got 'x'"),
        ("humaneval", HUMANEVAL, HUMANEVAL | {"prompt": ""}, "prompt"),
        (
            "defacto",
            DEFACTO,
            {"text" if k == "article" else k: v for k, v in DEFACTO.items()},
            "article should be there",
        ),
        ("qa_feedback", QA, QA | {"feedback": {"errors": [{}], "missing-info": []}}, "KeyError"),
    ],
)
def test_one_bad_row_is_rejected_and_the_others_are_written(
    tmp_path: Path, name: str, good: dict[str, Any], bad: dict[str, Any], reason: str
) -> None:
    kind = "json" if name == "qa_feedback" else "jsonl"
    assert imported(tmp_path, name, [good, bad], status=1, kind=kind) == imported_alone(tmp_path, name, good, kind)
    (rejected,) = read_jsonl(tmp_path / f"{name}.rejected.jsonl")
    assert rejected["line"] == 2 and reason in rejected["reason"] and "is not a row" not in rejected["reason"]


def imported_alone(tmp_path: Path, name: str, row: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    (folder := tmp_path / "alone").mkdir()
    return imported(folder, name, [row], kind=kind)


def test_a_cut_off_line_is_one_rejected_row(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MBPP) + "\n{broken\n" + json.dumps(MBPP | {"task_id": 511}) + "\n")
    assert main(["import", "mbpp", str(source), str(target)]) == 1
    assert [row["id"] for row in read_jsonl(target)] == ["mbpp-601", "mbpp-511"]
    (rejected,) = read_jsonl(tmp_path / "out.rejected.jsonl")
    assert rejected["line"] == 2


def test_of_ultrafeedback_only_the_bad_completion_is_lost(tmp_path: Path) -> None:
    first, second = CRITIQUES["completions"]
    (row,) = imported(tmp_path, "ultrafeedback", [CRITIQUES | {"completions": [first | {"critique": None}, second]}], 1)
    assert (row["id"], row["completion"]) == ("1.1", "Nine ships.")
    (rejected,) = read_jsonl(tmp_path / "ultrafeedback.rejected.jsonl")
    assert rejected == {"line": 1, "id": "1.0", "reason": "critique should be str, got None"}


def test_training_still_refuses_a_file_with_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, [MBPP, MBPP | {"test_list": None}])))
    with pytest.raises(InvalidData, match=r"in\.jsonl, line 2: test_list should be list"):
        open_task("mbpp", data=str(tmp_path / "in.jsonl")).examples("train")


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, "slf5k", [SLF5K])
    imported(tmp_path, "slf5k", [SLF5K], status=2)
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "row", "ids"),
    [
        ("slf5k", SLF5K, ["t3_1", "t3_1-2", "t3_1-3"]),
        ("mbpp", MBPP, ["mbpp-601", "mbpp-601-2", "mbpp-601-3"]),
        ("defacto", DEFACTO, ["defacto-1", "defacto-1-2", "defacto-1-3"]),
    ],
)
def test_an_id_that_comes_again_is_numbered(tmp_path: Path, name: str, row: dict[str, Any], ids: list[str]) -> None:
    found = imported(tmp_path, name, [row] * 3)
    assert [each["id"] for each in found] == ids
    assert len({each.get("reference") for each in found}) == 1
    load_examples(tmp_path / f"{name}.jsonl")  # which refuses an id that comes twice


@pytest.mark.parametrize(
    ("name", "row", "prompt", "references"),
    [
        (
            "scitldr",
            {"id": "p", "source": ["We weigh cranes.", "They are heavy."], "targets": ["Cranes weigh much.", "Heavy."]},
            "Say in one sentence what the paper is about.\n\nAbstract:\nWe weigh cranes. They are heavy.",
            ["Cranes weigh much.", "Heavy."],
        ),
        (
            "tldr",
            {"prompt": "SUBREDDIT: r/cranes\n\nPOST: It fell.\n\nTL;DR:", "completion": " a crane fell"},
            "Summarise the post in a few sentences.\n\nPost:\nSUBREDDIT: r/cranes\n\nPOST: It fell.",
            ["a crane fell"],
        ),
        (
            "xsum",
            {"document": "A crane fell.", "summary": "It fell.", "id": "7"},
            "Summarise the article in one sentence.\n\nArticle:\nA crane fell.",
            ["It fell."],
        ),
    ],
)
def test_summaries(
    name: str,
    row: dict[str, Any],
    prompt: str,
    references: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bad row is counted and named, and the good ones come through."""
    (tmp_path / "data.jsonl").write_text(json.dumps(row) + "\n")
    (example,) = open_task(name, data=str(tmp_path / "data.jsonl")).examples()
    assert (example.prompt, example.reference) == (prompt, references[0])
    assert references_of(example) == tuple(references)
    empty = {key: [] if isinstance(value, list) else "" for key, value in row.items()}
    (tmp_path / "bad.jsonl").write_text(json.dumps(empty) + "\n" + json.dumps(row) + "\n")
    assert main(["import", name, str(tmp_path / "bad.jsonl"), str(tmp_path / "out.jsonl")]) == 1
    assert "1 row in " in (told := capsys.readouterr().err) and "the first is line 1: " in told
