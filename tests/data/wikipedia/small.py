"""Small sources, made here: articles of made-up prose as JSON lines and as a MediaWiki dump with all its traps."""

import bz2
import gzip
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from spanlm.data.wikipedia import WikipediaConfig, build_corpus

ROOT = Path(__file__).parents[3]
SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "za", "dor", "fen", "gul", "hap"]
CATEGORIES = ("People", "Cities", "Novels")


@dataclass(frozen=True)
class Made:
    id: str
    title: str
    category: str
    sentences: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> int:
        return sum(map(len, self.sentences))

    @property
    def text(self) -> str:
        """Its prose as people write it: marks stand on words, numbers are numbers."""
        said = [" ".join(words[:-1]).replace(" N ", " 1,234.5 ") + "." for words in self.sentences]
        return "\n\n".join(" ".join(said[begin : begin + 3]) for begin in range(0, len(said), 3))

    @property
    def lines(self) -> str:
        return "".join(" ".join(words) + "\n" for words in self.sentences) + "\n"


def made_articles(count: int, seed: int = 1, sentences: int = 9) -> list[Made]:
    draw = random.Random(seed)

    def word() -> str:
        return "".join(draw.choices(SYLLABLES, k=min(4, 1 + int(draw.expovariate(0.7)))))

    def sentence() -> tuple[str, ...]:
        inner = [word() for _ in range(draw.randint(4, 12))]
        return (word().capitalize(), *inner, "N", word(), ".")

    def article(number: int) -> Made:
        text = tuple(sentence() for _ in range(draw.randint(2, 2 * sentences)))
        return Made(str(100 + number), f"Title {number}", CATEGORIES[number % len(CATEGORIES)], text)

    return list(map(article, range(count)))


def json_line(article: Made, **fields: Any) -> bytes:
    content = {
        "id": article.id,
        "url": f"https://en.wikipedia.org/wiki?curid={article.id}",
        "title": article.title,
        "category": article.category,
        "text": f"{article.title}\n\n{article.text}\n",
        **fields,
    }
    return json.dumps(content).encode() + b"\n"


def json_lines(articles: Iterable[Made]) -> bytes:
    return b"".join(map(json_line, articles))


HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">
  <siteinfo><sitename>Wikipedia</sitename><namespaces><namespace key="0" /><namespace key="1">Talk</namespace>
  <namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace></namespaces></siteinfo>
"""
FOOTER = "</mediawiki>\n"


def page(id: str, title: str, text: str, namespace: int = 0, redirect: bool = False) -> str:
    target = '<redirect title="Elsewhere" />' if redirect else ""
    return (
        f"  <page><title>{escape(title)}</title><ns>{namespace}</ns><id>{id}</id>{target}<revision><id>7{id}</id>"
        f'<contributor><username>X</username><id>9</id></contributor><text xml:space="preserve">{escape(text)}</text>'
        "</revision></page>\n"
    )


def wikitext(article: Made) -> str:
    """The article with markup around and inside its prose that must leave nothing behind."""
    first, *rest = article.text.split("\n\n")
    word = first.split()[1]
    marked = first.replace(f" {word} ", f" [[{word} (thing)|{word}]]<ref name=x>A note. {{{{cite web}}}}</ref> ", 1)
    body = "\n\n== Heading ==\n".join(["", *rest])
    return (
        "{{Infobox person\n| name = Nobody\n| born = {{birth date|1900|1|1}}\n}}\n[[File:X.jpg|thumb|A [[caption]].]]\n"
        f"{marked}{body}\n\n* an item\n* [[another]]\n\n{{| class=wikitable\n! head\n|-\n| cell\n|}}\n"
        f"[[Kategorie:{article.category}]]\n"
    )


def dump(articles: Iterable[Made]) -> bytes:
    return (HEADER + "".join(page(made.id, made.title, wikitext(made)) for made in articles) + FOOTER).encode()


def several_gzip_members(content: bytes) -> bytes:
    return b"".join(map(gzip.compress, _thirds(content)))


def several_bzip2_streams(content: bytes) -> bytes:
    return b"".join(map(bz2.compress, _thirds(content)))


def _thirds(content: bytes) -> list[bytes]:
    size = len(content) // 3 + 1
    return [content[begin : begin + size] for begin in range(0, len(content), size)]


def build(sources: Path | Sequence[Path], out: Path, **options: Any) -> dict[str, Any]:
    """Build in this process, with a vocabulary that nearly every source fills, unless other options are given."""
    paths = (sources,) if isinstance(sources, Path) else tuple(sources)
    report = options.pop("report", lambda progress: None)
    return build_corpus(WikipediaConfig(sources=paths, out=out, **{"jobs": 1, "vocabulary": 20, **options}), report)


def reused(sources: Path | Sequence[Path], out: Path, **options: Any) -> int:
    """Build; return how many shards were there."""
    seen: list[int] = []
    build(sources, out, report=lambda progress: seen.append(progress.reused), **options)
    return seen[-1]


def texts(folder: Path) -> dict[str, str]:
    return {split: (folder / f"{split}.txt").read_text("utf-8") for split in ("train", "valid", "test")}


def listed(folder: Path) -> list[dict[str, str]]:
    names, *rows = [line.split("\t") for line in (folder / "articles.tsv").read_text("utf-8").splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
