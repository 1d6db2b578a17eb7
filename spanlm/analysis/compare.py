"""Two or more models on one text, token by token: how far apart they are, how sure that is, and where it comes from.

    d_t = −log2 p_model(x_t | context) + log2 p_baseline(x_t | context)         bits; negative: the model is better

Of a family, runs that differ in their seed, −log2 p is the mean over its runs. `spanlm.scoring.resampling` has the
interval and p of the mean of d_t, `spanlm.analysis.classes` the classes of tokens, each of which has a mean of its own
and a part in the whole: the parts of classes that sort all tokens sum to the mean over all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spanlm.analysis.attend import Attended
from spanlm.analysis.classes import (
    Classes,
    Counts,
    Looks,
    by_attention,
    by_edges,
    by_frequency,
    by_recurrence,
    by_tag,
    line_starts,
    openings,
    places,
)
from spanlm.data.config import Part
from spanlm.data.corpora import Corpus
from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, SpanlmError, named
from spanlm.models.interfaces import NextWordModel
from spanlm.runs.ensemble import refuse_other_words
from spanlm.runs.model import Model, TrainedModel
from spanlm.scoring.cache import NeuralCache
from spanlm.scoring.options import CacheConfig, Context, State
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.resampling import (
    FEWEST_BLOCKS,
    Array,
    Blocks,
    Interval,
    blocks_of,
    drawn_apart,
    drawn_means,
    drawn_p,
    interval_of,
    lopsided,
)
from spanlm.scoring.spelling import Spelling
from spanlm.scoring.stream import Question, Reading, Scored, log_p, read
from spanlm.scoring.tally import perplexity

SEED = 1
"""Of all that is drawn."""
MOVED = 100
"""Words that are shown of those that gain, and of those that lose."""
BEFORE, AFTER = 24, 6
"""Words of context that are shown around such a word."""


@dataclass(frozen=True, eq=False)
class SharedText:
    """A text of N tokens as the baseline cuts it, or of N written words and line ends, which all models read."""

    name: str  # of the corpus and the part
    protocol: str  # how it is counted, for people
    context: Context  # of a word
    vocabulary: Vocabulary
    ids: Counts  # (N,) of the words
    documents: Counts  # (D,) the first token of each
    known: NDArray[np.bool_]  # (N,) bool, the tokens that are compared: all, or those whose word every model knows
    # (V,) how often each word stands in the baseline's training text; None: that is not there
    counts: Counts | None = None
    tags: Classes | None = None  # of parts of speech, if there are any
    unit: str = "token"  # what is compared

    @property
    def openings(self) -> Counts:
        """The first token of each context, within which a word can occur again."""
        return openings(self.context, self.ids, self.documents, self.vocabulary.eos_id)

    @property
    def everything(self) -> Classes:
        return Classes("all", ("all",), np.zeros(len(self.ids), np.int64))

    @cached_property
    def blocks(self) -> Blocks:
        """What is drawn anew for intervals; an `InputError` if the text is too short for two."""
        try:
            return blocks_of(len(self.ids), self.documents)
        except InputError as error:
            raise error.within(self.name) from None

    def classes(self) -> list[Classes]:
        ways = [] if self.counts is None else [by_frequency(self.ids, self.vocabulary, self.counts)]
        ways.append(by_recurrence(self.ids, self.vocabulary, self.openings))
        in_line = places(len(self.ids), line_starts(self.ids, self.vocabulary.eos_id))
        ways.append(by_edges("place in sentence (line)", in_line, (1, 2, 3, 6, 11, 21)))
        if len(self.documents) > 1:
            in_document = places(len(self.ids), self.documents)
            ways.append(by_edges("place in document", in_document, (1, 11, 51, 201, 1_001, 10_001)))
        return ways if self.tags is None else [*ways, self.tags]


@dataclass(frozen=True, eq=False)
class TokenBits:
    """Bits of N tokens, by a model or by each run of a family of R."""

    name: str  # for people
    bits: Array  # (R, N), −log2 p
    looks: Looks | None = None  # where the first looked; None: it does not attend
    runs: tuple[Path, ...] = ()  # which runs these are; two sides of the same runs are compared seed by seed
    protocol: Protocol | None = None  # how the text was read; None: not known

    @property
    def mean(self) -> Array:
        return np.asarray(self.bits.mean(axis=0))

    @property
    def perplexity(self) -> float:
        return float(2 ** self.bits.mean())

    def by_run(self, known: NDArray[np.bool_]) -> Array:
        """(R,), mean bits of each run at the `known` (N,) of the tokens."""
        return np.asarray(self.bits[:, known].mean(axis=1))

    @staticmethod
    def family(name: str, members: Sequence[TokenBits]) -> TokenBits:
        runs = tuple(path for member in members for path in member.runs)
        bits = np.concatenate([member.bits for member in members])
        return TokenBits(name, bits, members[0].looks, runs, members[0].protocol)


@dataclass(frozen=True)
class ClassDifference:
    """The difference over the tokens of one class."""

    name: str  # of the class
    tokens: int  # how many
    difference: float  # mean d_t over them, bits a token
    interval: Interval  # 95 %; NaN where they are in fewer than `FEWEST_BLOCKS` blocks, which say nothing of others
    part: float  # Σ d_t over them, shared out over all tokens that are compared
    lopsided: bool = False  # few blocks make most of what it differs by, so that the interval may be too short

    @property
    def sure(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.interval[0])


@dataclass(frozen=True)
class MovedWord:
    """A word in its context: its place in the text, and what the baseline and the model need for it, in bits."""

    place: int
    word: str
    before: str
    after: str
    baseline: float
    bits: float

    @property
    def difference(self) -> float:
        """Negative: the model is better."""
        return self.bits - self.baseline


@dataclass(frozen=True)
class Comparison:
    """A model, or a family, against the baseline."""

    name: str  # of the model
    runs: int  # how many runs it is the mean of
    bits: float  # mean bits a token
    bits_by_run: list[float]  # of each run
    whole: ClassDifference  # of all tokens that are compared
    p: float  # of the interval's draws (`spanlm.scoring.resampling.drawn_p`); NaN where there is no interval
    where: dict[str, list[ClassDifference]]  # for each way to sort tokens its classes, by title
    gains: list[MovedWord]  # the words at which the model is better by most
    losses: list[MovedWord]  # those at which it is worse

    @property
    def perplexity(self) -> float:
        return perplexity(self.bits * math.log(2))

    @property
    def rows(self) -> list[tuple[str, ClassDifference]]:
        """All tokens, and each class with the title of its way to sort them."""
        return [("all", self.whole), *((title, row) for title, rows in self.where.items() for row in rows)]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "perplexity": self.perplexity}


# --- reading ---


def shared_text(
    model: Model, corpus: Corpus, split: str, state: State = "auto", tags: Path | None = None, *, written: bool = False
) -> SharedText:
    """Return a text as the baseline reads it, or as it is `written`; see `spanlm.analysis.classes.by_tag` for `tags`.

    Raises:
        InputError: as `Model.evaluate`; tags of another text; lines or documents that a text as written does not have.
    """
    protocol = model.texts.protocol(corpus, split, state)
    tokens = corpus.splits[split]
    ids = np.asarray(tokens.ids, np.int64)
    text = SharedText(
        name=f"{corpus.name} {split}",
        protocol=protocol.description(corpus, split),
        context=protocol.context,
        vocabulary=model.vocabulary,
        ids=ids,
        documents=np.asarray(tokens.documents, np.int64),
        known=np.ones(len(ids), np.bool_),
    )
    text = _as_written(text, model, corpus, split) if written else replace(text, counts=training_counts(model, corpus))
    return text if tags is None else replace(text, tags=by_tag(tags, text.ids, text.vocabulary))


def _as_written(text: SharedText, model: Model, corpus: Corpus, split: str) -> SharedText:
    """Replace the baseline's tokens by written words and line ends."""
    _require_lines(model, corpus)
    words = [word for line in corpus.written_lines(split) for word in [*written_words(line), EOS]]
    vocabulary = Vocabulary(tuple(dict.fromkeys([EOS, UNK, *words])))
    ids, counts = np.array(vocabulary.encode(words)), None
    with suppress(SpanlmError):
        training = model.texts.training_counts(corpus, "whitespace")
        counts = np.array([training.get(word, 0) for word in vocabulary.words])
    return replace(
        text,
        protocol=f"{text.protocol}; by written word: log p is summed over a word's tokens, unknown ones are spelled",
        vocabulary=vocabulary,
        ids=ids,
        documents=line_starts(ids, vocabulary.eos_id)[_opening_lines(corpus, split)],
        known=np.ones(len(ids), np.bool_),
        counts=counts,
        unit="written word",
    )


