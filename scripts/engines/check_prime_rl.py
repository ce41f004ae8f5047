"""prime-rl's own node class (`verifiers`) and our batch files agree on where the numbers of a row lie.

prime-rl itself is not on the package index. Its orchestrator keeps a rollout as nodes of `verifiers`, and spreads what
a node holds over its tokens; our file has to have the same streams.
"""

from pathlib import Path

import msgspec
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Branch
from verifiers.v1.types import AssistantMessage, UserMessage

from text2grad import TrainingRow
from text2grad.engines.prime_rl import FIELDS, write_step


def main() -> None:
    logprobs, rewards, advantages = (-0.5, 0.0, -0.25), (1.0, 0.0, -1.0), (1.5, 0.0, -0.5)
    row = TrainingRow("a", "0", (5, 6), (7, 8, 0), (1, 0, 1), logprobs, rewards, advantages=advantages)
    write_step("rollouts", 0, [row], seq_len=16)
    ((*streams,),) = msgspec.msgpack.decode(Path("rollouts/step_0/rank_0.bin").read_bytes())
    written = dict(zip(FIELDS, streams, strict=True))
    # A node holds numbers for its sampled tokens alone.
    sampled = [place for place, bit in enumerate(row.mask) if bit]
    asked = MessageNode(message=UserMessage(content="?"), token_ids=[5, 6], mask=[False, False])
    answered = MessageNode(
        parent=0,
        message=AssistantMessage(content="!"),
        sampled=True,
        token_ids=list(row.completion_ids),
        mask=[bool(bit) for bit in row.mask],
        logprobs=[logprobs[place] for place in sampled],
        advantages=[advantages[place] for place in sampled],
    )
    branch = Branch(index=0, nodes=[asked, answered])
    assert written["input_ids"] == branch.token_ids, (written, branch.token_ids)
    assert written["loss_mask"] == branch.sampled_mask
    assert written["inference_logprobs"] == branch.logprobs
    assert written["advantages"] == branch.advantages
    print("verifiers and our batch file agree: ids, mask, log-probs and advantages lie on the same tokens")


if __name__ == "__main__":
    main()
