"""Synthetic texts with a known law: the exact probability of every word given all words before it.

A source draws independent lines from a seed. For each word, and for the line's end, its law gives

    log p(w_t | w_1 … w_{t-1}) in nats,    lag_t

where lag_t is the distance to the word that the best prediction needs; 0: no single word. No model can reach a lower
mean of −log p than the law's; the difference is the model's excess.

    markov     a hidden Markov chain: an encoder suffices
    copy       with probability p a word repeats the one `lag` words back: a memory of that reach helps
    agreement  nouns, nested `depth` deep, and their verbs in reverse order: the lag is that of the noun
    recall     pairs of key and value, then keys that ask for their values
    topics     Pólya's urn: each word makes its next occurrence more probable, as a cache does
    parity     bits, and now and then a question whether the ones so far are even or odd: a state that flips
    counting   a … a b … b, as many of one as of the other: a counter

Random line lengths are geometric, so that a model need not count words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spanlm.data.config import SPLITS, Split
from spanlm.errors import InputError, nearest, require

PREFIX = "synthetic:"
VERSION = 1
"""Version of the texts; raise it when a source draws other texts."""
SHARES: dict[Split, float] = {"train": 1.0, "valid": 0.1, "test": 0.1}
"""Size of each split as a share of `tokens`."""

_NAME = re.compile(r"(?P<name>\w+)(?P<options>(?:,\w+=[\w.+-]+)*)")


class Known(NamedTuple):
    """The law of a word: its log p given all words before it, in nats, and the lag of the word that it needs."""

    log_p: float
    lag: int


@dataclass(frozen=True, kw_only=True)
class Source:
    """A law, and texts that follow it.

    Attributes:
        tokens: size of the training text, line ends included; valid and test have a tenth each
        seed: of the texts, and of the law's own parameters
    """

    tokens: int = 200_000
    seed: int = 1
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for option in fields(self):
            value, least = getattr(self, option.name), {"tokens": 100, "seed": 0}.get(option.name, 1)
            if option.type == "float":
                require(0 < value < 1, option.name, value, "above 0 and below 1")
            else:
                require(value >= least, option.name, value, f"at least {least}")

    def line(self, draw: Generator) -> list[str]:
        raise NotImplementedError

    def law(self, line: Sequence[str]) -> list[Known]:
        """Return the law of each word of a line and of its end, N + 1 in all."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The source's name with its non-default options."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        default = type(self)()
        options = (f"{name}={value}" for name, value in values.items() if value != getattr(default, name))
        return f"{PREFIX}{','.join([self.kind, *options])}"

    def lines(self, split: Split) -> Iterator[list[str]]:
        draw, tokens = np.random.default_rng([self.seed, SPLITS.index(split)]), 0
        while tokens < SHARES[split] * self.tokens:
            line = self.line(draw)
            tokens += len(line) + 1
            yield line

    def text(self, split: Split) -> Iterator[bytes]:
        return (f"{' '.join(line)}\n".encode() for line in self.lines(split))


@dataclass(frozen=True, kw_only=True)
class Markov(Source):
    """A hidden Markov chain over `states`, with transitions and emissions from Dirichlet distributions.

    p(w_t | past) = Σ_z p(z_t = z | past) p(w_t | z), by the forward algorithm (Rabiner, 1989).
    """

    states: int = 8
    words: int = 50
    end: float = 0.02
    kind: ClassVar[str] = "markov"

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        draw = np.random.default_rng([self.seed, len(SPLITS)])
        return draw.dirichlet([0.3] * self.states, self.states), draw.dirichlet([0.1] * self.words, self.states)

    def line(self, draw: Generator) -> list[str]:
        moves, emits = self._tables
        state, words = int(draw.integers(self.states)), list[str]()
        while not words or draw.random() >= self.end:
            words.append(f"w{draw.choice(self.words, p=emits[state])}")
            state = int(draw.choice(self.states, p=moves[state]))
        return words

    def law(self, line: Sequence[str]) -> list[Known]:
        moves, emits = self._tables
        belief, law = np.full(self.states, 1 / self.states), list[Known]()
        for place, word in enumerate(line):
            joint = belief * emits[:, int(word[1:])]
            law.append(Known(_goes_on(self.end, place) + math.log(joint.sum()), 0))
            belief = joint / joint.sum() @ moves
        return [*law, Known(math.log(self.end), 0)]


