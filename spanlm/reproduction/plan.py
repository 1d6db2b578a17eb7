"""From what is asked for to the list of trainings and measurements, checked before anything is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from spanlm.config import RunConfig
from spanlm.data.cbt import is_cbt_like, read_questions, word_class
from spanlm.data.config import CBT, DATA_VARIABLE, DataConfig, Lines
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.sources import CORPORA
from spanlm.errors import InputError, nearest
from spanlm.evaluation.protocol import Precision
from spanlm.models.counting import ParameterCount, count_configured
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
    """What is to be reproduced.

    Attributes:
        paper: whose tables.
        table: one of them; None: all that the corpus allows.
        corpus: a registered corpus, a folder, or wikipedia; None: the scale's own, or the table's.
        scale: smoke, small or paper.
        seeds: one run of every row for each.
        rows: only these; None: all of the table.
        runs: where runs are kept.
        out: where records, tables and figures go.
        device: auto, cpu, cuda.
        precision: of the products; None: the scale's own.
        data_dir: where registered corpora are; None: $SPANLM_DATA.
        questions: cloze questions; empty: those beside the corpus.
    """

    paper: str
    table: str | None = None
    corpus: str | None = None
    scale: str = "small"
    seeds: tuple[int, ...] = (1,)
    rows: tuple[str, ...] | None = None
    runs: Path = Path("runs")
    out: Path = Path("results")
    device: str = "auto"
    precision: Precision | None = None
    data_dir: str | None = None
    questions: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training of one plain row: everything needed to do it, wherever.

    Attributes:
        row: the row's name.
        preset: its preset.
        seed: of the run.
        config: the whole run's.
        parameters: its size.
        folder: the run's.
        record: where its result goes.
        measures: what is measured once it is trained.
    """

    row: str
    preset: Preset
    seed: int
    config: RunConfig
    parameters: ParameterCount
    folder: Path
    record: Path
    measures: tuple[Measure, ...]

    @property
    def seeds(self) -> str:
        """Its seed, in words."""
        return f"seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A row without a training of its own: models that were trained for another one, evaluated in another way.

    Attributes:
        row: the row's name.
        how: with a cache, averaged, or with dynamic evaluation.
        jobs: whose models; one, unless several are averaged.
        record: where its result goes.
        search: how settings of dynamic evaluation are found; None where there are none.
    """

    row: str
    how: Cached | Averaged | Dynamic
    jobs: tuple[Job, ...]
    record: Path
    search: DynamicSearch | None = None

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
    """All that a request needs.

    Attributes:
        request: what was asked for.
        paper: whose tables.
        scale: its scale.
        tables: in the paper's order.
        texts: the corpus, by how its lines are read.
        out: the folder of records, tables and figures.
        tasks: trainings, each once, and measurements, each after the trainings it needs.
        others: tasks that were not asked for, but have a record: not run, only shown.
        left_out: rows that this scale leaves out, with the reason.
        questions: the files of cloze questions; none where no table asks for them.
    """

    request: Request
    paper: Paper
    scale: Scale
    tables: tuple[Table, ...]
    texts: Mapping[Lines, Corpus]
    out: Path
    tasks: tuple[Task, ...]
    others: tuple[Task, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    questions: tuple[Path, ...] = ()

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

    def jobs_of(self, table: Table) -> list[Job]:
        """Return the jobs whose rows `table` shows, in its order."""
        return [job for row in table.rows for job in self.jobs if job.row == row]


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
    name = _corpus(request, paper, scale)
    tables = _tables(request, paper, name)
    measures = _measures(tables)
    rows = [paper.rows[row] for row in measures]
    left_out = {row.name: reason for row in rows if (reason := _too_large(row, request, scale))}
    for row_name in request.rows or ():
        if row_name in left_out:
            raise InputError(f"--rows={row_name}: {left_out[row_name]}")
    texts = _texts(rows, scale.data(chosen_text(name, request)))
    make = _Maker(request, paper, scale, measures, texts)
    asked = [row for row in rows if row.name not in left_out and (request.rows is None or row.name in request.rows)]
    tasks = tuple(dict.fromkeys(task for row in asked for task in make.tasks(row, request.seeds)))
    present = (task for row in rows for task in make.present(row))
    asks_questions = any("cloze" in measures[row.name] for row in asked)
    return Plan(
        request=request,
        paper=paper,
        scale=scale,
        tables=tables,
        texts={lines: text for lines, (_, text) in texts.items()},
        out=make.out,
        tasks=tasks,
        others=tuple(task for task in present if task not in tasks),
        left_out=left_out,
        questions=find_questions(request.data_dir, request.questions) if asks_questions else (),
    )


def _named(known: Mapping[str, Value], name: str, error: str) -> Value:
    if name not in known:
        raise InputError(f"{error.format(name)}{nearest(name, known)}")
    return known[name]


def _named_table(request: Request, paper: Paper) -> Table | None:
    tables = {table.name: table for table in paper.tables}
    return None if request.table is None else _named(tables, request.table, "--table={}: unknown.")


def _corpus(request: Request, paper: Paper, scale: Scale) -> str:
    """Return the corpus that is meant: the one named, the table's only one, the scale's, or the table's own."""
    table = _named_table(request, paper)
    only, home = (table.corpus, table.home) if table else (None, None)
    found = request.corpus or only or scale.corpus or home
    if not found:
        homes = ", ".join(f"{table.name} ({table.home})" for table in paper.tables)
        raise InputError(f"--table: must be given at scale {scale.name}: {homes}; or name a --corpus")
    return found


