"""Which η and λ suit a model's dynamic evaluation: a grid over a text that is not the one to be reported.

What the weights have become at a word differs from point to point, so each needs passes of its own. They share the
statistics, and most of the grid reads only the first 30,000 tokens (as the fast search of the published code does); the
best few of it then read all of the text, and the best of those is taken. Weights can do well for the first tokens and
go astray later; where none of the best few does better than weights that rest, the next ones read all of it, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.sentence_rules import SentenceRules
from spanlm.errors import RunError, require
from spanlm.evaluation.astray import AstrayError, went_astray
from spanlm.evaluation.dynamic import logged_reading, require_loss, require_statistics
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import LENGTH, DynamicStatistics
from spanlm.evaluation.first_words import unopened_notes
from spanlm.evaluation.grid_edge import edge_note
from spanlm.evaluation.lessons import LessonLoss, Report, quiet
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.evaluation.scoring import Precision, Tally, perplexity, tally
from spanlm.evaluation.search_log import SearchLog
from spanlm.models.interfaces import NextWordModel

RATES = (3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 1e-4)
"""η of the published grid, for segments of 5 tokens; with others in proportion."""

DECAYS = (0.001, 0.002, 0.003, 0.005)
"""λ of the published grid, likewise."""

EPSILON = DynamicConfig().epsilon

FIRST_TOKENS = 30_000
"""That every point reads."""

FINALISTS = 4
"""Points that read all of the text; more if none of them helps."""


@dataclass(frozen=True)
class TriedAdaptation:
    """A point of the grid.

    Attributes:
        rate: η.
        decay: λ.
        first: perplexity of the first tokens; infinite from e^700 on.
        perplexity: of all of the text, likewise; None where it was not among the best of the first.
        whole: all of the text was read.
    """

    rate: float
    decay: float
    first: float
    perplexity: float | None
    whole: bool


@dataclass(frozen=True)
class DynamicTuning:
    """What a grid showed.

    Attributes:
        text: corpus and split.
        tokens: how many were predicted.
        first_tokens: how many of them by every point.
        plain: perplexity of all of the text with the trained weights.
        best: what has the lowest perplexity of all of the text; without finalists, of its first tokens.
        perplexity: that.
        grid: every point, η outermost.
        notes: where the best lies on the edge of the grid, so that the true one may lie beyond; and what else to know.
    """

    text: str
    tokens: int
    first_tokens: int
    plain: float
    best: DynamicConfig
    perplexity: float
    grid: list[TriedAdaptation]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def dynamic_grid(
    rates: Sequence[float] | None,
    decays: Sequence[float] | None,
    epsilon: float = EPSILON,
    length: int = LENGTH,
    loss: LessonLoss = "likelihood",
) -> list[DynamicConfig]:
    """Return every η with every λ; None: those of the published grid.

    Raises:
        InputError: there are none, or a value is outside its range.
    """
    rates = [rate * (length / LENGTH) for rate in RATES] if rates is None else rates
    decays = [decay * (length / LENGTH) for decay in DECAYS] if decays is None else decays
    for name, values in (("rate", rates), ("decay", decays)):
        require(len(values) > 0, f"dynamic.{name}", "", "at least one value")
    how: dict[str, Any] = {"epsilon": epsilon, "length": length, "loss": loss}
    return [DynamicConfig(rate=rate, decay=decay, **how) for rate, decay in product(rates, decays)]


def tune_dynamic(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    statistics: DynamicStatistics,
    grid: Sequence[DynamicConfig],
    *,
    kind: BatchingKind = "streams",
    precision: Precision = "fp32",
    predict_first: bool = True,
    first_tokens: int = FIRST_TOKENS,
    finalists: int = FINALISTS,
    report: Report = quiet,
    log: SearchLog | None = None,
) -> DynamicTuning:
    """Try every point of a grid.

    Args:
        model: is not changed; a copy of it learns.
        corpus: encoded with the model's vocabulary.
        split: the part to choose on; never the one to report.
        statistics: of this model.
        grid: of one length, that of the statistics.
        kind: when state is reset; as in `evaluate_dynamic`.
        precision: of the products.
        predict_first: the model was trained on sentences opened by <eos>; if not, they are read as it knows them.
        first_tokens: how many every point reads; the whole text if it has no more.
        finalists: how many points read all of it, and more, one by one, until one helps; 0: none, and the first
            tokens decide.
        report: told of progress.
        log: keeps what is read, and has what a search that was stopped has read.

    Raises:
        InputError: no such split, no first tokens, a number of finalists below 0, a point of another length than the
            statistics, statistics of another temperature of the gate, or the loss of training for a model without a
            span buffer.
        AstrayError: at every point the weights went astray; has the grid.
        RunError: the trained weights predict no finite numbers.
    """
    require(first_tokens >= 1, "dynamic.first_tokens", first_tokens, "at least 1")
    require(finalists >= 0, "dynamic.finalists", finalists, "0 or more")
    for config in grid:
        require_statistics(config, statistics, model)
        require_loss(config, model)
    text = _Text(model, corpus, split, kind, precision, predict_first, statistics, report, log or SearchLog())
    plain = text.resting()
    if not math.isfinite(plain.loss):
        raise RunError(f"{corpus.name} {split}: the mean NLL of the trained weights is {plain.loss}: nothing can help.")
    most = first_tokens if first_tokens < plain.tokens else None
    firsts = [text.read(config, most, f"point {number} of {len(grid)}") for number, config in enumerate(grid, 1)]
    finals = dict(enumerate(firsts)) if most is None else {}
    if most is not None and finalists:
        best = sorted(range(len(grid)), key=lambda number: _perplexity(firsts[number]))
        for n, number in enumerate(best, 1):
            if n > finalists and min(map(_perplexity, finals.values())) < _perplexity(plain):
                break
            what = f"finalist {n} of {max(n, min(finalists, len(best)))}"
            finals[number] = text.read(grid[number], None, what)
    return _summary(text, plain, grid, firsts, finals)


@dataclass(frozen=True)
class _Text:
    """What is read at every point, and how."""

    model: NextWordModel
    corpus: Corpus
    split: str
    kind: BatchingKind
    precision: Precision
    predict_first: bool
    statistics: DynamicStatistics
    report: Report
    log: SearchLog

    def resting(self) -> Tally:
        """Read all of it with the trained weights."""
        rules = SentenceRules(opened=self.predict_first, order="by-length")
        batcher = evaluation_batcher(self.corpus, self.split, self.kind, rules=rules)
        return tally(self.model, batcher.segments(), self.corpus.vocabulary.unk_id, self.precision)

    def read(self, config: DynamicConfig, most: int | None, what: str) -> Tally:
        """Read it, or the first tokens of it, with weights that follow."""
        rules = SentenceRules(opened=self.predict_first, order="drawn")
        batcher = evaluation_batcher(self.corpus, self.split, self.kind, 1, rules, config.length)

        def through(tokens: int) -> None:
            self.report(f"{what}, η {config.rate:.3g}, λ {config.decay:.3g}", tokens, most or batcher.targets)

        how: dict[str, Any] = {"precision": self.precision, "most": most, "report": through}
        unk_id = self.corpus.vocabulary.unk_id
        return logged_reading(self.log, self.model, batcher, self.statistics, config, unk_id, **how).total


def _summary(
    text: _Text, plain: Tally, grid: Sequence[DynamicConfig], firsts: Sequence[Tally], finals: Mapping[int, Tally]
) -> DynamicTuning:
    """Say what the sums over the first tokens and, of some points, over all of the text mean."""
    whole = {number: _perplexity(total) for number, total in finals.items()}
    results = whole or {number: _perplexity(total) for number, total in enumerate(firsts)}
    best = min(results, key=lambda number: results[number])
    tried = [
        TriedAdaptation(config.rate, config.decay, _perplexity(first), whole.get(number), number in whole)
        for number, (config, first) in enumerate(zip(grid, firsts, strict=True))
    ]
    if went_astray(finals.get(best, firsts[best]), plain.loss, len(text.corpus.vocabulary)):
        details = {"tried": len(grid), "plain": _perplexity(plain), "grid": [asdict(point) for point in tried]}
        raise AstrayError(
            "dynamic.rate: at every point of the grid the weights went astray. Take lower rates.", details
        )
    chosen, name = grid[best], f"{text.corpus.name} {text.split}"
    return DynamicTuning(
        text=name,
        tokens=plain.tokens,
        first_tokens=max(total.tokens for total in firsts),
        plain=_perplexity(plain),
        best=replace(chosen, tuned_on=name),
        perplexity=results[best],
        grid=tried,
        # without finalists there is nothing to compare the trained weights with
        notes=[
            *_notes(chosen, grid, helps=not whole or results[best] < _perplexity(plain)),
            *unopened_notes(text.predict_first),
        ],
    )


def _notes(chosen: DynamicConfig, grid: Sequence[DynamicConfig], helps: bool) -> list[str]:
    ends = [
        edge_note("dynamic.rate", chosen.rate, [config.rate for config in grid]),
        edge_note("dynamic.decay", chosen.decay, [config.decay for config in grid]),
    ]
    return [*([] if helps else ["no point of the grid helps."]), *filter(None, ends)]


def _perplexity(total: Tally) -> float:
    """Infinite from e^700 on."""
    return perplexity(total.loss)
