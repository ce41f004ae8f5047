"""A study in stretches: each continues what another machine left, and gets the files of its data set."""

import os
import subprocess
from pathlib import Path

import pytest

from text2grad import config
from text2grad.training.compare import CompareSettings

STUDIES = Path(__file__).parents[2] / "studies"
COMPARE = """#!/bin/sh
# Stands for `text2grad compare FOLDER ...`: one run ends in every stretch, the start in the first.
echo "$@" > words
mkdir -p "$2/sft/seed-0/model" "$2/sft/seed-0/checkpoints"
[ -f "$2/sft/seed-0.done" ] || head -c 17000000 /dev/urandom > "$2/sft/seed-0/model/adapter_model.safetensors"
echo large > "$2/sft/seed-0/checkpoints/state"
echo done > "$2/sft/seed-0.done"
n=0; while [ -f "$2/words/seed-$n.done" ]; do n=$((n + 1)); done
mkdir -p "$2/words/seed-$n/model"
echo done > "$2/words/seed-$n.done"; echo large > "$2/words/seed-$n/model/model.safetensors"
echo "[]" > "$2/results.json"
exit 75
"""


def test_a_stretch_continues_what_another_machine_left(tmp_path: Path) -> None:
    (tmp_path / "compare").write_text(COMPARE)
    (tmp_path / "compare").chmod(0o755)

    def stretch(folder: str, out: str) -> int:
        words = ["sh", str(STUDIES / "stretch.sh"), "defacto", "data", "8.5", out, "updates=3"]
        environment = os.environ | {"TEXT2GRAD": "./compare", "FOLDER": folder, "FROM": "first"}
        return subprocess.run(words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL).returncode

    assert stretch("here", "first") == 75
    pieces = sorted((tmp_path / "first").iterdir())
    assert [piece.name for piece in pieces] == ["defacto.tar.00", "defacto.tar.01"]
    assert all(piece.stat().st_size <= 15 * 2**20 for piece in pieces)
    assert stretch("there", "second") == 75
    there = tmp_path / "there" / "defacto"
    found = sorted(str(file.relative_to(there)) for file in there.rglob("*") if file.is_file())
    assert "words/seed-0.done" in found and "words/seed-1.done" in found
    assert "words/seed-0/model/model.safetensors" not in found, "only the model that others start from"
    first, second = (
        tmp_path / name / "defacto/sft/seed-0/model/adapter_model.safetensors" for name in ("here", "there")
    )
    assert first.read_bytes() == second.read_bytes()
    words = (tmp_path / "words").read_text().split()
    assert words[:2] == ["compare", "there/defacto"] and words[-1] == "updates=3"
    assert "settings.data=data/defacto_train.jsonl" in words and "settings.held_out=data/defacto_val.jsonl" in words


@pytest.mark.parametrize("study", ["scitldr", "defacto", "code", "qa_feedback", "pubmedqa"])
def test_every_study_has_its_config_and_its_files(study: str, tmp_path: Path) -> None:
    (tmp_path / "compare").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > words\n')
    (tmp_path / "compare").chmod(0o755)
    words = ["sh", str(STUDIES / "stretch.sh"), study, "my data", "8", "out", "updates=3"]
    ended = subprocess.run(words, cwd=tmp_path, env=os.environ | {"TEXT2GRAD": "./compare"}, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    command, folder, _, file, _, minutes, *rest = (tmp_path / "words").read_text().splitlines()
    assert (command, folder, minutes) == ("compare", f"runs/{study}", "8")
    made = config.load(CompareSettings, file, rest)
    assert made.updates == 3 and str(made.settings["data"]).startswith("my data/")


def test_an_unknown_study_is_refused(tmp_path: Path) -> None:
    words = ["sh", str(STUDIES / "stretch.sh"), "poems", "data", "8", "out"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2 and "STUDY should be scitldr, defacto, code, qa_feedback or pubmedqa" in ended.stderr
    assert not list(tmp_path.iterdir())
