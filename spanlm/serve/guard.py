"""What every request must pass before a handler sees it, and what every answer says to the browser.

* Host must name this server: a page of another site whose name was made to point here (DNS rebinding) has its own.
* Origin, where a browser sends it, must be this server: another site's page may not ask.
* The token, where the server has one, must come with everything under /api.
* A body has at most `MOST_BYTES`, however it is sent.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1_000_000
DRAIN_SECONDS = 2.0
"""How long an error waits for the rest of a request, so that the client sees it."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_TOO_LARGE = f"the request has more than {MOST_BYTES:,} bytes. Send less."


def trouble(status: int, message: str, **headers: str) -> Response:
    """Return the one kind of error there is: a line for a person."""
    return JSONResponse({"error": message}, status, headers)


@dataclass(frozen=True)
class Names:
    """The names that this server answers to: `known` ones, and where it listens on all addresses any address."""

    known: frozenset[str]
    any_address: bool = False

    @staticmethod
    def of(host: str) -> Names:
        """Return the names of a server that listens at a host."""
        if host in LOOPBACK:
            return Names(frozenset(LOOPBACK))
        everywhere = host in ("", "0.0.0.0", "::")
        names: Iterable[str] = (socket.gethostname(), socket.getfqdn()) if everywhere else (host,)
        return Names(frozenset(name.lower() for name in (*LOOPBACK, *names)), everywhere)

    def has(self, authority: str) -> bool:
        """Whether HOST[:PORT] is this server; the port does not matter, which a tunnel may change."""
        name = _name(authority)
        return name in self.known or (self.any_address and _is_address(name))


def _name(authority: str) -> str:
    """Return the host of HOST[:PORT], in lower case; empty if it is none."""
    if authority.startswith("["):
        name, bracket, port = authority[1:].partition("]")
        valid = bracket == "]" and (not port or (port.startswith(":") and port[1:].isdecimal()))
    else:
        name, colon, port = authority.partition(":")
        valid = not colon or port.isdecimal()
    return name.lower() if valid else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Refuses requests that are not for this server, or not from its own page; sets the headers of every answer."""

    def __init__(self, app: ASGIApp, names: Names, token: str | None) -> None:
        self._app, self._names, self._token = app, names, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":  # the life of the server; of web sockets there are none
            await self._app(scope, receive, send)
            return
        refused, body = self._refused(scope), _Body(scope, receive)
        await (refused or self._app)(scope, body.receive, _answering(body, send))

    def _refused(self, scope: Scope) -> Response | None:
        sent: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            sent.setdefault(name.lower(), []).append(value)
        if len(sent.get(b"authorization", [])) > 1:
            return trouble(400, "Authorization: is there more than once; send it once")
        hosts, origins = ([x.decode("latin-1") for x in sent.get(name, [])] for name in (b"host", b"origin"))
        if len(hosts) != 1 or not self._names.has(hosts[0]):
            return trouble(403, "Host: is not this server's name; open the address that `spanlm serve` printed")
        if any(origin.partition("://")[2].lower() != hosts[0].lower() for origin in origins):
            return trouble(403, "Origin: pages of other sites may not ask this server")
        lengths = (int(value) for value in sent.get(b"content-length", []) if value.isdigit() and len(value) < 20)
        if max(lengths, default=0) > MOST_BYTES:
            return trouble(413, _TOO_LARGE, connection="close")
        if self._token is not None and scope["path"].startswith("/api"):
            authorization = sent.get(b"authorization", [b""])[0]
            if not hmac.compare_digest(authorization, f"Bearer {self._token}".encode()):
                why = "Authorization: send the token that `spanlm serve` printed, as `Bearer TOKEN`"
                return trouble(401, why, **{"www-authenticate": "Bearer"})
        return None


class _Body:
    """The body of a request: counted as it is received, and read to its end, but not kept, before an error is sent.

    A connection that is closed on bytes that nobody has read is reset, and the client loses the answer with it. Who
    waits to be asked for the body (Expect: 100-continue) has not sent it.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive, self._count = receive, 0
        self._ended = any(name.lower() == b"expect" for name, _ in scope["headers"])

    async def receive(self) -> Message:
        """Receive a part; HTTPException: there are too many bytes."""
        message = await self._receive()
        self._ended = not message.get("more_body", False)
        self._count += len(message.get("body", b""))
        if self._count > MOST_BYTES:
            raise HTTPException(413, _TOO_LARGE, {"connection": "close"})
        return message

    async def drain(self) -> None:
        """Receive the rest, for a few seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._ended:
                    self._ended = not (await self._receive()).get("more_body", False)


def _answering(body: _Body, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] >= 400:
                await body.drain()
            headers = list(message.get("headers", []))
            names = {name.lower() for name, _ in headers}
            message = {**message, "headers": headers + [pair for pair in _RAW_HEADERS if pair[0] not in names]}
        await send(message)

    return sending
