r"""ARPA files, the text format of back-off n-gram models that SRILM, KenLM and others write.

    \data\
    ngram 1=4
    ...
    \1-grams:
    -1.2<TAB>the<TAB>-0.3        log10 probability, words, log10 back-off weight; tabs or spaces between them
    ...
    \end\

The reader accepts text before `\data\` (skipped, with a note unless it starts with `#`), a byte order mark, `\r\n`, and
names that end in `.gz` or `.bz2`. Only tabs and spaces separate fields, as in KenLM, so `\f` may be a word. A missing
weight is 0, but an n-gram that begins a longer one must be listed. An n-gram's suffix may be missing (SRILM prunes so),
and so may the section of an order without n-grams. `<UNK>` means `<unk>`; in a file without `<unk>`, unknown words have
the log10 probability -100, as in KenLM. Numbers follow C: probabilities at most 0, or `-inf`; weights finite. Only
blank lines may follow `\end\`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from spanlm.data.packed import opened, replacing_packed
from spanlm.errors import InputError
from spanlm.scoring.ngram.model import (
    ALSO_UNKNOWN,
    END,
    MAX_ORDER,
    START,
    UNKNOWN,
    ArpaModel,
    Floats,
    Integers,
    Table,
    contexts_of,
)
from spanlm.store.files import written
from spanlm.store.plain import c_number

_LOG = logging.getLogger(__name__)
_BLOCK = 1 << 16
NO_UNKNOWN = -100.0
"""log10 p of unknown words if the file does not list <unk>."""
_HEAD = 1 << 16
"""Bytes within which `\\data\\` must come."""
_IRSTLM = b"iARPA", b"qARPA", b"blmt", b"Qblmt"
"""First bytes of IRSTLM's own formats."""
_COUNT = re.compile(rb"ngram\s+(\d+)\s*=\s*(\d{1,15})")

Rows = NDArray[np.int32]
_UNKNOWN = (UNKNOWN.encode(), ALSO_UNKNOWN.encode())
_BLANK = np.isin(np.arange(256), list(b" \t\r\n"))
_FIELD = re.compile(rb"[^ \t\r\n]+")


def read_arpa(path: str | Path) -> ArpaModel:
    """Read an ARPA file.

    Raises:
        InputError: The file cannot be read or breaks a rule of this module; names the line and what was expected.
    """
    with opened(Path(path)) as file:
        return _Reader(Path(path), file).model()


def open_arpa(path: str | Path) -> ArpaModel:
    """Read the words of an ARPA file now, and its tables at first use.

    Raises:
        InputError: See `read_arpa`; errors after the words are raised when the tables are read.
    """
    path = Path(path)
    with opened(path) as file:
        reader = _Reader(path, file)
        counts = reader.counts()
        reader.read(1, counts[0])
    return ArpaModel(tuple(reader.words), _Tables(path, len(counts)))


@cache
def _note_head(path: Path, text: bytes) -> None:
    """Log once per file that it begins with other text."""
    _LOG.info("note: %s: the text before \\data\\ is left out: %s …", path, _shown(text))


class _Tables(Sequence[Table]):
    def __init__(self, path: Path, order: int) -> None:
        self._path, self._order = path, order

    def __len__(self) -> int:
        return self._order

    def __getitem__(self, at: Any) -> Any:
        return self._read[at]

    @cached_property
    def _read(self) -> Sequence[Table]:
        return read_arpa(self._path).tables


