"""Li et al. (2020), "Span-Based Neural Buffer towards Efficient and Effective Utilization of Long-Distance Context".

Each of four models with a span buffer (SNB) on its encoder: AWD-LSTM (`merity2018`), with MoS (`yang2018`), partial
shuffle (`press2019`) and the adversarial softmax (`wang2019`); recipes and sizes are theirs. Table 5: training
temperature T 100 (Penn Treebank) and 10 (WikiText-2), evaluation temperature 0.1 and 0.01, spans of L = 8 and 4, a
buffer of B = 2048 and 512 words. In the text: κ = 5, a = 10, b = 1, β = 3. η is not printed; 0.1 is ours.

The paper leaves open the following; options of `model.memory` are in parentheses:

* Eq. 7 as printed does not depend on h_t: v·tanh(W_h h_t + W_s s_i), without biases, as wide as h. O is
  narrower than h under MoS: ξ goes through the same head as h.
* A span is h_i − h_{i−L+1}, as printed. The ends of Eq. 4 and 6 do not agree: the newest span ends at t − 1, each other
  one L before the next, and all move along with t. "As printed" is two readings. By Eq. 2 and 3 h_t has read x_t and
  predicts x_{t+1}: beside it, C_t has no span with h_t (`newest=before`, the default). But C_t is "the prefix for word
  x_t", which h_{t−1} predicts: its newest span ends at the state that predicts (`newest=current`, the presets
  `awd-snb-current-…`).
* p and q share the head's bias, of which Eq. 2 and 8 have none: the models below the buffer have it.
* By Eq. 8 q sees ξ_t and not h_t; `reads` has another reading, in which it sees both. The presets `…-snb-state-…` have
  one of them, and a gate that the likelihood alone teaches: as printed the buffer is no gain (`results/li2020.md`).
* The buffer holds encoder outputs before dropout, without gradients across segments, with them within a segment.
  Query, gate and ξ have one mask, in place of the output dropout.
* An empty buffer has no share and no reward. No span reaches back beyond the beginning of a stream: with states of
  zeros there, the first L − 1 spans of a text would not be differences. W_g starts small, so λ starts at about a half.
* r is a constant for the gradient; its λ has no temperature; for r < 0, η r log λ as printed, but bounded. It teaches
  all that λ depends on. With AT its p and q are those of the loss. "Annealed" means two temperatures, no schedule, of
  which nothing is printed; "w/o annealing" is one of 1.
* Trained from scratch with all of its base's recipe, AR and TAR on the encoder alone. Dynamic evaluation adapts to the
  likelihood with the evaluation temperature, without rewards (`--dynamic-loss`). Test is one stream; validation in
  training is ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from spanlm.models.memories.span_buffer import GateConfig, RewardConfig, SpanBufferConfig
from spanlm.models.memories.span_buffer.mixture import BASE, MOST, POWER, SLOPE, rewards
from spanlm.papers.paper import (
    BY_EPOCH,
    PENN_TREEBANK,
    TABLES,
    TEXTS,
    Column,
    Component,
    Details,
    Dynamic,
    Paper,
    Preset,
    Reported,
    Row,
    Section,
    Table,
    by_name,
    preset_on,
    row_of,
)
from spanlm.papers.published import merity2018, wang2019, yang2018
from spanlm.papers.scales import DynamicSearch, Proportional, Scale, changed, smoke_scale

if TYPE_CHECKING:
    from spanlm.analysis.figures import Series

_REMARK = (
    "η is not printed; 0.1 is ours. What the paper leaves open is read so: tanh in Eq. 7; {ends}; ξ goes through the "
    "same head as h, so p and q share its bias, where Eq. 2 and 8 have none; states are kept without dropout, across "
    "segments without gradients; r is a constant, its λ without temperature; all is trained from scratch by the recipe "
    "of the model below the buffer. The buffer adds {added:.2f}M, 2d² + 3d of d = {width}, which makes {total:.2f}M; "
    "the paper prints one size with and without it{printed}"
)
_ENDS = {
    "before": 'spans end at t − 1, t − 1 − L, … before the state h_t that predicts; by "the prefix C_t for word x_t" '
    "they end at t, t − L, … (model.memory.newest=current)",
    "current": 'spans end at t, t − L, … with the state h_t that predicts, as in "the prefix C_t for word x_t": the '
    "other reading of the same printed row as li2020/awd-snb",
}
_STATE_REMARK = (
    "our own reading, not the paper's: q of tanh(W [h_t; ξ_t]), both temperatures 1, no reward; the rest is "
    "li2020/{printed}. The buffer adds {added:.2f}M, 4d² + 3d of d = {width}, which makes {total:.2f}M"
)

_CONTRADICTIONS = (
    "rows without SNB are quoted from other papers, and have as many parameters as those with it, though the buffer "
    "adds 0.3M to 0.8M. The text's differences for AWD-LSTM + SNB, 5.53/5.68 and 4.37/3.71, fit no table: 5.53/5.68 "
    "are those of valid on WikiText-2 without/with dynamic evaluation, where test has 5.37/5.71; Penn Treebank has "
    "3.18/3.37 and 2.38/3.56. Nor does every row gain the 2 points that it says: MoS on Penn Treebank 1.82 (test), "
    "MoS + PS on WikiText-2 0.77 (valid, with dynamic evaluation)"
)

BASES = {"awd": merity2018.AWD, "mos": yang2018.MOS, "mos-ps": wang2019.SHUFFLED, "mos-ps-at": wang2019.ADVERSARIAL}
"""The models without a buffer, by corpus; each adds one thing to the one before."""

TOP = "mos-ps-at"
"""What the models of Table 3 have below the buffer."""

_AWD = {"ptb": 24_221_600, "wt2": 33_556_078}
_MOS = {"ptb": 21_500_620, "wt2": 34_909_528}
_PARAMETERS = {"awd": _AWD, "mos": _MOS, "mos-ps": _MOS, "mos-ps-at": _MOS}
"""How many a base has, by corpus."""

_ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "unannealed": ("w/o annealing in training", {"gate.training_temperature": 1.0}),
    "unrewarded": ("w/o reward", {"reward.weight": 0.0}),
    "words": ("w/o RNNs-minus feature", {"words": True}),
}
"""Table 3: models trained without one thing."""
_STATIC = (None, None, None, None)  # nothing is printed of these models without dynamic evaluation, but for its valid

_MEASURED = "Table 3: the same model, one part alone, the oracle policy, and w/o annealing in test"
_PARTS = {
    "encoder": "using only sequential RNN",
    "buffer": "using only sequential neural buffer",
    "oracle": "oracle policy",
}


class Printed(NamedTuple):
    """What the paper prints on a corpus, and the settings of Table 5 there."""

    label: str
    buffer: SpanBufferConfig
    rungs: Mapping[str, tuple[float, ...]]  # valid, test, millions of parameters, dynamic valid and test, by base
    ablations: tuple[float, float, float]  # dynamic test
    unannealed_test: float  # dynamic test
    parts: tuple[float, float, float]  # dynamic test
    tables: tuple[str, str, str]  # our names of the ladder, its topmost rung taken apart, and our reading of SNB
    remark: str  # on the ladder


def _buffer(size: int, length: int, training: float, evaluation: float) -> SpanBufferConfig:
    gate = GateConfig(training_temperature=training, evaluation_temperature=evaluation)
    return SpanBufferConfig(buffer_size=size, span_length=length, gate=gate, reward=RewardConfig(weight=0.1))


PRINTED = (
    Printed(
        label="ptb",
        buffer=_buffer(2048, 8, 100.0, 0.1),
        rungs={
            "awd": (56.82, 54.92, 24, 48.23, 47.54),
            "mos": (54.21, 52.62, 22, 46.53, 45.41),
            "mos-ps": (53.45, 51.1, 22, 45.51, 45.33),
            "mos-ps-at": (52.37, 50.18, 22, 44.37, 43.87),
        },
        ablations=(45.64, 45.92, 44.72),
        unannealed_test=44.12,
        parts=(46.85, 52.54, 38.72),
        tables=("1", "3", "state"),
        remark=_CONTRADICTIONS,
    ),
    Printed(
        label="wt2",
        buffer=_buffer(512, 4, 10.0, 0.01),
        rungs={
            "awd": (63.07, 60.43, 33, 40.72, 38.59),
            "mos": (60.62, 58.79, 35, 40.61, 37.76),
            "mos-ps": (60.11, 57.87, 35, 39.98, 37.01),
            "mos-ps-at": (58.75, 56.12, 35, 38.42, 35.16),
        },
        ablations=(38.23, 38.76, 37.88),
        unannealed_test=37.45,
        parts=(39.11, 45.57, 32.35),
        tables=("2", "3-wt2", "state-wt2"),
        remark=f"{_CONTRADICTIONS}. Its rows with dynamic evaluation have the parameters of Table 1",
    ),
)


def reading_state(buffer: SpanBufferConfig) -> SpanBufferConfig:
    """Return our own reading of a buffer: q of tanh(W [h_t; ξ_t]), and a gate that the likelihood alone teaches."""
    gate = {"gate.training_temperature": 1.0, "gate.evaluation_temperature": 1.0}
    return changed(buffer, {"reads": "merge", **gate, "reward.weight": 0.0})


def _preset(
    numbers: Printed,
    name: str,
    title: str,
    sources: list[str],
    buffer: SpanBufferConfig,
    base: str,
    *printed: Any,
    ours: str = "",
) -> Preset:
    """Return a model with a buffer; `ours` is the row of the paper that it reads in our own way."""
    config = BASES[base][numbers.label].config
    width, dropout = config.model.encoder.output_size, config.model.output_dropout
    # matrices (d, d), v (d) and W_g (2, d)
    added = (4 if ours else 2) * width**2 + 3 * width
    sizes = {"added": added / 1e6, "width": width, "total": (_PARAMETERS[base][numbers.label] + added) / 1e6}
    ends = _ENDS[buffer.newest]
    millions = f", {printed[2]:g}M" if printed[2:] and printed[2] else ""
    return preset_on(
        TEXTS[numbers.label],
        # the dropout of the buffer replaces the output dropout
        changed(config, {"model.memory": replace(buffer, dropout=dropout), "model.output_dropout": 0.0}),
        *printed,
        name=f"li2020/{name}-{numbers.label}",
        paper="Li et al. 2020",
        title=title,
        sources=tuple(sources),
        remark=(_STATE_REMARK if ours else _REMARK).format(**sizes, ends=ends, printed=ours or millions),
    )


_CASE = (
    "the paper does not say where its example stands; its words are those around “if it were n't for social security” "
    "in the training text of Penn Treebank, and this is the word after them. In a text without them, it is the word of "
    "the beginning of test at which the buffer's prediction is the farthest ahead of the encoder's"
)
_ANALYSED = (
    "the paper's parts, oracle and temperatures are those of the trained model while it adapts; here it adapts as a "
    "whole, and each part is read off"
)
_OURS = (
    "our own reading of the buffer, not the paper's: q is predicted from tanh(W [h_t; ξ_t]), and the likelihood alone "
    "teaches the gate (temperature 1, no reward). Two predictions are worth something without a memory, too: how much, "
    "a buffer of one span shows"
)
_COLUMNS = (
    *("parameters", "seeds", "valid ppl", "test ppl", "over", "paper: valid", "paper: test", "paper: over"),
    *("PoU", "oracle PoU", "collapsed"),
)
_PART_COLUMNS = {
    f"{split}: {title}": Column(f"{split}.parts.{part}")
    for split in ("valid", "test")
    for title, part in (("RNN", "encoder"), ("buffer", "buffer"), ("oracle", "oracle"))
}
_VALID, _TEST = list(_PART_COLUMNS)[:3], list(_PART_COLUMNS)[3:]
_DETAILS = (
    Details("Each part of the trained models by itself, and both", (*_VALID, "valid ppl", *_TEST, "test ppl")),
    Details(
        "PoU on valid after each epoch, in percent, first seed (Figure 4). The paper's falls from about 50 to nearly 0 "
        "and then rises to about 10, with an oracle PoU of 7",
        (BY_EPOCH,),
    ),
    Details(
        "Trainings, finetuning included", ("units", "parameters", "best epoch", "train ppl", "tokens/s", "minutes")
    ),
    Details(
        "Dynamic evaluation: η and λ chosen on valid; MS: the mean squares of gradients",
        ("η", "λ", "ε", "pairs tried", "on all of valid", "MS over words", "measured in minutes"),
        notes=True,
    ),
)


def _twice(preset: Preset, control: str, **more: Any) -> tuple[Row, Row]:
    """Return the rows of a preset without and with dynamic evaluation, each compared with its control's own."""
    plain = row_of(preset, control=control, **more)
    adapting = control and f"{control}-dynamic"
    return plain, replace(plain, name=f"{plain.name}-dynamic", evaluation=Dynamic(), control=adapting)


