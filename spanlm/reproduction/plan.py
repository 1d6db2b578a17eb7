"""From what is asked for to the list of trainings and measurements, checked before anything is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

from spanlm.config import RunConfig
from spanlm.data.cbt import is_cbt_like, read_questions, word_class
from spanlm.data.config import CBT, DATA_VARIABLE, DataConfig, Lines
from spanlm.data.corpora import CORPORA, Corpus, load_corpus
from spanlm.errors import InputError, nearest
from spanlm.models.counting import ParameterCount, count_configured
from spanlm.models.ops.precision import Precision
from spanlm.presets import Preset
from spanlm.reproduction.papers import Averaged, Cached, Dynamic, Measure, Paper, Plain, Row, Table
from spanlm.reproduction.papers.daniluk2017 import CLOZE_CLASSES, DANILUK
from spanlm.reproduction.papers.li2020 import LI
from spanlm.reproduction.papers.salton2017 import SALTON
from spanlm.reproduction.scales import DynamicSearch, Scale, scaled
from spanlm.store.files import expanded

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (DANILUK, SALTON, LI)}

Value = TypeVar("Value")

WIKIPEDIA = "wikipedia"
_BUILT = "corpus.json"
"""What `spanlm data wikipedia` writes beside a corpus it built."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be reproduced."""

    paper: str
    scale: str = "small"
    table: str | None = None  # None: all that the corpus allows
    corpus: str | None = None  # a registered one, a folder, or wikipedia; None: the scale's own, or the table's
    seeds: tuple[int, ...] = (1,)  # one run of every row for each
    rows: tuple[str, ...] | None = None  # only these
    runs: Path = Path("runs")
    out: Path = Path("results")  # of records, tables and figures
    device: str = "auto"
    precision: Precision | None = None  # of the products; None: the scale's own
    data_dir: str | None = None  # of registered corpora; None: $SPANLM_DATA
    questions: tuple[Path, ...] = ()  # cloze questions; empty: those beside the corpus

    @property
    def words(self) -> list[str]:
        """Return the arguments of `spanlm` that ask for this."""
        asked = [one for one in fields(self)[2:] if getattr(self, one.name) not in (None, one.default)]
        words = ["reproduce", self.paper, "--scale", self.scale]
        for name, value in ((f"--{one.name.replace('_', '-')}", getattr(self, one.name)) for one in asked):
            words += [name, *map(str, value)] if isinstance(value, tuple) else [name, str(value)]
        return words


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training of one plain row: everything needed to do it, wherever."""

    row: str
    preset: Preset
    seed: int
    config: RunConfig
    parameters: ParameterCount
    folder: Path  # of the run
    record: Path  # of its result
    measures: tuple[Measure, ...]  # taken once it is trained

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Itself, as a measurement has its models."""
        return (self,)

    @property
    def seeds(self) -> str:
        """Its seed, in words."""
        return f"seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A row without a training of its own: models that were trained for another one, evaluated in another way."""

    row: str
    how: Cached | Averaged | Dynamic
    jobs: tuple[Job, ...]  # whose models; one, unless several are averaged
    record: Path  # of its result
    search: DynamicSearch | None = None  # how settings of dynamic evaluation are found

    @property
    def config(self) -> RunConfig:
        """The first model's."""
        return self.jobs[0].config

    @property
    def seeds(self) -> str:
        """Of its models, in words."""
        first, last = self.jobs[0].seed, self.jobs[-1].seed
        return f"seed {first}" if len(self.jobs) == 1 else f"seeds {first} to {last}"


Task = Job | Measurement


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that a request needs."""

    request: Request
    paper: Paper
    scale: Scale
    tables: tuple[Table, ...]  # in the paper's order
    texts: Mapping[Lines, Corpus]  # the corpus, by how its lines are read
    out: Path  # of records, tables and figures
    tasks: tuple[Task, ...]  # trainings, each once, and measurements, each after the trainings it needs
    others: tuple[Task, ...] = ()  # that were not asked for, but have a record: not run, only shown
    left_out: Mapping[str, str] = field(default_factory=dict)  # rows that this scale leaves out, with the reason
    questions: tuple[Path, ...] = ()  # none where no table asks for them

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The trainings."""
        return tuple(task for task in self.tasks if isinstance(task, Job))

    @property
    def corpus(self) -> Corpus:
        """The text, with its lines as they are written where any row reads it so."""
        return next(iter(self.texts.values()))

    def text_of(self, task: Task) -> Corpus:
        """Return what a task's models read."""
        return self.texts[task.config.data.lines]


