"""From a request to the list of trainings and measurements, checked before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from spanlm.config import RunConfig
from spanlm.data.cbt import is_cbt_like, read_questions, word_class
from spanlm.data.config import CBT, DATA_VARIABLE, DataConfig, Lines
from spanlm.data.corpora import CORPORA, Corpus, load_corpus
from spanlm.errors import InputError, nearest
from spanlm.models.counting import ParameterCount, count_configured
from spanlm.models.ops.precision import Precision
from spanlm.reproduction import Averaged, Dynamic, Measure, Paper, Plain, Row, Table
from spanlm.reproduction.daniluk2017 import CLOZE_CLASSES, DANILUK
from spanlm.reproduction.li2020 import LI
from spanlm.reproduction.salton2017 import SALTON
from spanlm.reproduction.scales import DynamicSearch, Scale, scaled
from spanlm.store.files import expanded

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (DANILUK, SALTON, LI)}

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
        """The arguments of `spanlm` that ask for this."""
        words = ["reproduce", self.paper, "--scale", self.scale]
        for one in fields(self)[2:]:
            value = getattr(self, one.name)
            if value not in (None, one.default):
                values = value if isinstance(value, tuple) else (value,)
                words += [f"--{one.name.replace('_', '-')}", *map(str, values)]
        return words


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training of one plain row: everything needed to do it, wherever."""

    row: Row
    seed: int
    config: RunConfig
    parameters: ParameterCount
    folder: Path  # of the run
    record: Path  # of its result
    measures: tuple[Measure, ...]  # taken once it is trained

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Itself: the trainings whose models it needs."""
        return (self,)

    @property
    def seeds(self) -> str:
        """Its seed, in words."""
        return f"seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A row without a training of its own: the models of other rows, evaluated in another way."""

    row: Row
    jobs: tuple[Job, ...]  # the trainings of these models; one, unless several are averaged
    record: Path  # of its result
    search: DynamicSearch | None = None  # of the settings of dynamic evaluation

    @property
    def config(self) -> RunConfig:
        """The first model's."""
        return self.jobs[0].config

    @property
    def seeds(self) -> str:
        """Those of its models, in words."""
        first, last = self.jobs[0].seed, self.jobs[-1].seed
        return f"seed {first}" if len(self.jobs) == 1 else f"seeds {first} to {last}"


Task = Job | Measurement


class Plan:
    """All that a request needs.

    Attributes:
        request: what is asked for.
        paper: the paper.
        scale: the scale, with the precision that is asked for.
        tables: in the paper's order.
        texts: the corpus, by how its lines are read; as they are written first.
        out: where records, tables and figures go.
        left_out: rows that this scale leaves out, with the reason.
        tasks: trainings, each once, and measurements, each after the trainings it needs.
        others: tasks that were not asked for, but have a record: shown, not run.
        questions: of the cloze; none where no table asks for them.
    """

    def __init__(self, request: Request) -> None:
        """Load the corpus and list what is to be done.

        Raises:
            InputError: an unknown paper, table, scale or row; a corpus that is not there, or that the table cannot use;
                no questions for a table that asks them; an ensemble that the scale leaves out.
        """
        self.request, self.paper = request, _named(PAPERS.values(), request.paper, "unknown paper {}.")
        scale = _named(self.paper.scales, request.scale, "--scale={}: unknown.")
        self.scale = replace(scale, precision=request.precision or scale.precision)
        named = _named(self.paper.tables, request.table, "--table={}: unknown.") if request.table else None
        name = _corpus(request, self.paper, self.scale, named)
        self.tables = _tables(request, self.paper, named, name)
        rows = [self.paper.rows[row] for row in dict.fromkeys(row for table in self.tables for row in table.rows)]
        self.left_out = {row.name: reason for row in rows if (reason := _too_large(row, request, scale))}
        for row_name in request.rows or ():
            if row_name in self.left_out:
                raise InputError(f"--rows={row_name}: {self.left_out[row_name]}")
        self._data = replace(chosen_text(name, request), max_size=scale.vocabulary_size)
        ways: set[Lines] = {row.trained.config.data.lines for row in rows}
        self.texts = {lines: load_corpus(replace(self._data, lines=lines)) for lines in sorted(ways)}
        place = Path(self.paper.name) / f"{self.corpus.name}-{scale.name}"
        self.out, self._runs = request.out / place, request.runs / place
        self._configs: dict[str, tuple[RunConfig, ParameterCount]] = {}
        asked = [row for row in rows if row.name not in self.left_out and row.name in (request.rows or [row.name])]
        self.tasks = tuple(dict.fromkeys(task for row in asked for task in self._tasks(row, request.seeds)))
        self.others = tuple(task for row in rows for task in self._present(row) if task not in self.tasks)
        asks = any("cloze" in self._measures(row) for row in asked)
        self.questions = find_questions(request.data_dir, request.questions) if asks else ()

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

    def label(self, task: Task) -> str:
        """Name a task shortly: by its row, and where there are several seeds by these."""
        return task.row.name if len(self.request.seeds) == 1 else f"{task.row.name}, {task.seeds}"

    def _tasks(self, row: Row, seeds: Sequence[int]) -> Iterator[Task]:
        """Yield what a row needs: its trainings, then what is measured on them."""
        plain = self.paper.plain(row)
        if isinstance(row.how, Averaged):
            jobs = tuple(self._job(plain, seed) for seed in range(1, row.how.members + 1))
            yield from jobs
            yield Measurement(row=row, jobs=jobs, record=self.out / f"{row.name}.json")
            return
        search = self.scale.dynamic if isinstance(row.how, Dynamic) else None
        for job in (self._job(plain, seed) for seed in seeds):
            yield job
            if not isinstance(row.how, Plain):
                record = self.out / f"{row.name}-seed-{job.seed}.json"
                yield Measurement(row=row, jobs=(job,), record=record, search=search)

    def _present(self, row: Row) -> Iterator[Task]:
        """Yield the tasks of a row that have a record."""
        names = (re.fullmatch(r".*-seed-(\d+)", path.stem) for path in self.out.glob(f"{row.name}-seed-*.json"))
        seeds = sorted(int(match[1]) for match in names if match)
        if seeds or (self.out / f"{row.name}.json").exists():
            yield from (task for task in self._tasks(row, seeds) if task.row == row and task.record.exists())

    def _job(self, row: Row, seed: int) -> Job:
        if row.name not in self._configs:  # the sizes of a row are searched for once
            preset = row.trained.config
            data = replace(self._data, lines=preset.data.lines)
            text = self.texts[data.lines]
            found = scaled(self.scale, preset, data, len(text.vocabulary), len(text.splits["train"]))
            self._configs[row.name] = found, count_configured(found.model, len(text.vocabulary))
        config, parameters = self._configs[row.name]
        return Job(
            row=row,
            seed=seed,
            config=replace(config, training=replace(config.training, seed=seed, device=self.request.device)),
            parameters=parameters,
            folder=self._runs / row.name / f"seed-{seed}",
            record=self.out / f"{row.name}-seed-{seed}.json",
            measures=self._measures(row),
        )

    def _measures(self, row: Row) -> tuple[Measure, ...]:
        """Return what all tables measure of a row."""
        found: list[Measure] = [table.measure for table in self.tables if row.name in table.rows]
        return tuple(dict.fromkeys(["perplexity", *found]))


