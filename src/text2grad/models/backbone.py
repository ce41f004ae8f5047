"""The causal model under every head of ours: adapters, precision, hidden states, vocabulary projection, saving.

Enters: a transformers model and a batch. Leaves: hidden states, the vocabulary projection, or a folder that plain
transformers loads. Knows no loss and no task. `Policy` puts a value head on it, `RewardModel` a span head.
"""

import copy
import logging
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from text2grad.errors import ModelError
from text2grad.models.cache import alias_of
from text2grad.models.chat import end_ids
from text2grad.models.load import quiet_bars
from text2grad.models.modes import evaluating
from text2grad.models.packed import NAME as PACKED
from text2grad.models.packed import Packed, packed, trial
from text2grad.models.recorded import Recorder
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.batch import Batch, sent
from text2grad.optim.head import Head

log = logging.getLogger("text2grad")

PACKING_ERROR = 0.1
"""Relative difference between packed and padded rows, in bf16, of hidden states and gradients together. A mistake gives
1, or no number."""
SMALL = 1_000_000_000
"""Weights of a model whose passes are recorded; larger ones keep a GPU busy by themselves."""
PROGRAMS = 32
"""Of a compiled layer, at most."""
KEEP_ALL_KEYS = ("llama", "qwen2", "qwen3", "mistral", "granite", "smollm3")
"""Families of which it is known that a layer keeps the keys of every token: no windows, no recurrent states."""


class TokenHead(nn.Module):
    """hidden (…, H) → (…, outputs), in fp32; (…) for one output. It starts at 0."""

    def __init__(self, hidden: int, outputs: int = 1) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, outputs)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        # Clone: FSDP hooks modify outputs in place.
        numbers: Tensor = self.linear(hidden.float()).squeeze(-1).clone()
        return numbers


