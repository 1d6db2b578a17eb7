"""`spanlm score RUN [FILE|- …]`."""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby, islice, pairwise, tee
from pathlib import Path
from typing import Any, NamedTuple, get_args

from spanlm.cli.adaptation import cache_notes, check_cache, choose_cache
from spanlm.cli.evaluation_report import departures, unpredicted_first_words
from spanlm.cli.options import check_gate, check_output, load_runs, output, run_names, runs_and_files
from spanlm.cli.parser import field_values
from spanlm.cli.predictors import Predictors
from spanlm.cli.render import note
from spanlm.data import tables
from spanlm.data.layouts import LAYOUTS, REPAIRS, repaired, with_marks, words_of
from spanlm.data.text import Text, lines_of, pieces
from spanlm.data.tokenizer import WHITE_SPACE, refuse_reserved, written_spans
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError, require
from spanlm.models.ops.precision import usable
from spanlm.options import meanings
from spanlm.runs.model import Model, TrainedModel
from spanlm.scoring.attention import check_attends
from spanlm.scoring.fold import CORRECTED
from spanlm.scoring.options import BASES, CacheConfig, ScoreOptions
from spanlm.scoring.words import Looked, WordScore, WrittenScore, as_row, item_rows
from spanlm.store.files import is_pipe
from spanlm.store.plain import c_number, cells_line
from spanlm.store.provenance import file_provenance
from spanlm.store.run_folder import model_digest

_NO_TABLES = (".xlsx", ".xls", ".ods", ".json", ".html", ".pdf", ".parquet", ".npz")
UNITS = {"2": "bits", "e": "nats", "10": "bans"}
_FIRST_READ = "read, not predicted: NaN"
MOST_UNKNOWN, FEW_UNKNOWN = 100_000, 5
"""Most different unknown words to count, and how many of them a note names."""

_Row = dict[str, Any]


class _Item(NamedTuple):
    """A text to score, from a row or a line; items of equal `line` or `document` are read in one context.

    Items in succession with one `region` are it; `others` are the rows of other readings of the same word.
    """

    text: str
    number: int
    document: tuple[object, ...] = ()
    line: tuple[object, ...] = ()
    kept: Mapping[str, Any] = {}
    place: str = ""
    order: tuple[float, ...] = ()
    region: object = None
    others: tuple[_Item, ...] = ()


def run(options: argparse.Namespace) -> None:
    runs, names = runs_and_files(options)
    names = names or ["-"]
    paths = [Path("/dev/stdin" if name == "-" else name) for name in names]
    settings = field_values(options, ScoreOptions, base=BASES[options.base])
    options.repairs = _repairs(options)
    options.errors = "cp1252" if "encoding" in options.repairs else "strict"
    if options.region is not None and "readings" in options.repairs:
        raise InputError("--region", options.region, "is for a table with a row a word", "Add --repair none")
    if options.layout is not None:
        _take_layout(options, paths[0])
    kinds = [_kind(path, options) for path in paths]
    options.rows = options.rows or ("tokens" if options.column is None else "words")
    apart = options.column is not None or options.rows == "words"
    form: tables.Kind = options.format or tables.table_kind(options.out or Path()) or (apart and kinds[0]) or "tsv"
    check_output(options.out, paths)
    check_cache(options)
    named = "" if options.out is None or options.format is not None else options.out.name.removesuffix(".gz")
    require(Path(named).suffix not in _NO_TABLES, "--out", options.out, "named .csv, .tsv or .jsonl, which are written")
    models = _models(runs, options, apart)
    for model in models.values() if options.data_dir is not None else ():
        model.texts.data = replace(model.texts.data, dir=options.data_dir)
    for model in models.values() if settings.looks else ():
        try:
            if model.predicts_words:
                check_attends(model.model)
        except InputError as error:
            raise error.within(f"--looks: {model.folder}") from None
    caches = {name: choose_cache(model, options)[0] for name, model in models.items()}
    scored = "<unk> and by its spelling" if settings.spell_unknown else "<unk>"
    unknown = _Unknown(models, apart, scored)
    items = _Items(options, models, settings, form, caches, len(names) > 1, unknown)
    if names == ["-"] and sys.stdin is not None and sys.stdin.isatty():
        note("reading standard input; end it with Ctrl-D")
    if apart:
        rows = items.rows(names, list(zip(paths, kinds, strict=True)))
    else:
        texts = [Text(path, as_text=options.as_text) for path in paths]
        tokens = _token_rows(models[""], names, texts, asdict(settings) | {"cache": caches.get("")})
        rows = (items.prefixed(unknown.counted("", row)) for row in tokens)
    # read a row before opening the output: an unreadable file must leave no empty output
    first = list(islice(rows, 1))
    header = list(first[0]) if first else [*items.columns]
    with output(options.out) as file:
        if form != "jsonl":
            file.write(cells_line(header, tables.DELIMITERS[form]))
        for row in chain(first, rows):
            file.write(tables.row_line(row, form))
    if apart and options.out is not None and (options.out.is_file() or not options.out.exists()):
        with output(options.out.with_name(f"{options.out.name}.meta.json")) as file:
            file.write(json.dumps(_meta(items, names, header), ensure_ascii=False, indent=1) + "\n")
    if options.column is not None and options.rows == "words" and options.line is None and items.single > 1:
        note("note: most rows are one word, each read as a line of its own; --line COLUMN joins those of a sentence")
    note(*unknown.notes(), *items.predictors.notes())
    note(*items.bad.lines(), *items.misplaced.lines(), *items.repaired.lines())
    state = settings.state if options.document is None else "document"
    notes = [line for name, model in models.items() for line in _notes(model, unknown.count > 0, caches[name], state)]
    note(*dict.fromkeys(notes))


