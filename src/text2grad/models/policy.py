"""The policy: a causal model, its value head where there is one, and its reference.

Enters: a transformers model and a batch. Leaves: losses with gradients, or log-probs and values without. The backbone
runs once; only the completion's positions go through the vocabulary projection, a chunk at a time (`optim/head.py`).
The reference is the same model with its adapter off, or a frozen copy.
"""

import copy
import logging
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from text2grad.errors import ModelError
from text2grad.models.chat import end_ids
from text2grad.models.load import quiet_bars
from text2grad.models.modes import evaluating
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.batch import Batch, micro_batches
from text2grad.optim.head import Head, LossOf, log_probs, token_losses
from text2grad.optim.reduce import ALONE, Exchange

log = logging.getLogger("text2grad")


class Forward(NamedTuple):
    """What one pass over a micro-batch gives; N completion tokens in the order of `Batch.where`."""

    loss: Tensor
    logprobs_N: Tensor
    entropy_N: Tensor
    values_N: Tensor | None


class Policy(nn.Module):
    """A model that can be updated from token advantages."""

    def __init__(self, model: Any, options: PolicySettings, *, value_head: bool, temperature: float = 1.0) -> None:
        super().__init__()
        self.options = options
        self.temperature = temperature
        self.model = _with_lora(model, options.lora) if options.lora.rank else model.requires_grad_(True)
        hidden = model.config.get_text_config().hidden_size
        self.value_head = ValueHead(hidden) if value_head else None
        if self.value_head is not None:
            self.value_head.to(self.device)
        if options.gradient_checkpointing:
            self.base.gradient_checkpointing_enable({"use_reentrant": False})
            self.base.enable_input_require_grads()
        _check_head(self)
        if options.compile:
            for layer in layers_of(self.base):
                # Lengths differ from one micro-batch to the next: one program for all of them.
                layer.compile(dynamic=True)

    @property
    def base(self) -> Any:
        """The transformers model, without what peft wraps around it."""
        return self.model.get_base_model() if self.options.lora.rank else self.model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def head(self) -> Head:
        """The vocabulary projection as it is now."""
        projection, config = self.base.get_output_embeddings(), self.base.config.get_text_config()
        scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1)
        softcap = getattr(config, "final_logit_softcapping", None)
        return Head(projection.weight, projection.bias, scale, softcap, self.temperature)

    def forward(
        self,
        batch: Batch,
        loss_of: LossOf | None = None,
        value_loss_of: Callable[[Tensor], Tensor] | None = None,
        entropy: bool = False,
        share: bool = False,
    ) -> Forward:
        """A micro-batch: its loss with gradients; or, without a loss, log-probs and values to look at. `share`: read a
        prompt that several rows begin with only once.

        Everything that reads weights comes through here, because this is where a sharded policy gathers them."""
        hidden_NH, ids_N = self._hidden(batch, share)
        if loss_of is None:
            logprobs_N = log_probs(hidden_NH, self.head(), ids_N)
            loss, entropy_N = logprobs_N.new_zeros(()), torch.zeros_like(logprobs_N)
        else:
            loss, logprobs_N, entropy_N = token_losses(hidden_NH, self.head(), ids_N, loss_of, entropy=entropy)
        values_N = None
        if self.value_head is not None:
            values_N = self.value_head(hidden_NH if self.options.value_gradient else hidden_NH.detach())
            if value_loss_of is not None:
                loss = loss + value_loss_of(values_N)
        return Forward(loss, logprobs_N, entropy_N, values_N)

    @torch.no_grad()
    def look(self, batch: Batch, size: int, among: Exchange = ALONE) -> tuple[Tensor, Tensor | None]:
        """(logprobs_BT, values_BT) of the policy as it is, `size` completions at a time; 0 outside the mask."""
        logprobs_BT = torch.zeros_like(batch.logprobs_BT)
        values_BT = torch.zeros_like(logprobs_BT) if self.value_head is not None else None
        # Reading a shared prompt once makes two passes of one; processes that gather weights must make equally many.
        share = not any(hasattr(weight, "full_tensor") for weight in self.parameters()) and _keeps_all_keys(self.base)
        rows = torch.arange(len(batch), device=batch.ids_BS.device)
        parts = list(micro_batches(batch, rows, size, together=share))
        # Where weights are gathered from other processes, all must go through the model equally often.
        spare = among.most(len(parts)) - len(parts)
        with evaluating(self):
            for index in parts + parts[:1] * spare:
                part = batch.rows(index)
                out = self(part, share=share)
                row_N, t_N = part.mask_BT.nonzero(as_tuple=True)
                logprobs_BT[index[row_N], t_N] = out.logprobs_N
                if values_BT is not None:
                    values_BT[index[row_N], t_N] = out.values_N
        return logprobs_BT, values_BT

    def without_adapter(self) -> AbstractContextManager[None]:
        """The policy as its own reference; only with LoRA."""
        return self.model.disable_adapter()  # type: ignore[no-any-return]

    def reference(self) -> "Reference":
        """What the policy is kept near to: itself without its adapter, or a frozen copy of it as it is now."""
        return Reference(self)

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}

    def save_pretrained(self, path: str | Path, tokenizer: Any, weights: dict[str, Tensor] | None = None) -> None:
        """A folder that plain transformers loads: adapters are merged into the weights they adapt.

        `weights`: those of `model`, whole, where its own are shared out over processes."""
        model = self.model if weights is None else self._rebuilt(weights)
        if self.options.lora.rank:
            model = (copy.deepcopy(model) if weights is None else model).merge_and_unload()
        if model.generation_config is not None and len(ends := end_ids(tokenizer, model)) > 1:
            # What ended completions in training ends them in `generate`.
            model.generation_config.eos_token_id = list(ends)
        _make_savable(model)
        with quiet_bars():
            model.save_pretrained(path)
            tokenizer.save_pretrained(path)

    def _rebuilt(self, weights: dict[str, Tensor]) -> Any:
        """The model again, in one piece, on the CPU."""
        with torch.random.fork_rng(devices=[]):
            model = type(self.base)(self.base.config).to(self.base.dtype)
            model.generation_config = self.base.generation_config
            model = _with_lora(model, self.options.lora) if self.options.lora.rank else model
        model.load_state_dict(weights)
        return model

    def _hidden(self, batch: Batch, share: bool = False) -> tuple[Tensor, Tensor]:
        """Hidden states of the places where completion tokens were chosen, and those tokens."""
        row_N, position_N, ids_N = batch.where()
        hidden_NH = self._hidden_shared(batch) if share else None
        if hidden_NH is None:
            # The last column predicts nothing that is there: it need not be run.
            with self._precision():
                hidden_BSH = self.base.base_model(input_ids=batch.ids_BS[:, :-1], use_cache=False).last_hidden_state
            # Every place comes once, so a plain selection will do: its backward pass is an addition, not a sort.
            hidden_NH = hidden_BSH.flatten(0, 1).index_select(0, row_N * hidden_BSH.shape[1] + position_N)
        if self.options.precision == "bfloat16":
            hidden_NH = hidden_NH.to(torch.bfloat16)
        return hidden_NH, ids_N

    def _hidden_shared(self, batch: Batch) -> Tensor | None:
        """The same in two passes: each prompt once, then the completions upon its keys. None where it saves little."""
        prompts_UP, mask_UP, which_B = batch.prompts()
        if 2 * len(prompts_UP) > len(batch):
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
        if self.options.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()


