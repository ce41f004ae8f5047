"""verl on a CPU, as far as it goes: its worker, its queue, its trainer's advantages and its loss, on a tiny model.

Runs the files of docs/engines/verl.md in an empty folder. What is not verl's here: sampling (transformers in place of
vLLM) and the optimizer step.
"""

import os
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pages import block, judge_change, logprobs, make_model, overrides

os.environ["VERL_USE_EXTERNAL_MODULES"] = "text2grad.engines.verl"
folder = Path.cwd()
os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(__file__).parent)])
sys.path.insert(0, str(folder))

import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue as tq  # noqa: E402
from hydra import compose, initialize_config_module  # noqa: E402
from tensordict import NonTensorData, NonTensorStack, TensorDict  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from verl.trainer.ppo.core_algos import get_policy_loss_fn  # noqa: E402
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ  # noqa: E402
from verl.trainer.ppo.v1.trainer_base import PPOTrainer  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.workers.rollout.replica import TokenOutput  # noqa: E402

FIELDS = ["prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs"]


class Sampling:
    """What verl asks its LLM servers, answered by transformers."""

    def __init__(self, path: str) -> None:
        self.path, self.model = path, cast(Any, None)

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
        self.model = self.model or AutoModelForCausalLM.from_pretrained(self.path)
        torch.manual_seed(uuid.UUID(request_id).int % 2**31)
        options = {"max_new_tokens": 16, "do_sample": True, "top_k": 0, "return_dict_in_generate": True}
        made = self.model.generate(torch.tensor([prompt_ids]), output_logits=True, **options)
        ids = made.sequences[0, len(prompt_ids) :]
        taken = torch.cat(made.logits).log_softmax(-1).gather(1, ids[:, None])[:, 0]
        return TokenOutput(token_ids=ids.tolist(), log_probs=taken.tolist(), stop_reason="completed")


def sampled(config: Any, prompts: list[str]) -> tuple[list[str], Any]:
    """Keys and fields that a worker of verl's put into the queue."""
    worker = AgentLoopWorkerTQ.remote(config, Sampling(config.actor_rollout_ref.model.path))
    size = len(prompts)
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    batch = TensorDict({"index": torch.arange(size), "global_steps": torch.zeros(size, dtype=torch.long)}, size)
    batch["raw_prompt"] = NonTensorStack(*(NonTensorData(each) for each in turns))
    batch["uid"] = NonTensorStack(*(NonTensorData(f"prompt{place}") for place in range(size)))
    ray.get(worker.generate_sequences.remote(batch))
    for _ in range(600):
        listed = tq.kv_list(partition_id="train").get("train", {})
        if all(listed.get(f"prompt{place}", {}).get("status") in ("finished", "failure") for place in range(size)):
            break
        time.sleep(0.1)
    keys = sorted(key for key in listed if "_" in key)
    assert len(keys) == size * config.actor_rollout_ref.rollout.n, f"the worker gave {listed}"
    return keys, tq.kv_batch_get(keys=keys, partition_id="train", select_fields=FIELDS)


def main() -> None:
    make_model(folder / "model")
    (folder / "calm.py").write_text(block("verl", "python"))
    (folder / "agents.yaml").write_text(block("verl", "yaml"))
    words = [
        *overrides("verl", 1),
        "actor_rollout_ref.rollout.response_length=16",
        "actor_rollout_ref.rollout.name=vllm",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=words)
    config.actor_rollout_ref.model.path = str(folder / "model")
    config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(folder / "agents.yaml")
    ray.init(num_cpus=8, include_dashboard=False)  # logical ones: the queue takes two
    tq.init()
    keys, data = sampled(config, ["Name a river.", "Name a harbour."])
    for rewards, mask in zip(data["rm_scores"].unbind(), data["response_mask"].unbind(), strict=True):
        assert rewards.shape == mask.shape
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    rows = [{name: data[name][place] for name in data.keys()} for place in range(len(keys))]  # noqa: SIM118
    before = [logprobs(model, row["prompts"].tolist(), row["responses"].tolist()).detach() for row in rows]
    for row, now in zip(rows, before, strict=True):
        torch.testing.assert_close(now, row["rollout_log_probs"], rtol=1e-3, atol=1e-3)
    # What the actor's workers would put there; then the trainer's own method, on what is in the queue.
    old = TensorDict({"old_log_probs": torch.nested.as_nested_tensor(before, layout=torch.jagged)}, len(keys))
    meta = tq.kv_batch_put(keys=keys, partition_id="train", fields=old)
    PPOTrainer._compute_advantage(SimpleNamespace(config=config, kl_ctrl_in_reward=None), meta, {})
    learned = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["advantages"])["advantages"]
    rows = [row | {"advantages": learned[place]} for place, row in enumerate(rows)]
    print(
        f"{len(keys)} completions went through verl's worker and queue; advantages by {config.algorithm.adv_estimator}"
    )

    optimizer, loss_of = torch.optim.AdamW(model.parameters(), lr=1e-3), get_policy_loss_fn("vanilla")
    config.actor_rollout_ref.actor.ppo_mini_batch_size = len(keys)
    config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 1
    options = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    for _ in range(6):
        for row in rows:
            now = logprobs(model, row["prompts"].tolist(), row["responses"].tolist())[None]
            old, advantages, mask = (row[name][None] for name in ("rollout_log_probs", "advantages", "response_mask"))
            loss, _ = loss_of(old, now, advantages, mask, "token-mean", options)
            (loss / len(rows)).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = [logprobs(model, row["prompts"].tolist(), row["responses"].tolist()).detach() for row in rows]
    judge_change(
        (float(advantage.sign()), float(change))
        for row, first, last in zip(rows, before, after, strict=True)
        for advantage, change in zip(row["advantages"], last - first, strict=True)
    )


if __name__ == "__main__":
    main()
