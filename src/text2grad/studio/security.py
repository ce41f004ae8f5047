"""Who may talk to the studio. Every request goes through `Gate` before anything else looks at it.

Enters: an ASGI request. Leaves: the same request with the caller's session, or a refusal. A page of another site cannot
get in: its requests carry no cookie of ours (SameSite=Strict), cannot set the header `X-Text2Grad` without asking first
(nobody answers such a question here), and have another Origin. A name that somebody points at this machine (DNS
rebinding) is not among the hosts that are answered. Session ids and the token are stored as hashes or in a file that
only its owner can read.
"""

import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from text2grad.studio.store import LASTS, Store

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
OPEN = ("/", "/login")
"""Paths that say for themselves who may come in; static files hold nothing of anybody's."""

PAUSE, MOST = 1.0, 20
"""Seconds after a wrong password in which its address may not try again; wrong ones in that time, from anywhere."""


class Gate:
    """Host, Origin, cookie and header of every request; the same headers on every reply."""

    def __init__(
        self,
        app: App,
        store: Store,
        token: str,
        *,
        host: str,
        port: int,
        password: str | None = None,
        names: Collection[str] = (),
    ) -> None:
        """`names`: under which other machines know this one."""
        self.app, self.store, self.token, self.password = app, store, token, password
        self.host, self.port = host, port
        self.names = {name.lower() for name in names}
        end_old_sessions(store, password)
        self.cookie = f"text2grad_studio_{port}"
        """Cookies do not know ports, and two studios may run on one machine."""
        self._wrong: dict[str, float] = {}
        """Address → when a wrong password came from there, in the last second."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sealed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                added = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there
                ]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self._refusal(scope, headers):
            await _refuse(sealed, *refusal)
            return
        await self.app(scope, receive, sealed)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host, origin, path = headers.get("host", ""), headers.get("origin"), scope["path"]
        if not self.known_host(host):
            return 421, f"the address of this studio is {self.host}:{self.port}, got the host {host[:80]!r}"
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, f"requests of other pages are refused, and this one comes from {origin[:80]!r}"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and scope["method"] != "GET":
            return 403, "requests of other pages are refused"
        scope["session"] = self.session_in(headers.get("cookie", ""))
        if path in OPEN or path.startswith("/static/"):
            return None
        if scope["session"] is None:
            return 401, "not logged in: open the address that `text2grad studio` has printed, with its token"
        if scope["method"] not in ("GET", "HEAD") and headers.get("x-text2grad") != "1":
            return 403, "a request that changes something should have the header X-Text2Grad: 1"
        return None

    def known_host(self, host: str) -> bool:
        """Whether a request for this host can be meant for us."""
        try:
            split = urlsplit(f"//{host}")
            name, port = (split.hostname or "").lower(), split.port or 80
        except ValueError:
            return False
        if port != self.port or not name:
            return False
        if name in ("localhost", "127.0.0.1", "::1", self.host.lower()):
            return True
        # Reached from elsewhere: by a number, which nobody can point here, or by the machine's own name.
        return self.password is not None and (
            _is_number(name) or name in self.names | {socket.gethostname().lower(), socket.getfqdn().lower()}
        )

    def session_in(self, cookies: str) -> dict[str, Any] | None:
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return None
        if found is None or not found.value.isalnum():
            return None
        return self.store.session(_digest(found.value))

    def enter(self) -> str:
        """A new session; gives the line that sets its cookie."""
        value = secrets.token_hex(24)
        self.store.add_session(_digest(value))
        return f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={LASTS}"

    def right_token(self, query: str) -> bool:
        given = parse_qs(query).get("token", [""])[0]
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def right_password(self, given: str, address: str) -> bool | None:
        """None: not looked at, for a wrong one came from this address less than `PAUSE` seconds ago, or `MOST` of them
        from anywhere. Nobody waits here, and only the event loop's thread calls it."""
        now = time.monotonic()
        self._wrong = {each: when for each, when in self._wrong.items() if now - when < PAUSE}
        if address in self._wrong or len(self._wrong) >= MOST:
            return None
        right = self.password is not None and hmac.compare_digest(
            given.encode("utf-8", "replace"), self.password.encode()
        )
        if not right:
            self._wrong[address] = now
        return right


def end_old_sessions(store: Store, password: str | None) -> None:
    """Who came in by another password than today's comes in again. The store has a salted hash of it."""
    known = store.get("password")
    salt = known["salt"] if known else secrets.token_hex(16)
    now = None
    if password is not None:
        hashed = hashlib.scrypt(password.encode("utf-8", "replace"), salt=salt.encode(), n=2**14, r=8, p=1).hex()
        now = {"salt": salt, "hash": hashed}
    if now != known:
        with store.writing():
            store.end_sessions()
            store.put("password", now)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


async def _refuse(send: Any, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
