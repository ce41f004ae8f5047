"""An OpenAI-compatible chat server on loopback that answers well or badly, as asked: a process of its own, in asyncio.

usage: fault_server.py [--delay SECONDS] [--faults NAME,NAME,…] [--chance SHARE] [--log FILE]
Prints its port. A completion is judged by rule: it quotes the first three words as good and the last word as poor. Of a
completion and a critique, it quotes the last word as what the critique's first three words are about. With
faults, each new question meets them in turn before it is answered well; `always-…` never gets well. With a chance, that
share of all requests meets one of them, drawn at random.
"""

import argparse
import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

FAULTS = ("429", "500", "slow", "reset", "not-json", "cut-json", "empty", "wrong-quotes", "no-choices", "400-format")

BODIES = {
    "cut-body": b'{"choices": [{"message": {"content": "{',
    "html": b"<html>bad gateway</html>",
    "page": b"<html>bad gateway</html>",
    "bytes": b"\xff\xfe{}\x80",
    "no-body": b"",
    "deep": b"[" * 100_000,
    "digits": b"1" * 5_000,
    "null": b"null",
}
"""Bodies of replies with status 200 that are no reply."""


class Server:
    def __init__(self, delay: float, faults: list[str], log: str | None, chance: float = 0.0) -> None:
        self.delay, self.faults, self.log, self.chance = delay, faults, log, chance
        self.seen: dict[str, int] = {}
        self.under_way = self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(found[1])) if found else b"{}"
                key = re.search(rb"authorization: *(?:Bearer|Basic) (\S+)", head, re.IGNORECASE)
                self.under_way += 1
                self.most = max(self.most, self.under_way)
                try:
                    if not await self.answer(json.loads(body), key[1].decode() if key else "", writer):
                        return
                finally:
                    self.under_way -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, request: dict[str, Any], key: str, writer: asyncio.StreamWriter) -> bool:
        question = request["messages"][min(1, len(request["messages"]) - 1)]["content"]
        turn = 0 if self.chance else self.seen.get(question, -1) + 1
        if not self.chance:
            self.seen[question] = turn
        if self.log:
            with Path(self.log).open("a") as file:
                print(json.dumps({"turn": turn, "messages": len(request["messages"]), "most": self.most}), file=file)
        always = [name.removeprefix("always-") for name in self.faults if name.startswith("always-")]
        if self.faults and self.faults[0].startswith("prefers-"):
            return await self.send(writer, 200, self.prefer(question, self.faults[0].removeprefix("prefers-")))
        if self.faults and self.faults[0].startswith("grades-"):
            return await self.send(writer, 200, self.grade(question, self.faults[0].removeprefix("grades-")))
        fault = always[0] if always else self.faults[turn] if turn < len(self.faults) else ""
        if self.chance:
            fault = random.choice(self.faults) if random.random() < self.chance else ""
        if self.faults[:1] == ["forbid-3"] and "Ship number 3 " in question:
            return await self.send(writer, 403, {"error": {"message": "not this one"}})
        await asyncio.sleep(self.delay)
        if key == "wrong-key":
            return await self.send(writer, 401, {"error": {"message": f"Incorrect API key provided: {key}"}})
        if fault == "404":
            return await self.send(writer, 404, {"error": {"message": "no such path"}})
        if fault == "echo-error":
            return await self.send(writer, 500, {"error": {"message": f"bad header {key} or {key[:-3]}"}})
        if fault == "echo-shape":  # quotes the key where a message of ours is cut
            return await self.send(writer, 200, {"error": "x" * 55 + key})
        if fault == "429":
            return await self.send(writer, 429, {"error": {"message": "slow down"}}, "Retry-After: 0.2\r\n")
        if fault == "500":
            return await self.send(writer, 500, {"error": {"message": "oops"}}, "Retry-After: 0\r\n")
        if fault == "slow":
            await asyncio.sleep(3)
        if fault == "reset":
            writer.transport.abort()
            return False
        if fault == "400-format" and "response_format" in request:
            return await self.send(writer, 400, {"error": {"message": "response_format is not supported"}})
        if fault in BODIES:
            return await self.send(
                writer, 200, BODIES[fault], kind="text/html" if fault == "page" else "application/json"
            )
        if fault == "no-choices":
            return await self.send(writer, 200, {"object": "chat.completion"})
        if fault == "empty-choices":
            return await self.send(writer, 200, {"choices": []})
        if fault == "null-message":
            return await self.send(writer, 200, {"choices": [{"message": None}]})
        if fault == "drip":
            writer.write(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(100):
                await asyncio.sleep(0.2)
                writer.write(b" ")
                await writer.drain()
            return False
        if self.faults[:1] == ["refuse-3"] and "Ship number 3 " in question:
            return await self.send(writer, 400, {"error": {"message": "context_length_exceeded"}})
        reply = self.reply(question, fault)
        if fault == "echo":
            message = reply["choices"][0]["message"]
            message["content"] = message["content"].replace("ends badly", f"ends badly, says {key}, or {key[:-3]}")
        if fault == "half-pair" or (self.faults[:1] == ["half-pair-3"] and "Ship number 3 " in question):
            reply["choices"][0]["message"]["content"] = json.dumps({"critique": "Odd \ud83d.", "score": 0.5})
        kinds = {"no-header": None, "plain-header": "text/plain"}
        return await self.send(writer, 200, reply, kind=kinds.get(fault, "application/json"))

    def prefer(self, question: str, word: str) -> dict[str, Any]:
        """A judge of pairs: of the answers the one with the word, or the `first`; with `nothing`, words of no use."""
        first, second = re.findall(r"Answer [AB]:\n(.*?)\n\n", question, re.DOTALL)
        better = "A" if word == "first" or word in first else "B" if word in second else "tie"
        text = "Both have their merits." if word == "nothing" else json.dumps({"better": better})
        return {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}

    def grade(self, question: str, word: str) -> dict[str, Any]:
        """A judge of single answers: how often the word is in what was asked and answered, and one more."""
        text = "A fine answer." if word == "nothing" else json.dumps({"grade": 1 + question.count(word)})
        return {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}

    def reply(self, question: str, fault: str) -> dict[str, Any]:
        completion = re.findall(r"<completion \w+>\n(.*?)\n</completion", question, re.DOTALL)[-1]
        words = completion.split() or ["…"]
        quotes = [
            {"text": " ".join(words[:3]), "verdict": "good", "severity": 0.5, "comment": "begins well"},
            {"text": words[-1], "verdict": "poor", "severity": 0.8, "comment": "ends badly"},
        ]
        if fault == "wrong-quotes":
            quotes = [quote | {"text": "words that nobody wrote anywhere"} for quote in quotes]
        body = {"reasoning": "…", "critique": "It begins well and ends badly.", "quotes": quotes, "omissions": []}
        text = json.dumps(body | {"score": 0.75})
        if critiques := re.findall(r"<critique \w+>\n(.*?)\n</critique", question, re.DOTALL):
            text = json.dumps({"quotes": self.located(completion, critiques[-1], fault)})
        text = {"not-json": "I liked it a lot!", "cut-json": text[:-40], "empty": ""}.get(fault, text)
        usage: Any = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
        if fault == "odd-usage":
            usage = {"prompt_tokens": "many", "completion_tokens": -5}
        finish = "length" if fault in ("cut-praise", "cut-injected") else "stop"
        if fault == "cut-praise":
            text = f'{{"reasoning": "", "critique": "\\\\"{quotes[0]["text"]}\\\\" is exactly right'
        if fault == "cut-injected":
            text = f"The completion praises itself: {text}. That is a trick. In truth the number is wrong, and"
        choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    def located(self, completion: str, critique: str, fault: str) -> list[dict[str, str]]:
        """With `obey` it does what the completion may ask for: praises all of it, and quotes words of its own."""
        about = " ".join(critique.split()[:3])
        quote = {"text": (completion.split() or ["…"])[-1].strip("."), "about": about, "verdict": "poor"}
        if fault == "obey":
            return [{**quote, "text": completion, "verdict": "good"}, {**quote, "text": "send me the key"}]
        return {"wrong-quotes": [quote | {"text": "words that nobody wrote anywhere"}], "no-quotes": []}.get(
            fault, [quote]
        )

    async def send(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        body: Any,
        headers: str = "",
        kind: str | None = "application/json",
    ) -> bool:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers += f"Content-Type: {kind}\r\n" if kind else ""
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
        return True


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--faults", default="")
    parser.add_argument("--chance", type=float, default=0.0)
    parser.add_argument("--log")
    args = parser.parse_args()
    server = Server(args.delay, [name for name in args.faults.split(",") if name], args.log, args.chance)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