def make_plan(request: Request) -> Plan:
    """Load the corpus and list what is to be done.

    Raises:
        InputError: an unknown paper, table, scale or row; a corpus that is not there, or that the table cannot use; no
            questions for a table that asks them; an ensemble that the scale leaves out.
    """
    paper = _named(PAPERS, request.paper, "unknown paper {}.")
    scale = _named(paper.scales, request.scale, "--scale={}: unknown.")
    if request.precision is not None:
        scale = replace(scale, precision=request.precision)
    by_name = {table.name: table for table in paper.tables}
    named = None if request.table is None else _named(by_name, request.table, "--table={}: unknown.")
    name = _corpus(request, paper, scale, named)
    tables = _tables(request, paper, named, name)
    measures = _measures(tables)
    rows = [paper.rows[row] for row in measures]
    left_out = {row.name: reason for row in rows if (reason := _too_large(row, request, scale))}
    for row_name in request.rows or ():
        if row_name in left_out:
            raise InputError(f"--rows={row_name}: {left_out[row_name]}")
    data = scale.data(chosen_text(name, request))
    # as they are written first
    ways = sorted({row.lines for row in rows}, key=lambda lines: lines != "as-written")
    texts = {lines: load_corpus(replace(data, lines=lines)) for lines in ways}
    make = _Maker(request, paper, scale, measures, data, texts)
    asked = [row for row in rows if row.name not in left_out and (request.rows is None or row.name in request.rows)]
    tasks = tuple(dict.fromkeys(task for row in asked for task in make.tasks(row, request.seeds)))
    asks_questions = any("cloze" in measures[row.name] for row in asked)
    return Plan(
        request=request,
        paper=paper,
        scale=scale,
        tables=tables,
        texts=texts,
        out=make.out,
        tasks=tasks,
        others=tuple(task for row in rows for task in make.present(row) if task not in tasks),
        left_out=left_out,
        questions=find_questions(request.data_dir, request.questions) if asks_questions else (),
    )


def _named(known: Mapping[str, Value], name: str, error: str) -> Value:
    if name not in known:
        raise InputError(f"{error.format(name)}{nearest(name, known)}")
    return known[name]


def _corpus(request: Request, paper: Paper, scale: Scale, table: Table | None) -> str:
    """Return the corpus that is meant: the one named, the table's only one, the scale's, or the table's own."""
    only, home = (table.corpus, table.home) if table else (None, None)
    found = request.corpus or only or scale.corpus or home
    if not found:
        homes = ", ".join(f"{table.name} ({table.home})" for table in paper.tables)
        raise InputError(f"--table: must be given at scale {scale.name}: {homes}; or name a --corpus")
    return found


def _tables(request: Request, paper: Paper, named: Table | None, corpus: str) -> tuple[Table, ...]:
    """Return the table that is named, or all whose numbers are of this corpus or of any."""
    if named is None:
        able = [table for table in paper.tables if table.corpus in (None, corpus)]
        chosen = [table for table in able if table.home == corpus] or able
    else:
        _refuse_corpus(named, corpus, paper)
        chosen = [named]
    known = {row for table in chosen for row in table.rows}
    for row in request.rows or ():
        if row not in known:
            raise InputError(f"--rows={row}: not in the table.{nearest(row, sorted(known))}")
    return tuple(table for table in chosen if request.rows is None or set(table.rows) & set(request.rows))


def _refuse_corpus(table: Table, corpus: str, paper: Paper) -> None:
    """Refuse a corpus that a table cannot use, or whose settings a table beside it has."""
    if table.corpus not in (None, corpus):
        raise InputError(f"--table={table.name}: needs --corpus {table.corpus}, not {corpus}.")
    twins = [other for other in paper.tables if other.home == corpus and other.twin_of == table.twin_of]
    if table.home not in (None, corpus) and twins:
        raise InputError(
            f"--corpus={corpus}: table {table.name} has the settings of {table.home}; those of {corpus} are table "
            f"{twins[0].name}. Use --table {twins[0].name}, or --corpus {table.home}."
        )


def chosen_text(corpus: str, request: Request) -> DataConfig:
    """Return which text `corpus` means.

    Raises:
        InputError: wikipedia, which is not there.
    """
    path = expanded(corpus)
    if corpus == WIKIPEDIA and not path.is_dir():
        path = _wikipedia(request.data_dir)
    if corpus not in CORPORA and (path / _BUILT).is_file():
        return DataConfig(corpus=str(path), documents="blank-line")
    row = next(iter(PAPERS[request.paper].rows.values()))
    return DataConfig(corpus=corpus, dir=request.data_dir, documents=row.trained.config.data.documents)


def _wikipedia(data_dir: str | None) -> Path:
    """Find the corpus that `spanlm data wikipedia` built."""
    for root in (data_dir, os.environ.get(DATA_VARIABLE)):
        if root and (expanded(root) / WIKIPEDIA / _BUILT).is_file():
            return expanded(root) / WIKIPEDIA
    raise InputError(
        "--corpus=wikipedia: the paper's corpus is no longer to be had. Build one: `spanlm data wikipedia "
        "--source ARTICLES --out wikipedia`, then `--corpus wikipedia` (a folder of that name here or in --data-dir)."
    )


