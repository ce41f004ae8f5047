"""The policy against plain transformers: the same log-probs, the same gradients, and files that it reads."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tests.optim.made import ONE_STEP, VOCABULARY, advantages, gradients, llama, made_batch, policy
from text2grad.errors import ModelError
from text2grad.models.modes import evaluating
from text2grad.models.policy import Policy
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_tokenizer
from text2grad.optim.batch import Batch
from text2grad.optim.estimators import Advantages
from text2grad.optim.settings import AdvantageSettings, UpdateSettings
from text2grad.optim.update import update

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
FAMILIES = {
    "gemma2 caps its logits": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, head_dim=4, final_logit_softcapping=2.0, attn_implementation="eager")
    ),
    "cohere scales its logits": lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25)),
    "granite divides its logits": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=4.0)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
}


def by_hand(model: Any, batch: Batch, temperature: float = 1.0) -> Tensor:
    """Row by row, without padding, by the model's own logits."""
    logprobs_BT = torch.zeros_like(batch.logprobs_BT)
    for row, (prompt, length) in enumerate(zip(batch.prompt_B.tolist(), batch.lengths_B.tolist(), strict=True)):
        ids_S = batch.ids_BS[row, : prompt + length]
        log_SV = torch.log_softmax(model(ids_S[None]).logits[0].float() / temperature, -1)
        for t in range(length):
            logprobs_BT[row, t] = log_SV[prompt + t - 1, ids_S[prompt + t]]
    return logprobs_BT