@dataclass
class _Unknown:
    """Counts rows with a word outside the vocabulary, `scored` as what this says; if `apart`, which written words."""

    models: Mapping[str, Model]
    apart: bool
    scored: str
    rows: int = 0
    count: int = 0
    after: int = 0
    words: Counter[str] = field(default_factory=Counter)
    otherwise: Counter[str] = field(default_factory=Counter)

    def counted(self, model: str, row: _Row) -> _Row:
        """Count a row of a model, and return it."""
        self.rows += 1
        self.count += row["oov"]
        self.after += row.get("oov_before", 0) > 0
        if self.apart and row["oov"]:
            word = row["word"]
            self.otherwise[_known_otherwise(self.models[model], word)] += 1
            if word in self.words or len(self.words) < MOST_UNKNOWN:
                self.words[word] += 1
        return row

    def notes(self) -> Iterator[str]:
        if not (self.apart and self.count):
            return
        common = ", ".join(f"{word} ({number:,})" for word, number in self.words.most_common(FEW_UNKNOWN))
        yield (
            f"note: {self.count:,} of {self.rows:,} scored words are outside the vocabulary (oov), which are scored as "
            f"{self.scored}, and {self.after:,} stand after one in their context (oov_before). The commonest: {common}"
        )
        if ways := ", ".join(f"{number:,} {way}" for way, number in self.otherwise.most_common() if way):
            yield f"note: the vocabulary has some of them if they are written otherwise: {ways}"


def _repairs(options: argparse.Namespace) -> set[str]:
    """Return the names of --repair, else those of --layout; InputError: one is unknown."""
    usual = "none" if options.layout is None else LAYOUTS[options.layout].repair
    names = set((options.repair or usual).split(",")) - {"none"}
    for name in sorted(names - {*REPAIRS}):
        require(False, "--repair", name, f"none, or some of {', '.join(REPAIRS)}")
    for name, column in (("readings", "order"), ("marks", "line")):
        if name in names and options.layout is None and vars(options)[column] is None:
            raise InputError("--repair", name, f"goes by the column of --{column}", f"Add --{column} COLUMN")
    return names


def _take_layout(options: argparse.Namespace, path: Path) -> None:
    """Set --text, --line and --order by --layout and the columns of the table, where they are not given."""
    require(path.is_file(), "--layout", options.layout, "for a table in a file")
    kind = options.input or tables.table_kind(path) or tables.first_line_kind(path, options.errors) or "csv"
    columns = next(tables.read_table(path, kind, (), bad=tables.RowNotes(), errors=options.errors)).values
    given = {"text": options.column, "line": options.line, "order": options.order}
    try:
        chosen = LAYOUTS[options.layout].columns(columns, given)
    except InputError as error:
        raise error.within(f"{path}: --layout {options.layout}") from None
    options.column, options.line, options.order = chosen["text"], chosen["line"], chosen["order"]