class Backbone(nn.Module):
    """A causal model with or without LoRA, read in the precision of the settings."""

    def __init__(self, model: Any, options: PolicySettings) -> None:
        super().__init__()
        self.options = options
        self._packing_works: bool | None = None
        self._recorder: Recorder | None = None
        self.model = _with_lora(model, options.lora) if options.lora.rank else model.requires_grad_(True)
        if options.gradient_checkpointing:
            self.base.gradient_checkpointing_enable({"use_reentrant": False})
            self.base.enable_input_require_grads()
        _check_head(self)
        self._count = sum(weight.numel() for weight in self.model.parameters())
        self.compile_layers()

    def compile_layers(self) -> None:
        """With `policy.compile`. A copy of a model is not compiled: ask again for it."""
        if not self.options.compile:
            return
        # Policy and reference, with gradients and without: each has its program, and more than torch's usual 8 are
        # better than to go on without any.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, PROGRAMS)
        for layer in self.layers():
            # Lengths differ from one micro-batch to the next: one program for all of them.
            layer.compile(dynamic=True)

    @property
    def base(self) -> Any:
        """The transformers model, without peft's wrapper."""
        return self.model.get_base_model() if self.options.lora.rank else self.model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def layers(self) -> list[nn.Module]:
        """The decoder layers."""
        number = self.base.config.get_text_config().num_hidden_layers
        parts = self.base.base_model.modules()
        return [layer for part in parts if isinstance(part, nn.ModuleList) and len(part) == number for layer in part]

    def token_head(self, outputs: int = 1) -> TokenHead:
        """A new head for this model's hidden states, on its device."""
        return TokenHead(self.base.config.get_text_config().hidden_size, outputs).to(self.device)

    def head(self, temperature: float = 1.0) -> Head:
        """The vocabulary projection with its current weights."""
        projection, config = self.base.get_output_embeddings(), self.base.config.get_text_config()
        scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1)
        softcap = getattr(config, "final_logit_softcapping", None)
        return Head(projection.weight, projection.bias, scale, softcap, temperature)

    def hidden(self, ids_BS: Tensor) -> Tensor:
        """Hidden states of each row, (B, S - 1, H). The last column predicts nothing, so it is not run."""
        ids_BS = sent(ids_BS[:, :-1], self.device)
        with self._precision():
            hidden_BSH: Tensor = self.base.base_model(input_ids=ids_BS, use_cache=False).last_hidden_state
        return hidden_BSH

    def completion_hidden(self, batch: Batch, *, share: bool = False) -> Tensor:
        """Hidden states that each completion token was chosen from, in the order of `Batch.where`, in the precision of
        the vocabulary projection. `share`: read a prompt that several rows begin with only once."""
        hidden_NH = None
        if share:
            hidden_NH = self._hidden_packed(batch) if self.packs() else self._hidden_shared(batch)
        if hidden_NH is None:
            hidden_NH = at_positions(self.hidden(batch.ids_BS), *batch.where()[:2])
        return self.narrowed(hidden_NH)

    def narrowed(self, hidden_NH: Tensor) -> Tensor:
        """In the precision of the vocabulary projection."""
        return hidden_NH.to(torch.bfloat16) if self.options.precision == "bfloat16" else hidden_NH

    def packs(self) -> bool:
        """Whether rows are read without padding, in one pass (`packed.py`): a layer sees every token before it, and its
        attention is torch's own, which can be replaced."""
        config = self.base.config.get_text_config()
        fits = _sees_all(config) and config._attn_implementation in ("sdpa", PACKED)
        if not fits or getattr(config, "attention_dropout", None) or self.options.packing == "never":
            return False
        if self.options.packing == "always":
            return True
        if self.device.type != "cuda" or self.options.precision != "bfloat16":
            return False
        if self._packing_works is None:
            self._packing_works = self._try_packing()
        return self._packing_works

    def _try_packing(self) -> bool:
        """Whether hidden states and gradients come out as those of padded rows do; a line in the log, if not."""
        if any(hasattr(weight, "full_tensor") for weight in self.parameters()):
            return False  # other processes would have to take part
        given = trial()
        weights = [weight for weight in self.layers()[0].parameters() if weight.requires_grad]

        def taken(hidden_NH: Tensor | None) -> Tensor:
            assert hidden_NH is not None
            found: tuple[Tensor | None, ...] = ()
            if weights:  # a reference has none that learn
                found = torch.autograd.grad(hidden_NH.float().square().mean(), weights, allow_unused=True)
            return torch.cat(
                [hidden_NH.detach().flatten().float(), *(one.flatten() for one in found if one is not None)]
            )

        with torch.enable_grad(), evaluating(self):
            # What comes twice is recorded.
            ours = [taken(self._hidden_packed(given)) for _ in range(1 + self.records())][-1]
            theirs = taken(at_positions(self.hidden(given.ids_BS), *given.where()[:2]))
        error = float((ours - theirs).norm() / theirs.norm())
        if not error <= PACKING_ERROR:
            log.warning("rows are padded, which is slower: read without padding, numbers are off by %.2g", error)
        return error <= PACKING_ERROR

    def shares_prompts(self) -> bool:
        """Whether a prompt can be read once for several rows: rows are packed; or each layer keeps the keys of every
        token, weights are not sharded, and activations are kept. Without packing it takes two passes, and processes
        that gather weights must make equally many; a layer that is run again in the backward pass would find its keys
        there already."""
        if self.packs():
            return True
        if torch.is_grad_enabled() and self.training and (self.options.gradient_checkpointing or self.options.compile):
            return False
        if any(hasattr(weight, "full_tensor") for weight in self.parameters()):
            return False
        return _sees_all(self.base.config.get_text_config())

    def save_pretrained(
        self, path: str | Path, tokenizer: Any, weights: dict[str, Tensor] | None = None, *, adapter: bool = False
    ) -> None:
        """A folder that plain transformers loads: adapters are merged into the weights they adapt, and the dtype is the
        one that the base was published in, where that is known. `adapter`: the adapters alone, for peft.

        `weights`: those of `model`, whole, where its own are sharded over processes; of an adapter the trained ones
        are enough."""
        if adapter:
            write_adapter(self.model, path, weights)
            tokenizer.save_pretrained(path)
            return
        model = self.model if weights is None else self._rebuilt(weights)
        saves_as = getattr(self.base, "saves_as", None) or self.base.dtype
        if weights is None and (self.options.lora.rank or saves_as != self.base.dtype):
            model = copy.deepcopy(model)
        if self.options.lora.rank:
            model = model.merge_and_unload()
        model.to(saves_as)
        if model.generation_config is not None and len(ends := end_ids(tokenizer, model)) > 1:
            # What ended completions in training ends them in `generate`.
            model.generation_config.eos_token_id = list(ends)
        _make_savable(model)
        with quiet_bars():
            model.save_pretrained(path)
            tokenizer.save_pretrained(path)

    def _rebuilt(self, weights: dict[str, Tensor]) -> Any:
        """The model again, in one piece, on the CPU, around these very weights."""
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = type(self.base)(self.base.config).to(self.base.dtype)
            model.generation_config = self.base.generation_config
            model = _with_lora(model, self.options.lora) if self.options.lora.rank else model
        model.load_state_dict(weights, assign=True)
        (model.get_base_model() if self.options.lora.rank else model).tie_weights()
        return model

    def records(self) -> bool:
        """Whether passes over packed rows become CUDA graphs (`recorded.py`)."""
        options, wanted = self.options, self.options.cuda_graphs
        if wanted == "never" or self.device.type != "cuda" or options.gradient_checkpointing or options.lora.dropout:
            return False
        if wanted == "always":
            return True
        alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        return alone and self._count < SMALL

    def release(self) -> None:
        """Let go of the memory that recorded passes hold."""
        if self._recorder is not None:
            self._recorder.release()

    def _hidden_packed(self, batch: Batch) -> Tensor | None:
        """The same in one pass over one row: each prompt once, then the completions. None where nothing counts."""
        records = self.records()
        row = packed(batch, self.device, rounded=records, alike=self.options.compile)
        if row is None:
            return None
        self.base.config.get_text_config()._attn_implementation = PACKED
        embedded_SH = self.base.get_input_embeddings()(row.ids_S)
        if not records:
            return row.read(self._pass(embedded_SH, row))
        if self._recorder is None:
            self._recorder = Recorder(self._pass, dict(self.base.base_model.named_parameters()))
        # Of peft's layers; a transformers model has a method of the same name.
        switches = (getattr(part, "disable_adapters", None) for part in self.model.modules())
        adapters_off = any(switch is True for switch in switches)
        return row.read(self._recorder(embedded_SH, row, adapters_off))

    def _pass(self, embedded_SH: Tensor, row: Packed, weights: dict[str, nn.Parameter] | None = None) -> Tensor:
        """Embedded tokens of a packed row → its hidden states, with these weights in place of the model's own."""
        # A mask that is there already keeps the model from making one of S × S.
        unused = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device)
        # Without a cache of keys, one compiled layer serves passes with and without gradients.
        compiled = torch.compiler.set_stance("default") if self.options.compile else nullcontext()
        # A view would have a program of its own.
        embedded_1SH = embedded_SH[None].clone() if self.options.compile else embedded_SH[None]
        with self._precision(), compiled:
            given = {
                "inputs_embeds": embedded_1SH,
                "attention_mask": unused,
                "position_ids": row.place_S[None],
                "use_cache": False,
                "packed_row": row,
            }
            model = self.base.base_model
            read = model(**given) if weights is None else functional_call(model, dict[str, Tensor](weights), (), given)
        hidden_SH: Tensor = read.last_hidden_state[0]
        return hidden_SH

    def _hidden_shared(self, batch: Batch) -> Tensor | None:
        """The same in two passes: each prompt once, then the completions upon its keys. None where it saves little."""
        batch = batch.to(self.device)
        prompts_UP, mask_UP, which_B = batch.prompts()
        if 2 * len(prompts_UP) > len(batch) or not batch.mask_BT.any():
            return None
        place_UP = (mask_UP.cumsum(-1) - 1).clamp(min=0)
        with self._precision():
            read = self.base.base_model(
                input_ids=prompts_UP, attention_mask=mask_UP.long(), position_ids=place_UP, use_cache=True
            )
            hidden_BTH = read.last_hidden_state[which_B, -1:]
            width = batch.mask_BT.shape[1] - 1
            if width:
                read.past_key_values.batch_select_indices(which_B)
                place_BT = batch.prompt_B[:, None] + torch.arange(width, device=which_B.device)
                ids_BT = batch.ids_BS.gather(1, place_BT.clamp(max=batch.ids_BS.shape[1] - 1))
                mask_BS = torch.cat([mask_UP[which_B], torch.ones_like(ids_BT, dtype=torch.bool)], 1)
                written = self.base.base_model(
                    input_ids=ids_BT,
                    attention_mask=mask_BS.long(),
                    position_ids=place_BT,
                    past_key_values=read.past_key_values,
                    use_cache=True,
                )
                hidden_BTH = torch.cat([hidden_BTH, written.last_hidden_state], 1)
        hidden_NH: Tensor = hidden_BTH[batch.mask_BT]
        return hidden_NH

    def _precision(self) -> AbstractContextManager[Any]:
        if self.options.precision != "bfloat16":
            return nullcontext()
        config = self.base.config.get_text_config()
        if self.device.type == "cpu" and config._attn_implementation == "sdpa" and _sees_all(config):
            # It knows a faster way there (products.py). Some other families look for the name `sdpa` in their code.
            config._attn_implementation = PACKED
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


