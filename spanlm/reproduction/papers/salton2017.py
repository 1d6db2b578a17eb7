"""The tables of Salton et al. (2017), "Attentive Language Models": models of five papers on two corpora.

Beside the paper's rows there are controls of ours: the recipe and the size of its model without the attention, the
cache on top of both, the LSTM that the cache was put on, and ensembles of three.
"""

from __future__ import annotations

from spanlm.presets.preset import PENN_TREEBANK, WIKITEXT_2, Measured, reported_on
from spanlm.reproduction.papers import Averaged, Cached, Details, Paper, Row, Section, Table
from spanlm.reproduction.scales import PROPORTIONAL

PREDICTED_SHARE = {"valid": 0.95431, "test": 0.95437}
"""Of the tokens of Penn Treebank, those that are not the first of their sentence."""


def per_predicted(published: float, split: str) -> float:
    """Return what a perplexity on Penn Treebank that counts unpredicted first words is per predicted token.

    exp(NLL / all) -> exp(NLL / predicted), so its logarithm is divided by the share of predicted tokens.
    """
    return float(published ** (1 / PREDICTED_SHARE[split]))


def _row(name: str, title: str, preset: str, control: str = "", *, in_paper: bool = True) -> Row:
    return Row(name=name, title=title, preset=preset, control=control, in_paper=in_paper)


def _cached(
    plain: Row, window: int, title: str, control: str, test: float | None = None, on: Measured = PENN_TREEBANK
) -> Row:
    """A cache on a trained model; without a published number it is a control of ours."""
    return Row(
        name=f"{plain.name}-cache-{window}",
        title=title,
        preset=plain.preset,
        how=Cached(window),
        published=None if test is None else reported_on(on, test_ppl=test),
        in_paper=test is not None,
        control=control,
    )


# members -> published valid and test perplexity, and millions of parameters; three are a control of ours
_Numbers = tuple[float, float, float] | None
_MEDIUM: dict[int, _Numbers] = {2: (80.6, 77.0, 40), 3: None, 5: (76.7, 73.3, 100), 10: (75.2, 72.0, 200)}
_LARGE: dict[int, _Numbers] = {2: (76.9, 73.6, 122), 3: None, 10: (72.8, 69.5, 660), 38: (71.9, 68.7, 2508)}


def _ensembles(size: str, sizes: dict[int, _Numbers]) -> list[Row]:
    rows = []
    for members, numbers in sizes.items():
        published = None
        if numbers is not None:
            valid, test, millions = numbers
            published = reported_on(PENN_TREEBANK, valid_ppl=valid, test_ppl=test, all_parameters=millions)
        rows.append(
            Row(
                name=f"{size}-x{members}",
                title=f"{members} {size} regularized LSTMs",
                preset=f"zaremba2014/{size}",
                how=Averaged(members),
                published=published,
                in_paper=published is not None,
                control=size,
            )
        )
    return rows


def _ours(name: str, title: str, label: str, control: str = "") -> Row:
    """A control of ours that has a preset of its own."""
    return _row(
        f"{name}-{label}", title, f"salton2017/{name}-{label}", f"{control}-{label}" if control else "", in_paper=False
    )


def _compared(label: str) -> tuple[Row, ...]:
    """What the attention brings beside the layer that comes with it, and what its scores bring beside a mean."""
    return (
        _ours("merge", "Same, with the layer of Eq. 7 alone", label, "lstm"),
        _ours("mean", "Same, equal weights in place of scores", label, "lstm"),
    )


def _streams(label: str) -> tuple[Row, ...]:
    """The recipe over running text, where it compares with nothing but itself."""
    plain = "Recipe and size of the Attentive LM, no attention, over running text"
    single = "Attentive LM, single score, window of 35 over running text"
    return _ours("lstm-stream", plain, label), _ours("single-stream", single, label, "lstm-stream")


_GRAVE_PTB = _row("grave-lstm-ptb", "LSTM of Grave et al.", "grave2017/lstm-ptb", in_paper=False)
_SINGLE_PTB = _row("single-ptb", "Attentive LM, single score", "salton2017/single-ptb", "lstm-ptb")
_LSTM_PTB = _ours("lstm", "Same recipe and size, no attention", "ptb")
_PENN_TREEBANK = (
    _row("medium", "Medium regularized LSTM", "zaremba2014/medium"),
    _row("large", "Large regularized LSTM", "zaremba2014/large", "medium"),
    _row("large-bd-wt", "Large + BD + WT", "press2017/large-bd-wt", "medium"),
    _GRAVE_PTB,
    _cached(_GRAVE_PTB, 500, "Neural cache model (size = 500)", "grave-lstm-ptb", 72.1),
    _row("pointer-ptb", "Medium pointer sentinel-LSTM", "merity2017/pointer-ptb", "medium"),
    *_streams("ptb"),
    _row("combined-ptb", "Attentive LM, combined score", "salton2017/combined-ptb", "lstm-ptb"),
    _SINGLE_PTB,
    *_ensembles("medium", _MEDIUM),
    *_ensembles("large", _LARGE),
    _LSTM_PTB,
    *_compared("ptb"),
    _cached(_LSTM_PTB, 500, "Same without attention, with a cache (size = 500)", "lstm-ptb"),
    _cached(_SINGLE_PTB, 500, "Attentive LM, single score, with a cache (size = 500)", "lstm-ptb-cache-500"),
)

