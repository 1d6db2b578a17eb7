"""`spanlm compare RUN …`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from spanlm.analysis.compare import (
    ClassDifference,
    Comparison,
    SharedText,
    TokenBits,
    check_alike,
    compare,
    read_tokens,
    refuse_other_context,
    refuse_other_text,
    shared_text,
)
from spanlm.analysis.comparison_page import render_comparison
from spanlm.analysis.export import checked_suffix, write_whole
from spanlm.analysis.figures import FIGURES, Value, differences_figure, figure_bytes
from spanlm.cli.cache import cache_fields, check_cache, choose_cache
from spanlm.cli.family import family_members
from spanlm.cli.options import check_hf, check_output, corpus_of, note_unfinished, own_texts, run_names, standard_input
from spanlm.cli.parser import Parser, add_cache
from spanlm.cli.render import grid, note, out, out_json, paragraph, table
from spanlm.data.corpora import WHOLE, Corpus
from spanlm.errors import InputError
from spanlm.runs.ensemble import load_ensemble
from spanlm.runs.loading import load
from spanlm.runs.model import Model, require_weights
from spanlm.runs.texts import LoadCorpus
from spanlm.scoring.cache import CacheTuning
from spanlm.scoring.options import CacheConfig
from spanlm.scoring.resampling import FEWEST_BLOCKS, of_chance, signed
from spanlm.scoring.tally import perplexity, shown
from spanlm.store.files import is_hf
from spanlm.store.plain import TABLES, Grid, grids_bytes, table_bytes
from spanlm.store.run_folder import CONFIG

_DESCRIPTION = """
Is one model better than another, by how much, how surely, and at which words? The first run is the baseline. Each other
is compared with it at every token of one text: the difference in bits, its 95 % interval, and p, how often a
difference as large would come by chance. Negative: the run is better than the baseline.

  spanlm compare runs/demo/lstm runs/demo
  spanlm compare runs/demo --attention none
  spanlm compare runs/demo --cache 500 --tune-cache
  spanlm compare runs/lstm runs/kvp --cache 500 --tune-cache
  spanlm compare runs/lstm runs/kvp --out where.svg
  spanlm compare kn5.arpa runs/kvp --out words.html

A folder with seed-1, seed-2 and so on, as --seeds of `spanlm train` makes it, is a family: one model in several seeds,
of which the text and the seeds are both drawn anew. One run alone is compared with itself, changed by --attention or
--cache; of several, each has a cache.
"""
_MORE = """
Interval: the text's documents, or blocks of it, are drawn with replacement (a paired bootstrap: both models read each).
Of families: seeds are drawn, too, from Student's distribution around their mean. p is the interval's: below 0.05 where
it is without 0. Classes of words are many, so that one in twenty has an interval without 0 by chance alone.

--tune-cache: each model has the θ and λ that fit it best, and a family those of its first seed. With --combine, the
runs are one without their caches, and have one cache together.