Named = TypeVar("Named", Paper, Scale, Table)


def _named(known: Iterable[Named], name: str, error: str) -> Named:
    by_name = {one.name: one for one in known}
    if name not in by_name:
        raise InputError(f"{error.format(name)}{nearest(name, by_name)}")
    return by_name[name]


def _corpus(request: Request, paper: Paper, scale: Scale, table: Table | None) -> str:
    """Return the corpus that is named, else the table's only one, the scale's, or the table's own."""
    only, home = (table.corpus, table.home) if table else (None, None)
    found = request.corpus or only or scale.corpus or home
    if not found:
        homes = ", ".join(f"{table.name} ({table.home})" for table in paper.tables)
        raise InputError(f"--table: must be given at scale {scale.name}: {homes}; or name a --corpus")
    return found


def _tables(request: Request, paper: Paper, named: Table | None, corpus: str) -> tuple[Table, ...]:
    """Return the table that is named, or all whose numbers are of this corpus or of any."""
    able = [table for table in paper.tables if table.corpus in (None, corpus)]
    chosen = [table for table in able if table.home == corpus] or able
    if named is not None:
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
    path, built = expanded(corpus), corpus not in CORPORA
    if corpus == WIKIPEDIA and not path.is_dir():
        roots = [expanded(root) / WIKIPEDIA for root in (request.data_dir, os.environ.get(DATA_VARIABLE)) if root]
        path, built = next((root for root in roots if (root / _BUILT).is_file()), path), True
        if not path.is_dir():
            raise InputError(
                "--corpus=wikipedia: the paper's corpus is no longer available. Build one: `spanlm data wikipedia "
                "--source ARTICLES --out wikipedia`, then `--corpus wikipedia` (a folder of that name here or in "
                "--data-dir)."
            )
    if built and (path / _BUILT).is_file():
        return DataConfig(corpus=str(path), documents="blank-line")
    row = next(iter(PAPERS[request.paper].rows.values()))
    return DataConfig(corpus=corpus, dir=request.data_dir, documents=row.trained.config.data.documents)


def find_questions(data_dir: str | None, given: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the question files that were given, or the test questions beside the corpus cbt.

    Beside the corpus, one file is taken for every word class: the real one if it is there, else a CBT-like one.

    Raises:
        InputError: there are none. One that was given cannot be read, or its name has no word class: found before
            hours of training, not after.
    """
    for path in given:
        next(read_questions(path))
        if word_class(path) not in CLOZE_CLASSES:
            raise InputError(
                f"--questions={path}: its name has no word class. Name it like cbtest_NE_test_2500ex.txt, with one of "
                f"{', '.join(CLOZE_CLASSES)}."
            )
    root = data_dir or os.environ.get(DATA_VARIABLE)
    folder = expanded(root) / CBT if root else None
    found = list(folder.rglob("cbt*_test_2500*.txt*")) if folder else []
    if not given and not found:
        where = f"in {folder}" if folder else f"({DATA_VARIABLE} is not set)"
        raise InputError(
            f"--questions: no test questions {where}. Put cbtest_NE_test_2500ex.txt and the like there, or name files."
        )
    by_class = ([path for path in found if word_class(path) == name] for name in CLOZE_CLASSES)
    return given or tuple(min(paths, key=lambda path: (is_cbt_like(path), path)) for paths in by_class if paths)


def _too_large(row: Row, request: Request, scale: Scale) -> str:
    """Say why an ensemble is left out at a scale; empty if it is not."""
    most = scale.most_members
    if most is None or not isinstance(row.how, Averaged) or row.how.members <= max(most, len(request.seeds)):
        return ""
    members = row.how.members
    return f"an ensemble of {members}: at scale {scale.name} at most {most}, unless --seeds names as many"
