"""`spanlm presets [FILTER]`.

The list is read from `spanlm/papers/listing.jsonl`, a line a preset, because the presets themselves import torch.
`python -m spanlm.cli.presets` writes that file anew from the presets.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanlm.cli.render import grid, out, table
from spanlm.errors import InputError, nearest
from spanlm.store.plain import TABLES, Grid, grids_bytes

if TYPE_CHECKING:
    from spanlm.papers.registry import NgramPreset, Preset

_COLUMNS = {"units": 5, "θ_M": 6, "θ_W+M": 6, "valid": 5, "test": 5, "dynamic": 7}
"""Columns of numbers, each with its width in every group."""
_NOTE = (
    "Sizes are those at the paper's vocabulary: θ_M without the words' vectors, θ_W+M with them. Perplexities are the "
    "published ones; dynamic: test, with dynamic evaluation. `spanlm presets NAME` shows one preset, its table row and "
    "remarks."
)
_BITS = " Of characters and bytes, bits per character stand in place of perplexities."

LISTING = "papers/listing.jsonl"


def run(options: argparse.Namespace) -> None:
    rows = {row["name"]: row for row in read_listing()}
    wanted = options.filter.lower()
    # kvp-w1 names one preset, and must not list kvp-w10 and kvp-w15 too
    whole = [name for name in rows if name == wanted or name.endswith(f"/{wanted}")]
    names = whole or [name for name in rows if wanted in name]
    if not names:
        raise InputError(f"no preset has {options.filter} in its name.{nearest(wanted, rows)}")
    shown = [rows[name] for name in names]
    if options.out is not None:
        from spanlm.analysis.export import checked_suffix, write_whole

        write_whole(options.out, grids_bytes(_tables(shown), checked_suffix(options.out, TABLES)))
    if options.json:
        from spanlm.papers.registry import NGRAM_PRESETS, PRESETS

        described = [describe_preset(PRESETS.get(name) or NGRAM_PRESETS[name]) for name in names]
        out(json.dumps(described, indent=1, ensure_ascii=False))
    elif len(names) == 1:
        _show_one(shown[0])
    else:
        width = max(len(row["name"]) for row in shown) + 2
        for header, group, heading in _tables(shown):
            out(heading or "")
            grid([" " * width, *header[1:]], group)
            out()
        of_characters = any(row["unit"] != "words" for row in shown)
        out(textwrap.fill(_NOTE + _BITS * of_characters, shutil.get_terminal_size().columns))  # 80 in a pipe


def read_listing() -> list[dict[str, Any]]:
    lines = files("spanlm").joinpath(LISTING).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def listing_text() -> str:
    """Return the text of the listing file, computed from the presets."""
    from spanlm.papers.registry import NGRAM_PRESETS, PRESETS, Preset

    lines = []
    presets: list[Preset | NgramPreset] = [*PRESETS.values(), *NGRAM_PRESETS.values()]
    for preset in presets:
        row = describe_preset(preset)
        del row["published_dynamic"], row["config"]
        if isinstance(preset, Preset):
            model = preset.config.model
            row |= {"units": model.encoder.hidden_size, "model": model.description}
        else:
            row |= {"units": "", "model": preset.config.description}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


def describe_preset(preset: Preset | NgramPreset) -> dict[str, Any]:
    """Return a preset as plain values; parameters are counted at the paper's vocabulary size."""
    from spanlm.models.counting import count_configured
    from spanlm.papers.registry import Preset, Reported

    reported, count, dynamic = Reported(), None, None
    if isinstance(preset, Preset):
        reported, dynamic = preset.reported, preset.dynamic
        size = reported.vocabulary_size
        count = count_configured(preset.config.model, size) if size else None
    return {
        "name": preset.name,
        "paper": preset.paper,
        "rows": list(preset.sources),
        "corpus": reported.corpus,
        "vocabulary_size": reported.vocabulary_size or None,
        "unit": reported.unit,
        "model_parameters": count.model if count else None,
        "all_parameters": count.total if count else None,
        "published_model_parameters_millions": reported.model_parameters,
        "published_all_parameters_millions": reported.all_parameters,
        "published_valid_perplexity": reported.valid_ppl,
        "published_test_perplexity": reported.test_ppl,
        "published_dynamic_valid_perplexity": reported.dynamic_valid_ppl,
        "published_dynamic_test_perplexity": reported.dynamic_test_ppl,
        "published_valid_bits_per_character": reported.valid_bpc,
        "published_test_bits_per_character": reported.test_bpc,
        "published_dynamic": dynamic.to_json() if dynamic else None,
        "remark": preset.remark,
        "config": preset.config.to_tree(),
    }


def _tables(rows: Sequence[dict[str, Any]]) -> Iterator[Grid]:
    """Yield a table for each paper and text."""
    header = ["", *(f"{name:>{size}}" for name, size in _COLUMNS.items())]
    for heading, group in groupby(rows, _heading):
        yield header, [[f"  {row['name']}", *_cells(row)] for row in group], heading


def _heading(row: dict[str, Any]) -> str:
    """As `Daniluk et al. 2017: Wikipedia, 7,500 articles, 77,000 words`."""
    measured = f": {row['corpus']}, {row['vocabulary_size']:,} {row['unit']}" if row["corpus"] else ""
    return f"{row['paper']}{measured}"


def _cells(row: dict[str, Any]) -> list[str]:
    printed = [row[f"published_{split}_{_measure(row)}"] for split in ("valid", "test")]
    sizes = (row["model_parameters"], row["all_parameters"])
    return [
        str(row["units"]),
        *("" if size is None else f"{size / 1e6:.2f}M" for size in sizes),
        *("" if value is None else f"{value}" for value in (*printed, row["published_dynamic_test_perplexity"])),
    ]


def _measure(row: dict[str, Any]) -> str:
    return "perplexity" if row["unit"] == "words" else "bits_per_character"


def _show_one(row: dict[str, Any]) -> None:
    shown = {"preset": row["name"], "paper": f"{row['paper']}: {'; '.join(row['rows'])}", "model": row["model"]}
    if row["model_parameters"] is not None:
        published = (("θ_M", "model"), ("θ_W+M", "all"))
        values = {name: row[f"published_{which}_parameters_millions"] for name, which in published}
        millions = [f"{name} {value:g}M" for name, value in values.items() if value]
        printed = f"; published: {', '.join(millions)}" if millions else ""
        sizes = f"θ_M {row['model_parameters']:,}, θ_W+M {row['all_parameters']:,}"
        shown["size"] = f"{sizes} at {row['vocabulary_size']:,} {row['unit']}{printed}"
        label = "perplexity" if row["unit"] == "words" else "bpc"
        shown[label] = f"{row['corpus']}, published: {_printed(row, 'published', _measure(row))}"
    if row["published_dynamic_test_perplexity"] is not None:
        shown["dynamic"] = f"published: {_printed(row, 'published_dynamic', 'perplexity')}"
    if row["remark"]:
        shown["remark"] = f"{row['remark']}."
    shown["train it"] = f"spanlm train {row['name']} --corpus NAME|PATH"
    shown["its fields"] = f"spanlm train {row['name']} --print_config"
    table([*shown.items()])


def _printed(row: dict[str, Any], which: str, measure: str) -> str:
    """As `valid 74.2, test 75.8`."""
    values = {split: row[f"{which}_{split}_{measure}"] for split in ("valid", "test")}
    return ", ".join(f"{split} {value}" for split, value in values.items() if value is not None) or "none"


if __name__ == "__main__":
    Path(str(files("spanlm").joinpath(LISTING))).write_text(listing_text(), encoding="utf-8")
