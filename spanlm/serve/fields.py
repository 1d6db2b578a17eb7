"""Requests: a class for each address, which checks the bodies and makes /api/schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from spanlm.data.tokenizer import written_words
from spanlm.errors import InputError, nearest
from spanlm.options import meanings
from spanlm.scoring.options import LEAST_TEMPERATURE, CacheConfig, Context, GenerationOptions, ScoreOptions
from spanlm.store.plain import visible

MOST_WORDS = 20_000
"""Most words of a text, written words and tokens alike."""

NEURAL_CACHE = CacheConfig(window=500, theta=0.3, lambda_=0.15)
"""The cache that a request can mix in."""

_SHOWN = 60
_ERRORS = 'errors are {"error": "a line"}, of a field with its "field", "value", "limit" and "way_out", too'
_LINES = f"lines of words, at most {MOST_WORDS:,}"
_LESION = "a lesion of the memory: uniform, none or window=K; null: as trained"
_MIXED = (
    f"mix in a {NEURAL_CACHE.description}, which begins anew where the context does; there is then no entropy and no "
    "rank"
)
_TAILS = "for each T, the logarithm of the sum of p^(1/T) over all words but the candidates"
_GENERATION, _USUAL = meanings(GenerationOptions), GenerationOptions()
# The limits are the server's: there are none above in Python, and a request must not hold the machine.
_Heat = Annotated[float, Meta(ge=LEAST_TEMPERATURE, le=100)]


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of every request."""

    run: Annotated[str, Meta(max_length=20, description="id of a run in /api/models")] = "1"
    attention: Annotated[Annotated[str, Meta(max_length=20)] | None, Meta(description=_LESION)] = None


class Attend(Request):
    """The rows of `spanlm attend`."""

    text: Annotated[str, Meta(description=_LINES)]
    state: Annotated[Context, Meta(description=meanings(ScoreOptions)["state"])] = ScoreOptions().state


class _Cached(Attend):
    cache: Annotated[bool, Meta(description=_MIXED)] = False


class Read(_Cached):
    """A text as the model reads it: surprisal, attention and candidates at each word."""

    expected: Annotated[int, Meta(ge=1, le=20, description="number of likeliest words to list")] = 5


class Page(Read):
    """The page of a text, which needs no server."""


class Score(_Cached):
    """The rows of `spanlm score`."""

    rows: Annotated[Literal["tokens", "words"], Meta(description="rows of tokens or of written words")] = "tokens"
    base: Annotated[Literal["2", "e", "10"], Meta(description=meanings(ScoreOptions)["base"])] = "2"


_DRAWN = "words that were drawn after the prompt, as the answers name them; they are read as they are"


class GoOn(Request):
    """A beginning to go on from."""

    prompt: Annotated[str, Meta(description="words to go on from; none: a line begins")] = ""
    words: Annotated[list[Annotated[str, Meta(max_length=1000)]], Meta(max_length=10_000, description=_DRAWN)] = []


class Next(GoOn):
    """The distribution of the next word; log p in nats."""

    count: Annotated[int, Meta(ge=1, le=1000, description="number of candidates")] = 100
    temperatures: Annotated[list[_Heat], Meta(max_length=100, description=_TAILS)] = []


class Generate(GoOn):
    """Generated words as a stream of the events word, done and error."""

    length: Annotated[int, Meta(ge=1, le=10_000, description=_GENERATION["length"])] = _USUAL.length
    temperature: Annotated[float, Meta(ge=0, le=100, description=_GENERATION["temperature"])] = _USUAL.temperature
    top_k: Annotated[Annotated[int, Meta(ge=1, le=10**9)] | None, Meta(description=_GENERATION["top_k"])] = None
    top_p: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description=_GENERATION["top_p"])] = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description=_GENERATION["seed"])] = _USUAL.seed
    unk: Annotated[bool, Meta(description=_GENERATION["unk"])] = _USUAL.unk


REQUESTS: dict[str, type[Request]] = {
    f"/api/{kind.__name__.lower()}": kind for kind in (Read, Score, Attend, Page, Next, Generate)
}
_REFERENCES, _SCHEMAS = msgspec.json.schema_components(REQUESTS.values())
SCHEMA: dict[str, object] = {"requests": dict(zip(REQUESTS, _REFERENCES, strict=True)), "$defs": _SCHEMAS}
"""JSON Schema of the request of each address, as /api/schema shows it."""

Kind = TypeVar("Kind", bound=Request)


def checked(body: Mapping[str, Any], kind: type[Kind]) -> Kind:
    """Convert a JSON body to a request.

    Raises:
        InputError: a field is unknown, missing, of another type or outside its range, or has a NUL or a surrogate.
    """
    schema, types = _SCHEMAS[kind.__name__], {field.name: field.type for field in msgspec.structs.fields(kind)}
    known, values = schema["properties"], dict[str, Any]()
    for name, value in body.items():
        if name not in known:
            raise InputError(
                _short(name), limit="there is no such field", way_out=nearest(name[:_SHOWN], known).strip()
            )
        if isinstance(value, str):
            _refuse_no_text(name, value)
        whole = isinstance(value, float) and value.is_integer()  # in JSON 1e3 is a whole number
        try:
            values[name] = msgspec.convert(int(value) if whole else value, types[name])
        except (msgspec.ValidationError, UnicodeEncodeError):
            shown = _short(json.dumps(value, ensure_ascii=False))
            raise InputError(name, shown, f"must be {limit(known[name])}") from None
    for name in schema["required"]:
        if name not in values:
            raise InputError(name, limit="is missing", way_out=f"Give {known[name]['description']}")
    return kind(**values)


def readable() -> str:
    """Return `SCHEMA` as plain text."""
    lines = ["requests and answers are JSON; /api/schema is JSON Schema of the requests", "", "GET /api/models", ""]
    for address, kind in REQUESTS.items():
        schema = _SCHEMAS[kind.__name__]
        lines += [f"POST {address}", f"    {schema['description']}"]
        for name, field in schema["properties"].items():
            default = f"default {json.dumps(field['default'])}" if "default" in field else "required"
            lines.append(f"      {name}: {field['description']}: {limit(field)} ({default})")
        lines.append("")
    return "\n".join([*lines, _ERRORS, ""])


def limit(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(limit, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if "items" in schema:
        return f"a list of at most {schema['maxItems']}, each {limit(schema['items'])}"
    kind = {"integer": "a whole number", "number": "a number", "string": "a text", "boolean": "false or true"}
    least = f" from {schema['minimum']}" if "minimum" in schema else f" above {schema.get('exclusiveMinimum')}"
    numbers = f"{least} to {schema['maximum']}" if "maximum" in schema else ""
    size = f" of at most {schema['maxLength']} characters" if "maxLength" in schema else ""
    return kind.get(schema["type"], "null") + numbers + size


def _refuse_no_text(name: str, value: str) -> None:
    if "\0" in value:
        raise InputError(name, limit=f"has a NUL character at {value.index(chr(0))}", way_out="Take it out.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        problem = "half a character (a lone surrogate)"
        limit = f"has {problem} at {error.start}"
        raise InputError(name, limit=limit, way_out="Write it whole, or take it out.") from None
    refuse_long(name, len(written_words(value)))


def refuse_long(name: str, words: int) -> None:
    if words > MOST_WORDS:
        limit = f"has {words:,} words; must be at most {MOST_WORDS:,}"
        raise InputError(name, limit=limit, way_out="Send it in parts.")


def _short(text: str) -> str:
    shown = visible(text[: 2 * _SHOWN])
    shown = shown.encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
