"""What is refused as text, what is not, and how a file says which encoding it is in."""

import gzip
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from spanlm.data.cbt import read_questions
from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus
from spanlm.data.formats import refuse_other_formats
from spanlm.data.pieces import in_lines, text_as_pieces
from spanlm.data.text import Text, fingerprint, pieces
from spanlm.data.tokenizer import Words
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from tests.data.limited import endless

SENTENCES = [
    "the cat sat .",
    "A dog, it seems, ran.",
    'He said: "naïve!"',
    "N years ago , $ N",
    "= Title =",
    "so it goes",
]
QUESTION = "".join(f"{n} the cat sat .\n" for n in range(1, 21)) + "21 the XXXXX sat .\tcat\t\tcat|dog|mat\n\n"
OTHERS = {
    "CSV": "item,condition,sentence\n" + "".join(f'{n},a,"the cat, sat {n}"\n' for n in range(6)),
    "CSV, quoted": "".join(f'"{n}","a b","the cat, sat"\r\n' for n in range(6)),
    "CSV;": "item;condition;sentence\n" + "".join(f"{n};a;the cat sat\n" for n in range(6)),
    "TSV": "".join(f"{n}\tthe cat sat\n" for n in range(6)),
    "TSV, CoNLL-U": "# sent_id = 1\n1\tThe\tthe\tDET\n2\tcat\tcat\tNOUN\n\n",
    "JSON": '{"text": "the cat",\n "n": 1}\n',
    "JSON list": '[\n  {"text": "the cat"}\n]\n',
    "Moses": "0 ||| the cat ||| -1.2 ||| -3\n0 ||| a cat ||| -1.3 ||| -4\n",
    "Kaldi": "".join(f"spk{n}-utt_{n} the cat sat\n" for n in range(6)),
    "Kaldi, LibriSpeech": "".join(f"1089-134686-000{n} THE CAT SAT\n" for n in range(6)),
    "ARPA": "\n\\data\\\nngram 1=5\nngram 2=3\n\n\\1-grams:\n-1.2\tthe\t-0.3\n",
    "cloze": QUESTION,
    "compressed: PDF": "%PDF-1.4\nthe cat",
    "XML: HTML": "\n<!DOCTYPE html>\n<p>the cat",
    "XML": '\ufeff<?xml version="1.0"?><a>the cat</a>',
    "compressed: zip": "PK\x03\x04 the cat",
    "a text whose lines end": "the cat sat .\ra dog ran .\r\rso it goes\r" * 2,
}
PROSE = {
    "commas": "\n".join(f"red, green, and blue {n}" for n in range(9)),
    "indented": "\n".join(f"\tThe cat sat {word} ." for word in "abcdefgh"),
    "a tab here and there": "the\tcat\nsat\n" * 9,
    "speech": "\n".join(f'"Hello," said he, "and {n}, then" she' for n in range(9)),
    "dates": "\n".join(f"2020-01-0{n} we sat" for n in range(9)),
    "hyphens": "\n".join(f"{word}-looking cats" for word in ["good", "bad", "odd", "well", "sad"]),
    "numbered": "\n".join(f"{n} the cat sat" for n in range(9)),
    "verse": "Red,\nGreen,\nBlue,\nRed,\nGreen,\nBlue,",
    "some lines end in CR alone": "the cat\ra dog\rso\rit goes\n" * 2,
    "a list of two": "Yes,no\nthe cat sat , and so on\nso it goes",
    "markup": "<unk> is\n<b> a\n|| b || c\n",
}


def read(path: Path, **how: Any) -> bytes:
    return b"".join(pieces(Text(path, **how)))


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_prose_is_refused_unless_asked_for(tmp_path: Path, name: str) -> None:
    path, data = tmp_path / "a.txt.gz", OTHERS[name].encode()
    path.write_bytes(gzip.compress(data))
    for opened in (read, lambda path: fingerprint(Text(path)), lambda path: load_corpus(DataConfig(corpus=str(path)))):
        with pytest.raises(InputError, match=rf"a\.txt.*: {name[:3]}.*, not plain text: "):
            opened(path)
    assert read(path, as_text=True) == data.removeprefix("\ufeff".encode()) + b"\n" * (not data.endswith(b"\n"))


def test_a_suffix_decides_alone() -> None:
    for suffix in ["csv", "tsv", "json", "jsonl", "xml", "html", "pdf", "docx", "arpa", "csv.gz", "xml.bz2"]:
        with pytest.raises(InputError, match="not plain text"):
            refuse_other_formats(Path(f"a.{suffix}"), b"the cat sat .\n")


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").write_text(PROSE[name], encoding="utf-8")
    read(tmp_path / "a.txt")


TEXTS = ["café", "Ça va ? Très bien , naïve cat sat .\n", "the “cat” sat .\n" * 3, "кот сидел на ковре .\n" * 9]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "cp1252", "latin-1"])
@pytest.mark.parametrize("text", TEXTS)
def test_another_encoding_is_named_with_what_converts_it(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "a b.txt"
    try:
        path.write_bytes(text.encode(encoding))
    except UnicodeEncodeError:
        pytest.skip("has no such letters")
    for opened in (read, lambda path: load_corpus(DataConfig(corpus=str(path)))):
        with pytest.raises(InputError, match=r"it looks like .*`iconv -f \S+ -t UTF-8 '") as caught:
            opened(path)
    command = str(caught.value).split("`")[1].replace("NEW.txt", str(tmp_path / "new.txt"))
    if shutil.which("iconv"):
        subprocess.run(command, shell=True, check=True)
        assert read(tmp_path / "new.txt").decode().strip() == text.strip()


@pytest.mark.parametrize(
    "data", ["漢字 かな\n".encode("shift-jis"), b"caf\xc3\xa9 \xff\n", b"a\0b\n", "кот\n".encode("koi8-r")]
)
def test_no_encoding_is_named_that_is_not_known(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(InputError, match="give a plain text file in UTF-8"):
        read(tmp_path / "a.txt")


def _lines(path: Path) -> Iterable[Any]:
    return in_lines(text_as_pieces(Text(path), Words("words")), "sentences", Vocabulary(("<eos>", "<unk>", *".?!\"')")))


HOSTILE: dict[str, Callable[[Path], Iterable[Any]]] = {
    **dict.fromkeys(["the cat sat . ", "a\n", "\n", "a.", "\" ' . ) "], _lines),
    **dict.fromkeys([QUESTION, "the XXXXX\n"], read_questions),
    **dict.fromkeys(['"', '{"', "a-"], lambda path: refuse_other_formats(path, path.read_bytes()) or ()),
}


def parse_a_large_one(unit: str, path: str) -> None:
    Path(path).write_text(unit * (500_000 // len(unit)), encoding="utf-8")
    for _ in HOSTILE[unit](Path(path)):
        pass


@pytest.mark.slow
def test_a_large_hostile_text_ends(tmp_path: Path) -> None:
    assert not endless(__name__, "parse_a_large_one", [(unit, str(tmp_path / "hostile.txt")) for unit in HOSTILE])