@dataclass(frozen=True, kw_only=True)
class Copy(Source):
    """Each word repeats the one `lag` words back with probability `chance`, and is uniform otherwise.

    p(w_t) = chance · 1[w_t = w_{t-lag}] + (1 − chance) / words
    """

    lag: int = 5
    chance: float = 0.5
    words: int = 100
    end: float = 0.01
    kind: ClassVar[str] = "copy"

    def line(self, draw: Generator) -> list[str]:
        words: list[str] = []
        while not words or draw.random() >= self.end:
            copied = len(words) >= self.lag and draw.random() < self.chance
            words.append(words[-self.lag] if copied else f"w{draw.integers(self.words)}")
        return words

    def law(self, line: Sequence[str]) -> list[Known]:
        law = []
        for place, word in enumerate(line):
            reaches = place >= self.lag
            chance = self.chance * (word == line[place - self.lag]) if reaches else 0.0
            p = chance + (1 - self.chance * reaches) / self.words
            law.append(Known(_goes_on(self.end, place) + math.log(p), self.lag * reaches))
        return [*law, Known(math.log(self.end), 0)]


@dataclass(frozen=True, kw_only=True)
class Agreement(Source):
    """`the cats that the dog that … sees run`: each verb agrees with its noun; the last noun's verb comes first.

    After a noun a clause begins with probability `nested`, up to `depth` nouns; nouns, verbs and numbers are uniform.
    """

    depth: int = 4
    nested: float = 0.5
    words: int = 20
    kind: ClassVar[str] = "agreement"

    def line(self, draw: Generator) -> list[str]:
        numbers, words = list[str](), list[str]()
        while not numbers or (len(numbers) < self.depth and draw.random() < self.nested):
            numbers.append("sp"[draw.integers(2)])
            words += ["that"] * (len(numbers) > 1) + ["the", f"noun{draw.integers(self.words)}-{numbers[-1]}"]
        return words + [f"verb{draw.integers(self.words)}-{number}" for number in reversed(numbers)]

    def law(self, line: Sequence[str]) -> list[Known]:
        waiting: list[int] = []  # places of nouns
        law, closing = list[Known](), False
        log_uniform = -math.log(self.words)
        for place, word in enumerate(line):
            if word in ("the", "that"):
                law.append(Known(math.log(self.nested) if word == "that" else 0.0, 0))
            elif word.startswith("noun"):
                waiting.append(place)
                law.append(Known(log_uniform - math.log(2), 0))
            else:
                ends = not closing and len(waiting) < self.depth
                law.append(Known(log_uniform + (math.log(1 - self.nested) if ends else 0.0), place - waiting.pop()))
                closing = True
        return [*law, Known(0.0, 0)]


@dataclass(frozen=True, kw_only=True)
class Recall(Source):
    """`pairs` of a distinct key and a value; then `queries`: one of the keys, followed by its value."""

    pairs: int = 3
    queries: int = 6
    keys: int = 8
    values: int = 8
    kind: ClassVar[str] = "recall"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.pairs <= self.keys, "pairs", self.pairs, f"at most keys={self.keys}")

    def line(self, draw: Generator) -> list[str]:
        keys = [f"k{key}" for key in draw.permutation(self.keys)[: self.pairs]]
        values = {key: f"v{draw.integers(self.values)}" for key in keys}
        queries = [keys[place] for place in draw.integers(self.pairs, size=self.queries)]
        return [word for key in [*keys, *queries] for word in (key, values[key])]

    def law(self, line: Sequence[str]) -> list[Known]:
        known: dict[str, int] = {}  # the place of each key's last value
        law = []
        for place in range(len(line)):
            key = line[place - 1]
            if place % 2 == 0:
                left = self.keys - len(known) if len(known) < self.pairs else self.pairs
                law.append(Known(-math.log(left), 0))
            elif key in known:
                law.append(Known(0.0, place - known[key]))
                known[key] = place
            else:
                law.append(Known(-math.log(self.values), 0))
                known[key] = place
        return [*law, Known(0.0, 0)]