def _kind(path: Path, options: argparse.Namespace) -> tables.Kind | None:
    """Return the kind of table of a file; None for plain text."""
    kind: tables.Kind | None = None if options.as_text else options.input or tables.table_kind(path)
    if options.column is None:
        if kind is not None:
            tables.refuse_without_column(path, kind, "--text")
        if options.input in get_args(tables.Kind):
            raise InputError(f"--input={options.input}: say by --text which column of {path} holds the text")
        return None
    kind = kind or tables.first_line_kind(path, options.errors)
    if kind is None:
        name = "standard input" if path == Path("/dev/stdin") else path
        raise InputError(f"{name}: say by --input csv, tsv or jsonl what kind of table it is")
    return kind


def _models(runs: Sequence[Path], options: argparse.Namespace, apart: bool) -> dict[str, Model]:
    """Load each run by its name if `apart`; else one run or an ensemble, under the name ''."""
    if len(runs) == 1 or not apart or options.combine is not None or options.weights is not None:
        return {"": load_runs(runs, options)}
    check_gate(options.gate_temperature, len(runs))
    return {name: load_runs([run], options) for name, run in zip(run_names(runs), runs, strict=True)}


# --- tokens of plain text ---


def _token_rows(model: Model, names: list[str], texts: list[Text], settings: Mapping[str, Any]) -> Iterator[_Row]:
    # find errors before any output; a pipe cannot be read twice
    for text in texts[1:]:
        if not is_pipe(text.path):
            next(model.texts.pieces(text), None)
    for name, text in zip(names, texts, strict=True):
        for score in model.score(text, **settings):
            yield {"file": name} | as_row(score) if len(names) > 1 else as_row(score)


# --- items ---


