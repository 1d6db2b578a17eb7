"""Several trained models that predict as one `Model`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from spanlm.data.pieces import refuse_one_string
from spanlm.errors import InputError, named, require, require_path
from spanlm.models.ensemble import Ensemble
from spanlm.runs.loading import load
from spanlm.runs.model import Model, require_weights
from spanlm.runs.requests import OpenVocabulary, ValidInStreams, fields_as_keywords
from spanlm.scoring.combination import EnsembleEvaluation, TunedWeights, em_weights, evaluate_members, log_p_of_each
from spanlm.store.files import expanded, is_hf


class TrainedEnsemble(Model):
    """Several trained models that predict as one; `spanlm.load_ensemble` returns it.

    All results are those of the ensemble. The members are `runs`; `config` and `folder` are the first member's. All
    members must read texts in the same way. n-gram members predict in the vocabulary of the first other member, or of
    the first member if all are n-gram models: see `ArpaModel.columns`.

    Raises:
        InputError: there are no models, they have different words or ways to read a text, or the weights are invalid.

    Example:
        >>> seeds = spanlm.load_ensemble(["runs/medium/seed-1", "runs/medium/seed-2"])
        >>> result = seeds.evaluate_members(split="valid")
        >>> max(member.perplexity for member in result.members) > result.ensemble.perplexity
        True
    """

    model: Ensemble

    def __init__(
        self,
        runs: Sequence[Model],
        combination: Literal["linear"] = "linear",
        weights: Sequence[float] | None = None,
    ) -> None:
        require(combination == "linear", "combination", combination, "linear")
        runs = tuple(runs)
        require(bool(runs), "runs", len(runs), "at least 1 model")
        # an n-gram model adopts any vocabulary: it takes that of the others
        trained = [run for run in runs if not run.any_words]
        # an ARPA file does not say how it reads texts: the first member that does decides
        reading = [run for run in runs if run.texts.reading()]
        first, *others = trained or reading[:1] or runs[:1]
        for other in others:
            refuse_other_words(first, other)
        for run in runs:
            _refuse_other_reading(first, run)
        self._runs = tuple(run.in_words_of(first) for run in runs)
        ensemble = Ensemble([run.model for run in self._runs], weights).eval()
        memories = [run.config.model.memory for run in trained]
        texts = replace(first.texts, memories=memories) if trained else first.texts
        texts.convention = first.texts.convention  # which may read words as written
        super().__init__(ensemble, texts, first.config if trained else None)

    @property
    def description(self) -> str:
        weights = self.model.head.weights
        equal = len(set(weights)) == 1
        shares = "equal weights" if equal else f"weights {' '.join(f'{weight:.3f}' for weight in weights)}"
        return f"{len(self.runs)} runs as one: average of the probabilities (linear), {shares}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.runs)} runs: {', '.join(str(run.folder) for run in self.runs)}>"

    def reweighted(self, weights: Sequence[float] | None) -> TrainedEnsemble:
        """Return the same members with other weights; None: equal weights."""
        return self._like(self.runs, weights)

    def with_attention(self, how: str) -> TrainedEnsemble:
        """Return the ensemble with a lesion of every member's memory; see `TrainedModel.with_attention`."""
        runs = [require_weights(run, f"attention={how}").with_attention(how) for run in self.runs]
        return self._like(runs, self.model.head.weights)

    def _like(self, runs: Sequence[Model], weights: Sequence[float] | None) -> TrainedEnsemble:
        changed = TrainedEnsemble(runs, weights=weights)
        changed.texts = self.texts  # which may read words as written
        return changed

    @fields_as_keywords(OpenVocabulary)
    def evaluate_members(self, request: OpenVocabulary) -> EnsembleEvaluation:
        """Measure each member, the ensemble and the oracle bound in one pass; the arguments are those of `evaluate`."""
        return evaluate_members(self.model, *self.texts.counted(request))

    @fields_as_keywords(ValidInStreams)
    def tune_weights(self, request: ValidInStreams) -> TunedWeights:
        """Find the weights of the linear mixture that fit a split best, for `reweighted`; never the split to report.

        The text is read once, its lines as in training; memory holds one float64 number per token and member. The
        arguments are those of `evaluate`.
        """
        return em_weights(log_p_of_each(self.model, self.model.head.each, *self.texts.counted(request)))


def load_ensemble(
    runs: Iterable[str | Path],
    *,
    combination: Literal["linear"] = "linear",
    weights: Sequence[float] | None = None,
    device: str = "auto",
) -> TrainedEnsemble:
    """Load the best models of several run folders as one; `device` is that of `load`.

    The linear `combination` averages the probabilities. The `weights` are scaled to sum to 1; None: equal weights.

    Raises:
        InputError: a path is not a run folder or is named twice, models have different words or ways to read a text, or
            the weights are invalid.

    Example:
        >>> both = spanlm.load_ensemble(["runs/medium/seed-1", "runs/medium/seed-2"], weights=[1, 3])
        >>> both.model.head.weights
        (0.25, 0.75)
    """
    refuse_one_string("runs", runs)
    runs = list(runs)
    for run in runs:
        require_path("runs", run)
    if names := list(filter(is_hf, runs)):
        raise InputError(f"{names[0]}: predicts sub-words, so it cannot be one of several as one. Name it alone.")
    paths = [expanded(run).resolve() for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if paths.count(path) > 1:
            raise InputError(f"{run}: is named twice; name each run once, and weigh it by {named('weights=…')}")
    return TrainedEnsemble([load(run, device) for run in runs], combination, weights)


def refuse_other_words(model: Model, other: Model, instead: str = "") -> None:
    """Refuse a model with another vocabulary, as id 17 must be the same word for all; `instead` is the way out."""
    if model.vocabulary.hash == other.vocabulary.hash:
        return
    sizes = len(model.vocabulary), len(other.vocabulary)
    pairs = zip_longest(model.vocabulary.words, other.vocabulary.words)
    differs = f"{sizes[0]:,} and {sizes[1]:,} words" if sizes[0] != sizes[1] else "as many words, but not the same"
    difference = "the same pieces, of tokenizer.json files that differ"
    for at, (mine, theirs) in enumerate(pairs):
        if mine != theirs:
            first = " and ".join("missing" if word is None else repr(word) for word in (mine, theirs))
            difference = f"{differs}; the first difference: word {at} is {first}"
            break
    raise InputError(
        f"{model.folder} and {other.folder}: have different vocabularies ({difference}). "
        f"{instead or 'Only models trained with one vocabulary can be combined.'}"
    )


def _refuse_other_reading(model: Model, other: Model) -> None:
    """Refuse a model that reads texts in another way."""
    mine, theirs = model.texts.reading(), other.texts.reading()
    for field, value in mine.items():
        if theirs.get(field, value) != value:
            raise InputError(
                f"{model.folder} and {other.folder}: were not trained alike: {field} is {value} and {theirs[field]}. "
                "Only models that read a text in the same way can be combined."
            )