def _table(name: str, about: str, numbers: Printed, rows: list[Row], remark: str, **more: Any) -> Table:
    more |= {"rows": by_name(*rows), "text": TEXTS[numbers.label], "remark": remark}
    return Table(name=name, about=about, columns=_COLUMNS, **more)


def _tables(numbers: Printed) -> list[Table]:
    """Return the tables of a corpus: the ladder, its topmost rung taken apart, our reading of SNB."""
    rungs, beside, label, below = list[Row](), list[Row](), numbers.label, ""
    for base, presets in BASES.items():
        bare, title = _twice(presets[label], below), f"{presets[label].title} + SNB"
        below, read = f"{base}-{label}", f"{title}, q sees h_t, too"
        sources = [f"{TABLES[label]}, {title}", *([_MEASURED] if base == TOP else [])]
        snb = _preset(numbers, f"{base}-snb", title, sources, numbers.buffer, base, *numbers.rungs[base])
        rungs += [*bare, *_twice(snb, below)]
        if base == "awd":  # the same printed row in its other reading
            buffer, current = changed(numbers.buffer, {"newest": "current"}), f"{title}, newest span at t"
            again = _preset(numbers, "awd-snb-current", current, sources, buffer, base, *numbers.rungs[base])
            rungs += _twice(again, below)
        sources, ours = [f"not in the paper: {title} whose q sees h_t, too"], f"{base}-snb-{label}"
        state = _preset(numbers, f"{base}-snb-state", read, sources, reading_state(numbers.buffer), base, ours=ours)
        beside += [*bare, *_twice(state, below, in_paper=False)]
    whole, adapting = rungs[-2:]
    reduced = list[tuple[Row, Row]]()
    for (name, (title, changes)), ppl in zip(_ABLATIONS.items(), numbers.ablations, strict=True):
        preset = _preset(
            numbers, name, title, [f"Table 3, {title}"], changed(numbers.buffer, changes), TOP, *_STATIC, ppl
        )
        reduced.append(_twice(preset, whole.name))
    unannealed, *others = reduced
    tempered = replace(
        adapting,
        name=f"unannealed-test-{label}-dynamic",
        title="w/o annealing in test",
        evaluation=Dynamic(gate_temperature=1.0),
        published=Reported(test_ppl=numbers.unannealed_test),
        control=adapting.name,
    )
    apart = [whole, adapting, *unannealed, tempered, *(row for pair in others for row in pair)]
    parts = {
        whole.name: tuple(Component(key, title) for key, title in _PARTS.items()),
        adapting.name: tuple(map(Component, _PARTS, _PARTS.values(), numbers.parts)),
    }
    ladder, analysis, reading = numbers.tables
    return [
        _table(ladder, "perplexity", numbers, rungs, numbers.remark, details=_DETAILS),
        _table(analysis, "what is in it,", numbers, apart, _ANALYSED, details=_DETAILS[1:], parts=parts),
        _table(reading, "q sees h_t, too,", numbers, beside, _OURS, details=_DETAILS),
    ]