def _opening_lines(corpus: Corpus, split: str) -> NDArray[np.int64]:
    """Return the number of each document's first line, from 0."""
    tokens = corpus.splits[split]
    return np.searchsorted(np.flatnonzero(np.asarray(tokens.ids) == corpus.vocabulary.eos_id), tokens.documents)


def _documents(lines: Iterator[str], openings: NDArray[np.int64]) -> Iterator[Iterator[str]]:
    """Cut lines before each document's first one; each part is to be read before the next."""
    for number in np.diff(openings).tolist():
        yield islice(lines, number)
    yield lines


def _require_lines(model: Model, corpus: Corpus) -> None:
    """Refuse a model that does not predict every word and line end of a text as it is written."""
    if not model.texts.predict_first or corpus.lines != "as-written":
        why = f"{model.folder} was trained on sentences, and does not predict every written word and line end"
        raise InputError("spell_unknown", limit=why, way_out="Leave it out")


def training_counts(model: Model, read: Corpus) -> Counts | None:
    """Count the words of the training text, if it is where it was or in the folder of the corpus `read`."""
    for folder in dict.fromkeys((None, None if read.config is None else read.config.dir)):
        with suppress(SpanlmError):
            corpus = model.corpus(None, "train", data_dir=folder)
            return np.bincount(np.asarray(corpus.splits["train"].ids), minlength=len(model.vocabulary))
    return None


