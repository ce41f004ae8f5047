"""SkyRL on a CPU, as far as it goes: its generator, its trainer's tensors and advantages, its loss, on a tiny model.

Runs the file of docs/engines/skyrl.md in an empty folder. What is not SkyRL's here: sampling (transformers in place of
vLLM) and the optimizer step.
"""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from pages import block, judge_change, logprobs, make_model, overrides
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
from skyrl.train.generators.base import TrajectoryID
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.trainer_utils import validate_generator_output
from transformers import AutoModelForCausalLM, AutoTokenizer


class Sampling:
    """What SkyRL asks its inference engines, answered by transformers."""

    model_name = "model"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer

    async def generate(self, input_batch: Any, **_: Any) -> dict[str, Any]:
        ids, taken = [], []
        for prompt in input_batch["prompt_token_ids"]:
            options = {"max_new_tokens": 16, "do_sample": True, "top_k": 0, "return_dict_in_generate": True}
            made = self.model.generate(torch.tensor([prompt]), output_logits=True, **options)
            new = made.sequences[0, len(prompt) :]
            ids.append(new.tolist())
            taken.append(torch.cat(made.logits).log_softmax(-1).gather(1, new[:, None])[:, 0].tolist())
        ended = [self.tokenizer.eos_token_id in each for each in ids]
        return {
            "responses": self.tokenizer.batch_decode(ids, skip_special_tokens=True),
            "response_ids": ids,
            "stop_reasons": ["stop" if each else "length" for each in ended],
            "response_logprobs": taken,
        }

    async def finish_session(self, session_id: Any) -> None:
        """Nothing is kept."""


def main() -> None:
    torch.manual_seed(0)
    folder = Path.cwd()
    make_model(folder / "model")
    (folder / "main_critique.py").write_text(block("skyrl", "python"))
    sys.path.insert(0, str(folder))
    import main_critique  # type: ignore[import-not-found]

    cfg = main_critique.SkyRLTrainConfig.from_cli_overrides(overrides("skyrl", 1))
    model, tokenizer = AutoModelForCausalLM.from_pretrained("model"), AutoTokenizer.from_pretrained("model")
    experiment = main_critique.Experiment.__new__(main_critique.Experiment)
    generator = experiment.get_generator(cfg, tokenizer, Sampling(model, tokenizer))
    each = cfg.generator.n_samples_per_prompt
    names = [name for name in ("river", "harbour") for _ in range(each)]
    batch = {
        "prompts": [[{"role": "user", "content": f"Name a {name}."}] for name in names],
        "env_classes": [cfg.environment.env_class] * len(names),
        "env_extras": [{"reward_spec": {"ground_truth": "a"}} for _ in names],
        "sampling_params": {"logprobs": 1},
        "trajectory_ids": [TrajectoryID(name, place % each) for place, name in enumerate(names)],
        "batch_metadata": None,
    }
    output = asyncio.run(generator.generate(batch))
    generator.scorer.close()
    validate_generator_output(len(names), output)
    # The trainer's own methods, without its Ray workers.
    trainer = SimpleNamespace(cfg=cfg, tokenizer=tokenizer, all_metrics={}, all_timings={}, dispatch=None)
    output, uids = RayPPOTrainer.postprocess_generator_output(trainer, output, names)
    data = tensors(trainer, output, uids)
    RayPPOTrainer.compute_advantages_and_returns(trainer, data)
    print(f"{len(names)} completions; advantages by {cfg.trainer.algorithm.advantage_estimator}")
    learn(model, cfg.trainer.algorithm, output, data["advantages"])


def tensors(trainer: Any, output: Any, uids: list[str]) -> Any:
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

    names = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs")
    made = convert_prompts_responses_to_batch_tensors(trainer.tokenizer, *(output[name] for name in names), None)
    fields = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask")
    data = TrainingInputBatch({name: made[place] for place, name in enumerate(fields)} | {"values": None})
    data.metadata = {"uids": uids, "pad_size": 0, "avg_response_length": float(made[2].sum() / len(uids))}
    return data


def learn(model: Any, options: Any, output: Any, advantages_BT: Any) -> None:
    """Some steps of SkyRL's loss."""
    optimizer, loss_of = torch.optim.AdamW(model.parameters(), lr=1e-3), PolicyLossRegistry.get("regular")
    pairs = list(zip(output["prompt_token_ids"], output["response_ids"], strict=True))
    advantages = [row[-len(ids) :] for row, (_, ids) in zip(advantages_BT, pairs, strict=True)]  # they end together
    before = [logprobs(model, *pair).detach() for pair in pairs]
    for _ in range(6):
        for pair, old, credit, mask in zip(pairs, before, advantages, output["loss_masks"], strict=True):
            now = logprobs(model, *pair)[None]
            loss, _ = loss_of(now, old[None], credit[None], options, torch.tensor([mask]).float(), old[None])
            (loss / len(pairs)).backward()
        optimizer.step()
        optimizer.zero_grad()
    judge_change(
        (float(credit.sign()), float(change))
        for pair, old, row in zip(pairs, before, advantages, strict=True)
        for credit, change in zip(row, logprobs(model, *pair).detach() - old, strict=True)
    )


if __name__ == "__main__":
    main()
