"""What each of two processes does in the test of TRL; started by `torchrun`: two.py FOLDER, which holds `model`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig

from tests.engines.test_trl import vowels
from text2grad.engines.trl import CritiqueGRPOTrainer


class Watched(CritiqueGRPOTrainer):
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.seen = output["advantages"].tolist()
        return output


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    trainer = Watched(
        model=str(folder / "model"),
        critic=vowels,
        train_dataset=Dataset.from_dict({"prompt": ["Name a river.", "Name a harbour."]}),
        args=GRPOConfig(
            str(folder / "out"),
            per_device_train_batch_size=2,
            num_generations=4,
            max_completion_length=12,
            max_steps=1,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    said = {"rollouts": [rollout.to_json() for rollout in trainer.judged], "advantages": trainer.seen}
    (folder / f"{rank}.json").write_text(json.dumps(said))