def _reward() -> tuple[Series, Series]:
    """Return the curves of Figure 3: r by q / p, and q / p itself."""
    from spanlm.analysis.figures import Point, Series  # for this figure alone

    ratios = torch.linspace(0, 2, 201, dtype=torch.float64)
    reward = rewards(torch.zeros_like(ratios), ratios.log())
    curve, same = (tuple(map(Point, ratios.tolist(), y.tolist())) for y in (reward, ratios))
    return Series("reward r (Eq. 12)", curve), Series("q / p", same)


def _figures(tables: list[Table]) -> list[Table]:
    """Return the figures and Table 4, of the topmost model on Penn Treebank."""
    (analysis,) = (table for table in tables if table.name == "3")
    whole = next(iter(analysis.rows.values()))
    case: dict[str, Any] = {"rows": by_name(whole), "text": PENN_TREEBANK, "measure": "buffer"}
    # the words around the paper's example stand here in the training text
    case |= {"texts": ("if it were n't for social security",), "remark": _CASE}
    expected = (
        Component("buffer", "SNB only", expected="payment, assist, money, sponsor"),
        Component("encoder", "Sequential RNN only", expected="tax, office, number, payment"),
        Component("mixture", "Sequential RNN + SNB", expected="payment, assist, money, tax"),
    )
    return [
        Table(
            name="figure-3",
            kind="figure",
            label="Figure 3",
            about="the reward by the ratio of the likelihoods, q / p",
            rows={},
            equation=_reward,
            x_label="q / p",
            y_label="reward",
            remark=f"Eq. 12 and 13 with κ = {POWER:g}, a = {MOST:g}, b = {BASE:g} and β = {SLOPE:g}, as printed",
        ),
        Table(
            name="figure-4",
            kind="figure",
            label="Figure 4",
            about="use of the span buffer by epoch",
            rows=by_name(whole),
            text=PENN_TREEBANK,
            details=_DETAILS[1:2],
            remark="the paper does not say of which model and text it is",
        ),
        Table(name="figure-5", kind="figure", label="Figure 5", about="attention in the span buffer", **case),
        Table(name="4", about="most probable words by part", parts={whole.name: expected}, **case),
    ]