def read_tokens(
    model: Model,
    corpus: Corpus,
    split: Part,
    state: State = "auto",
    *,
    name: str = "",
    cache: CacheConfig | None = None,
    written: bool = False,
) -> TokenBits:
    """Read a text, in the model's own vocabulary, in the order of its tokens; only numbers by token are kept.

    If it is read as `written`, the numbers are by written word and line end, and unknown words are spelled.

    Raises:
        InputError: as `Model.evaluate`.
    """
    name, runs = name or str(model.folder), (model.folder.resolve(),)
    corpus, split = model.texts.part(corpus, split)
    protocol = model.texts.protocol(corpus, split, state)
    if not model.predicts_words:
        if cache is not None:
            raise InputError("cache", limit=f"{model.folder} is {model.kind}, and a cache holds words of a vocabulary")
        if protocol.context == "document":
            raise InputError("state", state, f"must be carry or line of {model.folder}, which is {model.kind}")
    spells = written
    if written and model.predicts_words:
        _require_lines(model, corpus)
        spelling = Spelling.of(corpus, split, lambda: model.texts.speller(corpus))
        protocol, spells = replace(protocol, spelling=spelling), spelling.words > 0
    if written or not model.predicts_words:
        reading, surprisal, apart = model.as_written(), list[float](), protocol.context == "document"
        openings = _opening_lines(corpus, split) if apart else np.zeros(1, np.int64)
        for lines in _documents(corpus.written_lines(split), openings):
            state = "carry" if apart else protocol.context
            items = reading.score_items(lines, state=state, eos=True, spell_unknown=spells)
            surprisal += [word.surprisal for words in items for word in words]
        return TokenBits(name, np.array([surprisal]), runs=runs, protocol=protocol)
    column, questions, peaks = "log_p", list[Question]([log_p]), _Peaks()
    if cache is not None:
        column, questions = "cached", [log_p, NeuralCache(cache, across=protocol.context == "line")]
    config = model.config.model if isinstance(model, TrainedModel) and model.attention is None else None
    if attends := config is not None and config.memory.slots != 0:
        questions.append(peaks)
    scored = Scored.joined([*text_blocks(model.model, corpus, split, protocol, *questions)])
    bits, looks = -scored.numpy(column).astype(np.float64)[None] / math.log(2), None
    if attends:
        lag, peak, slots = (scored.answers[name].cpu().numpy() for name in ("lag", "peak", "slots"))
        looks = Looks(lag, peak, slots, peaks.stride, peaks.nearest_lag)
    return TokenBits(name, bits, looks, runs, protocol)


