"""The tables of Salton et al. (2017), "Attentive Language Models": models of five papers on two corpora.

The rows marked † are controls of ours: the recipe and size of the paper's model without the attention, the cache on top
of both, the LSTM below the published cache, and ensembles of three.
"""

from __future__ import annotations

from dataclasses import replace

from spanlm.papers.paper import Averaged, Cached, Details, Paper, Row, Section, Table, perplexity_table
from spanlm.papers.preset import PENN_TREEBANK, WIKITEXT_2, Measured, reported_on
from spanlm.papers.scales import Proportional, Scale, smoke_scale


def _row(preset: str, title: str, control: str = "", *, ours: bool = False) -> Row:
    return Row(name=preset.partition("/")[2], title=title, preset=preset, control=control, in_paper=not ours)


def _cached(plain: Row, window: int, title: str, control: str = "", test_ppl: float | None = None) -> Row:
    """Return a trained row with a cache; without a published number it is a control of ours."""
    on, ours = WIKITEXT_2 if plain.name.endswith("wt2") else PENN_TREEBANK, test_ppl is None
    row = replace(plain, name=f"{plain.name}-cache-{window}", title=title, how=Cached(window), in_paper=not ours)
    return replace(row, published=None if ours else reported_on(on, test_ppl=test_ppl), control=control or plain.name)


def _ensemble(size: str, members: int, *printed: float) -> Row:
    """Return an ensemble; `printed`: valid and test perplexity and millions of parameters, none of a control."""
    row = _row(f"zaremba2014/{size}", f"{members} {size} regularized LSTMs", size, ours=not printed)
    published = reported_on(PENN_TREEBANK, *printed) if printed else None
    return replace(row, name=f"{size}-x{members}", how=Averaged(members), published=published)


def _attentive(label: str) -> tuple[list[Row], list[Row]]:
    """Return the paper's models on a corpus, with the recipe over running text, and the controls beside them."""
    preset, lstm = "salton2017/{}-" + label, f"lstm-{label}"
    plain = "Recipe and size of the Attentive LM, no attention, over running text"
    single = "Attentive LM, single score, window of 35 over running text"
    models = [
        _row(preset.format("lstm-stream"), plain, ours=True),
        _row(preset.format("single-stream"), single, f"lstm-stream-{label}", ours=True),
        _row(preset.format("combined"), "Attentive LM, combined score", lstm),
        _row(preset.format("single"), "Attentive LM, single score", lstm),
    ]
    window = 500 if label == "ptb" else 2000  # of the largest published cache on the corpus
    without = _row(preset.format("lstm"), "Same recipe and size, no attention", ours=True)
    both = f"Attentive LM, single score, with a cache (size = {window})"
    return models, [
        without,
        _row(preset.format("merge"), "Same, with the layer of Eq. 7 alone", lstm, ours=True),
        _row(preset.format("mean"), "Same, equal weights in place of scores", lstm, ours=True),
        _cached(without, window, f"Same without attention, with a cache (size = {window})"),
        _cached(models[-1], window, both, f"{lstm}-cache-{window}"),
    ]


_GRAVE = replace(_row("grave2017/lstm-ptb", "LSTM of Grave et al.", ours=True), name="grave-lstm-ptb")
_GRAVE_WT2 = replace(_row("grave2017/lstm-wt2", "LSTM-LM of Grave et al."), name="grave-lstm-wt2")
(_MODELS, _CONTROLS), (_MODELS_WT2, _CONTROLS_WT2) = _attentive("ptb"), _attentive("wt2")
_PENN_TREEBANK = (
    _row("zaremba2014/medium", "Medium regularized LSTM"),
    _row("zaremba2014/large", "Large regularized LSTM", "medium"),
    _row("press2017/large-bd-wt", "Large + BD + WT", "medium"),
    _GRAVE,
    _cached(_GRAVE, 500, "Neural cache model (size = 500)", test_ppl=72.1),
    _row("merity2017/pointer-ptb", "Medium pointer sentinel-LSTM", "medium"),
    *_MODELS,
    _ensemble("medium", 2, 80.6, 77.0, 40),
    _ensemble("medium", 3),
    _ensemble("medium", 5, 76.7, 73.3, 100),
    _ensemble("medium", 10, 75.2, 72.0, 200),
    _ensemble("large", 2, 76.9, 73.6, 122),
    _ensemble("large", 3),
    _ensemble("large", 10, 72.8, 69.5, 660),
    _ensemble("large", 38, 71.9, 68.7, 2508),
    *_CONTROLS,
)
_WIKITEXT_2 = (
    _row("merity2017/zoneout-wt2", "Zoneout + variational LSTM", "variational-wt2"),
    _GRAVE_WT2,
    _row("merity2017/variational-wt2", "Variational LSTM"),
    _cached(_GRAVE_WT2, 100, "Neural cache model (size = 100)", test_ppl=81.6),
    _row("merity2017/pointer-wt2", "Pointer LSTM (window = 100)", "variational-wt2"),
    *_MODELS_WT2,
    _cached(_GRAVE_WT2, 2000, "Neural cache model (size = 2000)", test_ppl=68.9),
    *_CONTROLS_WT2,
)

