"""The tables of the pages by name: which records a table has, and its columns.

Rows of published tables are written by `spanlm.papers`, as its pages have them; the rest are numbers of records.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import fmean
from typing import cast

from results import pages, scaling, speeds
from results.filled import bits_of, cells_of, filled_table, frequency_ppl, of_text, ppl_bits
from results.records import PARTS, Rows, records, rounded
from spanlm.analysis.figures import Value
from spanlm.config import RunConfig
from spanlm.papers.certainty import NONE
from spanlm.papers.paper import Row
from spanlm.papers.registry import PAPERS
from spanlm.papers.table import COLLAPSED, at, in_words, spread
from spanlm.scoring.resampling import signed
from spanlm.store.plain import several


def running_text() -> Rows:
    """Return Table 1 of Salton et al. for models that read a running text."""
    columns = ("scale", "parameters", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test")
    rows = cells_of("salton2017", "ptb-small", "1", columns)
    return [["model", *columns], *([title, *cells] for title, cells in rows.items())]


# --- differences in bits from a control ---

TEXTS = {"ptb-small": "Penn Treebank", "wikitext-2-small": "WikiText-2"}
TEXTS |= {"cbt-small": "Children's books", "wikipedia-small": "Wikipedia articles"}
"""Of which Daniluk et al.'s models are trained, by length."""
FIGURE_2C = tuple(row for table in PAPERS["daniluk2017"].tables if table.name == "2c" for row in table.rows)
ON_THE_DEMO = {"4-gram": "4-gram", "kvp-w5": "Key-Value-Predict, window 5", "attention-w10": "Attention, window 15"}
"""A row of Figure 2c -> that on the demo's text."""
BUFFERS = {"Span buffer": "Span buffer, as printed", "Span buffer, q sees h_t, too": "Span buffer, our reading"}
BUFFERS |= {
    "one span of 2": "Span buffer of one span, our reading",
    "32 spans of 8": "Span buffer of 32 spans, our reading",
}


def _title(row: str) -> str:
    return PAPERS["daniluk2017"].rows[row].title


def _head(text: str, of: str = "") -> str:
    """Name a text with the scale of what was trained on it."""
    return f"{TEXTS[text]}{of} ({records('daniluk2017', text)[0]['scale']})"


@cache
def _of_demo() -> dict[str, str]:
    """Return the same of the demo's text, with the span buffers and the LSTM's cache."""
    rows = {run["row"]: bits_of(run["bits"], run["interval"], run["seeds"]) for run in records("memories", pages.DEMO)}
    (caches,) = (run["caches"] for run in records("demo", "commands") if run["row"] == "caches")
    (plain,) = (run["evaluation"] for run in records("demo", "evaluations") if run["row"] == "runs/demo/lstm test")
    (seeds,) = {run["seeds"] for run in records("memories", pages.DEMO)}
    named = {_title(row): rows.pop(title) for row, title in ON_THE_DEMO.items()}
    rows = {BUFFERS.get(title, title): cell for title, cell in rows.items()}
    cache_gain = bits_of(caches["baseline"]["bits"] - plain["bits_per_token"], (), 1)
    return (
        {_title("lstm"): f"0 ({several(seeds, 'seed')})"}
        | named
        | rows
        | {"LSTM with a cache of 500 words": cache_gain}
    )


def _counted() -> dict[str, dict[str, str]]:
    """Return those of Kneser-Ney models of as many words, which have no seeds: from the mean of the LSTM's, by text."""
    by_text = {"ptb-small": ("ptb-300/mixtures", ("kn5",)), "cbt-small": ("cbt-ngrams", ("kn-5-16k", "kn-5-cache-16k"))}
    gains: dict[str, dict[str, str]] = {}
    for text, (table, rows) in by_text.items():
        control = [run["test"]["nll_per_token"] for run in records("daniluk2017", text) if run["row"] == "lstm"]
        for run in records("daniluk2017", table):
            if run["row"] in rows:
                nats = math.log(run["test"]["perplexity"]) - fmean(control)
                title = f"5-gram Kneser-Ney{' with a cache' if 'cache' in run['row'] else ''}"
                gains.setdefault(text, {})[title] = bits_of(nats / math.log(2), (), 0)
    return gains


