"""Compressed input of every verb: a file that is damaged anywhere, or has something behind it, is refused."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, Cli
from tests.cli.test_cloze import BLOCKS
from tests.data.wikipedia.small import json_lines, made_articles
from tests.scoring.test_arpa import TOY

TEXT = b"the cat sat on the mat\n" * 60
INPUTS: dict[str, tuple[str, bytes, str]] = {
    "train": ("a.txt", TEXT, f"train demo {' '.join(SMALL)} --corpus FILE --out new"),
    "train ngram": ("a.txt", TEXT, "train ngram --ngram.fallback=[0.5,1,1.5] --corpus FILE --out new"),
    "evaluate": ("a.txt", TEXT, "evaluate RUN --corpus FILE"),
    "ARPA": ("a.arpa", TOY.encode(), "evaluate FILE --corpus plain.txt"),
    "ARPA, by KenLM": ("a.lm", TOY.encode(), "score FILE plain.txt"),
    "score": ("a.txt", TEXT, "score RUN FILE"),
    "a table": ("a.csv", b"item,text\n1,the cat\n2,a mat\n", "score RUN FILE --text text"),
    "attend": ("a.txt", b"the cat sat\n", "attend RUN --file FILE --out a.csv"),
    "cloze": ("a.txt", "\n".join(BLOCKS).encode(), "cloze RUN FILE"),
    "pairs": ("a.jsonl", b'{"sentence_good": "the cat", "sentence_bad": "cat the"}\n', "pairs RUN FILE"),
    "n-best": (
        "a.jsonl",
        b'{"id": 1, "hyps": [{"text": "the cat", "score": -1}]}\n',
        "rescore RUN --nbest FILE --weights words=1",
    ),
    "Wikipedia": ("a.jsonl", json_lines(made_articles(9)), "data wikipedia --source FILE --vocabulary 99 --out wiki"),
}


def stored(content: bytes) -> bytes:
    """Gzip without compression, so that a flipped byte is another letter, which nothing but the checksum tells."""
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(content) + packer.flush()


def flipped(packed: bytes, place: int) -> bytes:
    return packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "flipped early": (".gz", lambda content: flipped(stored(content), 15 + len(content) // 3)),
    "flipped late": (".gz", lambda content: flipped(stored(content), 14 + len(content))),
    "cut": (".gz", lambda content: gzip.compress(content)[:-3]),
    "bzip2 flipped": (".bz2", lambda content: flipped(bz2.compress(content), -3)),
    "bzip2 more": (".bz2", lambda content: bz2.compress(content) + b"behind"),
}


@pytest.mark.parametrize(
    ("verb", "damage"),
    [
        *((verb, "flipped late") for verb in INPUTS),
        *(("score", damage) for damage in DAMAGES if damage != "flipped late"),
        *((verb, "") for verb in INPUTS),
        ("Wikipedia", "cut"),
    ],
)
def test_a_damaged_file_is_refused_and_a_whole_one_read(
    cli: Cli, tiny_run: Path, tmp_path: Path, verb: str, damage: str
) -> None:
    """A whole one has two members."""
    name, content, words = INPUTS[verb]
    if damage:
        suffix, packed = DAMAGES[damage][0], DAMAGES[damage][1](content)
    else:
        pack, suffix = (bz2.compress, ".bz2") if "ARPA" in verb else (gzip.compress, ".gz")
        packed = pack(content[: len(content) // 2]) + pack(content[len(content) // 2 :])
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(packed)
    (tmp_path / "plain.txt").write_text("the cat\n")
    found = cli(*(str({"RUN": tiny_run, "FILE": path}.get(word, word)) for word in words.split()))
    if damage:
        assert found.status == 2 and path.name in found.err and "Traceback" not in found.err, found
        assert found.out.count("\n") <= (verb == "ARPA, by KenLM"), "no number is written"
    else:
        assert found.status == 0, found
