"""A server on loopback that speaks vLLM's HTTP protocol, and SGLang's as documented, over a tiny torch model.

Completions are drawn from softmax(logits / temperature) by the seed of the request alone. Adapters and weights are read
from the folders that clients name. `faults` decides, for each completion, what goes wrong: see `Loopback`.
"""

import copy
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file

from text2grad.models.tiny import tiny_model, tiny_tokenizer

Fault = Callable[[int], str]
"""Number of a completion that is asked for → what goes wrong: "", "500", "reset", "die", "cut", "nan", "short", a key
of `BAD_IDS`, or "hang": from then on it accepts every request, and answers none until it is told to stop."""
BAD_IDS: dict[str, Any] = {"outside": 10**6, "negative": -1, "half": 1.5, "true": True, "none": None}
"""Fault → what the last id becomes; with "none" there are no ids at all."""


class Loopback:
    """The server. `faults`: per completion. `stale`: takes over no weights, and says that it has. `raw`: log-probs
    without the temperature, as vLLM gives them by default. `rounded`: computes log-probs in bf16."""

    def __init__(
        self,
        base: Any = None,
        *,
        faults: Fault = lambda _: "",
        stale: bool = False,
        raw: bool = False,
        noise: float = 0.0,
        key: str = "",
    ) -> None:
        self.base = copy.deepcopy(base) if base is not None else tiny_model(tiny_tokenizer(), hidden_size=16, layers=1)
        self.model, self.adapters = copy.deepcopy(self.base), dict[str, Any]()
        self.faults, self.stale, self.raw, self.noise, self.key = faults, stale, raw, noise, key
        self.hangs, self.released = False, threading.Event()
        self.asked, self.log, self.lock = 0, list[tuple[str, Any]](), threading.Lock()
        self.http: ThreadingHTTPServer
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Loopback":
        """Up, at the same address as before if there was one."""
        ThreadingHTTPServer.allow_reuse_address = True
        handler = type("Bound", (Handler,), {"owner": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def stop(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()

    def restart(self) -> None:
        """As somebody would start it again: with the model that it was first started with, and no adapter."""
        self.model, self.adapters = copy.deepcopy(self.base), {}
        self.start()

    def paths(self) -> list[str]:
        return [path for path, _ in self.log]

    # ------------------------------------------------------------------------------------------------ the protocol

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        with self.lock:
            self.log.append((path, body))
            routes: dict[str, Callable[[Any], tuple[int, Any]]] = {
                "/v1/models": lambda _: (200, {"data": self._models()}),
                "/v1/completions": self._vllm,
                "/v1/load_lora_adapter": self._load,
                "/v1/unload_lora_adapter": self._unload,
                "/collective_rpc": lambda body: self._reload(body["kwargs"]["weights_path"]),
                "/reset_prefix_cache": lambda _: (200, None),
                "/generate": self._sglang,
                "/load_lora_adapter": self._load,
                "/unload_lora_adapter": self._unload,
                "/update_weights_from_disk": lambda body: self._reload(body["model_path"]),
            }
            if path not in routes:
                return 404, {"detail": "Not Found"}
            return routes[path](body)

    def _models(self) -> list[dict[str, Any]]:
        return [{"id": "tiny", "parent": None}, *({"id": name, "parent": "tiny"} for name in self.adapters)]

    def _load(self, body: Any) -> tuple[int, Any]:
        name, folder = body["lora_name"], Path(body["lora_path"])
        if name in self.adapters:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
        if not (folder / "adapter_config.json").is_file():
            return 404, {"error": {"message": f"No adapter found for {folder}"}}
        adapted = self.model if self.stale else PeftModel.from_pretrained(copy.deepcopy(self.model), str(folder))
        self.adapters[name] = adapted.eval()
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _unload(self, body: Any) -> tuple[int, Any]:
        found = self.adapters.pop(body["lora_name"], None)
        return (200, "Success") if found is not None else (404, {"error": {"message": "not found"}})

    def _reload(self, folder: str) -> tuple[int, Any]:
        if not self.stale:
            state = {
                name: weight.to(torch.float32)
                for file in sorted(Path(folder).glob("*.safetensors"))
                for name, weight in load_file(file).items()
            }
            missing, unexpected = self.model.load_state_dict(state, strict=False)
            assert not unexpected and set(missing) <= {"lm_head.weight"}
        return 200, {"results": [None]}

    def _vllm(self, body: Any) -> tuple[int, Any]:
        if (top := {name: body.get(name) for name in ("top_p", "top_k", "min_p")}) != {
            "top_p": 1,
            "top_k": 0,
            "min_p": 0,
        }:
            return 400, {"error": {"message": f"should sample from the whole distribution, got {top}"}}
        if body["model"] != "tiny" and body["model"] not in self.adapters:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        model = self.adapters.get(body["model"], self.model)
        ids, logprobs, ended = self.draw(model, body["prompt"], body["max_tokens"], body)
        choice = {
            "token_ids": ids,
            "prompt_token_ids": body["prompt"],
            "logprobs": {"token_logprobs": logprobs},
            "finish_reason": ended,
        }
        return 200, {"choices": [choice]}

    def _sglang(self, body: Any) -> tuple[int, Any]:
        sampling = body["sampling_params"]
        model = self.adapters[body["lora_path"]] if "lora_path" in body else self.model
        asked = sampling | {"seed": sampling["sampling_seed"]}
        ids, logprobs, ended = self.draw(model, body["input_ids"], sampling["max_new_tokens"], asked)
        pairs = [[logprob, one, None] for one, logprob in zip(ids, logprobs, strict=True)]
        return 200, {"meta_info": {"output_token_logprobs": pairs, "finish_reason": {"type": ended}}}

    @torch.no_grad()
    def draw(self, model: Any, prompt: list[int], most: int, asked: Any) -> tuple[list[int], list[Any], str]:
        random = torch.Generator().manual_seed(asked["seed"])
        row, ids, logprobs = list(prompt), list[int](), list[float]()
        for _ in range(most):
            logits = model(input_ids=torch.tensor([row])).logits[0, -1].float()
            temperature = asked["temperature"]
            if self.noise:
                logits = logits + self.noise * torch.randn(logits.shape, generator=random)
            drawn = logits.log_softmax(-1) if not temperature else (logits / temperature).log_softmax(-1)
            one = int(drawn.argmax() if not temperature else torch.multinomial(drawn.exp(), 1, generator=random))
            shown = logits.log_softmax(-1) if self.raw else drawn
            row, ids, logprobs = [*row, one], [*ids, one], [*logprobs, float(shown[one])]
            if one in asked["stop_token_ids"]:
                return ids, logprobs, "stop"
        return ids, logprobs, "length"


class Handler(BaseHTTPRequestHandler):
    owner: Loopback
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._reply(None)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._reply(json.loads(self.rfile.read(length) or b"null"))

    def _reply(self, body: Any) -> None:
        owner, fault = self.owner, ""
        if owner.key and self.headers.get("Authorization") != f"Bearer {owner.key}":
            return self._send(401, {"error": "Unauthorized"})
        if self.path in ("/v1/completions", "/generate"):
            with owner.lock:
                owner.asked += 1
                fault = owner.faults(owner.asked)
        owner.hangs = owner.hangs or fault == "hang"
        if owner.hangs:
            owner.released.wait()
            return None
        if fault in ("die", "reset"):
            if fault == "die":
                threading.Thread(target=owner.stop, daemon=True).start()
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        if fault == "500":
            return self._send(500, {"error": "CUDA out of memory"})
        status, reply = owner.answer(self.path, body)
        if fault in ("nan", "short"):
            numbers = reply["choices"][0]["logprobs"]["token_logprobs"]
            numbers[-1:] = [float("nan")] if fault == "nan" else []
        if fault in BAD_IDS:
            choice = reply["choices"][0]
            choice["token_ids"] = None if fault == "none" else [*choice["token_ids"][:-1], BAD_IDS[fault]]
        return self._send(status, reply, cut=fault == "cut")

    def _send(self, status: int, reply: Any, *, cut: bool = False) -> None:
        data = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.connection.shutdown(socket.SHUT_RDWR)
