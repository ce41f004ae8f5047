"""Rows without padding, in one pass: the same log-probs, values and gradients as row by row."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.test_shared_prompts import batch as made_batch
from text2grad.models import packed as packed_module
from text2grad.models.packed import NAME, Spread, packed
from text2grad.models.policy import Policy
from text2grad.models.recorded import Recorder
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_model
from text2grad.optim.batch import Batch, blank, collate_ids
from text2grad.optim.losses import Likelihood


def policy(tokenizer: Any, **options: Any) -> Policy:
    torch.manual_seed(0)
    chosen = PolicySettings(**{"lora": LoraSettings(rank=2), "packing": "always", **options})
    made = Policy(tiny_model(tokenizer), chosen, value_head=True, temperature=0.7)
    with torch.no_grad():
        for weight in made.trainable().values():
            weight.normal_(std=0.3)
    return made.eval()


def gradients(made: Policy, rows: Batch) -> dict[str, torch.Tensor]:
    made.zero_grad()
    weight_N = torch.linspace(-1, 2, int(rows.mask_BT.sum()))
    made.train()(rows, Likelihood(weight_N)).loss.backward()
    made.eval()
    return {name: weight.grad.clone() for name, weight in made.trainable().items() if weight.grad is not None}


def test_worked_by_hand() -> None:
    """Two prompts, (5, 6, 7) with three completions and (8, 9) with two; the last token of each is not read."""
    row = packed(
        collate_ids([(5, 6, 7)] * 3 + [(8, 9)] * 2, [(1, 2), (3,), (4, 5, 6), (1,), (2,)], groups=[0, 0, 0, 1, 1]),
        "cpu",
    )
    assert row is not None and row.prompts == 5
    assert row.ids_S.tolist() == [5, 6, 7, 8, 9, 1, 4, 5]
    assert row.place_S.tolist() == [0, 1, 2, 0, 1, 3, 3, 4]
    assert row.prompt_ends_U.tolist() == [0, 3, 5]
    # Completions 0 and 2 are read; each sees its prompt and itself.
    assert row.query_ends_R.tolist() == [0, 1, 3] and row.key_ends_R.tolist() == [0, 4, 9]
    assert row.keys.index_K.tolist() == [0, 1, 2, 5, 0, 1, 2, 6, 7]
    # Tokens 1 and 2 of completion 0 are read off the end of its prompt and off its first token.
    assert row.read.index_K.tolist() == [2, 5, 2, 2, 6, 7, 4, 4]


@pytest.fixture(params=["as long as they are", "rounded"])
def lengths(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of packed rows. On a GPU passes are recorded, and rows have to come in few shapes."""
    if request.param == "rounded":
        rounded = partial(packed, rounded=True)
        monkeypatch.setattr("text2grad.models.backbone.packed", lambda batch, device, **_: rounded(batch, device))


