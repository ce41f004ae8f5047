"""Both samplers against the model itself: `generate`, a fresh pass, and each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.sampling import makers
from tests.models.sampling.makers import END, KINDS, PAD, build, some_prompts, some_uniforms, with_lora
from text2grad.errors import ConfigError, InvalidData
from text2grad.models.sampling import ModelSampler, Sampled, SamplingSettings

SAMPLERS = ("plain", "fast")
LENGTHS = (5, 1, 17, 5, 9, 30, 2)


def make(
    model: Any, sampler: str, *, end_ids: Sequence[int] = (END,), value_head: Any = None, **fields: Any
) -> ModelSampler:
    chosen: dict[str, Any] = {"sampler": sampler, "max_new_tokens": 12, "batch": 4} | fields
    return ModelSampler(model, SamplingSettings(**chosen), end_ids=end_ids, pad_id=PAD, value_head=value_head)


def assert_greedy(model: Any, prompts: list[list[int]], completions: list[Sampled], new_tokens: int) -> None:
    decided = 0
    for prompt, completion in zip(prompts, completions, strict=True):
        expected = makers.generated(model, prompt, new_tokens)
        length = makers.up_to_a_tie(model, prompt, expected)
        assert completion.token_ids[:length] == tuple(expected[:length])
        if length == len(expected):
            assert completion.truncated == (END not in expected)
            assert len(completion.token_ids) == len(expected)
        decided += length
    assert decided > 0


def assert_fresh(
    model: Any, prompts: list[list[int]], completions: list[Sampled], temperature: float = 1.0, within: float = 1e-4
) -> None:
    for prompt, completion in zip(prompts, completions, strict=True):
        logits_TV = makers.fresh_logits(model, prompt, completion.token_ids)
        ids_T1 = torch.tensor(completion.token_ids, device=logits_TV.device)[:, None]
        expected = torch.log_softmax(logits_TV / temperature, -1).gather(1, ids_T1).squeeze(1)
        assert completion.logprobs == pytest.approx(expected.tolist(), abs=within)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_generate_token_for_token(kind: str, sampler: str) -> None:
    model, prompts = build(kind), some_prompts(LENGTHS)
    completions = make(model, sampler)(prompts, None)
    assert_greedy(model, prompts, completions, 12)
    assert_fresh(model, prompts, completions)


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9),
    batch=st.integers(1, 5),
    kind=st.sampled_from(["llama-gqa-tied", "qwen2-untied"]),
)
def test_greedy_is_generate_for_any_lengths(lengths: list[int], batch: int, kind: str, sampler: str) -> None:
    model, prompts = build(kind), some_prompts(lengths, seed=len(lengths))
    completions = make(model, sampler, batch=batch, max_new_tokens=6)(prompts, None)
    assert_greedy(model, prompts, completions, 6)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", ["llama-gqa-tied", "qwen2-untied"])
def test_with_an_adapter_on_and_off(kind: str, sampler: str) -> None:
    model, prompts = with_lora(build(kind)), some_prompts(LENGTHS)
    draw = make(model, sampler)
    on = draw(prompts, None)
    assert_greedy(model, prompts, on, 12)
    assert_fresh(model, prompts, on)
    with model.disable_adapter():
        off = draw(prompts, None)
        assert_greedy(model, prompts, off, 12)
    assert_fresh(build(kind), prompts, off)
    assert on != off
    assert draw(prompts, None) == on


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.6])
def test_sampled_logprobs_are_those_of_a_fresh_pass(temperature: float, sampler: str) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    uniforms = some_uniforms(len(prompts), 12)
    completions = make(model, sampler, temperature=temperature)(prompts, uniforms)
    assert_fresh(model, prompts, completions, temperature)
    for prompt, completion, row in zip(prompts, completions, uniforms, strict=True):
        probs_TV = torch.softmax(makers.fresh_logits(model, prompt, completion.token_ids) / temperature, -1)
        above = probs_TV.cumsum(-1).gather(1, torch.tensor(completion.token_ids)[:, None]).squeeze(1)
        below = above - torch.tensor(completion.logprobs).exp()
        number = torch.from_numpy(row[: len(completion.token_ids)])
        assert bool(((below - 1e-4 <= number) & (number <= above + 1e-4)).all())


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("adapted", [False, True])
def test_values_are_those_of_a_fresh_pass(adapted: bool, sampler: str) -> None:
    model, prompts = build("qwen2-tied"), some_prompts(LENGTHS)
    model = with_lora(model) if adapted else model
    head = makers.ValueHead(48)
    completions = make(model, sampler, value_head=head)(prompts, some_uniforms(len(prompts), 12))
    for prompt, completion in zip(prompts, completions, strict=True):
        expected = head(makers.fresh_hidden(model, prompt, completion.token_ids)).squeeze(-1)
        assert completion.values == pytest.approx(expected.tolist(), abs=1e-4)
    assert make(model, sampler)(prompts, None)[0].values is None


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=15)
@given(order=st.permutations(range(9)), batch=st.integers(1, 9))
def test_the_same_numbers_give_the_same_ids_whatever_the_batch(order: list[int], batch: int, sampler: str) -> None:
    model = build("llama-gqa-tied")
    # Four prompts stand twice or three times: groups.
    prompts = [*some_prompts((4, 11, 7)), *some_prompts((4, 11, 7)), *some_prompts((4, 20, 3))]
    uniforms = some_uniforms(9, 12)
    alone = [make(model, sampler)([prompt], uniforms[row : row + 1])[0] for row, prompt in enumerate(prompts)]
    mixed = make(model, sampler, batch=batch)([prompts[row] for row in order], uniforms[order])
    for row, completion in zip(order, mixed, strict=True):
        same_until_a_tie(model, prompts[row], alone[row], completion, uniforms[row])


def same_until_a_tie(model: Any, prompt: list[int], one: Sampled, other: Sampled, numbers: Any) -> None:
    """Equal; or parted where the number lay on the border of two ids, to rounding."""
    pairs = zip(one.token_ids, other.token_ids, strict=False)
    parted = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
    if parted is None:
        assert len(one.token_ids) == len(other.token_ids)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        return
    probs_V = torch.softmax(makers.fresh_logits(model, prompt, one.token_ids)[parted], -1)
    assert (probs_V.cumsum(-1) - numbers[parted]).abs().min() < 1e-5


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("adapted", [False, True])
def test_weights_are_never_stale(adapted: bool, sampler: str) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    model = with_lora(model) if adapted else model
    draw = make(model, sampler)
    before = draw(prompts, None)
    words = ("lora_A", "lora_B") if adapted else ("q_proj", "up_proj", "down_proj", "embed_tokens", "norm")
    for word in words:
        for name, parameter in model.named_parameters():
            if word in name:
                parameter.data.mul_(1.3).add_(0.01)
        after = draw(prompts, None)
        assert [c.logprobs for c in after] != [c.logprobs for c in before]
        assert_fresh(model, prompts, after)
        before = after
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.1  # elsewhere in memory
    assert_fresh(model, prompts, draw(prompts, None))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_model_is_left_as_it_was(sampler: str) -> None:
    model, prompts = with_lora(build("llama-gqa-tied")).train(), some_prompts((3, 5))
    model.base_model.model.model.norm.eval()
    modes = [module.training for module in model.modules()]
    first = make(model, sampler)(prompts, some_uniforms(2, 12))
    assert [module.training for module in model.modules()] == modes
    assert first == make(model, sampler)(prompts, some_uniforms(2, 12)), "dropout is off while sampling"
    model(torch.tensor([prompts[0]]), labels=torch.tensor([prompts[0]])).loss.backward()
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if "lora_B" in name)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_id_that_ends_ends(sampler: str) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    free = make(model, sampler, end_ids=())(prompts, None)
    assert all(completion.truncated and len(completion.token_ids) == 12 for completion in free)
    ends = {completion.token_ids[place] for completion, place in zip(free, (0, 3, 11, 5, 1, 0, 7), strict=True)}
    for completion, whole in zip(make(model, sampler, end_ids=sorted(ends))(prompts, None), free, strict=True):
        first = next(place for place, token in enumerate(whole.token_ids) if token in ends)
        assert completion.token_ids == whole.token_ids[: first + 1]
        assert completion.logprobs == pytest.approx(whole.logprobs[: first + 1], abs=1e-4)
        assert not completion.truncated


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_all_rows_end_at_once(sampler: str) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    completions = make(model, sampler, end_ids=range(makers.VOCABULARY))(prompts, None)
    assert [len(completion.token_ids) for completion in completions] == [1] * len(prompts)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_new_token(sampler: str) -> None:
    model, prompts = build("qwen2-tied"), some_prompts(LENGTHS)
    completions = make(model, sampler, max_new_tokens=1)(prompts, None)
    assert_greedy(model, prompts, completions, 1)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_cannot_be_sampled_is_refused_with_advice(sampler: str) -> None:
    draw = make(build("llama-gqa-tied"), sampler)
    assert draw([], None) == []
    assert draw([], some_uniforms(0, 12)) == []
    with pytest.raises(InvalidData, match=r"prompt 1 is empty.*begin-of-text"):
        draw([[5], []], None)
    with pytest.raises(InvalidData, match=r"prompt 0 has 245 tokens.*256 positions.*lower max_new_tokens"):
        draw(some_prompts([245]), None)
    with pytest.raises(InvalidData, match=r"shape \(1, 12\).*got \(1, 11\)"):
        draw([[5]], some_uniforms(1, 11))
    for strange in (-1, makers.VOCABULARY):
        with pytest.raises(InvalidData, match=r"prompt 1 should hold ids from 0 to 299.*tokenizer"):
            draw([[5], [5, strange]], None)
        with pytest.raises(InvalidData, match="pad_id should be an id that the model reads"):
            ModelSampler(build("llama-gqa-tied"), SamplingSettings(), end_ids=[END], pad_id=strange)
    assert len(draw(some_prompts([244]), None)[0].token_ids) <= 12


@pytest.mark.parametrize("field", [{"temperature": 0.0}, {"max_new_tokens": 0}, {"batch": 0}])
def test_settings_that_make_no_sense_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SamplingSettings(**field)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_follow_the_model(sampler: str) -> None:
    """The first id of 4000 completions: chi-square of the 20 likeliest and the rest; once in 1000 it is over 45.3."""
    model, prompt = build("llama-gqa-tied"), some_prompts([6])[0]
    numbers = some_uniforms(4000, 1, seed=5)
    drawn = make(model, sampler, max_new_tokens=1, batch=1000)([prompt] * 4000, numbers)
    probs_V = torch.softmax(makers.fresh_logits(model, prompt, [0])[0], -1)
    counts_V = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=len(probs_V))
    top = probs_V.topk(20).indices
    expected = np.append(probs_V[top], 1 - probs_V[top].sum()) * 4000
    counts = np.append(counts_V[top], 4000 - counts_V[top].sum())
    assert expected.min() > 5
    assert ((counts - expected) ** 2 / expected).sum() < 45.3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_completions_are_told_once_as_they_end_and_are_those_that_come_back(sampler: str) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts([5] * 8)
    one = make(model, sampler, end_ids=tuple(range(0, 300, 4)), batch=8, max_new_tokens=24)
    told: list[tuple[int, Sampled]] = []
    one.on_ended = lambda place, sampled: told.append((place, sampled))
    wanted = one(prompts, some_uniforms(8, 24))
    assert dict(told) == dict(enumerate(wanted)) and len(told) == 8
    shortest = min(range(8), key=lambda place: len(wanted[place].token_ids))
    lengths = [len(sampled.token_ids) for _, sampled in told]
    assert lengths[0] < lengths[-1] and len(wanted[shortest].token_ids) == min(lengths)
    one.on_ended = None
    assert one(prompts, some_uniforms(8, 24)) == wanted


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_where_memory_runs_out_nothing_is_sampled_or_told_twice(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three batches of four, the second runs out of memory when some of its rows were told already."""
    model, prompts = build("llama-gqa-tied"), some_prompts([5] * 12)
    one = make(model, sampler, end_ids=tuple(range(0, 300, 4)), batch="auto", max_new_tokens=24)
    one.batch = 4
    wanted, decode = one(prompts, some_uniforms(12, 24)), one.decoder.decode
    told: list[tuple[int, Sampled]] = []
    decoded: list[int] = []

    def limited(prompts: Any, draws: Any) -> Any:
        found = decode(prompts, draws)
        decoded.append(len(prompts))
        if len(decoded) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    monkeypatch.setattr(one.decoder, "decode", limited)
    one.on_ended = lambda place, sampled: told.append((place, sampled))
    found = one(prompts, some_uniforms(12, 24))
    assert [each.token_ids for each in found] == [each.token_ids for each in wanted]
    assert decoded == [4, 4, 2, 2, 2, 2] and one.batch == 2
    assert sorted(place for place, _ in told) == list(range(12))
    assert all(sampled.token_ids == found[place].token_ids for place, sampled in told)
