"""What the server refuses, and that it stays there: hosts, origins, sizes, numbers, slow and lost clients, any."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from spanlm.cli.main import main
from spanlm.jobs import start_command
from spanlm.serve import demo
from spanlm.serve import server as serving
from spanlm.serve.app import make_app
from spanlm.serve.fields import MOST_WORDS, REQUESTS, SCHEMA
from spanlm.serve.guard import HEADERS, MOST_BYTES
from spanlm.serve.served import Runs
from spanlm.serve.server import Server, listening
from spanlm.serve.work import Left, Work, held
from tests.cases import rest_slow
from tests.serve.conftest import client_of, runs_of

JSON = {"content-type": "application/json"}
PATIENCE = 120
"""Seconds until what is waited for has failed to come, on a machine that does other things, too."""


def _one_line_each(answer: Any) -> None:
    """A line for people and, of an error about a field, the parts of that line."""
    body = answer.json()
    assert list(body) in (["error"], [name for name in ("error", "field", "value", "limit", "way_out") if name in body])
    assert ("limit" in body) == ("field" in body)
    assert all(text in body["error"] and "\n" not in text for text in body.values())


def _refused(answer: Any, status: int, *parts: str) -> None:
    """One line of JSON, with the headers of every answer."""
    assert answer.status_code == status, answer.text
    _one_line_each(answer)
    for part in parts:
        assert part in answer.json()["error"]
    assert HEADERS.items() <= {**answer.headers, "cache-control": "no-store"}.items()


# --- who may ask ---


def test_only_this_machine_s_names_are_answered(client: TestClient) -> None:
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
        assert client.get("/api/models", headers={"host": host}).status_code == 200
    for host in ("127.0.0.1.example.org", "localhost.example.org:8000", "localhost:8000@example.org", "", "0.0.0.0"):
        for path in ("/", "/api/models", "/static/reader.js", "/nowhere"):
            _refused(client.get(path, headers={"host": host}), 403, "Host")


def test_pages_of_other_sites_may_not_ask(client: TestClient) -> None:
    for origin in ("http://example.org", "null", "http://127.0.0.1:9", "http://localhost:8000", ""):
        _refused(client.post("/api/read", json={"text": "the"}, headers={"origin": origin}), 403, "Origin")
    own = {"origin": "http://127.0.0.1:8000"}
    assert client.post("/api/read", json={"text": "the"}, headers=own).status_code == 200


def test_a_form_of_another_site_is_no_request(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = client.post("/api/read", content=b'{"text": "the"}', headers={"content-type": kind})
        _refused(answer, 415, "application/json")


def test_a_server_for_others_asks_for_the_token(runs: Runs, work: Work) -> None:
    client = TestClient(make_app(runs, work, "0.0.0.0", "secret"), base_url="http://192.168.1.7:8000")
    for token in ("", "Bearer secre", "secret", "Bearer é"):
        headers = {"authorization": token.encode()} if token else {}
        _refused(client.get("/api/models", headers=headers), 401, "token")
        assert client.get("/", headers=headers).status_code == 200
    right = ("authorization", "Bearer secret")
    assert client.get("/api/models", headers=[right]).status_code == 200
    _refused(client.get("/api/models", headers=[right, right]), 400, "Authorization")
    _refused(client.get("/", headers={"host": "example.org"}), 403, "Host")


def test_no_file_is_given_but_the_page_s_own(client: TestClient) -> None:
    for name in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "app.py", "index.html", "%00", "", "READER.JS"):
        _refused(client.get(f"/static/{name}"), 404, "no such address")
    for path in ("/static", "/static//etc/passwd", "/page", "/api", "/api/"):
        _refused(client.get(path), 404, "no such address")


def test_the_page_is_given_with_what_guards_it(client: TestClient) -> None:
    page, script = client.get("/"), client.get("/static/reader.js", headers={"range": "bytes=5-1,7-"})
    assert page.status_code == script.status_code == 200 and len(script.content) > 1000
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == script.headers["x-content-type-options"] == "nosniff"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"


# --- what is asked ---


def test_large_requests_are_refused_however_they_are_sent(client: TestClient) -> None:
    body = json.dumps({"text": "the " * (MOST_BYTES // 4)}).encode()
    _refused(client.post("/api/read", content=body, headers=JSON), 413, "1,000,000")
    pieces = (body[start : start + 50_000] for start in range(0, len(body), 50_000))
    chunked = client.post("/api/read", content=pieces, headers=JSON)
    assert "content-length" not in chunked.request.headers
    _refused(chunked, 413, "1,000,000")


@pytest.mark.parametrize(
    ("path", "kind", "size", "status", "version"),
    [
        ("read", "application/json", 20 * MOST_BYTES, 413, "1.1"),
        ("read", "text/plain", MOST_BYTES - 10, 415, "1.0"),
    ],
)
def test_who_sends_all_before_it_listens_gets_the_error(
    runs: Runs, work: Work, path: str, kind: str, size: int, status: int, version: str
) -> None:
    head = f"POST /api/{path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: {kind}\r\nConnection: close\r\n"
    with _running(runs, work) as address, socket.create_connection(address) as client:
        client.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
        for _ in range(0, size, 100_000):
            client.sendall(b" " * min(size, 100_000))
            size -= 100_000
        assert _rest(client).startswith(f"HTTP/1.1 {status} ".encode())


def test_texts_are_bounded(client: TestClient, work: Work, words_run: Path) -> None:
    others = client_of(runs_of(words_run), work)
    # one written word of marks is many to its model
    for text, asked in (("the " * (MOST_WORDS + 1), client), ("." * (MOST_WORDS + 1), others)):
        for field, name in (("text", "read"), ("prompt", "next")):
            _refused(asked.post(f"/api/{name}", json={field: text}), 400, field, f"{MOST_WORDS:,}")


def test_weights_that_no_page_can_draw_are_refused_before_a_word_is_read(client: TestClient, runs: Runs) -> None:
    assert runs.get("5").attends  # which a word is read for, once
    with _steps(runs, "5") as steps:
        answer = client.post("/api/read", json={"text": "the " * 2300, "run": "5"})  # which remembers all of a line
    _refused(answer, 400, "text: has 5,28", "5,000,000")
    assert not steps
    for lesion in (None, "window=1000"):  # which says only after it is read how many are left
        asked = {"text": "the " * 1100, "run": "5", "attention": lesion}
        _refused(client.post("/api/attend", json=asked), 400, "must be at most 500,000")


@contextmanager
def _steps(runs: Runs, id: str) -> Iterator[list[int]]:
    """How many words a model reads at each of its steps."""
    steps = list[int]()
    hook = runs.get(id).model.model.register_forward_pre_hook(lambda _, inputs: steps.append(len(inputs[0])))
    with hook:
        yield steps


def test_who_waits_for_a_model_may_leave() -> None:
    lock, work = threading.Lock(), Work(1, 1)

    async def leave() -> None:
        with work.task() as task:
            waiting = asyncio.ensure_future(task.run(lambda: held(lock).__enter__()))
            await asyncio.sleep(0.1)
            task.cancelled = True
            with pytest.raises(Left):
                await asyncio.wait_for(waiting, PATIENCE)

    with lock:
        asyncio.run(leave())


def _bad(name: str, field: str, *values: str, before: str = "") -> list[tuple[str, str, str]]:
    return [(name, f'{before}"{field}": {value}', field) for value in values]


READ = '"text": "the", '
BAD = [
    *_bad("generate", "temperature", "NaN", "-1", "1e999", "1e-9", "[]"),
    *_bad("generate", "length", "0", "1e18", "2.5", "null", '"9"'),
    *_bad("generate", "top_p", "0", "1.01", "{}"),
    *_bad("generate", "top_k", "0", "1e30"),
    *_bad("generate", "seed", "-1", str(2**63)),
    *_bad("generate", "unk", "1"),
    *_bad("next", "count", "1001", "NaN"),
    *_bad("next", "temperatures", "[0]", "3", str([1] * 101)),
    *_bad("read", "expected", "21", before=READ),
    *_bad("read", "state", '"auto"', before=READ),
    *_bad("read", "cache", "1", '"true"', before=READ),
    *_bad("read", "attention", '"all"', '"window=0"', '"window=9"', "1", before=READ),
    *_bad("read", "run", '"99"', '"../demo"', before=READ),
    ("read", '"text": "a\\u0000b"', "NUL"),
    ("read", '"text": "a\\ud800b"', "surrogate"),
    ("next", '"prompt": "a\\udfff"', "surrogate"),
    ("read", '"text": "the <eos> cat"', "<eos>"),
    ("read", '"text": "  \\n "', "no words"),
    ("read", '"text": 5', "text="),
    ("read", "", "text: is missing"),
    ("read", '"txt": "the"', "Did you mean 'text'?"),
    ("read", '"\\ud800": 1', "no such field"),
    ("read", f'{READ}"run": "2", "attention": "none"', "does not attend"),
    ("attend", f'{READ}"run": "2"', "attends to nothing"),
    ("attend", f'{READ}"run": "6"', "n-gram"),
    ("score", f'{READ}"base": "0"', "base="),
    ("read", '"text": ' + "[" * 100_000, "nested too deeply"),
    ("read", '"text": ' + "9" * 5000 + " ", "JSON"),
]


def test_wrong_fields_are_named(client: TestClient) -> None:
    for name, fields, said in BAD:
        _refused(client.post(f"/api/{name}", content=f"{{{fields}}}", headers=JSON), 400, said)
    for body in (b"", b"[]", b"null", b"\xff\xfe", b"{", b"{} {}"):
        _refused(client.post("/api/read", content=body, headers=JSON), 400, "JSON")


def test_an_error_of_a_field_has_its_parts(client: TestClient) -> None:
    answer = client.post("/api/read", json={"text": "the", "expected": 21}).json()
    parts = {"field": "expected", "value": "21", "limit": "must be a whole number from 1 to 20"}
    assert answer == {"error": "expected=21: must be a whole number from 1 to 20", **parts}
    assert client.post("/api/read", json={"text": "a\0b"}).json()["way_out"] == "Take it out."


def test_wrong_methods_are_refused(client: TestClient) -> None:
    for method, path in (("GET", "/api/read"), ("POST", "/"), ("DELETE", "/api/models"), ("OPTIONS", "/api/read")):
        _refused(client.request(method, path), 405, method)


def test_more_requests_than_there_may_be_are_told_to_wait(runs: Runs) -> None:
    client = client_of(runs, Work(1, 0))
    for name, field in (("read", "text"), ("generate", "prompt")):
        answer = client.post(f"/api/{name}", json={field: "the"})
        _refused(answer, 429, "too many")
        assert answer.headers["retry-after"] == "1"


def test_a_run_that_is_not_there_yet_is_waited_for(work: Work) -> None:
    runs = Runs()
    runs.progress = "epoch 3"
    client = client_of(runs, work)
    _refused(client.post("/api/read", json={"text": "the"}), 503, "epoch 3")
    assert client.get("/api/models").json() == client.get("/api/models").json() | {"ready": False, "models": []}


# --- how it is asked ---


@contextmanager
def _running(runs: Runs, work: Work, **sizes: int) -> Iterator[tuple[str, int]]:
    """A server in a thread of this process, at an address; its sockets have buffers of these sizes."""
    with closing(listening("127.0.0.1", 0)) as address:
        for name, size in sizes.items():
            address.setsockopt(socket.SOL_SOCKET, getattr(socket, name), size)
        server = Server(make_app(runs, work), work)
        thread = threading.Thread(target=server.run, args=([address],))
        thread.start()
        yield address.getsockname()
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _rest(client: socket.socket, until: bytes | None = None) -> bytes:
    found = b""
    client.settimeout(PATIENCE)
    while not (until and found.endswith(until)) and (part := client.recv(65536)):
        found += part
    return found


HEAD = b"POST /api/read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
WHOLE = HEAD + b'{"text": "the"}'


def _request(name: str, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    return HEAD.replace(b"read", name.encode()).replace(b" 15", b" %d" % len(body)) + body


SLOW = {
    "nothing": b"",
    "method": b"GET / HT",
    "head": HEAD[:60],
    "no body": HEAD,
    "half a body": HEAD + b'{"text"',
    "waiting": HEAD[:-4] + b"\r\nExpect: 100-continue\r\n\r\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", WHOLE], ids=["first", "second"])
def test_slow_clients_are_cut_off(runs: Runs, work: Work, monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    monkeypatch.setattr(serving, "RECEIVE_SECONDS", 0.4)
    monkeypatch.setattr(serving, "IDLE_SECONDS", 1)
    with _running(runs, work) as address, ExitStack() as stack:
        clients = {}
        for name, sent in SLOW.items():
            clients[name] = client = stack.enter_context(socket.create_connection(address))
            if before:
                client.sendall(before)
                assert b"200 OK" in client.recv(100_000)
            client.sendall(sent)
        for name, client in clients.items():
            found = _rest(client)
            assert b"408 Request Timeout" in found or (before and not SLOW[name]), name
            assert not SLOW[name] or b'{"error": "the request did not come' in found, name


@pytest.mark.parametrize(
    "part", rest_slow([HEAD[:60], HEAD, HEAD + b'{"text"']), ids=["head", "no body", "half a body"]
)
def test_what_comes_with_the_request_before_is_cut_off_too(
    runs: Runs, work: Work, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(serving, "RECEIVE_SECONDS", 0.5)
    with _running(runs, work) as address, socket.create_connection(address) as client:
        client.sendall(WHOLE + part)
        found = _rest(client)
        assert found.count(b"HTTP/1.1 200 OK") == 1 and found.count(b"408 Request Timeout") == 1


@pytest.mark.slow
def test_a_drop_at_a_time_is_slow_too(runs: Runs, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "RECEIVE_SECONDS", 0.5)
    with _running(runs, work) as address, socket.create_connection(address) as client:
        began = time.monotonic()
        with pytest.raises(OSError):  # which drop finds the connection closed is not known
            for byte in HEAD * 100:
                client.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < PATIENCE


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False])
def test_only_who_reads_nothing_of_an_answer_is_cut_off(
    runs: Runs, work: Work, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    monkeypatch.setattr(serving, "RECEIVE_SECONDS", 0.4)
    with _running(runs, work, SO_SNDBUF=8192) as address, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address)
        client.sendall(_request("score", {"text": "the cat sat " * 1000, "run": "6"}))
        found, until = client.recv(100), time.monotonic() + 1.5  # longer than the deadline
        while time.monotonic() < until:
            time.sleep(0.01)
            found += client.recv(1000) if reads else b""
        head, _, answer = (found + _rest(client, b"}]}")).partition(b"\r\n\r\n")
        assert (len(answer) == int(re.findall(rb"content-length: (\d+)", head)[0])) is reads


def test_connections_are_bounded(runs: Runs, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)

    def works(client: socket.socket) -> bool:
        with suppress(ConnectionError):
            client.sendall(WHOLE)
            return b"200 OK" in client.recv(100_000)
        return False

    def another_works(address: tuple[str, int]) -> bool:
        with suppress(ConnectionError), socket.create_connection(address) as client:
            return works(client)
        return False

    with _running(runs, work) as address:
        with socket.create_connection(address) as first, socket.create_connection(address) as second:
            assert works(first) and works(second) and not another_works(address)
        assert _soon(lambda: another_works(address))


def test_what_is_no_http_is_refused(runs: Runs, work: Work) -> None:
    with _running(runs, work) as address:
        for sent in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/9\r\n", b"GET / HTTP/1.1\r\n", b"A" * 99999):
            with socket.create_connection(address) as client:
                client.sendall(sent + b"\r\n\r\n")
                assert _rest(client).startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["generate", "read"])
def test_work_for_a_client_that_left_ends(runs: Runs, work: Work, name: str) -> None:
    asked = {"prompt": "the", "length": 10_000} if name == "generate" else {"text": "the cat " * 9000, "state": "carry"}
    with _running(runs, work) as address, _steps(runs, "1") as steps:
        with socket.create_connection(address) as client:
            client.sendall(_request(name, asked))
            if name == "generate":
                _until_word(client)
            assert _soon(lambda: work.tasks == 1 and bool(steps))
        assert _soon(lambda: work.tasks == 0)
        time.sleep(0.5)  # a step that had begun may end
        made = len(steps)
        time.sleep(0.5)
        assert len(steps) == made and sum(steps) < 9000


def _until_word(client: socket.socket) -> None:
    found = b""
    while b"event: word" not in found:
        found += (more := client.recv(100_000))
        assert more, found


def _soon(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


# --- the command ---


@contextmanager
def _command(*arguments: object, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves, and its port, once it says so."""
    command = [sys.executable, "-m", "spanlm", "serve", *map(str, arguments), "--port", "0"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=cwd, **pipes) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield process, int(line.partition("127.0.0.1:")[2].partition("/")[0])
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once_with_clients_connected(tiny_run: Path, number: int) -> None:
    stream = _request("generate", {"prompt": "the", "length": 10_000})
    with ExitStack() as stack, _command(tiny_run) as (process, port):
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(4)]
        for client, sent in zip(clients, (stream, HEAD, b"GET /", b""), strict=True):
            client.sendall(sent)
        _until_word(clients[0])
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)  # two seconds where nothing else computes
        assert (process.returncode, said) == (128 + number, "spanlm: stopped\n")


