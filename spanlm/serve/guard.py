"""Checks every request before a handler sees it, and sets the security headers of every answer.

* Host must name this server: a foreign page whose name resolves to this machine (DNS rebinding) sends its own name.
* Origin, if the browser sends it, must be this server: pages of other sites may not send requests.
* The token, if the server has one, must come with every request under /api.
* A body has at most `MOST_BYTES`, chunked or not.
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

from spanlm.errors import SpanlmError

MOST_BYTES = 1_000_000
DRAIN_SECONDS = 2.0
"""Most seconds to read the rest of a request before an error is sent, so that the client sees the error."""
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


def trouble(status: int, error: str | SpanlmError, **headers: str) -> Response:
    """Return an error as JSON: a line for people, as every error of the server has, and the parts of one on a field."""
    return JSONResponse({"error": error} if isinstance(error, str) else error_body(error), status, headers)


def error_body(error: SpanlmError) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in error.to_json().items()}


@dataclass(frozen=True)
class Names:
    """The names that this server answers to: the `known` ones and, if it listens on all addresses, any IP address."""

    known: frozenset[str]
    any_address: bool = False

    @staticmethod
    def of(host: str) -> Names:
        if host in LOOPBACK:
            return Names(frozenset(LOOPBACK))
        everywhere = host in ("", "0.0.0.0", "::")
        names: Iterable[str] = (socket.gethostname(), socket.getfqdn()) if everywhere else (host,)
        return Names(frozenset(name.lower() for name in (*LOOPBACK, *names)), everywhere)

    def has(self, authority: str) -> bool:
        """Whether HOST[:PORT] is this server; a tunnel may change the port, so it is ignored."""
        name = _name(authority)
        return name in self.known or (self.any_address and _is_address(name))


def _name(authority: str) -> str:
    """Return the host of HOST[:PORT] in lower case; empty if malformed."""
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
    """Rejects requests for other servers or from pages of other sites; sets the headers of every answer."""

    def __init__(self, app: ASGIApp, names: Names, token: str | None) -> None:
        self._app, self._names, self._token = app, names, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the lifespan protocol; the application has no web sockets
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
    """The body of a request: counts its bytes, and discards the rest of them before an error is sent.

    Closing a connection with unread bytes resets it, and the client loses the answer. A client that sends
    Expect: 100-continue has not sent the body yet, so nothing is discarded.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive, self._count = receive, 0
        self._ended = any(name.lower() == b"expect" for name, _ in scope["headers"])

    async def receive(self) -> Message:
        """Receive a part of the body; HTTPException if it has too many bytes."""
        message = await self._receive()
        self._ended = not message.get("more_body", False)
        self._count += len(message.get("body", b""))
        if self._count > MOST_BYTES:
            raise HTTPException(413, _TOO_LARGE, {"connection": "close"})
        return message

    async def drain(self) -> None:
        """Receive and discard the rest, for at most `DRAIN_SECONDS`."""
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
