"""Files that survive kills, full disks and second writers: tested by killing, filling and writing twice."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad._checked import Int
from text2grad.config import settings
from text2grad.errors import InvalidData, RunError, RunLocked
from text2grad.runs import Jsonl, RunFolder, encode_row, read_jsonl, write_atomic
from text2grad.runs.world import World


@settings
class Settings:
    steps: Int = 3
    """Updates."""


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def python(code: str, *words: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A Python process of its own, with this interpreter."""
    command = [*prefix, sys.executable, "-c", textwrap.dedent(code), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_atomic_write_replaces_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_atomic(path, b"old")

    def failing() -> list[bytes]:
        raise RuntimeError("the source failed")

    def half() -> object:
        yield b"new, but only ha"
        failing()

    with pytest.raises(RuntimeError, match="the source failed"):
        write_atomic(path, half())  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    write_atomic(path, [b"new", b"er"])
    assert path.read_bytes() == b"newer"
    assert files_in(tmp_path) == ["deep/file.txt"]


@pytest.mark.parametrize("torn", [b'{"step": 3', b'"step"', b'{"s', b"\xf0\x9f", b"\x00\x00\x00", b"[" * 9999])
def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + torn)
    with Jsonl(path) as rows:
        assert rows.healed == len(torn)
        rows.append([{"step": 3}])
    assert [row["step"] for row in read_jsonl(path)] == [1, 2, 3]


def test_a_whole_row_without_its_line_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}')
    assert [row["step"] for row in read_jsonl(path)] == [1, 2]
    with Jsonl(path) as rows:
        assert rows.healed == 0
        rows.append([{"step": 3}])
    assert [row["step"] for row in read_jsonl(path)] == [1, 2, 3]