class _Reader:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.line = 0
        self.section = "\\data\\"
        self.empty: set[bytes] = set()
        self.words = [UNKNOWN]
        self.ids: dict[bytes, int] = {}

    def model(self) -> ArpaModel:
        counts = self.counts()
        ids, values, first = zip(*map(self.read, range(1, len(counts) + 1), counts), strict=True)
        self._expect(b"\\end\\", "promises fewer n-grams")
        for line, raw in enumerate(self.file, self.line + 1):
            if raw.strip():
                self._refuse(line, f"nothing may follow \\end\\, found {_shown(raw)}")
        return ArpaModel(tuple(self.words), tuple(self._tables(list(ids), list(values), first)))

    def counts(self) -> list[int]:
        r"""Read the section `\data\` and return the number of n-grams of each order."""
        self._skip_head()
        counts: list[int] = []
        for raw in self.file:
            self.line += 1
            if not raw.strip():
                break
            match = _COUNT.fullmatch(raw.strip())
            if match is None or int(match[1]) != len(counts) + 1:
                expected = f"expected ngram {len(counts) + 1}=COUNT, found {_shown(raw)}"
                self._refuse(self.line, f"section \\data\\: {expected}")
            counts.append(int(match[2]))
        if not counts:
            self._refuse(self.line + 1, "section \\data\\: expected ngram 1=COUNT")
        if len(counts) > MAX_ORDER:
            self._refuse(self.line, f"section \\data\\: order {len(counts)}: must be at most {MAX_ORDER}")
        return counts

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise InputError(f"{self.path}: line {line}: {problem}")

    def _skip_head(self) -> None:
        r"""Skip to `\data\`, with a note on text before it."""
        size, text = 0, b""
        while size < _HEAD and (raw := self.file.readline(_HEAD)):
            line = raw.removeprefix(b"\xef\xbb\xbf" * (not size)).strip()
            size, self.line = size + len(raw), self.line + 1
            if line == b"\\data\\":
                return _note_head(self.path, text) if text else None
            if line.startswith(_IRSTLM):
                way = f"`compile-lm {self.path.name} --text=yes NEW.arpa` converts it"
                self._refuse(self.line, f"{line[:5].decode()} is a format of IRSTLM's alone: {way}")
            if not line.startswith(b"#"):
                text = text or line
        if size < _HEAD and not text:
            self._refuse_end("\\data\\")
        self._refuse(1, f"no ARPA file: expected \\data\\ within {_HEAD:,} bytes, found {_shown(text)}")

    def _expect(self, header: bytes, otherwise: str) -> None:
        """Skip to a header line, over blank lines and headers of sections without n-grams."""
        for raw in self.file:
            self.line += 1
            line = raw.strip()
            if line == header:
                return
            if line and line not in self.empty:
                why = "" if line.startswith(b"\\") else f"; \\data\\ {otherwise}"
                self._refuse(self.line, f"expected {header.decode()}, found {_shown(line)}{why}")
        self._refuse_end(header.decode())

    def _refuse_end(self, expected: str) -> NoReturn:
        cut = f"the file ends after section {self.section}" if self.line else "the file is empty"
        self._refuse(self.line + 1, f"{cut}; expected {expected}. If it is cut short, copy it again")

    def read(self, order: int, count: int) -> tuple[Rows, Floats, int]:
        """Return (n, order) word ids, (2, n) probabilities and weights (NaN for none), and the first line's number."""
        header = f"\\{order}-grams:"
        if count:
            self._expect(header.encode(), f"promises fewer {order - 1}-grams")
        else:
            self.empty.add(header.encode())
        self.section, start, read = header, self.line + 1, 0
        ids, values = [np.zeros((0, order), np.int32)], [np.zeros((2, 0), np.float32)]
        while read < count:
            lines = list(islice(self.file, min(_BLOCK, count - read)))
            # one list of all fields and a count per line: a list per line would keep the garbage collector busy
            text, widths = b"".join(lines), _widths(lines)
            # `split` is fast, but also cuts at \v and \f
            fields = _FIELD.findall(text) if b"\v" in text or b"\f" in text else text.split()
            bad = np.flatnonzero((widths != order + 1) & (widths != order + 2))
            if not lines or (len(bad) and lines[bad[0]].strip()[:1] in (b"", b"\\")):
                read += int(bad[0]) if lines else 0
                ends = f"section {header} ends after {read} n-grams; \\data\\ promises {count}"
                self._refuse(start + read, f"{ends}. If the file is cut short, copy it again")
            if len(bad):
                wanted = f"expected a probability, {order} words and a back-off weight or none"
                shown = _shown(lines[bad[0]])
                self._refuse(start + read + int(bad[0]), f"section {header} {wanted}, found {shown}")
            begins, weighted = np.cumsum(widths) - widths, widths == order + 2
            numbers = np.full((2, len(lines)), np.nan, np.float32)
            numbers[0] = self._numbers("probability", fields, begins, start + read + np.arange(len(lines)), 0)
            at = np.flatnonzero(weighted)
            numbers[1, at] = self._numbers("back-off weight", fields, begins[at] + order + 1, start + read + at, np.inf)
            ids.append(self._ids(fields, begins[:, None] + np.arange(1, order + 1), start + read))
            values.append(numbers)
            read += len(lines)
            self.line += len(lines)
        for mark in (START, END) if order == 1 else ():
            if mark.encode() not in self.ids:
                self._refuse(self.line, f"section {header} must list {mark}")
        return np.concatenate(ids), np.concatenate(values, axis=1), start

    def _numbers(self, name: str, fields: list[bytes], at: Integers, lines: Integers, most: float) -> Floats:
        texts = list(map(fields.__getitem__, at.tolist()))
        odd = b"".join(texts).translate(None, b"+-.0123456789eE")
        try:  # `float` is fast
            exact = list(map(_number if odd else float, texts))
        except ValueError:
            exact = list(map(_number, texts))
        with np.errstate(over="ignore"):
            numbers = np.array(exact).astype(np.float32)
        for bad in np.flatnonzero(~np.isfinite(numbers) if most else ~(numbers <= 0))[:1]:
            limit = "a finite number" + ", at most 0, or -inf" * (most == 0)
            self._refuse(lines[bad], f"section {self.section} log10 {name} {_shown(texts[bad])}: must be {limit}")
        return numbers

    def _ids(self, fields: list[bytes], at: Integers, line: int) -> Rows:
        """Return the ids of the fields with indices `at` (n, order); 1-grams define new words."""
        if at.shape[1] == 1:
            return np.array([[self._new_word(fields[n], line + row)] for row, n in enumerate(at[:, 0])], np.int32)
        ids = np.fromiter(map(self.ids.get, fields, repeat(-1)), np.int32, len(fields))[at]
        for bad in np.flatnonzero((ids < 0).any(axis=1))[:1]:
            word = fields[at[bad][ids[bad] < 0][0]]
            self._refuse(line + bad, f"section {self.section} the word {_shown(word)} is not among the 1-grams")
        return ids

    def _new_word(self, word: bytes, line: int) -> int:
        if word in self.ids:
            self._refuse(line, f"section {self.section} {_shown(word)} is listed twice")
        if word in _UNKNOWN:
            self.ids |= dict.fromkeys(_UNKNOWN, 0)
            return 0
        try:
            self.words.append(word.decode())
        except UnicodeDecodeError:
            self._refuse(line, f"section {self.section} {_shown(word)} is not UTF-8")
        self.ids[word] = len(self.words) - 1
        return self.ids[word]

    def _tables(self, ids: list[Rows], values: list[Floats], first: tuple[int, ...]) -> list[Table]:
        """Sort the n-grams, and check that none is repeated and that the context of each is listed."""
        size = len(self.words)
        unigrams = np.array([[NO_UNKNOWN], [0]], np.float32).repeat(size, axis=1)
        unigrams[:, ids[0][:, 0]] = values[0]
        tables = [Table(np.arange(size, dtype=np.uint64), *unigrams)]
        lines = [np.zeros(0, np.int64)]
        for order in range(2, len(ids) + 1):
            suffixes = _indices(ids[order - 1][:, 1:], tables)
            if (suffixes < 0).any():
                _add_suffixes(ids, values)
                return self._tables(ids, values, first)
            keys = (suffixes * size + ids[order - 1][:, 0]).astype(np.uint64)
            at = np.argsort(keys, kind="stable")
            lines.append(first[order - 1] + at)
            for bad in np.flatnonzero(np.diff(keys[at]) == 0)[:1]:
                self._refuse(lines[-1][bad + 1], f"section \\{order}-grams: this n-gram is listed twice")
            tables.append(Table(keys[at], *values[order - 1][:, at]))
        for order, contexts in enumerate(contexts_of(tables), 2):
            unlisted = (contexts < 0) | np.isnan(tables[order - 2].log10[contexts])
            for bad in np.flatnonzero(unlisted & ~np.isnan(tables[order - 1].log10))[:1]:
                must = f"the first {order - 1} words of this n-gram must be in section \\{order - 1}-grams:"
                self._refuse(lines[order - 1][bad], f"section \\{order}-grams: {must}")
        for table in tables:
            np.nan_to_num(table.backoff, copy=False)
        return tables


