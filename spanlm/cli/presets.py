"""`spanlm presets`."""

from __future__ import annotations

import json
import re
from typing import Any

from rich.table import Table

from spanlm.cli.arguments import verb_parser
from spanlm.cli.terminal import console, out
from spanlm.models.counting import count_configured
from spanlm.presets import PRESETS, Preset

_DESCRIPTION = """
The rows of published tables that `spanlm train NAME` trains, with their sizes at the paper's vocabulary and the
numbers the paper printed. On another corpus the embedding and the softmax have another size: `--match-parameters`
keeps the comparison fair there.
"""


def run(arguments: list[str]) -> None:
    """List the presets."""
    parser = verb_parser("presets", _DESCRIPTION, threads=False)
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object a preset")
    options = parser.parse_args(arguments)
    rows = [describe_preset(preset) for preset in PRESETS.values()]
    if options.json:
        out(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        _show(rows)


def describe_preset(preset: Preset) -> dict[str, Any]:
    """Return a preset as plain values; parameters are those at the paper's vocabulary size."""
    reported = preset.reported
    count = count_configured(preset.config.model, reported.vocabulary_size) if reported.vocabulary_size else None
    return {
        "name": preset.name,
        "paper": preset.paper,
        "rows": list(preset.sources),
        "corpus": reported.corpus,
        "vocabulary_size": reported.vocabulary_size or None,
        "model_parameters": count.model if count else None,
        "all_parameters": count.total if count else None,
        "published_model_parameters_millions": reported.model_parameters,
        "published_all_parameters_millions": reported.all_parameters,
        "published_valid_perplexity": reported.valid_ppl,
        "published_test_perplexity": reported.test_ppl,
        "published_dynamic_valid_perplexity": reported.dynamic_valid_ppl,
        "published_dynamic_test_perplexity": reported.dynamic_test_ppl,
        "published_dynamic": preset.dynamic.to_json() if preset.dynamic else None,
        "remark": preset.remark,
        "config": preset.config.to_tree(),
    }


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)  # to be copied
    for name in ("paper", "table row"):
        table.add_column(name, overflow="fold")
    for name in ("units", "θ_M", "θ_W+M", "published", "valid / test", "dynamic"):
        table.add_column(name, justify="right")
    remarks: dict[str, list[str]] = {}
    for row in rows:
        parameters = row["model_parameters"]
        if row["remark"]:
            remarks.setdefault(re.sub(r"w\d+", "w…", row["remark"]), []).append(row["name"])
        table.add_row(
            row["name"],
            row["paper"].split(";")[0],
            "; ".join(row["rows"]),
            str(row["config"]["model"]["encoder"]["hidden_size"]),
            f"{parameters / 1e6:.2f}M" if parameters else "",
            f"{row['all_parameters'] / 1e6:.2f}M" if parameters else "",
            _published_size(row),
            _perplexities(row, "published"),
            _perplexities(row, "published_dynamic"),
        )
    console().print(table)
    for remark, names in remarks.items():
        out(f"\n{', '.join(names)}: {remark}.")
    out(
        "\nSizes are those at the paper's vocabulary: θ_M without the words' vectors, θ_W+M with them. "
        f"Perplexities are the published ones (dynamic: with dynamic evaluation): {'; '.join(_corpora(rows))}."
    )


def _corpora(rows: list[dict[str, Any]]) -> list[str]:
    """`Penn Treebank, 10,000 words (Press & Wolf 2017, …)`: which papers measured on what."""
    papers: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["corpus"]:
            papers.setdefault(f"{row['corpus']}, {row['vocabulary_size']:,} words", {})[row["paper"]] = None
    return [f"{corpus} ({', '.join(names)})" for corpus, names in papers.items()]


def _published_size(row: dict[str, Any]) -> str:
    """`θ_M 23.9M`: what the paper counts, and how much of it."""
    counts = {
        "θ_M": row["published_model_parameters_millions"],
        "θ_W+M": row["published_all_parameters_millions"],
    }
    return ", ".join(f"{name} {millions:g}M" for name, millions in counts.items() if millions)


def _perplexities(row: dict[str, Any], which: str) -> str:
    """`74.2 / 75.8`: valid and test."""
    valid, test = row[f"{which}_valid_perplexity"], row[f"{which}_test_perplexity"]
    return f"{valid or '–'} / {test}" if test else ""
