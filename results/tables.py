"""The tables of the pages by name: which records a table has, and its columns.

Rows of published tables are written by `spanlm.reproduction`, as its pages have them; the rest are numbers of records.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from results import scaling
from results.record import KINDS
from results.records import Record, at, records
from spanlm.reproduction.certainty import NONE
from spanlm.reproduction.plan import PAPERS, Plan, Task
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.table import COLUMNS, Grid, Overview, Page

Rows = list[list[str]]  # the first is the header
SURE = -1
"""Of the tables of a page the last says how sure its differences are."""


@cache
def _page(paper: str, text: str, name: str) -> Page:
    """Return a table of a paper with the runs on one text."""
    of = PAPERS[paper]
    table = next(table for table in of.tables if table.name == name)
    ended = ((SimpleNamespace(row=of.rows[one["row"]]), one) for one in records(paper, text))
    return Page(cast(Plan, SimpleNamespace(paper=of)), table, [Outcome(cast(Task, task), one) for task, one in ended])


@cache
def _grids(paper: str, text: str, name: str) -> list[Grid]:
    return _page(paper, text, name).grids()


def _columns(grid: Grid, columns: Sequence[str], scale: str = "") -> Rows:
    """Return columns of a grid; what it leaves out because no row has it is a dash."""
    lines = [dict(zip(grid.header, cells, strict=True)) | {"scale": scale} for cells in grid.rows]
    left_out = dict.fromkeys(COLUMNS, NONE)
    return [list(columns), *([(left_out | line)[column] for column in columns] for line in lines)]


@dataclass(frozen=True)
class Trained:
    """Runs of a published table on one text, with columns that `spanlm.reproduction.table` names, and `scale`."""

    paper: str
    text: str
    name: str
    columns: tuple[str, ...]
    which: int = 0  # of the page's tables

    def __call__(self) -> Rows:
        """Return the table."""
        scale = ", ".join(dict.fromkeys(one["scale"] for one in records(self.paper, self.text)))
        return _columns(_grids(self.paper, self.text, self.name)[self.which], ("model", *self.columns), scale)


class Column(NamedTuple):
    """A number of each record: where it is, its digits, and by what it is multiplied."""

    title: str
    path: str
    digits: int = 1
    factor: int = 1


@dataclass(frozen=True)
class Measured:
    """A line a record, which `row` names."""

    file: str
    table: str
    columns: tuple[Column | tuple[str, str] | tuple[str, str, int] | tuple[str, str, int, int], ...]
    row: str = "row"

    def __call__(self) -> Rows:
        """Return the table."""
        columns = [Column(*column) for column in self.columns]
        lines = records(self.file, self.table)
        cells = ([_number(at(one, path), *how) for _, path, *how in columns] for one in lines)
        titles = ["", *(column.title for column in columns)]
        return [titles, *([str(at(one, self.row)), *row] for one, row in zip(lines, cells, strict=True))]


def _number(value: object, digits: int = 1, factor: int = 1) -> str:
    """Round what a record has; a dash where it has nothing, and words as they are."""
    if isinstance(value, str):
        return value
    shown = "" if value is None else f"{float(str(value)) * factor:,.{digits}f}"
    return shown.replace("-", "−") or NONE


# --- tables with a form of their own ---


def trained_and_adapted(name: str) -> Rows:
    """Put a table of Li et al. without dynamic evaluation beside the one with it, by model."""
    columns = ("model", "valid ppl", "test ppl", "paper: test", "PoU")
    scale = records("li2020", "ptb-small")[0]["scale"]
    left, right = (
        {row[0]: row[1:] for row in _columns(_grids("li2020", "ptb-small", name)[which], columns)} for which in (0, 1)
    )
    head, *models = left | right
    rows = [[model, scale, *left.get(model, [NONE] * 4), *right.get(model, [NONE] * 4)] for model in models]
    return [[head, "scale", *columns[1:], "dynamic: valid", "test", "paper", "PoU"], *rows]


CLASSES = "NE", "CN", "V", "P"  # of questions, in the order of the columns


def questions() -> Rows:
    """Return accuracies on CBT-like questions: the figure's rows, and below them the n-gram models'."""
    classes = ("named entities", "common nouns", "verbs", "prepositions")
    columns = (*(f"sentence: {name}" for name in classes), "scale", "test ppl")
    rows = Trained("daniluk2017", "cbt-small", "2d", columns)()
    for one in records("daniluk2017", "cbt-ngrams"):
        answers = {file["class"]: file["contexts"]["full"]["sentence"] for file in one["cloze"]["files"]}
        held = " + cache" if one["config"]["ngram"]["cache"] else ""
        model = f"{one['config']['ngram']['order']}-gram Kneser-Ney{held}, {one['vocabulary_size']:,} words"
        cells = [[_number(x, 3) for x in (answers[name]["accuracy"], *answers[name]["interval"])] for name in CLASSES]
        shown = (f"{a} [{low}, {high}]" for a, low, high in cells)
        rows.append([model, *shown, one["scale"], _number(one["test"]["perplexity"])])
    return rows


def mixtures() -> Rows:
    """Return perplexities of models alone and mixed, with the weights that fit valid best."""
    found: dict[str, dict[str, Any]] = {}
    for one in records("daniluk2017", "ptb-300/mixtures"):
        name = one["row"]
        found.setdefault(name, {})["weights"] = " / ".join(f"{weight:.2f}" for weight in one["test"].get("weights", []))
        for split in ("valid", "test"):
            result = one.get(split, {})
            for member in result.get("members", []):
                found.setdefault(member["run"], {})[split] = member["perplexity"]
            found[name][split] = result.get("ensemble", result).get("perplexity")
    lines = (
        [name, *(_number(one.get(split), 2) for split in ("valid", "test")), one.get("weights") or NONE]
        for name, one in sorted(found.items(), key=lambda item: (item[0].count("+"), item[0]))
    )
    return [["", "valid ppl", "test ppl", "weights"], *lines]


TEXTS = {"ptb-small": "Penn Treebank", "wikitext-2-small": "WikiText-2", "wikipedia-small": "Wikipedia articles"}
YARDSTICK = "markov", "copy", "copy-lag-20", "agreement", "recall", "topics"


def texts() -> Rows:
    """Return what two memories are worth on texts of several lengths, in bits against the LSTM."""
    models = ("Key-Value-Predict, window 5", "4-gram RNN")
    rows = [["text", "scale", "training tokens", "seeds", *models]]
    every = {one["row"]: one for one in records("memories", "demo")}
    demo = [every[model.removesuffix(" RNN")] for model in models]
    (notes,) = {note for one in records("demo", "evaluations") for note in one["evaluation"]["notes"]}
    length = re.search(r"train ([\d,]+), valid", notes)
    shown = ("{:+.3f} ({:+.3f} to {:+.3f})".format(one["bits"], *one["interval"]) for one in demo)
    cells = (cell.replace("-", "−") for cell in shown)
    rows.append(
        [
            "the demo's",
            demo[0]["scale"],
            f"{int(length[1].replace(',', '')):,}" if length else NONE,
            str(demo[0]["seeds"]),
            *cells,
        ]
    )
    lengths = {one["row"]: one["train"] for one in records("daniluk2017", "texts")}
    for text, title in TEXTS.items():
        trained = Trained("daniluk2017", text, "2c", ("seeds", "scale"))()
        seeds = {model: count for model, count, _ in trained}
        found = dict(Trained("daniluk2017", text, "2c", ("difference",), SURE)())
        both = " and ".join(dict.fromkeys(seeds[model] for model in models))
        rows.append([title, trained[1][2], f"{lengths[text]:,}", both, *(found[model] for model in models)])
    return rows


def yardstick() -> Rows:
    """Return the excess of each memory over the law of each text."""
    grid = Overview([_page("yardstick", f"{text}-small", text) for text in YARDSTICK]).grid()
    scale = records("yardstick", f"{YARDSTICK[0]}-small")[0]["scale"]
    return _columns(grid, ("model", "scale", *YARDSTICK), scale)


# --- speed ---

SPEEDS = {"bench-cpu-before": "Zen 4, before", "bench-cpu": "Zen 4"}
SPEEDS |= {"bench-cpu-zen-5": "Zen 5", "bench-cpu-zen-3-before": "Zen 3, before"}
SPEEDS |= {"bench-cpu-zen-3": "Zen 3", "bench-cpu-zen-3-words": "Zen 3"}
GPU = "bench-gpu", "bench-gpu-more"
WAITING = {"the library's own": "", "OMP_WAIT_POLICY=passive": ", passive", "GOMP_SPINCOUNT=1000": ", short"}
OURS = "spanlm, ", "attentive, ", "span buffer, ", "dynamic evaluation, ", "with a cache"
"""How the names of this library's contenders begin; the others are only compared with."""