def overview() -> Rows:
    """Return what each model is worth on each text: bits a token on test against the LSTM of the same size."""
    counted = _counted()
    columns = {"demo": _of_demo(), **{title: of_text(text) | counted.get(text, {}) for text, title in TEXTS.items()}}
    names = dict.fromkeys(
        (*map(_title, FIGURE_2C), *columns["demo"], *(title for gains in counted.values() for title in gains))
    )
    lines = [
        [name, *(gains.get(name, NONE) for gains in columns.values())]
        for name in sorted(names, key=_title("lstm").__ne__)
    ]
    tokens = {text["row"]: f", {text['train'] / 1e6:.1f}M tokens" for text in records("daniluk2017", "texts")}
    length = records("demo", "evaluations")[0]["train"]
    heads = (_head(text, tokens[text]) for text in TEXTS)
    return [["model", f"demo, {length / 1e6:.2f}M tokens (own size)", *heads], *lines]


SENTENCES = "LSTM without attention, sentence by sentence"
CONTROLS = (
    ("ptb-full", SENTENCES, "lstm", {"single": "Attention over the sentence, single score"}),
    (
        *("ptb-small", SENTENCES, "lstm-ptb"),
        {
            "single-ptb": "Attention over the sentence, single score",
            "combined-ptb": "Attention over the sentence, combined score",
            "mean-ptb": "Equal weights in place of scores",
            "merge-ptb": "The last layer alone (Eq. 7)",
            "lstm-ptb-cache-500": "LSTM with a cache of 500 words",
        },
    ),
    (
        "ptb-small",
        "LSTM of the same recipe, running text",
        "lstm-stream-ptb",
        {"single-stream-ptb": "Attention, single score"},
    ),
    ("ptb-small", "LSTM of Grave et al.", "grave-lstm-ptb", {"grave-lstm-ptb-cache-500": "Neural cache of 500 words"}),
    ("ptb-small", "LSTM of Zaremba et al., medium", "medium", {"pointer-ptb": "Pointer sentinel"}),
)
"""Records of Salton et al. on Penn Treebank: table, what the control is, its row, and the rows that are compared."""


def controls() -> Rows:
    """Return the same of models with another control, all on Penn Treebank."""
    rows = [["compared with (0)", "model", "scale", "bits on test"]]
    for table, title, control, models in CONTROLS:
        every = records("salton2017", table)
        part = "test.without_cache.perplexity" if table == "ptb-full" else "test.perplexity"
        of = {name: [run for run in every if run["row"] == name] for name in (control, *models)}
        for name, model in models.items():
            gain = ppl_bits(of[name], part) - ppl_bits(of[control], part)
            rows.append([title, model, of[name][0]["scale"], bits_of(gain, (), len(of[name]))])
    every = records("li2020", "ptb-small")
    awd, buffer = ([run for run in every if run["row"] == name] for name in ("awd-ptb", "awd-snb-ptb"))
    gain = ppl_bits(buffer, "test.perplexity") - ppl_bits(awd, "test.perplexity")
    rows.append(["AWD-LSTM", "Span buffer, as printed", buffer[0]["scale"], bits_of(gain, (), len(buffer))])
    for run in records("li2020", "reads"):
        if whole := at(run, "test_against_control.whole"):
            name = BUFFERS[run["row"].split(",")[0]]
            rows.append(["AWD-LSTM", name, run["scale"], bits_of(whole["difference"], whole["interval"], run["count"])])
    return rows


# --- tables with a form of their own ---


