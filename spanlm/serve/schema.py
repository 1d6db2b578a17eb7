"""The API as an OpenAPI 3.1 document, made of the fields by which requests are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from spanlm import __version__
from spanlm.errors import as_written
from spanlm.serve import fields


class Endpoint(NamedTuple):
    """What a POST gives, of which fields; `answer` describes what is JSON of it."""

    summary: str
    fields: Mapping[str, fields.Schema]
    kinds: tuple[str, ...] = ("application/json",)
    answer: Mapping[str, Any] = MappingProxyType({})


def _answer(**described: str | Mapping[str, Any]) -> dict[str, Any]:
    """Describe an object by its fields: "number", "string|null" …, or what they hold."""
    properties = {name: {"type": x.split("|")} if isinstance(x, str) else x for name, x in described.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _many(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_WORD = _answer(
    text="string",  # as it is written
    start="integer",  # characters of the text before it
    end="integer",
    surprisal="number|null",  # bits
    entropy="number|null",
    rank="integer|null",
    unknown="boolean",
    tokens=_many({"type": "integer"}),  # its places among the record's tokens
)
_ITEM = _answer(start="integer", end="integer", record="object", words=_many(_WORD))
_CANDIDATES = _many(_answer(word="string", log_probability="number"))
_ROWS = _answer(rows=_many({"type": "object"}))
_MEAN: dict[str, Any] = {"bits": "number|null", "perplexity": "number|null"}
_READ = _answer(items=_many(_ITEM), words="integer", **_MEAN, unknown="integer", known=_answer(**_MEAN))
_NEXT = _answer(candidates=_CANDIDATES, rest="number", unk="number", tails=_many({"type": ["number", "null"]}))
_GENERATED = _answer(word="string", log_probability="number", candidates=_CANDIDATES)
_MODEL = _answer(
    id="string",
    name="string",
    description="string",
    memory="string|null",
    tokenizer="string",
    corpus="string|null",
    paper="string|null",
    preset="string|null",
    parameters="integer|null",
    vocabulary_size="integer",
    perplexity="object|null",
    nearest_lag="integer|null",
    window="integer|null",
    attends="string|null",
    lesions=_many({"type": "string"}),
    gates="boolean",
    caches="boolean",
    states=_many({"type": "string"}),
    state="string",
    diagram="object|null",
    curves=_many(_answer(epoch="integer", seconds="number|null", train="number|null", valid="number")),
    examples=_many(_answer(title="string", text="string", look="string")),
)
_MODELS = _answer(version="string", ready="boolean", progress="string|null", models=_many(_MODEL))

_JSON, _ROW_KINDS = ("application/json",), ("application/json", "text/csv")
ENDPOINTS = {
    "/api/read": Endpoint(
        "a text as the model reads it: surprisal, attention, what it expected", fields.READ, _JSON, _READ
    ),
    "/api/score": Endpoint("the rows of `spanlm score`", fields.SCORE, _ROW_KINDS, _ROWS),
    "/api/attend": Endpoint("the rows of `spanlm attend`", fields.ATTEND, _ROW_KINDS, _ROWS),
    "/api/page": Endpoint("a page to read without the server", fields.READ, ("text/html",)),
    "/api/next": Endpoint("the distribution of the next word; log p in nats", fields.NEXT, _JSON, _NEXT),
    "/api/generate": Endpoint(
        "words, each as soon as it is drawn: events word (as described), done, error",
        fields.GENERATE,
        ("text/event-stream",),
        _GENERATED,
    ),
}
_READS = {"/api/models": "the runs that are served", "/api/schema": "this document"}
_READ_ANSWERS: dict[str, Mapping[str, Any]] = {"/api/models": _MODELS, "/api/schema": {"type": "object"}}
_ERRORS = {
    "400": "a field or a header is wrong",
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
        path: {"get": {"summary": what, "responses": _responses(_JSON, _READ_ANSWERS[path])}}
        for path, what in _READS.items()
    }
    for path, endpoint in ENDPOINTS.items():
        body = {"content": {"application/json": {"schema": _object(endpoint.fields)}}, "required": True}
        operation = {
            "summary": endpoint.summary,
            "requestBody": body,
            "responses": _responses(endpoint.kinds, endpoint.answer),
        }
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


def _responses(kinds: tuple[str, ...], answer: Mapping[str, Any]) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    text = {"type": "string"}
    content = {kind: {"schema": text if kind in ("text/csv", "text/html") else dict(answer)} for kind in kinds}
    good = {"description": "the answer", "content": content}
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
