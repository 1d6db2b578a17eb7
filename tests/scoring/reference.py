"""The slow, plain way to every number of the evaluation: float64, one word at a time, no batches."""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import NextWordModel
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import (
    AnyMemoryConfig,
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    SpanBufferConfig,
)
from spanlm.scoring.options import CacheConfig, Context
from spanlm.scoring.perplexity import Evaluation, evaluate
from spanlm.scoring.protocol import Protocol
from tests.models.small import language_model, model_config

WORDS = (EOS, "the", "cat", UNK, "dog", "sat", "on", "mat", "ran", "naïve", ".")
VOCABULARY = Vocabulary(WORDS)
MEMORIES: dict[str, AnyMemoryConfig] = {
    "none": NoMemoryConfig(),
    "attention": KeyValueConfig(roles=1, window=4),
    "kvp": KeyValueConfig(roles=3, window=3),
    "ngram": NGramConfig(order=3),
}
LOOKING: dict[str, AnyMemoryConfig] = {
    "key_value": KeyValueConfig(roles=3, window=3),
    "attentive": AttentiveConfig(),
    "pointer_sentinel": PointerSentinelConfig(window=4),
    "span_buffer": SpanBufferConfig(buffer_size=6, span_length=2),
}
"""Memories that say where they look, and whose state grows, is copied from or is read in spans."""

Lines = Sequence[Sequence[str]]
CONTEXTS: tuple[Context, ...] = get_args(Context)


def small_model(memory: str = "kvp") -> LanguageModel:
    """A float64 model over WORDS with weights that matter."""
    return language_model(model_config(LSTMConfig(hidden_size=12), (MEMORIES | LOOKING)[memory], SoftmaxConfig()))


def float64(model: LanguageModel) -> LanguageModel:
    """A copy to compute with."""
    return copy.deepcopy(model).double().eval()


@torch.no_grad()
def distributions(model: LanguageModel, inputs: Iterable[int]) -> NDArray[np.float64]:
    """log p of every word (N, V) after each input, read one at a time from an empty state."""
    state, rows = model.init_state(1), []
    for word in inputs:
        log_p, state = model.log_probs(torch.tensor([[word]]), state)
        rows.append(log_p[0, 0].double().numpy())
    return np.stack(rows)


@dataclass(frozen=True)
class Row:
    """What is to be said of one target."""

    sentence: int
    index: int
    word: str
    nll: float
    entropy: float
    rank: int | None
    oov: bool


def groups(lines: Lines, state: str) -> list[list[int]]:
    """Numbers of the lines that share a context."""
    found: list[list[int]] = []
    any_words = False
    for number, line in enumerate(lines):
        opens = {
            "carry": number == 0,
            "line": True,
            "document": number == 0 or (any_words and bool(line) and not lines[number - 1]),
        }[state]
        any_words = any_words or bool(line)
        if opens:
            found.append([])
        found[-1].append(number)
    return found


def rows_not_opened(model: LanguageModel, vocabulary: Vocabulary, lines: Lines) -> list[Row]:
    """Every token of a text, <eos> included, each line by itself; what comes first in it is only read."""
    found = []
    for n, line in enumerate(lines):
        words = [*line, EOS]
        found.append(Row(n + 1, 1, words[0], math.nan, math.nan, None, words[0] not in vocabulary))
        if line:
            found += _rows(model, vocabulary, vocabulary.encode(line), [(n, i, words[i]) for i in range(1, len(words))])
    return found


def rows(model: LanguageModel, vocabulary: Vocabulary, lines: Lines, state: str) -> list[Row]:
    """Every target of a text, <eos> included, from its definition."""
    found = []
    for group in groups(lines, state):
        targets = [(n, i, word) for n in group for i, word in enumerate([*lines[n], EOS])]
        ids = vocabulary.encode(word for _, _, word in targets)
        found += _rows(model, vocabulary, [vocabulary.eos_id, *ids[:-1]], targets)
    return found