def _in_order(text: str) -> str:
    """Return how many pairs of rows stand in the paper's order, of how many, and between which in 95 % of the draws."""
    (group,) = filled_table("daniluk2017", text, "2c").groups
    agreed = group.sure and group.sure.agreement([line.row.reported.test_ppl for line in group.trained])
    return "{} of {} ({} to {})".format(agreed[0], agreed[2], *agreed[1]) if agreed else NONE


def beside_the_paper() -> Rows:
    """Return Figure 2c in bits against the LSTM: the paper's, and on each text."""
    printed = {row: cast(float, PAPERS["daniluk2017"].rows[row].reported.test_ppl) for row in FIGURE_2C}
    lines = []
    for row, ppl in printed.items():
        bits = signed(math.log2(ppl / printed["lstm"])) if row != "lstm" else "0"
        lines.append([_title(row), bits, *(of_text(text).get(_title(row), NONE) for text in TEXTS)])
    lines.append(["pairs in the paper's order", NONE, *map(_in_order, TEXTS)])
    return [["model", "paper (its Wikipedia)", *map(_head, TEXTS)], *lines]


TIMED = {"merity2018/awd-ptb": "AWD-LSTM PTB size tied", "yang2018/mos-ptb": "mixture of 15 softmaxes PTB size tied"}
"""Presets whose training step was timed on a GPU at published size, and the name of the timing."""
FULL_SIZE = "published size"


def _at_full_size(row: Row) -> str:
    """Say that a row was not run at its published size, and the hours that a timed step makes of all its epochs."""
    if (name := TIMED.get(row.preset.name)) is None or not isinstance(row.preset.config, RunConfig):
        return "not run"
    training, timing = row.preset.config.training, "spanlm, training fp32"
    epochs = training.epochs + training.finetune.stages * training.finetune.epochs
    (step,) = (
        step for step in records("speed", speeds.GPU[0]) if step["size"].startswith(name) and step["name"] == timing
    )
    hours = epochs * scaling.TRAINING_TOKENS / step["tokens_per_second"] / 3600
    return f"not run: {hours:.1f} h, {step['starts'][0]['device'].removeprefix('NVIDIA ')}"


LARGER = "Penn Treebank (300 units)"


def _of_larger() -> dict[str, str]:
    """Return test perplexities of models with the parameters of an LSTM of 300 units, by title."""
    return {_title(run["row"]): rounded(run["test"]["perplexity"]) for run in records("daniluk2017", "ptb-300")}


def perplexities() -> Rows:
    """Return test perplexities of Figure 2c: the paper's, and on each text."""
    measured = [cells_of("daniluk2017", text, "2c", ("test ppl",)) for text in TEXTS]
    printed, larger = cells_of("daniluk2017", "ptb-small", "2c", ("paper: test",)), _of_larger()
    lines = [
        [title, *paper, *(cells.get(title, [NONE])[0] for cells in measured), larger.get(title, NONE)]
        for title, paper in printed.items()
    ]
    return [["model", "paper (its Wikipedia)", *map(_head, TEXTS), LARGER], *lines]


def orders() -> Rows:
    """Return Figure 2b: test perplexities by N, at two sizes."""
    columns = "scale", "readout", "seeds", "test ppl", "paper: test"
    rows, larger = cells_of("daniluk2017", "ptb-small", "2b", columns), _of_larger()
    lines = ([title, *cells, larger.get(title, NONE)] for title, cells in rows.items())
    return [["model", *columns, LARGER], *lines]


def windows() -> Rows:
    """Return Figure 2a: test perplexities by window, the paper's beside them."""
    by_model: dict[str, dict[str, str]] = {}
    shown = cells_of("daniluk2017", "ptb-small", "2a", ("test ppl", "paper: test", "seeds", "scale"))
    for line in filled_table("daniluk2017", "ptb-small", "2a").lines.values():
        (name, window), (test, paper, seeds, scale) = line.row.curve, shown[line.title]
        mine = test if seeds == "1" else f"{test}, {seeds} seeds"
        by_model.setdefault(name, {"scale": scale}).update({str(window): mine, f"paper: {window}": paper})
    columns = ["scale", *(f"{paper}{window}" for paper in ("", "paper: ") for window in (1, 5, 10, 15))]
    return [["window", *columns], *([name, *(cells.get(x, NONE) for x in columns)] for name, cells in by_model.items())]