class ValueHead(nn.Module):
    """hidden (…, H) → value (…), in fp32; it begins at 0 everywhere."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        # Not as a view: what a sharded module gives must bear being changed in place.
        values: Tensor = self.linear(hidden.float()).squeeze(-1).clone()
        return values


class Reference:
    """Log-probs of the policy as it was."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.copy: Policy | None = None
        if not policy.options.lora.rank:
            self.copy = copy.deepcopy(policy).requires_grad_(False).eval()
            self.copy.value_head = None

    def logprobs(self, batch: Batch, size: int, among: Exchange = ALONE) -> Tensor:
        if self.copy is not None:
            return self.copy.look(batch, size, among)[0]
        with self._policy.without_adapter():
            return self._policy.look(batch, size, among)[0]


def layers_of(model: Any) -> list[nn.Module]:
    """The decoder layers of a transformers model."""
    number = model.config.get_text_config().num_hidden_layers
    lists = [part for part in model.base_model.modules() if isinstance(part, nn.ModuleList) and len(part) == number]
    return [layer for part in lists for layer in part]


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


def _keeps_all_keys(model: Any) -> bool:
    """Whether each layer keeps the keys of every token: not with windows or recurrent states. Only families of which
    it is known."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    plain = kinds == {"full_attention"} and not getattr(config, "sliding_window", None)
    return plain and config.model_type in ("llama", "qwen2", "qwen3", "mistral", "granite", "smollm3")


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


def _check_head(policy: Policy) -> None:
    """Some model families do more to their logits than is known here; better to find out now than to train wrongly."""
    projection = policy.base.get_output_embeddings()
    if not isinstance(projection, nn.Linear):
        raise ModelError(
            f"{type(policy.base).__name__}: the vocabulary projection should be a torch.nn.Linear, got a "
            f"{type(projection).__module__}.{type(projection).__name__}; name other layers in lora.targets, or load "
            f"the model without quantisation"
        )
    embedding = policy.base.get_input_embeddings()
    if hasattr(embedding, "base_layer") and embedding.base_layer.weight is projection.weight:
        raise ModelError(
            f"{type(policy.base).__name__}: its embedding is also its vocabulary projection, which an adapter on the "
            f"embedding would leave as it is, and merging would change; name other layers in lora.targets"
        )
    vocabulary, device = len(projection.weight), policy.device
    ids_BS = torch.arange(4, device=device)[None] % vocabulary
    with torch.no_grad(), evaluating(policy):
        wanted = policy.base(input_ids=ids_BS, use_cache=False).logits[0].float() / policy.temperature
        hidden = policy.base.base_model(input_ids=ids_BS, use_cache=False).last_hidden_state[0]
        came = policy.head().logits(hidden)
    if not bool(wanted.isfinite().all()):
        raise ModelError(
            f"{type(policy.base).__name__}: its logits are not finite, so its weights are damaged, or those of a run "
            f"that ran away; take another copy of the model"
        )
    error = float((wanted - came).abs().max())
    # A model held in bf16 scales and caps its logits in bf16 as well.
    allowed = 1e-3 if projection.weight.dtype == torch.float32 else 3e-2
    if not error <= allowed * max(1.0, float(wanted.abs().max())):
        raise ModelError(
            f"{type(policy.base).__name__}: does something to its logits that text2grad does not know (they differ by "
            f"{error:.3g}); the families Llama, Qwen, Mistral, Gemma, SmolLM, Granite and Cohere work"
        )
