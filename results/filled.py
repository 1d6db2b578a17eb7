"""What the tables of the pages are made of: published tables with the runs on one text, and differences in bits."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from results.records import records
from spanlm.papers.certainty import certainty
from spanlm.papers.registry import PAPERS
from spanlm.papers.table import FilledTable, at, cell
from spanlm.scoring.resampling import signed
from spanlm.store.plain import several


@cache
def filled_table(paper: str, text: str, name: str) -> FilledTable:
    """Return a table of a paper with the runs on one text."""
    (table,) = (table for table in PAPERS[paper].tables if table.name == name)
    frequencies = frequency_ppl() if (paper, text) == ("li2020", "ptb-small") else None
    return FilledTable(PAPERS[paper], table, records(paper, text), frequencies)


@cache
def frequency_ppl() -> float:
    """Return the perplexity of word frequencies on valid of Penn Treebank."""
    (row,) = (record for record in records("li2020", "readings/beside") if record["row"] == "unigram-oracle-awd-ptb")
    return float(row["buffer"])


def cells_of(paper: str, text: str, name: str, columns: Sequence[str], section: int = 0) -> dict[str, list[str]]:
    """Return columns of the rows of a published table by title; they are named as there, or `scale`."""
    filled = filled_table(paper, text, name)
    lines = [line for whole in filled.groups[section].lines for line in (whole, *whole.parts())]
    scale = ", ".join(dict.fromkeys(record["scale"] for record in records(paper, text)))
    return {
        line.title: [scale if column == "scale" else cell(line, filled.column(column)) for column in columns]
        for line in lines
    }


def bits_of(difference: float, interval: Sequence[float], seeds: int) -> str:
    """`−0.095 (−0.132 to −0.060; 3)`: no interval where no blocks are stored; 0 seeds: none are named."""
    within = f"{' to '.join(map(signed, interval))}; " if interval else ""
    return f"{signed(difference)} ({within}{seeds})" if seeds else signed(difference)


@cache
def of_text(text: str, paper: str = "daniluk2017", *tables: str, control: str = "lstm") -> dict[str, str]:
    """Return the differences of tables' rows from one of them, the control, on a text, by title; of that its seeds.

    Without `tables` the rows are those of Figure 2c of Daniluk et al.
    """
    groups = (group for table in tables or ("2c",) for group in filled_table(paper, text, table).groups)
    lines = {line.row.name: line for group in groups for line in group.trained}
    sure = certainty({name: line.records for name, line in lines.items()})
    assert sure is not None
    shown = {}
    for number, (name, seeds) in enumerate(zip(sure.names, sure.seeds, strict=True)):
        difference, interval, _ = sure.against(number, sure.names.index(control))
        plain = f"0 ({several(seeds, 'seed')})"
        shown[lines[name].title] = plain if name == control else bits_of(difference, interval, seeds)
    return shown


def ppl_bits(rows: Sequence[Mapping[str, Any]], part: str) -> float:
    """Return the mean bits of rows on test, of what is at `part`."""
    return fmean(math.log2(at(row, part)) for row in rows)
