"""`spanlm presets [FILTER]`."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from spanlm.cli.options import verb_parser
from spanlm.cli.render import grid, out, paragraph, table
from spanlm.cli.training_report import describe
from spanlm.errors import InputError, nearest
from spanlm.models.counting import count_configured
from spanlm.presets import PRESETS, Preset

_DESCRIPTION = """
The rows of published tables that `spanlm train NAME` trains, with their sizes at the paper's vocabulary and the
perplexities the paper printed.

  spanlm presets
  spanlm presets daniluk2017
  spanlm presets daniluk2017/kvp-w5

On another corpus the embedding and the softmax have another size: `--match-parameters` keeps the comparison fair
there.
"""
_COLUMNS = {"units": 5, "θ_M": 6, "θ_W+M": 6, "valid": 5, "test": 5, "dynamic": 7}
"""Numbers of a preset, and how wide they are in every group."""


def run(arguments: list[str]) -> None:
    """List the presets, or show one."""
    parser = verb_parser("presets", _DESCRIPTION, threads=False)
    parser.add_argument("filter", nargs="?", default="", metavar="FILTER", help="a preset, or a part of the names")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object a preset")
    options = parser.parse_args(arguments)
    asked = options.filter.lower()
    matching = [preset for name, preset in PRESETS.items() if asked in name]
    # kvp-w1 is a preset of its own, not kvp-w10 and kvp-w15, too
    whole = [preset for preset in matching if preset.name == asked or preset.name.endswith(f"/{asked}")]
    found = whole or matching
    if not found:
        raise InputError(f"no preset has {options.filter} in its name.{nearest(asked, PRESETS)}")
    rows = [describe_preset(preset) for preset in found]
    if options.json:
        out(json.dumps(rows, indent=1, ensure_ascii=False))
    elif len(found) == 1:
        _show_one(found[0], rows[0])
    else:
        _show_all(rows)


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


def _show_all(rows: list[dict[str, Any]]) -> None:
    """Print a line a preset, grouped by paper and corpus."""
    width = max(len(row["name"]) for row in rows) + 2
    for heading, group in groupby(rows, _heading):
        out(heading)
        header = [" " * width, *(f"{name:>{size}}" for name, size in _COLUMNS.items())]
        grid(header, ([f"  {row['name']}", *_cells(row)] for row in group))
        out()
    paragraph(
        "Sizes are those at the paper's vocabulary: θ_M without the words' vectors, θ_W+M with them. Perplexities are "
        "the published ones; dynamic: test, with dynamic evaluation. `spanlm presets NAME` shows one preset, its table "
        "row and what to know of it."
    )


def _heading(row: dict[str, Any]) -> str:
    """`Daniluk et al. 2017: Wikipedia, 7,500 articles, 77,000 words`."""
    measured = f": {row['corpus']}, {row['vocabulary_size']:,} words" if row["corpus"] else ""
    return f"{row['paper']}{measured}"


def _cells(row: dict[str, Any]) -> list[str]:
    perplexities = (row[f"published_{name}_perplexity"] for name in ("valid", "test", "dynamic_test"))
    sizes = (row["model_parameters"], row["all_parameters"])
    return [
        str(row["config"]["model"]["encoder"]["hidden_size"]),
        *("" if size is None else f"{size / 1e6:.2f}M" for size in sizes),
        *("" if value is None else f"{value}" for value in perplexities),
    ]


def _show_one(preset: Preset, row: dict[str, Any]) -> None:
    """Print all that there is to know of a preset."""
    shown = [("preset", preset.name), ("paper", f"{preset.paper}: {'; '.join(preset.sources)}")]
    shown.append(("model", describe(preset.config.model)))
    if row["model_parameters"] is not None:
        published = {"θ_M": preset.reported.model_parameters, "θ_W+M": preset.reported.all_parameters}
        said = [f"{name} {millions:g}M" for name, millions in published.items() if millions]
        printed = f"; published: {', '.join(said)}" if said else ""
        sizes = f"θ_M {row['model_parameters']:,}, θ_W+M {row['all_parameters']:,}"
        shown.append(("size", f"{sizes} at {row['vocabulary_size']:,} words{printed}"))
        shown.append(("perplexity", f"{row['corpus']}, published: {_perplexities(row, 'published')}"))
    if row["published_dynamic_test_perplexity"] is not None:
        shown.append(("dynamic", f"published: {_perplexities(row, 'published_dynamic')}"))
    if preset.remark:
        shown.append(("remark", f"{preset.remark}."))
    shown.append(("train it", f"spanlm train {preset.name} --corpus NAME|PATH"))
    shown.append(("its fields", f"spanlm train {preset.name} --print_config"))
    table(shown)


def _perplexities(row: dict[str, Any], which: str) -> str:
    """`valid 74.2, test 75.8`."""
    found = {split: row[f"{which}_{split}_perplexity"] for split in ("valid", "test")}
    return ", ".join(f"{split} {value}" for split, value in found.items() if value is not None) or "none"
