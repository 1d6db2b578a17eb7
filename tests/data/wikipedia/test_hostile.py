"""Articles and files made to hurt: time in proportion to the input, bounded memory, nobody left behind."""

from __future__ import annotations

import bz2
import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlm.data.wikipedia import Article, cut_page
from spanlm.data.wikipedia.sources import PAGE_LIMIT, Page
from spanlm.errors import InputError
from tests.data.limited import ends
from tests.data.wikipedia.small import (
    FOOTER,
    HEADER,
    ROOT,
    build,
    dump,
    json_line,
    json_lines,
    listed,
    made_articles,
    page,
    texts,
)
from tests.data.wikipedia.test_shards import await_end

ARTICLES = made_articles(12)
TEXT: dict[str, Callable[[int], str]] = {
    "links": lambda n: "[http://" * n,
    "links and spaces": lambda n: "[http://a " * n,
    "links before a bracket": lambda n: "[//a " * n + "x] y",
    "wikilinks": lambda n: "[[" * n,
    "wikilinks and bars": lambda n: "[[a|" * n,
    "wikilinks before a bracket": lambda n: "[[a|" * n + "] x",
    "notes": lambda n: "<ref>" * n,
    "half notes": lambda n: "<ref a " * n,
    "tags": lambda n: "<a " * n,
    "templates": lambda n: "{{a" * n,
    "brackets": lambda n: "(" + ", " * n,
    "closers": lambda n: "A b." + ")" * n + "x",
    "dots": lambda n: "It is " + "." * n + "x.",
    "an address of dots": lambda n: "See www." + "." * n + " x.",
    "marks over a letter": lambda n: "It is e" + "\u0301" * n + "\u0316" * n + ".",
    "marks that are two": lambda n: "It is \u0f40" + "\u0f73" * n + ".",
    "a number": lambda n: "It is &#" + "1" * n + ";.",
    "entities": lambda n: "It is &" + "amp;" * n + " that.",
    "an acronym": lambda n: "It is " + "a." * n + " so.",
    "numbers": lambda n: "It is " + "1-" * n + "x so.",
    "contractions": lambda n: "It is " + "n't" * n + " so.",
    "lines": lambda n: "It is so.\n" * n,
    "sentences": lambda n: "It is so. " * n,
    "quotations": lambda n: 'It is "so. ' * n,
    "quotations of another kind": lambda n: "It is «so. " * n,
}
WIKI: dict[str, Callable[[int], str]] = {
    "wikilinks": lambda n: "[[" * n,
    "wikilinks and bars": lambda n: "[[a|" * n,
    "wikilinks in wikilinks": lambda n: "[[a|" * n + "]]" * n,
    "templates": lambda n: "{{a|" * n,
    "templates in templates": lambda n: "{{a|" * n + "}}" * n,
    "many templates": lambda n: "{{a|b}} " * (n // 8),
    "braces": lambda n: "{" * n + "}" * n,
    "arguments": lambda n: "{{{a|}} " * n,
    "crossed": lambda n: "{{a|[[b|}}]]" * n,
    "tables": lambda n: "{|\n" * n,
    "cells that hold tables": lambda n: "{|\n| <b>\n" * n + "</b> | x\n|}\n" * n,
    "elements": lambda n: "<b>" * n,
    "cells without an end": lambda n: "<td>" * n + "</b>" * n,
    "quotes": lambda n: '<b a="' * n,
    "quotes in what looks whole": lambda n: '<b a="/>\n=' * n,
    "half tags": lambda n: "<b " * n,
    "templates in tags": lambda n: "<b {{a|></b>" * n,
    "notes": lambda n: "<ref>" * n,
    "comments": lambda n: "<!--" * n,
    "nowiki": lambda n: "<nowiki>" * n,
    "links": lambda n: "[http://a " * n,
    "a heading": lambda n: "=" + "a=" * n,
    "headings": lambda n: "=a\n" * n,
    "short lines": lambda n: "a\n" * n,
    "spaces after braces": lambda n: "{{" + " " * n,
    "categories": lambda n: "[[category:" * n,
    "a category of spaces": lambda n: "[[category:" + " " * n,
}
CASES = [("text", name) for name in TEXT] + [("wiki", name) for name in WIKI]


def entry(kind: str, name: str, n: int) -> object:
    made = (TEXT if kind == "text" else WIKI)[name](n)
    page = Page("1", "T", made, silent=() if kind == "wiki" else None)
    return cut_page(page, "." if "categor" in name else None)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_small_hostile_article_is_read(kind: str, name: str) -> None:
    assert isinstance(entry(kind, name, 6000), Article | str)


def read_a_large_one(kind: str, name: str) -> None:
    entry(kind, name, 200_000)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_large_hostile_article_ends(kind: str, name: str) -> None:
    assert ends(__name__, "read_a_large_one", kind, name)


def test_markup_that_would_keep_the_parser_busy_is_skipped(tmp_path: Path) -> None:
    body = page("1", "Tangled", "{{a|" * 400) + page("2", "Deep", "{|\n| <b>\n" * 9 + "</b> | x\n|}\n" * 9)
    (tmp_path / "x.xml").write_bytes(dump(ARTICLES).replace(FOOTER.encode(), (body + FOOTER).encode()))
    assert build(tmp_path / "x.xml", tmp_path / "out")["skipped"] == {"malformed": 2}
    assert [row["id"] for row in listed(tmp_path / "out")] == [made.id for made in ARTICLES]


@pytest.mark.parametrize("kind", ["jsonl", "xml"])
def test_an_article_above_the_limit_is_skipped(tmp_path: Path, kind: str) -> None:
    for long, skipped in ((PAGE_LIMIT - 1000, {}), (PAGE_LIMIT + 1, {"oversized": 1})):
        if kind == "jsonl":
            line = json_line(ARTICLES[0], id="x", title="Long", text="It is so.\n\n" + "x" * long)
            content = json_lines(ARTICLES[:6]) + line + json_lines(ARTICLES[6:])
        else:
            body = page("x", "Long", "It is so.\n\n" + "x" * long) + FOOTER
            content = dump(ARTICLES).replace(FOOTER.encode(), body.encode())
        (tmp_path / f"x.{kind}").write_bytes(content)
        assert build(tmp_path / f"x.{kind}", tmp_path / f"out {long}")["skipped"] == skipped
        ids = [row["id"] for row in listed(tmp_path / f"out {long}")]
        assert sorted(set(ids) - {"x"}) == sorted(made.id for made in ARTICLES) and ("x" in ids) is not bool(skipped)


def test_elements_in_elements_without_end(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text(HEADER + "<a>" * 1000)
    with pytest.raises(InputError, match="is inside 50 other elements"):
        build(tmp_path / "x.xml", tmp_path / "out")


RESIDENT = """
import sys
from pathlib import Path
from tests.data.wikipedia.small import build

def most():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024

before = most()
try:
    build(Path(sys.argv[1]), Path(sys.argv[2]), keep_partial=True)
except Exception as error:
    print(error)
print(most() - before)
"""
BOMBS: dict[str, Callable[[bytes], list[bytes]]] = {
    "line": lambda fill: [b'{"id": "1", "title": "Bomb", "text": "', fill],
    "page": lambda fill: [HEADER.encode() + b"<page><title>Bomb</title><ns>0</ns><revision><text>", fill],
    "title": lambda fill: [HEADER.encode() + b"<page><title>", fill],
    "comment": lambda fill: [HEADER.encode() + b"<!--", fill],
    "attribute": lambda fill: [HEADER.encode() + b"<page a='", fill],
    "elements": lambda fill: [HEADER.encode(), b"<a>" * (len(fill) // 3)],
    "redirects": lambda fill: [HEADER.encode(), b"<page><ns>1</ns></page>" * 1_000_000],
    "words": lambda fill: [json_line(ARTICLES[0], id=str(n), text=f"It {n}{'x' * 1_000_000}.") for n in range(100)],
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("bomb", "pack"),
    [
        *((bomb, gzip.compress) for bomb in BOMBS),
        *((bomb, pack) for bomb in ("line", "page") for pack in (bytes, bz2.compress)),
    ],
)
def test_memory_is_bounded_whatever_a_file_expands_to(
    tmp_path: Path, bomb: str, pack: Callable[[bytes], bytes]
) -> None:
    content = b"".join(BOMBS[bomb](b"x" * 200_000_000))
    (tmp_path / "bomb").write_bytes(pack(content))
    ran = subprocess.run(
        [sys.executable, "-c", RESIDENT, str(tmp_path / "bomb"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=True,
    )
    assert int(ran.stdout.splitlines()[-1]) < 100


BUSY = """
import multiprocessing, os, re, signal, sys, threading, time
from spanlm.store.process import workers

def busy(item):
    re.fullmatch(r"(a|aa)*b", "a" * item)  # holds the interpreter's lock for longer than anybody waits

def kill():
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.05)
    time.sleep(1)
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    threading.Thread(target=kill).start()
    with workers(2) as in_order:
        list(in_order(busy, [90, 90, 90]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread ends the worker, after the call")
def test_no_worker_outlives_a_killed_parent_even_inside_a_long_call(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    ran = subprocess.run(
        [sys.executable, "busy.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    workers = list(map(int, ran.stdout.split()))
    assert ran.returncode == -signal.SIGKILL and len(workers) == 2
    await_end(workers)


def test_long_words_are_no_words(tmp_path: Path) -> None:
    odd = json_line(ARTICLES[0], id="1", text=f"It is a {'word' * 400}. It is one.\n")
    (tmp_path / "x.jsonl").write_bytes(odd + json_lines(ARTICLES))
    summary = build(tmp_path / "x.jsonl", tmp_path / "out")
    assert summary["left_out_words"]["fragment"] == 4
    assert not any("wordword" in text for text in texts(tmp_path / "out").values())