def _plain(*names: str) -> tuple[str, ...]:
    """Return names of a record without the precision, a size's without what all sizes have."""
    return tuple(re.sub(r",? (fp32|bf16)$", "", name.split(", V 10,000")[0]) for name in names)


def _benched(tables: Iterable[str]) -> list[Record]:
    return [one for table in tables for one in records("speed", table)]


def ratios() -> Rows:
    """Return fp32 and bf16 of what has a target in a record: its speed or memory, where that of the other is 1."""
    rows = [
        (SPEEDS[row["table"]], (row["size"], row["name"], one["what"], one["reference"]), row["precision"], one)
        for row in _benched(SPEEDS)
        for one in row["compared"]
    ]
    aims = {key: one["target"] for _, key, _, one in rows if one.get("target")}
    found: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for title, key, precision, one in (row for row in rows if row[1] in aims):
        missed = one["ratio"] > aims[key] if one["what"] == "memory" else one["ratio"] < aims[key]
        cells = found.setdefault(_plain(*key), {})
        cells.setdefault("target", {})[precision] = f"{aims[key]:.2f}"
        cells.setdefault(title, {})[precision] = f"{one['ratio']:.2f}{' ✗' if missed else ''}"
    titles = list(dict.fromkeys(["target", *SPEEDS.values()]))
    lines = ([*key, *(_pair(one.get(title, {})) for title in titles)] for key, one in found.items())
    return [["size", "what", "of", "compared with", *titles], *lines]


