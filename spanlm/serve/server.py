"""The server: listens, disconnects slow clients, and stops within two seconds of Ctrl-C despite open connections."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from spanlm.errors import InputError, require
from spanlm.serve.work import Work

RECEIVE_SECONDS = 15.0
"""Most seconds to receive a request, head and body, and most seconds for which a client may not read its answer."""

IDLE_SECONDS = 15
"""Most seconds between two requests of a connection."""

MOST_CONNECTIONS = 500
END_SECONDS = 0.4
"""Seconds for running answers when the server stops; their work ends at its next step."""

_LATE = f"the request did not come within {RECEIVE_SECONDS:g} seconds"


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with two deadlines: to receive a request, and for a client to read its answer.

    The first clock starts with a connection, and with the first bytes of every further request, which may have arrived
    with the one before; it stops when the request is complete. The error for invalid HTTP is JSON, as every error.
    """

    _clock: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        if len(self.connections) >= MOST_CONNECTIONS:
            transport.abort()
            return
        super().connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._clock)
        self._stop(self._writing)
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
            self._refuse(400, "this is no HTTP request")
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        self._stop(self._writing)
        super().resume_writing()

    def _await_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(RECEIVE_SECONDS, self._still_reading, left)

    def _still_reading(self, before: int) -> None:
        """Disconnect a client that read nothing since the clock started; else start the clock again."""
        if self.transport.get_write_buffer_size() < before:
            self._await_reading()
        else:
            self.transport.abort()

    def _watch(self) -> None:
        """Run the clock exactly while a request is partly received."""
        theirs = self.conn.their_state
        if not (theirs is h11.SEND_BODY or (theirs is h11.IDLE and self.conn.trailing_data[0])):
            self._stop(self._clock)
        elif self._clock is None or self._clock.cancelled():
            self._start()

    def _start(self) -> None:
        self._clock = self.loop.call_later(RECEIVE_SECONDS, self._late)

    @staticmethod
    def _stop(clock: asyncio.TimerHandle | None) -> None:
        if clock is not None:
            clock.cancel()

    def _late(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._refuse(408, _LATE)
        self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        reason = {400: "Bad Request", 408: "Request Timeout"}[status]
        lines = [f"HTTP/1.1 {status} {reason}", "content-type: application/json", "x-content-type-options: nosniff"]
        head = "\r\n".join([*lines, f"content-length: {len(body)}", "connection: close", "", ""])
        self.transport.write(head.encode() + body)


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; InputError if the address or the port is not available."""
    require(0 <= port <= 65535, "port", port, "from 0 (any that is free) to 65535")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except socket.gaierror:
        way = "Leave it out, or give 0.0.0.0 for all."
        raise InputError("host", host, "is no address of this machine", way) from None
    except OSError as error:
        way = "Take another, or 0 for any that is free."
        raise InputError("port", port, f"cannot be listened at on {host}: {error.strerror}", way) from None


class Server(uvicorn.Server):
    """uvicorn's server of one application, which cancels the `work` of its requests when it stops.

    `signal_number` is the signal that stopped it.
    """

    signal_number: int = 0

    def __init__(self, app: ASGIApp, work: Work) -> None:
        self._work = work
        settings: dict[str, Any] = {
            "http": PatientProtocol,
            "ws": "none",
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "proxy_headers": False,
            "server_header": False,
            "timeout_graceful_shutdown": END_SECONDS,
            "timeout_keep_alive": IDLE_SECONDS,
        }
        super().__init__(uvicorn.Config(app, **settings))
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # clients get their errors as answers

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on Ctrl-C and SIGTERM; uvicorn's version raises the signal again before any cleaning up."""
        if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread alone
            yield
            return
        before = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.signal_number, self._work.ended = number, True
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # do not log the connections cut off now
        self.handle_exit(number, frame)
