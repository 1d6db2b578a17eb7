"""The tables of Salton et al. (2017), "Attentive Language Models": models of five papers on two corpora.

Beside the paper's rows there are controls of ours: the recipe and the size of its model without the attention, the
cache on top of both, the LSTM that the cache was put on, and ensembles of three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spanlm.presets.preset import PENN_TREEBANK, WIKITEXT_2, Measured, reported_on
from spanlm.reproduction import Averaged, Cached, Details, Paper, Row, Section, Table
from spanlm.reproduction.scales import Proportional, Scale

PREDICTED_SHARE = {"valid": 0.95431, "test": 0.95437}
"""Of the tokens of Penn Treebank, those that are not the first of their sentence."""


def per_predicted(published: float, split: str) -> float:
    """Return what a perplexity on Penn Treebank that counts unpredicted first words is per predicted token.

    exp(NLL / all) -> exp(NLL / predicted), so its logarithm is divided by the share of predicted tokens.
    """
    return float(published ** (1 / PREDICTED_SHARE[split]))


def _plain(preset: str, title: str, control: str = "", *, ours: bool = False) -> Row:
    """A trained row, named as its preset; `ours` is a control that the paper does not have."""
    return Row(name=preset.partition("/")[2], title=title, preset=preset, control=control, in_paper=not ours)


def _cached(plain: Row, window: int, title: str, control: str = "", on: Measured = PENN_TREEBANK, **test: float) -> Row:
    """A cache on a trained model; without a published number it is a control of ours."""
    return replace(
        plain,
        name=f"{plain.name}-cache-{window}",
        title=title,
        how=Cached(window),
        published=reported_on(on, **test) if test else None,
        in_paper=bool(test),
        control=control or plain.name,
    )


# members -> published valid and test perplexity, and millions of parameters; three are a control of ours
_MEDIUM = {2: (80.6, 77.0, 40), 3: None, 5: (76.7, 73.3, 100), 10: (75.2, 72.0, 200)}
_LARGE = {2: (76.9, 73.6, 122), 3: None, 10: (72.8, 69.5, 660), 38: (71.9, 68.7, 2508)}


def _ensembles(size: str, sizes: Mapping[int, tuple[float, float, float] | None]) -> list[Row]:
    names, rows = ("valid_ppl", "test_ppl", "all_parameters"), []
    for members, numbers in sizes.items():
        title, plain = f"{members} {size} regularized LSTMs", _plain(f"zaremba2014/{size}", "", size)
        published = None if numbers is None else reported_on(PENN_TREEBANK, **dict(zip(names, numbers, strict=True)))
        how: dict[str, Any] = {"how": Averaged(members), "published": published, "in_paper": numbers is not None}
        rows.append(replace(plain, name=f"{size}-x{members}", title=title, **how))
    return rows


def _attentive(label: str) -> dict[str, Row]:
    """The paper's models on a corpus, and ours beside them.

    What the attention brings beside the layer that comes with it, what its scores bring beside a mean, and the recipe
    over running text, where it compares with nothing but itself.
    """
    preset, lstm, stream = "salton2017/{}-" + label, f"lstm-{label}", f"lstm-stream-{label}"
    plain = "Recipe and size of the Attentive LM, no attention, over running text"
    single = "Attentive LM, single score, window of 35 over running text"
    return {
        "lstm-stream": _plain(preset.format("lstm-stream"), plain, ours=True),
        "single-stream": _plain(preset.format("single-stream"), single, stream, ours=True),
        "combined": _plain(preset.format("combined"), "Attentive LM, combined score", lstm),
        "single": _plain(preset.format("single"), "Attentive LM, single score", lstm),
        "lstm": _plain(preset.format("lstm"), "Same recipe and size, no attention", ours=True),
        "merge": _plain(preset.format("merge"), "Same, with the layer of Eq. 7 alone", lstm, ours=True),
        "mean": _plain(preset.format("mean"), "Same, equal weights in place of scores", lstm, ours=True),
    }


_PTB, _WT2 = _attentive("ptb"), _attentive("wt2")
_GRAVE_PTB = replace(_plain("grave2017/lstm-ptb", "LSTM of Grave et al.", ours=True), name="grave-lstm-ptb")
_PENN_TREEBANK = (
    _plain("zaremba2014/medium", "Medium regularized LSTM"),
    _plain("zaremba2014/large", "Large regularized LSTM", "medium"),
    _plain("press2017/large-bd-wt", "Large + BD + WT", "medium"),
    _GRAVE_PTB,
    _cached(_GRAVE_PTB, 500, "Neural cache model (size = 500)", test_ppl=72.1),
    _plain("merity2017/pointer-ptb", "Medium pointer sentinel-LSTM", "medium"),
    *(_PTB[name] for name in ("lstm-stream", "single-stream", "combined", "single")),
    *_ensembles("medium", _MEDIUM),
    *_ensembles("large", _LARGE),
    *(_PTB[name] for name in ("lstm", "merge", "mean")),
    _cached(_PTB["lstm"], 500, "Same without attention, with a cache (size = 500)"),
    _cached(_PTB["single"], 500, "Attentive LM, single score, with a cache (size = 500)", "lstm-ptb-cache-500"),
)

_GRAVE_WT2 = replace(_plain("grave2017/lstm-wt2", "LSTM-LM of Grave et al."), name="grave-lstm-wt2")
_WIKITEXT_2 = (
    _plain("merity2017/zoneout-wt2", "Zoneout + variational LSTM", "variational-wt2"),
    _GRAVE_WT2,
    _plain("merity2017/variational-wt2", "Variational LSTM"),
    _cached(_GRAVE_WT2, 100, "Neural cache model (size = 100)", on=WIKITEXT_2, test_ppl=81.6),
    _plain("merity2017/pointer-wt2", "Pointer LSTM (window = 100)", "variational-wt2"),
    *(_WT2[name] for name in ("lstm-stream", "single-stream", "combined", "single")),
    _cached(_GRAVE_WT2, 2000, "Neural cache model (size = 2000)", on=WIKITEXT_2, test_ppl=68.9),
    *(_WT2[name] for name in ("lstm", "merge", "mean")),
    _cached(_WT2["lstm"], 2000, "Same without attention, with a cache (size = 2000)"),
    _cached(_WT2["single"], 2000, "Attentive LM, single score, with a cache (size = 2000)", "lstm-wt2-cache-2000"),
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
        label="test ppl, sentences, their count",
        counted=("salton2017", "perplexity"),
    ),
)

_SCALES = (
    Scale(
        name="smoke",
        purpose="does everything run? minutes on the embedded corpus; the numbers mean nothing",
        corpus="demo",
        vocabulary_size=2_000,
        most_members=3,
        sizes=Proportional(width=0.025, dropout=0.5, max_epochs=1),
    ),
    Scale(
        name="small",
        purpose="a fifth of every width; hours of one CPU core",
        vocabulary_size=16_000,
        most_members=3,
        precision="bf16",
        sizes=Proportional(width=0.2, dropout=0.5, max_epochs=8, update_words=800),
    ),
    Scale(name="paper", purpose="the papers' sizes and recipes; for a GPU", sizes=Proportional()),
)

SALTON = Paper(
    name="salton2017",
    title="Salton et al. 2017",
    rows={row.name: row for row in (*_PENN_TREEBANK, *_WIKITEXT_2)},
    tables=(
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
            "they are lower than what the other rows' count would give; it also ends each line, blank ones included, "
            "with two <eos>, so that thousands of tokens cost next to nothing",
        ),
    ),
    scales=_SCALES,
    sections=_SECTIONS,
    note="Over: test perplexity less that of the row named, which is counted alike, on the mean of the seeds that both "
    "have, or less the mean of an ensemble's own members. † is not in the paper's table",
)
