"""A trained model with its vocabulary, on which everything is one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spanlm.config import RunConfig
from spanlm.data.cbt import Defect, Question, read_questions
from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.data.text import Text
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.cache import CacheConfig
from spanlm.evaluation.cache_tuning import LAMBDAS, THETAS, CacheTuning, tune_cache
from spanlm.evaluation.cloze import Context, RankedQuestion, rank_questions
from spanlm.evaluation.dynamic import evaluate_dynamic
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import DYNAMIC, LENGTH, DynamicStatistics
from spanlm.evaluation.dynamic_tuning import EPSILON, DynamicTuning, dynamic_grid, tune_dynamic
from spanlm.evaluation.generation import generate
from spanlm.evaluation.lessons import LessonLoss, Report, quiet
from spanlm.evaluation.perplexity import Evaluation, evaluate
from spanlm.evaluation.scoring import Precision
from spanlm.evaluation.search_log import SearchLog, digest_of
from spanlm.evaluation.words import StateMode, WordScore, score_words
from spanlm.models.interfaces import NextWordModel
from spanlm.models.memories import SpanBufferMemory
from spanlm.runs.statistics import find_statistics
from spanlm.runs.texts import State, Texts
from spanlm.store.arithmetic import arithmetic
from spanlm.store.files import run_name
from spanlm.store.provenance import machine, provenance

if TYPE_CHECKING:
    from spanlm.analysis.record import AttentionRecord
    from spanlm.analysis.spans import SpanRecord

SEARCH = "dynamic-search"
"""Folder in a run's, of readings of searches that are not over."""


