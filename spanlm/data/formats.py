"""Files that are not plain text in UTF-8, recognised by name or first bytes, and how to convert them."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spanlm.errors import InputError

FIRST_BYTES, MOST_LINES, LEAST_LINES = 1 << 16, 40, 5
_CONVERT = "convert it to plain text, one sentence a line"
_WIKIPEDIA = f"`spanlm data wikipedia` reads dumps of Wikipedia and WikiExtractor's JSON; if it is another, {_CONVERT}"
_OLD_MAC = r"`tr '\r' '\n' < FILE > NEW.txt` converts it"
_TABLE = "`spanlm score --text COLUMN` and `spanlm attend --column COLUMN` read tables"
_ARPA = "an n-gram model, which is named in the place of a run"
_NBEST = "`spanlm rescore --nbest` reads n-best lists"
_TIMED = ".ctm .stm .rttm .srt .vtt .textgrid .eaf .mlf"
_TIMES = re.compile(r"\S+\s+\S+\s+(\S+\s+)?\d+\.\d+\s+\d+\.\d+(\s|$)")
_FIELD = re.compile(r"[^\W\d][\w .#/()-]{0,39}")
_NAME = re.compile(r"[^\W\d][\w.-]{0,39}")
# of an utterance: letters and digits, or three numbers, joined by - or _; a date is none
_ID = re.compile(r"[a-z]{1,12}\d{3,}|(?!\d{4}-\d\d-\d\d)(?=\S*\d)(?:(?=\S*[^\W\d_])\w+|\d+[-_]\d+)[-_]\S+", re.I)
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Format(NamedTuple):
    """A format, recognised by its suffix alone, else by a pattern of its first bytes or by its first lines."""

    name: str
    suffixes: str = ""
    begins: bytes = rb"(?!)"
    lines: Callable[[list[str]], bool] = lambda lines: False
    way: str = f"nothing here reads it yet; {_CONVERT}"


def _have_header(lines: list[str], delimiter: str) -> bool:
    """Return whether the first line names columns, each in a word, and every other line has columns."""
    names = lines[0].split(delimiter)
    named = len(names) > 1 and all(map(_NAME.fullmatch, names)) and len(set(names)) == len(names)
    return named and len(lines) > 1 and all(delimiter in line for line in lines[1:])


def _are_csv(lines: list[str], delimiter: str) -> bool:
    if _have_header(lines, delimiter):
        return True
    rows = [*csv.reader(lines, delimiter=delimiter)][: max(len(lines) - 1, LEAST_LINES)]  # the last may be cut
    if len(rows) < LEAST_LINES or len(set(map(len, rows))) > 1 or len(rows[0]) < 3:
        return False
    names = len(set(rows[0])) == len(rows[0]) and all(map(_FIELD.fullmatch, rows[0]))
    # in prose a space follows a comma
    spaced = any(field != field.strip() for row in rows for field in row)
    return (names or all(line.startswith('"') for line in lines)) and not spaced


def _have_ids(lines: list[str]) -> bool:
    ids = [line.partition(" ")[0] for line in lines]
    alike = ids == sorted(ids) or len({name[:2] for name in ids}) == 1
    return len(set(ids)) == len(ids) >= LEAST_LINES and alike and all(map(_ID.fullmatch, ids))


def _have_question(lines: list[str]) -> bool:
    return any("XXXXX" in line and "|" in line.partition("\t")[2] for line in lines)


def _are_tsv(lines: list[str]) -> bool:
    tabs = {line.strip().count("\t") for line in lines}
    return _have_header(lines, "\t") or (len(lines) >= LEAST_LINES and len(tabs) == 1 and tabs != {0})


def _have_times(lines: list[str]) -> bool:
    """Return whether all lines are those of a CTM or an STM file."""
    return all(map(_TIMES.match, (line for line in lines if not line.startswith(";;"))))


FORMATS = (
    Format("PDF", ".pdf", rb"%PDF-"),
    Format("Office or ZIP", ".docx .xlsx .pptx .odt .epub .zip .doc .xls", rb"PK\x03\x04|\xd0\xcf\x11\xe0"),
    Format("compressed", ".7z", rb"\x1f\x8b|BZh\d1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc", way="decompress it"),
    Format("RTF", ".rtf", rb"\{\\rtf"),
    Format("HTML", ".html .htm", rb"(?i)\s*<(!doctype html|html)\b"),
    Format("XML", ".xml", rb"\s*<(\?xml|mediawiki)\b", way=_WIKIPEDIA),
    Format("WikiExtractor's <doc>", begins=rb'\s*<doc id="', way=f"let WikiExtractor write --json; {_WIKIPEDIA}"),
    Format("a text whose lines end in \\r alone", begins=rb"(?=[^\n]*\Z)(?:[^\r\n]+\r+){5}", way=_OLD_MAC),
    Format("JSON", ".json .jsonl .ndjson", rb'\s*(\[\s*)?(\{\s*"[^"\n]*"\s*:|\[\s*"[^"\n]*"\s*[,\]])', way=_WIKIPEDIA),
    Format("YAML", ".yaml .yml", way="`spanlm train --config` reads configurations"),
    Format("ARPA", ".arpa", rb"([^\n]*\n){0,30}?\\data\\\s*\n\s*ngram 1\s*=", way=_ARPA),
    Format("CSV", ".csv", lines=lambda lines: _are_csv(lines, ",") or _are_csv(lines, ";"), way=_TABLE),
    Format("CoNLL-U", ".conllu", rb"(#[^\n]*\n)*1\t[^\t\n]+\t"),
    Format("cloze questions", lines=_have_question, way="`spanlm cloze` reads them"),
    Format("TSV", ".tsv", lines=_are_tsv, way=_TABLE),
    Format("a transcript with times", _TIMED, rb"WEBVTT|#!MLF!#|1\r?\n\d\d:\d\d:\d\d,", _have_times),
    Format("Moses (|||)", lines=lambda lines: all(" ||| " in line for line in lines), way=_NBEST),
    Format("Kaldi (utterance ids)", lines=_have_ids, way=_NBEST),
)


def known_format(path: Path, begin: bytes) -> Format | None:
    """Return which of `FORMATS` a file has by its name or by its first bytes, decompressed."""
    suffix = Path(re.sub(r"\.(gz|bz2|xz|zst)$", "", path.name.lower())).suffix
    begin = begin[:FIRST_BYTES].removeprefix(b"\xef\xbb\xbf")
    *whole, last = begin.decode("utf-8", "replace").replace("\r", "").split("\n")
    if last and len(begin) < FIRST_BYTES:
        whole.append(last)  # it is not cut
    lines = (whole or [last])[:MOST_LINES]
    for known in FORMATS:
        if suffix in known.suffixes.split() or re.match(known.begins, begin) or known.lines(lines):
            return known
    return None


def refuse_other_formats(path: Path, begin: bytes) -> None:
    """Raise InputError for a file in one of `FORMATS`."""
    if known := known_format(path, begin):
        raise InputError(f"{path}: {known.name}, not plain text: {known.way}. To read it all the same: as_text=True")


def conversion(path: Path, piece: bytes, offset: int) -> str:
    """Return advice on a file that is not UTF-8 in `piece`, read at byte `offset`."""
    marked = (name for mark, name in _MARKS.items() if offset == 0 and piece.startswith(mark))
    name = next(marked, None) or _encoding(piece[-offset % 4 :])
    if name is None:
        return "give a plain text file in UTF-8"
    packed, file = path.suffix == ".gz", shlex.quote(str(path))
    ending = Path(path.stem if packed else path.name).suffix or ".txt"
    read = f"gzip -dc {file} | iconv -f {name} -t UTF-8" if packed else f"iconv -f {name} -t UTF-8 {file}"
    return f"it looks like {name}: convert it by `{read} > NEW{ending}`"


def _encoding(piece: bytes) -> str | None:
    """Guess from where the NUL bytes are, or from single bytes that are not ASCII."""
    nul, high = [piece[n::4].count(0) for n in range(4)], piece.translate(None, bytes(range(128)))
    few = sum(nul) // 20
    if sum(nul) > max(1, len(piece) // 64) and (nul[0] <= few) != (nul[3] <= few):
        order, third = ("LE", nul[2]) if nul[0] <= few else ("BE", nul[1])
        return f"UTF-{32 if third > few else 16}{order}"
    if any(nul) or not piece.decode("utf-8", "ignore").isascii() or 4 * len(high) > len(piece):
        return None
    return "CP1252" if min(high, default=255) < 0xA0 else "ISO-8859-1"