_BY_CORPUS = [_tables(numbers) for numbers in PRINTED]
_ROWS = [row for tables in _BY_CORPUS for table in tables for row in table.rows.values()]

PRESETS = list({row.preset.name: row.preset for row in _ROWS if row.preset.paper == "Li et al. 2020"}.values())

_SHORT = {
    "optimizer.lr": 20.0,
    "epochs": 6,
    "optimizer.switch_after": 4,
    "finetune.epochs": 2,
    "batching.batch_size": 12,
    "batching.length": 35,
    "batching.group_size": None,
    # one stage, at the same rate, which shuffles as the main training does; its ε and noise stay
    "finetune.stages": 1,
    "finetune.lr": None,
    "finetune.last_latent_dropout": None,
    "finetune.partial_shuffle": None,
}
"""One recipe in few epochs for all rows."""
_SHORTEST = _SHORT | {"optimizer.lr": 10.0, "epochs": 2, "optimizer.switch_after": 1, "finetune.epochs": 1}
_RATES, _DECAYS = (5e-5, 1e-4, 2e-4, 4e-4), (0.0005, 0.002, 0.008, 0.032)

PAPER = Paper(
    name="li2020",
    title="Li et al. 2020",
    tables=(*(table for both in zip(*_BY_CORPUS, strict=True) for table in both), *_figures(_BY_CORPUS[0])),
    columns=_PART_COLUMNS
    | {
        "PoU": Column("test.parts.utilisation", scale=100, digits=1),
        "oracle PoU": Column("test.parts.oracle_utilisation", scale=100, digits=1),
    },
    scales=(
        smoke_scale(
            Proportional(width=0.025, dropout=0.5, recipe=_SHORTEST, experts=2, buffer_size=64),
            dynamic=DynamicSearch(rates=(5e-5, 2e-4), decays=(0.002,), first_tokens=500, finalists=0, statistics=5),
        ),
        Scale(
            name="small",
            purpose="a fifth of every width, a buffer of 256 words; hours of two CPU cores (see --dry-run)",
            precision="bf16",
            sizes=Proportional(width=0.2, dropout=0.5, recipe=_SHORT, experts=3, buffer_size=256),
            dynamic=DynamicSearch(rates=_RATES, decays=_DECAYS, first_tokens=5_000, finalists=3, statistics=200),
        ),
        Scale(name="paper", purpose="the papers' sizes and recipes; for a GPU", sizes=Proportional()),
    ),
    sections=(
        Section(adapting=False, title="Without dynamic evaluation"),
        Section(title="With dynamic evaluation", label="test ppl, dynamic"),
    ),
    note="Collapsed: the part of a model that is worse on valid than word frequencies, or the model if it is hardly "
    "better; such a row measures nothing else. Over: test perplexity less that of the row named, on the mean of the "
    "seeds that both have. The oracle policy takes the better part at each word once it is known: a bound, no model. "
    "PoU: at how many of the words of test, in percent, the gate prefers the buffer; oracle PoU: at how many the "
    "buffer is better",
    by_epoch="Figure 4",
    digits=2,
)
