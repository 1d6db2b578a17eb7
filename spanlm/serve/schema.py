"""The API as an OpenAPI 3.1 document, made of the fields by which requests are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from spanlm import __version__
from spanlm.errors import as_written
from spanlm.serve import fields


class Endpoint(NamedTuple):
    """What a POST gives, of which fields."""

    summary: str
    fields: Mapping[str, fields.Schema]
    kinds: tuple[str, ...] = ("application/json",)


ENDPOINTS = {
    "/api/read": Endpoint("a text as the model reads it: surprisal, attention, what it expected", fields.READ),
    "/api/score": Endpoint("the rows of `spanlm score`", fields.SCORE, ("application/json", "text/csv")),
    "/api/attend": Endpoint("the rows of `spanlm attend`", fields.ATTEND, ("application/json", "text/csv")),
    "/api/page": Endpoint("a page to read without the server", fields.READ, ("text/html",)),
    "/api/next": Endpoint("the distribution of the next word; log p in nats", fields.NEXT),
    "/api/generate": Endpoint(
        "words, each as soon as it is drawn: events word, done, error", fields.GENERATE, ("text/event-stream",)
    ),
}
_READS = {"/api/models": "the runs that are served", "/api/schema": "this document"}
_ERRORS = {
    "400": "a field is wrong",
    "401": "the token is missing",
    "403": "another Host or Origin",
    "408": "the request did not come in time",
    "413": "the request is too large",
    "415": "the request is not JSON",
    "429": "too many requests at once",
    "503": "the run is still being trained",
}


def openapi() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, Any] = {
        path: {"get": {"summary": what, "responses": _responses(("application/json",))}}
        for path, what in _READS.items()
    }
    for path, endpoint in ENDPOINTS.items():
        body = {"content": {"application/json": {"schema": _object(endpoint.fields)}}, "required": True}
        operation = {"summary": endpoint.summary, "requestBody": body, "responses": _responses(endpoint.kinds)}
        paths[path] = {"post": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "spanlm serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}}
        },
    }


def _object(described: Mapping[str, fields.Schema]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in described.items()},
        "required": [name for name, schema in described.items() if "default" not in schema],
        "additionalProperties": False,
    }


def _responses(kinds: tuple[str, ...]) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    good: dict[str, Any] = {"description": "the answer", "content": {kind: {} for kind in kinds}}
    return {"200": good, **{status: {"description": why, "content": error} for status, why in _ERRORS.items()}}


def readable() -> str:
    """Return the same as text for people."""
    lines = [f"spanlm serve {__version__}: requests and answers are JSON unless said; /api/schema is OpenAPI 3.1", ""]
    lines += [f"GET {path}\n    {what}\n" for path, what in _READS.items()]
    for path, endpoint in ENDPOINTS.items():
        lines += [f"POST {path}\n    {endpoint.summary} ({', '.join(endpoint.kinds)})"]
        lines += [f"      {name}: {_described(schema)}" for name, schema in endpoint.fields.items()]
        lines.append("")
    errors = (f"    {status} {why}" for status, why in _ERRORS.items())
    lines += ['errors are {"error": "a line"}, with status', *errors]
    return "\n".join(lines) + "\n"


def _described(schema: fields.Schema) -> str:
    choices = ", ".join(map(as_written, schema.get("enum", [])))
    default = f"default {json.dumps(schema['default'])}" if "default" in schema else "required"
    return f"{schema['description']}{f': {choices}' * bool(choices)} ({default})"
