"""`spanlm attend RUN`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, NamedTuple

from spanlm.analysis import export
from spanlm.analysis.attend import Excerpt, attention_by_lag, attention_flatness, excerpt
from spanlm.analysis.curves import EXPLAINED, read_utilisation, spread_epochs
from spanlm.analysis.figures import FIGURES, check_series
from spanlm.analysis.flatness import Flatness, mean_flatness
from spanlm.analysis.heat_maps import marked
from spanlm.analysis.lags import LEAST_SHOWN, RECURRENT_MEMORY, MeasuredLags, check_alike, lag_columns, notes, signed
from spanlm.analysis.live_page import render_live
from spanlm.cli.evaluation_report import departures
from spanlm.cli.model_verbs import WORDS
from spanlm.cli.options import check_gate, check_output, corpus_of, load_run, own_texts, run_names, standard_input
from spanlm.cli.render import grid, note, out, paragraph, table
from spanlm.config import RunConfig
from spanlm.data.batching import Batcher
from spanlm.data.pieces import words_of
from spanlm.data.tables import RowNotes, first_line_kind, read_table, refuse_without_column, table_kind
from spanlm.data.text import Text
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, require
from spanlm.models.memories import KeyValueConfig, RecurrentMemoryConfig
from spanlm.runs.model import TrainedModel, require_weights
from spanlm.runs.texts import text_to_attend
from spanlm.scoring import attention
from spanlm.scoring.words import places_of
from spanlm.store.plain import several

MOST_WORDS = 20_000
"""Words of one text: a browser is slow with a longer page, and its file is large."""
MOST_SENTENCE_WORDS = 120
"""Words of a sentence that fit on a figure."""
NEAREST = 15
"""Lags shown for a memory that grows with the text: as many as the windows of Daniluk et al. have."""
_FLATNESS = "entropy of a row over that of equal weights: 1 is flat, 0 all on one word"

LOOKS = 8
"""Attended words or spans to print."""
CONTEXT = 16
"""Words of context to print."""
EPOCHS = 30
"""Epochs to print; a file has all of them."""


def run(options: argparse.Namespace) -> None:
    view = _checked_view(options)
    if options.corpus == "-":  # several runs may read it
        options.corpus = standard_input()
    view.show(options)
    if options.out is not None:
        out(f"wrote {options.out}")


def _value(options: argparse.Namespace, name: str) -> Any:
    return vars(options)[name.removeprefix("--").replace("-", "_")]


def _checked_view(options: argparse.Namespace) -> View:
    """Return the view; InputError: none, several, or options that it does not use, before anything is loaded.

    `_text` checks the suffix of --out for a text, because the legal ones depend on the model.
    """
    chosen = [name for name in VIEWS if _value(options, name) is not None and _value(options, name) is not False]
    if not chosen:
        raise InputError(f"one of {' '.join(VIEWS)} is required (see `spanlm attend --help`)")
    if len(chosen) > 1 and chosen != ["--document", "--from"]:
        raise InputError(f"{' and '.join(chosen)} do not go together: take one (or --document with --from)")
    view_name, count = chosen[0], len(options.runs)
    view = VIEWS[view_name]
    for name in (*_CORPUS, *_TEXT, "--words", "--column", "--strict"):
        if (value := _value(options, name)) is not None and name not in view.uses:
            users = [user for user, other in VIEWS.items() if name in other.uses]
            raise InputError(name, value, f"is for {' and '.join(users)}, not for {view_name}")
    if options.words is not None:
        require(1 <= options.words <= MOST_WORDS, "--words", options.words, f"from 1 to {MOST_WORDS:,}")
    require(options.top is None or options.top >= 1, "--top", options.top, "at least 1")
    if not view.suffixes and count > 1:
        several = [name for name, other in VIEWS.items() if other.suffixes]
        raise InputError(
            f"{count} runs: {view_name} takes one; several stand side by side with {' and '.join(several)}"
        )
    check_gate(options.gate_temperature, count)
    if options.column is not None and options.state == "document":
        raise InputError("--state=document: rows of a table are no documents; take line or carry")
    suffix = check_output(options.out, own_texts(options), suffixes=view.suffixes)
    if suffix in FIGURES and view_name != "--sentence":  # its figure has a panel for each run
        check_series(count, "write .csv or .json")
    return view


# --- a text ---


def _text(options: argparse.Namespace) -> None:
    """Read a text; write the attention at every word to --out, or print the attention at the last word."""
    loaded = load_run(options.runs[0], options.device, options.gate_temperature, options.as_written)
    model = require_weights(loaded, "attend")
    parts = attention.has_parts(model.model)
    suffixes = export.attention_suffixes(options.out, parts)
    if options.out is not None:
        export.checked_suffix(options.out, suffixes)
    elif not parts or options.rows == "words":
        attention.check_attends(model.model)
        raise InputError(f"--out is missing: name a file that ends in {export.listed(suffixes)}")
    text = _excerpt(model, options)
    settings: dict[str, Any] = {"expected": options.top, "first_token": text.first, "starts": text.starts}
    settings |= {**model.headings(text.source), "places": text.places}
    record = _record(model, text.words, options.rows, settings)
    if options.out is not None:
        export.save_attention(record, options.out)
    else:
        print_record(record, model.gate_temperature)
    note(*departures(model))


def _record(
    model: TrainedModel, words: list[str], rows: str | None, settings: Mapping[str, Any]
) -> attention.AttentionRecord:
    """Record the attention at words that the model reads; `rows` as --rows."""
    texts = model.texts
    reading = {**settings, "predict_first": texts.predict_first, "word_ends": texts.tokenizer.word_ends}
    record = attention.attention_record(model.model, model.vocabulary, words, **reading)
    return attention.by_written_word(record, texts.tokenizer) if rows == "words" else record


def _excerpt(model: TrainedModel, options: argparse.Namespace) -> Excerpt:
    """Return the words to read; by default the state is reset at each line, or in a corpus as in training."""
    if options.state is not None:
        model.texts.refuse_context(options.state)
    if options.text is None and options.file is None:
        corpus, split = corpus_of(model, options)
        start, length = _value(options, "--from"), options.words or WORDS
        stretch = excerpt(corpus, split, document=options.document, start=start, length=length)
        line_starts = [0, *(at for at, word in enumerate(stretch.words[:-1], 1) if word == EOS)]
        starts = {"carry": [0], "document": stretch.starts, "line": line_starts}
        return replace(stretch, starts=starts[options.state or model.texts.protocol(corpus, split).context])
    lines, numbers = (options.text.split("\n"), []) if options.text is not None else _lines(model, options)
    # every line has at least an end, so this many are enough to refuse a huge file
    pieces = list(islice(model.texts.pieces(lines), MOST_WORDS + 1))
    words, starts_of_lines = text_to_attend(pieces, options.state or "line")
    if options.file is not None and max(len(words), len(pieces)) > MOST_WORDS:
        file = options.file
        raise InputError(f"--file={file}: more than {MOST_WORDS:,} words and line ends; attend to a part of it")
    if any(word not in model.vocabulary for word in words):
        note(*(f"note: {line}" for line in model.texts.unk_notes()))
    source = "a text" if options.file is None else options.file.name
    places = []
    if numbers and not isinstance(lines, Text):  # the rows of a table
        items = places_of(pieces, [*model.texts.unmarked(lines)], model.texts.cut)[: len(words)]
        places = [(numbers[item - 1], token, word) for item, token, word in items]
    return Excerpt(words, source, 1, starts_of_lines, places)


def _lines(model: TrainedModel, options: argparse.Namespace) -> tuple[Text | list[str], list[int]]:
    """Return the text of --file, or the cells of its --column with their row numbers."""
    kind = table_kind(options.file)
    if options.column is None:
        if kind is not None and not options.as_text:
            refuse_without_column(options.file, kind, "--column")
        return Text(options.file, as_text=options.as_text), []
    if (kind := kind or first_line_kind(options.file)) is None:
        raise InputError(f"--file={options.file}: is no table that has a column {options.column}: CSV, TSV, JSON lines")
    bad, column = RowNotes(strict=bool(options.strict)), options.column
    settings: dict[str, Any] = {"check": lambda row: model.tokenize(model.texts.unmarked_text(row.values[column]))}
    # every row has at least one word, so this many are enough to refuse a huge file
    rows = list(islice(read_table(options.file, kind, [column], bad=bad, **settings), MOST_WORDS + 1))
    note(*bad.lines())
    return [row.values[column] for row in rows], [row.number for row in rows]


# --- several runs side by side ---


def _models(options: argparse.Namespace, most: float = math.inf) -> dict[str, TrainedModel]:
    """Load the runs by name; reject models without attention, or with slots of more than `most` words."""
    settings = options.device, None, options.as_written
    models = [require_weights(load_run(folder, *settings), "attend") for folder in options.runs]
    for model in models:
        try:
            span = attention.check_attends(model.model).stride
        except InputError as error:
            raise error.within(model.folder) from None
        if span > most:
            raise InputError(
                f"--sentence: shows the weights of words, and {model.folder} looks at spans of {span}; "
                "--text, --file, --document and --from show those"
            )
    return dict(zip(run_names([model.folder for model in models]), models, strict=True))


def _sentences(options: argparse.Namespace) -> None:
    if options.out is not None and options.out.suffix.lower() == ".html":  # the page of a text shows a sentence a line
        if len(options.runs) > 1:
            raise InputError(
                f"{options.out}: a page shows one run; end it in {export.listed(export.SENTENCE_SUFFIXES)}"
            )
        options.text = "\n".join(options.sentence)
        _text(options)
        return
    models = _models(options, most=1)
    sentences = [
        [_sentence(name, model, text, options.rows) for name, model in models.items()] for text in options.sentence
    ]
    if options.out is None:
        for record in chain.from_iterable(sentences):
            paragraph(f"{record.title}: {record.about}; next word, and where the weight was, in percent")
            table([(marked(record, target), _weights(record, t)) for t, target in enumerate(record.targets)])
            out()
    groups = [(f"sentence {number}", [[record] for record in row]) for number, row in enumerate(sentences, 1)]
    if len(sentences) > 1:
        groups.append(("all sentences", [[*records] for records in zip(*sentences, strict=True)]))
    means = [(name, map(mean_flatness, group)) for name, group in groups]
    cells = [[name, *(f"{mean.overall.flatness:.3f}" if mean else "-" for mean in row)] for name, row in means]
    grid(["", *models], cells, f"flatness ({_FLATNESS})")
    if options.out is not None:
        export.save_sentences(sentences, options.out)


def _sentence(name: str, model: TrainedModel, text: str, rows: str | None) -> attention.AttentionRecord:
    """Read one sentence and its <eos> from an empty state."""
    words = words_of(model.texts.pieces([text]))[:-1]
    if EOS in words:
        raise InputError(
            f"--sentence={text!r}: is {1 + words.count(EOS)} sentences to a model trained on text cut into sentences "
            "(data.lines=sentences); give each with its own --sentence"
        )
    require(len(words) > 0, "sentence", "''", "at least one word")
    if len(words) > MOST_SENTENCE_WORDS:
        raise InputError(
            f"a sentence of {len(words):,} words: must be at most {MOST_SENTENCE_WORDS}; --text takes longer texts"
        )
    about = model.config.model.memory.description + model.recency
    return _record(model, [*words, EOS], rows, {"title": name, "about": about})


def _weights(record: attention.AttentionRecord, position: int) -> str:
    looks = record.looks(position)
    weights = [f"{marked(record, record.words_of(look))} {100 * look.weight:.0f}" for look in looks[:LOOKS]]
    return ", ".join([*weights, *["…"] * (len(looks) > LOOKS)]) or "–"


def _split(model: TrainedModel, options: argparse.Namespace) -> tuple[str, Batcher]:
    corpus, split = corpus_of(model, options)
    return f"{corpus.name} {split}", model.texts.protocol(corpus, split).batcher(corpus, split)


def _flatness(options: argparse.Namespace) -> None:
    measured = {}
    for name, model in _models(options).items():
        text, batcher = _split(model, options)
        measured[name] = (text, attention_flatness(model.model, batcher))
    print_flatness(measured)
    if options.out is not None:
        export.save_flatness(measured, options.out)


def _by_lag(options: argparse.Namespace) -> None:
    models, measured = _models(options), []
    check_alike({name: attention.check_attends(model.model) for name, model in models.items()})
    for name, model in models.items():
        text, batcher = _split(model, options)
        nearest = NEAREST if model.config.model.memory.slots is None else None
        profile = attention_by_lag(model.model, batcher, nearest)
        measured.append(MeasuredLags(name, text, profile, published_name(model.config)))
    header, *rows = lag_columns(measured)
    grid(header, rows, "mean attention by lag, percent")
    paragraph(*notes(measured), *(f"{name}{model.recency}." for name, model in models.items() if model.recency))
    if options.out is not None:
        export.save_lags(measured, options.out)


def published_name(config: RunConfig) -> str | None:
    """Return the row of Figure 3b of Daniluk et al. (2017) to compare this model with."""
    match config.model.memory:
        case KeyValueConfig(recency="none") as memory:
            return memory.name
        case RecurrentMemoryConfig(temporal=True, composition="gated"):
            return RECURRENT_MEMORY
    return None


def _by_epoch(options: argparse.Namespace) -> None:
    """Show the use of the span buffer by epoch, from the logs of the runs; no model is loaded."""
    measured = [*map(read_utilisation, options.runs, run_names(options.runs))]
    header = ["epoch", *(head for run in measured for head in (run.name, "oracle"))]
    columns = [shares for run in measured for shares in (run.learned, run.oracle)]
    rows = [
        [str(epoch + 1), *(f"{100 * shares[epoch]:.1f}" if epoch < len(shares) else "" for shares in columns)]
        for epoch in spread_epochs(max(map(len, measured)), EPOCHS)
    ]
    grid(header, rows, "use of the span buffer on valid, in percent")
    paragraph(EXPLAINED)
    if options.out is not None:
        export.save_utilisation(measured, options.out)


# --- what is printed ---


def print_flatness(measured: Mapping[str, tuple[str, Flatness]]) -> None:
    paragraph(f"flatness of attention ({_FLATNESS})")
    for name, (text, flatness) in measured.items():
        slots, nearest = ("words", f"at {signed(flatness.nearest_lag)}") if flatness.span == 1 else ("spans", "newest")
        elsewhere = flatness.overall.on_no_word >= LEAST_SHOWN / 100
        header = [slots, "rows", "flatness", "largest", nearest, "equal", *["on no word"] * elsewhere]
        rows = []
        for row in (*flatness.groups, flatness.overall):
            shares = (row.largest, row.nearest, row.equal, *[row.on_no_word] * elsewhere)
            cells = [f"{100 * share:.1f} %" for share in shares]
            rows.append([str(row.slots), f"{row.rows:,}", f"{row.flatness:.3f}", *cells])
        grid(header, rows, f"{name}, {text}")
        out(f"{flatness.left_out:,} rows without a choice are left out")
    paragraph(
        "largest, at ...: mean share of the largest weight and of the nearest word; equal: of each if all were equal"
    )
    if any(flatness.span > 1 for _, flatness in measured.values()):
        out("newest: mean share of the span that ended last")


# --- a run as a page ---


def _live(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InputError("--out is missing: name a file that ends in .html")
    export.checked_suffix(options.out, (".html",))
    model = require_weights(load_run(options.runs[0], options.device), "attend")
    export.write_whole(options.out, render_live(model).encode())


def print_record(record: attention.AttentionRecord, temperature: float | None) -> None:
    """Print the last position of a record with parts: its context, its attention and each part's prediction."""
    last, parts = len(record) - 1, record.parts
    assert parts is not None  # `_text` writes records without parts to a file
    target, read = record.targets[last], record.words[max(last + 1 - CONTEXT, 0) :]
    paragraph(record.title)
    rows = [("after", " ".join(["…"] * (last + 1 > CONTEXT) + read)), ("came", target)]
    if unknown := [word for word in dict.fromkeys([*read, target]) if word in record.unknown]:
        rows.append(("read as <unk>", " ".join(unknown)))
    guesses = {
        part: ", ".join(f"{word} {chance:.3f}" for word, chance in expected[last])
        + f'; "{target}" {parts.chance[part][last]:.3f}'
        for part, expected in parts.expected.items()
    }
    encoder, buffer, both = guesses
    if parts.there[last]:
        preferred = buffer if parts.preference[last] >= 0.5 else encoder
        shares = f"λ {parts.preference[last]:.3f}, used as {parts.share[last]:.3f} (T {temperature:g})"
        rows += [("gate", f"{shares}: the {preferred} is preferred"), (f"{buffer} alone", guesses[buffer])]
    table([*rows, (f"{encoder} alone", guesses[encoder]), ("both", guesses[both])])
    looks = record.looks(last)
    if not looks:
        out(f"the {buffer} is empty: no span has ended yet")
        return
    out()
    slots = several(len(looks), "word" if record.span == 1 else "span")
    out(f"it looked at {slots}{f'; the {LOOKS} with the largest weights' if len(looks) > LOOKS else ''}:")
    for look in looks[:LOOKS]:
        start, end = look.first + record.first_token, look.last + record.first_token
        place = f"{end:>6}" if record.span == 1 else f"{start:>6}–{end:<6}"
        out(f"  {look.weight:6.1%}  {place}  {record.words_of(look)}")


class View(NamedTuple):
    """A view: its function, the options that it uses, and the suffixes that it writes for several runs."""

    show: Callable[[argparse.Namespace], None]
    uses: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


_CORPUS = ("--corpus", "--split")
_TEXT = ("--gate-temperature", "--top", "--state", "--rows")
_STRETCH = View(_text, (*_CORPUS, *_TEXT, "--words"))
VIEWS = {
    "--text": View(_text, _TEXT),
    "--file": View(_text, (*_TEXT, "--column", "--strict")),
    "--sentence": View(_sentences, ("--rows",), (".html", *export.SENTENCE_SUFFIXES)),
    "--by-lag": View(_by_lag, _CORPUS, export.LAG_SUFFIXES),
    "--flatness": View(_flatness, _CORPUS, export.FLATNESS_SUFFIXES),
    "--document": _STRETCH,
    "--from": _STRETCH,
    "--by-epoch": View(_by_epoch, (), export.UTILISATION_SUFFIXES),
    "--live": View(_live),
}