def _indices(ids: Rows, tables: list[Table]) -> Integers:
    """Return the table indices of n-grams, given as rows of word ids; -1 for missing ones."""
    indices = ids[:, -1].astype(np.int64)
    for back in range(2, ids.shape[1] + 1):
        indices = tables[back - 1].find(indices, ids[:, -back], len(tables[0].keys))
    return indices


def _add_suffixes(ids: list[Rows], values: list[Floats]) -> None:
    """Add missing suffixes with NaN values, from the longest down, as added suffixes have suffixes, too."""
    for order in range(len(ids) - 1, 1, -1):
        shorter = ids[order - 1]
        unique, first = np.unique(np.concatenate([shorter, ids[order][:, 1:]]), axis=0, return_index=True)
        added = unique[first >= len(shorter)]
        ids[order - 1] = np.concatenate([shorter, added])
        values[order - 1] = np.pad(values[order - 1], ((0, 0), (0, len(added))), constant_values=np.nan)


def _widths(lines: list[bytes]) -> Integers:
    blank = _BLANK[np.frombuffer(b"\n" + b"".join(lines), np.uint8)]
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)))
    return np.diff(np.flatnonzero(blank[:-1] & ~blank[1:]).searchsorted(ends), prepend=0)


def _number(text: bytes) -> float:
    return c_number(text.decode(errors="replace"))


