"""The comparisons on questions: their configs can be planned, with equal work for every arm that samples."""

import json
from pathlib import Path

import pytest

from text2grad import config
from text2grad.training.compare import CompareSettings, plan

STUDY = Path(__file__).parents[2] / "studies" / "qa"
QA = {
    "question": "Where is the Mura?",
    "passages": [["Mura", "The Mura is a river of Austria."]],
    "gold": "In Austria.",
    "prediction 1": "The Mura is in Peru.",
    "feedback": {"errors": [{"error type": "Unverifiable", "start": 12, "end": 20}], "missing-info": []},
}
PUBMED = {"QUESTION": "Does it help?", "CONTEXTS": ["It helped."], "LONG_ANSWER": "It does.", "final_decision": "yes"}


@pytest.mark.parametrize(
    ("file", "data", "more"),
    [
        ("qa_feedback", [QA, QA, QA, QA], {"critic", "text2grad_rm"}),
        ("pubmedqa", {str(number): PUBMED for number in range(40)}, set()),
    ],
)
def test_every_arm_can_be_planned(file: str, data: object, more: set[str], tmp_path: Path) -> None:
    pytest.importorskip("trl")
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "ids.json").write_text('["1"]')
    words = [f"settings.data={tmp_path / 'data.json'}"]
    words += [f"settings.task_options.test_ids={tmp_path / 'ids.json'}"] if file == "pubmedqa" else []
    jobs = plan(config.load(CompareSettings, STUDY / f"{file}.yaml", words), tmp_path)
    seeds = {arm: [job.seed for job in jobs if job.arm == arm] for arm in {job.arm for job in jobs}}
    assert set(seeds) == {"base", "sft", "scalar", "text2grad", "dpo", "grpo", "reflection"} | more
    assert seeds["scalar"] == seeds["text2grad"] == [0, 1, 2, 3, 4] and len(seeds["grpo"]) == len(seeds["dpo"]) == 3
    sampled = [job for job in jobs if job.kind.samples]
    assert len({job.completions * job.settings.updates for job in sampled}) == 1
