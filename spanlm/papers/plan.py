"""From a request to the list of trainings and measurements, checked before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from spanlm.config import RunConfig
from spanlm.data.cbt import Defect, is_cbt_like, read_questions, word_class
from spanlm.data.config import CBT, DATA_VARIABLE, DEMO, DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.sources import is_built, text_path
from spanlm.data.synthetic import PREFIX
from spanlm.errors import InputError, named, nearest, nearest_or_all
from spanlm.models.counting import ParameterCount, count_configured
from spanlm.papers.paper import (
    WORD_CLASSES,
    Averaged,
    Dynamic,
    Measure,
    NgramPreset,
    Paper,
    Plain,
    Preset,
    Row,
    Table,
    by_name,
)
from spanlm.papers.registry import PAPERS
from spanlm.papers.request import Request
from spanlm.papers.scales import DynamicSearch, Scale, scaled
from spanlm.papers.table import unigram_perplexity
from spanlm.scoring.ngram.config import FALLBACK, NgramRunConfig
from spanlm.store.files import expanded

NO_WEIGHTS = ParameterCount(0, 0)


def for_each_corpus(request: Request) -> list[Request]:
    """Return a request for each table of a paper whose tables have a corpus each, unless one is named."""
    paper = _named(PAPERS.values(), "paper", request.paper)
    if not paper.overview or request.table or request.corpus:
        return [request]
    return [replace(request, table=table.name) for table in paper.tables]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A training of a plain row; or, with `models`, a measurement of another row on what these trained."""

    row: Row
    record: Path
    seed: int  # in a measurement, this and the next four belong to its first model; of an n-gram model without use
    config: RunConfig | NgramRunConfig
    parameters: ParameterCount  # of an n-gram model none
    folder: Path  # of the run
    measures: tuple[Measure, ...]  # taken after the training
    models: tuple[Task, ...] = ()  # one, unless several are averaged
    search: DynamicSearch | None = None  # for the settings of dynamic evaluation

    @property
    def jobs(self) -> tuple[Task, ...]:
        return self.models or (self,)

    @property
    def by_counting(self) -> bool:
        """Whether the model is an n-gram model, whose counts depend on no seed."""
        return isinstance(self.config, NgramRunConfig)

    @property
    def network(self) -> RunConfig:
        assert isinstance(self.config, RunConfig)
        return self.config

    @property
    def seeds(self) -> str:
        if self.by_counting:
            return "by counting"
        first, last = self.jobs[0].seed, self.jobs[-1].seed
        return f"seed {first}" if len(self.jobs) == 1 else f"seeds {first} to {last}"


def record_name(row: str, seed: int | None = None) -> str:
    """Return the file name of a record; an ensemble and an n-gram model have no seed of their own."""
    return f"{row}.json" if seed is None else f"{row}-seed-{seed}.json"