def _shown(text: bytes) -> str:
    return repr(text.strip()[:60].decode(errors="replace"))


def write_arpa(model: ArpaModel, path: str | Path) -> None:
    """Write a model as `lmplz` does: in the same order, tab-separated, with the fewest exact digits.

    The file appears whole or not at all. It is compressed if its name ends in `.gz`.

    Raises:
        RunError: The file cannot be written.
    """
    path = Path(path)
    with written(path, "Choose another folder."), replacing_packed(path) as file:
        file.writelines(_lines(model))


def _lines(model: ArpaModel) -> Iterable[bytes]:
    counts = (len(table.keys) - int(np.isnan(table.log10).sum()) for table in model.tables)
    yield b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % item for item in enumerate(counts, 1))
    for order, table in enumerate(model.tables, 1):
        yield b"\n\\%d-grams:\n" % order
        row = "%s\t" + " ".join(["%s"] * order) + "\t%s" * (order < model.order) + "\n"
        for start in range(0, len(table.keys), _BLOCK):
            rest = start + np.flatnonzero(~np.isnan(table.log10[start : start + _BLOCK]))
            numbers = [shortest(values[rest]) for values in (table.log10, table.backoff)[: 1 + (order < model.order)]]
            words = []
            for below in model.tables[order - 1 : 0 : -1]:
                rest, first = below.split(len(model.words), rest)
                words.append(first)
            spelled = [list(map(model.words.__getitem__, ids.tolist())) for ids in (*words, rest)]
            fields = [numbers[0], *spelled, *numbers[1:]]
            yield "".join(map(row.__mod__, zip(*fields, strict=True))).encode()
    yield b"\n\\end\\\n"


def shortest(values: NDArray[np.floating]) -> list[str]:
    """Format numbers with the fewest exact digits, as KenLM prints them: -0.2, 0, 0.00001, 1e-7, inf."""
    unique, where = np.unique(values, return_inverse=True)
    texts = [text.removesuffix(".0") for text in (unique + unique.dtype.type(0)).astype("U32").tolist()]
    for at, text in enumerate(texts):
        if "e" in text:
            plain = 1e-6 <= abs(unique[at]) < 1e21
            exponent = text.replace("e-0", "e-").replace("e+", "e")
            texts[at] = np.format_float_positional(unique[at], trim="-") if plain else exponent
    return list(map(texts.__getitem__, where.tolist()))