def lags() -> Rows:
    """Return where attention looks: at the newest, at the oldest and at the last five words; the paper's beside it."""
    printed = {run["row"]: run["published"] for run in records("daniluk2017", "wikitext-2-small/attention")}
    tables = {"wikipedia-small/readings": "Wikipedia", "wikitext-2-small/attention": "WikiText-2"}
    shares = "newest", "oldest", "last five"
    rows = [["", "scale", *shares, *(f"paper: {name}" for name in shares)]]
    for table, text in tables.items():
        for run in records("daniluk2017", table):
            if percent := at(run.get("by_lag", run), "measured_percent"):
                row = run["row"].removesuffix(", by_lag")
                cells = [
                    f"{x:.1f}"
                    for part in (percent, printed[row]["percent"])
                    for x in (part[-1], part[0], sum(part[-5:]))
                ]
                rows.append([f"{text}: {_title(row)}", run["scale"], *cells])
    return rows


def rungs() -> Rows:
    """Return Table 1 of Li et al., with dynamic evaluation in columns of its own, then what reads otherwise."""
    plain = cells_of("li2020", "ptb-small", "1", ("scale", "seeds", "test ppl", "PoU", "paper: test"))
    dynamic = cells_of("li2020", "ptb-small", "1", ("test ppl", "PoU", "paper: test"), section=1)
    columns = ("scale", "seeds", "test ppl", "dynamic: test", "paper: test; dynamic", "PoU, %; dynamic", FULL_SIZE)
    rows = [["model", *columns]]
    static = {line.title: line.row for line in filled_table("li2020", "ptb-small", "1").groups[0].lines}
    for model, (scale, seeds, test, pou, paper) in plain.items():
        adapted, opened, printed = dynamic[model]
        shares = NONE if pou == NONE else f"{pou}; {opened}"
        full = _at_full_size(static[model])
        rows.append([model, scale, seeds, test, adapted, f"{paper}; {printed}", shares, full])
    for run in (run for run in records("li2020", "reads") if run["test"]):
        name = BUFFERS.get(run["row"].split(",")[0], "AWD-LSTM, float32")
        numbers = rounded(run["test"], 2), NONE, NONE, rounded(run["utilisation"], 1, 100)
        rows.append([name, run["scale"], str(run["count"]), *numbers, NONE])
    return rows


WORST = 10_000
"""The perplexity of a guess among all words, above which a number says no more."""


def _state(share: float | None, collapsed: Sequence[str]) -> str:
    """Say which predictions of a model collapsed, and that its gate never moves."""
    states = [f"{part} {COLLAPSED}" for part in collapsed]
    if share is not None and not 0.005 <= share <= 0.95:
        states.append("gate shut" if share < 0.005 else "gate open")
    return "; ".join(states) or NONE


def taken_apart() -> Rows:
    """Return Table 3 of Li et al., its two ways of evaluation side by side."""
    columns = ("test ppl", "PoU", "paper: test", "collapsed")
    scale = records("li2020", "ptb-small")[0]["scale"]
    left, right = (cells_of("li2020", "ptb-small", "3", columns, section) for section in (0, 1))
    rows = [
        ["model", "scale", "test ppl", "PoU, %", "dynamic: test", "dynamic: PoU, %", "paper, dynamic: test", "state"]
    ]
    for model in left | right:
        (test, pou, _, plain), (*dynamic, adapted) = left.get(model, [NONE] * 4), right.get(model, [NONE] * 4)
        collapsed = dict.fromkeys(part for cell in (plain, adapted) if cell != NONE for part in cell.split(", "))
        state = _state(None if pou == NONE else float(pou) / 100, [*collapsed])
        rows.append([model, scale, test, pou, *dynamic, state])
    return rows


