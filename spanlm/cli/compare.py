"""`spanlm compare RUN …`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spanlm.analysis.compare import (
    ClassDifference,
    Comparison,
    SharedText,
    TokenBits,
    compare,
    read_tokens,
    refuse_other_text,
    shared_text,
    shared_with,
)
from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import FIGURES, RowsPanel, Value, figure_bytes, rows_figure
from spanlm.analysis.pages import render_comparison
from spanlm.analysis.questions import read_answers
from spanlm.cli.adaptation import cache_fields, check_cache, choose_cache
from spanlm.cli.family import named_families
from spanlm.cli.options import (
    check_hf,
    check_output,
    corpus_of,
    corpus_request,
    note_unfinished,
    own_texts,
    standard_input,
)
from spanlm.cli.parser import field_values, refuse_given
from spanlm.cli.question_report import QuestionReport
from spanlm.cli.render import Progress, grid, note, out, out_json, paragraph, table
from spanlm.data.cbt import read_questions
from spanlm.data.corpora import WHOLE, Corpus
from spanlm.errors import InputError, named
from spanlm.runs.ensemble import load_ensemble
from spanlm.runs.loading import load
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.cache import CacheTuning
from spanlm.scoring.options import CacheConfig, ClozeOptions
from spanlm.scoring.resampling import FEWEST_BLOCKS, of_chance, signed
from spanlm.scoring.tally import perplexity, shown
from spanlm.store.files import is_hf
from spanlm.store.plain import TABLES, Grid, grids_bytes, table_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Cache = tuple[CacheConfig | None, CacheTuning | None]  # a cache and the search that chose it
T = TypeVar("T")
_UNSURE = "?"
_LOPSIDED = "a few blocks make most of the spread, so that the interval may be too short"
_OF_TEXTS = ("corpus", "split", "state", "words", "spell_unknown", "tags", "cache", "data_dir", "download", "as_text")
_SUFFIXES = (".html", ".csv", *TABLES, *FIGURES)
_COLUMNS = ("run", "baseline", "sorted_by", "class", "tokens", "difference", "low", "high", "part")


@dataclass(frozen=True)
class _Side:
    """A model or a family to compare, not loaded yet."""

    name: str
    runs: Sequence[Path]
    attention: str | None = None
    cached: bool = False
    combined: bool = False


def run(options: argparse.Namespace) -> None:
    sides = _sides(options)
    if options.questions:
        _compare_answers(sides, options)
        return
    refuse_given(options, "cloze", f"is of {named('questions')}. Add it")
    check_cache(options)
    for name in ("cache", "words"):
        if options.spell_unknown and getattr(options, name) is not None:
            raise InputError(f"--spell-unknown and --{name} do not go together: take one")
    for side in sides:
        check_hf(side.runs[0], options)
    check_output(options.out, own_texts(options), suffixes=_SUFFIXES)
    first = _first(sides, options)
    for folder in {path.resolve(): path for side in sides for path in side.runs}.values():
        note_unfinished(folder)
    if options.corpus == "-":
        options.corpus = standard_input()
    corpus, options.split = corpus_of(first, options)
    text = shared_text(first, corpus, options.split, options.state, options.tags, written=options.spell_unknown)
    cache_of_first = choose_cache(first, options)  # rejects bad options before any text is read
    models, caches = [], []
    for side in sides:
        cache = cache_of_first if side.runs == sides[0].runs and not side.combined else None
        text, bits, cache = _read(side, first, corpus, text, cache, options)
        models.append(bits)
        caches.append(cache)
    baseline, *others = models
    notes = [*corpus.notes]
    if baseline.protocol is not None and baseline.protocol.predict_first:
        why = "never learnt to predict the first word of a line, and is measured at it, too"
        notes += [f"{model.name} {why}" for model in others if model.protocol and not model.protocol.predict_first]
    for model in models:
        if model.protocol is not None and (spelling := model.protocol.spelling) is not None:
            notes += [f"{model.name}: {line}" for line in (spelling.description, *spelling.notes)]
    report = _Report(text, baseline, [compare(text, baseline, other) for other in others])
    if options.out is not None:
        report.write(options.out)
    if options.json:
        out_json({**report.fields(sides, caches), "notes": notes})
        return
    described = [f"{side.name}: {cache.description}" for side, (cache, _) in zip(sides, caches, strict=True) if cache]
    report.print([*notes, *described])
    if options.out is not None:
        out(f"wrote {options.out}")


def _compare_answers(sides: Sequence[_Side], options: argparse.Namespace) -> None:
    """Compare answers to questions instead of the tokens of a text."""
    for name in _OF_TEXTS:
        if getattr(options, name) != options.parser.get_default(name):
            raise InputError(name, limit=f"is of texts. Leave it or {named('questions')} out")
    refuse_given(options, "cache", f"is of texts. Leave it or {named('questions')} out")
    check_output(options.out, options.questions, suffixes=TABLES)
    for side in sides:
        if len(side.runs) > 1 and not side.combined:
            raise InputError(f"{side.name}: is a family, whose runs answer differently. Name one of its runs.")
        if is_hf(side.runs[0]):
            raise InputError(f"{side.runs[0]}: predicts sub-words, and candidates are words of a vocabulary")
    files = list(dict.fromkeys(options.questions))
    questions = [question for path in files for question in read_questions(path)]
    settings = field_values(options, ClozeOptions, "cloze")
    models = {side.name: model for side in sides for model in _loaded(side, None, options)}
    contexts = {name: ", ".join(model.texts.cloze_contexts(settings.contexts)) for name, model in models.items()}
    if len({*contexts.values()}) > 1:
        ways = " and ".join(f"{way} to {name}" for name, way in contexts.items())
        raise InputError(f"the context of a question is {ways}. Take --context query.")
    for folder in dict.fromkeys(path for side in sides for path in side.runs):
        note_unfinished(folder)
    answers = []
    with Progress(shown=not options.json) as progress:
        for name, model in models.items():
            waiting = _shown(questions, name, progress)
            answers.append(read_answers(model, waiting, settings, name))
    report = QuestionReport(files, questions, answers)
    if options.out is not None:
        write_whole(options.out, grids_bytes(report.tables(), options.out.suffix.lower()))
    if options.json:
        out_json(report.fields([side.runs for side in sides]))
        return
    report.print()
    if options.out is not None:
        out(f"wrote {options.out}")


def _shown(questions: Sequence[T], name: str, progress: Progress) -> Iterator[T]:
    for number, question in enumerate(questions):
        progress.show(name, number, len(questions), place=f"question {number + 1:,} of {len(questions):,}")
        yield question


# --- what is compared ---


def _sides(options: argparse.Namespace) -> list[_Side]:
    """Return the sides of the comparison, the baseline first; InputError if there are fewer than two."""
    folders, lesion = options.runs, options.attention
    sides = [_Side(name, runs) for name, runs in named_families(folders).items()]
    cached = [replace(side, name=f"{side.name}, cache", cached=True) for side in sides]
    cached = [] if options.cache is None else cached
    if len(sides) > 1:
        if lesion is not None:
            raise InputError(f"--attention: compares one run with itself, so changed; name {folders[0]} alone")
        sides = cached or sides
    else:  # the same run with a lesion, with a cache, or one side with each
        if lesion is not None:
            sides.append(replace(sides[0], name=f"{sides[0].name}, attention {lesion}", attention=lesion))
        sides += cached
    if options.combine is not None:
        runs = [path for side in sides for path in side.runs]
        name = f"all as one ({options.combine})"
        sides.append(_Side(name, runs, combined=True, cached=all(side.cached for side in sides)))
    if len(sides) < 2:
        ways = "--attention" if options.questions else "--attention or --cache"
        raise InputError(f"{folders[0]}: nothing to compare it with; name another run, or {ways}")
    return sides


# --- reading ---


def _first(sides: Sequence[_Side], options: argparse.Namespace) -> Model:
    """Load the baseline; a model without a vocabulary takes over that of the next run with one."""
    runs = [side.runs[0] for side in sides]
    if is_hf(runs[0]) and not (options.spell_unknown and all(map(is_hf, runs))):
        way = "Name it last, or models of Hugging Face alone with --spell-unknown"
        raise InputError(f"{runs[0]}: predicts any word, and the words of the first run are compared. {way}.")
    first = load(runs[0], options.device)
    if options.spell_unknown or not first.any_words:
        return first
    others = (load(run, options.device) for run in runs[1:])
    with_words = (model for model in others if not model.any_words and model.predicts_words)
    return first.in_words_of(next(with_words, first))


def _loaded(side: _Side, first: Model | None, options: argparse.Namespace) -> Iterator[Model]:
    """Load the runs of a side; a model of any words has those of `first`, or else its own."""
    if side.combined:
        yield load_ensemble(side.runs, device=options.device)
        return
    for folder in side.runs:
        model = load(folder, options.device)
        model = model if first is None or options.spell_unknown else model.in_words_of(first)
        if side.attention is not None:
            model = require_weights(model, "--attention").with_attention(side.attention)
        yield model


def _read(
    side: _Side, first: Model, corpus: Corpus, text: SharedText, cache: _Cache | None, options: argparse.Namespace
) -> tuple[SharedText, TokenBits, _Cache]:
    """Read the text with each run of a side; return the text, the bits of its tokens, and the cache.

    The returned text marks the tokens that all models so far know. Without `cache`, a cached side tunes its own.
    """
    members: list[TokenBits] = []
    chosen: _Cache = None, None
    for model in _loaded(side, first, options):
        corpus_read = corpus
        if options.words is None and not options.spell_unknown:
            refuse_other_text(first, model)
        if options.spell_unknown or model.vocabulary.hash != first.vocabulary.hash:
            split = None if WHOLE in corpus.splits else options.split
            corpus_read = first.texts.corpus(corpus_request(options, split), model.texts)
        text = shared_with(text, first, model, corpus_read, options.split, options.state)
        if side.cached and not members:
            chosen = cache or choose_cache(model, options, first.texts)
        mode: dict[str, Any] = {"cache": chosen[0], "written": options.spell_unknown}
        members.append(read_tokens(model, corpus_read, options.split, options.state, name=side.name, **mode))
    return text, TokenBits.family(side.name, members), chosen


# --- what is printed and written ---


@dataclass(frozen=True)
class _Report:
    text: SharedText
    baseline: TokenBits
    comparisons: Sequence[Comparison]

    @property
    def bits(self) -> float:
        return float(self.baseline.by_run(self.text.known).mean())

    @property
    def families(self) -> bool:
        return max(len(self.baseline.bits), *(comparison.runs for comparison in self.comparisons)) > 1

    @property
    def rows(self) -> list[ClassDifference]:
        return [row for comparison in self.comparisons for _, row in comparison.rows]

    def fields(self, sides: Sequence[_Side], caches: Sequence[_Cache]) -> dict[str, Any]:
        pairs = zip(sides, caches, strict=True)
        more = [{"runs": [str(path) for path in side.runs], **cache_fields(*cache)} for side, cache in pairs]
        return {
            "text": self.text.name,
            "protocol": self.text.protocol,
            "tokens": len(self.text.ids),
            "unit": self.text.unit,
            "compared": int(self.text.known.sum()),
            "blocks": self.text.blocks.description,
            "baseline": {
                "name": self.baseline.name,
                "bits": self.bits,
                "bits_by_run": self.baseline.by_run(self.text.known).tolist(),
                "perplexity": perplexity(self.bits * math.log(2)),
                **more[0],
            },
            "comparisons": [
                {**other.to_json(), **side} for other, side in zip(self.comparisons, more[1:], strict=True)
            ],
        }

    def print(self, notes: Sequence[str]) -> None:
        paragraph(*notes)
        compared, tokens = int(self.text.known.sum()), len(self.text.ids)
        only = "" if compared == tokens else f", {compared:,} of them compared: those that every model knows"
        ends = "" if self.text.unit == "token" else " and line ends"
        seeds = " and from the seeds" * self.families
        table(
            [
                ("text", f"{self.text.name}: {tokens:,} {self.text.unit}s{ends}{only}"),
                ("protocol", self.text.protocol),
                ("intervals", f"95 %, drawn from {self.text.blocks.description}{seeds}"),
            ]
        )
        for cells in self.tables():
            out()
            grid(*cells)
        if not all(row.sure for row in self.rows):
            paragraph(f"– in fewer than {FEWEST_BLOCKS} of the blocks that intervals are drawn from")
        if self.lopsided:
            paragraph(f"{_UNSURE} {_LOPSIDED}")
        if self.text.counts is None:
            where = "the baseline's training text is not there (--data-dir names the folder that holds it now)"
            note(f"note: {where}, so that words are not sorted by their frequency")

    @property
    def lopsided(self) -> list[str]:
        return [row.name for row in self.rows if row.lopsided and row.sure]

    def tables(self) -> Iterator[Grid]:
        unit = self.text.unit
        seeds, ppl = ["seeds"] * self.families, shown(perplexity(self.bits * math.log(2)))
        rows = [
            [self.baseline.name, *[str(len(self.baseline.bits))] * self.families, f"{self.bits:.3f}", ppl, "", "", ""]
        ]
        for other in self.comparisons:
            numbers = [
                f"{other.bits:.3f}",
                shown(other.perplexity),
                signed(other.whole.difference),
                _interval(other.whole),
            ]
            rows.append([other.name, *[str(other.runs)] * self.families, *numbers, of_chance(other.p)])
        yield ["", *seeds, "bits", "perplexity", "difference", "95 %", "p"], rows, None
        for other in self.comparisons:
            rows = []
            for title, classes in other.where.items():
                rows.append([title, "", "", "", ""])
                for row in classes:
                    numbers = [f"{row.tokens:,}", signed(row.difference), _interval(row), signed(row.part)]
                    rows.append([f"  {row.name}", *numbers])
            title = f"{other.name} − {self.baseline.name}, bits a {unit}; part: of the difference, over all {unit}s"
            yield ["", f"{unit}s", "difference", "95 %", "part"], rows, title

    def write(self, path: Path) -> None:
        suffix = path.suffix.lower()
        if suffix == ".html":
            content = render_comparison(self.comparisons, self.baseline.name, self.text.name).encode("utf-8")
        elif suffix in TABLES:
            content = grids_bytes(self.tables(), suffix)
        elif suffix == ".csv":
            rows = (
                (other.name, self.baseline.name, title, row.name, row.tokens, row.difference, *row.interval, row.part)
                for other in self.comparisons
                for title, row in other.rows
            )
            content = table_bytes(_COLUMNS, rows)
        else:
            content = figure_bytes(self.figure(path), suffix)
        write_whole(path, content)

    def figure(self, path: Path) -> Figure:
        """Draw the classes that have an interval, grouped by the way that the tokens are sorted."""
        names: dict[str, dict[str, None]] = {}
        for other in self.comparisons:
            for title, row in other.rows[1:]:
                if row.sure:
                    names.setdefault(title, {})[row.name] = None
        if not names:
            few = f"no class of words is in {FEWEST_BLOCKS} of the blocks that intervals are drawn from"
            raise InputError(f"{path}: {few}; take a longer text, or write .html")
        lines = [(title, name) for title, classes in names.items() for name in ("", *classes)]
        panels = []
        for other in self.comparisons:
            values = {
                (title, row.name): Value(row.difference, *row.interval) for title, row in other.rows[1:] if row.sure
            }
            panels.append(RowsPanel(other.name, tuple(map(values.get, lines)), digits=None))
        caption = f"{self.text.name}. Left of 0 the model is better."
        caption += " Whiskers: 95 % intervals; classes without one are left out."
        if unsure := self.lopsided:
            caption += f" Of {', '.join(dict.fromkeys(unsure))} {_LOPSIDED}."
        headings = [number for number, (_, name) in enumerate(lines) if not name]
        rows = [name or title for title, name in lines]
        title = f"Bits a {self.text.unit} beside {self.baseline.name}"
        return rows_figure(title, rows, panels, caption, zero=True, headings=headings)


def _interval(row: ClassDifference) -> str:
    low, high = map(signed, row.interval)
    return f"{_UNSURE * row.lopsided}{low} to {high}" if row.sure else "–"