def _tables(request: Request, paper: Paper, corpus: str) -> tuple[Table, ...]:
    """Return the table that is named, or all whose numbers are of this corpus or of any."""
    named = _named_table(request, paper)
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
        texts: Mapping[Lines, tuple[DataConfig, Corpus]],
    ) -> None:
        self._request, self._paper, self._scale = request, paper, scale
        self._measures, self._texts = measures, texts
        place = Path(paper.name) / f"{next(iter(texts.values()))[1].name}-{scale.name}"
        self.out, self._runs = request.out / place, request.runs / place
        self._jobs: dict[str, Job] = {}

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
                yield Measurement(row=row.name, how=how, jobs=(job,), record=self._record(row, seed), search=search)

    def present(self, row: Row) -> Iterator[Task]:
        """Yield the tasks of a row that have a record."""
        if isinstance(row.how, Averaged):
            found = self.tasks(row, ()) if (self.out / f"{row.name}.json").exists() else iter(())
        else:
            names = (re.fullmatch(rf"{re.escape(row.name)}-seed-(\d+)\.json", path.name) for path in self._records())
            found = self.tasks(row, sorted(int(match[1]) for match in names if match))
        yield from (task for task in found if task.row == row.name)

    def _records(self) -> list[Path]:
        return sorted(self.out.glob("*.json"))

    def _record(self, row: Row, seed: int) -> Path:
        return self.out / f"{row.name}-seed-{seed}.json"

    def _job(self, row: Row, seed: int) -> Job:
        if row.name not in self._jobs:
            self._jobs[row.name] = self._first(row)
        first = self._jobs[row.name]
        return replace(
            first,
            seed=seed,
            config=replace(first.config, training=replace(first.config.training, seed=seed)),
            folder=self._runs / row.name / f"seed-{seed}",
            record=self._record(row, seed),
        )

    def _first(self, row: Row) -> Job:
        """Return the job of a plain row for some seed."""
        data, text = self._texts[row.lines]
        words, preset = len(text.vocabulary), row.trained
        config = scaled(self._scale, preset.config, data, words, len(text.splits["train"]))
        config = replace(config, training=replace(config.training, device=self._request.device))
        return Job(
            row=row.name,
            preset=preset,
            seed=0,
            config=config,
            parameters=count_configured(config.model, words),
            folder=self._runs,
            record=self.out,
            measures=self._measures[row.name],
        )


def _texts(rows: Sequence[Row], data: DataConfig) -> dict[Lines, tuple[DataConfig, Corpus]]:
    """Load the corpus in every way that a row reads its lines, as they are written first."""
    ways = sorted({row.lines for row in rows}, key=lambda lines: lines != "as-written")
    return {lines: (text := replace(data, lines=lines), load_corpus(text)) for lines in ways}


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
