"""Li et al. (2020), "Span-Based Neural Buffer towards Efficient and Effective Utilization of Long-Distance Context".

Each of four models with a span buffer (SNB) on its encoder: AWD-LSTM (`merity2018`), with MoS (`yang2018`), partial
shuffle (`press2019`) and the adversarial softmax (`wang2019`); recipes and sizes are theirs. Table 5: training
temperature T 100 (Penn Treebank) and 10 (WikiText-2), evaluation temperature 0.1 and 0.01, spans of L = 8 and 4, a
buffer of B = 2048 and 512 words. In the text: κ = 5, a = 10, b = 1, β = 3. η is not printed; 0.1 is ours.

The paper leaves open the following; options of `model.memory` are in parentheses:

* Eq. 7 as printed does not depend on h_t: v·tanh(W_h h_t + W_s s_i), without biases, as wide as h. O is
  narrower than h under MoS: ξ goes through the same head as h.
* A span is h_i − h_{i−L+1}, as printed. The ends of Eq. 4 and 6 do not agree: the newest span ends at t − 1, each other
  one L before the next, and all move along with t. By Eq. 2 and 3 h_t has read x_t, by the text x_{t−1}: the former, so
  that no span of step t has h_t; one that ends at t itself is `newest`.
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

from dataclasses import replace

from spanlm.config import RunConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig, SpanBufferConfig
from spanlm.papers import merity2018, wang2019, yang2018
from spanlm.papers.preset import CORPORA, TABLES, Preset, Reported, reported_on

PAPER = "Li et al. 2020"
REWARD = 0.1

_REMARK = (
    "η is not printed; 0.1 is ours. What the paper leaves open is read so: tanh in Eq. 7; spans end at t − 1, "
    "t − 1 − L, …; ξ goes through the same head as h; states are kept without dropout, across segments without "
    "gradients; r is a constant, its λ without temperature; all is trained from scratch by the recipe of the model "
    "below the buffer. The buffer adds {added:.2f}M, 2d² + 3d of d = {width}, which makes {total:.2f}M; the paper "
    "prints one size with and without it{printed}"
)
_STATE_REMARK = (
    "our own reading, not the paper's: q of tanh(W [h_t; ξ_t]), both temperatures 1, no reward; the rest is "
    "li2020/{printed}. The buffer adds {added:.2f}M, 4d² + 3d of d = {width}, which makes {total:.2f}M"
)
_MEASURED = "Table 3: the same model, one part alone, the oracle policy, and w/o annealing in test"


BASES = {"awd": merity2018.RUNG, "mos": yang2018.RUNG, "mos-ps": wang2019.SHUFFLED_RUNG, "mos-ps-at": wang2019.RUNG}
"""The models without a buffer."""

TOP = "mos-ps-at"
"""What the models of Table 3 have below the buffer."""


def _buffer(size: int, length: int, training: float, evaluation: float) -> SpanBufferConfig:
    gate = GateConfig(training_temperature=training, evaluation_temperature=evaluation)
    return SpanBufferConfig(buffer_size=size, span_length=length, gate=gate, reward=RewardConfig(weight=REWARD))


BUFFERS = {"ptb": _buffer(2048, 8, 100.0, 0.1), "wt2": _buffer(512, 4, 10.0, 0.01)}


def reading_state(buffer: SpanBufferConfig) -> SpanBufferConfig:
    """Return our own reading of a buffer: q of tanh(W [h_t; ξ_t]), and a gate that the likelihood alone teaches."""
    gate = GateConfig(training_temperature=1.0, evaluation_temperature=1.0)
    return replace(buffer, reads="merge", gate=gate, reward=RewardConfig(weight=0.0))


def buffered(base: RunConfig, buffer: SpanBufferConfig) -> RunConfig:
    """Return a configuration with a buffer; its dropout replaces the output dropout."""
    memory = replace(buffer, dropout=base.model.output_dropout)
    return replace(base, model=replace(base.model, output_dropout=0.0, memory=memory))


_AWD = {"ptb": 24_221_600, "wt2": 33_556_078}
_MOS = {"ptb": 21_500_620, "wt2": 34_909_528}
_PARAMETERS = {"awd": _AWD, "mos": _MOS, "mos-ps": _MOS, "mos-ps-at": _MOS}
"""How many a base has, by corpus."""


def _preset(
    name: str,
    base: str,
    label: str,
    buffer: SpanBufferConfig,
    sources: tuple[str, ...],
    reported: Reported,
    ours: str = "",
) -> Preset:
    """Return a row; `ours` is the row of the paper that it reads in our own way."""
    config = BASES[base].configs[label]
    width = config.model.encoder.output_size
    # matrices (d, d), v (d) and W_g (2, d)
    added = (4 if ours else 2) * width**2 + 3 * width
    size = f", {reported.all_parameters:g}M" if reported.all_parameters else ""
    sizes = {"added": added / 1e6, "width": width, "total": (_PARAMETERS[base][label] + added) / 1e6}
    return Preset(
        name=f"li2020/{name}-{label}",
        paper=PAPER,
        sources=sources,
        config=buffered(config, buffer),
        reported=reported,
        remark=(_STATE_REMARK if ours else _REMARK).format(**sizes, printed=ours or size),
    )


def _row(base: str, label: str, *printed: float) -> Preset:
    sources = (f"{TABLES[label]}, {BASES[base].title} + SNB", *((_MEASURED,) if base == TOP else ()))
    return _preset(f"{base}-snb", base, label, BUFFERS[label], sources, reported_on(CORPORA[label], *printed))


def _state_row(base: str, label: str) -> Preset:
    buffer, paper = reading_state(BUFFERS[label]), f"{base}-snb-{label}"
    sources = (f"not in the paper: {BASES[base].title} + SNB whose q sees h_t, too",)
    return _preset(f"{base}-snb-state", base, label, buffer, sources, reported_on(CORPORA[label]), paper)


def _ablations(label: str, annealed: float, rewarded: float, spans: float) -> list[Preset]:
    """Table 3 on a corpus: models trained without one thing, with their test perplexity in dynamic evaluation."""
    buffer = BUFFERS[label]
    constant, unpaid = replace(buffer.gate, training_temperature=1.0), replace(buffer.reward, weight=0.0)
    changed = (
        ("unannealed", "w/o annealing in training", replace(buffer, gate=constant), annealed),
        ("unrewarded", "w/o reward", replace(buffer, reward=unpaid), rewarded),
        ("words", "w/o RNNs-minus feature", replace(buffer, words=True), spans),
    )
    return [
        _preset(name, TOP, label, memory, (f"Table 3, {title}",), reported_on(CORPORA[label], dynamic_test_ppl=test))
        for name, title, memory, test in changed
    ]


PRESETS = [
    _row("awd", "ptb", 56.82, 54.92, 24, 48.23, 47.54),
    _row("mos", "ptb", 54.21, 52.62, 22, 46.53, 45.41),
    _row("mos-ps", "ptb", 53.45, 51.1, 22, 45.51, 45.33),
    _row("mos-ps-at", "ptb", 52.37, 50.18, 22, 44.37, 43.87),
    *_ablations("ptb", 45.64, 45.92, 44.72),
    *(_state_row(base, "ptb") for base in BASES),
    _row("awd", "wt2", 63.07, 60.43, 33, 40.72, 38.59),
    _row("mos", "wt2", 60.62, 58.79, 35, 40.61, 37.76),
    _row("mos-ps", "wt2", 60.11, 57.87, 35, 39.98, 37.01),
    _row("mos-ps-at", "wt2", 58.75, 56.12, 35, 38.42, 35.16),
    *_ablations("wt2", 38.23, 38.76, 37.88),
    *(_state_row(base, "wt2") for base in BASES),
]