def trained(made: Policy, batch: Batch, steps: int = 3) -> None:
    optimizer = torch.optim.AdamW(made.trainable().values(), lr=1e-2)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="local"))
    update(made, optimizer, batch, found, UpdateSettings(epochs=steps, minibatches=1), seed=0)


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("lora", [0, 2])
def test_looking_equals_a_plain_forward_pass(lora: int, temperature: float, size: int) -> None:
    made, batch = policy(lora=lora, value_head=True, temperature=temperature), made_batch()
    logprobs_BT, values_BT = made.logprobs_and_values(batch, size)
    with torch.no_grad():
        wanted_BT = by_hand(made.model, batch, temperature)
        row_N, position_N, _ = batch.where()
        hidden_BSH = made.model(batch.ids_BS, output_hidden_states=True).hidden_states[-1]
        assert made.value_head is not None
        values_N = made.value_head(hidden_BSH[row_N, position_N])
    torch.testing.assert_close(logprobs_BT, wanted_BT, rtol=1e-4, atol=1e-5)
    assert values_BT is not None
    torch.testing.assert_close(values_BT[batch.mask_BT], values_N, rtol=1e-4, atol=1e-5)
    assert not values_BT[~batch.mask_BT].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_change_their_logits(family: str) -> None:
    torch.manual_seed(0)
    made, batch = policy(model=FAMILIES[family](), temperature=0.8), made_batch()
    with torch.no_grad(), evaluating(made):
        wanted_BT = by_hand(made.model, batch, 0.8)
    torch.testing.assert_close(made.logprobs_and_values(batch, 3)[0], wanted_BT, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_their_gradients_are_those_of_autograd(family: str) -> None:
    torch.manual_seed(0)
    made, batch = policy(model=FAMILIES[family](), temperature=0.8), made_batch()
    batch = replace(batch, logprobs_BT=made.logprobs_and_values(batch, 8)[0])
    found = Advantages(torch.where(batch.mask_BT, batch.rewards_BT, 0.0), batch.mask_BT)
    seen, _ = gradients(made, batch, found)
    # On the policy that sampled, the gradient of the loss is that of −A · log-prob, averaged.
    loss = -(by_hand(made.model, batch, 0.8) * found.advantages_BT)[batch.mask_BT].mean()
    wanted = torch.autograd.grad(loss, list(made.trainable().values()))
    for name, gradient in zip(made.trainable(), wanted, strict=True):
        torch.testing.assert_close(seen[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_a_model_with_odd_logits_is_refused() -> None:
    class Odd(type(llama())):  # type: ignore[misc]
        def forward(self, *args: Any, **named: Any) -> Any:
            result = super().forward(*args, **named)
            result.logits = result.logits - 0.5 * result.logits.abs()
            return result

    with pytest.raises(ModelError, match="does something to its logits that text2grad does not know"):
        policy(model=Odd(llama().config))


def test_a_model_whose_weights_are_no_numbers_is_named_as_damaged() -> None:
    broken = llama()
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="its logits are not finite, so its weights are damaged"):
        policy(model=broken)


def test_an_adapter_on_the_vocabulary_projection_is_refused() -> None:
    with pytest.raises(ModelError, match=r"a torch\.nn\.Linear, got a .*lora\.targets"):
        Policy(
            llama(tie_word_embeddings=False),
            PolicySettings(lora=LoraSettings(rank=2, targets=("q_proj", "lm_head"))),
            value_head=False,
        )


def test_an_adapter_on_an_embedding_that_is_also_the_projection_is_refused() -> None:
    options = PolicySettings(lora=LoraSettings(rank=2, targets=("embed_tokens", "q_proj")))
    with pytest.raises(ModelError, match=r"its embedding is also its vocabulary projection.*lora\.targets"):
        Policy(llama(), options, value_head=False)
    Policy(llama(tie_word_embeddings=False), options, value_head=False)


def test_layers_that_are_not_there_are_named() -> None:
    with pytest.raises(ModelError, match=r"lora\.targets: .*w_proj"):
        Policy(llama(), PolicySettings(lora=LoraSettings(rank=2, targets=("w_proj",))), value_head=False)


@pytest.mark.parametrize("lora", [0, 2])
def test_the_reference_stays_what_the_policy_was(lora: int) -> None:
    start = llama()
    made, batch = Policy(start, PolicySettings(lora=LoraSettings(rank=lora)), value_head=True), made_batch()
    reference = made.reference()
    before_BT, _ = made.logprobs_and_values(batch, 8)
    torch.testing.assert_close(reference.logprobs(batch, 8), before_BT)
    trained(made, batch)
    after_BT, _ = made.logprobs_and_values(batch, 8)
    assert float((after_BT - before_BT).abs().max()) > 0.05
    torch.testing.assert_close(reference.logprobs(batch, 8), before_BT)
    assert torch.equal(made.logprobs_and_values(batch, 8)[0], after_BT), "the adapter is on again"


@pytest.mark.parametrize("lora", [0, 2])
def test_what_is_saved_loads_in_plain_transformers(lora: int, tmp_path: Path) -> None:
    made, batch = policy(lora=lora, value_head=True), made_batch()
    trained(made, batch)
    before = {name: weight.clone() for name, weight in made.state_dict().items()}
    made.save_pretrained(tmp_path, tiny_tokenizer())
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad(), evaluating(made):
        torch.testing.assert_close(loaded(batch.ids_BS).logits, made.model(batch.ids_BS).logits, rtol=1e-4, atol=3e-5)
    assert type(loaded).__name__ == "LlamaForCausalLM"
    assert not list(tmp_path.glob("adapter*")), "merged"
    assert all(torch.equal(weight, before[name]) for name, weight in made.state_dict().items()), (
        "saving changes nothing"
    )


@pytest.mark.parametrize("lora", [0, 2])
def test_gradient_checkpointing_gives_the_same_gradients(lora: int) -> None:
    model = llama()
    plain = policy(lora=lora, value_head=True, model=copy.deepcopy(model))
    saving = policy(lora=lora, value_head=True, model=model, gradient_checkpointing=True)
    assert saving.base.is_gradient_checkpointing and saving.base.base_model.training
    batch = made_batch(plain)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae"))
    calls = dict.fromkeys((plain, saving), 0)
    for made in (plain, saving):
        layer = made.base.base_model.layers[0].mlp
        layer.register_forward_pre_hook(lambda *_, made=made: calls.__setitem__(made, calls[made] + 1))
    wanted, came = gradients(plain, batch, found)[0], gradients(saving, batch, found)[0]
    assert calls == {plain: 1, saving: 2}, "computed again in the backward pass"
    for name, gradient in wanted.items():
        torch.testing.assert_close(came[name], gradient, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile wants a C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_compiled_layers_give_the_same_gradients_from_one_program() -> None:
    """One for both layers and all lengths; passes without gradients run the layers as they are."""
    model = llama()
    plain = policy(value_head=True, model=copy.deepcopy(model))
    compiled = policy(value_head=True, model=model, compile=True)
    batch = made_batch(plain)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert torch.equal(compiled.logprobs_and_values(batch, 3)[0], plain.logprobs_and_values(batch, 3)[0])
    assert torch.equal(compiled.reference().logprobs(batch, 8), plain.logprobs_and_values(batch, 8)[0])
    assert not torch._dynamo.utils.counters["stats"]["unique_graphs"]
    copied = compiled.reference().copy
    assert copied is not None and all(layer._compiled_call_impl is not None for layer in copied.backbone.layers())
    for size in (8, 4, 2):
        wanted, came = (
            gradients(made, batch, found, replace(ONE_STEP, micro_batch=size))[0] for made in (plain, compiled)
        )
        for name, gradient in wanted.items():
            torch.testing.assert_close(came[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    programs = int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert programs == 1


@pytest.mark.parametrize("lora", [0, 2])
def test_bf16_is_near_fp32_and_keeps_its_weights_in_fp32(lora: int) -> None:
    full, half = (policy(lora=lora, value_head=True, precision=precision) for precision in ("float32", "bfloat16"))
    batch = made_batch(full)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae"))
    torch.testing.assert_close(
        half.logprobs_and_values(batch, 8)[0], full.logprobs_and_values(batch, 8)[0], rtol=0.1, atol=0.15
    )
    wanted, came = gradients(full, batch, found)[0], gradients(half, batch, found)[0]
    assert all(weight.dtype == torch.float32 for weight in half.parameters())
    one, other = (torch.cat([gradient.flatten() for gradient in each.values()]) for each in (wanted, came))
    assert float(torch.nn.functional.cosine_similarity(one, other, dim=0)) > 0.98


def test_a_value_loss_that_should_not_train_the_backbone_does_not() -> None:
    made = policy(value_head=True, value_gradient=False)
    batch = made_batch(made)
    found = advantages(batch, batch.rewards_BT, AdvantageSettings(estimator="gae"))
    assert found.returns_BT is not None
    other = replace(found, returns_BT=found.returns_BT + 3.0)
    first, second = gradients(made, batch, found)[0], gradients(made, batch, other)[0]
    moved = {name for name in first if not torch.equal(first[name], second[name])}
    assert moved == {"value_head.linear.weight", "value_head.linear.bias"}


def test_a_fresh_value_head_says_nothing() -> None:
    made = Policy(llama(), PolicySettings(lora=LoraSettings(rank=0)), value_head=True)
    values_BT = made.logprobs_and_values(made_batch(), 4)[1]
    assert values_BT is not None and not values_BT.any()


def test_looking_has_no_dropout_and_leaves_training_on() -> None:
    made = Policy(
        llama(attention_dropout=0.5), PolicySettings(lora=LoraSettings(rank=2, dropout=0.5)), value_head=False
    )
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.1)
    batch = made_batch()
    assert made.training
    assert torch.equal(made.logprobs_and_values(batch, 8)[0], made.logprobs_and_values(batch, 8)[0])
    assert made.training and made.base.base_model.training
