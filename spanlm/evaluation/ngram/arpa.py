r"""ARPA files: the text format of back-off n-gram models that SRILM, KenLM and others write.

    \data\
    ngram 1=4
    ngram 2=1

    \1-grams:
    -1.2<TAB>the<TAB>-0.3        log10 probability, words, log10 back-off weight; tabs or spaces between them
    ...
    \end\

What is legal: lines before `\data\` that are empty or start with `#`; `\r\n`; names ending in `.gz`. The weight may be
absent in the highest order and for an n-gram that starts no longer one; it is 0 then. An n-gram that starts a longer
one must be listed, with its weight. A suffix of an n-gram may be absent (SRILM prunes so). `<UNK>` is `<unk>`; a file
without it gives unknown words the log10 probability -100, as KenLM does. Numbers are finite, probabilities at most 0.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import InputError, RunError
from spanlm.evaluation.ngram.model import (
    END,
    MAX_ORDER,
    NO_UNKNOWN,
    START,
    UNKNOWN,
    ArpaModel,
    Floats,
    Integers,
    Table,
    prefixes,
)
from spanlm.store.files import replacing

_BLOCK_LINES = 1 << 16
_COUNT = re.compile(rb"ngram\s+(\d+)\s*=\s*(\d+)\s*")
_KENLM_BINARY = b"mmap lm http://kheafield.com/code"


def read_arpa(path: str | Path) -> ArpaModel:
    """Read an ARPA file.

    Raises:
        InputError: The file cannot be read or breaks a rule of this module; names the line and what was expected.
    """
    path = Path(path)
    try:
        with opened(path) as file:
            return _Reader(path, file).read()
    except EOFError:
        raise InputError(f"{path}: the gzip file is cut short; copy it again") from None
    except zlib.error as error:
        raise InputError(f"{path}: the gzip file is damaged ({error}); copy it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if its name ends in `.gz`."""
    with path.open("rb") as raw:
        yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw


def fully_weighted(path: Path) -> bool:
    """Say whether the file has a back-off weight for every n-gram below the highest order, after a tab, as `lmplz`'s.

    It is counted in tabs, without a look at any line. False as well for a file that cannot be read.
    """
    try:
        with opened(path) as file:
            counts = _Reader(path, file).counts()
            tabs = sum(block.count(b"\t") for block in iter(lambda: file.read(1 << 20), b""))
    except (InputError, OSError, EOFError, zlib.error):
        return False
    return tabs == 2 * sum(counts) - counts[-1]


