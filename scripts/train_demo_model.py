"""Make the model that `text2grad demo` starts from: a small Llama and its tokenizer, from nothing but our own task.

    python scripts/train_demo_model.py [--device cuda] [--out src/text2grad/models/embedded]

Trained on plain reports only, and only until it writes fluent bulletins: the hard reports, with their corrections and
distractors, are left to the demo. Prints how many facts it gets right on held-out reports of both kinds. About 10
minutes on two cores, half a minute on a GPU; weights differ in their last digits from machine to machine.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from text2grad.models.load import load_model
from text2grad.models.sampling import ModelSampler, SamplingSettings
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_tokenizer
from text2grad.tasks.bulletin import bulletins, texts
from text2grad.tasks.bulletin_critic import facts_right
from text2grad.training.settings import SFTSettings, SupervisedSettings
from text2grad.training.sft import SFTTrainer

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "src" / "text2grad" / "models" / "embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--updates", type=int, default=800)
    args = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer(texts(1, 2000), 1024)
    tokenizer.chat_template = None
    settings = SFTSettings(
        model="(made by scripts/train_demo_model.py)",
        updates=args.updates,
        evaluate_every=100,
        device=args.device,
        format="plain",
        checkpoint_every=args.updates,
        policy=PolicySettings(lora=LoraSettings(rank=0)),
        update=SupervisedSettings(learning_rate=2e-3, schedule="constant", warmup=100, beta2=0.99, micro_batch=32),
    )
    with tempfile.TemporaryDirectory() as scratch:
        outcome = SFTTrainer(
            settings,
            Path(scratch) / "run",
            model=LlamaForCausalLM(_config(tokenizer)),
            tokenizer=tokenizer,
            examples=bulletins(1, 20_000, plain=True),
            held_out=bulletins(2, 128, "held_out", plain=True),
            show=True,
        ).train()
        assert outcome.model is not None
        model, tokenizer = load_model(str(outcome.model), device=args.device)
    for plain in (True, False):
        print(f"facts right on {'plain' if plain else 'hard'} reports: {_facts(model, tokenizer, plain):.3f}")
    shutil.rmtree(args.out, ignore_errors=True)
    # Half the bytes; the demo computes in float32 from there.
    model.half().save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    size = sum(file.stat().st_size for file in args.out.iterdir())
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters, {size / 1e6:.1f} MB in {args.out}")


def _config(tokenizer: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _facts(model: Any, tokenizer: Any, plain: bool) -> float:
    """On held-out reports, greedily."""
    examples = bulletins(2, 256, "held_out", plain=plain)
    sampler = ModelSampler(
        model, SamplingSettings(max_new_tokens=40), end_ids=[tokenizer.eos_token_id], pad_id=tokenizer.pad_token_id
    )
    found = sampler([tokenizer(str(example.prompt)).input_ids for example in examples], None)
    said = [tokenizer.decode(one.token_ids, skip_special_tokens=True) for one in found]
    facts: list[Any] = [example.columns["facts"] for example in examples]
    return sum(map(facts_right, said, facts)) / len(examples)


if __name__ == "__main__":
    main()
