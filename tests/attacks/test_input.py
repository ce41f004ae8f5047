"""Odd input ends in one line, hides nothing and is paid once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.conftest import SMALL
from tests.report.test_page import data_of
from text2grad.cli import main

TRAIN = ["train", "model=model", "data=data.jsonl", "critic=reference", *SMALL]
DEEP = "/".join(["a"] * 2000)
ROW = '{"id": "a", "prompt": "p", "completion": "c d", "critique": "\\"c\\" is good."}\n'

ODD: dict[str, tuple[list[str], str]] = {
    "a rate beyond 32 bits": (
        [*TRAIN, "run", "update.learning_rate=1e300"],
        "update.learning_rate: should be less than",
    ),
    "a rate of the head": (["reward-model", "run", "data=x", "head_learning_rate=1e300"], "head_learning_rate: should"),
    "a decay beyond 32 bits": ([*TRAIN, "run", "update.weight_decay=1e300"], "update.weight_decay: should be less"),
    "a decay of another stage": (["sft", "run", "data=x", "update.weight_decay=1e300"], "weight_decay: should be less"),
    "a run 2,000 folders down": ([*TRAIN, DEEP], "nested too deeply"),
    "data 2,000 folders down": ([*TRAIN, "run", f"data={DEEP}"], "there is no such file"),
    "a model 2,000 folders down": (["generate", DEEP, "--prompt", "p"], "there is no such folder"),
    "settings 2,000 folders down": ([*TRAIN, "run", "--config", DEEP], "there is no such file"),
    "an output 2,000 folders down": (["align", "in.jsonl", DEEP], "nested too deeply"),
    "a cache 2,000 folders down": (
        [*TRAIN, "run", "critic=openai:m", "critics.openai.api_key=x", f"critics.openai.cache={DEEP}/x.sqlite"],
        "should be a cache of replies",
    ),
    "an annotation 2,000 folders down": (["annotate", "in.jsonl", DEEP, "--critic", "reference"], "too deeply"),
    "a report of 2,000 folders": (["report", DEEP], "nothing of that name"),
    "a name of 3,000 letters": ([*TRAIN, "a" * 3000], "File name too long"),
    "settings without end": ([*TRAIN, "run", "--config", "/dev/full"], "has more than 16 MiB"),
    "settings of a device": ([*TRAIN, "run", "--config", "/dev/zero"], "has more than 16 MiB"),
    "data without end": ([*TRAIN, "run", "data=/dev/full"], "should be a file of examples"),
    "an output that is full": (["align", "in.jsonl", "/dev/full"], "No space left on device"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.usefixtures("here")
def test_odd_words_end_in_one_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_text(ROW)
    words, told = ODD[name]
    assert main(words) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and told in lines[0]
    assert {path.name for path in Path().iterdir()} <= {"model", "data.jsonl", "in.jsonl", "a"}


@pytest.mark.usefixtures("here")
def test_weights_that_run_away_are_told_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "run", "update.weight_decay=1e3", "update.learning_rate=1e30", "--quiet"]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert "log-probs are not finite: the weights have run away. Lower update.learning_rate" in line


@pytest.mark.parametrize(("size", "count", "shown"), [(5_000_000, 1, 0), (5_000_000, 6, 0), (1_900_000, 6, 2)])
@pytest.mark.usefixtures("here")
def test_huge_completions_hide_no_other_and_the_page_stays_light(size: int, count: int, shown: int) -> None:
    """A page has 8 MB for completions: a quarter for one at most, a half for all huge ones together."""
    assert main([*TRAIN, "run", "guard.nothing_learned=warn", "--quiet"]) == 0
    path = Path("run/rollouts.jsonl")
    first, *rest = path.read_text().splitlines()
    row = json.loads(first)
    row["completion"] |= {"text": "x" * size, "token_ids": [1], "offsets": [[0, size]]}
    for key in ("logprobs", "token_rewards", "advantages", "logprobs_after", "values", "verdicts"):
        if row.get(key):
            row[key] = row[key][:1]
    row["alignment"] = {"spans": [], "missed": []}
    path.write_text("\n".join([*[json.dumps(row)] * count, *rest]) + "\n")
    assert main(["report", "run", "--out", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert len(page) < 1_000_000 + shown * size
    (run,) = data_of(page)["runs"]
    assert len(rest) > 2
    assert (len(run["during"]), run["duringTotal"]) == (shown + len(rest), count + len(rest))


FILL = """
    import os, sys
    from pathlib import Path
    from text2grad.errors import RunError
    from text2grad.runs import Jsonl, read_jsonl
    home = Path(sys.argv[1])
    rows = Jsonl(home / "rows.jsonl")
    rows.append([{"step": 1}])
    filler = (home / "filler").open("wb", buffering=0)
    try:
        while True: filler.write(bytes(4096))
    except OSError: pass
    for size in (3000, 3000, 100_000):  # within a buffer, and beyond it
        try:
            rows.append([{"step": 2, "text": "x" * size}] * 2)
        except RunError as problem:
            print(problem)
    os.truncate(home / "filler", 0)
    rows.append([{"step": 3}])
    assert [row["step"] for row in read_jsonl(home / "rows.jsonl")] == [1, 3]
"""


@pytest.mark.system("bwrap")
def test_a_full_disk_is_told_as_such_however_small_the_row(tmp_path: Path) -> None:
    """On a real file system of 1 MiB: a row that waits in a buffer fails when the file is closed, too."""
    words = ["bwrap", "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(tmp_path), sys.executable, "-c"]
    source = "\n".join(line.removeprefix("    ") for line in FILL.splitlines())
    done = subprocess.run([*words, source, str(tmp_path)], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the disk is full: could not write") == 3


CACHE = """
import sys
from pathlib import Path
from text2grad.feedback.critics.cache import ResponseCache
home = Path(sys.argv[1])
ResponseCache(home / "replies.sqlite").close()
with (home / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(1024))
    except OSError:
        pass
ResponseCache(home / "replies.sqlite")
"""


@pytest.mark.system("bwrap")
def test_a_cache_of_replies_on_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    """Found by the soak: SQLite calls it a disk I/O error."""
    words = ["bwrap", "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(tmp_path), sys.executable, "-c"]
    done = subprocess.run([*words, CACHE, str(tmp_path)], capture_output=True, text=True, env=os.environ, check=False)
    assert "RunError" in done.stderr and "the disk is full, so the cache of replies" in done.stderr
