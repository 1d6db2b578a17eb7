"""What is chosen for a trained model on a text that is not the one to be reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spanlm.arithmetic import arithmetic
from spanlm.code import LOADED, changed_since_loaded
from spanlm.context import State
from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.evaluation.cache_tuning import LAMBDAS, THETAS, CacheTuning, tune_cache
from spanlm.evaluation.dynamic_statistics import LENGTH, DynamicStatistics
from spanlm.evaluation.dynamic_tuning import EPSILON, DynamicTuning, dynamic_grid, tune_dynamic
from spanlm.evaluation.lessons import LessonLoss, Report, quiet
from spanlm.evaluation.scoring import Precision
from spanlm.evaluation.search_log import SearchLog, digest_of
from spanlm.provenance import machine, provenance
from spanlm.trained_dynamic import find_statistics
from spanlm.trained_run import TrainedRun

SEARCH = "dynamic-search"
"""Folder in a run's, of readings of searches that are not over."""


class TunedRun(TrainedRun):
    """A trained model and its folder, with what tunes a cache and dynamic evaluation."""

    def tune_cache(
        self,
        windows: Sequence[int],
        corpus: Corpus | str | None = None,
        split: Split = "valid",
        *,
        thetas: Sequence[float] = THETAS,
        lambdas: Sequence[float] = LAMBDAS,
        state: State = "auto",
        precision: Precision = "fp32",
    ) -> CacheTuning:
        """Find the best cache for a text; see `spanlm.evaluation.cache_tuning.tune_cache`, and `evaluate`."""
        text, part = self.part(corpus, split)
        kind, grid = self.batching(text, part, state), (windows, thetas, lambdas)
        how: dict[str, Any] = {"kind": kind, "precision": precision, "predict_first": self.opened}
        return tune_cache(self.model, text, part, *grid, **how)

    def dynamic_statistics(
        self,
        *,
        segments: int | None = None,
        length: int = LENGTH,
        data_dir: str | None = None,
        download: bool = False,
        report: Report = quiet,
    ) -> DynamicStatistics:
        """Return what `dynamic` needs, from the folder or gathered; see `spanlm.trained_dynamic.find_statistics`."""
        return find_statistics(
            self, segments=segments, length=length, data_dir=data_dir, download=download, report=report
        )

    def tune_dynamic(
        self,
        corpus: Corpus | str | None = None,
        split: Split = "valid",
        *,
        rates: Sequence[float] | None = None,
        decays: Sequence[float] | None = None,
        epsilon: float = EPSILON,
        length: int = LENGTH,
        loss: LessonLoss = "likelihood",
        state: State = "auto",
        precision: Precision = "fp32",
        statistics: DynamicStatistics | None = None,
        report: Report = quiet,
        log: SearchLog | None = None,
    ) -> DynamicTuning:
        """Find the best η and λ for a text; see `spanlm.evaluation.dynamic_tuning`, and `evaluate`.

        What a search that was stopped has read is in the folder and is not read again. It is forgotten when the search
        is over; with a `log` of the caller's it is the caller who says when.

        Args:
            corpus: as for `evaluate`.
            split: the part to choose on; never the one to report.
            rates: η to try; None: those of the published grid, in proportion to the length.
            decays: λ to try, likewise.
            epsilon: ε of all of them.
            length: words after which the weights learn.
            loss: what they learn from.
            state: as for `evaluate`.
            precision: of the products.
            statistics: of the gradients; None: those in the folder, or gathered now.
            report: told of progress.
            log: from `search_log`; what it has is not read again.

        Raises:
            InputError: as `evaluate`; an empty grid or a value outside its range; no text to gather statistics on.
            AstrayError: at every point the weights went astray; has the grid.
            RunError: the trained weights predict no finite numbers, or the disk refused the statistics.
        """
        text, part = self.part(corpus, split)
        kind, grid = self.batching(text, part, state), dynamic_grid(rates, decays, epsilon, length, loss)
        statistics = statistics or self.dynamic_statistics(length=length, report=report)
        how: dict[str, Any] = {"kind": kind, "precision": precision, "predict_first": self.opened}
        if log is not None:
            return tune_dynamic(self.model, text, part, statistics, grid, report=report, log=log, **how)
        with (own := self.search_log()).until_over():
            return tune_dynamic(self.model, text, part, statistics, grid, report=report, log=own, **how)

    def search_log(self) -> SearchLog:
        """Return what searches for η and λ on this model have read and did not finish.

        What is read with it is added there, in the folder `dynamic-search` of the run; see `SearchLog.until_over`.
        Where the code on the disk is no longer this process's, nothing is: it would be taken for the other code's.
        Who reads is asked here: the package's files are read, and git for the commit, which takes a moment.
        """
        if changed_since_loaded():
            return SearchLog(unkept="the package's code on the disk is no longer what this process runs")
        device = self.model.device
        identity = digest_of(asdict(self.config.model), machine(device), arithmetic(), LOADED)
        return SearchLog(self.folder / SEARCH, identity, provenance(device))