class Plan:
    """All tasks of a request.

    Attributes:
        scale: the scale, with the precision that is asked for.
        tables: in the paper's order.
        texts: the corpus, as each kind of row reads it; as it is written first.
        left_out: the reasons for rows that this scale leaves out.
        tasks: trainings, each once, and measurements, each after the trainings it needs.
        others: tasks that were not asked for, but have a record; shown, not run.
        questions: of the cloze, if a table asks them.
    """

    def __init__(self, request: Request) -> None:
        self.request: Request = request
        self.paper: Paper = _named(PAPERS.values(), "paper", request.paper)
        scale = _named(self.paper.scales, "scale", request.scale)
        self.scale: Scale = replace(scale, precision=request.precision or scale.precision)
        corpus, tables = _tables(request, self.paper, scale)
        self.tables: tuple[Table, ...] = tables
        rows = list(by_name(*(row for table in self.tables for row in table.rows.values())).values())
        most = max(scale.most_members or 2**31, len(request.seeds))
        limit = f"at scale {scale.name} at most {scale.most_members}, unless as many seeds are given"
        self.left_out: dict[str, str] = {
            row.name: f"an ensemble of {row.evaluation.members}: {limit}"
            for row in rows
            if isinstance(row.evaluation, Averaged) and row.evaluation.members > most
        }
        for name in request.rows or ():
            if name in self.left_out:
                raise InputError("rows", name, self.left_out[name])
        self._data = {
            row.preset.name: replace(
                chosen_text(row.preset.config.data, corpus, request.data_dir), max_size=scale.vocabulary_size
            )
            for row in rows
        } or {"": DataConfig(corpus=corpus, dir=request.data_dir)}  # of figures without rows, which read no text
        texts = sorted(set(self._data.values()), key=attrgetter("lines"))
        self.texts: dict[DataConfig, Corpus] = {data: load_corpus(data) for data in texts}
        text = re.sub(r"[^\w.-]+", "-", self.corpus.name.removeprefix(PREFIX))
        place = Path(self.paper.name) / f"{text}-{scale.name}"
        self.out: Path = request.out / place
        self._runs = request.runs / place
        self._sizes: dict[str, tuple[RunConfig, ParameterCount]] = {}
        chosen = [row for row in rows if row.name not in self.left_out and row.name in (request.rows or [row.name])]
        tasks = (task for row in chosen for task in self._tasks(row, request.seeds))
        self.tasks: tuple[Task, ...] = tuple(dict.fromkeys(tasks))
        names = (re.fullmatch(r".*-seed-(\d+)", path.stem) for path in self.out.glob("*-seed-*.json"))
        seeds = sorted({int(name[1]) for name in names if name})
        recorded = (row for row in rows if any(self.out.glob(f"{row.name}*.json")))
        known = dict.fromkeys(task for row in recorded for task in self._tasks(row, seeds))
        self.others: tuple[Task, ...] = tuple(task for task in known if task.record.exists() and task not in self.tasks)
        questions = any("cloze" in self._measures(row) for row in chosen)
        self.questions: tuple[Path, ...] = find_questions(request.data_dir, request.questions) if questions else ()

    @property
    def jobs(self) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if not task.models)

    @property
    def corpus(self) -> Corpus:
        """The text, with its lines as they are written where any row reads it so."""
        return next(iter(self.texts.values()))

    @cached_property
    def unigram_perplexity(self) -> float:
        """The perplexity of word frequencies on valid, below which a model has to be."""
        return unigram_perplexity(*(self.corpus.splits[split].ids for split in ("train", "valid")))

    def text_of(self, task: Task) -> Corpus:
        return self.texts[task.config.data]

    def label(self, task: Task) -> str:
        return task.row.name if len(self.request.seeds) == 1 else f"{task.row.name}, {task.seeds}"

    def _tasks(self, row: Row, seeds: Sequence[int]) -> Iterator[Task]:
        if isinstance(row.evaluation, Averaged):
            jobs = tuple(self._job(self.paper.plain(row), seed) for seed in range(1, row.evaluation.members + 1))
            yield from jobs
            yield replace(jobs[0], row=row, models=jobs, record=self.out / record_name(row.name))
            return
        by_counting = isinstance(row.preset.config, NgramRunConfig)
        for job in (self._job(self.paper.plain(row), seed) for seed in ((1,) if by_counting else seeds)):
            yield job
            if not isinstance(row.evaluation, Plain):
                record = self.out / record_name(row.name, job.seed)
                search = self.scale.dynamic if isinstance(row.evaluation, Dynamic) else None
                yield replace(job, row=row, models=(job,), record=record, search=search)

    def _job(self, row: Row, seed: int) -> Task:
        config, parameters = self._sized(row.preset)
        if isinstance(config, RunConfig):
            config = replace(config, training=replace(config.training, seed=seed, device=self.request.device))
        name = record_name(row.name, seed if isinstance(config, RunConfig) else None)
        return Task(
            row=row,
            seed=seed,
            config=config,
            parameters=parameters,
            folder=self._runs / row.name / f"seed-{seed}",
            record=self.out / name,
            measures=self._measures(row),
        )

    def _sized(self, preset: Preset | NgramPreset) -> tuple[RunConfig | NgramRunConfig, ParameterCount]:
        """Return the configuration of a preset at this scale, which is searched for once, and its size."""
        name, data = preset.name, self._data[preset.name]
        if isinstance(preset, NgramPreset):
            # among the most frequent words none are rare enough to compute discounts
            fallback = FALLBACK if self.scale.vocabulary_size else preset.config.ngram.fallback
            return replace(preset.config, data=data, ngram=replace(preset.config.ngram, fallback=fallback)), NO_WEIGHTS
        if name not in self._sizes:
            tokens, words = len(self.texts[data].splits["train"]), len(self.texts[data].vocabulary)
            published = replace(preset.config, data=data)
            config = scaled(self.scale, published, words, tokens, own_size=preset.own_size)
            self._sizes[name] = config, count_configured(config.model, words)
        return self._sizes[name]

    def _measures(self, row: Row) -> tuple[Measure, ...]:
        measures: list[Measure] = [table.measure for table in self.tables if row.name in table.rows]
        return tuple(dict.fromkeys(["perplexity", *measures]))