@dataclass
class _Items:
    """The items of files, and their output rows for every model.

    Attributes:
        kept: input columns to repeat; without --keep those of the first row, known once `begun`.
    """

    options: argparse.Namespace
    models: Mapping[str, Model]
    settings: ScoreOptions
    form: tables.Kind
    caches: Mapping[str, CacheConfig | None]
    files: bool
    unknown: _Unknown
    begun: bool = False
    single: int = 0
    """Items of one word so far, minus all others."""

    def __post_init__(self) -> None:
        self.bad, self.misplaced = (tables.RowNotes(kind, self.options.strict) for kind in ("left out", "out of place"))
        self.repaired = tables.RowNotes("repaired", None)
        self.kept: list[str] = self.options.keep.split(",") if self.options.keep else []
        self.predictors = Predictors(self.options, self.models, self.settings.base)
        columns = {"file": "which file"} if self.files else {}
        columns |= {"run": "which model"} if len(self.models) > 1 else {}
        columns |= meanings(WrittenScore if self.options.rows == "words" else WordScore)
        del columns["look"]
        if self.options.rows != "words":
            del columns["end"]
        if self.settings.looks:
            columns |= {f"attention_{name}": text for name, text in meanings(Looked).items()}
        if self.options.column is not None or self.options.rows == "words":
            before = "how many words with oov stand before it in its context (--state, --line, --document)"
            columns["oov_before"] = before
        if self.options.region is not None:
            columns = {name: columns[name] for name in ("file", "run", "sentence", "oov_before") if name in columns}
        self.columns = self.prefixed(columns | self.predictors.columns)

    def prefixed(self, row: _Row) -> _Row:
        """Add --prefix to the names of columns that this verb makes."""
        return {self.options.prefix + name: value for name, value in row.items()} if self.options.prefix else row

    def rows(self, names: Sequence[str], files: Sequence[tuple[Path, tables.Kind | None]]) -> Iterator[_Row]:
        for path, kind in files:
            if path.is_file():  # find errors before hours of work; a pipe cannot be read twice
                deque(self._read(path, kind), maxlen=0)
        for name, (path, kind) in zip(names, files, strict=True):
            file = self.prefixed({"file": name} if self.files else {})
            last: object = None
            for _, group in groupby(self._scored_items(path, kind), key=lambda scored: self._context(scored[0])):
                line = list(group)
                by_model = [
                    self.predictors.finished(model, [(item, rows[place]) for item, rows in line])
                    for place, model in enumerate(self.models)
                ]
                if self.options.region is not None:
                    last = self._check_regions([item for item, _ in by_model[0]], last)
                for parts in zip(*by_model, strict=True):
                    for model, (item, rows) in zip(self.models, parts, strict=True):
                        for reading in (item, *item.others):
                            before = file | reading.kept | self.prefixed({"run": model} if model else {})
                            numbered = [row | {"sentence": reading.number} for row in rows] if item.others else rows
                            yield from (before | self.prefixed(row) for row in numbered)

    def _context(self, item: _Item) -> object:
        """Return what tells the line that an item is in."""
        return item.line if self.options.line is not None else item.number

    def _check_regions(self, items: Sequence[_Item], last: object) -> object:
        """Note regions of a line that come twice, or go on from the `last` of the line before; return the last one."""
        regions = [item.region for item in items]
        for place, item in enumerate(items):
            again = "comes again in its line" if item.region in regions[:place] else ""
            if again or (place == 0 < len(items) - 1 and item.region == last):
                why = f"{self.options.region}={item.region} {again or 'goes on from the line before'}"
                self.misplaced.add(item.place, f"{why}, as another region")
        return regions[-1] if len(regions) > 1 else None

    def _scored_items(self, path: Path, kind: tables.Kind | None) -> Iterator[tuple[_Item, list[list[_Row]]]]:
        """Yield each item with its rows by model."""
        read: Iterable[_Item] = self._read(path, kind, checked=path.is_file())
        read = read if self.options.order is None else self._ordered(read)
        items, *copies = tee(self._joined(read) if "marks" in self.options.repairs else read, len(self.models) + 1)
        by_model = [self._scored(run, copy) for run, copy in zip(self.models, copies, strict=True)]
        unknown, last, seen, groups = Counter[str](), None, set[object](), set[object]()
        for item, *item_scores in zip(items, *by_model, strict=True):
            self.single += 1 if len(written_spans(item.text)) == 1 else -1
            alone = self._context(item)
            if last != (context := alone if self.settings.state == "line" else item.document):
                unknown, last = Counter(), context
            if ({item.document, item.line} - groups) & seen:
                named = ",".join(filter(None, (self.options.document, self.options.line)))
                why = f"{named}={','.join(map(str, item.line))} comes again after other lines, as another"
                self.misplaced.add(item.place, f"{why}; --order COLUMN sorts the rows of each")
            groups = {item.document, item.line}
            seen |= groups
            rows = []
            for model, scores in zip(self.models, item_scores, strict=True):
                made = item_rows(item.number, scores, unknown[model])
                rows.append([self.unknown.counted(model, row) for row in made])
                unknown[model] += sum(score.oov for score in scores)
            yield item, rows

    def _read(self, path: Path, kind: tables.Kind | None, *, checked: bool = False) -> Iterator[_Item]:
        """Read items; an error names the line of a row that cannot be scored. Words are not `checked` again."""
        options, column = self.options, self.options.column
        if kind is None:
            readers, blank = [model.texts for model in self.models.values()], 0
            exact = all(reader.tokenizer.exact for reader in readers)
            any_bytes = all(reader.data.effective_tokenizer == "bytes" for reader in readers)
            file = Text(path, as_text=options.as_text, exact=exact, any_bytes=any_bytes)
            for number, text in enumerate(lines_of(pieces(file)), 1):
                blank += self.settings.state == "document" and not written_spans(text)
                yield _Item(text, number, (blank,), (blank,))
            return
        groups, lines, order = (
            names.split(",") if names else [] for names in (options.document, options.line, options.order)
        )

        def check(row: tables.Row) -> None:
            for name in order:
                _number(name, row.values[name])
            if options.separator == "" and len(written_spans(row.values[column])) > 1:
                limit = "has white space, and --separator '' is for a row a word"
                raise InputError(column, row.values[column], limit)
            if lines:
                refuse_reserved(row.values[column])
            for model in self.models.values() if not checked else ():
                unmarked = model.texts.unmarked_text(repaired(row.values[column], self.options.repairs))
                tokens = model.tokenize(unmarked)
                if not tokens and options.rows == "tokens":
                    raise InputError(f"the column {column} has nothing that the model reads")
                unknown = [token for token in tokens if token not in model.vocabulary]
                if self.settings.oov == "error" and unknown and not lines:  # a line is read, and refused, joined
                    why = f"{unknown[0]!r} is not in the vocabulary. Use --oov flag to score it as <unk>."
                    raise tables.TableError(f"{path}, line {row.line}: {why}")

        region: str | None = options.region
        keys = [*groups, *lines, *order, *([] if region is None else [region])]
        reading: dict[str, Any] = {"keys": keys, "also": self.kept, "check": check, "bad": self.bad}
        for row in tables.read_table(path, kind, [column], errors=options.errors, **reading):
            place = f"{path}, line {row.line}"
            others = [name for name in row.values if name != column]
            if self.options.keep is None and not self.begun:
                self.kept, self.begun = others, True
            if clash := [name for name in self.kept if name in self.columns or self.kept.count(name) > 1]:
                way = "rename yours, choose by --keep, or take --prefix lm_ for its own"
                raise InputError(f"{path}: the output has a column {clash[0]}; {way}")
            if options.keep is None and sorted(others) != sorted(self.kept):
                raise InputError(f"{place}: has other columns than the first row; say by --keep which to repeat")
            kept = tables.repeated({name: row.values[name] for name in self.kept}, self.form)
            document, line = (tuple(str(row.values[name]) for name in names) for names in (groups, lines))
            numbers = tuple(_number(name, row.values[name]) for name in order)
            text = repaired(row.values[column], self.options.repairs)
            if text != row.values[column]:
                self.repaired.add(place, f"{row.values[column]} is read as {text}")
            text = text.strip() if options.separator == "" else text
            item = _Item(text, row.number, document, document + line, kept, place, numbers)
            yield item if region is None else item._replace(region=row.values[region])

    def _ordered(self, items: Iterable[_Item]) -> list[_Item]:
        """Sort items by --order within their lines and documents, which stay in order of first appearance."""
        first: dict[object, int] = {}

        def place(item: _Item) -> tuple[int, int, tuple[float, ...]]:
            document = first.setdefault(item.document, len(first))
            return document, first.setdefault(item.line, len(first)), item.order

        ordered = sorted(items, key=place)
        if "readings" in self.options.repairs:
            return [first._replace(others=tuple(others)) for first, *others in words_of(ordered, self.misplaced)]
        for item, other in pairwise(ordered):
            if (item.line, item.order) == (other.line, other.order):
                self.misplaced.add(other.place, f"has the {self.options.order} of another row of its line")
        return ordered

    def _joined(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Join rows of punctuation with the words beside them, in each line."""
        for _, group in groupby(items, key=self._context):
            line = list(group)
            for item, text in zip(line, with_marks([item.text for item in line]), strict=True):
                if text != item.text.strip():
                    self.repaired.add(item.place, f"is read as {text}" if text else "is read with the word beside it")
                if text:
                    yield item._replace(text=text)

    def _scored(self, name: str, items: Iterable[_Item]) -> Iterator[Sequence[WordScore | WrittenScore]]:
        """Yield a list of scores for each item; each document starts from an empty state."""
        model, documents = self.models[name], iter([(tuple[object, ...](), items)])
        settings = asdict(self.settings) | {"cache": self.caches[name]}
        if self.options.document is not None:
            settings["state"], documents = "document", groupby(items, key=lambda item: item.document)
        for _, group in documents:
            texts = (item.text for item in group)
            if self.options.line is not None:
                lines, copy = tee([*line] for _, line in groupby(group, key=lambda item: item.line))
                texts_of_lines = (self._cells(model, line) for line in copy)
                if self.options.separator == "":
                    item_scores = model.score_joined(texts_of_lines, **settings)
                else:
                    item_scores = model.score_items(map(" ".join, texts_of_lines), **settings)
                for line, scores in zip(lines, item_scores, strict=True):
                    yield from _shared_out(model, line, scores)
            elif self.options.rows == "words":
                yield from model.score_items(texts, **settings)
            else:  # every item has a token, since empty cells are rejected
                yield from (list(scores) for _, scores in groupby(model.score(texts, **settings), lambda x: x.sentence))

    def _cells(self, model: Model, line: Sequence[_Item]) -> list[str]:
        """Return the texts of a line; InputError: with --oov error, a word of it is unknown."""
        cells = [item.text.strip(WHITE_SPACE) for item in line]
        if self.settings.oov == "error":
            tokens = model.tokenize(model.texts.unmarked_text(self.options.separator.join(cells)))
            if unknown := [token for token in tokens if token not in model.vocabulary]:
                why = f"{unknown[0]!r} is not in the vocabulary. Use --oov flag to score it as <unk>."
                raise InputError(f"{line[0].place} and the rows of its line: {why}")
        return cells


def _shared_out(model: Model, line: Sequence[_Item], scores: Sequence[WrittenScore]) -> Iterator[list[WrittenScore]]:
    """Split the scores of a line among its items, with indices counted in each; <eos> goes with the word before it."""
    words = start = position = 0
    cells = [item.text.strip(WHITE_SPACE) for item in line]
    for item, cell, size in zip(line, cells, model.texts.words_in(cells), strict=True):
        last, shift, item_scores = words + size, item.text.find(cell) - start, list[WrittenScore]()
        while position < len(scores) and scores[position].index - (scores[position].word == EOS) <= last:
            item_scores.append(scores[position])
            position += 1
        yield [replace(x, index=x.index - words, start=x.start + shift, end=x.end + shift) for x in item_scores]
        words, start = last, start + len(cell) + 1


def _known_otherwise(model: Model, word: str) -> str:
    """Return how to write an unknown word so that the vocabulary has it; empty if no way is known."""
    if not model.predicts_words:  # its tokenizer alone knows
        return ""
    ways = {
        "in lower case": word.lower(),
        "with ' for ’": word.replace("’", "'"),
        "with ’ for '": word.replace("'", "’"),
        "composed (NFC)": unicodedata.normalize("NFC", word),
    }
    for way, changed in ways.items():
        with suppress(InputError):  # a reserved word
            tokens = model.tokenize(changed)
            if changed != word and UNK not in tokens and all(token in model.vocabulary for token in tokens):
                return way
    return ""


def _number(name: str, value: Any) -> float:
    number = c_number(str(value).strip())
    require(number == number, name, value, "a number: --order sorts by it")
    return number


# --- what is written ---


def _meta(items: _Items, names: list[str], header: list[str]) -> dict[str, Any]:
    options, settings = items.options, items.settings
    models = {
        name or model.folder.name: {
            "model": model.description,
            **({"members": [str(run.folder) for run in model.runs]} if len(model.runs) > 1 else {}),
            **({"weights": model_digest(model.model)} if isinstance(model, TrainedModel) else {}),
            **(
                {"vocabulary": {"words": len(model.vocabulary), "sha256": model.vocabulary.hash}}
                if model.predicts_words
                else {}
            ),
            "tokenizer": model.texts.data.effective_tokenizer,
            "lines": model.texts.data.lines,
            **_words_of(model, items.caches[name], options.separator),
            "first_word": "predicted from <eos>, the line end before it" if model.texts.predict_first else _FIRST_READ,
            "cache": None if (cache := items.caches[name]) is None else cache.to_json(),
            **({} if (counted := items.predictors.source(name)) is None else {"frequencies": counted}),
        }
        for name, model in items.models.items()
    }
    return {
        "format": 1,
        "made": file_provenance(),
        "files": [Path(name).name for name in names],
        **{"text": options.column, "rows": options.rows, "line": options.line, "document": options.document},
        **{"state": settings.state, "base": settings.base, "unit": UNITS[options.base], "oov": settings.oov},
        "spell_unknown": settings.spell_unknown,
        "precision": usable(settings.precision, next(iter(items.models.values())).model.device),
        "attention": options.attention,
        **({"layout": options.layout} if options.layout else {}),
        **({"repair": sorted(options.repairs)} if options.repairs else {}),
        **{"combine": options.combine, "weights": options.weights},
        "runs": models,
        "columns": {name: items.columns.get(name, "of the item, as it was read") for name in header},
    }


def _words_of(model: Model, cache: CacheConfig | None, separator: str) -> dict[str, str]:
    """Return how tokens below the word are summed to words."""
    if separator == "":
        return {"words": "the sum over a word's tokens, of a line without spaces"}
    if not model.texts.tokenizer.exact:
        return {}
    return {"words": CORRECTED if cache is None else "a word's end counted with the next word, as in the cache"}


def _notes(model: Model, unknown: bool, cache: CacheConfig | None, state: str) -> list[str]:
    anew = "over all of a file" if state == "carry" else f"anew for each {state}"
    cached = [] if cache is None else [f"{cache.description}, {anew}: no entropy and no rank", *cache_notes(cache)]
    unlearnt = [f"note: {line}" for line in model.texts.unk_notes()] if unknown else []
    unscored = unpredicted_first_words(model, "line has no surprisal")
    return [*unscored, *unlearnt, *(f"note: {line}" for line in cached), *departures(model)]