ALIKE = 0.03
"""Readings whose perplexities differ from the printed one's by less are one line of the table."""


def other_readings() -> Rows:
    """Return what other readings of the paper come to on valid, by part."""
    parts = "valid", "encoder", "buffer", "oracle"
    every = records("li2020", "readings")
    (printed,) = (run["valid"] for run in every if run["row"] == "published")
    alike = [run for run in every if run["row"] != "published" and abs(run["valid"] / printed - 1) < ALIKE]
    rows = [["", "scale", *parts, "PoU, %", "oracle PoU, %", "state"]]
    for run in (run for run in every if run not in alike):
        ppls = [run.get(part) for part in parts]
        shown = [f"> {WORST:,}" if ppl is not None and ppl > WORST else rounded(ppl) for ppl in ppls]
        shares = (rounded(run.get(x), 0, 100) for x in ("pou", "oracle_pou"))
        collapsed = [part for part in ("encoder", "buffer") if (run.get(part) or 0) > frequency_ppl()]
        rows.append([run["what"], run["scale"], *shown, *shares, _state(run.get("pou"), collapsed)])
        if run["row"] == "published":
            ranges = (
                f"{rounded(min(x))}–{rounded(max(x))}" for x in ([other[part] for other in alike] for part in parts)
            )
            shares = (
                f"{rounded(min(x), 0, 100)}–{rounded(max(x), 0, 100)}"
                for x in ([other[name] for other in alike] for name in ("pou", "oracle_pou"))
            )
            title = f"{len(alike)} other readings, of precision, spans, states and gradients"
            rows.append([title, run["scale"], *ranges, *shares, NONE])
    return rows


ATTENTIVE = {
    "lstm": "LSTM without attention",
    "single": "Attention, single score",
    "lstm-ptb": "LSTM without attention",
    "single-ptb": "Attention, single score",
    "combined-ptb": "Attention, combined score",
    "mean-ptb": "Equal weights in place of scores",
    "merge-ptb": "The last layer alone (Eq. 7)",
}


def reads() -> Rows:
    """Return what other ways to read and to mix come to, with differences in bits from two controls."""
    whole = "whole.difference", "whole.interval"
    controls = {"no buffer": "against_control", "one span": "against_one_span"}
    rows = [["", "scale", "seeds", "valid ppl", "test ppl"]]
    rows[0] += [f"{part}: bits against {name}" for part in ("valid", "test") for name in controls]
    for family in records("li2020", "reads"):
        cells = [in_words(Value(family["perplexity"], family["from"], family["to"]), 2), rounded(family["test"], 2)]
        for path in (f"{part}{path}" for part in ("", "test_") for path in controls.values()):
            difference, interval = (at(family, f"{path}.{x}") for x in whole)
            cells.append(NONE if difference is None else bits_of(difference, interval, family["count"]))
        rows.append([family["row"], family["scale"], str(family["count"]), *cells])
    return rows


def bounds() -> Rows:
    """Return how near q can come to p with the best weights, and a predictor that does not know the last word."""
    rows = [["q", "scale", "places", "nats behind p", "at the words that came", "behind the blind one", "largest gap"]]
    paths = "behind", "behind at the word that came", "behind the blind", "largest gap"
    for bound in records("li2020", "bound"):
        rows.append(
            [bound["row"], bound["scale"], str(bound["places"]), *(rounded(bound.get(path), 3) for path in paths)]
        )
    return rows


