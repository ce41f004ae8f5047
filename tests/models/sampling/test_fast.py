"""What only the fast sampler promises: when it steps back, what it shares and copies, how little it pads."""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.models.sampling import makers
from tests.models.sampling.makers import END, PAD, build, some_prompts, some_uniforms, with_lora
from tests.models.sampling.test_samplers import LENGTHS, assert_fresh, assert_greedy, make
from text2grad.errors import UnsupportedModel
from text2grad.models import products
from text2grad.models.sampling import ModelSampler, SamplingSettings, sampler_for
from text2grad.models.sampling.fast import GROWTH, SLACK, FastDecoder, alike
from text2grad.models.sampling.steps import DecodingState, Replays, advance, emit, logits_of, new_state, prefill, step
from text2grad.models.sampling.weights import Weights


def fast(model: Any, **fields: Any) -> ModelSampler:
    sampler = make(model, "fast", **fields)
    assert isinstance(sampler.decoder, FastDecoder)
    return sampler


def unknown_models() -> Iterator[tuple[str, Any, str]]:
    from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

    small = {"vocab_size": makers.VOCABULARY, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    yield "another kind", GPT2LMHeadModel(GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=4)), "gpt2"
    window = MistralConfig(**small, intermediate_size=64, num_key_value_heads=2, sliding_window=8)
    yield "a window", MistralForCausalLM(window), "sliding window"
    dynamic = build("llama-gqa-tied")
    dynamic.model.rotary_emb.rope_type = "dynamic"
    yield "angles of the length", dynamic, "'dynamic'"
    lied = build("llama-gqa-tied")
    lied.model.layers[1].self_attn.scaling = 0.01
    yield "other numbers", lied, "logits come out different"


