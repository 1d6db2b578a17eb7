"""Requests of every kind, valid and not: answered, or refused in a line; never a 500, never a traceback."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from spanlm.serve.fields import REQUESTS, SCHEMA

MARKUP = ["<img src=x onerror=a()>", "</script>", "&amp;", "{{script}}"]
SCRIPTS = ["猫", "مرحبا", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\u202eabc", "\r\n", "e\u0301" * 9]
WORDS = st.sampled_from(["the", "cat", ".", "zebra", "<unk>", "<eos>", *MARKUP, *SCRIPTS])
TEXTS = st.one_of(
    st.lists(WORDS, max_size=30).map(" ".join),
    st.text(max_size=60),  # of any characters but halves of one
    st.text(st.characters(), max_size=9).map(lambda text: f"the {text}\0\ud800"),
)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.integers(-(10**40), 10**40) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=6,
)


def _likely(name: str, schema: Any) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if name == "run":
        return st.sampled_from(list("1234567"))
    if name == "attention":
        return st.sampled_from([None, "uniform", "none", "window=1", "window=2", "window=99", ""])
    if name == "length":
        return st.integers(1, 20)
    if name == "temperatures":
        return st.lists(st.floats(0, 120), max_size=4)
    kinds = {"string": TEXTS, "integer": st.integers(-2, 1200), "number": st.floats(0, 3), "null": st.none()}
    kinds["boolean"] = st.booleans()
    return st.one_of([kinds[one["type"]] for one in schema.get("anyOf", [schema])])


def _body(path: str) -> st.SearchStrategy[tuple[str, bytes]]:
    fields = SCHEMA["$defs"][REQUESTS[path].__name__]["properties"]
    likely = {name: _likely(name, schema) for name, schema in fields.items()}
    needed = {name: likely[name] for name, schema in fields.items() if "default" not in schema}
    valid = st.fixed_dictionaries(needed, optional={name: likely[name] for name in likely if name not in needed})
    spoiled = st.builds(lambda body, name, value: {**body, name: value}, valid, st.sampled_from([*fields, "x"]), JUNK)
    as_json = (valid | valid | spoiled | JUNK).map(lambda body: json.dumps(body).encode())
    return st.tuples(st.just(path), as_json | st.binary(max_size=40))


HEADERS = st.fixed_dictionaries({}, optional={"accept": st.sampled_from(["text/csv", "*/*", ""])})


def _answered(client: TestClient, request: tuple[str, bytes], headers: dict[str, str]) -> None:
    path, body = request
    answer = client.post(path, content=body, headers={"content-type": "application/json", **headers})
    assert answer.status_code in (200, 400), (answer.status_code, answer.text)
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    if answer.status_code == 400:
        assert list(answer.json()) == ["error"] and "\n" not in answer.json()["error"]
        assert len(answer.json()["error"]) < 600
    elif "json" in answer.headers["content-type"]:
        json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    elif "event-stream" in answer.headers["content-type"]:
        assert answer.text.endswith("event: done\ndata: {}\n\n")


PATIENT = {"suppress_health_check": list(HealthCheck)}


MANY = int(os.environ.get("SPANLM_FUZZ", "1000"))
"""In all; each run makes up others. SPANLM_FUZZ=10000 takes some minutes."""


@pytest.mark.slow
@pytest.mark.parametrize("path", REQUESTS)  # a test each, which several workers share
@settings(max_examples=MANY // len(REQUESTS), **PATIENT)
@given(data=st.data(), headers=HEADERS)
def test_many_requests_are_answered_or_refused(client: TestClient, path: str, data: Any, headers: Any) -> None:
    _answered(client, data.draw(_body(path)), headers)
