"""Data sets as they are published → examples and annotated completions: `task=NAME data=FILE`, `text2grad import NAME`.

Enters: a file as published, of any kind that `runs/tables.py` reads. Leaves: a `Task`. A data set is a function from a
published row to rows of ours; everything else is the same for all. DeFacto and QA-Feedback mark words, which takes more
than a function: they have modules of their own.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.people import Rejected
from text2grad.feedback.rows import Row
from text2grad.runs.tables import listed, pick
from text2grad.sandbox import UnusableTests, plan
from text2grad.tasks.annotated import Annotated, leave_out, leaving_out, putting_aside, read_each
from text2grad.tasks.examples import example_of
from text2grad.tasks.qa_feedback import qa_prompt
from text2grad.tasks.task import Task, task_of_files
from text2grad.types import Example

log = logging.getLogger("text2grad")
RowReader = Callable[[dict[str, Any], int], Iterable[dict[str, Any]]]
"""(published row, its line) → rows with `id`, `prompt` and more."""


def mbpp(row: dict[str, Any], _: int) -> Iterator[dict[str, Any]]:
    """google-research-datasets/mbpp, full or sanitized. The prompt shows the first test, which names the function; the
    others are hidden, and a program that is right about the first alone has no score."""
    tests, number = texts(get(row, list, "test_list"), "test_list"), get(row, int, "task_id")
    hidden = [*tests[1:], *texts(row.get("challenge_test_list") or [], "challenge_test_list")]
    yield {
        "id": f"mbpp-{number}",
        "prompt": f"{get(row, str, 'text', 'prompt')}\nYour code should pass this test:\n{tests[0]}\n{_MBPP_ANSWER}",
        "reference": get(row, str, "code"),
        "tests": tests[:1],
        "hidden_tests": hidden or None,
        "test_setup": row.get("test_setup_code") or row.get("test_imports") or None,
        "split": next((name for name, numbers in _MBPP_SPLITS.items() if number in numbers), "train"),
    }


_MBPP_ANSWER = "Answer with the program alone, without explanation."
"""Instruct models explain their programs at length: studies/code has lengths with and without this sentence."""
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


def kodcode(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """KodCode: pytest functions that import from `solution`. The prompt names the functions that they call. Rows
    differ: `test_info`, which declares the functions, is a list, an object, JSON text or missing; a question may be a
    conversation, and an id is not always there. Rows whose tests cannot be used are left out."""
    question, tests = get(row, str | list, "question", "conversations", "prompt"), get(row, str, "test")
    if isinstance(question, list):
        first = next((turn for turn in question if isinstance(turn, Mapping)), {})
        question = get(first, str, "content", "value")
    try:
        parts = plan(tests)
    except UnusableTests as problem:
        raise InvalidData(f"its tests cannot be used: {problem}") from None
    if all(unit.objects for unit in parts.units):
        raise InvalidData(f"its tests need live objects: {parts.units[0].objects}")
    infos = _infos(row.get("test_info"))
    declared = [text for info in infos if isinstance(text := info.get("function_declaration"), str)]
    called = re.findall(r"\bsolution\.([^\W\d]\w*)\(", tests) if not parts.wanted else ()
    wanted = declared or [f"`{name}`" for name in dict.fromkeys((*parts.wanted, *called))]
    named = "\n\nDefine:\n" + "\n".join(wanted) if wanted else ""
    solution = row.get("solution")
    yield {
        "id": str(row.get("question_id") or row.get("conversation_id") or number),
        "prompt": question + named,
        "reference": solution if isinstance(solution, str) and solution.strip() else None,
        "tests": tests,
        **{name: row[name] for name in ("style", "subset", "gpt_difficulty", "gpt_pass_percentage") if name in row},
    }


def _infos(given: Any) -> list[Mapping[str, Any]]:
    """`test_info` in whatever shape; what is none of them says nothing."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return []
    several = given if isinstance(given, list) else [given]
    return [info for info in several if isinstance(info, Mapping)]


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


def texts(value: Any, name: str) -> list[str]:
    """A list of texts that are not empty."""
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        raise InvalidData(f"{name} should be a list of texts that are not empty, got {shorten(value)}")
    return value


def published_task(
    name: str, rows_of: RowReader, critic: str, data: str = "", held_out: str = "", tolerant: bool = False
) -> Task:
    """The task of a published data set. Where a file holds several splits and `held_out` is empty, they are its own.
    `tolerant`: rows that cannot be used are counted and left out, where `text2grad import` does not do so itself."""

    def read(path: str, split: str | None = None) -> Iterable[tuple[int, dict[str, Any]]]:
        return usable(path, split) if tolerant and not putting_aside() else strictly(path, split)

    @cache
    def usable(path: str, split: str | None) -> list[tuple[int, dict[str, Any]]]:
        with leaving_out() as aside:
            rows = list(strictly(path, split))
        if aside:
            log.warning("%s", told_aside(path, len(rows), [*aside.values()]))
        return rows

    def strictly(path: str, split: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
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


def told_aside(path: str, kept: int, aside: Sequence[Rejected]) -> str:
    """What was left out, in one line: how many rows, and the most frequent reasons.

    >>> told_aside("a.jsonl", 3, [Rejected(1, "x", "tests: none"), Rejected(4, "y", "tests: none")])
    'a.jsonl: 2 of 5 rows are left out: 2 × tests: none (line 1, …)'
    """
    lines: dict[str, list[int]] = {}
    for row in aside:
        lines.setdefault(row.reason[:100], []).append(row.line)
    most = sorted(lines.items(), key=lambda each: -len(each[1]))
    words = [f"{len(some)} × {why} (line {some[0]}{', …' if len(some) > 1 else ''})" for why, some in most[:5]]
    more = f"; and {len(most) - 5} other reasons" if len(most) > 5 else ""
    return f"{path}: {len(aside)} of {kept + len(aside)} rows are left out: {'; '.join(words)}{more}"


def mbpp_task(data: str = "", held_out: str = "", held_out_split: str = "validation", humaneval: str = "") -> Task:
    """MBPP by its official splits: train 601–974, held out 511–600, or another split (`test`: 11–510) once the settings
    are chosen. `humaneval`: HumanEval's file, whose problems are held out, too, with the column `suite`."""
    task = published_task("mbpp", mbpp, "code", data, held_out)
    splits = dict(task.splits)
    if not held_out and held_out_split != "validation":
        if held_out_split not in splits:
            raise InvalidData(f"held_out_split should be one of {', '.join(splits)}, got {held_out_split!r}")
        splits["validation"] = splits[held_out_split]
    if humaneval:
        other, own = humaneval_task(data=humaneval), splits.get("validation", ())

        def both() -> Iterator[Example]:
            yield from own() if callable(own) else own
            for example in other.examples():
                yield replace(example, columns={**example.columns, "suite": "humaneval"})

        splits["validation"] = both
    return replace(task, splits=splits)


humaneval_task = partial(published_task, "humaneval", humaneval, "code")
kodcode_task = partial(published_task, "kodcode", kodcode, "code", tolerant=True)
slf5k_task = partial(published_task, "slf5k", slf5k, "reference")
scitldr_task = partial(published_task, "scitldr", scitldr, "support")
tldr_task = partial(published_task, "tldr", tldr, "support")
xsum_task = partial(published_task, "xsum", xsum, "support")
ultrafeedback_task = partial(published_task, "ultrafeedback", ultrafeedback, "reference")
