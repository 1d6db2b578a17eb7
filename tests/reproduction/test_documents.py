"""Daniluk et al. reset the state between articles; the other papers' WikiText-2 is running text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spanlm.config import RunConfig
from spanlm.presets import PRESETS
from spanlm.reproduction.request import Request, chosen_text

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("paper", "documents"), [("daniluk2017", "heading"), ("salton2017", "none"), ("li2020", "none")]
)
def test_the_documents_of_a_paper(paper: str, documents: str) -> None:
    for corpus, expected in (("wikitext-2", documents), ("ptb", "none"), ("cbt", "book-title"), ("mine", "none")):
        assert chosen_text(corpus, Request(paper=paper)).effective_documents == expected
        for name, preset in PRESETS.items():
            if name.startswith(f"{paper}/"):
                assert replace(preset.config.data, corpus=corpus).effective_documents == expected, name


@pytest.mark.parametrize(
    "path", sorted(RESULTS.glob("*2017/**/*-seed-1.json")), ids=lambda path: "/".join(path.parts[-3:])
)
def test_only_records_of_this_protocol_are_those_of_finished_runs(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    if "config" not in record or record["corpus"] not in ("ptb", "cbt", "wikitext-2"):
        pytest.skip("of no plain row")
    recorded = RunConfig.from_tree(record["config"]).data
    asked = replace(
        chosen_text(record["corpus"], Request(paper=path.relative_to(RESULTS).parts[0])),
        **{name: getattr(recorded, name) for name in ("max_size", "lines")},
    )
    carried_over = record["corpus"] == "wikitext-2" and "daniluk2017" in path.parts
    assert (recorded.compared == asked.compared) != carried_over