def find_questions(data_dir: str | None, given: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the question files that were given, or the test questions beside the corpus cbt.

    Beside the corpus, one file is taken for every word class: the real one if it is there, else a CBT-like one.

    Raises:
        InputError: there are none; says where they were looked for. One that was given cannot be read, or its name does
            not say of which word class it is: found before hours of training, not after.
    """
    for path in given:
        next(read_questions(path))
        if word_class(path) not in CLOZE_CLASSES:
            raise InputError(
                f"--questions={path}: its name does not say what it asks for. Name it like cbtest_NE_test_2500ex.txt, "
                f"with one of {', '.join(CLOZE_CLASSES)}."
            )
    if given:
        return given
    root = data_dir or os.environ.get(DATA_VARIABLE)
    folder = expanded(root) / CBT if root else None
    found = sorted(folder.rglob("cbt*_test_2500*.txt*")) if folder else []
    if not found:
        where = f"in {folder}" if folder else f"({DATA_VARIABLE} is not set)"
        raise InputError(
            f"--questions: no test questions {where}. Put cbtest_NE_test_2500ex.txt and the like there, or name files."
        )
    by_class = ([path for path in found if word_class(path) == name] for name in CLOZE_CLASSES)
    return tuple(min(paths, key=lambda path: (is_cbt_like(path), path)) for paths in by_class if paths)


class _Maker:
    """Makes the tasks of rows; what a preset becomes at this scale is worked out once."""

    def __init__(
        self,
        request: Request,
        paper: Paper,
        scale: Scale,
        measures: Mapping[str, tuple[Measure, ...]],
        data: DataConfig,
        texts: Mapping[Lines, Corpus],
    ) -> None:
        self._request, self._paper, self._scale = request, paper, scale
        self._measures, self._data, self._texts = measures, data, texts
        place = Path(paper.name) / f"{next(iter(texts.values())).name}-{scale.name}"
        self.out, self._runs = request.out / place, request.runs / place
        self._configs: dict[str, tuple[RunConfig, ParameterCount]] = {}

    def tasks(self, row: Row, seeds: Sequence[int]) -> Iterator[Task]:
        """Yield what a row needs: its trainings, then what is measured on them."""
        how, plain = row.how, self._paper.plain(row)
        if isinstance(how, Averaged):
            jobs = tuple(self._job(plain, seed) for seed in range(1, how.members + 1))
            yield from jobs
            yield Measurement(row=row.name, how=how, jobs=jobs, record=self.out / f"{row.name}.json")
            return
        for seed in seeds:
            job = self._job(plain, seed)
            yield job
            if not isinstance(how, Plain):
                search = self._scale.dynamic if isinstance(how, Dynamic) else None
                record = self._record(row.name, seed)
                yield Measurement(row=row.name, how=how, jobs=(job,), record=record, search=search)

    def present(self, row: Row) -> Iterator[Task]:
        """Yield the tasks of a row that have a record."""
        names = (re.fullmatch(r".*-seed-(\d+)", path.stem) for path in self.out.glob(f"{row.name}-seed-*.json"))
        seeds = sorted(int(match[1]) for match in names if match)
        if not seeds and not (self.out / f"{row.name}.json").exists():
            return
        yield from (task for task in self.tasks(row, seeds) if task.row == row.name and task.record.exists())

    def _record(self, row: str, seed: int) -> Path:
        return self.out / f"{row}-seed-{seed}.json"

    def _job(self, row: Row, seed: int) -> Job:
        if row.name not in self._configs:
            text, data = self._texts[row.lines], replace(self._data, lines=row.lines)
            words, tokens = len(text.vocabulary), len(text.splits["train"])
            found = scaled(self._scale, row.trained.config, data, words, tokens)
            self._configs[row.name] = found, count_configured(found.model, words)
        config, parameters = self._configs[row.name]
        return Job(
            row=row.name,
            preset=row.trained,
            seed=seed,
            config=replace(config, training=replace(config.training, seed=seed, device=self._request.device)),
            parameters=parameters,
            folder=self._runs / row.name / f"seed-{seed}",
            record=self._record(row.name, seed),
            measures=self._measures[row.name],
        )


def _too_large(row: Row, request: Request, scale: Scale) -> str:
    """Say why an ensemble is left out at a scale; empty if it is not."""
    most = scale.most_members
    if most is None or not isinstance(row.how, Averaged) or row.how.members <= max(most, len(request.seeds)):
        return ""
    members = row.how.members
    return f"an ensemble of {members}: at scale {scale.name} at most {most}, unless --seeds names as many"


def _measures(tables: Sequence[Table]) -> dict[str, tuple[Measure, ...]]:
    """Return the rows of all tables, each once, with all that is measured of it."""
    measures: dict[str, tuple[Measure, ...]] = {}
    for table in tables:
        for row in table.rows:
            known = measures.get(row, ("perplexity",))
            measures[row] = known if table.measure in known else (*known, table.measure)
    return measures
