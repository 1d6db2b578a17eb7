"""Formats other than plain UTF-8 text, recognised by name or first bytes, with advice on converting them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spanlm.errors import InputError, named

FIRST_BYTES, MOST_LINES, LEAST_LINES = 1 << 16, 40, 5
_CONVERT = "convert it to plain text, one sentence a line"
_WIKIPEDIA = f"`spanlm data wikipedia` reads dumps of Wikipedia and WikiExtractor's JSON; if it is another, {_CONVERT}"
_OTHER = f"nothing here reads it yet; {_CONVERT}"
_TABLE = "`spanlm score --text COLUMN` and `spanlm attend --column COLUMN` read tables"
_OLD_MAC = r"`tr '\r' '\n' < FILE > NEW.txt` converts it"
_NBEST = "`spanlm rescore --nbest` reads n-best lists"
_PACKED = ".7z .doc .docx .epub .odt .pdf .pptx .rtf .xls .xlsx .zip"
_MAGIC = rb"%PDF-|PK\x03\x04|\xd0\xcf\x11\xe0|\x1f\x8b|BZh\d1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc|\{\\rtf"
_SUBTITLES = rb"WEBVTT|1\r?\n\d\d:\d\d:\d\d,"
_QUESTION = re.compile(r"(?=[^\t]*XXXXX)[^\t]*\t[^|]*\|")
_TIMES = re.compile(r";;|\S+\s+\S+\s+(\S+\s+)?\d+\.\d+\s+\d+\.\d+(\s|$)")
_COLUMN = re.compile(r"[^\W\d][\w .#/()-]{0,39}")
# id of an utterance: letters and digits, or three numbers, joined by - or _, but not a date
_ID = re.compile(r"[a-z]{1,12}\d{3,}|(?!\d{4}-\d\d-\d\d)(?=\S*\d)(?:(?=\S*[^\W\d_])\w+|\d+[-_]\d+)[-_]\S+", re.I)
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Format(NamedTuple):
    """A format, recognised by a suffix, by a pattern of the first bytes, or by the first lines."""

    name: str
    way: str
    suffixes: str = ""
    begins: bytes = rb"(?!)"
    lines: Callable[[list[str]], bool] = lambda lines: False


def _have_columns(lines: list[str], mark: str) -> bool:
    """Return whether the first line names columns that the others fill, or all lines are quoted or equally wide."""
    names, tabs = lines[0].split(mark), {line.strip().count("\t") for line in lines}
    headed = len(set(names)) == len(names) > 1 + (" " in lines[0]) and all(map(_COLUMN.fullmatch, names))
    if headed and len(lines) > 1 and all(mark in line for line in lines[1:]):
        return True
    as_many = len(tabs) == 1 and tabs != {0} and mark == "\t"
    return len(lines) >= LEAST_LINES and (as_many or all(re.match(rf'"[^"]*"{mark}', line) for line in lines))


def _have_ids(lines: list[str]) -> bool:
    ids = [line.partition(" ")[0] for line in lines]
    alike = ids == sorted(ids) or len({name[:2] for name in ids}) == 1
    return len(set(ids)) == len(ids) >= LEAST_LINES and alike and all(map(_ID.fullmatch, ids))


FORMATS = (
    Format("compressed or binary", f"unpack it, or {_CONVERT}", _PACKED, _MAGIC),
    Format("XML or HTML", _WIKIPEDIA, ".htm .html .xml", rb"(?i)\s*<((!doctype html|html|\?xml|mediawiki)\b|doc id=)"),
    Format("a text whose lines end in \\r alone", _OLD_MAC, begins=rb"(?=[^\n]*\Z)(?:[^\r\n]+\r+){5}"),
    Format("JSON", _WIKIPEDIA, ".json .jsonl .ndjson", rb'\s*(\[\s*)?(\{\s*"[^"\n]*"\s*:|\[\s*"[^"\n]*"\s*[,\]])'),
    Format("Arrow or Parquet", f"nothing here reads it; {_CONVERT}", ".arrow .parquet", rb"ARROW1|PAR1"),
    Format("YAML", "`spanlm train --config` reads configurations", ".yaml .yml"),
    Format("ARPA", "give it in the place of a run", ".arpa", rb"([^\n]*\n){0,30}?\\data\\\s*\n\s*ngram 1\s*="),
    Format("CSV", _TABLE, ".csv", lines=lambda lines: _have_columns(lines, ",") or _have_columns(lines, ";")),
    Format("cloze questions", "`spanlm cloze` reads them", lines=lambda lines: any(map(_QUESTION.match, lines))),
    Format("TSV", _TABLE, ".conllu .tsv", rb"(#[^\n]*\n)*1\t[^\t\n]+\t", lambda lines: _have_columns(lines, "\t")),
    Format(
        "a transcript with times",
        _OTHER,
        ".ctm .stm .srt .vtt",
        _SUBTITLES,
        lambda lines: all(map(_TIMES.match, lines)),
    ),
    Format("Moses (|||)", _NBEST, lines=lambda lines: all(" ||| " in line for line in lines)),
    Format("Kaldi (utterance ids)", _NBEST, lines=_have_ids),
)


def known_format(path: Path, begin: bytes) -> Format | None:
    """Return which of `FORMATS` a file's name or decompressed first bytes show."""
    suffix = Path(re.sub(r"\.(gz|bz2|xz|zst)$", "", path.name.lower())).suffix
    begin = begin[:FIRST_BYTES].removeprefix(b"\xef\xbb\xbf")
    *whole, last = begin.decode("utf-8", "replace").replace("\r", "").split("\n")
    if last and len(begin) < FIRST_BYTES:
        whole.append(last)  # the last line is complete
    lines = (whole or [last])[:MOST_LINES]
    for known in FORMATS:
        if suffix in known.suffixes.split() or re.match(known.begins, begin) or known.lines(lines):
            return known
    return None


