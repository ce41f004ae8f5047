"""Data sets as they are published → examples and annotated completions: `task=NAME data=FILE`, `text2grad import NAME`.

Enters: a file as published, of any kind that `runs/tables.py` reads. Leaves: a `Task`. A data set is a function from a
published row to rows of ours; everything else is the same for all. DeFacto and QA-Feedback mark words, which takes more
than a function: they have modules of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.people import Rejected
from text2grad.feedback.rows import Row
from text2grad.runs.tables import listed, pick
from text2grad.tasks.annotated import Annotated, leave_out, read_each
from text2grad.tasks.examples import example_of
from text2grad.tasks.qa_feedback import qa_prompt
from text2grad.tasks.task import Task, task_of_files
from text2grad.types import Example

Rows = Callable[[dict[str, Any], int], Iterable[dict[str, Any]]]
"""(published row, its line) → rows with `id`, `prompt` and more."""


def mbpp(row: dict[str, Any], _: int) -> Iterator[dict[str, Any]]:
    """google-research-datasets/mbpp, full or sanitized. The prompt shows the first test, which names the function; the
    critic `code` hides one of the others."""
    tests, number = get(row, list, "test_list"), get(row, int, "task_id")
    yield {
        "id": f"mbpp-{number}",
        "prompt": f"{get(row, str, 'text', 'prompt')}\nYour code should pass this test:\n{tests[0]}",
        "reference": get(row, str, "code"),
        "tests": tests,
        "hidden_tests": row.get("challenge_test_list") or None,
        "test_setup": row.get("test_setup_code") or row.get("test_imports") or None,
        "split": next((name for name, numbers in _MBPP_SPLITS.items() if number in numbers), "train"),
    }


_MBPP_SPLITS = {"train": range(601, 975), "validation": range(511, 601), "test": range(11, 511), "prompt": range(11)}


def humaneval(row: dict[str, Any], _: int) -> Iterator[dict[str, Any]]:
    """openai/human-eval: the body of a function that the prompt begins. For evaluation only."""
    yield {
        "id": get(row, str, "task_id"),
        "prompt": get(row, str, "prompt"),
        "reference": get(row, str, "canonical_solution"),
        "tests": get(row, str, "test"),
        "entry_point": get(row, str, "entry_point"),
    }


def kodcode(row: dict[str, Any], _: int) -> Iterator[dict[str, Any]]:
    """KodCode: pytest functions that import from `solution`. The prompt names the functions that they call."""
    infos = row.get("test_info") or []
    declared = [str(info["function_declaration"]) for info in infos if info.get("function_declaration")]
    named = "\n\nDefine:\n" + "\n".join(declared) if declared else ""
    yield {
        "id": str(get(row, str, "question_id")),
        "prompt": get(row, str, "question") + named,
        "reference": get(row, str, "solution"),
        "tests": get(row, str, "test"),
        **{name: row[name] for name in ("style", "subset", "gpt_difficulty", "gpt_pass_percentage") if name in row},
    }


def pubmedqa(row: dict[str, Any], _: int) -> Iterator[dict[str, Any]]:
    """PubMedQA: the object of objects on GitHub, or the hub's table."""
    question = get(row, str, "QUESTION", "question")
    passages = get(row, list, "CONTEXTS", "context.contexts")
    yield {
        "id": str(get(row, str | int, "id", "pubid")),
        "prompt": qa_prompt(question, passages),
        "reference": get(row, str, "LONG_ANSWER", "long_answer"),
        "passages": passages,
        "question": question,
        "decision": row.get("final_decision"),
    }