class _Peaks(Attended):
    """Answers the `lag` of the slot with the largest weight, its share of all slots' (`peak`), and their `slots`."""

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        answers = super().__call__(reading)
        weights = answers["weights"]
        # a sentinel, or a slot of zeros, has a part of the weight
        peak, at = (weights / weights.sum(-1, keepdim=True)).nan_to_num(0.0).max(-1)
        lag = (weights.shape[-1] - 1 - at) * self.stride + self.nearest_lag
        return {"lag": lag, "peak": peak, "slots": answers["slots"]}


def text_blocks(
    model: NextWordModel, corpus: Corpus, split: str, protocol: Protocol, *questions: Question
) -> Iterator[Scored]:
    """Read a text block by block, lines in their order."""
    whole = replace(protocol, batch_size=None, predict_first=True).batcher(corpus, split, in_order=True)
    return read(model, whole.segments(), protocol, *questions)


def refuse_other_text(baseline: Model, model: Model) -> None:
    """Refuse a model whose vocabulary is not the baseline's."""
    common, spelled = named("words=common"), named("spell_unknown")
    every = f"or {spelled} to compare them at every word as written"
    if not model.predicts_words:
        why = f"predicts any word. Add {common} to compare it at the words that the baseline knows, {every}."
        raise InputError(f"{model.folder}: {why}")
    refuse_other_words(baseline, model, f"Add {common} to compare them on the words that both know, {every}.")


def shared_with(
    text: SharedText, baseline: Model, model: Model, corpus: Corpus, split: str, state: State
) -> SharedText:
    """Return the baseline's text with the tokens whose word another model knows, too.

    Raises:
        InputError: the model reads a word in another context, or cuts the text into other words.
    """
    context = model.texts.protocol(corpus, split, state).context
    if context != text.context:
        # a model of Hugging Face's knows no documents
        words = all(side.predicts_words for side in (baseline, model))
        ways = [named(f"state={way}") for way in (text.context, context) if words or way != "document"]
        raise InputError(
            f"{baseline.folder} and {model.folder}: a word's context is {text.context} to one and {context} to the "
            f"other. Name one for both by {' or '.join(ways)}."
        )
    if text.unit != "token" or model.vocabulary.hash == baseline.vocabulary.hash:
        return text
    known = text.ids != text.vocabulary.unk_id
    if not model.predicts_words:
        same = sum(1 + len(written_words(line)) for line in corpus.written_lines(split)) == len(text.ids)
    else:
        ids = np.asarray(corpus.splits[split].ids, np.int64)
        if same := len(ids) == len(text.ids):
            known &= ids != model.vocabulary.unk_id
            translated = np.array([text.vocabulary.id(word) for word in model.vocabulary.words])[ids]
            same = bool((translated == text.ids)[known].all())
    if not same:
        raise InputError(
            f"{baseline.folder} and {model.folder}: cut the text into other words, which cannot be compared one by "
            f"one. Take {named('spell_unknown')} to compare them at every word as written."
        )
    return replace(text, known=text.known & known)


# --- comparing ---