@pytest.mark.slow
def test_without_a_run_the_demo_is_trained_which_ends_with_the_server(tmp_path: Path) -> None:
    with _command(cwd=tmp_path) as (process, port):
        trained = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
        answer = _models(port)
        assert (answer["ready"], answer["models"]) == (False, [])
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    gone = ["ps", "-p", trained.strip()]
    assert _soon(lambda: subprocess.run(gone, capture_output=True, check=False).returncode != 0)


@pytest.mark.slow
def test_without_a_run_a_demo_that_is_there_is_served(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "runs/demo")
    with _command(cwd=tmp_path) as (_, port):
        answer = _models(port)
    assert (answer["ready"], answer["progress"], answer["models"][0]["name"]) == (True, None, "runs/demo")


def test_a_demo_is_served_as_soon_as_it_is_trained(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its training ends at once: the demo is there."""
    shutil.copytree(tiny_run, tmp_path / "runs/demo")
    monkeypatch.chdir(tmp_path)
    runs, ready = Runs(), threading.Event()
    monkeypatch.setattr(demo, "start_command", lambda _: start_command([sys.executable, "-c", "print('epoch 8 of 8')"]))
    demo.Training(runs, "cpu", ready.set).begin()
    assert ready.wait(PATIENCE)
    assert runs.progress is None and [served.name for served in runs.all] == ["runs/demo"]


def _models(port: int) -> Any:
    return httpx.get(f"http://127.0.0.1:{port}/api/models", timeout=PATIENCE).json()


def test_where_nothing_can_listen_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(listening("127.0.0.1", 0)) as taken:
        for arguments, said in (
            (["--port", str(taken.getsockname()[1])], "cannot be listened at"),
            (["--host", "::1%nowhere", "--token"], "is no address"),
        ):
            assert main(["serve", *arguments]) == 2 and said in capsys.readouterr().err


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
    kinds |= {"boolean": st.booleans(), "array": st.lists(WORDS, max_size=30)}
    return st.one_of([kinds[one["type"]] for one in schema.get("anyOf", [schema])])


def _body(path: str) -> st.SearchStrategy[tuple[str, bytes]]:
    fields = SCHEMA["$defs"][REQUESTS[path].__name__]["properties"]
    likely = {name: _likely(name, schema) for name, schema in fields.items()}
    needed = {name: likely[name] for name, schema in fields.items() if "default" not in schema}
    valid = st.fixed_dictionaries(needed, optional={name: likely[name] for name in likely if name not in needed})
    spoiled = st.builds(lambda body, name, value: {**body, name: value}, valid, st.sampled_from([*fields, "x"]), JUNK)
    as_json = (valid | valid | spoiled | JUNK).map(lambda body: json.dumps(body).encode())
    return st.tuples(st.just(path), as_json | st.binary(max_size=40))


ACCEPTS = st.fixed_dictionaries({}, optional={"accept": st.sampled_from(["text/csv", "*/*", ""])})


def _answered(client: TestClient, request: tuple[str, bytes], headers: dict[str, str]) -> None:
    path, body = request
    answer = client.post(path, content=body, headers={"content-type": "application/json", **headers})
    assert answer.status_code in (200, 400), (answer.status_code, answer.text)
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    if answer.status_code == 400:
        _one_line_each(answer)
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
@given(data=st.data(), headers=ACCEPTS)
def test_many_requests_are_answered_or_refused(client: TestClient, path: str, data: Any, headers: Any) -> None:
    _answered(client, data.draw(_body(path)), headers)
