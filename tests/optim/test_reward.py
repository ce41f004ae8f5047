"""The update of a reward model: one mean a part, however it is cut up; what does not count moves nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from text2grad.feedback.lessons import lesson_of
from text2grad.optim.reward import Weighing, counts_of, reward_update
from text2grad.optim.spans import Marks, collate_marks

from tests.models.reward.made import rows, untrained
from text2grad.models.reward.model import RewardModel
from text2grad.optim.batch import Batch, collate
from text2grad.types import Rollout

WEIGHING = Weighing(1.0, 0.5, 0.25)


def batched(model: RewardModel, tokenizer: Any, *, without: Sequence[int] = ()) -> tuple[Batch, Marks]:
    """Eight completions; those in `without` had no room for their critique."""
    reader, rollouts, places, lessons = model.reader(tokenizer), [], [], []
    for number, row in enumerate(rows(8)):
        encoded = reader.encode(row.prompt, row.completion)
        lessons.append(lesson_of(row.critique, row.alignment, encoded.offsets, "verdicts", 0.0))
        written = reader.critique_ids(row.critique, row.alignment, row.completion)
        assert written is not None
        counts = (float(number not in without),) * len(written)
        rollouts.append(Rollout(encoded.ids, written, logprobs=(0.0,) * len(written), token_rewards=counts))
        places.append(encoded.positions)
    verdicts, worths = [one.verdicts.tolist() for one in lessons], [one.worths.tolist() for one in lessons]
    return collate(rollouts), collate_marks(places, verdicts, worths)


def gradients(model: RewardModel, batch: Batch, marks: Marks, weighing: Weighing = WEIGHING) -> dict[str, Any]:
    model.zero_grad()
    model(batch, marks, weighing.over(counts_of(batch, marks))).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def test_each_part_is_a_mean_over_its_own_tokens() -> None:
    """Against transformers' logits and torch's own losses, a row at a time."""
    model, tokenizer = untrained()
    model.class_weights_3.copy_(torch.tensor([2.0, 0.5, 1.5]))
    batch, marks = batched(model, tokenizer, without=[1])
    parts: dict[str, list[float]] = {"span": [], "worth": [], "language": []}
    for row in range(8):
        begin, length = int(batch.prompt_B[row]), int(batch.lengths_B[row])
        ids = batch.ids_BS[row : row + 1, : begin + length]
        with torch.no_grad():
            out = model.base(input_ids=ids, output_hidden_states=True)
        logprobs = out.logits[0, begin - 1 : -1].log_softmax(-1).gather(1, ids[0, begin:, None])
        parts["language"] += [] if row == 1 else (-logprobs[:, 0]).tolist()
        for place in range(int(marks.mask_BL[row].sum())):
            numbers = model.span_head(out.hidden_states[-1][0, marks.position_BL[row, place]]).detach()
            verdict = int(marks.verdict_BL[row, place])
            weight = [2.0, 0.5, 1.5][verdict]
            parts["span"].append(-weight * float(numbers[:3].log_softmax(-1)[verdict]))
            if verdict != 1:
                found = torch.nn.functional.softplus(numbers[3 if verdict == 0 else 4])
                parts["worth"].append(float(torch.nn.functional.smooth_l1_loss(found, marks.worth_BL[row, place])))
    wanted = {name: sum(values) / len(values) for name, values in parts.items()}
    weighed = WEIGHING.over(counts_of(batch, marks))
    assert len({len(values) for values in parts.values()}) == 3, "else they could be taken for one another"
    joint = wanted["span"] + 0.5 * wanted["worth"] + 0.25 * wanted["language"]
    assert float(model(batch, marks, weighed).loss.detach()) == pytest.approx(joint, abs=1e-5), "what gradients are of"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    losses = reward_update(model, optimizer, batch, marks, WEIGHING, micro_batch=3, max_grad_norm=1.0)
    for name, value in wanted.items():
        assert losses[f"loss/{name}"] == pytest.approx(value, abs=1e-5), name
    assert losses["loss/joint"] == pytest.approx(joint, abs=1e-5)
    assert losses["update/skipped"] == 0 and losses["update/grad_norm"] > 0


def test_an_update_is_the_same_however_it_is_cut_up() -> None:
    weights = {}
    for size in (1, 8):
        model, tokenizer = untrained()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        reward_update(model, optimizer, *batched(model, tokenizer), WEIGHING, micro_batch=size, max_grad_norm=9.0)
        weights[size] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    start = dict(untrained()[0].named_parameters())
    for name, weight in weights[1].items():
        torch.testing.assert_close(weight, weights[8][name], atol=1e-5, rtol=1e-5)
    assert any((weight - start[name]).abs().max() > 1e-3 for name, weight in weights[1].items())


def test_padding_moves_no_gradient() -> None:
    model, tokenizer = untrained()
    batch, marks = batched(model, tokenizer)
    before = gradients(model, batch, marks)
    total = (batch.prompt_B + batch.lengths_B)[:, None]
    padded = torch.arange(batch.ids_BS.shape[1]) >= total
    assert padded.any() and not marks.mask_BL.all()
    batch.ids_BS[padded] = 7
    marks.verdict_BL[~marks.mask_BL] = 2
    marks.worth_BL[~marks.mask_BL] = 9.0
    marks.position_BL[~marks.mask_BL] = 1
    for name, gradient in gradients(model, batch, marks).items():
        torch.testing.assert_close(gradient, before[name])


def test_tokens_of_the_prompt_are_read_and_never_predicted() -> None:
    """With the language loss alone, the last hidden state gets a gradient where the critique is written, nowhere
    else; with the span loss alone, at the second reading and where the critique begins."""
    model, tokenizer = untrained()
    batch, marks = batched(model, tokenizer)
    kept: list[Any] = []

    def keep(_module: Any, _given: Any, out: Any) -> None:
        out.last_hidden_state.retain_grad()
        kept.append(out.last_hidden_state)

    model.base.base_model.register_forward_hook(keep)
    for weighing, (row_N, position_N) in (
        (Weighing(0.0, 0.0, 1.0), batch.where()[:2]),
        (Weighing(1.0, 1.0, 0.0), marks.where()),
    ):
        gradients(model, batch, marks, weighing)
        touched = (kept[-1].grad != 0).any(-1)
        wanted = torch.zeros_like(touched)
        wanted[row_N, position_N] = True
        assert torch.equal(touched, wanted)


def test_a_critique_that_had_no_room_counts_nothing() -> None:
    model, tokenizer = untrained()
    batch, marks = batched(model, tokenizer, without=[0, 3])
    assert counts_of(batch, marks)[2] == sum(int(n) for row, n in enumerate(batch.lengths_B) if row not in (0, 3))
    before = gradients(model, batch, marks, Weighing(0.0, 0.0, 1.0))
    for row in (0, 3):
        batch.ids_BS[row, batch.prompt_B[row] : batch.prompt_B[row] + batch.lengths_B[row]] = 5
    for name, gradient in gradients(model, batch, marks, Weighing(0.0, 0.0, 1.0)).items():
        torch.testing.assert_close(gradient, before[name])
    nothing = batched(model, tokenizer, without=range(8))
    assert model(*nothing, WEIGHING.over(counts_of(*nothing))).sums_3[2] == 0


def test_gradients_that_are_not_finite_are_not_applied() -> None:
    model, tokenizer = untrained()
    batch, marks = batched(model, tokenizer)
    marks.worth_BL[0, 0] = float("inf")
    marks.verdict_BL[0, 0] = 2
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.span_head.linear.weight[4] = float("inf")
    found = reward_update(model, optimizer, batch, marks, WEIGHING, micro_batch=8, max_grad_norm=1.0)
    assert found["update/skipped"] == 1 and found["update/grad_norm"] == 0
    for name, weight in model.named_parameters():
        assert name == "span_head.linear.weight" or torch.equal(weight, before[name])
