"""A trained model with its vocabulary; every measurement is one method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate, groupby, islice, tee
from pathlib import Path
from typing import Any, Self

import numpy as np

from spanlm.config import RunConfig
from spanlm.data.cbt import Defect, read_questions
from spanlm.data.corpora import Corpus
from spanlm.data.pieces import Piece, refuse_one_string, require_texts, whole_lines
from spanlm.data.tokenizer import written_spans
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, SpanlmError, named, require, whole_number
from spanlm.models.interfaces import Memory, NextWordModel
from spanlm.models.language_model import LanguageModel, to_be_filled
from spanlm.models.lesions import described_lesion, lesioned
from spanlm.models.memories import SpanBufferConfig, require_gate, require_temperature
from spanlm.options import Precision
from spanlm.runs.about import about
from spanlm.runs.requests import (
    Cloze,
    Continue,
    Evaluate,
    OnText,
    Samples,
    Score,
    TuneCache,
    TuneDynamic,
    TuneNeighbours,
    fields_as_keywords,
)
from spanlm.runs.texts import LoadCorpus, Texts
from spanlm.scoring.attention import AttentionRecord, attention_record, has_parts
from spanlm.scoring.cache import CacheTuning, tune_cache
from spanlm.scoring.cloze import RankedQuestion, Ranker
from spanlm.scoring.dynamic.evaluate import evaluate_dynamic
from spanlm.scoring.dynamic.statistics import (
    DYNAMIC,
    PART,
    DynamicStatistics,
    find_statistics,
    gate_temperature,
    statistics_without_text,
)
from spanlm.scoring.dynamic.tuning import TRIALS, DynamicTuning, Search, Trials
from spanlm.scoring.excess import Excess, excess_by_lag
from spanlm.scoring.fold import fold
from spanlm.scoring.generation import Continuations, Drawn
from spanlm.scoring.neighbours import (
    Datastore,
    NeighboursTuning,
    evaluate_neighbours,
    find_datastore,
    owner_of,
    tune_neighbours,
)
from spanlm.scoring.options import CacheConfig, Context, State
from spanlm.scoring.pairs import Compared, Pair, compare_pairs
from spanlm.scoring.perplexity import Evaluation, evaluate
from spanlm.scoring.prefix_tree import Prefixes, TextScore, read_texts
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import Report, quiet
from spanlm.scoring.words import WordScore, WrittenScore, joined_scores, score_words
from spanlm.store.files import expanded, run_name
from spanlm.store.provenance import code_version


class Model:
    """A network that predicts the next word, and its texts; `spanlm.load` and `load_ensemble` return one.

    Attributes:
        model: the network, in evaluation mode.
        texts: how the model reads texts.
        vocabulary: the words that it predicts.
        folder: the folder of its run, or the file or folder that it was loaded from.
        kind: its name in errors if it is not a `TrainedModel`.
        any_words: whether `in_words_of` can give it any vocabulary.
        attention: the argument of `TrainedModel.with_attention`; None: attention is as trained, if there is any.
    """

    kind = "several models"
    any_words = False
    attention: str | None = None
    _runs: tuple[Model, ...] = ()

    def __init__(self, model: NextWordModel, texts: Texts, config: RunConfig | None = None) -> None:
        self.model: NextWordModel = model
        self.texts: Texts = texts
        self._config = config
        self.vocabulary: Vocabulary = texts.vocabulary
        self.folder: Path = texts.folder

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder}: {self.description}{self._lesion}>"

    @property
    def _lesion(self) -> str:
        return "" if self.attention is None else f", with {described_lesion(self.attention)}"

    @property
    def config(self) -> RunConfig:
        """The configuration of the run, or of an ensemble's first member; InputError: there is none."""
        if self._config is None:
            raise InputError(f"{self.folder}: is {self.kind}, which has no encoder, memory or head")
        return self._config

    @property
    def description(self) -> str:
        return self.config.model.description + self.recency

    @property
    def recency(self) -> str:
        """The half-life of the network's recency, to append to a description; empty if there is no recency."""
        memory = getattr(self.model, "memory", None)
        half_life = memory.half_life if isinstance(memory, Memory) else None
        return "" if half_life is None else f"; half-life of recency {half_life:.3g} steps"

    def title(self) -> str:
        return f"{run_name(self.folder)}, {self.config.model.memory.description}"

    def headings(self, source: str = "a text") -> dict[str, str]:
        """Return the `title` of a record, which names the run and the `source`, and `about`, a line on the run."""
        summary = about(self)
        return {"title": f"{summary.run}{self._lesion}, reading {source}", "about": summary.line}

    def in_words_of(self, other: Model) -> Model:
        """Return the same model with another's vocabulary, if the model is of `any_words`, else the model itself."""
        return self

    @fields_as_keywords(LoadCorpus)
    def corpus(self, request: LoadCorpus) -> Corpus:
        """Load a corpus in this model's vocabulary; see `spanlm.runs.texts.Texts.corpus`."""
        return self.texts.corpus(request)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of one line."""
        return self.texts.tokens(text)

    def as_written(self) -> Self:
        """Return the same model reading words as written, not rewritten in the way of ptb or wikitext-2."""
        model = copy(self)
        model.texts = copy(self.texts)
        model.texts.convention = None
        return model

    def with_network(self, network: NextWordModel) -> Self:
        changed = copy(self)
        changed.model = network
        return changed

    @property
    def runs(self) -> tuple[Model, ...]:
        """The members of an ensemble; a single model has itself."""
        return self._runs or (self,)

    @property
    def predicts_words(self) -> bool:
        """Whether the network predicts words, not sub-words."""
        return isinstance(self.model, NextWordModel)

    @property
    def gate_temperature(self) -> float | None:
        """The temperature at which the memory's gate is evaluated; None: there is no gate."""
        return gate_temperature(self.model)

    @property
    def own_gate_temperature(self) -> float | None:
        """The gate temperature of the run's configuration; None: there is no gate."""
        return None

    def predictor(self, verb: str) -> NextWordModel:
        """Return the network for a `verb` that needs next-word distributions; InputError: the model has none."""
        if not isinstance(self.model, NextWordModel):
            only = "for evaluate, score, reading, compare, pairs, rescore and serve alone"
            raise InputError(f"{verb}: {self.folder} is {self.kind}, {only}")
        return self.model

    @fields_as_keywords(Evaluate)
    def evaluate(self, request: Evaluate) -> Evaluation:
        """Measure perplexity with the trained weights, or with `dynamic` weights that go on learning from the text.

        See `spanlm.scoring.perplexity.evaluate`, and `spanlm.runs.requests.Evaluate` for the arguments.

        Raises:
            InputError: there is no such corpus or part, it has another vocabulary, an option is outside its range, a
                cache, `neighbours` and `dynamic` are combined, or the model has no weights for the latter two.
            DivergedError: the dynamic weights diverged.
        """
        mixed = {"a cache": request.cache, "neighbours": request.neighbours, "dynamic evaluation": request.dynamic}
        first, *others = [name for name, settings in mixed.items() if settings is not None] or [""]
        if others:
            raise InputError(f"{others[-1]} and {first} do not go together: measure the one, then the other")
        if request.neighbours is not None:
            trained = require_weights(self, "neighbours")
            loaded, part, protocol = self.texts.counted(request)
            store = trained._datastore(request)
            return evaluate_neighbours(trained.model, loaded, part, protocol, store, request.neighbours)
        if request.dynamic is None:
            return self._evaluated(*self.texts.counted(request), request.cache)
        learner = require_weights(self, "dynamic").learner
        loaded, part, protocol = self.texts.counted(request)
        config, report = request.dynamic, request.report
        statistics = request.statistics or learner.dynamic_statistics(report=report)
        return evaluate_dynamic(learner.model, loaded, part, statistics, config, protocol, report=report)

    def _evaluated(self, corpus: Corpus, part: str, protocol: Protocol, cache: CacheConfig | None) -> Evaluation:
        return evaluate(self.predictor("evaluate"), corpus, part, protocol, cache=cache)

    @fields_as_keywords(OnText)
    def excess(self, request: OnText) -> list[Excess]:
        """Compare the model with the law of a synthetic text, by lag; see `spanlm.scoring.excess.excess_by_lag`."""
        return excess_by_lag(self.predictor("excess"), *self.texts.counted(request))

    @fields_as_keywords(Score)
    def score(self, request: Score) -> Iterator[WordScore]:
        """Yield every word's surprisal, entropy and rank; see `spanlm.scoring.words.score_words`.

        The `text` is a string, cut at its line ends; lines; or a `Path` of a file of any size, read as rows are
        consumed. The rows are an iterator: make a list to read them twice. Lines are cut into sentences if the training
        text was (data.lines). If training only read the first words of lines (training.batching.predict_first), their
        surprisal is NaN. The options are those of `spanlm.scoring.words.ScoreOptions`; a neural `cache` is emptied when
        the context is reset. A model of ptb or wikitext-2 rewrites words in the way of its corpus
        (`spanlm.data.tokenizer.as_in_corpus`), unless `as_written`.

        Raises:
            InputError: an option is outside its range, a word is outside the vocabulary with oov="error", the file
                cannot be read, or the model cannot use the `state`, see `spanlm.runs.texts.Texts.refuse_context`.
        """
        pieces = (self.as_written() if request.as_written else self).texts.pieces(request.text)
        self.texts.refuse_context(request.state)
        return self._scored(pieces, request)

    def _scored(self, pieces: Iterable[Piece], request: Score) -> Iterator[WordScore]:
        network, predict_first = self.predictor("score"), self.texts.predict_first
        tokenizer = self.texts.tokenizer
        spells = request.spell_unknown and not tokenizer.exact  # with pieces no word is unknown
        more: dict[str, Any] = {"predict_first": predict_first, "cache": request.cache}
        more |= {"word_ends": tokenizer.word_ends, "spell": self.texts.speller().cost if spells else None}
        return score_words(network, self.vocabulary, pieces, request, **more)

    def score_items(
        self, items: Iterable[str], *, state: Context = "line", eos: bool = False, **options: Any
    ) -> Iterator[list[WrittenScore]]:
        """Score the written words, separated by white space, of items such as the sentences of a table.

        Each item is one line to the model, even if it holds line ends, and yields one list. The options are those of
        `score`. By default each item is its own context; `state="carry"` carries the state from item to item.

        Raises:
            InputError: see `score`.
        """
        refuse_one_string("items", items)
        waiting, lines = tee(self.texts.unmarked(items))
        done, model = 0, self.as_written() if options.pop("as_written", False) else self
        scored = model.score(lines, state=state, eos=True, **options)
        for number, scores in groupby(scored, key=lambda score: score.sentence):
            for _ in islice(waiting, number - done - 1):  # a model of sentences skips blank lines
                yield []
            done = number
            item = next(waiting)
            yield model.texts.written(item, list(scores), eos=eos)
        yield from ([] for _ in waiting)

    def score_joined(
        self, lines: Iterable[Sequence[str]], *, state: Context = "line", eos: bool = False, **options: Any
    ) -> Iterator[list[WrittenScore]]:
        """Score the words of lines that are written without spaces, such as Chinese; a list a line.

        The options are those of `score`; see `spanlm.scoring.words.joined_scores`.

        Raises:
            InputError: the model reads words between white space; or see `score`.
        """
        tokenizer = self.texts.tokenizer
        if not tokenizer.exact:
            way = f"Leave {named('separator')} out, or name a model of characters, bytes or pieces"
            raise InputError("separator", "''", f"{self.folder} knows words by the white space between them", way)
        waiting, lines = tee(lines)
        scored = self.score(("".join(line) for line in lines), state=state, eos=True, **options)
        for line, (_, group) in zip(waiting, groupby(scored, key=lambda score: score.sentence), strict=True):
            scores = list(group)
            sizes = map(len, tokenizer.spelled(score.word for score in scores[:-1]))
            yield joined_scores(line, scores, sizes, eos=eos)

    def score_texts(self, texts: Iterable[str], *, precision: Precision = "fp32") -> tuple[list[TextScore], Prefixes]:
        """Return log p of many short texts, each by itself, and the words read: common beginnings are read once.

        Texts are cut into words and sentences as the training text was. First words count 0 if training only read them
        (training.batching.predict_first); a text without words then has probability 0, as nothing of it is predicted.
        Matrix products are in `precision`.

        Raises:
            InputError: a text holds the reserved word <eos>, or is not a string.
        """
        refuse_one_string("texts", texts)
        texts = list(require_texts(texts))
        eos = self.vocabulary.eos_id
        sentences = [[line.words for line in whole_lines(self.texts.pieces([text]))] or [[]] for text in texts]
        ids = [[*self.vocabulary.encode(words), eos] for lines in sentences for words in lines]
        predict_first = self.texts.predict_first
        values, prefixes = self._log_probs_of(ids, precision)
        if self.texts.tokenizer.exact:
            return [self._folded(text, row) for text, row in zip(texts, values, strict=True)], prefixes
        scores, value = [], iter(values)
        for text, lines in zip(texts, sentences, strict=True):
            log_p = [[*[0.0] * (not predict_first), *next(value)] for _ in lines]
            tokens, ends = [x for *words, _ in log_p for x in words], [end for *_, end in log_p]
            plain = next(self.texts.unmarked([text]))  # a mark that is dropped has no token
            cut = map(len, self.texts.cut(plain))
            sizes = [0 if plain[at] in " \v" else next(cut) for at, _ in written_spans(text)]
            log_probs, known = iter(tokens), (word in self.vocabulary for words in lines for word in words)
            words = [math.fsum(islice(log_probs, size)) for size in sizes]
            oov = sum(not all([*islice(known, size)]) for size in sizes)
            end = math.fsum(ends) if predict_first or any(lines) else -math.inf
            scores.append(TextScore(words, end, oov))
        return scores, prefixes

    def _log_probs_of(self, texts: list[list[int]], precision: Precision) -> tuple[list[list[float]], Prefixes]:
        """Return log p of every predicted word of texts given by id, then of their ends of words, and the words read.

        A text should end with <eos> if its end is to count.
        """
        opened = [(*[self.vocabulary.eos_id] * self.texts.predict_first, *text) for text in texts]
        ends = self.texts.tokenizer.word_ends
        values, read = read_texts(self.predictor("score"), dict.fromkeys(opened, 1), precision, word_ends=ends)
        return [values[text].T.ravel().tolist() for text in opened], Prefixes(sum(map(len, opened)), read)

    def _folded(self, text: str, values: list[float]) -> TextScore:
        """Fold log p of the tokens and of the ends of words, of one line."""
        log_p, ends = ([*[0.0] * (not self.texts.predict_first), *half] for half in np.split(np.array(values), 2))
        sizes = [len(tokens) for tokens in self.texts.cut(text)]
        sums = fold([-x for x in log_p], ends, [*accumulate(sizes, initial=0), len(log_p)], [len(sizes)])
        *words, end = (-x for x in sums)
        return TextScore(words, end if sizes or self.texts.predict_first else -math.inf, oov=0)

    def compare(self, good: str, bad: str) -> Compared:
        """Compare the probabilities of two sentences, line ends included."""
        return compare_pairs([Pair(good, bad)], lambda texts: self.score_texts(texts)[0])[0]

    @fields_as_keywords(Cloze)
    def cloze(self, request: Cloze) -> Iterator[RankedQuestion | Defect]:
        """Rank the candidates of cloze questions; see `spanlm.scoring.cloze`.

        The `questions` are a file of the Children's Book Test, or come from `read_questions`. The `contexts` (full,
        query) say what is read before each query: by default full, or query if the model was trained on independent
        lines.

        Raises:
            InputError: a context is unknown or unusable for the model, see `spanlm.runs.texts.Texts.cloze_contexts`, or
                the file cannot be read or holds no question.
        """
        network, texts, questions = self.predictor("cloze"), self.texts, request.questions
        contexts = texts.cloze_contexts(request.contexts)
        read = read_questions(expanded(questions)) if isinstance(questions, str | Path) else questions
        reading = request.batch_size, request.precision, texts.predict_first
        return Ranker(network, self.vocabulary, texts.tokenizer, contexts, *reading).ranked(iter(read))

    @fields_as_keywords(Continue)
    def generate(self, request: Continue) -> list[str]:
        """Continue a prompt; see `spanlm.scoring.generation.GenerationOptions` for how words are drawn.

        Line ends in the prompt are read as <eos>, and so are ends of sentences if the training lines were cut into
        sentences (data.lines). An empty prompt starts a line.

        Returns:
            The new words; <eos> is a line end. After a line end, a model of independent lines resets its state; if it
            cannot predict first words (training.batching.predict_first), the text ends.

        Raises:
            InputError: an option is outside its range, or the model needs a first word and the prompt has none.
        """
        return [drawn.word for drawn in self.continuations(request.prompt).draw(request)]

    @fields_as_keywords(Continue)
    def words(self, request: Continue) -> Iterator[str]:
        """Yield the words of `generate` as they are drawn."""
        return (drawn.word for drawn in self.continuations(request.prompt).draw(request))

    @fields_as_keywords(Continue)
    def draw(self, request: Continue) -> Iterator[Drawn]:
        """Yield the words of `generate` as they are drawn, with the distributions they were drawn from."""
        return self.continuations(request.prompt).draw(request)

    @fields_as_keywords(Samples)
    def samples(self, request: Samples) -> Iterator[list[str]]:
        """Yield `count` continuations of a prompt, several computed side by side; the options are those of `generate`.

        Sample n, from 0, equals `generate` with seed + n, up to rounding.
        """
        return self.continuations(request.prompt).samples(request, request.count)

    def continuations(self, prompt: str, drawn: Sequence[str] = ()) -> Continuations:
        """Return what can follow a prompt and the words that were `drawn` after it, which are not cut again."""
        network, texts = self.predictor("generate"), self.texts
        words = [*texts.prompt(prompt), *drawn]
        return Continuations(network, self.vocabulary, words, texts.line_by_line, texts.predict_first)

    @fields_as_keywords(TuneCache)
    def tune_cache(self, request: TuneCache) -> CacheTuning:
        """Find the best cache for a text; see `spanlm.scoring.cache.tune_cache`, and `evaluate`."""
        network, (loaded, part, protocol) = self.predictor("cache"), self.texts.counted(request)
        grid = request.windows, request.thetas, request.lambdas
        return tune_cache(network, loaded, part, *grid, protocol, request.over_lines)