_GRAVE_WT2 = _row("grave-lstm-wt2", "LSTM-LM of Grave et al.", "grave2017/lstm-wt2")
_SINGLE_WT2 = _row("single-wt2", "Attentive LM, single score", "salton2017/single-wt2", "lstm-wt2")
_LSTM_WT2 = _ours("lstm", "Same recipe and size, no attention", "wt2")
_WIKITEXT_2 = (
    _row("zoneout-wt2", "Zoneout + variational LSTM", "merity2017/zoneout-wt2", "variational-wt2"),
    _GRAVE_WT2,
    _row("variational-wt2", "Variational LSTM", "merity2017/variational-wt2"),
    _cached(_GRAVE_WT2, 100, "Neural cache model (size = 100)", "grave-lstm-wt2", 81.6, WIKITEXT_2),
    _row("pointer-wt2", "Pointer LSTM (window = 100)", "merity2017/pointer-wt2", "variational-wt2"),
    *_streams("wt2"),
    _row("combined-wt2", "Attentive LM, combined score", "salton2017/combined-wt2", "lstm-wt2"),
    _SINGLE_WT2,
    _cached(_GRAVE_WT2, 2000, "Neural cache model (size = 2000)", "grave-lstm-wt2", 68.9, WIKITEXT_2),
    _LSTM_WT2,
    *_compared("wt2"),
    _cached(_LSTM_WT2, 2000, "Same without attention, with a cache (size = 2000)", "lstm-wt2"),
    _cached(_SINGLE_WT2, 2000, "Attentive LM, single score, with a cache (size = 2000)", "lstm-wt2-cache-2000"),
)

_COUNT = (
    "the paper's code never predicts the first word of a sentence, but counts it. If its numbers come from that code, "
)
_TRANSLATED = ", ".join(
    f"{score} {valid}/{test} are {per_predicted(valid, 'valid'):.1f}/{per_predicted(test, 'test'):.1f}"
    for score, valid, test in (("single", 71.7, 70.1), ("combined", 72.6, 70.7))
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
    return Table(
        name=name,
        kind="table",
        title=f"Table {name}: perplexity on {on.title}",
        rows=tuple(row.name for row in rows),
        columns=_COLUMNS,
        details=_DETAILS,
        home=on.corpus,
        twin_of="1",
        published_on=f"{on.title} with {on.vocabulary_size:,} words",
        remark=f"{_COUNT}{remark}",
    )


_TABLES = (
    _table(
        "1",
        PENN_TREEBANK,
        _PENN_TREEBANK,
        f"per predicted token {_TRANSLATED} (valid/test), before any first word is predicted",
    ),
    _table(
        "2",
        WIKITEXT_2,
        _WIKITEXT_2,
        "they are lower than what the other rows' count would give; it also ends each line, blank ones included, with "
        "two <eos>, so that thousands of tokens cost next to nothing",
    ),
)

# a model that reads a running text knows more than one that begins anew at each sentence
_SECTIONS = (
    Section(
        holds=lambda row: not row.by_sentence,
        title="Running text: one stream, state carried throughout",
        label="test ppl, running text",
    ),
    Section(
        title="Sentences: state reset at each line",
        note="Not to be compared with the rows of running text. Their count: the first word of each sentence is not "
        "predicted, but counted, as in the paper's code; its numbers stand beside, and after them the same words per "
        "predicted one. A cache goes on over the lines",
        label="test ppl, sentences",
    ),
)

SALTON = Paper(
    name="salton2017",
    title="Salton et al. 2017",
    rows={row.name: row for row in (*_PENN_TREEBANK, *_WIKITEXT_2)},
    tables=_TABLES,
    scales=PROPORTIONAL,
    sections=_SECTIONS,
    note="Over: test perplexity less that of the row named, which is counted alike, on the mean of the seeds that both "
    "have, or less the mean of an ensemble's own members. † is not in the paper's table",
)