@dataclass(frozen=True, kw_only=True)
class Topics(Source):
    """Pólya's urn: p(w_t) = (count of w_t before + strength / words) / (t − 1 + strength), restarted in each line."""

    words: int = 200
    strength: int = 20
    end: float = 0.01
    kind: ClassVar[str] = "topics"

    def line(self, draw: Generator) -> list[str]:
        words: list[str] = []
        while not words or draw.random() >= self.end:
            old = draw.random() * (len(words) + self.strength) < len(words)
            words.append(words[draw.integers(len(words))] if old else f"w{draw.integers(self.words)}")
        return words

    def law(self, line: Sequence[str]) -> list[Known]:
        counts, last = Counter[str](), dict[str, int]()
        law = []
        for place, word in enumerate(line):
            p = (counts[word] + self.strength / self.words) / (place + self.strength)
            law.append(Known(_goes_on(self.end, place) + math.log(p), place - last.get(word, place)))
            counts[word] += 1
            last[word] = place
        return [*law, Known(math.log(self.end), 0)]


@dataclass(frozen=True, kw_only=True)
class Parity(Source):
    """Uniform bits; after each, with probability `asks`, `?` and whether the line's ones so far are `even` or `odd`.

    The answer follows from the answer before and all bits since, so its lag is that of the former; the line's first
    word if there is none.
    """

    asks: float = 0.1
    end: float = 0.01
    kind: ClassVar[str] = "parity"

    def line(self, draw: Generator) -> list[str]:
        words, ones = list[str](), 0
        while not words or draw.random() >= self.end:
            bit = int(draw.integers(2))
            ones += bit
            words.append(str(bit))
            if draw.random() < self.asks:
                words += ["?", ("even", "odd")[ones % 2]]
        return words

    def law(self, line: Sequence[str]) -> list[Known]:
        answered, law = 0, list[Known]()
        silent = 0.0  # log p that nothing was asked after the word before
        for place, word in enumerate(line):
            if word == "?":
                law.append(Known(math.log(self.asks), 0))
            elif word in ("even", "odd"):
                law.append(Known(0.0, place - answered))
                answered, silent = place, 0.0
            else:
                law.append(Known(_goes_on(self.end, place) + silent - math.log(2), 0))
                silent = math.log(1 - self.asks)
        return [*law, Known(math.log(self.end) + silent, 0)]


@dataclass(frozen=True, kw_only=True)
class Counting(Source):
    """n times `a`, then n times `b`, with n uniform from 1 to `longest` (Gers & Schmidhuber, 2001)."""

    longest: int = 30
    kind: ClassVar[str] = "counting"

    def line(self, draw: Generator) -> list[str]:
        number = 1 + int(draw.integers(self.longest))
        return ["a"] * number + ["b"] * number

    def law(self, line: Sequence[str]) -> list[Known]:
        """Each b but the first needs its a, the last one that has no b yet; the line's end needs the first a."""
        number, law = line.count("a"), [Known(0.0, 0)]
        for place in range(1, number + 1):
            left = self.longest - place  # how many more a there may be
            law.append(Known(math.log((left if place < number else 1) / (left + 1)), 0))
        law += [Known(0.0, 2 * paired + 1) for paired in range(1, number)]
        return [*law, Known(0.0, 2 * number)]


def _goes_on(end: float, place: int) -> float:
    """Return log p that a line goes on before the word at `place`; no line is empty."""
    return math.log(1 - end) if place else 0.0


SOURCES: dict[str, type[Source]] = {
    source.kind: source for source in (Markov, Copy, Agreement, Recall, Topics, Parity, Counting)
}

NAMES = [PREFIX + kind for kind in SOURCES]


def find_synthetic(name: str) -> Source:
    """Return the source of `synthetic:copy` or `synthetic:copy,lag=10,chance=0.25`.

    Raises:
        InputError: There is no such source or option, or a value is out of range.
    """
    match = _NAME.fullmatch(name.removeprefix(PREFIX))
    kind = SOURCES.get(match["name"]) if match else None
    if match is None or kind is None:
        raise InputError("data.corpus", name, f"no such source.{nearest(name, NAMES)}")
    types = {option.name: option.type for option in fields(kind)}
    options: dict[str, float] = {}
    for setting in filter(None, match["options"].split(",")):
        option, _, value = setting.partition("=")
        if option not in types:
            raise InputError("data.corpus", name, f"{kind.kind} has no option {option}.{nearest(option, types)}")
        try:
            options[option] = float(value) if types[option] == "float" else int(value)
        except ValueError:
            raise InputError("data.corpus", name, f"{option}={value}: must be a number of its kind") from None
    try:
        return kind(**options)  # type: ignore[arg-type]  # numbers of the fields' own types
    except InputError as error:
        raise InputError("data.corpus", name, error) from None