@pytest.mark.parametrize("model, reason", [pytest.param(m, why, id=name) for name, m, why in unknown_models()])
def test_an_unknown_model_is_sampled_plainly_with_one_line(
    model: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = some_prompts((3, 5))
    settings = SamplingSettings(max_new_tokens=4)
    with caplog.at_level(logging.WARNING, "text2grad"):
        sampler = ModelSampler(model.eval(), settings, end_ids=[END], pad_id=PAD)
        first = sampler(prompts, some_uniforms(2, 4))
        assert sampler(prompts, some_uniforms(2, 4)) == first
    assert_fresh(model, prompts, first)
    (line,) = caplog.messages
    assert "plain sampler" in line and reason in line
    with pytest.raises(UnsupportedModel, match=reason):
        ModelSampler(model, SamplingSettings(sampler="fast"), end_ids=[END], pad_id=PAD)(prompts, None)


def test_a_known_model_is_sampled_fast_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    model, prompts = build("qwen2-tied"), some_prompts((3, 5))
    settings = SamplingSettings(max_new_tokens=4)
    with caplog.at_level(logging.DEBUG, "text2grad"):
        sampler = ModelSampler(model, settings, end_ids=[END], pad_id=PAD)
        assert sampler(prompts, None) == make(model, "fast", max_new_tokens=4)(prompts, None)
    assert caplog.messages == []


@pytest.mark.parametrize("option, reason", [({"use_dora": True}, "DoRA"), ({"lora_bias": True}, "bias")])
def test_adapters_of_other_kinds_are_not_merged_wrongly(option: dict[str, bool], reason: str) -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(build("llama-biases"), LoraConfig(r=2, target_modules=["q_proj", "down_proj"], **option))
    with pytest.raises(UnsupportedModel, match=reason):
        fast(model)(some_prompts((3,)), None)


@pytest.mark.parametrize(
    "multiplies, precision, wanted",
    [(True, "bfloat16", "bfloat16"), (False, "bfloat16", "float32"), (True, "float32", "float32")],
)
def test_a_run_in_bf16_samples_in_it_where_the_processor_multiplies_it(
    multiplies: bool, precision: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "multiplies_bf16", lambda: multiplies)
    model, prompts = build("llama-gqa-tied"), some_prompts((3, 5))
    policy = SimpleNamespace(model=model, value_head=None, options=SimpleNamespace(precision=precision))
    sampler = sampler_for(policy, SamplingSettings(max_new_tokens=4), end_ids=[END], pad_id=PAD)
    assert isinstance(sampler, ModelSampler)
    assert_fresh(model, prompts, sampler(prompts, some_uniforms(2, 4)), within=0.3)
    assert isinstance(sampler.decoder, FastDecoder) and sampler.decoder.weights.dtype == getattr(torch, wanted)


def test_a_merged_adapter_counts_once() -> None:
    model, prompts = with_lora(build("llama-gqa-tied")), some_prompts(LENGTHS)
    model.base_model.merge_adapter()
    completions = fast(model)(prompts, None)
    assert_fresh(model, prompts, completions)


def test_two_adapters_and_the_one_that_is_active() -> None:
    from peft import LoraConfig

    model, prompts = with_lora(build("llama-mha-untied")), some_prompts(LENGTHS)
    model.add_adapter(
        "other", LoraConfig(r=2, target_modules=["k_proj", "gate_proj", "lm_head"], init_lora_weights=False)
    )
    sampler = fast(model)
    one = sampler(prompts, None)
    model.set_adapter("other")
    other = sampler(prompts, None)
    assert one != other
    assert_fresh(model, prompts, other)
    model.base_model.set_adapter(["default", "other"])
    assert_fresh(model, prompts, sampler(prompts, None))


def test_only_what_is_fused_is_copied() -> None:
    model = build("llama-gqa-tied")
    weights = Weights(model)
    weights.sync()
    first = weights.layers[0]
    assert first.down.data_ptr() == model.model.layers[0].mlp.down_proj.weight.data_ptr()
    assert weights.head.data_ptr() == weights.embed.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    version, place = weights.version, first.qkv.data_ptr()
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.add_(1.0)
    weights.sync()
    assert (weights.version, weights.layers[0].qkv.data_ptr()) == (version, place), "a captured graph stays valid"
    assert torch.equal(weights.layers[0].qkv[-24:], model.model.layers[0].self_attn.v_proj.weight)
    model.model.norm.weight.data = model.model.norm.weight.data.clone()
    weights.sync()
    assert weights.version == version + 1, "it lies elsewhere: what was captured is not valid any more"


def test_a_model_whose_numbers_change_is_read_anew() -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    sampler = fast(model)
    sampler(prompts, None)
    model.double()
    assert_greedy(model, prompts, sampler(prompts, None), 12)
    decoder: Any = sampler.decoder
    weights = decoder.weights
    assert weights.layers[0].qkv.dtype == weights.rope(8)[0].dtype == torch.float64


def test_the_very_steps_that_a_graph_captures() -> None:
    """Rows filled up, a span beyond the need, state used twice: as on a GPU, by numbers."""
    model, prompts = build("qwen2-untied"), [*some_prompts((3, 6)), *some_prompts((3, 6))[1:]]
    weights = Weights(model)
    weights.sync()
    settings = SamplingSettings(max_new_tokens=4, temperature=0.8)
    state = new_state(weights, settings, [], PAD, rows=5, places=64)
    for seed in (0, 1):
        uniform = torch.from_numpy(some_uniforms(3, 4, seed))
        with torch.inference_mode():
            for tensor in state.moving():
                tensor.zero_()
            state.finished_B[3:] = True
            state.uniform_BT[:3] = uniform
            ids_UP = torch.tensor([[*prompts[0], 0, 0, 0], prompts[1]])
            hidden = prefill(weights, state, ids_UP, torch.tensor([3, 6]), torch.tensor([0, 1, 1]), 0)
            emit(weights, state, torch.cat([hidden, hidden.new_zeros(2, 48)]), greedy=False)
            for _ in range(3):
                step(weights, state, 32, greedy=False)
        assert state.lengths_B.tolist() == [4, 4, 4, 0, 0]
        assert state.position_B.tolist() == [6, 9, 9, 3, 3]
        assert set(state.ids_BT[3:].flatten().tolist()) == {PAD}
        for row, prompt in enumerate(prompts):
            expected = make(model, "plain", max_new_tokens=4, temperature=0.8, end_ids=())(
                [prompt], uniform[row : row + 1].numpy()
            )
            assert tuple(state.ids_BT[row].tolist()) == expected[0].token_ids
            assert state.logprobs_BT[row].tolist() == pytest.approx(expected[0].logprobs, abs=1e-4)


class Uncaptured:
    """In place of captured steps, for want of a GPU: the same steps, run as they are."""

    made = 0

    def __init__(self, weights: Weights, state: DecodingState) -> None:
        self.weights, self.state = weights, state
        self.spans: set[int] = set()
        Uncaptured.made += 1

    def __call__(self, span: int, greedy: bool) -> None:
        self.spans.add(span)
        step(self.weights, self.state, span, greedy)


def test_what_is_done_around_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """State kept from call to call, rows filled up, spans in steps: all of the way on a GPU but the capturing."""
    monkeypatch.setattr("text2grad.models.sampling.fast.Replays", Uncaptured)
    monkeypatch.setattr(FastDecoder, "replays", True)
    model, head = build("llama-gqa-tied"), makers.ValueHead(48)
    sampler = fast(model, batch=20, max_new_tokens=40, value_head=head)
    plain = make(model, "plain", batch=20, max_new_tokens=40, value_head=head)
    for lengths, states in ((LENGTHS * 3, 1), (LENGTHS * 3, 1), (LENGTHS, 1), ((2, 90), 2), (LENGTHS, 2)):
        prompts = some_prompts(lengths, seed=len(lengths))
        uniforms = some_uniforms(len(prompts), 40, seed=states)
        for numbers in (uniforms, None):
            found, expected = sampler(prompts, numbers), plain(prompts, numbers)
            assert [c.token_ids for c in found] == [c.token_ids for c in expected]
            assert [c.truncated for c in found] == [c.truncated for c in expected]
            for one, other in zip(found, expected, strict=True):
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
                assert one.values == pytest.approx(other.values, abs=1e-4)
        assert Uncaptured.made == states
    decoder: Any = sampler.decoder
    assert decoder._static[1].spans == {64, 128, 192}
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    assert_fresh(model, prompts, sampler(prompts, None))
    assert Uncaptured.made == 2, "new numbers in the old places need no new state"


def test_a_token_further_is_the_prompt_one_longer() -> None:
    model = build("llama-biases")
    weights = Weights(model)
    weights.sync()
    ids = torch.tensor(some_prompts((10,)))

    def read(count: int) -> tuple[Any, Tensor]:
        state = new_state(weights, SamplingSettings(max_new_tokens=1), [], 0, rows=1, places=16)
        return state, prefill(weights, state, ids[:, :count], torch.tensor([count]), torch.tensor([0]), 0)

    with torch.no_grad():
        state, _ = read(9)
        state.ids_B.copy_(ids[0, 9:])
        assert torch.allclose(
            logits_of(weights, advance(weights, state, 10)), logits_of(weights, read(10)[1]), atol=1e-4
        )


def test_in_bfloat16_the_numbers_are_near() -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    uniforms = some_uniforms(len(prompts), 12)
    assert_fresh(model, prompts, fast(model, dtype="bfloat16")(prompts, uniforms), within=0.3)
    half = build("llama-gqa-tied").to(torch.bfloat16)
    assert_fresh(half, prompts, fast(half)(prompts, uniforms), within=0.3)


def test_a_sharded_model_is_gathered() -> None:
    """fully_shard on one process: every parameter is a DTensor."""
    from torch import distributed
    from torch._C._distributed_c10d import HashStore
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
        uniforms = some_uniforms(len(prompts), 12)
        expected = fast(model)(prompts, uniforms)
        mesh = init_device_mesh("cpu", (1,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
        for sampler in ("fast", "plain"):
            found = make(model, sampler)(prompts, uniforms)
            assert [c.token_ids for c in found] == [c.token_ids for c in expected]
    finally:
        distributed.destroy_process_group()


@given(st.lists(st.integers(1, 3000), max_size=60).map(sorted), st.integers(1, 20_000))
def test_groups_read_at_once_hold_little_padding(lengths: list[int], budget: int) -> None:
    groups = list(alike(lengths, budget))
    assert [length for start, end in groups for length in lengths[start:end]] == lengths
    for start, end in groups:
        shortest, longest = lengths[start], lengths[end - 1]
        assert longest <= max(shortest * GROWTH, shortest + SLACK)
        assert end == start + 1 or longest * (end - start) <= budget


def test_equal_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, ...]] = []

    def counting(weights: Weights, state: DecodingState, ids_UP: torch.Tensor, *others: Any) -> torch.Tensor:
        read.append(tuple(ids_UP.shape))
        return prefill(weights, state, ids_UP, *others)

    sampler = fast(build("llama-gqa-tied"), batch=20)
    short, middle, long = some_prompts((10, 14, 90))
    sampler([short], None)  # holds its logits against the model's first
    monkeypatch.setattr("text2grad.models.sampling.fast.prefill", counting)
    sampler([short] * 6 + [middle] * 6 + [long] * 6, None)
    assert read == [(2, 14), (1, 90)]


@pytest.mark.parametrize("prefill_tokens", [1, 30, 100_000])
def test_the_budget_of_a_first_pass_changes_nothing(prefill_tokens: int) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts((*LENGTHS, *LENGTHS))
    assert_greedy(model, prompts, fast(model, prefill_tokens=prefill_tokens, batch=9)(prompts, None), 12)


def test_a_step_that_cannot_be_captured_is_run_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there is no GPU, nothing can be captured: the warm-up fails after it has moved the state, say."""
    monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())

    def fails(replays: Replays, span: int, greedy: bool, _kept: list[Tensor]) -> None:
        step(replays.weights, replays.state, span, greedy)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Replays, "_warm_up", fails)
    monkeypatch.setattr(FastDecoder, "replays", True)
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    uniforms = some_uniforms(len(prompts), 12)
    with caplog.at_level(logging.WARNING, "text2grad"):
        found = fast(model)(prompts, uniforms)
    assert_fresh(model, prompts, found)
    assert [c.token_ids for c in found] == [c.token_ids for c in make(model, "plain")(prompts, uniforms)]
    (line,) = caplog.messages
    assert "without a CUDA graph" in line and "not permitted" in line


@pytest.mark.parametrize("broken", ["raises", "wrong"])
def test_kernels_that_will_not_do_are_left_and_said_once(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gated(gate_up: Tensor) -> Tensor:
        if broken == "raises":
            raise KeyError("no compiler")
        return gate_up.chunk(2, -1)[0].contiguous()

    kernels = SimpleNamespace(turn=lambda *_: None, gated=gated, layers=lambda *_: None, draw=lambda *_: None)
    monkeypatch.setattr("text2grad.models.sampling.fast.kernels_for", lambda _weights: kernels)
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    sampler = fast(model)
    with caplog.at_level(logging.WARNING, "text2grad"):
        assert_greedy(model, prompts, sampler(prompts, None), 12)
        assert_fresh(model, prompts, sampler(prompts, some_uniforms(len(prompts), 12)))
    (line,) = caplog.messages
    assert "without its own kernels" in line
    assert ("no compiler" if broken == "raises" else "spread") in line


def test_rows_that_ended_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = build("llama-gqa-tied"), some_prompts(LENGTHS)
    free = fast(model, end_ids=(), batch=7)(prompts, None)
    ends = {completion.token_ids[2] for completion in free[:4]}
    rows = []

    def counting(weights: Weights, state: DecodingState, span: int, greedy: bool) -> None:
        rows.append(len(state.ids_B))
        step(weights, state, span, greedy)

    monkeypatch.setattr("text2grad.models.sampling.fast.step", counting)
    completions = fast(model, end_ids=sorted(ends), batch=7)(prompts, None)
    lengths = [len(completion.token_ids) for completion in completions]
    assert max(lengths[:4]) <= 3
    assert rows[0] == 7 and rows == sorted(rows, reverse=True) and min([*rows, 7]) <= 3
    assert_fresh(model, prompts, completions)
