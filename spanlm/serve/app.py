"""The application: addresses and their handlers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from spanlm import __version__
from spanlm.analysis.export import csv_bytes
from spanlm.errors import InputError, SpanlmError
from spanlm.serve import answers, fields
from spanlm.serve.guard import Guard, Names, error_body, trouble
from spanlm.serve.served import Runs, Served
from spanlm.serve.work import Busy, Left, Task, Work
from spanlm.store.plain import finite, json_object, table_bytes

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_PAGE = resources.files("spanlm.serve") / "page"
_JSON, _CSV, _HTML = "application/json", "text/csv; charset=utf-8", "text/html; charset=utf-8"

_SAVED = {"content-disposition": 'attachment; filename="look.html"'}

Result = TypeVar("Result")


class NotReady(Exception):
    """The run is not trained yet."""


def make_app(runs: Runs, work: Work, host: str = "127.0.0.1", token: str | None = None) -> ASGIApp:
    """Return the application behind its `Guard`."""
    api, folders = _Api(runs, work), (resources.files("spanlm.analysis.pages"), _PAGE)
    files = [file for folder in folders for file in folder.iterdir()]
    static = {file.name: (file, kind) for file in files for end, kind in _TYPES.items() if file.name.endswith(end)}
    routes = [
        Route("/", _given({"": (_PAGE / "index.html", _HTML)})),
        Route("/static/{name}", _given(static)),
        Route("/schema", lambda _: PlainTextResponse(fields.readable())),
        Route("/api/schema", lambda _: _json(fields.SCHEMA)),
        Route("/api/models", api.models),
        *(Route(address, handler, methods=["POST"]) for address, handler in api.handlers.items()),
    ]
    problems: Any = {
        HTTPException: _no_such,
        InputError: lambda _, error: trouble(400, error),
        SpanlmError: lambda _, error: trouble(500, error),
        NotReady: lambda _, error: trouble(503, str(error), **{"retry-after": "1"}),
        Busy: lambda *_: trouble(429, "too many requests at once; try again", **{"retry-after": "1"}),
        ClientDisconnect: lambda *_: Response(status_code=499),
        Left: lambda *_: Response(status_code=499),
        Exception: lambda *_: trouble(500, "something went wrong here; the terminal of `spanlm serve` says what"),
    }
    return Guard(Starlette(routes=routes, exception_handlers=problems), Names.of(host), token)


def _no_such(request: Request, error: HTTPException) -> Response:
    messages = {404: "there is no such address; /schema lists them", 405: f"{request.method} is not for this address"}
    return trouble(error.status_code, messages.get(error.status_code, error.detail), **(error.headers or {}))


def _given(files: Mapping[str, tuple[Traversable, str]]) -> Callable[[Request], Awaitable[Response]]:
    """Serve these files by name from memory, so that no client can name a path."""
    contents = {name: (file.read_bytes(), kind) for name, (file, kind) in files.items()}

    async def give(request: Request) -> Response:
        content = contents.get(request.path_params.get("name", ""))
        if content is None:
            raise HTTPException(404)
        return Response(content[0], headers={"cache-control": "no-cache", "content-type": content[1]})

    return give


class _Api:
    """The handlers under /api."""

    def __init__(self, runs: Runs, work: Work) -> None:
        self._runs, self._work = runs, work
        self.handlers = {
            "/api/read": self._answering(fields.Read, lambda _, *arguments: _json(answers.read(*arguments))),
            "/api/score": self._answering(fields.Score, self._score),
            "/api/attend": self._answering(fields.Attend, self._attend),
            "/api/page": self._answering(
                fields.Page, lambda _, *arguments: Response(answers.page(*arguments), headers=_SAVED, media_type=_HTML)
            ),
            "/api/next": self._answering(fields.Next, lambda _, *arguments: _json(answers.next_word(*arguments))),
            "/api/generate": self._generate,
        }

    async def models(self, request: Request) -> Response:
        served, progress = self._runs.all, self._runs.progress  # one may be added while these are described
        with self._work.task() as task:
            described = await task.run(lambda: [run.described for run in served])
        return _json({"version": __version__, "ready": bool(served), "progress": progress, "models": described})

    def _answering(
        self, kind: type[fields.Kind], answer: Callable[[Request, Served, fields.Kind], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            served, values = await self._request(request, kind)
            with self._work.task() as task:
                return await _unless_left(request, task, lambda: answer(request, served, values))

        return handle

    async def _request(self, request: Request, kind: type[fields.Kind]) -> tuple[Served, fields.Kind]:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise HTTPException(415, f"Content-Type: must be {_JSON}")
        try:
            body = json_object(await request.body())
        except ValueError as error:
            raise InputError(f"the request is no JSON object: {str(error)[:200]}") from None
        values = fields.checked(body, kind)
        if not self._runs.all:
            raise NotReady(f"the run is not there yet: {self._runs.progress or 'wait'}")
        return self._runs.get(values.run), values

    def _score(self, request: Request, served: Served, values: fields.Score) -> Response:
        rows = answers.score(served, values)
        if _wants_csv(request):
            return Response(table_bytes(list(rows[0]), (row.values() for row in rows)), media_type=_CSV)
        return _json({"rows": rows})

    def _attend(self, request: Request, served: Served, values: fields.Attend) -> Response:
        columns, rows = answers.attend(served, values)
        if _wants_csv(request):
            return Response(csv_bytes([columns, *rows]), media_type=_CSV)
        return _json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})

    async def _generate(self, request: Request) -> ASGIApp:
        served, values = await self._request(request, fields.Generate)

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            with self._work.task() as task:  # lasts until the last word, or until the client disconnects
                next_one = await _unless_left(request, task, lambda: answers.generate(served, values))
                words = StreamingResponse(_events(task, next_one), media_type="text/event-stream")
                await words(scope, receive, send)

        return stream


async def _events(task: Task, next_one: Callable[[], dict[str, Any] | None]) -> AsyncIterator[str]:
    try:
        while (word := await task.run(next_one)) is not None:
            yield _event("word", word)
        yield _event("done", {})
    except SpanlmError as error:
        yield _event("error", error_body(error))
    except Left:  # the server is stopping
        return


async def _unless_left(request: Request, task: Task, job: Callable[[], Result]) -> Result:
    """Run a job for a request whose body was received; cancel it when the client disconnects."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(task.run(job)), asyncio.ensure_future(left())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        task.cancelled = True
        raise ClientDisconnect
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


def _json(value: Any) -> Response:
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(errors="backslashreplace"), media_type=_JSON)


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(finite(value), allow_nan=False)}\n\n"


def _wants_csv(request: Request) -> bool:
    return "text/csv" in request.headers.get("accept", "")