def slf5k(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """JeremyAlain/SLF5K: summaries of Reddit posts, with people's feedback and their own summary."""
    yield {
        "id": str(row.get("id", number)),
        "prompt": f"Summarise the post in a few sentences.\n\nTitle: {get(row, str, 'title')}\n\n"
        f"Post:\n{get(row, str, 'post')}",
        "completion": get(row, str, "generated_summary_for_feedback"),
        "critique": get(row, str, "feedback"),
        "revision": row.get("ideal_human_summary") or None,
        "reference": row.get("ideal_human_summary") or row.get("tldr_human_reference_summary"),
        "passages": [row["post"]],
        **{name: row[name] for name in ("subreddit", "feedback_class") if name in row},
    }


def scitldr(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """allenai/scitldr: abstracts of papers, and one sentence that says what each is about, by authors and readers."""
    # The hub calls them `source` and `target`, the published files `source` and `targets`.
    yield summary(
        str(row.get("id") or row.get("paper_id") or number),
        "Say in one sentence what the paper is about.",
        "Abstract",
        " ".join(get(row, list, "source")),
        get(row, list, "targets", "target"),
    )


def tldr(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Posts with their authors' TL;DR: webis/tldr-17, openai_summarize_tldr, trl-lib/tldr and their kind."""
    post = get(row, str, "post", "content", "prompt").removesuffix("TL;DR:").strip()
    text = get(row, str, "summary", "label", "completion").strip()
    name = str(row.get("id") or row.get("post_id") or number)
    yield summary(name, "Summarise the post in a few sentences.", "Post", post, [text])


def xsum(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """News and their summaries: EdinburghNLP/xsum, abisee/cnn_dailymail and their kind. XSum's often say what the
    article does not."""
    article, text = get(row, str, "document", "article"), get(row, str, "summary", "highlights")
    yield summary(str(row.get("id") or number), "Summarise the article in one sentence.", "Article", article, [text])


def summary(name: str, instruction: str, title: str, source: str, targets: list[Any]) -> dict[str, Any]:
    """A text to summarise, and one summary or several."""
    if not source.strip() or not all(isinstance(text, str) and text.strip() for text in targets):
        raise InvalidData(f"its text and its summaries should not be empty, got {shorten(targets)}")
    row = {"id": name, "prompt": f"{instruction}\n\n{title}:\n{source}", "reference": targets[0], "passages": [source]}
    return row | ({"references": targets} if len(targets) > 1 else {})


def ultrafeedback(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """HuggingFaceH4/ultrafeedback_binarized: a chosen and a rejected completion. openbmb/UltraFeedback: up to four
    completions, each with a critique and a score."""
    if "completions" in row:
        group, prompt = str(row.get("id", number)), get(row, str, "instruction")
        for place, made in enumerate(get(row, list, "completions")):
            try:
                said = _said(made)
            except InvalidData as problem:
                leave_out(number, f"{group}.{place}", problem)
            else:
                yield {"id": f"{group}.{place}", "group": group, "prompt": prompt, **said}
        return
    chosen, rejected = get(row, list, "chosen"), get(row, list, "rejected")
    yield {
        "id": str(row.get("prompt_id", number)),
        "prompt": chosen[:-1] if len(chosen) != 2 else pick(chosen[0], "content"),
        "chosen": pick(chosen[-1], "content"),
        "rejected": pick(rejected[-1], "content"),
        "reference": pick(chosen[-1], "content"),
        **{name: row[name] for name in ("score_chosen", "score_rejected") if name in row},
    }


def _said(made: Any) -> dict[str, Any]:
    """One completion of UltraFeedback, and what was said about it."""
    if not isinstance(made, Mapping):
        raise InvalidData(f"a completion should be a JSON object, got {shorten(made)}")
    score = made.get("overall_score")
    try:
        number = None if score in (None, "N/A") else float(score)
    except (TypeError, ValueError):
        raise InvalidData(f"overall_score should be a number, got {shorten(score)}") from None
    critique = {"feedback": get(made, str, "critique"), "score": number}
    return {"completion": get(made, str, "response"), "critique": critique, "model": made.get("model")}


def get(row: Mapping[str, Any], kind: Any, *names: str) -> Any:
    """The first of these columns that is there; if it is of another kind, or none is there, it is another data set."""
    for name in names:
        try:
            value = pick(row, name)
        except KeyError:
            continue
        if value == [] and kind is list:
            raise InvalidData(f"{name} should not be empty")
        if isinstance(value, kind):
            return value
        raise InvalidData(f"{name} should be {getattr(kind, '__name__', 'a text or a number')}, got {shorten(value)}")
    raise InvalidData(f"should have {' or '.join(names)}, as published; {listed(row)}")


def published_task(name: str, rows_of: Rows, critic: str, data: str = "", held_out: str = "") -> Task:
    """The task of a published data set. Where a file holds several splits and `held_out` is empty, they are its own."""

    def read(path: str, split: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        seen: Counter[str] = Counter()

        def rows(number: int, row: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
            try:
                made = [{k: v for k, v in each.items() if v is not None} for each in rows_of(row, number)]
                for each in made:
                    example_of(each, "")
                    each["id"] = numbered(each["id"], seen)
                return [(number, each) for each in made]
            except InvalidData:
                raise
            except (LookupError, TypeError, ValueError, AttributeError) as problem:
                raise InvalidData(f"cannot be read as {name}: {type(problem).__name__}: {problem}") from None

        made = (row for several in read_each(path, name, rows) for row in several)
        return ((number, row) for number, row in made if split in (None, row.get("split")))

    def examples(path: str, split: str | None = None) -> Iterator[Example]:
        seen = set()
        for _, row in read(path, split):
            # One of each prompt, however many completions of it were published.
            if (group := row.get("group", row["id"])) not in seen:
                seen.add(group)
                yield example_of({key: row[key] for key in row if key not in ("completion", "critique")}, group)

    def annotated(path: str) -> Iterator[Annotated | Rejected]:
        for number, row in read(path):
            try:
                yield located(row)
            except InvalidData as problem:
                yield Rejected(number, row["id"], str(problem))

    task = replace(task_of_files(name, data, held_out, examples, annotated), critic=critic)
    first = next((row for _, row in read(data or held_out)), {}) if data or held_out else {}
    if not first.get("completion"):
        task = replace(task, annotations={})
    if "split" in first and not held_out:
        there = {row["split"] for _, row in read(data)}
        splits = [split for split in _MBPP_SPLITS if split in there]
        task = replace(task, splits={split: partial(examples, data, split) for split in splits})
    return task


def numbered(identity: str, seen: Counter[str]) -> str:
    """An id that was not there before: some data sets publish one several times.

    >>> seen: Counter[str] = Counter()
    >>> numbered("a", seen), numbered("a", seen), numbered("b", seen), numbered("a", seen)
    ('a', 'a-2', 'b', 'a-3')
    """
    new = identity
    while seen[new]:
        seen[identity] += 1
        new = f"{identity}-{seen[identity]}"
    seen[new] += 1
    return new


def located(row: dict[str, Any]) -> Annotated:
    """A completion and what was said about it, with the words that it is about."""
    if "completion" not in row:
        raise InvalidData("has no completion with a critique: it is a pair, for `text2grad dpo`")
    read = Row.of(row)
    critique = replace(read.critique, revision=read.revision or read.critique.revision)
    prompt = example_of(row, "").prompt
    return Annotated(str(read.id), prompt, read.completion, critique, read.align(AlignSettings()), row)


mbpp_task = partial(published_task, "mbpp", mbpp, "code")
humaneval_task = partial(published_task, "humaneval", humaneval, "code")
kodcode_task = partial(published_task, "kodcode", kodcode, "code")
slf5k_task = partial(published_task, "slf5k", slf5k, "reference")
scitldr_task = partial(published_task, "scitldr", scitldr, "support")
tldr_task = partial(published_task, "tldr", tldr, "support")
xsum_task = partial(published_task, "xsum", xsum, "support")
ultrafeedback_task = partial(published_task, "ultrafeedback", ultrafeedback, "reference")
