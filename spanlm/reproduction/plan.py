"""From what is asked for to the list of runs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.registry import CORPORA
from spanlm.data.sources import DATA_VARIABLE
from spanlm.errors import InputError, nearest
from spanlm.evaluation.scoring import Precision
from spanlm.models.counting import ParameterCount, count_configured
from spanlm.presets import Preset, find_preset
from spanlm.reproduction.questions import find_questions
from spanlm.reproduction.scale import SCALES, Scale
from spanlm.reproduction.tables import PAPERS, Measure, Table

WIKIPEDIA = "wikipedia"
_BUILT = "corpus.json"
"""What `spanlm data wikipedia` writes beside a corpus it built."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be reproduced.

    Attributes:
        paper: whose tables.
        table: one of them; None: all that the corpus allows.
        corpus: a registered corpus, a folder, or wikipedia; None: the scale's own.
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
    """One run of one row: everything needed to do it, wherever.

    Attributes:
        row: the preset's name without the paper.
        preset: it.
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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that a request needs.

    Attributes:
        request: what was asked for.
        scale: its scale.
        tables: in the paper's order.
        corpus: loaded.
        out: the folder of records, tables and figures.
        jobs: one run each, without repetitions.
        others: rows and seeds that were not asked for, but have a record: not run, only shown.
        questions: the files of cloze questions; none where no table asks for them.
    """

    request: Request
    scale: Scale
    tables: tuple[Table, ...]
    corpus: Corpus
    out: Path
    jobs: tuple[Job, ...]
    others: tuple[Job, ...] = ()
    questions: tuple[Path, ...] = ()

    def jobs_of(self, table: Table) -> list[Job]:
        """Return the jobs whose rows `table` shows, in its order."""
        return [job for row in table.rows for job in self.jobs if job.row == row]


def make_plan(request: Request) -> Plan:
    """Load the corpus and list the runs.

    Raises:
        InputError: an unknown paper, table, scale or row; a corpus that is not there, or that the table cannot use; no
            questions for a table that asks them.
    """
    scale = _scale(request)
    name = request.corpus or _own_corpus(request, scale)
    tables = _tables(request, name)
    data = scale.data(_data(name, request))
    corpus = load_corpus(data)
    place = Path(request.paper) / f"{corpus.name}-{scale.name}"
    out, measures = request.out / place, _measures(tables)
    rows = {row: _row(request, scale, row, data, corpus) for row in measures}

    def job(row: str, seed: int) -> Job:
        preset, config, parameters = rows[row]
        return Job(
            row=row,
            preset=preset,
            seed=seed,
            config=replace(config, training=replace(config.training, seed=seed)),
            parameters=parameters,
            folder=request.runs / place / row / f"seed-{seed}",
            record=out / f"{row}-seed-{seed}.json",
            measures=measures[row],
        )

    asked = [(row, seed) for row in rows if request.rows is None or row in request.rows for seed in request.seeds]
    present = [(row, seed) for row in rows for seed in _seeds_in(out, row)]
    asks_questions = any("cloze" in measures[row] for row, _ in asked)
    return Plan(
        request=request,
        scale=scale,
        tables=tables,
        corpus=corpus,
        out=out,
        jobs=tuple(job(row, seed) for row, seed in asked),
        others=tuple(job(row, seed) for row, seed in present if (row, seed) not in asked),
        questions=find_questions(request.data_dir, request.questions) if asks_questions else (),
    )


def _seeds_in(out: Path, row: str) -> list[int]:
    """Return the seeds of which there is a record of a row."""
    found = (re.fullmatch(rf"{re.escape(row)}-seed-(\d+)\.json", path.name) for path in sorted(out.glob("*.json")))
    return sorted(int(match[1]) for match in found if match)


def _scale(request: Request) -> Scale:
    if request.scale not in SCALES:
        raise InputError(f"--scale={request.scale}: unknown.{nearest(request.scale, SCALES)}")
    scale = SCALES[request.scale]
    return scale if request.precision is None else replace(scale, precision=request.precision)


def _own_corpus(request: Request, scale: Scale) -> str:
    """Return the corpus that is meant where none is named: the table's only one, or the scale's."""
    only = next((table.corpus for table in _of_paper(request.paper) if table.name == request.table), None)
    return only or scale.corpus


def _of_paper(paper: str) -> tuple[Table, ...]:
    if paper not in PAPERS:
        raise InputError(f"unknown paper {paper}.{nearest(paper, PAPERS)}")
    return PAPERS[paper]


def _tables(request: Request, corpus: str) -> tuple[Table, ...]:
    """Return the tables asked for, after checking that they can be made of the corpus and the rows."""
    tables = {table.name: table for table in _of_paper(request.paper)}
    if request.table is None:
        chosen = [table for table in tables.values() if table.corpus in (None, corpus)]
    elif request.table in tables:
        chosen = [tables[request.table]]
    else:
        raise InputError(f"--table={request.table}: unknown.{nearest(request.table, tables)}")
    for table in chosen:
        if table.corpus not in (None, corpus):
            raise InputError(f"--table={table.name}: needs --corpus {table.corpus}, not {corpus}.")
    known = {row for table in chosen for row in table.rows}
    for row in request.rows or ():
        if row not in known:
            raise InputError(f"--rows={row}: not in the table.{nearest(row, sorted(known))}")
    return tuple(chosen)


def _data(corpus: str, request: Request) -> DataConfig:
    """Return which text `corpus` means."""
    path = Path(corpus).expanduser()
    if corpus == WIKIPEDIA and not path.is_dir():
        path = _wikipedia(request.data_dir)
    if corpus not in CORPORA and (path / _BUILT).is_file():
        return DataConfig(corpus=str(path), documents="blank-line")
    return DataConfig(corpus=corpus, dir=request.data_dir)


def _wikipedia(data_dir: str | None) -> Path:
    """Find the corpus that `spanlm data wikipedia` built."""
    roots = [root for root in (data_dir, os.environ.get(DATA_VARIABLE)) if root]
    for root in roots:
        if (Path(root).expanduser() / WIKIPEDIA / _BUILT).is_file():
            return Path(root).expanduser() / WIKIPEDIA
    raise InputError(
        "--corpus=wikipedia: the paper's corpus is no longer to be had. Build one: `spanlm data wikipedia "
        "--source ARTICLES --out wikipedia`, then `--corpus wikipedia` (a folder of that name here or in --data-dir)."
    )


def _measures(tables: Sequence[Table]) -> dict[str, tuple[Measure, ...]]:
    """Return the rows of all tables, each once, with all that is measured of it."""
    measures: dict[str, tuple[Measure, ...]] = {}
    for table in tables:
        for row in table.rows:
            known = measures.get(row, ("perplexity",))
            measures[row] = known if table.measure in known else (*known, table.measure)
    return measures


def _row(
    request: Request, scale: Scale, row: str, data: DataConfig, corpus: Corpus
) -> tuple[Preset, RunConfig, ParameterCount]:
    """Return the preset of a row, its configuration here with any seed, and its size."""
    preset, words = find_preset(f"{request.paper}/{row}"), len(corpus.vocabulary)
    config = scale.configure(preset.config, data, words, len(corpus.splits["train"]))
    config = replace(config, training=replace(config.training, device=request.device))
    return preset, config, count_configured(config.model, words)
