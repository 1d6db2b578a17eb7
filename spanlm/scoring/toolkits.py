r"""Perplexity in the output formats of KenLM's `query` and SRILM's `ngram -ppl`, for any model.

    KenLM   the=3 2 -0.2<TAB>cat=4 2 -0.4<TAB></s>=2 2 -0.3<TAB>Total: -0.9 OOV: 0
    SRILM   <TAB>p( the | <s> ) <TAB>= [2gram] 0.630957 [ -0.2 ]

KenLM reports perplexity twice: with words outside the vocabulary as `<unk>`, and without them. SRILM, without its
option -unk, skips these words, words of probability 0 (zeroprobs) and blank lines. Both count `</s>`; SRILM's ppl1 does
not. Like KenLM, this module sums in float32 within a line and prints the fewest exact digits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spanlm.data.pieces import Piece, whole_lines
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.scoring.ngram.arpa import shortest
from spanlm.scoring.ngram.model import END, START, UNKNOWN, ArpaModel
from spanlm.scoring.words import WordScore


class WordProbability(NamedTuple):
    """A word of a line.

    Attributes:
        word: the word as written; `</s>` at the end of a line.
        id: its number in the vocabulary, from 1; 0 outside the vocabulary.
        length: length of the n-gram that gave the probability; for a recurrent model the line so far, with `<s>`.
        oov: whether the word is outside the vocabulary, or `<unk>` itself.
    """

    word: str
    id: int
    length: int
    log10: float
    oov: bool


@dataclass
class Sums:
    """Sums over lines: `words` excludes line ends, `log10` includes them; `log10_oov` is the part of unknown words.

    `zeroprobs` are the known words and line ends of probability 0, and `log10_possible` is the part of the others.
    """

    sentences: int = 0
    words: int = 0
    oov: int = 0
    log10: float = 0.0
    log10_oov: float = 0.0
    zeroprobs: int = 0
    log10_possible: float = 0.0

    def add(self, line: Sequence[WordProbability]) -> None:
        self.sentences += 1
        self.words += sum(word.word != END for word in line)
        self.oov += sum(word.oov for word in line)
        self.log10 += _float32_sum(word.log10 for word in line)
        self.log10_oov += sum(float(np.float32(word.log10)) for word in line if word.oov)
        known = [word.log10 for word in line if not word.oov]
        self.zeroprobs += known.count(-math.inf)
        self.log10_possible += _float32_sum(log10 for log10 in known if log10 > -math.inf)

    @property
    def tokens(self) -> int:
        return self.words + self.sentences

    @property
    def known_log10(self) -> float:
        if math.isfinite(self.log10_oov):
            return self.log10 - self.log10_oov
        return -math.inf if self.zeroprobs else self.log10_possible


def arpa_lines(model: ArpaModel, pieces: Iterable[Piece]) -> Iterator[list[WordProbability]]:
    """Yield the words of lines or sentences, scored by an n-gram model.

    Raises:
        InputError: a line holds `<s>` or `</s>` as a word.
    """
    for line in model.score(line.words for line in whole_lines(pieces)):
        columns = line.ids.tolist(), line.lengths.tolist(), line.log10.tolist(), line.oov.tolist()
        yield [WordProbability(*word) for word in zip(line.words, *columns, strict=True)]


def scored_lines(scores: Iterable[WordScore], vocabulary: Vocabulary) -> Iterator[list[WordProbability]]:
    """Group rows of `score_words` by line; they need `state="line"`, `base=10` and `eos=True`."""
    line: list[WordProbability] = []
    for row in scores:
        known, ends = not row.oov and row.word != UNK, row.word == EOS
        number = vocabulary.id(row.word) + 1 if known else 0
        line.append(WordProbability(END if ends else row.word, number, len(line) + 2, 0 - row.surprisal, not known))
        if ends:
            yield line
            line = []


def kenlm_report(lines: Iterable[Sequence[WordProbability]]) -> Iterator[str]:
    """Yield the output of `query` for lines, then its summary."""
    sums = Sums()
    for line in lines:
        sums.add(line)
        values = [word.log10 for word in line]
        *log10, total = shortest(np.array([*values, _float32_sum(values)], np.float32))
        words = (f"{word.word}={word.id} {word.length} {text}\t" for word, text in zip(line, log10, strict=True))
        yield f"{''.join(words)}Total: {total} OOV: {sum(word.oov for word in line)}"
    known = _perplexity(sums.known_log10, sums.tokens - sums.oov)
    (including,), (excluding,) = (shortest(np.array([ppl])) for ppl in (_perplexity(sums.log10, sums.tokens), known))
    yield f"Perplexity including OOVs:\t{including}"
    yield f"Perplexity excluding OOVs:\t{excluding}"
    yield f"OOVs:\t{sums.oov}"
    yield f"Tokens:\t{sums.tokens}"


def srilm_report(lines: Iterable[Sequence[WordProbability]], name: str, debug: int = 0) -> Iterator[str]:
    """Yield the output of `ngram -ppl` for a file; `debug` 1 adds each line and its sums, 2 also each word."""
    sums = Sums()
    for line in lines:
        if len(line) == 1:
            continue
        sums.add(line)
        if debug:
            yield " ".join(word.word for word in line if word.word != END)
            if debug > 1:
                yield from _srilm_words(line)
            alone = Sums()
            alone.add(line)
            yield from _srilm_summary(alone, "")
            yield ""
    yield from _srilm_summary(sums, f"file {name}: ")


def _srilm_words(line: Sequence[WordProbability]) -> Iterator[str]:
    before = [START, *(UNKNOWN if word.oov else word.word for word in line)]
    for place, word in enumerate(line):
        context = f"{before[place]} {'...' if place else ''}"
        value = "[OOV] 0 [ -inf ]" if word.oov else f"[{word.length}gram] {10**word.log10:.6g} [ {word.log10:.6g} ]"
        yield f"\tp( {UNKNOWN if word.oov else word.word} | {context}) \t= {value}"


def _srilm_summary(sums: Sums, before: str) -> Iterator[str]:
    known = sums.known_log10 if math.isfinite(sums.log10) else sums.log10_possible
    words = sums.words - sums.oov - sums.zeroprobs
    ppl, ppl1 = (
        f"{_perplexity(known, count):.6g}" if count else "undefined" for count in (words + sums.sentences, words)
    )
    yield f"{before}{sums.sentences} sentences, {sums.words} words, {sums.oov} OOVs"
    yield f"{sums.zeroprobs} zeroprobs, logprob= {known:.6g} ppl= {ppl} ppl1= {ppl1}"


def _float32_sum(values: Iterable[float]) -> float:
    total = np.float32(0)
    for value in values:
        total += np.float32(value)
    return float(total)


def _perplexity(log10: float, count: int) -> float:
    if not count:
        return math.nan
    return 10 ** (-log10 / count) if -log10 / count < sys.float_info.max_10_exp else math.inf
