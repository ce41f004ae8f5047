"""The update of a reward model: one mean a part, however it is cut up; what does not count moves nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.models.reward.made import rows, untrained
from text2grad.feedback.labels import label_tokens
from text2grad.models.reward.model import RewardModel, label_batch
from text2grad.optim.batch import Batch, collate_ids
from text2grad.optim.labels import LabelBatch, LossWeights, counts_of, reward_update

WEIGHTS = LossWeights(1.0, 0.5, 0.25)


def batched(model: RewardModel, tokenizer: Any, *, without: Sequence[int] = ()) -> tuple[Batch, LabelBatch]:
    """Eight completions; the critiques of those in `without` do not fit."""
    reader, encoded, critiques, labels = model.reader(tokenizer), [], [], []
    for row in rows(8):
        encoded.append(reader.encode(row.prompt, row.completion))
        labels.append(label_tokens(row.critique, row.alignment, encoded[-1].offsets, "verdicts"))
        written = reader.critique_ids(row.critique, row.alignment, row.completion)
        assert written is not None
        critiques.append(written)
    weights = [[float(number not in without)] * len(ids) for number, ids in enumerate(critiques)]
    batch = collate_ids([text.ids for text in encoded], critiques, loss_weights=weights)
    return batch, label_batch(encoded, "cpu", labels)


def numbers_of(labels: LabelBatch) -> list[tuple[int, int, float]]:
    """(position, verdict, reward) of each label."""
    assert labels.verdict_N is not None and labels.reward_N is not None
    streams = (labels.position_N, labels.verdict_N, labels.reward_N)
    return list(zip(*(stream.tolist() for stream in streams), strict=True))


def gradients(model: RewardModel, batch: Batch, labels: LabelBatch, weights: LossWeights = WEIGHTS) -> dict[str, Any]:
    model.zero_grad()
    model(batch, labels, weights.over(counts_of(batch, labels))).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def test_each_part_is_a_mean_over_its_own_tokens() -> None:
    """Against transformers' logits and torch's own losses, a row at a time."""
    model, tokenizer = untrained()
    model.class_weights_3.copy_(torch.tensor([2.0, 0.5, 1.5]))
    batch, labels = batched(model, tokenizer, without=[1])
    parts: dict[str, list[float]] = {"span": [], "reward": [], "language": []}
    for row in range(8):
        begin, length = int(batch.prompt_B[row]), int(batch.lengths_B[row])
        ids = batch.ids_BS[row : row + 1, : begin + length]
        with torch.no_grad():
            out = model.base(input_ids=ids, output_hidden_states=True)
        logprobs = out.logits[0, begin - 1 : -1].log_softmax(-1).gather(1, ids[0, begin:, None])
        parts["language"] += [] if row == 1 else (-logprobs[:, 0]).tolist()
        mine = labels.rows(torch.tensor([row]))
        for place, verdict, reward in numbers_of(mine):
            numbers = model.span_head(out.hidden_states[-1][0, place]).detach()
            weight = [2.0, 0.5, 1.5][verdict]
            parts["span"].append(-weight * float(numbers[:3].log_softmax(-1)[verdict]))
            if verdict != 1:
                found = torch.nn.functional.softplus(numbers[3 if verdict == 0 else 4])
                parts["reward"].append(float(torch.nn.functional.smooth_l1_loss(found, torch.tensor(abs(reward)))))
    wanted = {name: sum(values) / len(values) for name, values in parts.items()}
    weighed = WEIGHTS.over(counts_of(batch, labels))
    assert len({len(values) for values in parts.values()}) == 3, "else they could be taken for one another"
    joint = wanted["span"] + 0.5 * wanted["reward"] + 0.25 * wanted["language"]
    assert float(model(batch, labels, weighed).loss.detach()) == pytest.approx(joint, abs=1e-5), "what gradients are of"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    losses = reward_update(model, optimizer, batch, labels, WEIGHTS, micro_batch=3, max_grad_norm=1.0)
    for name, value in wanted.items():
        assert losses[f"loss/{name}"] == pytest.approx(value, abs=1e-5), name
    assert losses["loss/joint"] == pytest.approx(joint, abs=1e-5)
    assert losses["update/skipped"] == 0 and losses["update/grad_norm"] > 0


def test_an_update_is_the_same_however_it_is_cut_up() -> None:
    weights = {}
    for size in (1, 8):
        model, tokenizer = untrained()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        reward_update(model, optimizer, *batched(model, tokenizer), WEIGHTS, micro_batch=size, max_grad_norm=9.0)
        weights[size] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    start = dict(untrained()[0].named_parameters())
    for name, weight in weights[1].items():
        torch.testing.assert_close(weight, weights[8][name], atol=1e-5, rtol=1e-5)
    assert any((weight - start[name]).abs().max() > 1e-3 for name, weight in weights[1].items())


def test_padding_moves_no_gradient() -> None:
    model, tokenizer = untrained()
    batch, labels = batched(model, tokenizer)
    before = gradients(model, batch, labels)
    total = (batch.prompt_B + batch.lengths_B)[:, None]
    padded = torch.arange(batch.ids_BS.shape[1]) >= total
    assert padded.any()
    batch.ids_BS[padded] = 7
    for name, gradient in gradients(model, batch, labels).items():
        torch.testing.assert_close(gradient, before[name])


def test_tokens_of_the_prompt_are_read_and_never_predicted() -> None:
    """With the language loss alone, the last hidden state gets a gradient where the critique is written, nowhere
    else; with the span loss alone, at the second reading and where the critique begins."""
    model, tokenizer = untrained()
    batch, labels = batched(model, tokenizer)
    kept: list[Any] = []

    def keep(_module: Any, _given: Any, out: Any) -> None:
        out.last_hidden_state.retain_grad()
        kept.append(out.last_hidden_state)

    model.base.base_model.register_forward_hook(keep)
    for weights, (row_N, position_N) in (
        (LossWeights(0.0, 0.0, 1.0), batch.where()[:2]),
        (LossWeights(1.0, 1.0, 0.0), (labels.row_N, labels.position_N)),
    ):
        gradients(model, batch, labels, weights)
        touched = (kept[-1].grad != 0).any(-1)
        wanted = torch.zeros_like(touched)
        wanted[row_N, position_N] = True
        assert torch.equal(touched, wanted)


def test_a_critique_that_had_no_room_counts_nothing() -> None:
    model, tokenizer = untrained()
    batch, labels = batched(model, tokenizer, without=[0, 3])
    assert counts_of(batch, labels)[2] == sum(int(n) for row, n in enumerate(batch.lengths_B) if row not in (0, 3))
    before = gradients(model, batch, labels, LossWeights(0.0, 0.0, 1.0))
    for row in (0, 3):
        batch.ids_BS[row, batch.prompt_B[row] : batch.prompt_B[row] + batch.lengths_B[row]] = 5
    for name, gradient in gradients(model, batch, labels, LossWeights(0.0, 0.0, 1.0)).items():
        torch.testing.assert_close(gradient, before[name])
    nothing = batched(model, tokenizer, without=range(8))
    assert model(*nothing, WEIGHTS.over(counts_of(*nothing))).sums_3[2] == 0


def test_gradients_that_are_not_finite_are_not_applied() -> None:
    model, tokenizer = untrained()
    batch, labels = batched(model, tokenizer)
    assert labels.verdict_N is not None and labels.reward_N is not None
    labels.reward_N[0] = float("inf")
    labels.verdict_N[0] = 2
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.span_head.linear.weight[4] = float("inf")
    found = reward_update(model, optimizer, batch, labels, WEIGHTS, micro_batch=8, max_grad_norm=1.0)
    assert found["update/skipped"] == 1 and found["update/grad_norm"] == 0
    for name, weight in model.named_parameters():
        assert name == "span_head.linear.weight" or torch.equal(weight, before[name])