@pytest.mark.usefixtures("lengths")
@pytest.mark.parametrize("size", [1, 2, 5, 8, 100])
def test_the_same_is_seen(tokenizer: Any, size: int) -> None:
    rows, made, plain = made_batch(each=4), policy(tokenizer), policy(tokenizer, packing="never")
    logprobs, values = made.logprobs_and_values(rows, size)
    wanted, wanted_values = plain.logprobs_and_values(rows, 1)
    assert made.base.config._attn_implementation == NAME
    assert values is not None and wanted_values is not None
    torch.testing.assert_close(logprobs, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values, wanted_values, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("lengths")
@pytest.mark.parametrize("options", [{}, {"lora": LoraSettings(rank=0)}, {"gradient_checkpointing": True}])
def test_the_same_gradients(tokenizer: Any, options: dict[str, Any]) -> None:
    rows = made_batch(each=3)
    found = gradients(policy(tokenizer, **options), rows)
    wanted = gradients(policy(tokenizer, packing="never", **options), rows)
    assert found.keys() == wanted.keys()
    for name in found:
        assert float((found[name] - wanted[name]).abs().max()) <= 1e-3 * float(wanted[name].abs().max()), name


def test_each_token_is_read_once(tokenizer: Any) -> None:
    rows, made = made_batch(each=4), policy(tokenizer)
    read: list[int] = []
    hook = made.base.base_model.embed_tokens.register_forward_pre_hook(lambda _, ids: read.append(ids[0].numel()))
    made.logprobs_and_values(rows, 100)
    hook.remove()
    assert read == [5 + 2 + 1 + 3 + int((rows.lengths_B - 1).sum())]


def test_without_a_packed_row_attention_is_as_ever(tokenizer: Any) -> None:
    """The model is sampled from and saved as before."""
    made, plain = policy(tokenizer), policy(tokenizer, packing="never")
    made.logprobs_and_values(made_batch(each=2), 100)
    ids = torch.arange(20)[None]
    mask = torch.ones_like(ids)
    mask[:, :3] = 0
    with torch.no_grad():
        assert torch.equal(made.model(ids).logits, plain.model(ids).logits)
        found, wanted = (one.model(ids, attention_mask=mask).logits[:, 3:] for one in (made, plain))
    assert torch.equal(found, wanted)


def test_saved_models_do_not_name_it(tokenizer: Any, tmp_path: Any) -> None:
    made = policy(tokenizer)
    made.logprobs_and_values(made_batch(each=2), 100)
    made.save_pretrained(tmp_path / "model", tokenizer)
    assert NAME not in (tmp_path / "model" / "config.json").read_text()


def test_windows_and_other_attention_are_left_alone(tokenizer: Any) -> None:
    made = policy(tokenizer)
    made.base.config._attn_implementation = "eager"
    assert not made.backbone.packs()
    made.base.config._attn_implementation = "sdpa"
    made.base.config.sliding_window = 4
    assert not made.backbone.packs()


def test_packing_is_tried_before_it_is_used(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A kernel that gives something else is not used, and the log says so."""
    made = policy(tokenizer, packing="auto")
    assert not made.backbone.packs(), "on a CPU rows are padded"
    assert made.backbone._try_packing() and not caplog.text
    attend = packed_module._by_mask

    def broken(query: Any, key: Any, value: Any, *more: Any) -> Any:
        return attend(query, key, value.flip(2), *more)

    monkeypatch.setattr(packed_module, "_by_mask", broken)
    assert not made.backbone._try_packing()
    assert "rows are padded, which is slower: read without padding, numbers are off by" in caplog.text


def test_a_batch_in_which_nothing_counts(tokenizer: Any) -> None:
    assert packed(blank(), "cpu") is None
    out = policy(tokenizer)(blank(), Likelihood(torch.zeros(0)))
    assert out.loss.item() == 0 and len(out.logprobs_N) == 0


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=4)), min_size=1, max_size=4
    )
)
def test_spreading_and_gathering_are_transposed(groups: list[tuple[int, list[int]]]) -> None:
    """⟨spread(x), y⟩ = ⟨x, back(y)⟩, and every completion token is read off the token before it."""
    prompts = [tuple(range(1, size + 1)) for size, lengths in groups for _ in lengths]
    completions = [tuple(range(10, 10 + length)) for _, lengths in groups for length in lengths]
    numbers = [number for number, (_, lengths) in enumerate(groups) for _ in lengths]
    rows = collate_ids(prompts, completions, groups=numbers)
    row = packed(rows, "cpu")
    assert row is not None
    assert row.ids_S[row.read.index_K].tolist() == [
        before for prompt, text in zip(prompts, completions, strict=True) for before in (prompt[-1], *text[:-1])
    ]
    for spread in (row.keys, row.read):
        x = torch.randn(len(row.ids_S), 2, 3, requires_grad=True)
        if not len(spread.index_K):
            continue
        y = torch.randn(len(spread.index_K), 2, 3)
        (spread(x) * y).sum().backward()  # type: ignore[no-untyped-call]
        wanted = torch.zeros_like(x).index_add_(0, spread.index_K, y)
        assert x.grad is not None
        torch.testing.assert_close(x.grad, wanted)


def test_gradients_of_copies_are_added() -> None:
    spread = Spread(torch.tensor([0, 1, 0]), torch.tensor([[0], [2]]), None, torch.tensor([1]))
    x = torch.tensor([[1.0], [2.0]], requires_grad=True)
    (spread(x) * torch.tensor([[1.0], [10.0], [100.0]])).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and x.grad.tolist() == [[101.0], [10.0]]


def test_prompts_are_told_apart_by_their_group(tokenizer: Any) -> None:
    """Rows in any order; equal prompts in different groups are read twice, and give the same."""
    rows, made = made_batch(each=3), policy(tokenizer)
    apart = replace(rows, group_B=rows.number_B)
    wanted, _ = made.logprobs_and_values(rows, 100)
    found, _ = made.logprobs_and_values(apart, 100)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------------- what the kernel is given, without a GPU


def each_sequence(
    ends_q: torch.Tensor, ends_k: torch.Tensor, most_q: int, most_k: int
) -> Iterator[tuple[slice, slice]]:
    for number in range(len(ends_q) - 1):
        (a, b), (c, d) = (ends[number : number + 2].tolist() for ends in (ends_q, ends_k))
        assert b - a <= most_q and d - c <= most_k
        yield slice(a, b), slice(c, d)


def scores_of(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)) * scale
    seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    return scores.masked_fill(~seen, -torch.inf)


def by_loops(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *ends_and_scale: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the flash kernel computes, sequence by sequence."""
    *ends, scale = ends_and_scale
    out, sums = torch.empty_like(q), q.new_empty(q.shape[1], q.shape[0])
    for own, seen in each_sequence(*ends):
        scores = scores_of(q[own], k[seen], scale)
        values = v[seen].repeat_interleave(q.shape[1] // k.shape[1], 1)
        out[own] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
        sums[:, own] = scores.logsumexp(-1)
    return out, sums


def by_loops_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    *ends, scale = rest
    times = q.shape[1] // k.shape[1]
    by_q, by_k, by_v = (torch.zeros_like(states) for states in (q, k, v))
    for own, seen in each_sequence(*ends):
        keys, values = (states[seen].repeat_interleave(times, 1) for states in (k, v))
        share = (scores_of(q[own], k[seen], scale) - sums[:, own, None]).exp()
        by_share = torch.einsum("qhd,khd->hqk", grad[own], values)
        inner = torch.einsum("qhd,qhd->hq", grad[own], out[own])
        by_scores = share * (by_share - inner[..., None]) * scale
        by_q[own] = torch.einsum("hqk,khd->qhd", by_scores, keys)
        for to, left, right in ((by_k, by_scores, q), (by_v, share, grad)):
            by_head = torch.einsum("hqk,qhd->khd", left, right[own])
            to[seen] = by_head.view(len(by_head), -1, times, by_head.shape[-1]).sum(2)
    return by_q, by_k, by_v


def untouched(tokenizer: Any, **options: Any) -> Policy:
    """All weights as they are drawn: small enough for gradients that hardly depend on rounding."""
    torch.manual_seed(0)
    chosen = PolicySettings(lora=LoraSettings(rank=0), packing="always", **options)
    return Policy(tiny_model(tokenizer), chosen, value_head=True).eval()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_module, "_has_kernel", lambda _: True)
    monkeypatch.setattr(packed_module, "_flash", by_loops)
    monkeypatch.setattr(packed_module, "_flash_backward", by_loops_backward)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("lengths", [[[3, 1, 4], [2, 2, 5]], [[1, 1], [3, 1]], [[1, 1], [1, 1]], [[4], [2]]])
def test_the_kernel_sees_what_the_mask_shows(
    tokenizer: Any, lengths: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [(5, 6, 7), (8, 9)]
    rows = collate_ids(
        [prompt for prompt, each in zip(prompts, lengths, strict=True) for _ in each],
        [tuple(range(10, 10 + length)) for each in lengths for length in each],
        groups=[number for number, each in enumerate(lengths) for _ in each],
    )
    made = untouched(tokenizer)
    found = made.logprobs_and_values(rows, 100)[0], gradients(made, rows)
    monkeypatch.undo()
    wanted = made.logprobs_and_values(rows, 100)[0], gradients(made, rows)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile wants a C++ compiler")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("kernel")
def test_one_compiled_program_serves_rows_of_all_lengths(tokenizer: Any) -> None:
    """One with gradients and one without: not one for every order of the lengths."""
    made, plain = (untouched(tokenizer, compile=chosen) for chosen in (True, False))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    whole = made_batch(each=4)
    for index in ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11], list(range(12)), [8, 7, 5], [0, 1, 4, 5, 8]):
        rows = whole.rows(torch.tensor(index))
        torch.testing.assert_close(made.logprobs_and_values(rows, 100)[0], plain.logprobs_and_values(rows, 100)[0])
        wanted = gradients(plain, rows)
        for name, found in gradients(made, rows).items():
            torch.testing.assert_close(found, wanted[name], rtol=1e-4, atol=1e-5, msg=name)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


# ------------------------------------------------------------------------------------------------------ on a GPU


def on_gpu(tokenizer: Any, key_heads: int = 2, **options: Any) -> Policy:
    torch.manual_seed(0)
    chosen = PolicySettings(**{"lora": LoraSettings(rank=0), "precision": "bfloat16", **options})
    shape = tiny_model(tokenizer, hidden_size=256, layers=4).config
    shape.num_key_value_heads = key_heads
    model = type(tiny_model(tokenizer))(shape).to("cuda")
    return Policy(model, chosen, value_head=True).eval()


def long_batch() -> Batch:
    """Prompts of mixed lengths, longer than a tile of the kernel, four completions each."""
    draw = torch.Generator().manual_seed(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(300, (length,), generator=draw).tolist())

    prompts = [ids(length) for length in (300, 17, 129, 1, 256, 401)]
    return collate_ids(
        [prompt for prompt in prompts for _ in range(4)],
        [ids(1 + (7 * number) % 40) for number in range(24)],
        groups=[number // 4 for number in range(24)],
    )


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 5, 24])
def test_gpu_the_same_is_seen(tokenizer: Any, size: int) -> None:
    rows = long_batch()
    made, plain = on_gpu(tokenizer), on_gpu(tokenizer, packing="never", precision="float32")
    found, _ = made.logprobs_and_values(rows, size)
    wanted, _ = plain.logprobs_and_values(rows, 1)
    rounded, _ = on_gpu(tokenizer, packing="never").logprobs_and_values(rows, 1)
    # As near to full precision as the padded rows are in the same bf16.
    error, usual = float((found - wanted).abs().mean()), float((rounded - wanted).abs().mean())
    assert made.backbone.packs() and error <= 1.5 * usual + 1e-4, (error, usual)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_checkpointing": True}, {"compile": True}, {"key_heads": 4}, {"key_heads": 4, "compile": True}],
)
def test_gpu_the_same_gradients_and_the_same_bits(tokenizer: Any, options: dict[str, Any]) -> None:
    rows = long_batch()

    def taken(**chosen: Any) -> dict[str, torch.Tensor]:
        made = on_gpu(tokenizer, **chosen)
        weight_N = torch.linspace(-1, 2, int(rows.mask_BT.sum()), device="cuda")
        made.train()(rows, Likelihood(weight_N)).loss.backward()
        return {name: weight.grad.clone() for name, weight in made.trainable().items() if weight.grad is not None}

    once, again, wanted = (
        taken(packing="always", **options),
        taken(packing="always", **options),
        taken(packing="never", precision="float32", key_heads=options.get("key_heads", 2)),
    )
    for name in once:
        assert torch.equal(once[name], again[name]), f"{name} differs from run to run"
        error = float((once[name] - wanted[name]).norm() / wanted[name].norm())
        assert error < 0.05, (name, error)


@pytest.mark.gpu
def test_gpu_results_do_not_depend_on_the_micro_batch(tokenizer: Any) -> None:
    rows, made = long_batch(), on_gpu(tokenizer)
    whole, _ = made.logprobs_and_values(rows, 24)
    parts, _ = made.logprobs_and_values(rows, 4)
    assert float((whole - parts).abs().max()) < 0.05


def test_what_is_trained_is_asked_when_it_is_trained(tokenizer: Any) -> None:
    """A recorder that is made while the reference is read, without the adapter, finds the adapter's weights later."""
    made = policy(tokenizer)
    with made.model.disable_adapter():
        recorder = Recorder(lambda *_: torch.zeros(1), dict(made.model.named_parameters()))
        assert recorder.learned == []
    assert len(recorder.learned) == len([name for name in made.trainable() if "value_head" not in name]) > 0