def compare(text: SharedText, baseline: TokenBits, model: TokenBits) -> Comparison:
    """Compare two models, or families, on a text that both have read.

    Raises:
        InputError: the text is too short, no word of it is known to both, or one has read another text or in another
            context.
    """
    for side in (baseline, model):
        if side.bits.shape[1] != len(text.ids):
            raise InputError(
                f"{side.name}: has read {side.bits.shape[1]:,} tokens, and {text.name} has {len(text.ids):,}"
            )
        if side.protocol is not None and side.protocol.context != text.context:
            contexts = f"{side.protocol.context} to it, and {text.context} in {text.name}"
            raise InputError(f"{side.name}: a word's context is {contexts}")
    if not text.known.any():
        raise InputError(f"{text.name}: has no word that both {baseline.name} and {model.name} know")
    for side in (baseline, model):
        if len(lost := np.flatnonzero(text.known & ~np.isfinite(side.mean))):
            word = text.vocabulary.word(int(text.ids[lost[0]]))
            raise InputError(f"{side.name}: {word}, token {lost[0] + 1} of {text.name}: bits must be finite.")
    generator = np.random.default_rng(SEED)
    (whole,), draws = _differences(text, text.everything, baseline, model, generator)
    p = drawn_p(draws[:, 0], whole.difference) if whole.sure else math.nan
    sorted_by = text.classes()
    # where the model looked or, if it does not attend, the baseline
    looking = baseline if model.looks is None else model
    if looking.looks is not None:
        sorted_by.append(by_attention(looking.looks, text.ids, text.openings, text.vocabulary.eos_id, looking.name))
    classes = {way.title: _differences(text, way, baseline, model, generator)[0] for way in sorted_by}
    where = {title: rows for title, rows in classes.items() if rows}
    gains, losses = _moved(text, baseline.mean, model.mean)
    bits = model.by_run(text.known)
    return Comparison(model.name, len(bits), float(bits.mean()), bits.tolist(), whole, p, where, gains, losses)


def differences(text: SharedText, classes: Classes, baseline: TokenBits, model: TokenBits) -> list[ClassDifference]:
    """Return the difference in each class of one way to sort the tokens; errors are those of `compare`."""
    return _differences(text, classes, baseline, model, np.random.default_rng(SEED))[0]


def _differences(
    text: SharedText, classes: Classes, baseline: TokenBits, model: TokenBits, generator: np.random.Generator
) -> tuple[list[ClassDifference], Array]:
    """Return the difference in each class that has tokens, and its draws (DRAWS, classes)."""
    size, labels, blocks = len(classes.names), classes.where(text.known).labels, text.blocks
    counts = blocks.sums(labels, size)
    tokens = counts.sum(0)
    present = np.flatnonzero(tokens)
    if not len(present):
        return [], np.empty((0, 0))
    sums, counts = blocks.sums(labels, size, model.mean - baseline.mean)[:, present], counts[:, present]
    draws, unsure = drawn_means(sums, counts, generator), lopsided(sums, counts).tolist()
    seeds, of_baseline = (
        np.array([blocks.sums(labels, size, bits).sum(0) for bits in side.bits])[:, present] / tokens[present]
        for side in (model, baseline)
    )
    draws += drawn_apart(seeds, of_baseline, generator, paired=bool(model.runs) and model.runs == baseline.runs)
    totals, intervals, compared = sums.sum(0), interval_of(draws), int(text.known.sum())
    few = (counts > 0).sum(0) < FEWEST_BLOCKS
    intervals = [(math.nan, math.nan) if too_few else ends for too_few, ends in zip(few, intervals, strict=True)]
    columns = zip(present.tolist(), totals.tolist(), intervals, unsure, strict=True)
    rows = [
        ClassDifference(classes.names[n], int(tokens[n]), float(total / tokens[n]), ends, total / compared, skewed)
        for n, total, ends, skewed in columns
    ]
    return rows, draws


def _moved(text: SharedText, baseline: Array, model: Array) -> tuple[list[MovedWord], list[MovedWord]]:
    difference = np.where(text.known, model - baseline, 0.0)
    order = np.argsort(difference, kind="stable")
    gains = [n for n in order[:MOVED].tolist() if difference[n] < 0]
    losses = [n for n in order[::-1][:MOVED].tolist() if difference[n] > 0]
    moved = [[_in_context(text, n, baseline, model) for n in some] for some in (gains, losses)]
    return moved[0], moved[1]


def _in_context(text: SharedText, place: int, baseline: Array, model: Array) -> MovedWord:
    first = int(text.openings[np.searchsorted(text.openings, place, side="right") - 1])
    begin, end = max(first, place - BEFORE), min(place + 1 + AFTER, len(text.ids))
    words = [text.vocabulary.word(id) for id in text.ids[begin:end].tolist()]
    at = place - begin
    before, after = " ".join(words[:at]), " ".join(words[at + 1 :])
    return MovedWord(place, words[at], before, after, float(baseline[place]), float(model[place]))
