"""The fast sampler on a GPU, graphs and all: the same promises as on a CPU. `make test-gpu` runs these."""

from typing import Any

import pytest
import torch

from tests.models.sampling import makers
from tests.models.sampling.makers import END, build, some_prompts, some_uniforms, with_lora
from tests.models.sampling.test_samplers import LENGTHS, assert_fresh, assert_greedy, make
from text2grad.models.sampling.fast import ROWS, FastSampler

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def whole_numbers() -> Any:
    """float32 as on a CPU: products are otherwise allowed to be TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("kind", makers.KINDS)
def test_greedy_is_generate_token_for_token(kind: str) -> None:
    model, prompts = build(kind, device="cuda"), some_prompts(LENGTHS)
    assert_greedy(model, prompts, make(model, "fast")(prompts, None), 12)


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_graphs_are_replayed_from_call_to_call_with_the_weights_of_the_moment(batch: int) -> None:
    model = with_lora(build("llama-gqa-tied", device="cuda"))
    head = makers.ValueHead(48).cuda()
    sampler = make(model, "fast", batch=batch, max_new_tokens=90, value_head=head, end_ids=())
    assert isinstance(sampler, FastSampler)
    prompts = some_prompts(LENGTHS)
    for seed in range(3):
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.mul_(1.0 + 0.3 * seed)
        completions = sampler(prompts, some_uniforms(len(prompts), 90, seed))
        assert_fresh(model, prompts, completions, within=1e-3)
        for prompt, completion in zip(prompts, completions, strict=True):
            expected = head(makers.fresh_hidden(model, prompt, completion.token_ids)).squeeze(-1)
            assert completion.values == pytest.approx(expected.tolist(), abs=1e-3)
        assert sampler._static is not None
        replays = sampler._static[1]
        if seed == 0:
            first, graphs = replays, dict(replays._graphs)
            assert len(graphs) > 1, "more than one span of the cache"
        assert not replays._refused
        assert replays is first and replays._graphs == graphs, "captured once"
        assert replays.state.cache[0].shape[0] in (batch, ROWS)


def test_the_same_draws_as_on_a_cpu() -> None:
    prompts = [*some_prompts(LENGTHS), *some_prompts(LENGTHS)]
    uniforms = some_uniforms(len(prompts), 12)
    cpu = make(build("qwen2-tied"), "fast")(prompts, uniforms)
    gpu = make(build("qwen2-tied", device="cuda"), "fast")(prompts, uniforms)
    same = sum(one.token_ids == other.token_ids for one, other in zip(cpu, gpu, strict=True))
    assert same >= len(prompts) - 1, "one may part where its number lies on a border"


def test_rows_that_end_and_prompts_that_change_in_length() -> None:
    model = build("llama-mha-untied", device="cuda")
    sampler = make(model, "fast", max_new_tokens=40, batch=8)
    for lengths in (LENGTHS, (100, 3), (1,), LENGTHS * 3):
        prompts = some_prompts(lengths, seed=len(lengths))
        for completion in sampler(prompts, some_uniforms(len(prompts), 40)):
            assert (END in completion.token_ids) != completion.truncated
            assert END not in completion.token_ids[:-1]
        assert_greedy(model, prompts, sampler(prompts, None), 40)


def test_weights_that_move_in_memory_are_captured_anew() -> None:
    model, prompts = build("llama-gqa-tied", device="cuda"), some_prompts(LENGTHS)
    sampler = make(model, "fast")
    sampler(prompts, None)
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.2
    assert_fresh(model, prompts, sampler(prompts, None), within=1e-3)


def test_in_bfloat16_the_numbers_are_near() -> None:
    model, prompts = build("llama-gqa-tied", device="cuda").to(torch.bfloat16), some_prompts(LENGTHS)
    assert_fresh(model, prompts, make(model, "fast")(prompts, some_uniforms(len(prompts), 12)), within=0.3)
