"""The fields of requests: one description of each, by which it is checked and which /api/schema shows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, get_args

from spanlm.data.tokenizer import written_words
from spanlm.errors import InputError, nearest
from spanlm.evaluation.cache import CacheConfig
from spanlm.evaluation.generation import LEAST_TEMPERATURE
from spanlm.evaluation.protocol import Context
from spanlm.store.plain import visible

Schema = Mapping[str, Any]
"""A field as JSON Schema has it: the words of it that `checked` knows."""

MOST_WORDS = 20_000
"""Of a text, as they are written or as the model cuts them."""

NEURAL_CACHE = CacheConfig(window=500, theta=0.3, lambda_=0.15)
"""What a request can mix in."""

_SHOWN = 60
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float), "array": (list,)}
_NAMES = {"string": "text", "integer": "a whole number", "number": "a number", "array": "a list", "null": "null"}

RUN: Schema = {"type": "string", "maxLength": 20, "default": "1", "description": "id of a run in /api/models"}
TEXT: Schema = {
    "type": "string",
    "description": f"lines of words, at most {MOST_WORDS:,}",
    "examples": ["the name is bound to the object ."],
}
STATE: Schema = {
    "enum": list(get_args(Context)),
    "default": "line",
    "description": "what precedes a word: its line, all text so far (carry), the lines since a blank one (document)",
}
ATTENTION: Schema = {
    "type": ["string", "null"],
    "maxLength": 20,
    "default": None,
    "description": "a lesion of the memory: uniform, none or window=K; null: as it was trained",
}
EXPECTED: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": 20,
    "default": 5,
    "description": "so many of the likeliest words",
}
CACHE: Schema = {
    "enum": [False, True],
    "default": False,
    "description": f"mix in a {NEURAL_CACHE.description}, which begins anew where the context does; there is then no "
    "entropy and no rank",
}
ATTEND = {"run": RUN, "text": TEXT, "state": STATE, "attention": ATTENTION}
READ = {**ATTEND, "cache": CACHE, "expected": EXPECTED}
SCORE = {
    **ATTEND,
    "cache": CACHE,
    "rows": {"enum": ["tokens", "words"], "default": "tokens", "description": "of what the model reads, or as written"},
    "base": {"enum": ["2", "e", "10"], "default": "2", "description": "of the logarithm: bits, nats or bans"},
}
NEXT = {
    "run": RUN,
    "prompt": {**TEXT, "default": "", "description": "words to go on from; none: a line begins"},
    "attention": ATTENTION,
    "count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "so many candidates"},
    "temperatures": {
        "type": "array",
        "items": {"type": "number", "minimum": LEAST_TEMPERATURE, "maximum": 100},
        "maxItems": 100,
        "default": [],
        "description": "at each T, the logarithm of the sum of p^(1/T) over the words that are no candidates",
    },
}
_ABSENT = "null: all of them"
GENERATE = {
    "run": RUN,
    "prompt": NEXT["prompt"],
    "attention": ATTENTION,
    "length": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 50, "description": "so many words"},
    "temperature": {
        "type": "number",
        "minimum": 0,
        "maximum": 100,
        "default": 1.0,
        "description": f"1: as the model has it; 0: the likeliest word; otherwise {LEAST_TEMPERATURE} at least",
    },
    "top_k": {
        "type": ["integer", "null"],
        "minimum": 1,
        "maximum": 10**9,
        "default": None,
        "description": f"draw from so many of the likeliest words; {_ABSENT}",
    },
    "top_p": {
        "type": ["number", "null"],
        "exclusiveMinimum": 0,
        "maximum": 1,
        "default": None,
        "description": f"draw from the fewest words that hold this share of the (top_k words') probability; {_ABSENT}",
    },
    "seed": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1, "default": 1, "description": "of the draws"},
    "unk": {"enum": [False, True], "default": False, "description": "let <unk> be drawn, too"},
}


def checked(body: Mapping[str, Any], fields: Mapping[str, Schema]) -> dict[str, Any]:
    """Return the value of each field, given or by default.

    Raises:
        InputError: a field is unknown, missing, of another type or outside its range, or holds no text.
    """
    for name in body:
        if name not in fields:
            raise InputError(f"{_short(name)}: there is no such field.{nearest(name[:_SHOWN], fields)}")
    values = {}
    for name, schema in fields.items():
        if name not in body and "default" not in schema:
            raise InputError(f"{name}: is missing; give {schema['description']}")
        values[name] = _value(name, body[name], schema) if name in body else schema["default"]
    return values


def _value(name: str, value: Any, schema: Schema) -> Any:
    if "enum" in schema:
        # True == 1: of equal values the type counts, too
        if not any(value is one or (isinstance(one, str) and value == one) for one in schema["enum"]):
            raise _wrong(name, value, " or ".join(map(json.dumps, schema["enum"])))
        return value
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if value is None and "null" in types:
        return None
    if isinstance(value, float) and "integer" in types and value.is_integer():
        value = int(value)  # 1e3 is a whole number to JSON
    if isinstance(value, bool) or not isinstance(value, tuple(one for kind in types for one in _TYPES.get(kind, ()))):
        raise _wrong(name, value, " or ".join(_NAMES[kind] for kind in types))
    if isinstance(value, str):
        return _text(name, value, schema)
    if isinstance(value, list):
        if len(value) > schema["maxItems"]:
            raise InputError(f"{name}: has {len(value):,} numbers; must be at most {schema['maxItems']}")
        return [_value(f"{name}[{place}]", one, schema["items"]) for place, one in enumerate(value)]
    _refuse_outside(name, value, schema)
    return value


def _refuse_outside(name: str, value: Any, schema: Schema) -> None:
    most = schema["maximum"]
    if "minimum" in schema:
        least, inside = f"from {schema['minimum']}", schema["minimum"] <= value <= most
    else:
        least, inside = f"above {schema['exclusiveMinimum']}", schema["exclusiveMinimum"] < value <= most
    if not inside:  # NaN is in no range
        raise _wrong(name, value, f"{least} to {most}")


def _text(name: str, value: str, schema: Schema) -> str:
    """Refuse what is no text that UTF-8 can write, or too long."""
    if len(value) > schema.get("maxLength", math.inf):
        raise InputError(f"{name}: has {len(value):,} characters; must be at most {schema['maxLength']}")
    if "\0" in value:
        raise InputError(f"{name}: has a NUL character at {value.index(chr(0))}; take it out")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        what = "half a character (a lone surrogate)"
        raise InputError(f"{name}: has {what} at {error.start}; write it whole, or take it out") from None
    refuse_long(name, len(written_words(value)))
    return value


def refuse_long(name: str, words: int) -> None:
    """Refuse a text of too many words."""
    if words > MOST_WORDS:
        raise InputError(f"{name}: has {words:,} words; must be at most {MOST_WORDS:,}. Send it in parts.")


def _wrong(name: str, value: Any, limit: str) -> InputError:
    return InputError(f"{name}={_short(json.dumps(value, ensure_ascii=False))}: must be {limit}")


def _short(text: str) -> str:
    shown = visible(text[: 2 * _SHOWN])
    shown = shown.encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