def _pair(cells: Mapping[str, str]) -> str:
    return " / ".join(cells.get(precision, NONE) for precision in ("fp32", "bf16")) if cells else NONE


def steps() -> Rows:
    """Return the milliseconds of a step, median (fastest–slowest), of two versions that were measured in turn."""
    versions, found = {"bench-cpu-before": "before", "bench-cpu": "after"}, dict[tuple[str, ...], dict[str, str]]()
    for one in _benched(versions):
        if one["name"].startswith(OURS):
            taken = [_number(one[f"{which}milliseconds"], 0) for which in ("", "fastest_", "slowest_")]
            column = f"{one['precision']}, {versions[one['table']]}"
            found.setdefault(_plain(one["size"], one["name"]), {})[column] = "{} ({}–{})".format(*taken)
    columns = [f"{precision}, {version}" for precision in ("fp32", "bf16") for version in versions.values()]
    return [["size", "what", *columns], *([*key, *(one.get(x, NONE) for x in columns)] for key, one in found.items())]


def gpu() -> Rows:
    """Return a GPU's milliseconds of a step in fp32 and bf16, tokens a second in fp32, and how these compare."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in _benched(GPU):
        found.setdefault(_plain(one["size"], one["name"]), {})[one["precision"]] = one
    rows = [["size", "what", "ms, fp32", "ms, bf16", "tokens/s, fp32", "speed, fp32", "of"]]
    for key, both in found.items():
        compared: Mapping[str, Any] = next((one for one in both["fp32"]["compared"] if one["what"] == "speed"), {})
        (of,) = _plain(compared.get("reference", NONE))
        times = [_number(at(both, f"{precision}.milliseconds")) for precision in ("fp32", "bf16")]
        rate, ratio = _number(both["fp32"]["tokens_per_second"], 0), _number(compared.get("ratio"), 2)
        rows.append([*key, *times, rate, ratio, of])
    return rows


def busy_cores() -> Rows:
    """Return tokens a second for each number of busy processes; "short": `GOMP_SPINCOUNT=1000`."""
    found: dict[str, dict[str, int]] = {}
    for one in (row for row in records("speed", "busy-cores") if row["waiting"] in WAITING):
        name = f"{one['model']}, {one['busy processes']} busy"
        found.setdefault(name, {})[f"threads: {one['threads']}{WAITING[one['waiting']]}"] = one["tokens a second"]
    columns = list(found["demo, 0 busy"])
    lines = ([name, *(_number(one.get(column), 0) for column in columns)] for name, one in found.items())
    return [["", *columns], *lines]


def operations() -> Rows:
    """Return what a training step does, in percent of its time, by preset and precision."""
    rows = [["", "ms", *KINDS, "the rest"]]
    for one in records("speed", "operations-zen-4"):
        whole, spent = one["watched"]["milliseconds"], [one["watched"]["kinds"][kind] for kind in KINDS]
        shares = [100 * x / whole for x in (*spent, whole - sum(spent))]
        rows.append([one["row"], *(_number(x, 0) for x in (one["milliseconds"], *shares))])
    return rows


CERTAINTY = ("bits", "difference", "p", "place")


def _against(prefix: str, titles: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of a difference with its interval, for each control."""
    found: list[Column] = []
    for number, (title, path) in enumerate(titles.items()):
        whole, space = f"{prefix}{path}.whole", " " * number  # no two columns have one title
        found += [Column(title, f"{whole}.difference", 3), Column(f"from{space}", f"{whole}.interval.0", 3)]
        found += [Column(f"to{space}", f"{whole}.interval.1", 3)]
    return tuple(found)