_COUNT = (
    "the paper's code never predicts the first word of a sentence, but counts it. If its numbers come from that code"
)
# p is p ** (1 / 0.95431) a predicted token on valid and p ** (1 / 0.95437) on test: the powers are the shares of the
# tokens of Penn Treebank that are not the first of their sentence
_REMARK_1 = (
    "per predicted token single 71.7/70.1 are 88.0/85.9, combined 72.6/70.7 are 89.1/86.7 (valid/test), before any "
    "first word is predicted"
)
_REMARK_2 = (
    "they are lower than what the other rows' count would give; it also ends each line, blank ones included, "
    "with two <eos>, so that thousands of tokens cost next to nothing"
)

_COLUMNS = (
    *("units", "parameters", "seeds", "valid ppl", "test ppl", "over", "their count: valid", "their count: test"),
    *("paper: valid", "paper: test", "paper: parameters", "per predicted word: valid", "per predicted word: test"),
    *("best epoch", "train ppl", "minutes"),
)
_DETAILS = (
    Details(
        "Caches: θ and λ chosen on valid. Without: the same model in the same pass",
        ("words", "θ", "λ", "valid: without", "valid ppl", "test: without", "test ppl"),
        notes=True,
    ),
    Details(
        "Ensembles: the mean of the members' probabilities, and the members alone. The oracle bound takes the best "
        "member at each word once it is known: a bound on mixtures, no model",
        ("members: valid", "members: test", "valid ppl", "test ppl", "oracle bound: test"),
    ),
)


def _table(name: str, on: Measured, rows: tuple[Row, ...], remark: str) -> Table:
    names, remark = tuple(row.name for row in rows), f"{_COUNT}, {remark}"
    return perplexity_table(name, on, "1", rows=names, columns=_COLUMNS, details=_DETAILS, remark=remark)


SALTON = Paper(
    name="salton2017",
    title="Salton et al. 2017",
    rows={row.name: row for row in (*_PENN_TREEBANK, *_WIKITEXT_2)},
    tables=(_table("1", PENN_TREEBANK, _PENN_TREEBANK, _REMARK_1), _table("2", WIKITEXT_2, _WIKITEXT_2, _REMARK_2)),
    scales=(
        smoke_scale(Proportional(width=0.025, dropout=0.5, max_epochs=1), most_members=3),
        Scale(
            name="small",
            purpose="a fifth of every width; hours of one CPU core",
            vocabulary_size=16_000,
            most_members=3,
            precision="bf16",
            sizes=Proportional(width=0.2, dropout=0.5, max_epochs=8, update_words=800),
        ),
        Scale(name="paper", purpose="the papers' sizes and recipes; for a GPU", sizes=Proportional()),
    ),
    # a model that reads a running text knows more than one that begins anew at each sentence
    sections=(
        Section(
            by_sentence=False,
            title="Running text: one stream, state carried throughout",
            label="test ppl, running text",
        ),
        Section(
            title="Sentences: state reset at each line",
            note="Not to be compared with the rows of running text. Their count: the first word of each sentence is "
            "not predicted, but counted, as in the paper's code; its numbers stand beside, and after them the same "
            "words per predicted one. A cache goes on over the lines",
            label="test ppl, sentences, their count",
            counted=("salton2017", "perplexity"),
        ),
    ),
    note="Over: test perplexity less that of the row named, which is counted alike, on the mean of the seeds that both "
    "have, or less the mean of an ensemble's own members. † is not in the paper's table",
)