class Headed(nn.Module):
    """A backbone with a head of ours on it: what `Policy` and `RewardModel` have in common."""

    def __init__(self, model: Any, options: PolicySettings) -> None:
        super().__init__()
        self.backbone, self.options = Backbone(model, options), options

    @property
    def model(self) -> Any:
        """The transformers model, in peft's wrapper where there is an adapter."""
        return self.backbone.model

    @property
    def base(self) -> Any:
        """The transformers model, without peft's wrapper."""
        return self.backbone.base

    @property
    def device(self) -> torch.device:
        return self.backbone.device

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}

    def save_pretrained(
        self, path: str | Path, tokenizer: Any, weights: dict[str, Tensor] | None = None, *, adapter: bool = False
    ) -> None:
        """A folder that plain transformers, or peft, loads; see `Backbone.save_pretrained`."""
        self.backbone.save_pretrained(path, tokenizer, weights, adapter=adapter)


def at_positions(hidden_BSH: Tensor, row_N: Tensor, position_N: Tensor) -> Tensor:
    """(N, H): the hidden states at these places. Each place comes at most once, so the backward pass of a plain
    selection is an addition, not a sort."""
    place_N = sent(row_N * hidden_BSH.shape[1] + position_N, hidden_BSH.device)
    return hidden_BSH.flatten(0, 1).index_select(0, place_N)


