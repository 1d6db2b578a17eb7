"""A trained model with its vocabulary, on which everything is one call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from itertools import groupby, islice, tee
from pathlib import Path
from typing import Any, Self

from spanlm.config import RunConfig
from spanlm.data.cbt import Defect, read_questions
from spanlm.data.corpora import Corpus
from spanlm.data.pieces import Piece, refuse_one_string, require_texts, whole_lines
from spanlm.data.tokenizer import written_spans
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, SpanlmError, whole_number
from spanlm.models.interfaces import NextWordModel
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
    fields_as_keywords,
)
from spanlm.runs.texts import LoadCorpus, Texts
from spanlm.scoring.attention import AttentionRecord, attention_record, has_parts
from spanlm.scoring.cache import CacheTuning, tune_cache
from spanlm.scoring.cloze import RankedQuestion, rank_questions
from spanlm.scoring.dynamic.evaluate import evaluate_dynamic
from spanlm.scoring.dynamic.statistics import (
    DYNAMIC,
    PART,
    DynamicStatistics,
    find_statistics,
    gate_temperature,
    statistics_without_text,
)
from spanlm.scoring.dynamic.tuning import TRIALS, DynamicTuning, Trials, tune_dynamic
from spanlm.scoring.excess import Excess, excess_by_lag
from spanlm.scoring.generation import Drawn, draw, draw_samples
from spanlm.scoring.options import CacheConfig, Context, dynamic_grid
from spanlm.scoring.pairs import Compared, Pair, compare_pairs
from spanlm.scoring.perplexity import Evaluation, evaluate
from spanlm.scoring.prefix_tree import Prefixes, TextScore, by_written_words, score_texts
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import Report, quiet
from spanlm.scoring.words import WordScore, WrittenScore, score_words, written_scores
from spanlm.store.files import run_name
from spanlm.store.provenance import code_version


class Model:
    """What `spanlm.load` gives, and several of them as one: a network that predicts the next word, and its texts.

    Attributes:
        model: the network, in evaluation mode.
        texts: what it can read, and how.
        vocabulary: its words.
        folder: of its run, or the file or folder that it is from.
        kind: what it is where it is no `TrainedModel`, for errors.
        any_words: whether `in_words_of` makes it predict the words of any vocabulary.
        attention: what `TrainedModel.with_attention` was given; None: it is as it was trained, if there is any.
    """

    kind = "several models"
    any_words = False
    attention: str | None = None

    def __init__(self, model: NextWordModel, texts: Texts, config: RunConfig | None = None) -> None:
        self.model, self.texts, self._config = model, texts, config
        self.vocabulary, self.folder = texts.vocabulary, texts.folder

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder}: {self.description}{self._lesion}>"

    @property
    def _lesion(self) -> str:
        return "" if self.attention is None else f", with {described_lesion(self.attention)}"

    @property
    def config(self) -> RunConfig:
        """The configuration of the run, or of the first of several; InputError: there is none."""
        if self._config is None:
            raise InputError(f"{self.folder}: is {self.kind}, which has no encoder, memory or head")
        return self._config

    @property
    def description(self) -> str:
        return self.config.model.description

    def title(self) -> str:
        return f"{run_name(self.folder)}, {self.config.model.memory.description}"

    def headings(self, source: str = "a text") -> dict[str, str]:
        """Return the `title` and the line `about` it of a record: which run read what, and what it is."""
        summary = about(self)
        return {"title": f"{summary.run}{self._lesion}, reading {source}", "about": summary.line}

    def in_words_of(self, other: Model) -> Model:
        """Return the same model over another one's vocabulary, if it is of `any_words`."""
        return self

    @fields_as_keywords(LoadCorpus)
    def corpus(self, request: LoadCorpus) -> Corpus:
        """Load a corpus in this model's vocabulary; see `spanlm.runs.texts.Texts.corpus`."""
        return self.texts.corpus(request)

    def tokenize(self, text: str) -> list[str]:
        return [token for tokens in self.texts.cut(text) for token in tokens]

    def as_written(self) -> Self:
        """Return the same model, which reads words as they are written, not as ptb or wikitext-2 write them."""
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
        """The runs that predict as one: of a single model itself."""
        return (self,)

    @property
    def predicts_words(self) -> bool:
        """Whether its network predicts the words of its vocabulary, and not sub-words."""
        return isinstance(self.model, NextWordModel)

    @property
    def gate_temperature(self) -> float | None:
        """The temperature at which a gate of its memory is evaluated; None: it has none."""
        return gate_temperature(self.model)

    @property
    def own_gate_temperature(self) -> float | None:
        """The run's own one."""
        return None

    def predictor(self, verb: str) -> NextWordModel:
        """Return the network, for what needs the distribution over its words; InputError: it has none of ours."""
        if not isinstance(self.model, NextWordModel):
            only = "for evaluate, score, compare, pairs and rescore alone"
            raise InputError(f"{verb}: {self.folder} is {self.kind}, {only}")
        return self.model

    @fields_as_keywords(Evaluate)
    def evaluate(self, request: Evaluate) -> Evaluation:
        """Measure perplexity, with the trained weights or with `dynamic` ones that go on learning from the text.

        See `spanlm.scoring.perplexity.evaluate`, and `spanlm.runs.requests.Evaluate` for the arguments.

        Raises:
            InputError: no such corpus or part, one in another vocabulary, an option outside its range; a cache and
                weights that follow the text at once, or no weights that could.
            DivergedError: weights that followed the text diverged.
        """
        if request.dynamic is None:
            return self._evaluated(*self.texts.counted(request), request.cache)
        learner = require_weights(self, "dynamic").learner
        if request.cache is not None:
            raise InputError("dynamic evaluation and a cache do not go together: measure the one, then the other")
        loaded, part, protocol = self.texts.counted(request)
        config, report = request.dynamic, request.report
        statistics = request.statistics or learner.dynamic_statistics(report=report)
        return evaluate_dynamic(learner.model, loaded, part, statistics, config, protocol, report=report)

    def _evaluated(self, corpus: Corpus, part: str, protocol: Protocol, cache: CacheConfig | None) -> Evaluation:
        return evaluate(self.predictor("evaluate"), corpus, part, protocol, cache=cache)

    @fields_as_keywords(OnText)
    def excess(self, request: OnText) -> list[Excess]:
        """Compare with the law of a synthetic text, by lag; see `spanlm.scoring.excess.excess_by_lag`."""
        return excess_by_lag(self.predictor("excess"), *self.texts.counted(request))

    @fields_as_keywords(Score)
    def score(self, request: Score) -> Iterator[WordScore]:
        """Give every word's surprisal, entropy and rank; see `spanlm.scoring.words.score_words`.

        Lines are cut into sentences if those of the training were (data.lines). Where the first word of each was only
        read in training (training.batching.predict_first), the model has no surprisal for it: it is NaN. The `text` is
        one string, cut at its line ends; lines; or a file of any size, by its `Path`, read as rows are asked for. The
        rows come once: make a list of them to go through them twice. The options are those of
        `spanlm.scoring.words.ScoreOptions`; a neural `cache` that is mixed in begins anew where the context does. A
        model of ptb or wikitext-2 reads words as its corpus writes them (`spanlm.data.tokenizer.as_in_corpus`), unless
        `as_written`.

        Raises:
            InputError: an option outside its range, with oov="error" a word outside the vocabulary, a file that cannot
                be read, or a `state` that the model cannot use, see `spanlm.runs.texts.Texts.refuse_context`.
        """
        pieces = (self.as_written() if request.as_written else self).texts.pieces(request.text)
        self.texts.refuse_context(request.state)
        return self._scored(pieces, request)

    def _scored(self, pieces: Iterable[Piece], request: Score) -> Iterator[WordScore]:
        network, predict_first = self.predictor("score"), self.texts.predict_first
        return score_words(network, self.vocabulary, pieces, request, predict_first=predict_first, cache=request.cache)

    def score_items(
        self, items: Iterable[str], *, state: Context = "line", eos: bool = False, **options: Any
    ) -> Iterator[list[WrittenScore]]:
        """Score words as they are written, those between white space, of items such as the sentences of a table.

        Each item is a line to the model, whatever line ends it holds, and gives one list; the options are those of
        `score`. By default an item is a context of its own; `state="carry"` goes on from item to item.

        Raises:
            InputError: as of `score`.
        """
        refuse_one_string("items", items)
        waiting, lines = tee(self.texts.unmarked(items))
        done, model = 0, self.as_written() if options.pop("as_written", False) else self
        scored = model.score(lines, state=state, eos=True, **options)
        for number, scores in groupby(scored, key=lambda score: score.sentence):
            for _ in islice(waiting, number - done - 1):  # blank ones, which a model of sentences does not read
                yield []
            done = number
            item = next(waiting)
            yield written_scores(item, list(scores), map(len, model.texts.cut(item)), eos=eos)
        yield from ([] for _ in waiting)

    def score_texts(self, texts: Iterable[str], *, precision: Precision = "fp32") -> tuple[list[TextScore], Prefixes]:
        """Give log p of many short texts, each by itself, and how much was read: beginnings in common are read once.

        Words are cut, and lines into sentences, as those of the training were. Where first words were only read in
        training (training.batching.predict_first), they count nothing. Matrix products are in `precision`.

        Raises:
            InputError: a text holds the reserved word <eos>, or is no string.
        """
        refuse_one_string("texts", texts)
        texts = list(require_texts(texts))
        eos = self.vocabulary.eos_id
        sentences = [[line.words for line in whole_lines(self.texts.pieces([text]))] for text in texts]
        ids = [[*self.vocabulary.encode(words), eos] for lines in sentences for words in lines]
        predict_first = self.texts.predict_first
        values, prefixes = self._log_probs_of(ids, precision)
        scores, value = [], iter(values)
        for text, lines in zip(texts, sentences, strict=True):
            log_p = [[*[0.0] * (not predict_first), *next(value)] for _ in lines]
            tokens, ends = [x for *words, _ in log_p for x in words], [end for *_, end in log_p]
            plain = next(self.texts.unmarked([text]))  # a mark that is left out has no token
            cut = map(len, self.texts.cut(plain))
            sizes = [0 if plain[at] in " \v" else next(cut) for at, _ in written_spans(text)]
            known = (word in self.vocabulary for words in lines for word in words)
            scores.append(by_written_words(sizes, tokens, known, math.fsum(ends)))
        return scores, prefixes

    def _log_probs_of(self, texts: list[list[int]], precision: Precision) -> tuple[list[list[float]], Prefixes]:
        """Return log p of every word that is predicted of texts by id, and how much was read."""
        network, predict_first = self.predictor("score"), self.texts.predict_first
        return score_texts(network, texts, self.vocabulary.eos_id, predict_first=predict_first, precision=precision)

    def compare(self, good: str, bad: str) -> Compared:
        """Say which of two sentences is more probable, each with its line end, and by how much."""
        list(require_texts((good, bad)))
        return compare_pairs([Pair(good, bad)], lambda texts: self.score_texts(texts)[0])[0]

    @fields_as_keywords(Cloze)
    def cloze(self, request: Cloze) -> Iterator[RankedQuestion | Defect]:
        """Rank the candidates of cloze questions; see `spanlm.scoring.cloze.rank_questions`.

        The `questions` are a file in the format of the Children's Book Test, or what `read_questions` gives; before
        each is read what `contexts` say (full, query), by default full, but query for a model that was trained on
        lines that know nothing of each other.

        Raises:
            InputError: a context that is unknown or that the model cannot use, see
                `spanlm.runs.texts.Texts.cloze_contexts`; a file that cannot be read or holds no question.
        """
        network, texts, questions = self.predictor("cloze"), self.texts, request.questions
        options = replace(request, contexts=texts.cloze_contexts(request.contexts))
        read = read_questions(Path(questions)) if isinstance(questions, str | Path) else questions
        words = self.vocabulary, texts.data.effective_tokenizer
        return rank_questions(network, *words, read, options, predict_first=texts.predict_first)

    @fields_as_keywords(Continue)
    def generate(self, request: Continue) -> list[str]:
        """Continue a prompt; see `spanlm.scoring.generation.GenerationOptions` for how words are drawn.

        Line ends in the prompt are <eos>, and so are the ends of sentences if the training's lines were cut into them
        (data.lines). An empty one starts a line.

        Returns:
            The new words; <eos> is a line end. After one, a model that was trained on lines alone begins anew, or, if
            it knows no first words (training.batching.predict_first), ends.

        Raises:
            InputError: an option outside its range, or no first word for a model that can give none.
        """
        return [drawn.word for drawn in self._drawn(request)]

    @fields_as_keywords(Continue)
    def words(self, request: Continue) -> Iterator[str]:
        """Give the words of `generate` one by one, each as soon as it is drawn; options as there."""
        return (drawn.word for drawn in self._drawn(request))

    @fields_as_keywords(Continue)
    def draw(self, request: Continue) -> Iterator[Drawn]:
        """Give the words of `generate` with the distributions they were drawn from, each as soon as it is drawn."""
        return self._drawn(request)

    def _drawn(self, request: Continue) -> Iterator[Drawn]:
        network, texts = self.predictor("generate"), self.texts
        return draw(network, self.vocabulary, texts.prompt(request.prompt), request, **self._lines())

    @fields_as_keywords(Samples)
    def samples(self, request: Samples) -> Iterator[list[str]]:
        """Continue a prompt `count` times, some side by side; options of `generate`.

        Sample n (from 0) has the words that seed + n gives alone, but for rounding.
        """
        network, prompt = self.predictor("generate"), self.texts.prompt(request.prompt)
        return draw_samples(network, self.vocabulary, prompt, request, request.count, **self._lines())

    def _lines(self) -> dict[str, bool]:
        """Say how a text that is drawn goes on after a line."""
        return {"line_by_line": self.texts.line_by_line, "predict_first": self.texts.predict_first}

    @fields_as_keywords(TuneCache)
    def tune_cache(self, request: TuneCache) -> CacheTuning:
        """Find the best cache for a text; see `spanlm.scoring.cache.tune_cache`, and `evaluate`."""
        network, (loaded, part, protocol) = self.predictor("cache"), self.texts.counted(request)
        grid = request.windows, request.thetas, request.lambdas
        return tune_cache(network, loaded, part, *grid, protocol, request.over_lines)