def _rows(
    model: LanguageModel, vocabulary: Vocabulary, inputs: list[int], targets: list[tuple[int, int, str]]
) -> Iterator[Row]:
    """What is to be said of targets (line, place in it, word) after each of the inputs."""
    for (n, i, word), row in zip(targets, distributions(model, inputs), strict=True):
        id = vocabulary.id(word)
        entropy = -sum(math.exp(x) * x for x in row.tolist())
        rank = 1 + sum(x > row[id] for x in row.tolist())
        yield Row(n + 1, i + 1, word, -float(row[id]), entropy, rank, word not in vocabulary)


def corpus(lines: Lines, vocabulary: Vocabulary = VOCABULARY, split: str = "test") -> Corpus:
    """A corpus of one split, documents as `groups` finds them."""
    ids = [id for line in lines for id in vocabulary.encode([*line, EOS])]
    starts = [sum(len(line) + 1 for line in lines[: group[0]]) for group in groups(lines, "document")]
    return Corpus(
        name="small",
        vocabulary=vocabulary,
        splits={split: TokenFile(np.array(ids, dtype=np.int32), np.array(starts, dtype=np.int64))},
        notes=[],
        oov={split: sum(word not in vocabulary for line in lines for word in line)},
        tokenizer="whitespace",
    )


def lines_of(text: str) -> list[list[str]]:
    """Lines of a text as words."""
    return [line.split() for line in text.split("\n")]


TEXT = lines_of("the cat sat on the mat .\na dog ran\n\nthe naïve zebra sat\nran ran\n\n\n<unk> the dog .\non mat")
"""Three documents, double blank lines, words that the vocabulary lacks (a, zebra) and a written <unk>."""

TARGETS = sum(len(line) + 1 for line in TEXT)
CORPUS = corpus(TEXT)


def evaluated(model: NextWordModel, cache: CacheConfig | None = None, **how: Any) -> Evaluation:
    """The evaluation of TEXT, counted as said."""
    return evaluate(model, CORPUS, protocol=Protocol(**how), cache=cache)


def pieces(context: Context, batch_size: int = 1, text: Lines = TEXT) -> list[list[int]]:
    """A text as what is read from an empty state, each piece with the word before it, which is <eos> where it opens."""
    if context != "carry":
        words = ([EOS, *(word for n in group for word in [*text[n], EOS])] for group in groups(text, context))
        return [VOCABULARY.encode(opened) for opened in words]
    ids = [VOCABULARY.eos_id, *VOCABULARY.encode(word for line in text for word in [*line, EOS])]
    column = math.ceil((len(ids) - 1) / batch_size)
    return [ids[start : start + column + 1] for start in range(0, len(ids) - 1, column)]


@torch.no_grad()
def cached_distributions(
    model: NextWordModel,
    inputs: Sequence[int],
    targets: Sequence[int],
    window: int,
    theta: float,
    share: float,
    openings: Sequence[int] = (),
) -> NDArray[np.float64]:
    """p of every word (N, V) with a neural cache, from the equation: one word at a time, one pair at a time.

    At `openings` the model's state begins anew, but not the cache.
    """
    state, pairs, rows = model.init_state(1), list[tuple[list[float], int]](), []
    for position, (word, target) in enumerate(zip(inputs, targets, strict=True)):
        if position in openings:
            state = model.init_state(1)
        readout, state = model(torch.tensor([[word]]), state)
        h = [x for part in getattr(readout, "members", ()) or [readout] for x in part.features[0, 0].tolist()]
        p = model.head.log_probs(readout)[0, 0].double().exp().tolist()
        remembered = pairs[-window:]
        if remembered:
            alike = [math.exp(theta * sum(a * b for a, b in zip(h, k, strict=True))) for k, _ in remembered]
            p = [(1 - share) * x for x in p]
            for weight, (_, followed) in zip(alike, remembered, strict=True):
                p[followed] += share * weight / sum(alike)
        rows.append(p)
        pairs.append((h, target))
    return np.array(rows)


def numbered(sentences: Sequence[Sequence[str]]) -> tuple[list[NDArray[np.int64]], Vocabulary]:
    """Return sentences by id, a piece each, and their vocabulary, in the order in which words appear."""
    vocabulary = Vocabulary(tuple(dict.fromkeys([UNK, EOS, *(word for one in sentences for word in one)])))
    return [np.array(vocabulary.encode([*one, EOS])) for one in sentences], vocabulary
