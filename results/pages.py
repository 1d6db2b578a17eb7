"""The tables of the pages that are no paper's: memories, vocabularies, neighbours."""

from collections.abc import Sequence

from results.filled import bits_of, cells_of, filled_table, of_text, ppl_bits
from results.records import Rows, records, rounded
from spanlm.papers.certainty import NONE
from spanlm.papers.registry import PAPERS
from spanlm.papers.table import Line, at, seeds_of
from spanlm.papers.table import overview as overview_of
from spanlm.scoring.resampling import of_chance, signed

DEMO = "demo"


def on_the_demo() -> Rows:
    """Return what memories are worth on the demo's text, and how much context they use."""
    worth = {model["row"]: model for model in records("memories", DEMO)}
    rows = [["", "scale", "bits against the LSTM", "p", "gain of all context", "words that count"]]
    for model in records("memories", "context"):
        bits, p = NONE, NONE
        if against := worth.get(model["row"]):
            bits, p = bits_of(against["bits"], against["interval"], against["seeds"]), of_chance(against["p"])
        words = "{} ({} to {})".format(*(rounded(x) for x in (model["effective"], *model["effective_interval"])))
        rows.append([model["row"], model["scale"], bits, p, rounded(model["gain"], 3), words])
    return rows


def vocabularies(text: str) -> Rows:
    """Return bits per byte of words, pieces, characters and bytes, and differences in bits a written word."""
    rows = [["", "units", "tokens a word", "bits per byte", "against the LSTM on words", "against its own LSTM"]]
    for model in records("vocabularies", text):
        cut = {"whitespace": "words"}.get(model["tokenizer"], model["tokenizer"])
        pieces = f" {model['pieces']:,}" if model["pieces"] else ""
        memory = f"Key-Value-Predict, window {model['window']}" if model["window"] else "LSTM"
        against = [model.get(f"against_{other}") for other in ("words", "lstm")]
        bits = [f"{signed(x['bits'])} ({' to '.join(map(signed, x['interval']))})" if x else NONE for x in against]
        numbers = rounded(model["tokens_per_word"], 2), rounded(model["bits_per_byte"], 3)
        rows.append([f"{cut}{pieces}, {memory}", str(model["units"]), *numbers, *bits])
    return rows


KNOWN_LAWS = "markov", "copy", "copy-lag-20", "agreement", "recall", "topics"
NEED_A_STATE = "parity", "counting"


def known_laws(texts: Sequence[str]) -> Rows:
    """Return the excess of each memory and encoder over the law of each text."""
    grid = overview_of([filled_table("yardstick", f"{text}-small", text) for text in texts])
    scale = records("yardstick", f"{texts[0]}-small")[0]["scale"]
    return [["model", "scale", *texts], *([title, scale, *cells] for title, *cells in grid.rows)]


NEIGHBOURS = {"ptb-small": "Penn Treebank", "wikitext-2-small": "WikiText-2", "wikipedia-small": "Wikipedia"}
FIRST = "ptb-small"
"""Of which the page has more than differences in bits."""


def neighbours() -> Rows:
    """Return all memories and their neighbours: bits against the LSTM on each text, and on the first how fast and soon.

    Of what is not evaluated as it was trained, the differences have no interval.
    """
    columns = "valid ppl", "test ppl"
    bits = {f"bits, {title}": _over_lstm(text) for text, title in NEIGHBOURS.items()}
    rows, lines = cells_of("neighbours", FIRST, "1", columns), filled_table("neighbours", FIRST, "1").lines
    speed = {line.title: _until_as_good(line) for line in lines.values()}
    head = ["", *bits, *columns, "tokens/s", "minutes to LSTM's"]
    return [
        head,
        *([title, *(of.get(title, NONE) for of in bits.values()), *rows[title], *speed[title]] for title in rows),
    ]


def _over_lstm(text: str) -> dict[str, str]:
    bits, lines = of_text(text, "neighbours", "1", "2"), filled_table("neighbours", text, "1").lines
    return bits | {line.title: _gain(line, lines["lstm"]) for line in lines.values() if line.title not in bits}


def _gain(line: Line, lstm: Line) -> str:
    seeds = {seeds_of(record) for record in line.records}
    control = [record for record in lstm.records if seeds_of(record) in seeds]
    gain = ppl_bits(line.records, "test.perplexity") - ppl_bits(control, "test.perplexity")
    return bits_of(gain, (), len(line.records))


def _until_as_good(line: Line) -> tuple[str, str]:
    """Return tokens a second of a quiet thread, and the minutes until valid is as good as the LSTM's best.

    The run itself shared its machine, so that of its time only the share counts that passed until then.
    """
    speeds = {record["row"]: record["tokens_per_second"] for record in records("neighbours", "speed")}
    if (speed := speeds.get(line.row.name)) is None:
        return NONE, NONE
    (tokens,) = (text["train"] for text in records("daniluk2017", "texts") if text["row"] == FIRST)
    run = line.facts[0]
    if run["seconds_to_control"] is None:
        return f"{speed:,.0f}", "never"
    share = run["seconds_to_control"] / run["training_seconds"]
    return f"{speed:,.0f}", rounded(share * run["epochs"] * tokens / speed / 60)


PAIRS = {"min-gru": ("min-gru-pointer",), "lstm-blocks": ("transformer", "min-gru"), "lstm-2": ("lstm-blocks",)}
"""A control, and the rows that differ from it in one thing."""


def neighbours_pairs() -> Rows:
    """Return the differences of rows from others than the LSTM, on each text."""
    paper, rows = PAPERS["neighbours"], [["", "compared with", *(f"bits, {title}" for title in NEIGHBOURS.values())]]
    for control, names in PAIRS.items():
        trained = {text: control in filled_table("neighbours", text, "1").lines for text in NEIGHBOURS}
        bits = [of_text(text, "neighbours", "1", "2", control=control) if trained[text] else {} for text in NEIGHBOURS]
        for title in (paper.rows[name].title for name in names):
            rows.append([title, paper.rows[control].title, *(of.get(title, NONE) for of in bits)])
    return rows


LEFT = "5", "20", "50"
"""Words that a model has read, or that are as they were."""


def neighbours_context() -> Rows:
    """Return what a model needs more, in bits a token, where the words before the last n are unread, or others."""
    heads = (f"{change}beyond {n}" for change in ("unread ", "other words ") for n in LEFT)
    rows, order = [["", "words that count", *heads]], list(PAPERS["neighbours"].rows)
    for run in sorted(records("neighbours", "context"), key=lambda run: order.index(run["row"])):
        words = "{} ({} to {})".format(*(rounded(x, 0) for x in (run["effective"], *run["effective_interval"])))
        left = (rounded(at(run, f"excess.{curve}.{n}"), 3) for curve in ("truncated", "replaced") for n in LEFT)
        rows.append([PAPERS["neighbours"].rows[run["row"]].title, words, *left])
    return rows


def neighbours_windows() -> Rows:
    """Return a Transformer by its window, in bits against the LSTM."""
    columns, bits = ("valid ppl", "test ppl"), of_text(FIRST, "neighbours", "1", "2")
    cells = {title: row for table in ("2", "1") for title, row in cells_of("neighbours", FIRST, table, columns).items()}
    rows = [[title.rpartition(" ")[2], *row, bits[title]] for title, row in cells.items() if "Transformer" in title]
    return [["window", *columns, "bits on test"], *rows]
