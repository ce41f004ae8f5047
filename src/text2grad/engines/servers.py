"""Servers that write completions: one HTTP request at a time, and many over several servers, whatever fails.

Enters: addresses, questions. Leaves: ids with the log-probs of the distribution they were drawn from. `VLLM` and
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
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from text2grad._checked import shorten
from text2grad.errors import ConfigError, RunError, first_line
from text2grad.secrets import hidden, remember, without_password

PASSING = {408, 409, 425, 429, 500, 502, 503, 504}
"""Statuses of failures that may pass."""
LONGEST_WAIT = 30.0
"""Seconds between two tries, at most."""


class Fault(Exception):
    """Something that may pass: the same question goes to another server, or to this one again."""


class Forgotten(Fault):
    """The server has lost the weights that it was given: it was started again."""


class Question(NamedTuple):
    """One completion that is wanted."""

    prompt: tuple[int, ...]
    tokens: int
    """At most."""
    temperature: float
    """0: the likeliest id each time."""
    seed: int
    end_ids: tuple[int, ...]


class Answer(NamedTuple):
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
    base: str | None = None
    """The name by which the served model itself is asked, once that is known."""
    holds: str = ""
    """Name of the weights that it has for certain; empty: it must be asked, or given them."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while weights are handed over."""
    faults: int = 0
    """In a row."""
    resting_until: float = 0.0
    given_up: str = ""
    """Why it is asked nothing more in this batch."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"sampling.url should hold addresses as http://host:8000, several with commas between them, got "
                f"{without_password(self.url)!r}"
            )

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
        """The reply, read as JSON where it is; `Fault` for what may pass, `RunError` for what will not."""
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
            raise Fault(f"{self.name}: {first_line(problem, named=True)}") from None
        finally:
            connection.close()
        if status in PASSING:
            raise Fault(f"{self.name}{path}: status {status}, {shorten(hidden(said, message=True), 200)}")
        if status >= 400:
            raise Denied(self, path, status, said)
        try:
            return json.loads(said)
        except (ValueError, RecursionError):
            return said

    def complete(self, question: Question, model: str) -> Answer:
        """One completion, checked: what is not whole is a fault."""
        try:
            ids, logprobs, ended = self.engine.complete(self, question, model)
        except (LookupError, TypeError, AttributeError, ValueError) as problem:
            raise Fault(
                f"{self.name}: its reply is not one of {self.engine.name} ({first_line(problem, named=True)})"
            ) from None
        whole = ids and len(ids) == len(logprobs) and len(ids) <= question.tokens and ended in ("stop", "length")
        numbers = all(type(number) in (int, float) and math.isfinite(number) for number in logprobs)
        if not whole or not numbers or not all(type(one) is int for one in ids):
            raise Fault(
                f"{self.name}: should give 1 to {question.tokens} ids with a finite log-prob each, got "
                f"{len(ids)} ids, {shorten(logprobs, 60)}, ended by {ended!r}"
            )
        return Answer(tuple(ids), tuple(logprobs), ended == "length" and ids[-1] not in question.end_ids)


class Denied(RunError):
    """A server says no, and will again."""

    def __init__(self, server: Server, path: str, status: int, said: str) -> None:
        self.status, self.said = status, said
        why = shorten(hidden(said, message=True), 300)
        super().__init__(f"{server.name}{path} refused (status {status}): {why}. {server.engine.advice(status, path)}")


class Engine(NamedTuple):
    """How one kind of server is asked."""

    name: str
    complete: Callable[[Server, Question, str], tuple[list[int], list[float], str]]
    """(server, question, model) → ids, log-probs, why it ended."""
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


def _vllm_complete(server: Server, question: Question, model: str) -> tuple[list[int], list[float], str]:
    body = {
        "model": model,
        "prompt": list(question.prompt),
        "max_tokens": question.tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "n": 1,
        "logprobs": 0,
        "return_token_ids": True,
        "stop_token_ids": list(question.end_ids),
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
    if choice["prompt_token_ids"] not in (None, list(question.prompt)):
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


def _sglang_complete(server: Server, question: Question, model: str) -> tuple[list[int], list[float], str]:
    sampling = {
        "max_new_tokens": question.tokens,
        "temperature": question.temperature,
        "sampling_seed": question.seed,
        "stop_token_ids": list(question.end_ids),
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "min_new_tokens": 0,
        "ignore_eos": False,
    }
    body = {"input_ids": list(question.prompt), "sampling_params": sampling, "return_logprob": True}
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


def servers_at(urls: str, engine: str, timeout: float) -> list[Server]:
    """The servers behind addresses with commas between them."""
    key = os.environ.get("VLLM_API_KEY")
    remember(key)
    found = [Server(url, ENGINES[engine], timeout, key) for url in (part.strip() for part in urls.split(",")) if url]
    if len({server.url for server in found}) < max(1, len(found)):
        raise ConfigError(f"sampling.url should hold different addresses, got {without_password(urls)!r}")
    return found


class Batch:
    """Questions on their way to servers. Each server's workers take the next question that nobody has; one that fails
    goes back, and the server rests, twice as long each time. An answer does not depend on who gives it, as far as
    engines keep that."""

    def __init__(
        self,
        questions: Sequence[Question],
        servers: Sequence[Server],
        ask: Callable[[Server, Question], Answer],
        *,
        workers: int,
        retries: int,
    ) -> None:
        """`ask`: makes sure that the server has the weights, and asks."""
        self.questions, self.servers, self.ask, self.retries = questions, servers, ask, retries
        self.workers = min(workers, len(questions))
        self.waiting = deque(range(len(questions)))
        self.answers: dict[int, Answer] = {}
        self.faults = 0
        """Requests that had to be repeated."""
        self._problem: Exception | None = None
        self._changed = threading.Condition()

    def run(self) -> list[Answer]:
        for server in self.servers:
            server.faults, server.resting_until, server.given_up = 0, 0.0, ""
        for _ in range(self.workers):
            for server in self.servers:  # in turn, so that a few questions are shared out
                threading.Thread(target=self._work, args=(server,), daemon=True).start()
        with self._changed:
            while not self._over():
                self._changed.wait(1.0)
            if self._problem is None and len(self.answers) < len(self.questions):
                self._problem = nobody_left(self.servers, len(self.answers), len(self.questions))
            if self._problem is not None:
                raise self._problem
        return [self.answers[place] for place in range(len(self.questions))]

    def _over(self) -> bool:
        gone = all(server.given_up for server in self.servers)
        return self._problem is not None or gone or len(self.answers) == len(self.questions)

    def _work(self, server: Server) -> None:
        while (taken := self._next(server)) is not None:
            place, faults = taken
            try:
                answer = self.ask(server, self.questions[place])
            except Fault as problem:
                self._failed(server, place, faults, problem)
            except Exception as problem:  # noqa: BLE001 - raised again by `run`, in the thread that waits
                with self._changed:
                    self._problem = self._problem or problem
                    self._changed.notify_all()
                return
            else:
                with self._changed:
                    self.answers[place] = answer
                    server.faults = 0
                    self._changed.notify_all()

    def _next(self, server: Server) -> tuple[int, int] | None:
        """(number of a question, how often the server had failed then); None: there is nothing left to do for it."""
        with self._changed:
            while not self._over() and not server.given_up:
                rest = server.resting_until - time.monotonic()
                if self.waiting and rest <= 0:
                    return self.waiting.popleft(), server.faults
                # A question that is under way elsewhere may come back.
                self._changed.wait(rest if self.waiting and rest > 0 else None)
        return None

    def _failed(self, server: Server, place: int, faults: int, problem: Fault) -> None:
        with self._changed:
            self.waiting.append(place)
            self.faults += 1
            server.holds = ""  # it may have been started again, with other weights
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
