"""Servers that write completions: one HTTP request at a time, and many over several servers, whatever fails.

Enters: addresses, requests. Leaves: ids with the log-probs of the distribution they were drawn from. `VLLM` and
`SGLANG` say how each engine is asked; SGLang's is written from its documentation and was not run. No torch: weights are
folders here.
"""

import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from text2grad._checked import shorten
from text2grad.errors import ConfigError, RunError, first_line
from text2grad.secrets import hidden, remember, without_password

T = TypeVar("T")
PASSING = {408, 409, 425, 429, 500, 502, 503, 504}
"""Statuses of failures that may pass."""
LONGEST_WAIT = 30.0
"""Seconds between two tries, at most."""
PATIENCE = 10.0
"""Seconds that a request may be under way, at least, before another server is asked it too."""


class ServerFault(Exception):
    """Something that may pass: the same request goes to another server, or to this one again."""


class Forgotten(ServerFault):
    """The server has lost the weights that it was given: it was started again."""


class CompletionRequest(NamedTuple):
    """One completion that is wanted."""

    prompt: tuple[int, ...]
    tokens: int
    """At most."""
    temperature: float
    """0: the likeliest id each time."""
    seed: int
    end_ids: tuple[int, ...]


class ServedCompletion(NamedTuple):
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    truncated: bool


