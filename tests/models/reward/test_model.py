"""The two-headed model: its folder, what it says alone and among others, LoRA and bf16."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models.reward.made import FULL, TEMPLATE, rows, untrained
from text2grad.errors import CorruptModel, ModelNotFound
from text2grad.feedback.labels import Calibration
from text2grad.models.reward.model import RewardModel
from text2grad.models.settings import LoraSettings, PolicySettings

LORA = PolicySettings(lora=LoraSettings(rank=2))
CALIBRATED = Calibration(kind="score", temperature=1.5, poor=0.25, good=0.75, confidence=0.1, scale=0.5, start=-1.0)


def saved(folder: Path, options: PolicySettings = FULL) -> tuple[RewardModel, Path]:
    model, tokenizer = untrained(options)
    model.calibration = CALIBRATED
    model.class_weights_3.copy_(torch.tensor([2.0, 0.5, 1.0]))
    if options.lora.rank:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    model.save_pretrained(folder / "model", tokenizer)
    return model, folder / "model"


def judged(model: RewardModel, batch_tokens: int = 4096) -> list[torch.Tensor]:
    reader = model.reader(untrained()[1])
    return model.predict([reader.encode(row.prompt, row.completion) for row in rows(6)], batch_tokens)


def test_what_is_saved_and_loaded_judges_bitwise_the_same(tmp_path: Path) -> None:
    model, path = saved(tmp_path)
    loaded, tokenizer = RewardModel.from_pretrained(path)
    for here, there in zip(judged(model), judged(loaded), strict=True):
        assert torch.equal(here, there) and here.abs().max() > 0.1
    assert (loaded.calibration, loaded.template) == (CALIBRATED, TEMPLATE)
    assert loaded.class_weights_3.tolist() == [2, 0.5, 1]
    loaded.save_pretrained(tmp_path / "again", tokenizer)
    names = sorted(file.name for file in path.iterdir())
    assert names == sorted(file.name for file in (tmp_path / "again").iterdir())
    for name in ("model.safetensors", "span_head.safetensors", "reward_model.json"):
        assert (path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_adapters_are_merged_and_the_folder_loads_in_plain_transformers(tmp_path: Path) -> None:
    model, path = saved(tmp_path, LORA)
    loaded, _ = RewardModel.from_pretrained(path)
    for here, there in zip(judged(model), judged(loaded), strict=True):
        torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)
    plain, ids = AutoModelForCausalLM.from_pretrained(path), torch.arange(5, 25)[None]
    torch.testing.assert_close(plain(ids).logits, model.backbone.model(ids).logits, atol=1e-4, rtol=1e-4)
    with model.backbone.model.disable_adapter():
        assert (plain(ids).logits - model.backbone.model(ids).logits).abs().max() > 1e-3, "the adapters do something"
    assert AutoTokenizer.from_pretrained(path).eos_token == "<|im_end|>"


@pytest.mark.parametrize("batch_tokens", [1, 200, 9999])
def test_a_judgement_does_not_depend_on_the_others_of_its_batch(batch_tokens: int) -> None:
    model, tokenizer = untrained()
    reader = model.reader(tokenizer)
    encoded = [reader.encode(row.prompt * (1 + n % 3), row.completion) for n, row in enumerate(rows(7))]
    encoded.insert(3, reader.encode("Q", ""))
    together = model.predict(encoded, batch_tokens)
    for one, out in zip(encoded, together, strict=True):
        (alone,) = model.predict([one], batch_tokens)
        assert out.shape == (len(one.offsets) + 1, 5)
        torch.testing.assert_close(out, alone, atol=1e-5, rtol=0)
    assert model.predict([], batch_tokens) == []


def test_the_head_reads_the_second_completion_which_has_seen_the_first() -> None:
    """A first token's label may depend on the last one; read on the first reading, it could not."""
    model, tokenizer = untrained()
    reader = model.reader(tokenizer)
    here, there = model.predict([reader.encode("Q", "Mura or Drava"), reader.encode("Q", "Mura or Mura")], 999)
    assert (here[0] - there[0]).abs().max() > 1e-4


def test_in_bf16_the_numbers_are_near_and_the_head_stays_in_fp32(tmp_path: Path) -> None:
    model, path = saved(tmp_path)
    half, _ = RewardModel.from_pretrained(path, precision="bfloat16")
    for here, there in zip(judged(model), judged(half), strict=True):
        assert there.dtype == torch.float32 and not torch.equal(here, there)
        torch.testing.assert_close(here, there, atol=0.1, rtol=0.1)


def test_judging_leaves_the_models_mode_alone_and_drops_nothing_out() -> None:
    model, _ = untrained(PolicySettings(lora=LoraSettings(rank=2, dropout=0.5)))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    model.train()
    assert all(torch.equal(a, b) for a, b in zip(judged(model), judged(model), strict=True)) and model.training