def test_reading_passes_over_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"step": 1}\n{"ste')
    assert list(read_jsonl(path)) == [{"step": 1}]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through" and (tmp_path / "pipe").is_fifo()
    os.close(reader)
    with pytest.raises(RunError, match="but it is a folder"):
        write_atomic(tmp_path, b"x")


def test_what_a_dead_process_left_beside_a_file_is_cleared_by_the_next_write(tmp_path: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from text2grad.runs import aside
        with aside(Path(sys.argv[1])) as scratch:
            scratch.write_text("half")
            os.kill(os.getpid(), 9)
    """
    python(code, tmp_path / "out.jsonl").communicate()
    assert len(list(tmp_path.glob(".aside-*"))) == 1
    write_atomic(tmp_path / "other", b"x")
    assert len(list(tmp_path.glob(".aside-*"))) == 1, "another file's business"
    write_atomic(tmp_path / "out.jsonl", b"x")
    assert files_in(tmp_path) == ["other", "out.jsonl"]


def test_a_torn_line_longer_than_a_block_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"x" * 200_000)
    with Jsonl(path) as rows:
        assert (rows.size, rows.healed) == (9, 200_000)


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(InvalidData, match="line 2: should be one JSON object"):
        list(read_jsonl(path))
    path.write_bytes(b"[1]\n")
    with pytest.raises(InvalidData, match="line 1: should be a JSON object, got list"):
        list(read_jsonl(path))


def test_rewind_forgets_what_came_after(tmp_path: Path) -> None:
    with Jsonl(tmp_path / "rows.jsonl") as rows:
        rows.append([{"step": 1}])
        mark = rows.size
        rows.append([{"step": 2}, {"step": 3}])
        rows.rewind(mark)
        rows.append([{"step": 4}])
        assert [row["step"] for row in read_jsonl(rows.path)] == [1, 4]
        for wrong in (mark + 1, rows.size + 1, -1):
            with pytest.raises(RunError, match="cannot go back"):
                rows.rewind(wrong)


def test_a_row_that_json_cannot_hold_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    with Jsonl(tmp_path / "rows.jsonl") as rows:
        rows.append([{"step": 1}])
        for bad in (float("nan"), float("inf"), object()):
            with pytest.raises(InvalidData, match="finite numbers and plain values"):
                rows.append([{"step": 2}, {"loss": bad}])
    assert [row["step"] for row in read_jsonl(tmp_path / "rows.jsonl")] == [1]


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.none()), max_size=4))
def test_any_row_is_one_line_and_reads_back(row: dict[str, object]) -> None:
    line = encode_row(row)
    assert json.loads(line) == row
    assert line.endswith(b"\n") and len(line.decode().splitlines()) == 1


def test_half_a_surrogate_pair_survives_as_an_escape() -> None:
    assert json.loads(encode_row({"text": "a\ud800b"})) == {"text": "a\ud800b"}


APPEND_FOREVER = """
    import sys
    from text2grad.runs import Jsonl, write_atomic
    rows = Jsonl(sys.argv[1])
    step = sum(1 for _ in open(sys.argv[1], "rb"))
    print("ready", flush=True)
    while True:
        rows.append([{"step": step, "text": "x" * 2000}])
        write_atomic(sys.argv[1] + ".latest", str(step).encode())
        step += 1
"""


def test_a_process_killed_while_writing_leaves_whole_lines_and_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for delay in (0.02, 0.05, 0.11):
        process = python(APPEND_FOREVER, path)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
        process.kill()
        process.communicate()
        Jsonl(path).close()
        steps = [row["step"] for row in read_jsonl(path)]
        assert steps == list(range(len(steps)))
        latest = Path(f"{path}.latest")
        assert not latest.exists() or int(latest.read_text()) in (len(steps) - 1, len(steps) - 2)


def test_a_run_folder_keeps_settings_rows_and_checkpoints(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", Settings(5), keep_checkpoints=2) as run:
        run.metrics.append([{"step": 1, "loss": 0.5}])
        run.rollouts.append([{"id": "a"}])
        for step in (1, 2, 3):
            run.save_checkpoint(step, lambda folder: write_atomic(folder / "state", b"weights"))
        assert [path.name for path in run.checkpoints()] == ["step-00000002", "step-00000003"]
    with RunFolder(tmp_path / "run", Settings(5)) as run:
        assert run.latest_checkpoint() == tmp_path / "run/checkpoints/step-00000003"
        assert [row["loss"] for row in read_jsonl(run.metrics.path)] == [0.5]
    assert (tmp_path / "run/config.yaml").read_text() == "# Updates.\nsteps: 5\n"


def test_a_run_does_not_go_on_with_other_settings(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", Settings(5)).close()
    with pytest.raises(RunError, match=r"other settings.*\n  steps: 5 there, 6 now"):
        RunFolder(tmp_path / "run", Settings(6))
    RunFolder(tmp_path / "run", Settings(5)).close()


def test_a_refused_folder_is_left_as_it_was_found(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("steps: 5\n")
    with pytest.raises(RunError, match="other settings"):
        RunFolder(tmp_path / "run", Settings(6))
    assert files_in(tmp_path / "run") == ["config.yaml"]
    (tmp_path / "odd/metrics.jsonl").mkdir(parents=True)
    with pytest.raises(RunError, match="cannot be used"):
        RunFolder(tmp_path / "odd", Settings())
    assert [path.name for path in (tmp_path / "odd").iterdir()] == ["metrics.jsonl"]
    (tmp_path / "worse/config.yaml").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(RunError, match="cannot be used"):
            RunFolder(tmp_path / "worse", Settings())


def test_an_abandoned_folder_keeps_what_this_run_did_not_make(tmp_path: Path) -> None:
    RunFolder(tmp_path / "new", Settings()).abandon()
    assert not (tmp_path / "new").exists()
    (tmp_path / "run").mkdir()
    RunFolder(tmp_path / "run", Settings()).abandon()
    assert files_in(tmp_path) == [] and (tmp_path / "run").is_dir()
    (tmp_path / "run/config.yaml").write_text("# My notes.\n{}\n")
    RunFolder(tmp_path / "run", Settings()).abandon()
    assert (tmp_path / "run/config.yaml").read_text() == "# My notes.\n{}\n"
    assert files_in(tmp_path / "run") == ["config.yaml"]


def test_a_long_list_of_other_settings_is_cut(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("".join(f"old{n}: {n}\n" for n in range(50)))
    with pytest.raises(RunError, match="… and 30 more") as refused:
        RunFolder(tmp_path / "run", Settings())
    assert str(refused.value).count("\n") == 21


def test_a_setting_that_is_new_since_was_what_its_default_says(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", Settings()).close()
    (tmp_path / "run/config.yaml").write_text("{}\n")
    RunFolder(tmp_path / "run", Settings()).close()
    (tmp_path / "run/config.yaml").write_text("{}\n")
    with pytest.raises(RunError, match="other settings"):
        RunFolder(tmp_path / "run", Settings(77))


def test_a_checkpoint_that_fails_half_way_does_not_appear(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("out of memory")

    with RunFolder(tmp_path / "run", Settings()) as run:
        with pytest.raises(RuntimeError, match="out of memory"):
            run.save_checkpoint(1, write)
        assert run.checkpoints() == []
        assert not list(run.path.rglob("half"))
        run.save_checkpoint(1, lambda _: None)
        with pytest.raises(RunError, match="exists already"):
            run.save_checkpoint(1, lambda _: None)


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", Settings(), keep_checkpoints=1) as run:
        for step in (99_999_999, 100_000_000):
            run.save_checkpoint(step, lambda _: None)
        assert run.latest_checkpoint() == run.path / "checkpoints" / "step-100000000"
        assert run.save_checkpoint(7, lambda _: None).exists(), "the one just written stays"
        with pytest.raises(RunError, match="a step from 0 on"):
            run.save_checkpoint(-1, lambda _: None)
    with pytest.raises(RunError, match="an open run folder"):
        run.save_checkpoint(8, lambda _: None)


def test_a_folder_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "run" / "metrics.jsonl").mkdir(parents=True)
    with pytest.raises(RunError, match=r"cannot be used as a run folder .*metrics\.jsonl"):
        RunFolder(tmp_path / "run", Settings())
    (tmp_path / "nowhere").symlink_to("missing")
    with pytest.raises(RunError, match="cannot be used as a run folder"):
        RunFolder(tmp_path / "nowhere", Settings())


def test_a_file_where_the_folder_should_be_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match="but it is a file"):
        RunFolder(tmp_path / "run", Settings())


HOLD = """
    import sys, time
    sys.path.insert(0, sys.argv[2])
    from tests.test_runs import Settings
    from text2grad.runs import RunFolder
    run = RunFolder(sys.argv[1], Settings())
    def write(folder):
        (folder / "half").write_text("half")
        print("held", flush=True)
        time.sleep(600)
    run.save_checkpoint(1, write)
"""
ROOT = Path(__file__).parent.parent


def test_two_processes_cannot_take_the_same_folder_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    holder = python(HOLD, tmp_path / "run", ROOT)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(RunLocked, match=f"in use by process {holder.pid} on "):
        RunFolder(tmp_path / "run", Settings())
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with RunFolder(tmp_path / "run", Settings()) as run:
        assert run.checkpoints() == []
        assert not list(run.path.rglob(".aside-*")), "what the kill left half-written is cleared away"


def test_one_process_cannot_take_it_twice_either(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", Settings()), pytest.raises(RunLocked):
        RunFolder(tmp_path / "run", Settings())


FILL = """
    import sys
    from pathlib import Path
    from text2grad.errors import RunError
    from text2grad.runs import Jsonl, write_atomic, read_jsonl
    home = Path(sys.argv[1])
    write_atomic(home / "file", b"old")
    rows = Jsonl(home / "rows.jsonl")
    rows.append([{"step": 1}])
    big = "x" * 4_000_000
    for attempt in (lambda: write_atomic(home / "file", big.encode()), lambda: rows.append([{"step": 2, "text": big}])):
        try:
            attempt()
        except RunError as problem:
            print(problem)
    rows.append([{"step": 3}])
    assert (home / "file").read_bytes() == b"old"
    assert [row["step"] for row in read_jsonl(home / "rows.jsonl")] == [1, 3]
    assert sorted(path.name for path in home.iterdir()) == ["file", "rows.jsonl"]
"""


@pytest.mark.system("bwrap")
def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """On a real file system of 2 MiB."""
    small = ("bwrap", "--dev-bind", "/", "/", "--size", str(2 << 20), "--tmpfs", str(tmp_path))
    process = python(FILL, tmp_path, prefix=small)
    said, complaint = process.communicate()
    assert process.returncode == 0, complaint
    assert said.count("the disk is full") == 2
    assert "free some space and run the same command again" in said


def test_what_the_main_process_does_or_refuses_is_everybodys() -> None:
    """Two processes in turn: the second gets what the first has sent."""
    sent: list[Any] = []

    class Sends(World):
        def broadcast(self, mine: Any) -> Any:
            if self.is_main:
                sent.append(mine)
            return sent[-1]

    class Listens(Sends):
        rank = 1

    def never() -> str:
        raise AssertionError("only the main process does it")

    def refuses() -> str:
        raise PermissionError("no")

    assert Sends().on_main(lambda: "done") == "done" == Listens().on_main(never)
    for each, work in ((Sends(), refuses), (Listens(), never)):
        with pytest.raises(PermissionError, match="no"):
            each.on_main(work)
