"""Articles and files made to hurt: time in proportion to the input, bounded memory, nobody left behind."""

import gzip
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlm.data.wikipedia.shards import Article, cut_page
from spanlm.data.wikipedia.sources import PAGE_LIMIT, Page
from spanlm.errors import InputError
from tests.data.limited import endless
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
)

ARTICLES = made_articles(12)
# what is in ‹› comes n times
TEXT = [
    *("‹[http://›", "‹[http://a ›", "‹[//a ›x] y", "‹[[›", "‹[[a|›", "‹[[a|›] x"),
    *("‹<ref>›", "‹<ref a ›", "‹<a ›", "‹{{a›", "(‹, ›", "A b.‹)›x", "It is ‹.›x.", "See www.‹.› x."),
    *("It is e‹\u0301›‹\u0316›.", "It is \u0f40‹\u0f73›.", "It is &#‹1›;.", "It is &‹amp;› that."),
    *("It is ‹a.› so.", "It is ‹1-›x so.", "It is ‹n't› so.", "‹It is so.\n›", "‹It is so. ›"),
    *('‹It is "so. ›', "‹It is «so. ›"),
]
WIKI = [
    *("‹[[›", "‹[[a|›", "‹[[a|›‹]]›", "‹{{a|›", "‹{{a|›‹}}›", "‹{›‹}›", "‹{{{a|}} ›", "‹{{a|[[b|}}]]›"),
    *("‹{|\n›", "‹{|\n| <b>\n›‹</b> | x\n|}\n›", "‹<b>›", "‹<td>›‹</b>›", '‹<b a="›', '‹<b a="/>\n=›', "‹<b ›"),
    *("‹<b {{a|></b>›", "‹<ref>›", "‹<!--›", "‹<nowiki>›", "‹[http://a ›", "=‹a=›", "‹=a\n›", "‹a\n›"),
    *("‹{{nowrap|›x‹}}›", "{{formatnum:‹{{val|›1‹|u=›", "‹{{convert|5|›", "{{gaps‹|1›}}", "{{‹a›|b}}"),
    *("{{‹ ›", "‹[[category:›", "[[category:‹ ›", SPARSE := "‹{{a|b}} ›"),  # more of these would be malformed
]
CASES = [("text", pattern) for pattern in TEXT] + [("wiki", pattern) for pattern in WIKI]


def entry(kind: str, pattern: str, n: int) -> object:
    times = n // 8 if pattern == SPARSE else n
    made = re.sub("‹(.*?)›", lambda found: found[1] * times, pattern, flags=re.S)
    page = Page("1", "T", made, silent=() if kind == "wiki" else None)
    return cut_page(page, {"": "."} if "categor" in pattern else {})


@pytest.mark.parametrize(("kind", "pattern"), CASES)
def test_a_small_hostile_article_is_read(kind: str, pattern: str) -> None:
    assert isinstance(entry(kind, pattern, 6000), Article | str)


def read_a_large_one(kind: str, pattern: str) -> None:
    entry(kind, pattern, 200_000)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))  # for two workers
def test_a_large_hostile_article_ends(part: int) -> None:
    assert not endless(__name__, "read_a_large_one", CASES[part::2])


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
for bomb in sys.argv[1:]:
    Path("/proc/self/clear_refs").write_text("5")  # the most is what is held now
    try:
        build(Path(bomb), Path(bomb).with_suffix(".out"))
    except Exception as error:
        print(error, file=sys.stderr)
    print(most() - before)
"""
BOMBS: dict[str, Callable[[bytes], list[bytes]]] = {
    "line": lambda fill: [b'{"id": "1", "title": "Bomb", "text": "', fill],
    "page": lambda fill: [HEADER.encode() + b"<page><title>Bomb</title><ns>0</ns><revision><text>", fill],
    "comment": lambda fill: [HEADER.encode() + b"<!--", fill],
    "attribute": lambda fill: [HEADER.encode() + b"<page a='", fill],
    "elements": lambda fill: [HEADER.encode(), b"<a>" * (len(fill) // 3)],
    "words": lambda fill: [json_line(ARTICLES[0], id=str(n), text=f"It {n}{'x' * 1_000_000}.") for n in range(100)],
}
PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [*((bomb, gzip.compress) for bomb in BOMBS), ("line", bytes)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded_whatever_a_file_expands_to(tmp_path: Path) -> None:
    fill, files = b"x" * 120_000_000, list[Path]()
    for number, (bomb, pack) in enumerate(PACKED):
        files.append(tmp_path / f"{bomb}-{number}")
        files[-1].write_bytes(pack(b"".join(BOMBS[bomb](fill))))
    command = [sys.executable, "-c", RESIDENT, *map(str, files)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=600, check=True)
    grown = dict(zip((file.name for file in files), map(int, ran.stdout.split()), strict=True))
    assert max(grown.values()) < 100, grown