def test_reading_scales_the_sizes_and_sharpens_by_the_temperature() -> None:
    model, _ = untrained()
    model.calibration = Calibration(scale=0.5, temperature=0.5)
    out = torch.tensor([[1.0, 0.0, 0.0, 2.0, 0.0]])
    probs, sizes = model.read(out)
    torch.testing.assert_close(probs, torch.tensor([[2.0, 0.0, 0.0]]).softmax(-1))
    torch.testing.assert_close(sizes, torch.nn.functional.softplus(torch.tensor([[2.0, 0.0]])) / 2)


# ---------------------------------------------------------------------------------------------- what is refused


def test_a_folder_without_a_card_is_no_reward_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"has no reward_model\.json; RUN/model has one"):
        RewardModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "card",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"template": {}}',
        b'{"template": {"befor": ""}, "calibration": {}}',
        b'{"template": {}, "calibration": {"temperature": 0}}',
        b'{"template": null, "calibration": 3}',
        b"\xff",
    ],
)
def test_a_card_that_cannot_be_read_is_named(tmp_path: Path, card: bytes) -> None:
    _, path = saved(tmp_path)
    (path / "reward_model.json").write_bytes(card)
    with pytest.raises(CorruptModel, match=r"reward_model\.json.*train or copy the model again"):
        RewardModel.from_pretrained(path)


@pytest.mark.parametrize("damage", ["cut", "gone", "other", "shape", "one weight", "no weight", "endless", "folder"])
def test_a_head_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    from safetensors.torch import load, save_file

    _, path = saved(tmp_path)
    head = path / "span_head.safetensors"
    content = head.read_bytes()
    head.unlink()
    if damage == "cut":
        head.write_bytes(content[: len(content) // 2])
    if damage == "other":
        save_file({"linear.weight": torch.zeros(5, 32)}, head)
    if damage == "shape":
        save_file(
            {"linear.weight": torch.zeros(5, 8), "linear.bias": torch.zeros(5), "class_weights_3": torch.ones(3)}, head
        )
    if damage.endswith("weight"):
        weights = torch.ones(1) if damage == "one weight" else torch.tensor([1.0, 0.0, 1.0])
        save_file(load(content) | {"class_weights_3": weights}, head)
    if damage == "endless":
        save_file(load(content) | {"class_weights_3": torch.tensor([1.0, float("inf"), 1.0])}, head)
    if damage == "folder":
        head.mkdir()
    with pytest.raises(CorruptModel, match=r"span_head\.safetensors: cannot be read.*train or copy the model again"):
        RewardModel.from_pretrained(path)


@pytest.mark.parametrize("damage", ["no threshold", "no words", "half a pair"])
def test_a_card_that_lacks_something_is_not_filled_up(tmp_path: Path, damage: str) -> None:
    _, path = saved(tmp_path)
    card = json.loads((path / "reward_model.json").read_text(encoding="utf-8"))
    if damage == "half a pair":
        card["template"]["again"] = "\ud800"
    else:
        del card[{"no threshold": "calibration", "no words": "template"}[damage]][
            {"no threshold": "poor", "no words": "after"}[damage]
        ]
    (path / "reward_model.json").write_text(json.dumps(card))
    with pytest.raises(CorruptModel, match=r"reward_model\.json.*(has no (poor|after)|half a surrogate)"):
        RewardModel.from_pretrained(path)


def test_a_template_has_no_more_room_than_the_model_has_positions(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    card = json.loads((path / "reward_model.json").read_text(encoding="utf-8"))
    card["template"]["max_tokens"] = 10**6
    (path / "reward_model.json").write_text(json.dumps(card))
    model, _ = RewardModel.from_pretrained(path)
    assert model.template.max_tokens == model.base.config.max_position_embeddings


def test_the_card_is_for_people_too(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    card = json.loads((path / "reward_model.json").read_text(encoding="utf-8"))
    assert card["template"]["gap"] == " […] " and "[…]" in (path / "reward_model.json").read_text(encoding="utf-8")
    assert card["calibration"]["poor"] == 0.25


def test_in_bf16_the_weights_are_and_the_head_is_not(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    whole, tokenizer = RewardModel.from_pretrained(path)
    half, _ = RewardModel.from_pretrained(path, precision="bfloat16")
    assert {weight.dtype for weight in half.base.parameters()} == {torch.bfloat16}
    assert half.span_head.linear.weight.dtype == torch.float32
    encoded = [whole.reader(tokenizer).encode("Which river?", "The Drava.")]
    one, two = (model.read(model.predict(encoded, 512)[0])[0] for model in (whole, half))
    assert torch.allclose(one, two, atol=0.05)