Words: by how often they stand in the baseline's training text; by how far back they last stood in the same text or
document; by their place in line and document; and, of a model with attention, by where it looked most. --tags has
the text's lines with each word as word_TAG. --words common compares models of different vocabularies at the words that
both know; they share out their probability over different words, so that the smaller vocabulary has it easier.
"""
_Cache = tuple[CacheConfig | None, CacheTuning | None]  # and how it was tuned
_UNSURE = "?"
_LOPSIDED = "a few blocks make most of the spread, so that the interval may be too short"
_SUFFIXES = (".html", ".csv", *TABLES, *FIGURES)
_COLUMNS = ("run", "baseline", "sorted_by", "class", "tokens", "difference", "low", "high", "part")


@dataclass(frozen=True)
class _Side:
    """A model, or a family, that is still to be loaded."""

    name: str
    runs: Sequence[Path]
    attention: str | None = None
    cached: bool = False
    combined: bool = False


def run(arguments: list[str]) -> None:
    options = _parsed(arguments)
    sides = _sides(options)
    check_cache(options)
    for side in sides:
        check_hf(side.runs[0], options)
    check_output(options.out, own_texts(options))
    if options.out is not None:
        checked_suffix(options.out, _SUFFIXES)
    first = _first(sides, options)
    for folder in {path.resolve(): path for side in sides for path in side.runs}.values():
        note_unfinished(folder)
    if options.corpus == "-":
        options.corpus = standard_input()
    corpus, options.split = corpus_of(first, options)
    text = shared_text(first, corpus, options.split, options.state, options.tags)
    asked = choose_cache(first, options)  # refused before anything is read
    read, caches = [], []
    for side in sides:
        own = asked if side.runs == sides[0].runs and not side.combined else None
        text, bits, cache = _read(side, first, corpus, text, own, options)
        read.append(bits)
        caches.append(cache)
    baseline, *others = read
    notes = [*corpus.notes]
    if baseline.protocol is not None and baseline.protocol.predict_first:
        what = "never learnt to predict the first word of a line, and is measured at it, too"
        notes += [f"{one.name} {what}" for one in others if one.protocol and not one.protocol.predict_first]
    found = [compare(text, baseline, other) for other in others]
    if options.out is not None:
        _write(found, text, baseline, options.out)
    if options.json:
        out_json({**_fields(found, text, baseline, sides, caches), "notes": notes})
        return
    described = [f"{side.name}: {cache.description}" for side, (cache, _) in zip(sides, caches, strict=True) if cache]
    _print(found, text, baseline, [*notes, *described])
    if options.out is not None:
        out(f"wrote {options.out}")


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("compare", _DESCRIPTION, more=_MORE)
    text = "a run's folder, one with seed-1 and so on (a family), NAME.arpa[.gz] or hf:FOLDER; the first: the baseline"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help=text)
    parser.add_device()
    parser.add_corpus()
    text = "a word's context: the whole split, its document, its line (default: as the models were trained)"
    parser.add_argument("--state", choices=("auto", "carry", "document", "line"), default="auto", help=text)
    text = "models of different vocabularies: compare them at the words that all know"
    parser.add_argument("--words", choices=("common",), help=text)
    text = "parts of speech: a file with the text's lines, each word as word_TAG"
    parser.add_argument("--tags", type=Path, metavar="FILE", help=text)
    text = "the average of all runs' probabilities (linear) as one model more"
    parser.add_argument("--combine", rare=True, choices=("linear",), help=text)
    parser.add_attention()
    add_cache(parser)
    text = "tables (.md, .tex), the classes (.svg, .png, .pdf, .csv), or the words that gain and lose most (.html)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(tune_weights=False, precision="fp32")
    return parser.parse_intermixed_args(arguments)


# --- what is compared ---


def _sides(options: argparse.Namespace) -> list[_Side]:
    """Return what is compared, the baseline first; refuse what leaves nothing to compare."""
    folders, how = options.runs, options.attention
    sides = []
    for name, folder in zip(_names(folders), folders, strict=True):
        sides.append(_Side(name, [folder] if (folder / CONFIG).exists() else family_members(folder) or [folder]))
    cached = [replace(side, name=f"{side.name}, cache", cached=True) for side in sides]
    cached = [] if options.cache is None else cached
    if len(sides) > 1:
        if how is not None:
            raise InputError(f"--attention: compares one run with itself, so changed; name {folders[0]} alone")
        sides = cached or sides
    else:  # the same run with a lesion, with a cache, or both apart
        if how is not None:
            sides.append(replace(sides[0], name=f"{sides[0].name}, attention {how}", attention=how))
        sides += cached
    if options.combine is not None:
        runs = [path for side in sides for path in side.runs]
        name = f"all as one ({options.combine})"
        sides.append(_Side(name, runs, combined=True, cached=all(side.cached for side in sides)))
    if len(sides) < 2:
        raise InputError(f"{folders[0]}: nothing to compare it with; name another run, or --attention or --cache")
    return sides


def _names(folders: Sequence[Path]) -> list[str]:
    """Name runs as other verbs do; a run may be named twice, to see that it does not differ from itself."""
    once = list(dict.fromkeys(folder.resolve() for folder in folders))
    names, seen = dict(zip(once, run_names(once), strict=True)), set[Path]()
    found = []
    for path in (folder.resolve() for folder in folders):
        found.append(f"{names[path]} again" if path in seen else names[path])
        seen.add(path)
    return found


# --- reading ---


def _first(sides: Sequence[_Side], options: argparse.Namespace) -> Model:
    """Load the baseline; an n-gram model takes the words of the next that has words of its own."""
    runs = [side.runs[0] for side in sides]
    if is_hf(runs[0]) and not all(map(is_hf, runs)):
        raise InputError(f"{runs[0]}: predicts any word, and the words of the first run are compared. Name it last.")
    first = load(runs[0], options.device)
    if not first.any_words:
        return first
    others = (load(run, options.device) for run in runs[1:])
    own = (model for model in others if not model.any_words and model.predicts_words)
    return first.in_words_of(next(own, first))


def _loaded(side: _Side, first: Model, options: argparse.Namespace) -> Iterator[Model]:
    if side.combined:
        yield load_ensemble(side.runs, device=options.device)
        return
    for folder in side.runs:
        model = load(folder, options.device).in_words_of(first)
        if side.attention is not None:
            model = require_weights(model, "--attention").with_attention(side.attention)
        yield model


def _read(
    side: _Side, first: Model, corpus: Corpus, text: SharedText, cache: _Cache | None, options: argparse.Namespace
) -> tuple[SharedText, TokenBits, _Cache]:
    """Read the text with each run of a side, one at a time; return it with the tokens that all know so far.

    The third is the side's cache: the one that is given, or None, and it is chosen for the first run.
    """
    members: list[TokenBits] = []
    chosen: _Cache = None, None
    for model in _loaded(side, first, options):
        read = corpus
        refuse_other_text(first, model, common=options.words is not None)
        if model.vocabulary.hash != first.vocabulary.hash:
            split = None if WHOLE in corpus.splits else options.split
            how = {"data_dir": options.data_dir, "download": options.download, "as_text": options.as_text}
            read = first.texts.corpus(LoadCorpus(options.corpus, split, **how), model.texts)
        refuse_other_context(first, text, model, read, options.split, options.state)
        text = check_alike(first, text, model, read, options.split)
        if side.cached and not members:
            chosen = cache or choose_cache(model, options, first.texts)
        members.append(read_tokens(model, read, options.split, options.state, name=side.name, cache=chosen[0]))
    return text, TokenBits.family(side.name, members), chosen


# --- what is printed and written ---


def _fields(
    found: Sequence[Comparison], text: SharedText, baseline: TokenBits, sides: Sequence[_Side], caches: Sequence[_Cache]
) -> dict[str, Any]:
    each = zip(sides, caches, strict=True)
    more = [{"runs": [str(path) for path in side.runs], **cache_fields(*cache)} for side, cache in each]
    bits = float(baseline.by_run(text.known).mean())
    return {
        "text": text.name,
        "protocol": text.protocol,
        "tokens": len(text.ids),
        "compared": int(text.known.sum()),
        "blocks": text.blocks.description,
        "baseline": {
            "name": baseline.name,
            "bits": bits,
            "bits_by_run": baseline.by_run(text.known).tolist(),
            "perplexity": perplexity(bits * math.log(2)),
            **more[0],
        },
        "comparisons": [{**one.to_json(), **how} for one, how in zip(found, more[1:], strict=True)],
    }


def _families(found: Sequence[Comparison], baseline: TokenBits) -> bool:
    return max(len(baseline.bits), *(one.runs for one in found)) > 1


def _print(found: Sequence[Comparison], text: SharedText, baseline: TokenBits, notes: Sequence[str]) -> None:
    paragraph(*notes)
    kept, tokens = int(text.known.sum()), len(text.ids)
    only = "" if kept == tokens else f", {kept:,} of them compared: those that every model knows"
    seeds = " and from the seeds" * _families(found, baseline)
    table(
        [
            ("text", f"{text.name}: {tokens:,} tokens{only}"),
            ("protocol", text.protocol),
            ("intervals", f"95 %, drawn from {text.blocks.description}{seeds}"),
        ]
    )
    for each in _tables(found, text, baseline):
        out()
        grid(*each)
    if not all(map(_is_sure, _classes(found))):
        paragraph(f"– in fewer than {FEWEST_BLOCKS} of the blocks that intervals are drawn from")
    if any(row.lopsided and _is_sure(row) for row in _classes(found)):
        paragraph(f"{_UNSURE} {_LOPSIDED}")
    if text.counts is None:
        where = "the baseline's training text is not there (--data-dir names the folder that holds it now)"
        note(f"note: {where}, so that words are not sorted by their frequency")


def _tables(found: Sequence[Comparison], text: SharedText, baseline: TokenBits) -> Iterator[Grid]:
    bits, families = float(baseline.by_run(text.known).mean()), _families(found, baseline)
    seeds, ppl = ["seeds"] * families, shown(perplexity(bits * math.log(2)))
    rows = [[baseline.name, *[str(len(baseline.bits))] * families, f"{bits:.3f}", ppl, "", "", ""]]
    for one in found:
        whole, p = one.whole, of_chance(one.p)
        numbers = [f"{one.bits:.3f}", shown(one.perplexity), signed(whole.difference), _interval(whole), p]
        rows.append([one.name, *[str(one.runs)] * families, *numbers])
    yield ["", *seeds, "bits", "perplexity", "difference", "95 %", "p"], rows, None
    for one in found:
        rows = []
        for title, classes in one.where.items():
            rows.append([title, "", "", "", ""])
            rows += [[f"  {row.name}", *_cells(row)] for row in classes]
        title = f"{one.name} − {baseline.name}, bits a token; part: of the difference, over all tokens"
        yield ["", "tokens", "difference", "95 %", "part"], rows, title


def _cells(row: ClassDifference) -> list[str]:
    return [f"{row.tokens:,}", signed(row.difference), _interval(row), signed(row.part)]


def _interval(row: ClassDifference) -> str:
    low, high = map(signed, row.interval)
    return f"{_UNSURE * row.lopsided}{low} to {high}" if _is_sure(row) else "–"


def _write(found: Sequence[Comparison], text: SharedText, baseline: TokenBits, path: Path) -> None:
    suffix = checked_suffix(path, _SUFFIXES)
    if suffix == ".html":
        write_whole(path, render_comparison(found, baseline.name, text.name).encode("utf-8"))
        return
    if suffix in TABLES:
        write_whole(path, grids_bytes(_tables(found, text, baseline), suffix))
        return
    if suffix == ".csv":
        table_rows = (
            (one.name, baseline.name, title, row.name, row.tokens, row.difference, *row.interval, row.part)
            for one in found
            for title, classes in {"all": [one.whole], **one.where}.items()
            for row in classes
        )
        write_whole(path, table_bytes(_COLUMNS, table_rows))
        return
    rows, panels = _rows(found), []
    if not rows:
        few = f"no class of words is in {FEWEST_BLOCKS} of the blocks that intervals are drawn from"
        raise InputError(f"{path}: {few}; take a longer text, or write .html")
    for one in found:
        each = ((title, row) for title, classes in one.where.items() for row in classes)
        values = {(title, row.name): Value(row.difference, *row.interval) for title, row in each if _is_sure(row)}
        panels.append((one.name, [values.get(row) for row in rows]))
    title = f"Bits a token beside {baseline.name}"
    caption = f"{text.name}. Left of 0 the model is better. Whiskers: 95 % intervals; classes without one are left out."
    if unsure := [row.name for row in _classes(found) if row.lopsided and _is_sure(row)]:
        caption += f" Of {', '.join(dict.fromkeys(unsure))} {_LOPSIDED}."
    write_whole(path, figure_bytes(differences_figure(title, rows, panels, caption), suffix))


def _classes(found: Sequence[Comparison]) -> list[ClassDifference]:
    return [row for one in found for row in (one.whole, *chain.from_iterable(one.where.values()))]


def _is_sure(row: ClassDifference) -> bool:
    return math.isfinite(row.interval[0])


def _rows(found: Sequence[Comparison]) -> list[tuple[str, str]]:
    names: dict[str, dict[str, None]] = {}
    for one in found:
        for title, classes in one.where.items():
            names.setdefault(title, {}).update(dict.fromkeys(row.name for row in classes if _is_sure(row)))
    return [(title, name) for title, of in names.items() for name in of]