def refuse_other_formats(path: Path, begin: bytes) -> None:
    if known := known_format(path, begin):
        raise InputError(
            f"{path}: {known.name}, not plain text: {known.way}. To read it all the same: {named('as_text=True')}"
        )


def conversion(path: Path, piece: bytes, offset: int) -> str:
    """Advise on a file whose `piece`, read at byte `offset`, is not UTF-8."""
    marked = (name for mark, name in _MARKS.items() if offset == 0 and piece.startswith(mark))
    name = next(marked, None) or _encoding(piece[-offset % 4 :])
    if name is None:
        return "give a plain text file in UTF-8"
    unpack, file = {".gz": "gzip -dc", ".bz2": "bzip2 -dc"}.get(path.suffix.lower()), shlex.quote(str(path))
    ending = Path(path.stem if unpack else path.name).suffix or ".txt"
    read = f"{unpack} {file} | iconv -f {name} -t UTF-8" if unpack else f"iconv -f {name} -t UTF-8 {file}"
    return f"it looks like {name}: convert it by `{read} > NEW{ending}`"


def _encoding(piece: bytes) -> str | None:
    """Guess an encoding from the places of NUL bytes, or from single bytes beyond ASCII."""
    nul, high = [piece[n::4].count(0) for n in range(4)], piece.translate(None, bytes(range(128)))
    few = sum(nul) // 20
    if sum(nul) > max(1, len(piece) // 64) and (nul[0] <= few) != (nul[3] <= few):
        order, third = ("LE", nul[2]) if nul[0] <= few else ("BE", nul[1])
        return f"UTF-{32 if third > few else 16}{order}"
    if any(nul) or not piece.decode("utf-8", "ignore").isascii() or 4 * len(high) > len(piece):
        return None
    return "CP1252" if min(high, default=255) < 0xA0 else "ISO-8859-1"