class TrainedModel(Model):
    """A trained network with weights and a memory: it can show its attention and go on learning.

    Example:
        >>> model = spanlm.load("runs/demo")
        >>> look = model.attend("the name is bound .")
        >>> look.words[0], look.weights.shape  # a row for each word read, of its weights on the five before
        ('<eos>', (6, 5))
        >>> nothing = model.with_attention("none").evaluate(split="valid").perplexity
    """

    model: LanguageModel
    _intact: LanguageModel | None = None
    """For a model with a lesion, the network without it."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, config: RunConfig, folder: Path) -> None:
        memories = (config.model.memory,)
        texts = Texts(vocabulary, config.data, folder, batching=config.training.batching, memories=memories)
        super().__init__(model, texts, config)

    def with_attention(self, how: str) -> TrainedModel:
        """Return the same weights with a lesion of the memory, not trained for it; see `spanlm.models.lesions`.

        `how` is uniform (all slots of a step have equal weights), none (nothing is remembered) or window=K (only the
        nearest K slots are kept). `config` stays the run's. A new lesion replaces an earlier one.

        Raises:
            InputError: `how` is none of these, the memory does not attend, or it has fewer than K slots.
        """
        intact = self._intact or self.model
        changed = self.with_network(lesioned(intact, how, self.title()))
        changed.attention, changed._intact = how, intact
        return changed

    @property
    def learner(self) -> TrainedModel:
        """The model itself, for dynamic evaluation; InputError: the model has a lesion."""
        if self.attention is not None:
            why = "dynamic evaluation would learn with it: measure the one, then the other"
            raise InputError("attention", self.attention, why)
        return self

    def at_gate_temperature(self, temperature: float) -> TrainedModel:
        """Return the same weights with another temperature T of the gate, λ̂ ∝ exp(W_g h_t / T) (Li et al., 2020).

        Every evaluation uses T, and so do the gradient statistics, which are gathered anew for T. `config` stays the
        run's.

        Raises:
            InputError: the model has no gate, or T is below 1e-6 or not finite.
        """
        if self._intact is not None and self.attention is not None:
            whole = self.with_network(self._intact)
            whole.attention = whole._intact = None
            return whole.at_gate_temperature(temperature).with_attention(self.attention)
        require_temperature(temperature, "gate_temperature")
        config = self.model.config
        memory = require_gate(config.memory, "gate_temperature").at_temperature(float(temperature))
        model = to_be_filled(replace(config, memory=memory), len(self.vocabulary)).to(next(self.model.parameters()))
        model.load_state_dict(self.model.state_dict())
        return self.with_network(model.eval())

    @property
    def own_gate_temperature(self) -> float | None:
        """The evaluation temperature of the run's configuration; None: the model has no gate."""
        memory = self.config.model.memory
        return memory.gate.evaluation_temperature if isinstance(memory, SpanBufferConfig) else None

    def attend(
        self, text: str | Path | Iterable[str], *, expected: int = 5, state: Context = "line"
    ) -> AttentionRecord:
        """Read a text and record the attention at each word, and the `expected` most probable next words.

        The record has `parts` if the model mixes predictions, as with a span buffer. Each line is closed by <eos>, or
        each sentence if the training lines were cut into sentences (data.lines). `state` is a word's context; the
        `text` is that of `score`.

        Raises:
            InputError: the text has no words, the model does not attend, or it cannot use the `state`.
        """
        words, starts = self.texts.to_attend(text, state)
        settings: dict[str, Any] = {**self.headings(), "predict_first": self.texts.predict_first, "starts": starts}
        settings["expected"] = whole_number("expected", expected)
        settings["word_ends"] = self.texts.tokenizer.word_ends
        return attention_record(self.model, self.vocabulary, words, **settings)

    @property
    def has_spans(self) -> bool:
        """Whether records of `attend` have parts, as with a span buffer."""
        return has_parts(self.model)

    def attend_spans(
        self, text: str | Path | Iterable[str], *, expected: int = 5, state: Context = "line"
    ) -> AttentionRecord:
        """Record attention as `attend` does; InputError: see `attend`, or the record has no parts."""
        if not self.has_spans:
            raise InputError(f"{self.title()}: has no span buffer; attend(text) records at which words a model looked")
        return self.attend(text, expected=expected, state=state)

    def dynamic_statistics(
        self,
        *,
        segments: int | None = None,
        data_dir: str | Path | None = None,
        download: bool = False,
        report: Report = quiet,
    ) -> DynamicStatistics:
        """Return gradient statistics: from the folder if they fit these weights and the training text, else new ones.

        New statistics are saved in the folder if it can be written; `origin` says what happened. Gathering reads all of
        the training text, or `segments` segments. `data_dir` and `download` are those of `corpus`; `report` is called
        with the progress.

        Raises:
            InputError: there is no training text, and the folder has no statistics of these weights.
        """
        model, path = self.learner.model, self.folder / DYNAMIC
        segments = None if segments is None else whole_number("segments", segments)
        try:
            corpus = self.corpus(None, PART, data_dir=data_dir, download=download)
        except SpanlmError as missing:
            return statistics_without_text(path, model, segments, missing)
        self.texts.note_changes(corpus)
        protocol = self.texts.protocol(corpus, PART)
        return find_statistics(path, model, corpus, protocol, segments=segments, report=report)

    def datastore(
        self,
        *,
        state: State = "auto",
        precision: Precision = "fp32",
        data_dir: str | Path | None = None,
        download: bool = False,
        report: Report = quiet,
    ) -> Datastore:
        """Return the states of the training text, for `neighbours`, from the cache folder or written now.

        The text is read as `evaluate` reads one; see `spanlm.scoring.neighbours.find_datastore`.

        Raises:
            InputError: there is no training text, it is too long, or the model cannot use the `state`.
        """
        corpus = self.corpus(None, PART, data_dir=data_dir, download=download)
        self.texts.note_changes(corpus)
        protocol = self.texts.protocol(corpus, PART, state, precision=precision)
        return find_datastore(self.model, corpus, protocol, lesion=self.attention, report=report)

    def _datastore(self, request: Evaluate | TuneNeighbours) -> Datastore:
        if request.datastore is None:
            return self.datastore(state=request.state, precision=request.precision, report=request.report)
        fits = request.datastore.owner == owner_of(self.model, self.attention)
        require(fits, "datastore", request.datastore.path, "of this model's states, as its `datastore()`")
        return request.datastore

    @fields_as_keywords(TuneNeighbours)
    def tune_neighbours(self, request: TuneNeighbours) -> NeighboursTuning:
        """Find the best T and λ for a text; see `spanlm.scoring.neighbours.tune_neighbours`, and `evaluate`."""
        loaded, part, protocol = self.texts.counted(request)
        return tune_neighbours(self.model, loaded, part, protocol, self._datastore(request), request)

    @fields_as_keywords(TuneDynamic)
    def tune_dynamic(self, request: TuneDynamic) -> DynamicTuning:
        """Find the best η and λ for a text; see `spanlm.scoring.dynamic.tuning`, and `evaluate`.

        Finished trials are kept in the folder's `trials.jsonl` and not repeated: a stopped search continues, and a
        search with one more point reads the text only for that point.

        Raises:
            InputError: see `evaluate`; or the grid is empty, or the statistics lack a text to gather them on.
            DivergedError: the weights diverged at every point; holds the grid.
            RunError: the trained weights give no finite probabilities.
        """
        learner = self.learner
        loaded, part, protocol = self.texts.counted(request)
        grid = [*request.points, *request.also]
        statistics = request.statistics or learner.dynamic_statistics(report=request.report)
        trials = Trials(self.folder / TRIALS, code_version())
        search = Search(self.model, loaded, part, statistics, protocol, request.report, trials)
        return search.tune(grid, request.first_tokens, request.finalists)


def require_weights(model: Model, option: str) -> TrainedModel:
    """Return a model with weights and a memory; InputError: the model has none, and `option` needs them."""
    if isinstance(model, TrainedModel):
        return model
    why = f"{model.folder} is {model.kind}, which has no weights and no memory of its own"
    raise InputError(f"{option}: {why}. Name a run of `spanlm train`.")