def _sees_all(config: Any) -> bool:
    """Whether each layer of such a model sees every token before it."""
    windows = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    return not windows and not getattr(config, "sliding_window", None) and config.model_type in KEEP_ALL_KEYS


def write_adapter(model: Any, path: str | Path, weights: dict[str, Tensor] | None = None) -> None:
    """peft's two files: the adapter of this model, and its description. A base in a folder is named by its whole path,
    so that the adapter can be moved, and one that an alias stands for by the alias, so that another machine finds it.

    `weights`: the trained ones, whole, where they are sharded. Not by peft's own `save_pretrained`, which also looks
    for the base model's files."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    state = get_peft_model_state_dict(model, state_dict=weights, save_embedding_layers=False)
    Path(path).mkdir(parents=True, exist_ok=True)
    plain = {name: weight.detach().cpu().contiguous() for name, weight in state.items()}
    save_file(plain, Path(path) / "adapter_model.safetensors", metadata={"format": "pt"})
    (options,) = map(copy.deepcopy, model.peft_config.values())
    base = Path(str(options.base_model_name_or_path))
    named = alias_of(base) or (str(base.resolve()) if base.is_dir() else str(base))
    options.base_model_name_or_path, options.inference_mode = named, True
    options.save_pretrained(path)


def write_weights(
    model: Any, path: str | Path, weights: dict[str, Tensor] | None = None, *, narrow: bool = False
) -> None:
    """All weights of a transformers model as safetensors, in the precision that they are held in; `narrow`: in bf16.
    `weights`: the same, whole, where they are sharded."""
    state = model.state_dict() if weights is None else weights
    if narrow:
        state = {name: weight.to(torch.bfloat16) for name, weight in state.items()}
    _make_savable(model)
    with quiet_bars():
        model.save_pretrained(path, state_dict=state)


def _make_savable(model: Any) -> None:
    """transformers reads generation settings that it refuses to write: a temperature without sampling, for one."""
    given = model.generation_config
    if given is None:
        return
    try:
        given.validate(strict=True)
    except ValueError:
        kept = {name: getattr(given, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        sampling = {name: getattr(given, name, None) for name in ("temperature", "top_p", "top_k")}
        model.generation_config = type(given)(**kept, do_sample=True, **sampling)
        try:
            model.generation_config.validate(strict=True)
        except ValueError:
            model.generation_config = type(given)(**kept)
        log.warning("the model's generation settings contradict each other and could not be saved; they were put right")


def _with_lora(model: Any, options: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = list(options.targets) or "all-linear"
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            # Refused below, in our own words.
            warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")
            return get_peft_model(model, config)
    except ValueError as problem:
        raise ModelError(f"lora.targets: {problem}") from None


def _check_head(backbone: Backbone) -> None:
    """Some model families do more to their logits than is known here; better to find out now than to train wrongly."""
    projection = backbone.base.get_output_embeddings()
    if not isinstance(projection, nn.Linear):
        raise ModelError(
            f"{type(backbone.base).__name__}: the vocabulary projection should be a torch.nn.Linear, got a "
            f"{type(projection).__module__}.{type(projection).__name__}; name other layers in lora.targets, or load "
            f"the model without quantisation"
        )
    embedding = backbone.base.get_input_embeddings()
    if hasattr(embedding, "base_layer") and embedding.base_layer.weight is projection.weight:
        raise ModelError(
            f"{type(backbone.base).__name__}: its embedding is also its vocabulary projection, which an adapter on the "
            f"embedding would leave as it is, and merging would change; name other layers in lora.targets"
        )
    vocabulary, device = len(projection.weight), backbone.device
    ids_BS = torch.arange(4, device=device)[None] % vocabulary
    with torch.no_grad(), evaluating(backbone):
        wanted = backbone.base(input_ids=ids_BS, use_cache=False).logits[0].float()
        hidden = backbone.base.base_model(input_ids=ids_BS, use_cache=False).last_hidden_state[0]
        came = backbone.head().logits(hidden)
    if not bool(wanted.isfinite().all()):
        raise ModelError(
            f"{type(backbone.base).__name__}: its logits are not finite, so its weights are damaged, or those of a run "
            f"that ran away; take another copy of the model"
        )
    error = float((wanted - came).abs().max())
    # A model held in bf16 scales and caps its logits in bf16 as well.
    allowed = 1e-3 if projection.weight.dtype == torch.float32 else 3e-2
    if not error <= allowed * max(1.0, float(wanted.abs().max())):
        raise ModelError(
            f"{type(backbone.base).__name__}: does something to its logits that text2grad does not know (they differ "
            f"by {error:.3g}); the families Llama, Qwen, Mistral, Gemma, SmolLM, Granite and Cohere work"
        )