def attentive() -> Rows:
    """Return models that read a sentence at a time: at full size, then at small scale."""
    columns = ("scale", "seeds", "valid ppl", "test ppl", "with a cache: test", "paper's count: test", "paper: test")
    rows = [["model", *columns]]
    every = [*records("salton2017", "ptb-full"), *records("salton2017", "ptb-small")]
    for row, title in ATTENTIVE.items():
        runs = [run for run in every if run["row"] == row]
        cached = [run for run in every if run["row"] == f"{row}-cache-500"]
        full = runs[0]["scale"] == "full"
        plain = [{part: at(run, f"{part}.without_cache") if full else run[part] for part in PARTS} for run in runs]
        values = plain, plain, runs if full else cached, plain
        paths = "valid.perplexity", "test.perplexity", "test.perplexity", "test.salton2017.perplexity"
        cells = [
            in_words(spread(at(x, path) for x in of)) if of else NONE for of, path in zip(values, paths, strict=True)
        ]
        published = PAPERS["salton2017"].rows[f"{row.removesuffix('-ptb')}-ptb"].reported.test_ppl
        rows.append([title, runs[0]["scale"], str(len(runs)), *cells, rounded(published)])
    return rows


CLASSES = "NE", "CN", "V", "P"  # of questions, in the order of the columns


def questions() -> Rows:
    """Return accuracies on CBT-like questions: the figure's rows, and below them the n-gram models'."""
    classes = ("named entities", "common nouns", "verbs", "prepositions")
    columns = (*(f"sentence: {name}" for name in classes), "scale", "test ppl")
    rows = [[title, *cells] for title, cells in cells_of("daniluk2017", "cbt-small", "2d", columns).items()]
    for ngram in records("daniluk2017", "cbt-ngrams"):
        answers = {file["class"]: file["contexts"]["full"]["sentence"] for file in ngram["cloze"]["files"]}
        held = " + cache" if ngram["config"]["ngram"]["cache"] else ""
        model = f"{ngram['config']['ngram']['order']}-gram Kneser-Ney{held}, {ngram['vocabulary_size']:,} words"
        cells = [[rounded(x, 3) for x in (answers[name]["accuracy"], *answers[name]["interval"])] for name in CLASSES]
        shown = (f"{a} [{low}, {high}]" for a, low, high in cells)
        rows.append([model, *shown, ngram["scale"], rounded(ngram["test"]["perplexity"])])
    return [["model", *classes, "scale", "test ppl"], *rows]


TABLES: dict[str, Callable[[], Rows]] = {
    # all
    "overview": overview,
    "controls": controls,
    # Daniluk et al.
    "daniluk2017": beside_the_paper,
    "daniluk2017-perplexities": perplexities,
    "daniluk2017-ptb-orders": orders,
    "daniluk2017-ptb-windows": windows,
    "daniluk2017-attention": lags,
    "daniluk2017-questions": questions,
    # Salton et al.
    "salton2017": attentive,
    "salton2017-running-text": running_text,
    # Li et al.
    "li2020": rungs,
    "li2020-3": taken_apart,
    "li2020-readings": other_readings,
    "li2020-reads": reads,
    "li2020-bound": bounds,
    # memories
    "yardstick": partial(pages.known_laws, pages.KNOWN_LAWS),
    "yardstick-state": partial(pages.known_laws, pages.NEED_A_STATE),
    "demo": pages.on_the_demo,
    # vocabularies
    "vocabularies-ptb": partial(pages.vocabularies, "ptb"),
    "vocabularies-wikitext-2": partial(pages.vocabularies, "wikitext-2"),
    # neighbours
    "neighbours": pages.neighbours,
    "neighbours-pairs": pages.neighbours_pairs,
    "neighbours-context": pages.neighbours_context,
    "neighbours-windows": pages.neighbours_windows,
    # speed
    "speed-ratios": speeds.ratios,
    "speed-steps": speeds.steps,
    "speed-verbs": speeds.verbs,
    "speed-busy-cores": speeds.busy_cores,
    "speed-operations": speeds.operations,
    "speed-counts": speeds.counts,
    # the plan past these machines
    "scale-parts": scaling.parts,
    "scale-sizes": scaling.sizes,
    "scale-side-by-side": scaling.side_by_side,
}