class LoadedModel:
    """What one trained model and several as one have in common.

    Attributes:
        model: predicts the next word; in evaluation mode.
        vocabulary: its words.
        config: the run's configuration.
        folder: where it came from.
        texts: what it can read, and how.
    """

    def __init__(self, model: NextWordModel, texts: Texts) -> None:
        """Keep a model and its texts together."""
        self.model, self.texts = model, texts
        self.vocabulary, self.config, self.folder = texts.vocabulary, texts.config, texts.folder

    def title(self, source: str = "") -> str:
        """Name the run, its memory and where a text comes from."""
        return f"{run_name(self.folder)}, {self.config.model.memory.description}{source}"

    def corpus(
        self,
        name: str | None = None,
        split: Split | None = None,
        *,
        data_dir: str | None = None,
        download: bool = False,
        as_text: bool = False,
    ) -> Corpus:
        """Load a corpus in this model's vocabulary; see `spanlm.runs.texts.Texts.corpus`."""
        return self.texts.corpus(name, split, data_dir=data_dir, download=download, as_text=as_text)

    def tokenize(self, text: str) -> list[str]:
        """Split text into words as the training text was."""
        return self.texts.tokenize(text)

    def evaluate(
        self,
        corpus: Corpus | str | None = None,
        split: Split = "test",
        *,
        state: State = "auto",
        batch_size: int | None = None,
        precision: Precision = "fp32",
        cache: CacheConfig | None = None,
    ) -> Evaluation:
        """Measure perplexity; see `spanlm.evaluation.perplexity.evaluate`.

        Args:
            corpus: one that is loaded, a name or path (a file is taken whole), or None for the one of the training.
            split: train, valid or test.
            state: what a word's context is: the whole split (carry), its document, its line; auto: as in training.
            batch_size: streams side by side; None: as many as change nothing.
            precision: of the products.
            cache: mix a neural cache in; the result has the numbers without it, too.

        Raises:
            InputError: no such corpus or part, one in another vocabulary, or an option outside its range.
        """
        loaded, part = self.texts.part(corpus, split)
        return evaluate(
            self.model,
            loaded,
            part,
            kind=self.texts.batching(loaded, part, state),
            batch_size=batch_size,
            precision=precision,
            predict_first=self.texts.predict_first,
            cache=cache,
        )

    def score(
        self,
        text: str | Text | Iterable[str],
        *,
        state: StateMode = "line",
        base: float = 2.0,
        oov: Literal["flag", "error"] = "flag",
        eos: bool = False,
    ) -> Iterator[WordScore]:
        """Give every word's surprisal, entropy and rank; see `spanlm.evaluation.words.score_words`.

        Lines are cut into sentences if those of the training were (data.lines). Where the first word of each was only
        read in training (training.batching.predict_first), the model has no surprisal for it: it is NaN.

        Args:
            text: one string, cut at its line ends; lines; or a file of any size, read as rows are asked for.
            state: what a word's context is.
            base: of the logarithm; 2 gives bits.
            oov: flag words outside the vocabulary, or refuse them.
            eos: give the line ends rows, too.

        Raises:
            InputError: an option outside its range, with oov="error" a word outside the vocabulary, a file that cannot
                be read, or a `state` that the model cannot use: a memory of everything carried over all lines, lines
                that are not opened.
        """
        pieces = self.texts.pieces(text.removesuffix("\n").split("\n") if isinstance(text, str) else text)
        self.texts.refuse_context(state)
        start = (self.model, self.vocabulary, pieces)
        return score_words(*start, state=state, base=base, oov=oov, eos=eos, opened=self.texts.predict_first)

    def cloze(
        self,
        questions: str | Path | Iterable[Question | Defect],
        *,
        contexts: Sequence[Context] | None = None,
        batch_size: int = 64,
    ) -> Iterator[RankedQuestion | Defect]:
        """Rank the candidates of cloze questions; see `spanlm.evaluation.cloze`.

        Args:
            questions: a file in the format of the Children's Book Test, or what `read_questions` gives.
            contexts: what is read before a query: full, query, none; a question is ranked once with each. None: full,
                but query for a model that was trained on lines that know nothing of each other.
            batch_size: questions read side by side.

        Returns:
            In the order of the questions, their ranks, and the defects of those that cannot be scored.

        Raises:
            InputError: an unknown context, full for a model that was trained on lines alone, none for one that predicts
                no first words, or a file that cannot be read or holds no question.
        """
        contexts = self.texts.cloze_contexts(contexts)
        read = read_questions(Path(questions)) if isinstance(questions, str | Path) else questions
        tokenizer = self.config.data.effective_tokenizer
        return rank_questions(
            self.model,
            self.vocabulary,
            tokenizer,
            read,
            contexts=contexts,
            batch_size=batch_size,
            opened=self.texts.predict_first,
        )

    def generate(
        self,
        prompt: str = "",
        *,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        unk: bool = False,
    ) -> list[str]:
        """Continue a prompt; see `spanlm.evaluation.generation.generate`.

        Args:
            prompt: the words to continue; empty: start a line. Line ends in it are <eos>, and so are the ends of
                sentences if the training's lines were cut into them (data.lines).
            length: how many words.
            temperature: 1 samples from the model; 0 always takes the most probable word.
            top_k: draw from the k most probable words.
            top_p: draw from the fewest words that hold this share of the probability.
            seed: the same seed gives the same words.
            unk: let <unk> be drawn, too.

        Returns:
            The new words; <eos> is a line end. After one, a model that was trained on lines alone begins anew, or, if
            it knows no first words (training.batching.predict_first), ends.

        Raises:
            InputError: an option outside its range, or no first word for a model that can give none.
        """
        words = self.words(prompt, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, unk=unk)
        return list(words)

    def words(
        self,
        prompt: str = "",
        *,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        unk: bool = False,
    ) -> Iterator[str]:
        """Give the words of `generate` one by one, each as soon as it is drawn; arguments as there."""
        start = (self.model, self.vocabulary, self.texts.prompt(prompt))
        how: dict[str, Any] = {"line_by_line": self.texts.line_by_line, "opened": self.texts.predict_first}
        return generate(
            *start, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, unk=unk, **how
        )

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
        text, part = self.texts.part(corpus, split)
        kind, grid = self.texts.batching(text, part, state), (windows, thetas, lambdas)
        how: dict[str, Any] = {"kind": kind, "precision": precision, "predict_first": self.texts.predict_first}
        return tune_cache(self.model, text, part, *grid, **how)


