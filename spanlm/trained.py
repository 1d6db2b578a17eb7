"""A trained model with its vocabulary, on which everything is one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spanlm.context import State, cloze_contexts, reads_line_by_line, text_to_attend
from spanlm.data.cbt import Defect, Question, read_questions
from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.data.text import Text
from spanlm.errors import InputError
from spanlm.evaluation.cache import CacheConfig
from spanlm.evaluation.cloze import Context, RankedQuestion, rank_questions
from spanlm.evaluation.dynamic import evaluate_dynamic
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import DynamicStatistics
from spanlm.evaluation.generation import generate
from spanlm.evaluation.lessons import Report, quiet
from spanlm.evaluation.perplexity import Evaluation, evaluate
from spanlm.evaluation.scoring import Precision
from spanlm.evaluation.search_log import SearchLog
from spanlm.evaluation.words import StateMode, WordScore, score_words
from spanlm.models.memories.span_buffer import SpanBufferMemory
from spanlm.trained_tuning import TunedRun

if TYPE_CHECKING:
    from spanlm.analysis.record import AttentionRecord
    from spanlm.analysis.spans import SpanRecord


class TrainedModel(TunedRun):
    """What `spanlm.load` gives: a model, its vocabulary, its config and its folder, and all that is done with them."""

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
        loaded, part = self.part(corpus, split)
        how: dict[str, Any] = {
            "kind": self.batching(loaded, part, state),
            "batch_size": batch_size,
            "precision": precision,
            "predict_first": self.opened,
        }
        if dynamic is None:
            return evaluate(self.model, loaded, part, cache=cache, **how)
        if cache is not None:
            raise InputError("dynamic evaluation and a cache do not go together: measure the one, then the other")
        statistics = statistics or self.dynamic_statistics(length=dynamic.length, report=report)
        return evaluate_dynamic(self.model, loaded, part, statistics, dynamic, report=report, log=log, **how)

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
        pieces = self.pieces(text.removesuffix("\n").split("\n") if isinstance(text, str) else text)
        self.refuse_context(state)
        start = (self.model, self.vocabulary, pieces)
        return score_words(*start, state=state, base=base, oov=oov, eos=eos, opened=self.opened)

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
        contexts = cloze_contexts(self.config, contexts)
        read = read_questions(Path(questions)) if isinstance(questions, str | Path) else questions
        tokenizer = self.config.data.effective_tokenizer
        return rank_questions(
            self.model,
            self.vocabulary,
            tokenizer,
            read,
            contexts=contexts,
            batch_size=batch_size,
            opened=self.opened,
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
        self.refuse_context(state)
        words, starts = text_to_attend(self.pieces(text.split("\n")), state)
        how: dict[str, Any] = {"title": self.title(), "opened": self.opened, "starts": starts}
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
        self.refuse_context(state)
        words, starts = text_to_attend(self.pieces(text.split("\n")), state)
        how: dict[str, Any] = {"title": self.title(), "opened": self.opened, "starts": starts}
        return attend_spans(self.model, self.vocabulary, words, expected=expected, **how)

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
        start = (self.model, self.vocabulary, self.prompt(prompt))
        how: dict[str, Any] = {"line_by_line": reads_line_by_line(self.config), "opened": self.opened}
        return generate(
            *start, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, unk=unk, **how
        )