@dataclass
class Server:
    """One server of an engine, and what it is known to hold."""

    url: str
    engine: "Engine"
    timeout: float
    key: str | None = None
    vocabulary: float = math.inf
    """How many ids the policy has."""
    base: str | None = None
    """The name by which the served model itself is asked, once that is known."""
    holds: str = ""
    """Name of the weights that it has for certain; empty: it must be asked, or given them."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is made sure that it has the weights."""
    doubtful: bool = False
    """Its last answer failed or is overdue: nobody waits for it until it has answered again."""
    faults: int = 0
    """In a row."""
    resting_until: float = 0.0
    given_up: str = ""
    """Why it is asked nothing more in this batch."""

    def __post_init__(self) -> None:
        wrong, shown = "", without_password(self.url)
        try:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                wrong = "should hold addresses as http://host:8000, several with commas between them"
            elif "@" in parts.netloc or parts.query or parts.fragment:
                wrong = "should hold no name, password, query or fragment: none is sent. A key goes into VLLM_API_KEY"
        except ValueError as problem:
            wrong = f"should hold addresses as http://host:8000 ({first_line(problem)})"
        if wrong:
            raise ConfigError(f"sampling.url {wrong}; got {shown!r}")
        # As OpenAI's clients are given it; all paths here begin with it anyway.
        self.url = self.url.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def place(self) -> tuple[str, str, int, str]:
        """Scheme, host, port and path: equal for two spellings of one address."""
        parts = urlsplit(self.url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        return parts.scheme, parts.hostname or "", port, parts.path

    @property
    def local(self) -> bool:
        """Whether it runs on this machine, as far as its address says."""
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @property
    def name(self) -> str:
        """The address, without a password."""
        return without_password(self.url)

    def post(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """The reply, read as JSON where it is; `ServerFault` for what may pass, `RunError` for what will not."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.timeout)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        try:
            connection.request(
                method, parts.path.rstrip("/") + path, None if body is None else json.dumps(body), headers
            )
            reply = connection.getresponse()
            status, said = reply.status, reply.read().decode(errors="replace")
        except (OSError, HTTPException) as problem:
            raise ServerFault(f"{self.name}: {first_line(problem, named=True)}") from None
        finally:
            connection.close()
        if status in PASSING:
            raise ServerFault(f"{self.name}{path}: status {status}, {shorten(hidden(said, message=True), 200)}")
        if status >= 400:
            raise Denied(self, path, status, said)
        try:
            return json.loads(said)
        except (ValueError, RecursionError):
            return said

    def complete(self, request: CompletionRequest, model: str) -> ServedCompletion:
        """One completion, checked: what is not whole is a fault."""
        ids, logprobs, ended = self._read(lambda: self.engine.complete(self, request, model))
        if not isinstance(ids, list) or not isinstance(logprobs, list):
            raise ServerFault(
                f"{self.name}: should give lists of ids and log-probs, got {shorten((ids, logprobs), 60)}"
            )
        if strange := [one for one in ids if type(one) is not int or not 0 <= one < self.vocabulary]:
            raise ServerFault(
                f"{self.name}: should give ids from 0 to {self.vocabulary - 1}, those of the policy, got "
                f"{shorten(strange[0], 60)}. Does it serve the model that this run starts from?"
            )
        whole = ids and len(ids) == len(logprobs) and len(ids) <= request.tokens and ended in ("stop", "length")
        if not whole or not all(type(number) in (int, float) and math.isfinite(number) for number in logprobs):
            raise ServerFault(
                f"{self.name}: should give 1 to {request.tokens} ids with a finite log-prob each, got "
                f"{len(ids)} ids, {shorten(logprobs, 60)}, ended by {shorten(ended, 60)}"
            )
        return ServedCompletion(tuple(ids), tuple(logprobs), ended == "length" and ids[-1] not in request.end_ids)

    def base_name(self) -> str:
        """The name by which the served model is asked."""
        if self.base is None:
            self.base = self._read(lambda: self.engine.base(self))
        return self.base

    def _read(self, asked: Callable[[], T]) -> T:
        """A reply of a shape that the engine does not give is a fault."""
        try:
            return asked()
        except (LookupError, TypeError, AttributeError, ValueError, StopIteration) as problem:
            raise ServerFault(
                f"{self.name}: its reply is not one of {self.engine.name} ({first_line(problem, named=True)})"
            ) from None


class Denied(RunError):
    """A server says no, and will again."""

    def __init__(self, server: Server, path: str, status: int, said: str) -> None:
        self.status, self.said = status, said
        why = shorten(hidden(said, message=True), 300)
        super().__init__(f"{server.name}{path} refused (status {status}): {why}. {server.engine.advice(status, path)}")

    def __reduce__(self) -> tuple[type[RunError], tuple[object, ...]]:
        """To other processes it goes as its message."""
        return RunError, self.args


class Engine(NamedTuple):
    """How one kind of server is asked."""

    name: str
    complete: Callable[[Server, CompletionRequest, str], tuple[list[int], list[float], str]]
    """(server, request, model) → ids, log-probs, why it ended."""
    base: Callable[[Server], str]
    """The name by which the served model is asked."""
    load: Callable[[Server, str, str], None]
    """Take over the adapter in a folder under a name."""
    unload: Callable[[Server, str], None]
    reload: Callable[[Server, str], None]
    """Take over all weights from a folder."""
    flags: str
    """What it must be started with."""

    def advice(self, status: int, path: str) -> str:
        if status in (401, 403):
            return "Check VLLM_API_KEY"
        return f"It should be started with: {self.flags}" + ("" if "lora" not in path else " --max-lora-rank RANK")


# ------------------------------------------------------------------------------------------------------------- vLLM


def _vllm_complete(server: Server, request: CompletionRequest, model: str) -> tuple[list[int], list[float], str]:
    body = {
        "model": model,
        "prompt": list(request.prompt),
        "max_tokens": request.tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "n": 1,
        "logprobs": 0,
        "return_token_ids": True,
        "stop_token_ids": list(request.end_ids),
        # Left out, these come from the model's generation_config.json.
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "min_tokens": 0,
        "ignore_eos": False,
    }
    try:
        (choice,) = server.post("/v1/completions", body)["choices"]
    except Denied as problem:
        if problem.status == 404 and model in problem.said:
            raise Forgotten(str(problem)) from None
        raise
    if choice["prompt_token_ids"] not in (None, list(request.prompt)):
        raise ValueError("it has read other prompt ids than were sent")
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]


def _vllm_base(server: Server) -> str:
    models = server.post("/v1/models", method="GET")["data"]
    return str(next(model["id"] for model in models if not model.get("parent")))


def _vllm_load(server: Server, name: str, folder: str) -> None:
    try:
        server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder})
    except Denied as problem:
        if "already" not in problem.said:  # by another process of this run
            raise


def _vllm_unload(server: Server, name: str) -> None:
    server.post("/v1/unload_lora_adapter", {"lora_name": name})


def _vllm_reload(server: Server, folder: str) -> None:
    server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
    # Keys and values of prompts that the old weights have read.
    server.post("/reset_prefix_cache")


VLLM = Engine(
    *("vllm", _vllm_complete, _vllm_base, _vllm_load, _vllm_unload, _vllm_reload),
    "VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --logprobs-mode processed_logprobs "
    "--enable-lora",
)


# --------------------------------------------------------------------------------------- SGLang: read, never run


def _sglang_complete(server: Server, request: CompletionRequest, model: str) -> tuple[list[int], list[float], str]:
    sampling = {
        "max_new_tokens": request.tokens,
        "temperature": request.temperature,
        "sampling_seed": request.seed,
        "stop_token_ids": list(request.end_ids),
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "min_new_tokens": 0,
        "ignore_eos": False,
    }
    body = {"input_ids": list(request.prompt), "sampling_params": sampling, "return_logprob": True}
    meta = server.post("/generate", body | ({"lora_path": model} if model else {}))["meta_info"]
    pairs = meta["output_token_logprobs"]
    return [pair[1] for pair in pairs], [pair[0] for pair in pairs], meta["finish_reason"]["type"]


SGLANG = Engine(
    "sglang",
    _sglang_complete,
    lambda _: "",
    lambda server, name, folder: server.post("/load_lora_adapter", {"lora_name": name, "lora_path": folder}),
    lambda server, name: server.post("/unload_lora_adapter", {"lora_name": name}),
    lambda server, folder: server.post("/update_weights_from_disk", {"model_path": folder}),
    "python -m sglang.launch_server --model-path MODEL --enable-lora",
)
ENGINES = {engine.name: engine for engine in (VLLM, SGLANG)}


# ------------------------------------------------------------------------------------------------------ many of them


def servers_at(urls: str, engine: str, timeout: float, vocabulary: float = math.inf) -> list[Server]:
    """The servers behind addresses with commas between them."""
    key = os.environ.get("VLLM_API_KEY")
    remember(key)
    parts = [url for url in (part.strip() for part in urls.split(",")) if url]
    found = [Server(url, ENGINES[engine], timeout, key, vocabulary) for url in parts]
    if len({server.place for server in found}) < max(1, len(found)):
        raise ConfigError(f"sampling.url should hold different addresses, got {without_password(urls)!r}")
    return found


class RequestQueue:
    """Requests on their way to servers. Each server's workers take the next request that nobody has; one that fails
    goes back, and the server rests, twice as long each time. One that is overdue is asked of another server too, and
    the first answer counts. A server that may not have the weights is given no request before one worker has made
    sure of it. An answer does not depend on who gives it, as far as engines keep that."""

    def __init__(
        self,
        requests: Sequence[CompletionRequest],
        servers: Sequence[Server],
        ask: Callable[[Server, CompletionRequest], ServedCompletion],
        *,
        ready: Callable[[Server], bool],
        prepare: Callable[[Server], None],
        workers: int,
        retries: int,
    ) -> None:
        """`ready`: whether the server is known to have the weights. `prepare`: makes sure of it, or `ServerFault`."""
        self.requests, self.servers, self.ask, self.retries = requests, servers, ask, retries
        self.ready, self.prepare = ready, prepare
        self.workers = min(workers, len(requests))
        self.waiting = deque(range(len(requests)))
        self.under_way: dict[int, tuple[Server, float]] = {}
        """Number of a request → who was asked last, and when."""
        self.longest = 0.0
        """Seconds that an answer has taken."""
        self.answers: dict[int, ServedCompletion] = {}
        self.faults = 0
        """Requests that had to be repeated."""
        self._problem: Exception | None = None
        self._changed = threading.Condition()

    def run(self) -> list[ServedCompletion]:
        """The answers. Requests that hang may outlive this; what they come to is then nobody's."""
        for server in self.servers:
            server.faults, server.resting_until, server.given_up = 0, 0.0, ""
        for _ in range(self.workers):
            for server in self.servers:  # in turn, so that a few requests are shared out
                threading.Thread(target=self._work, args=(server,), daemon=True).start()
        with self._changed:
            while not self._over():
                self._changed.wait(1.0)
            if self._problem is None and len(self.answers) < len(self.requests):
                self._problem = nobody_left(self.servers, len(self.answers), len(self.requests))
            if self._problem is not None:
                raise self._problem
        return [self.answers[place] for place in range(len(self.requests))]

    def _over(self) -> bool:
        gone = all(server.given_up for server in self.servers)
        return self._problem is not None or gone or len(self.answers) == len(self.requests)

    def _work(self, server: Server) -> None:
        while (taken := self._next(server)) is not None:
            place, faults = taken
            try:
                if place is None:
                    self._prepare(server)
                else:
                    self._answered(server, place, self.ask(server, self.requests[place]))
            except ServerFault as problem:
                self._failed(server, place, faults, problem)
            except Exception as problem:  # noqa: BLE001 - raised again by `run`, in the thread that waits
                with self._changed:
                    self._problem = self._problem or problem
                    self._changed.notify_all()
                return

    def _prepare(self, server: Server) -> None:
        try:
            self.prepare(server)
            server.doubtful = False
        finally:
            server.lock.release()
            with self._changed:
                self._changed.notify_all()

    def _next(self, server: Server) -> tuple[int | None, int] | None:
        """(number of a request, how often the server had failed then); a number of None: make sure of its weights,
        with its lock held. None: there is nothing left to do for it."""
        with self._changed:
            while not self._over() and not server.given_up:
                now = time.monotonic()
                rest = server.resting_until - now
                if rest > 0:
                    self._changed.wait(rest)
                elif not self.ready(server):
                    # By one worker; perhaps by one of an earlier batch, which still waits for it.
                    if server.lock.acquire(blocking=False):
                        return None, server.faults
                    self._changed.wait(0.5)
                elif (place := self.waiting.popleft() if self.waiting else self._overdue(server, now)) is not None:
                    self.under_way[place] = server, now
                    return place, server.faults
                else:
                    # A request that is under way elsewhere may come back.
                    self._changed.wait(min(1.0, PATIENCE))
        return None

    def _overdue(self, server: Server, now: float) -> int | None:
        """A request that another server has had for far longer than answers take; that one is doubtful from now on."""
        patience = max(PATIENCE, 4 * self.longest) if self.answers else math.inf
        for place, (other, since) in self.under_way.items():
            if other is not server and now - since > patience:
                other.doubtful, other.holds = True, ""
                self.faults += 1
                return place
        return None

    def _answered(self, server: Server, place: int, answer: ServedCompletion) -> None:
        with self._changed:
            if place not in self.answers and not self._over():
                self.answers[place] = answer
                self.longest = max(self.longest, time.monotonic() - self.under_way.pop(place)[1])
                server.faults = 0
            self._changed.notify_all()

    def _failed(self, server: Server, place: int | None, faults: int, problem: ServerFault) -> None:
        with self._changed:
            if self._over():
                return
            if place is not None and self.under_way.get(place, (None,))[0] is server:  # else another has it
                del self.under_way[place]
                self.waiting.append(place)
            self.faults += 1
            server.holds, server.doubtful = "", True  # it may have been started again, with other weights
            if server.faults == faults:  # not one of many that failed together
                server.faults += 1
                server.resting_until = time.monotonic() + rest_after(server.faults)
                if server.faults > self.retries:
                    server.given_up = str(problem)
            self._changed.notify_all()


def rest_after(faults: int) -> float:
    """Seconds that a server rests after so many faults in a row.

    >>> [rest_after(faults) for faults in (1, 2, 3, 9)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return min(0.5 * 2.0 ** (faults - 1), LONGEST_WAIT)


def nobody_left(servers: Sequence[Server], answered: int, asked: int) -> RunError:
    last = "; ".join(f"{server.given_up}" for server in servers)
    return RunError(
        f"no server of sampling.url answers any more ({last}), after {answered} of {asked} completions of this "
        f"update. What was learned and judged so far is kept: start the servers, and run the same command again"
    )
