"""Attention by matrix products in bf16 on a CPU: what PyTorch's own attention gives, gradients included."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from transformers import FalconConfig, FalconForCausalLM

from text2grad.models import products
from text2grad.models.backbone import Backbone
from text2grad.models.policy import Policy
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_model
from text2grad.optim.batch import collate_ids

ROUNDING = 0.02
"""Of bf16, relative to the whole: eight bits, through two products and a softmax."""


def expected(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale
    )


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted).norm() / wanted.norm())


@settings(max_examples=25)
@given(
    rows=st.integers(1, 5),
    key_heads=st.integers(1, 3),
    shared=st.integers(1, 3),
    length=st.integers(1, 9),
    more=st.integers(0, 7),
    at_once=st.sampled_from([1, 40, 1 << 22]),
    masked=st.sampled_from(["causal", "one mask", "a mask a row"]),
    seed=st.integers(0, 99),
)
def test_the_same_as_pytorch_s_own(
    rows: int, key_heads: int, shared: int, length: int, more: int, at_once: int, masked: str, seed: int
) -> None:
    made = torch.Generator().manual_seed(seed)
    places = length if masked == "causal" else length + more
    shapes = [(rows, key_heads * shared, length, 8), *[(rows, key_heads, places, 8)] * 2]
    given_states = [torch.randn(shape, generator=made).bfloat16() for shape in shapes]
    mask = None
    if masked != "causal":
        mask = torch.rand(rows if masked == "a mask a row" else 1, 1, length, places, generator=made) < 0.6
        mask[..., 0] = True  # a token sees something
    weight = torch.randn(shapes[0], generator=made)
    ours = [states.clone().requires_grad_() for states in given_states]
    theirs = [states.double().requires_grad_() for states in given_states]
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr(products, "SCORES", at_once)
        found = products.attend(ours[0], ours[1], ours[2], mask, 0.4)
        by_ours = torch.autograd.grad((found.float() * weight).sum(), ours)
    wanted = expected(theirs[0], theirs[1], theirs[2], mask, 0.4)
    by_theirs = torch.autograd.grad((wanted * weight).sum(), theirs)
    assert found.dtype == torch.bfloat16 and off(found, wanted.detach()) < ROUNDING
    for mine, other in zip(by_ours, by_theirs, strict=True):
        assert float((mine.double() - other).norm()) <= ROUNDING * float(other.norm()) + 1e-2


def test_worked_by_hand() -> None:
    """One head of width 1, scores 0: the second token takes half of each value, and its gradient goes to both."""
    query, key = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1)
    value = torch.tensor([[[[2.0], [4.0]]]], requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = products.attend(query, key, value, None, 1.0)
    assert found.flatten().tolist() == [2.0, 3.0]
    (by_value,) = torch.autograd.grad(found[..., 1, :].sum(), value)
    assert by_value.flatten().tolist() == [0.5, 0.5]


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that multiplies bf16; results are the same on all."""
    monkeypatch.setattr(products, "multiplies_bf16", lambda: True)


def test_large_scores_cost_a_few_percent() -> None:
    """Scores are rounded to bf16: up to 0.125 at ±32, so a weight may be off by an eighth, here and there."""
    made = torch.Generator().manual_seed(0)
    states = [torch.randn(2, 2, 40, 8, generator=made).bfloat16() for _ in range(3)]
    wanted = expected(
        states[0].double(), states[1].double(), states[2].double(), None, 4.0
    )  # scores of ±11 on the average, ±40 at most
    with torch.autocast("cpu", torch.bfloat16):
        assert off(products.attend(states[0], states[1], states[2], None, 4.0), wanted) < 0.05


@pytest.mark.usefixtures("able")
def test_what_it_does_not_know_is_left_to_pytorch() -> None:
    query, value, some = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    assert not products.fits(query, value, some, {}), "32 bits"
    with torch.autocast("cpu", torch.float16):
        assert not products.fits(query, value, some, {}), "other 16 bits"
    with torch.autocast("cpu", torch.bfloat16):
        assert products.fits(query, value, some, {}) and products.fits(query, value, None, {"dropout": 0.0})
        for option in ({"dropout": 0.1}, {"is_causal": False}, {"softcap": 30.0}, {"s_aux": torch.zeros(2)}):
            assert not products.fits(query, value, some, option)
        assert not products.fits(query, value, torch.zeros(1, 1, 3, 3), {}), "a mask of numbers"
        assert not products.fits(query[:, :, :2], value, None, {}), "which places are seen is not said"
        assert not products.fits(query, value, some.expand(1, 2, 3, 3), {}), "a mask a head"
        assert not products.fits(query, torch.zeros(1, 2, 3, 6), some, {}), "values of another width"
        assert not products.fits(query[:0], value[:0], None, {}), "nothing"
        long = torch.zeros(1, 1, products.LONGEST + 1, 4)
        assert not products.fits(long, long, None, {}), "PyTorch's kernel is faster"


def test_a_processor_without_bf16_keeps_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "multiplies_bf16", lambda: False)
    states = torch.zeros(1, 2, 3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert not products.fits(states, states, None, {})


@pytest.mark.usefixtures("able")
def test_a_family_that_looks_for_the_name_of_its_attention_keeps_it() -> None:
    """Falcon adds its mask to the scores unless its attention is called `sdpa`."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
    ids_BS = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 3]])
    found = {}
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        model = FalconForCausalLM(FalconConfig(**shape, num_kv_heads=2))
        backbone = Backbone(model, PolicySettings(lora=LoraSettings(rank=0), precision=precision)).eval()
        found[precision] = backbone.hidden(ids_BS).detach()
    assert off(found["bfloat16"], found["float32"].double()) < ROUNDING


@pytest.mark.usefixtures("able")
def test_a_policy_in_bf16_on_a_cpu_goes_by_it(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    attend = products.attend

    def counted(*asked: Any) -> Tensor:
        called.append(asked)
        return attend(*asked)

    monkeypatch.setattr(products, "attend", counted)
    rows = collate_ids([(5, 6, 7, 8)] * 2 + [(9, 5)] * 2, [(3, 4), (5,), (6, 7, 8), (9, 3)], groups=[0, 0, 1, 1])
    found = {}
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        chosen = PolicySettings(lora=LoraSettings(rank=0), precision=precision)
        policy = Policy(tiny_model(tokenizer), chosen, value_head=False).eval()
        found[precision], _ = policy.logprobs_and_values(rows, 4)
        assert bool(called) == (precision == "bfloat16")
    assert off(found["bfloat16"], found["float32"].double()) < ROUNDING