Named = TypeVar("Named", Paper, Scale, Table)


def _named(known: Iterable[Named], field: str, name: str) -> Named:
    by_name = {item.name: item for item in known}
    if name not in by_name:
        raise InputError(field, name, f"unknown.{nearest(name, by_name)}")
    return by_name[name]


def _tables(request: Request, paper: Paper, scale: Scale) -> tuple[str, tuple[Table, ...]]:
    """Return the corpus, and the table that is wanted or all whose numbers are of this corpus or of any.

    The corpus is the one that is wanted, else the table's only one, the scale's, or the table's own.
    """
    wanted = _named(paper.tables, "table", request.table) if request.table else None
    corpus = request.corpus or (wanted and wanted.corpus) or scale.corpus or (wanted and wanted.home)
    if wanted is not None and not wanted.rows:
        corpus = corpus or DEMO  # it reads no text
    if not corpus:
        homes = ", ".join(f"{table.name} ({table.home})" for table in paper.tables if table.home)
        limit = f"must be given at scale {scale.name}: {homes}; or name a {named('corpus')}"
        raise InputError("table", limit=limit)
    # a source of texts may have other options: synthetic:copy,lag=20
    possible = [table for table in paper.tables if table.corpus in (None, corpus, corpus.partition(",")[0])]
    if wanted is not None and wanted not in possible:
        raise InputError("table", wanted.name, f"needs {named(f'corpus={wanted.corpus}')}, not {corpus}.")
    if not possible:
        raise InputError("corpus", corpus, f"must be {' or '.join(str(table.corpus) for table in paper.tables)}")
    printed = [table for table in possible if table.home == corpus]
    twin = next((table for table in printed if wanted and table.about == wanted.about), None)
    if wanted is not None and wanted.home not in (None, corpus) and twin:
        limit = f"table {wanted.name} has the settings of {wanted.home}; those of {corpus} are table {twin.name}"
        way_out = f"Use {named(f'table={twin.name}')}, or {named(f'corpus={wanted.home}')}."
        raise InputError("corpus", corpus, limit, way_out)
    exact = [table for table in possible if table.corpus == corpus]
    of_text = [table for table in possible if table.home == corpus or not table.rows] if printed else exact
    chosen = [wanted] if wanted else of_text or possible
    known = {row for table in chosen for row in table.rows}
    for row in request.rows or ():
        if row not in known:
            raise InputError("rows", row, f"not in the table.{nearest_or_all(row, sorted(known))}")
    return corpus, tuple(table for table in chosen if request.rows is None or set(table.rows) & set(request.rows))


def chosen_text(published: DataConfig, corpus: str, data_dir: str | None) -> DataConfig:
    """Return `corpus` as a preset reads its text; an InputError if it is wikipedia, which is missing."""
    data = replace(published, corpus=corpus, dir=data_dir)
    if corpus == "wikipedia" and not text_path(data).is_dir():
        way_out = "Build one: `spanlm data wikipedia --source ARTICLES --out wikipedia`, then take "
        way_out += f"{named('corpus=wikipedia')} (a folder of that name here or in {named('data_dir')})."
        raise InputError("corpus", corpus, "the paper's corpus is no longer available", way_out)
    # articles are documents in all papers' tables
    return replace(data, documents="blank-line") if is_built(data) else data


def find_questions(data_dir: str | None, given: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the question files that are given; else, from the corpus cbt, one a word class: real before CBT-like."""
    for path in given:
        first = next(read_questions(path))
        if isinstance(first, Defect) and all(isinstance(item, Defect) for item in read_questions(path)):
            raise InputError("questions", path, f"has no question; line {first.line}: {first.reason}")
        if word_class(path) not in WORD_CLASSES:
            way_out = f"Name it like cbtest_NE_test_2500ex.txt, with one of {', '.join(WORD_CLASSES)}."
            raise InputError("questions", path, "its name has no word class", way_out)
    root = data_dir or os.environ.get(DATA_VARIABLE)
    folder = expanded(root) / CBT if root else None
    files = sorted(folder.rglob("cbt*_test_2500*.txt*") if folder else (), key=lambda path: (is_cbt_like(path), path))
    if not given and not files:
        where = f"in {folder}" if folder else f"({DATA_VARIABLE} is not set)"
        way_out = "Put cbtest_NE_test_2500ex.txt and the like there, or name files."
        raise InputError("questions", limit=f"no test questions {where}", way_out=way_out)
    by_class = {word_class(path): path for path in reversed(files)}
    return given or tuple(by_class[name] for name in WORD_CLASSES if name in by_class)