class _Section:
    """The n-grams of one order as they stand in a file, in arrays that grow block by block."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.first_line = 0
        self.ids: Integers = np.zeros((0, order), np.int32)
        self.log10: Floats = np.zeros(0, np.float32)
        self.backoff: Floats = np.zeros(0, np.float32)  # NaN where the file has none


class _Reader:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file, self.line = path, file, 0
        self.words = [UNKNOWN]
        self.ids: dict[bytes, int] = {}

    def read(self) -> ArpaModel:
        counts = self.counts()
        sections = [self._section(order, count) for order, count in enumerate(counts, 1)]
        end = self._next_line(f"\\end\\ after section \\{len(counts)}-grams:")
        if end != b"\\end\\":
            more = "; \\data\\ promises fewer n-grams" if end[:1] != b"\\" else ""
            self._refuse(self.line, f"expected \\end\\, found {_shown(end)}{more}")
        for mark in (START, END):
            if mark.encode() not in self.ids:
                self._refuse(sections[0].first_line, f"section \\1-grams: must list {mark}")
        return ArpaModel(tuple(self.words), tuple(self._tables(sections)))

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise InputError(f"{self.path}: line {line}: {problem}")

    def _next_line(self, expected: str) -> bytes:
        """Return the next line that is not empty, without white space around it."""
        for raw in self.file:
            self.line += 1
            if line := raw.strip():
                return line
        self._refuse(self.line + 1, f"the file ends here; expected {expected}. It is cut short: copy it again")

    def counts(self) -> list[int]:
        """Read the section \\data\\: the number of n-grams of each order."""
        while (line := self._next_line("\\data\\")) != b"\\data\\":
            if line.startswith(_KENLM_BINARY):
                self._refuse(self.line, "this is KenLM's binary format; give the ARPA file it was built from")
            if not line.startswith(b"#"):
                self._refuse(self.line, f"expected \\data\\, found {_shown(line)}; is it an ARPA file?")
        counts: list[int] = []
        for raw in self.file:
            self.line += 1
            if not raw.strip():
                break
            found = _COUNT.fullmatch(raw.strip())
            expected = f"ngram {len(counts) + 1}=COUNT"
            if found is None or int(found[1]) != len(counts) + 1:
                self._refuse(self.line, f"section \\data\\: expected {expected}, found {_shown(raw.strip())}")
            counts.append(int(found[2]))
        if len(counts) > MAX_ORDER:
            self._refuse(self.line, f"the model has order {len(counts)}; at most {MAX_ORDER} can be read")
        if not counts:
            self._refuse(self.line + 1, "section \\data\\: expected ngram 1=COUNT")
        return counts

    def _section(self, order: int, count: int) -> _Section:
        header = f"\\{order}-grams:"
        if (line := self._next_line(f"section {header}")) != header.encode():
            more = f"; \\data\\ promises fewer {order - 1}-grams" if line[:1] != b"\\" and order > 1 else ""
            self._refuse(self.line, f"expected {header}, found {_shown(line)}{more}")
        section = _Section(order)
        section.first_line = self.line + 1
        blocks = []
        read = 0
        while read < count:
            rows = [line.split() for line in islice(self.file, min(_BLOCK_LINES, count - read))]
            if not rows:
                self._end_of(section, read, count, "the file ends here")
            blocks.append(self._block(section, rows, read, count))
            read += len(rows)
            self.line += len(rows)
        if blocks:
            section.ids, section.log10, section.backoff = (
                np.concatenate([block[part] for block in blocks]) for part in range(3)
            )
        return section

    def _end_of(self, section: _Section, read: int, count: int, how: str) -> NoReturn:
        self._refuse(
            section.first_line + read,
            f"section \\{section.order}-grams: {how} after {read} n-grams; \\data\\ promises {count}. "
            "If the file is cut short, copy it again",
        )

    def _block(
        self, section: _Section, rows: list[list[bytes]], read: int, count: int
    ) -> tuple[Integers, Floats, Floats]:
        order, start = section.order, section.first_line + read
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        weighted = lengths == order + 2
        for bad in np.flatnonzero(~weighted & (lengths != order + 1))[:1]:
            if not rows[bad] or rows[bad][0].startswith(b"\\"):
                self._end_of(section, read + int(bad), count, "ends")
            self._refuse(
                start + int(bad),
                f"section \\{order}-grams: expected a probability, {order} word{'s' * (order > 1)} and perhaps a "
                f"back-off weight, found {_shown(b' '.join(rows[bad]))}",
            )
        log10 = self._numbers(section, [row[0] for row in rows], start, "probability")
        backoff = np.full(len(rows), np.nan, np.float32)
        last = [row[-1] if has else b"0" for row, has in zip(rows, weighted.tolist(), strict=True)]
        backoff[weighted] = self._numbers(section, last, start, "back-off weight")[weighted]
        for bad in np.flatnonzero(log10 > 0)[:1]:
            self._refuse(start + int(bad), f"log10 probability {rows[bad][0].decode()}: must be at most 0")
        if order == 1:
            return self._add_words([row[1] for row in rows], start), log10, backoff
        ids = np.empty((len(rows), order), np.int32)
        for column in range(order):
            try:
                ids[:, column] = [self.ids[row[column + 1]] for row in rows]
            except KeyError as error:
                bad = next(i for i, row in enumerate(rows) if row[column + 1] not in self.ids)
                self._refuse(
                    start + bad, f"section \\{order}-grams: the word {_shown(error.args[0])} is not among the 1-grams"
                )
        return ids, log10, backoff

    def _numbers(self, section: _Section, texts: list[bytes], start: int, name: str) -> Floats:
        try:
            exact = list(map(float, texts))
        except ValueError:
            exact = list(map(_number, texts))
        with np.errstate(over="ignore"):
            values = np.array(exact).astype(np.float32)
        for bad in np.flatnonzero(~np.isfinite(values))[:1]:
            self._refuse(
                start + int(bad),
                f"section \\{section.order}-grams: log10 {name} {_shown(texts[bad])}: must be a finite number",
            )
        return values

    def _add_words(self, listed: list[bytes], start: int) -> Integers:
        ids = np.empty((len(listed), 1), np.int32)
        for row, word in enumerate(listed):
            unknown = word in (b"<unk>", b"<UNK>")
            if word in self.ids:
                self._refuse(start + row, f"section \\1-grams: {_shown(word)} is listed twice")
            if not unknown:
                try:
                    self.words.append(word.decode())
                except UnicodeDecodeError:
                    self._refuse(start + row, f"section \\1-grams: {_shown(word)} is not UTF-8")
            ids[row] = 0 if unknown else len(self.words) - 1
            for spelling in (b"<unk>", b"<UNK>") if unknown else (word,):
                self.ids[spelling] = int(ids[row, 0])
        return ids

    def _tables(self, sections: list[_Section]) -> list[Table]:
        size = len(self.words)
        unigrams = Table(np.arange(size, dtype=np.uint64), np.full(size, NO_UNKNOWN, np.float32), np.zeros(size, "f4"))
        ids = sections[0].ids[:, 0]
        unigrams.log10[ids], unigrams.backoff[ids] = sections[0].log10, sections[0].backoff
        tables, lines = _sorted(sections, unigrams, self._refuse)
        for order, contexts in enumerate(prefixes(tables, size), 2):
            listed = ~np.isnan(tables[order - 1].log10)
            below = tables[order - 2]
            missing = contexts < 0
            missing[~missing] = np.isnan(below.log10[contexts[~missing]])
            unweighted = ~missing
            unweighted[~missing] = np.isnan(below.backoff[contexts[~missing]])
            for bad in np.flatnonzero(listed & (missing | unweighted))[:1]:
                problem = "is not listed" if missing[bad] else "has no back-off weight"
                self._refuse(
                    int(lines[order - 1][bad]),
                    f"section \\{order}-grams: the {order - 1}-gram that starts this {order}-gram {problem}",
                )
        for table in tables:
            np.nan_to_num(table.backoff, copy=False)
        return tables


def _sorted(
    sections: list[_Section], unigrams: Table, refuse: Callable[[int, str], NoReturn]
) -> tuple[list[Table], list[Integers]]:
    """Build the table of each order, and the line in which each n-gram stands."""
    size = np.uint64(len(unigrams))
    tables, lines = [unigrams], [sections[0].ids[:, 0].astype(np.int64)]
    for section in sections[1:]:
        suffixes = _indices(section.ids[:, 1:], tables)
        if (suffixes < 0).any():
            _add_suffixes(sections)
            return _sorted(sections, unigrams, refuse)
        keys = suffixes.astype(np.uint64) * size + section.ids[:, 0].astype(np.uint64)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for again in np.flatnonzero(keys[1:] == keys[:-1])[:1]:
            line = section.first_line + int(order[again + 1])
            refuse(line, f"section \\{section.order}-grams: this n-gram is listed twice")
        tables.append(Table(keys, section.log10[order], section.backoff[order]))
        lines.append(section.first_line + order)
    return tables, lines


def _indices(ids: Integers, tables: list[Table]) -> Integers:
    """Return the index of n-grams given as rows of words; -1 for those that are not there."""
    found = ids[:, -1].astype(np.int64)
    size = np.uint64(len(tables[0]))
    for back in range(2, ids.shape[1] + 1):
        keys = np.maximum(found, 0).astype(np.uint64) * size + ids[:, -back].astype(np.uint64)
        found = np.where(found < 0, -1, tables[back - 1].find(keys))
    return found


def _add_suffixes(sections: list[_Section]) -> None:
    """Add the suffixes that are not listed, with a probability that is NaN; longest first, as theirs count, too."""
    for longer, section in zip(sections[:1:-1], sections[-2:0:-1], strict=True):
        listed = len(section.ids)
        rows, first = np.unique(np.concatenate([section.ids, longer.ids[:, 1:]]), axis=0, return_index=True)
        added = rows[first >= listed]
        absent = np.full(len(added), np.nan, np.float32)
        section.ids = np.concatenate([section.ids, added])
        section.log10 = np.concatenate([section.log10, absent])
        section.backoff = np.concatenate([section.backoff, np.zeros(len(added), np.float32)])


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace"))


def write_arpa(model: ArpaModel, path: str | Path) -> None:
    """Write a model as `lmplz` does: in its order, tab-separated, numbers in the fewest digits that give them back.

    The file appears whole or not at all; it is compressed if its name ends in `.gz`.

    Raises:
        RunError: The file cannot be written.
    """
    path = Path(path)
    try:
        with replacing(path) as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as packed:
                    packed.writelines(_lines(model))
            else:
                file.writelines(_lines(model))
    except OSError as error:
        raise RunError(f"{path}: cannot write the model: {error.strerror}; choose another folder") from error


def _lines(model: ArpaModel) -> Iterable[bytes]:
    counts = (int(len(table) - np.isnan(table.log10).sum()) for table in model.tables)
    yield b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % item for item in enumerate(counts, 1))
    size = np.uint64(len(model.words))
    for order, table in enumerate(model.tables, 1):
        yield b"\n\\%d-grams:\n" % order
        for start in range(0, len(table), _BLOCK_LINES):
            at = start + np.flatnonzero(~np.isnan(table.log10[start : start + _BLOCK_LINES]))
            fields = [shortest(table.log10[at])]
            words = at
            for below in model.tables[order - 1 : 0 : -1]:
                fields.append(_spelled(model.words, below.keys[words] % size))
                words = (below.keys[words] // size).astype(np.int64)
            fields.append(_spelled(model.words, words))
            if order < model.order:
                fields.append(shortest(table.backoff[at]))
            row = "%s\t" + " ".join(["%s"] * order) + "\t%s" * (order < model.order) + "\n"
            yield "".join(map(row.__mod__, zip(*fields, strict=True))).encode()
    yield b"\n\\end\\\n"


def _spelled(words: tuple[str, ...], ids: NDArray[np.generic]) -> list[str]:
    return list(map(words.__getitem__, ids.tolist()))


def shortest(values: Floats) -> list[str]:
    """Spell float32 numbers in the fewest digits that give them back, as KenLM prints them: -0.2, 0, 0.00001."""
    unique, where = np.unique(values, return_inverse=True)
    texts = [text.removesuffix(".0") for text in unique.astype("U16").tolist()]
    for at, text in enumerate(texts):
        if "e" in text:
            small = abs(unique[at]) >= 1e-6
            texts[at] = np.format_float_positional(unique[at], trim="-") if small else text.replace("e-0", "e-")
        elif text == "-0":
            texts[at] = "0"
    return list(map(texts.__getitem__, where.tolist()))