class TrainedModel(Model):
    """What `spanlm.load` gives of a training: weights and a memory, what they look at and how they go on learning."""

    model: LanguageModel
    _trained: TrainedModel | None = None
    """Of a model with a lesion, the one without."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, config: RunConfig, folder: Path) -> None:
        memories = (config.model.memory,)
        texts = Texts(vocabulary, config.data, folder, batching=config.training.batching, memories=memories)
        super().__init__(model, texts, config)

    def with_attention(self, how: str) -> TrainedModel:
        """Return the same weights with a lesion of the memory, `how` of `spanlm.models.lesions`: they never learnt it.

        All slots of a step have equal weights (uniform), nothing is remembered (none), or only the nearest K slots are
        there (window=K). `config` stays the run's. Of a model with a lesion, the new one takes its place.

        Raises:
            InputError: `how` is none of these, the memory does not attend, or it has fewer than K slots.
        """
        trained = self._trained or self
        changed = trained.with_network(lesioned(trained.model, how, self.title()))
        changed.attention, changed._trained = how, trained
        return changed

    @property
    def learner(self) -> TrainedModel:
        """The model itself, if its weights may go on learning; InputError: with a lesion they may not."""
        if self.attention is not None:
            why = "dynamic evaluation would learn with it: measure the one, then the other"
            raise InputError("attention", self.attention, why)
        return self

    def at_gate_temperature(self, temperature: float) -> TrainedModel:
        """Return the same weights with another temperature T of the gate, λ̂ ∝ exp(W_g h_t / T) (Li et al., 2020).

        All that is evaluated is at that T, the gradient statistics, too: they have a file of their own in the folder.
        `config` stays the run's.

        Raises:
            InputError: the model has no gate, or T is below 1e-6 or not finite.
        """
        if self._trained is not None and self.attention is not None:
            return self._trained.at_gate_temperature(temperature).with_attention(self.attention)
        require_temperature(temperature, "gate_temperature")
        config = self.model.config
        memory = require_gate(config.memory, "gate_temperature").at_temperature(float(temperature))
        model = to_be_filled(replace(config, memory=memory), len(self.vocabulary))
        model.load_state_dict(self.model.state_dict())
        return self.with_network(model.to(self.model.device).eval())

    @property
    def own_gate_temperature(self) -> float | None:
        """The run's own evaluation temperature; None: the model has no gate."""
        memory = self.config.model.memory
        return memory.gate.evaluation_temperature if isinstance(memory, SpanBufferConfig) else None

    def attend(
        self, text: str | Path | Iterable[str], *, expected: int = 5, state: Context = "line"
    ) -> AttentionRecord:
        """Read a text and record where the model looked at each word, and the `expected` likeliest next words.

        Of a mixture that names its parts, as a span buffer's does, `parts` have what each expected. Lines, or sentences
        if the training's lines were cut into them (data.lines), are closed by <eos>; a word's context is `state`, and
        the `text` is as of `score`.

        Raises:
            InputError: no words, a model that attends to nothing, or a `state` that the model cannot use.
        """
        words, starts = self.texts.to_attend(text, state)
        settings: dict[str, Any] = {**self.headings(), "predict_first": self.texts.predict_first, "starts": starts}
        settings["expected"] = whole_number("expected", expected)
        return attention_record(self.model, self.vocabulary, words, **settings)

    @property
    def has_spans(self) -> bool:
        """Whether records of `attend` have parts, as those of a span buffer do."""
        return has_parts(self.model)

    def attend_spans(
        self, text: str | Path | Iterable[str], *, expected: int = 5, state: Context = "line"
    ) -> AttentionRecord:
        """Read a text as `attend` does; InputError: as there, or the record would have no parts."""
        if not self.has_spans:
            raise InputError(f"{self.title()}: has no span buffer; attend(text) records at which words a model looked")
        return self.attend(text, expected=expected, state=state)

    def dynamic_statistics(
        self,
        *,
        segments: int | None = None,
        data_dir: str | None = None,
        download: bool = False,
        report: Report = quiet,
    ) -> DynamicStatistics:
        """Return the statistics in the folder, or, if they are not of these weights and this text, new ones.

        New ones are saved in the folder; where that cannot be written they are only returned. `origin` says which.
        Gathering them reads all of the training text, or so many `segments`; `data_dir` and
        `download` are as of `corpus`, and `report` is called with the progress.

        Raises:
            InputError: neither statistics that belong to the weights nor the training text are there.
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

    @fields_as_keywords(TuneDynamic)
    def tune_dynamic(self, request: TuneDynamic) -> DynamicTuning:
        """Find the best η and λ for a text; see `spanlm.scoring.dynamic.tuning`, and `evaluate`.

        Finished trials are kept in the folder, in `trials.jsonl`, and are not read again: a search that was stopped
        goes on, and one with another point reads only that.

        Raises:
            InputError: as `evaluate`; an empty grid or a value outside its range; no text to gather statistics on.
            DivergedError: the weights diverged at every point; has the grid.
            RunError: the trained weights predict no finite numbers.
        """
        learner = self.learner
        loaded, part, protocol = self.texts.counted(request)
        grid = [*dynamic_grid(request.rates, request.decays, request.epsilon, request.loss), *request.also]
        statistics = request.statistics or learner.dynamic_statistics(report=request.report)
        return tune_dynamic(
            self.model,
            loaded,
            part,
            statistics,
            grid,
            protocol,
            first_tokens=request.first_tokens,
            finalists=request.finalists,
            report=request.report,
            trials=Trials(self.folder / TRIALS, code_version()),
        )


def require_weights(model: Model, option: str) -> TrainedModel:
    """Return a model that has weights and a memory; InputError: it has none of its own, and `what` needs them."""
    if isinstance(model, TrainedModel):
        return model
    raise InputError(f"{option}: {model.folder} is {model.kind}, which has no weights and no memory of its own")
