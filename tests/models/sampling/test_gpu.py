"""The fast sampler on a GPU, graphs and all: the same promises as on a CPU. `make test-gpu` runs these."""

from typing import Any

import pytest
import torch

from tests.models.sampling import makers
from tests.models.sampling.makers import END, build, some_prompts, some_uniforms, with_lora
from tests.models.sampling.test_samplers import LENGTHS, assert_fresh, assert_greedy, make
from text2grad.models.sampling import SamplingSettings
from text2grad.models.sampling.fast import ROWS
from text2grad.models.sampling.plain import pick
from text2grad.models.sampling.steps import new_state
from text2grad.models.sampling.weights import Weights

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def whole_numbers() -> Any:
    """float32 as on a CPU: products are otherwise allowed to be TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture(params=["own kernels", "PyTorch's"])
def own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways of a step: by Triton, which torch brings along, and without it."""
    if request.param != "own kernels":
        monkeypatch.setattr("text2grad.models.sampling.fast.kernels_for", lambda _weights: None)
        return False
    pytest.importorskip("triton")
    return True


@pytest.mark.parametrize("kind", makers.KINDS)
def test_greedy_is_generate_token_for_token(kind: str, own: bool) -> None:
    model, prompts = build(kind, device="cuda"), some_prompts((*LENGTHS, 63, 64, 65, 130, 200))
    sampler = make(model, "fast")
    decoder: Any = sampler.decoder
    assert_greedy(model, prompts, sampler(prompts, None), 12)
    assert (decoder._kernels is not None) == own


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_graphs_are_replayed_from_call_to_call_with_the_weights_of_the_moment(batch: int, own: bool) -> None:
    model = with_lora(build("llama-gqa-tied", device="cuda"))
    head = makers.ValueHead(48).cuda()
    sampler = make(model, "fast", batch=batch, max_new_tokens=90, value_head=head, end_ids=())
    decoder: Any = sampler.decoder
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
        assert decoder._static is not None
        replays = decoder._static[1]
        if seed == 0:
            first, graphs = replays, dict(replays._graphs)
            assert (len(graphs) == 1) == own, "more than one span of the cache, where a step looks at a span"
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


@pytest.mark.parametrize("kind", ["llama-gqa-tied", "qwen2-tied"])
@pytest.mark.parametrize("batch", [3, 8, 64])
def test_rows_of_one_prompt_read_its_keys_from_one_row(kind: str, batch: int, own: bool) -> None:
    """Side by side, far from each other, and where a prompt's rows fall into two batches."""
    model, different = build(kind, device="cuda"), some_prompts((*LENGTHS, 65, 130))
    sampler = make(model, "fast", batch=batch, max_new_tokens=40, end_ids=())
    for prompts in ([prompt for prompt in different for _ in range(4)], different * 2, different):
        assert_fresh(model, prompts, sampler(prompts, some_uniforms(len(prompts), 40)), within=1e-3)
    assert (sampler.decoder._kernels is not None) == own  # type: ignore[union-attr]


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


@pytest.mark.parametrize("kind", makers.KINDS)
def test_in_bfloat16_the_numbers_are_near(kind: str, own: bool) -> None:
    model, prompts = build(kind, device="cuda").to(torch.bfloat16), some_prompts((*LENGTHS, 65, 130))
    sampler = make(model, "fast")
    decoder: Any = sampler.decoder
    assert_fresh(model, prompts, sampler(prompts, some_uniforms(len(prompts), 12)), within=0.3)
    assert (decoder._kernels is not None) == own


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("size", [300, 1024, 49_152])
def test_the_kernel_draws_what_pick_draws(size: int, temperature: float) -> None:
    kernels = pytest.importorskip("text2grad.models.sampling.kernels")
    weights = Weights(build("llama-gqa-tied", device="cuda"))
    weights.sync()
    rows = 500
    settings = SamplingSettings(max_new_tokens=2, temperature=temperature)
    state = new_state(weights, settings, [5], 7, rows=rows, places=1)
    logits = 3 * torch.randn(rows, size, generator=torch.Generator().manual_seed(0)).cuda()
    logits[0] = logits[1] = -torch.inf
    logits[0, size - 1] = logits[1, 3] = logits[1, 200] = 1.0
    logits[2] = 1.0
    state.uniform_BT.copy_(torch.from_numpy(some_uniforms(rows, 2)))
    state.uniform_BT[0] = 1 - 2**-24
    state.finished_B[-3:] = True
    for greedy in (True, False):
        ids_B, logprobs_B = pick(logits, None if greedy else state.uniform_BT[:, 1], temperature)
        for tensor, value in ((state.step_1, 1), (state.lengths_B, 4)):
            tensor.fill_(value)
        finished_B = state.finished_B.clone()
        kernels.draw(logits, state, greedy)
        assert (state.ids_B[:-3] == ids_B[:-3]).sum() >= rows - 3 - (0 if greedy else 2), "but for borders"
        same_B = (state.ids_B == ids_B) & ~finished_B
        assert (state.logprobs_BT[:, 1] - logprobs_B)[same_B].abs().max() < 1e-5
        assert state.ids_B[-3:].tolist() == [7] * 3
        assert torch.equal(state.ids_BT[:, 1], state.ids_B)
        assert torch.equal(state.lengths_B, torch.where(finished_B, 4, 5))
        assert torch.equal(state.finished_B, finished_B | (state.ids_B == 5))
        state.finished_B.copy_(finished_B)