TABLES: dict[str, Callable[[], Rows]] = {
    # Daniluk et al.
    "daniluk2017-wikipedia": Trained(
        "daniluk2017",
        "wikipedia-small",
        "2c",
        ("scale", "units", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test", "best epoch", "train ppl"),
    ),
    "daniluk2017-wikipedia-certainty": Trained("daniluk2017", "wikipedia-small", "2c", CERTAINTY, SURE),
    "daniluk2017-ptb": Trained(
        "daniluk2017",
        "ptb-small",
        "2c",
        ("scale", "units", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test", "best epoch"),
    ),
    "daniluk2017-ptb-certainty": Trained("daniluk2017", "ptb-small", "2c", CERTAINTY, SURE),
    "daniluk2017-ptb-orders": Trained(
        "daniluk2017",
        "ptb-small",
        "2b",
        ("scale", "units", "readout", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test", "best epoch"),
    ),
    "daniluk2017-ptb-windows": Trained(
        "daniluk2017",
        "ptb-small",
        "2a",
        ("scale", "units", "readout", "seeds", "valid ppl", "test ppl", "paper: test", "best epoch"),
    ),
    "daniluk2017-wikitext-2": Trained(
        "daniluk2017",
        "wikitext-2-small",
        "2c",
        ("scale", "units", "valid ppl", "test ppl", "paper: valid", "paper: test", "best epoch", "train ppl"),
    ),
    "daniluk2017-wikitext-2-certainty": Trained("daniluk2017", "wikitext-2-small", "2c", CERTAINTY, SURE),
    "daniluk2017-questions": questions,
    "daniluk2017-300-units": Measured(
        "daniluk2017",
        "ptb-300",
        (
            ("scale", "scale"),
            ("units", "config.model.encoder.hidden_size", 0),
            ("θ_M", "model_parameters", 0),
            ("best epoch", "best_epoch", 0),
            ("train ppl", "train_perplexity_at_best"),
            ("valid ppl", "valid.perplexity", 2),
            ("test ppl", "test.perplexity", 2),
        ),
    ),
    "daniluk2017-mixtures": mixtures,
    "daniluk2017-attention": Measured(
        "daniluk2017",
        "ptb-300/attention",
        (
            *((f"−{lag}", f"measured_percent.{-lag}") for lag in (5, 4, 3, 2, 1)),
            ("last five", "last_five_percent"),
        ),
    ),
    # Salton et al.
    "salton2017-full": Measured(
        "salton2017",
        "ptb-full",
        (
            ("scale", "scale"),
            ("seed", "seed", 0),
            ("valid", "valid.without_cache.perplexity", 2),
            ("test", "test.without_cache.perplexity", 2),
            ("their count: valid", "valid.without_cache.salton2017.perplexity", 2),
            ("their count: test", "test.without_cache.salton2017.perplexity", 2),
            ("a predicted word: valid", "valid.without_cache.salton2017.perplexity_per_predicted", 2),
            ("a predicted word: test", "test.without_cache.salton2017.perplexity_per_predicted", 2),
            ("with a cache: valid", "valid.perplexity", 2),
            ("with a cache: test", "test.perplexity", 2),
        ),
    ),
    "salton2017-sentences": Trained(
        "salton2017",
        "ptb-small",
        "1",
        (
            *("scale", "parameters", "seeds", "valid ppl", "test ppl"),
            *("their count: test", "paper: test", "per predicted word: test"),
        ),
        1,
    ),
    "salton2017-running-text": Trained(
        "salton2017",
        "ptb-small",
        "1",
        ("scale", "parameters", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test"),
    ),
    "salton2017-flatness": Measured(
        "salton2017",
        "flatness",
        (
            ("scale", "scale"),
            ("flatness", "overall.flatness", 2),
            ("nearest word, %", "overall.nearest", 1, 100),
            ("equal weights would give, %", "overall.equal", 1, 100),
        ),
    ),
    "salton2017-bias": Measured(
        "salton2017",
        "merge-bias",
        tuple((f"step {step:,}", f"loss.{step}", 2) for step in (300, 600, 850, 1300)),
    ),
    # Li et al.
    "li2020-1": lambda: trained_and_adapted("1"),
    "li2020-3": lambda: trained_and_adapted("3"),
    "li2020-readings": Measured(
        "li2020",
        "readings",
        (
            ("scale", "scale"),
            *((name, name) for name in ("valid", "encoder", "buffer", "oracle")),
            ("PoU, %", "pou", 0, 100),
            ("oracle PoU, %", "oracle_pou", 0, 100),
            ("mean reward", "reward", 2),
        ),
        row="what",
    ),
    "li2020-reads": Measured(
        "li2020",
        "reads",
        (
            ("scale", "scale"),
            ("seeds", "count", 0),
            ("valid", "perplexity", 2),
            ("least", "from", 2),
            ("most", "to", 2),
            ("test", "test", 2),
            *_against("", {"bits against no buffer": "against_control", "against one span": "against_one_span"}),
        ),
    ),
    "li2020-reads-parts": Measured(
        "li2020",
        "reads",
        (
            *_against(
                "test_",
                {"test: against no buffer": "against_control", "against one span": "against_one_span"},
            ),
            *((name, name) for name in ("encoder", "buffer", "oracle")),
            ("gate at T 1", "untempered"),
            ("equal shares", "equal"),
            ("PoU, %", "utilisation", 0, 100),
        ),
    ),
    # memories
    "yardstick": yardstick,
    "texts": texts,
    "demo": Measured(
        "memories", "demo", (("bits", "bits", 3), ("from", "interval.0", 3), ("to", "interval.1", 3), ("p", "p", 4))
    ),
    "context": Measured(
        "memories",
        "context",
        (
            ("bits", "bits", 3),
            ("gain", "gain", 3),
            ("words", "effective"),
            ("from", "effective_interval.0"),
            ("to", "effective_interval.1"),
        ),
    ),
    # speed
    "speed-ratios": ratios,
    "speed-steps": steps,
    "speed-gpu": gpu,
    "speed-verbs": Measured(
        "speed",
        "verbs",
        (
            ("before", "before.seconds"),
            ("least", "before.from"),
            ("most", "before.to"),
            ("after", "after.seconds"),
            ("least ", "after.from"),
            ("most ", "after.to"),
        ),
    ),
    "speed-busy-cores": busy_cores,
    "speed-ranks": Measured(
        "speed", "ranks", (("tokens/s", "tokens_per_second", 0), ("valid loss", "valid_losses.-1", 6))
    ),
    "speed-engines": Measured(
        "speed", "engines", (("seconds", "wall_seconds", 0), ("outside training", "outside_training_seconds", 0))
    ),
    "speed-serve": Measured("speed", "serve", (("measured", "measured", 0), ("limit", "limit", 0))),
    "speed-operations": operations,
    # the plan past these machines
    "scale-parts": scaling.parts,
    "scale-sizes": scaling.sizes,
    "scale-side-by-side": scaling.side_by_side,
}