class TrainedModel(LoadedModel):
    """What `spanlm.load` gives: a model, its vocabulary, its config and its folder, and all that is done with them.

    Attributes:
        statistics_file: the name in the folder of what dynamic evaluation has to know of the model.
    """

    statistics_file = DYNAMIC

    def __init__(self, model: NextWordModel, vocabulary: Vocabulary, config: RunConfig, folder: Path) -> None:
        """Keep the four together."""
        super().__init__(model, Texts(vocabulary, config, folder))

    def evaluate(
        self,
        corpus: Corpus | str | None = None,
        split: Split = "test",
        *,
        state: State = "auto",
        batch_size: int | None = None,
        precision: Precision = "fp32",
        cache: CacheConfig | None = None,
        dynamic: DynamicConfig | None = None,
        statistics: DynamicStatistics | None = None,
        report: Report = quiet,
        log: SearchLog | None = None,
    ) -> Evaluation:
        """Measure perplexity; see `spanlm.evaluation.perplexity.evaluate`.

        Args:
            corpus: one that is loaded, a name or path (a file is taken whole), or None for the one of the training.
            split: train, valid or test.
            state: what a word's context is: the whole split (carry), its document, its line; auto: as in training.
            batch_size: streams side by side; None: as many as change nothing.
            precision: of the products.
            cache: mix a neural cache in; the result has the numbers without it, too.
            dynamic: let a copy of the weights follow the text; the result has the numbers without it, too.
            statistics: for `dynamic`; None: as `dynamic_statistics` gives them, which may take long.
            report: told of the progress of `dynamic`.
            log: of the search that found `dynamic`, as `search_log` gives it: what it has read is not read again.

        Raises:
            InputError: no such corpus or part, one in another vocabulary, an option outside its range, or a cache and
                weights that follow the text at once.
            AstrayError: weights that followed the text went astray.
        """
        if dynamic is None:
            return super().evaluate(corpus, split, state=state, batch_size=batch_size, precision=precision, cache=cache)
        if cache is not None:
            raise InputError("dynamic evaluation and a cache do not go together: measure the one, then the other")
        loaded, part = self.texts.part(corpus, split)
        return evaluate_dynamic(
            self.model,
            loaded,
            part,
            statistics or self.dynamic_statistics(length=dynamic.length, report=report),
            dynamic,
            kind=self.texts.batching(loaded, part, state),
            batch_size=batch_size,
            precision=precision,
            predict_first=self.texts.predict_first,
            report=report,
            log=log,
        )

    def attend(self, text: str, *, expected: int = 5, state: StateMode = "line") -> AttentionRecord:
        """Read a text and record where the model looked at each word, and what it expected next.

        Args:
            text: lines, or sentences if the training's lines were cut into them (data.lines), are closed by <eos>.
            expected: how many of the most probable next words to keep.
            state: what a word's context is, as of `score`.

        Raises:
            InputError: no words, a model that attends to nothing or to spans, which `attend_spans` shows, or a `state`
                that the model cannot use.
        """
        from spanlm.analysis.attend import attend_words

        if self.has_spans:
            raise InputError(
                "model.memory.kind=span_buffer: the model looks at spans, and takes of them what its gate lets in; "
                "attend_spans(text) tells of both"
            )
        words, starts = self.texts.to_attend(text, state)
        how: dict[str, Any] = {"title": self.title(), "opened": self.texts.predict_first, "starts": starts}
        return attend_words(self.model, self.vocabulary, words, expected=expected, **how)

    @property
    def has_spans(self) -> bool:
        """Whether it looks at spans: whether it has a span buffer."""
        return isinstance(getattr(self.model, "memory", None), SpanBufferMemory)

    def attend_spans(self, text: str, *, expected: int = 5, state: StateMode = "line") -> SpanRecord:
        """Read a text and record at which spans a span buffer looked, its gate, and what each part expected next.

        Args:
            text: as of `attend`.
            expected: how many of the most probable next words of each part to keep.
            state: as of `attend`.

        Raises:
            InputError: no words, a model without a span buffer, or a `state` that the model cannot use.
        """
        from spanlm.analysis.spans import attend_spans

        if not self.has_spans:
            raise InputError(f"{self.title()}: has no span buffer; attend(text) tells at which words a model looked")
        words, starts = self.texts.to_attend(text, state)
        how: dict[str, Any] = {"title": self.title(), "opened": self.texts.predict_first, "starts": starts}
        return attend_spans(self.model, self.vocabulary, words, expected=expected, **how)

    def dynamic_statistics(
        self,
        *,
        segments: int | None = None,
        length: int = LENGTH,
        data_dir: str | None = None,
        download: bool = False,
        report: Report = quiet,
    ) -> DynamicStatistics:
        """Return what `dynamic` needs, from the folder or gathered; see `spanlm.runs.statistics.find_statistics`."""
        return find_statistics(
            self.model,
            self.texts,
            self.statistics_file,
            segments=segments,
            length=length,
            data_dir=data_dir,
            download=download,
            report=report,
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
        text, part = self.texts.part(corpus, split)
        kind, grid = self.texts.batching(text, part, state), dynamic_grid(rates, decays, epsilon, length, loss)
        statistics = statistics or self.dynamic_statistics(length=length, report=report)
        how: dict[str, Any] = {"kind": kind, "precision": precision, "predict_first": self.texts.predict_first}
        if log is not None:
            return tune_dynamic(self.model, text, part, statistics, grid, report=report, log=log, **how)
        with (own := self.search_log()).until_over():
            return tune_dynamic(self.model, text, part, statistics, grid, report=report, log=own, **how)

    def search_log(self) -> SearchLog:
        """Return what searches for η and λ on this model have read and did not finish.

        What is read with it is added there, in the folder `dynamic-search` of the run; see `SearchLog.until_over`.
        Who reads is asked here: the package's files are read, and git for the commit, which takes a moment.
        """
        device = self.model.device
        made = provenance(device)
        identity = digest_of(asdict(self.config.model), machine(device), arithmetic(), made["commit"])
        return SearchLog(self.folder / SEARCH, identity, made)
