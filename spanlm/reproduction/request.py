"""What can be asked for, checked before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spanlm.data.config import DataConfig
from spanlm.data.registry import CORPORA
from spanlm.data.sources import DATA_VARIABLE
from spanlm.errors import InputError, nearest
from spanlm.evaluation.protocol import Precision
from spanlm.reproduction.papers import find_paper
from spanlm.reproduction.scale import Scale
from spanlm.reproduction.tables import Table
from spanlm.store.files import expanded

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


def chosen_scale(request: Request) -> Scale:
    """Return the scale that is asked for, with the precision that is asked for.

    Raises:
        InputError: there is no such paper or scale.
    """
    scales = find_paper(request.paper).scales
    if request.scale not in scales:
        raise InputError(f"--scale={request.scale}: unknown.{nearest(request.scale, scales)}")
    scale = scales[request.scale]
    return scale if request.precision is None else replace(scale, precision=request.precision)


def _named_table(request: Request) -> Table | None:
    """Return the table that is asked for, if one is."""
    tables = {table.name: table for table in find_paper(request.paper).tables}
    if request.table is not None and request.table not in tables:
        raise InputError(f"--table={request.table}: unknown.{nearest(request.table, tables)}")
    return tables[request.table] if request.table is not None else None


def chosen_corpus(request: Request, scale: Scale) -> str:
    """Return the corpus that is meant: the one named, the table's only one, the scale's, or the table's own.

    Raises:
        InputError: none of these says which.
    """
    table = _named_table(request)
    only, home = (table.corpus, table.home) if table else (None, None)
    found = request.corpus or only or scale.corpus or home
    if not found:
        homes = ", ".join(f"{table.name} ({table.home})" for table in find_paper(request.paper).tables)
        raise InputError(f"--table: must be given at scale {scale.name}: {homes}; or name a --corpus")
    return found


def chosen_tables(request: Request, corpus: str) -> tuple[Table, ...]:
    """Return the tables asked for: the one named, or all whose numbers are of this corpus or of any.

    Raises:
        InputError: there is no such table or row, or the table cannot be made of the corpus, or has the settings of
            another one that a table beside it has those of.
    """
    named = _named_table(request)
    if named is None:
        able = [table for table in find_paper(request.paper).tables if table.corpus in (None, corpus)]
        chosen = [table for table in able if table.home == corpus] or able
    elif named.corpus not in (None, corpus):
        raise InputError(f"--table={named.name}: needs --corpus {named.corpus}, not {corpus}.")
    else:
        _refuse_settings_of_another(named, corpus, find_paper(request.paper).tables)
        chosen = [named]
    known = {row for table in chosen for row in table.rows}
    for row in request.rows or ():
        if row not in known:
            raise InputError(f"--rows={row}: not in the table.{nearest(row, sorted(known))}")
    return tuple(table for table in chosen if request.rows is None or set(table.rows) & set(request.rows))


def _refuse_settings_of_another(table: Table, corpus: str, tables: Sequence[Table]) -> None:
    """Refuse a table on the corpus of its twin, of which it would measure settings that were found on the other."""
    twins = [other for other in tables if other.home == corpus and other.layout == table.layout]
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
    row = next(iter(find_paper(request.paper).rows.values()))
    return DataConfig(corpus=corpus, dir=request.data_dir, documents=row.trained.config.data.documents)


def _wikipedia(data_dir: str | None) -> Path:
    """Find the corpus that `spanlm data wikipedia` built."""
    roots = [root for root in (data_dir, os.environ.get(DATA_VARIABLE)) if root]
    for root in roots:
        if (expanded(root) / WIKIPEDIA / _BUILT).is_file():
            return expanded(root) / WIKIPEDIA
    raise InputError(
        "--corpus=wikipedia: the paper's corpus is no longer to be had. Build one: `spanlm data wikipedia "
        "--source ARTICLES --out wikipedia`, then `--corpus wikipedia` (a folder of that name here or in --data-dir)."
    )
