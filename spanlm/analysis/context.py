"""How much context a model uses, and what of it (Khandelwal et al., 2018, "Sharp Nearby, Fuzzy Far Away", ACL).

The words before a target x_t are changed beyond the last n, and what the model then needs is compared with what it
needs with the whole context c, at the same targets:

    E(n) = mean_t [ log2 p(x_t | c) − log2 p(x_t | changed beyond n) ]              bits a token

    truncated          the last n words are read from an empty state; n = 0: <eos> alone, as at the start of a text
    memory emptied     memory that began with them, encoder that has read all
    encoder emptied    encoder that began with them, memory of all before
    shuffled           the `far` words before them come in random order
    half dropped       a random half of these is left out, the rest in its order
    replaced           each of these is another word about as frequent in training (the same power of two, or the next
                       where no other has that), drawn in proportion to its frequency; <eos> and <unk> stay

What is left of the gain of having read anything, E(0), gives the effective context length

    a  = max { m : E(m) > E(0) / 100 in 97.5 % of the draws }
    n* = min { n > a : E(n) <= E(0) / 100 }

with E between two lengths that were measured on a line over log n. Draws are of the text's blocks, as for the
intervals. a is the last length at which more is left for sure: to ask that E(m) be small for every m >= n would ask for
the largest of several noisy numbers, and make n* too long. In a draw that has less left at a, n* is sought before a. A
length has an interval, and a say in n*, if its targets are in `FEWEST_BLOCKS` blocks at least.

The paper has the loss within 1 % of the loss in place of within 1 % of the gain, and drops function or content words.

Truncations nest: a stream that begins at word s has read n words when it predicts word s + n, for every n. So streams
begin at drawn places, and each length has a target of each of them; E(n) of two lengths are at different targets,
each paired with the whole context at its own. States are kept of a few streams at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spanlm.analysis.classes import Counts, openings
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.models.interfaces import LMState, NextWordModel
from spanlm.scoring.options import ContextOptions
from spanlm.scoring.protocol import LENGTH, Protocol
from spanlm.scoring.resampling import FEWEST_BLOCKS, Array, Interval, blocks_of, drawn_means, interval_of
from spanlm.scoring.stream import Report, evaluating, quiet

LEFT = 0.01
"""Of the gain, what is left beyond the effective context length."""
STREAMS, HELD, STEPS = 128, 1 << 28, 64
"""Streams read side by side at most, bytes of their states, and steps at a time."""

UNKNOWN = math.nan, math.nan
"""The interval of what is in too few blocks."""

TRUNCATED, NO_MEMORY, NO_ENCODER = "truncated", "memory emptied", "encoder emptied"
SHUFFLED, DROPPED, REPLACED = "shuffled", "half dropped", "replaced"


@dataclass(frozen=True)
class ContextPoint:
    """E(n) of one change at one length."""

    words: int  # n
    positions: int  # how many targets there were
    bits: float  # with the change, a token, at these targets
    excess: float  # E(n), so that `bits` − `excess` is with the whole context, at the same targets
    interval: Interval  # 95 % of E(n); NaN where the targets are in fewer than `FEWEST_BLOCKS` blocks

    @property
    def sure(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.interval[0])


@dataclass(frozen=True)
class ContextUse:
    """What a model needs more where its context is changed."""

    text: str  # corpus and part
    protocol: str  # how it is counted, for people
    bits: float  # with the whole context, a token, at all targets that were measured
    curves: dict[str, list[ContextPoint]]  # of each change; truncated begins with n = 0
    # n*; infinite: longer than all lengths; NaN: the gain's interval holds 0, or no length has targets in enough
    # blocks
    effective: float
    effective_interval: Interval  # 95 %, from the same draws
    blocks: str  # what was drawn anew for the intervals
    far: int  # how many words were shuffled, dropped or replaced

    @property
    def gain(self) -> float:
        """E(0)."""
        return self.curves[TRUNCATED][0].excess

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# --- the text ---


class _Text:
    """A text of N words, and the P places at which streams begin in it.

    Attributes:
        ids: (N,) its words; `inputs` are what is read before each.
        starts: (P,) of each stream's first input, in order; `ends` are those of their contexts.
        contexts: those that have a start, from their first word to the last that is a target.
        blocks: what is drawn anew for intervals.

    Raises:
        InputError: the text is too short.
    """

    def __init__(self, corpus: Corpus, split: str, protocol: Protocol, options: ContextOptions) -> None:
        tokens, eos = corpus.splits[split], corpus.vocabulary.eos_id
        self.ids, documents = np.asarray(tokens.ids, np.int64), np.asarray(tokens.documents, np.int64)
        begins = openings(protocol.context, self.ids, documents, eos)
        stops = np.append(begins[1:], len(self.ids))
        self.inputs = np.append(eos, self.ids[:-1])
        self.inputs[begins] = eos
        # at an opening nothing comes before
        candidates = np.setdiff1d(np.arange(len(self.ids)), begins)
        if len(candidates) < 2:
            raise InputError(f"{corpus.name} {split}: has no word with a context to cut")
        count = min(options.positions, len(candidates))
        self.starts = np.sort(np.random.default_rng(options.seed).choice(candidates, count, replace=False))
        contexts = np.searchsorted(begins, self.starts, side="right") - 1
        self.ends = stops[contexts]
        longest = int((self.ends - self.starts).max())
        if longest < min(options.lengths):
            raise InputError(
                "lengths", min(options.lengths), f"at the places that were drawn a context has at most {longest} words"
            )
        farthest = max(n + options.far * (n <= options.far) for n in options.lengths)
        needed = np.minimum(self.starts + farthest, self.ends)
        self.contexts = [(int(begins[n]), int(needed[contexts == n].max())) for n in np.unique(contexts)]
        self.blocks = blocks_of(len(self.ids), documents)


class _Replacer:
    """Draws for each word another one of its band, in proportion to the counts.

    Bands are the powers of two of counts; a word that has none beside it is put to the next band, or else the last.
    """

    def __init__(self, counts: Counts, vocabulary: Vocabulary) -> None:
        weights, special = np.maximum(counts, 1), [vocabulary.eos_id, vocabulary.unk_id]
        powers = np.floor(np.log2(weights)).astype(np.int64)
        bands = _joined(np.bincount(np.delete(powers, special), minlength=int(powers.max()) + 1))[powers]
        bands[special] = bands.max() + np.array([1, 2])  # each alone in its band
        self._order = np.argsort(bands, kind="stable")
        self._totals = np.cumsum(weights[self._order])
        in_order = bands[self._order]
        last = self._totals[np.searchsorted(in_order, bands, side="right") - 1]
        first = np.searchsorted(in_order, bands, side="left")
        self._from = np.where(first > 0, self._totals[first - 1], 0)
        # a word's own stretch is left out; one alone in its band has no other
        self._own = np.empty_like(weights)
        self._own[self._order] = self._totals - weights[self._order]
        self._width = np.where(last - self._from > weights, weights, 0)
        self._to = last - self._width

    def __call__(self, words: Counts, generator: np.random.Generator) -> Counts:
        drawn = generator.integers(self._from[words], self._to[words])
        drawn += np.where(drawn >= self._own[words], self._width[words], 0)
        return np.asarray(self._order[np.searchsorted(self._totals, drawn, side="right")])


def _joined(sizes: Counts) -> Counts:
    """Number bands, of which `sizes` count the words, and merge a band of one word with the next."""
    numbers, number, held = np.zeros_like(sizes), 0, 0
    for band, size in enumerate(sizes.tolist()):
        numbers[band], held = number, held + size
        if held > 1:
            number, held = number + 1, 0
    return np.minimum(numbers, max(number - 1, 0))


# --- reading ---


Far = Callable[[Counts, np.random.Generator], Counts]
"""Gives what is read in place of the `far` words."""

_GOES_ON = {TRUNCATED: (False, False), NO_MEMORY: (True, False), NO_ENCODER: (False, True)}
"""Whether a stream begins with encoder and memory as they were before it; where words are changed, with both."""


def _changes(model: NextWordModel, options: ContextOptions, replacer: _Replacer) -> dict[str, Far | None]:
    """Return what each change makes of the `far` words; None: it has none, and its words begin at its start."""

    def shuffled(words: Counts, generator: np.random.Generator) -> Counts:
        return generator.permutation(words)

    def halved(words: Counts, generator: np.random.Generator) -> Counts:
        return words[np.sort(generator.choice(len(words), len(words) // 2, replace=False))]

    changes: dict[str, Far | None] = dict.fromkeys(_GOES_ON if model.init_state(1).memory else [TRUNCATED])
    if options.far >= min(options.lengths):
        changes |= {SHUFFLED: shuffled, DROPPED: halved, REPLACED: replacer}
    return changes


class _Reader:
    """Reads a text with a model in evaluation mode, at a precision."""

    def __init__(self, model: NextWordModel, precision: Any, text: _Text, options: ContextOptions) -> None:
        self.model, self.precision, self.text, self.options = model, precision, text, options
        self.whole = np.full(len(text.ids), np.nan)  # (N,) log2 p with the whole context, as far as it is read

    def log_p(self, inputs: Counts, targets: Counts, steps: Counts, state: LMState) -> tuple[Array, LMState]:
        """Read inputs (T, B); return log2 p of targets (K, B) at K of its steps, and the state after."""
        device, parts = self.model.device, [np.empty((0, inputs.shape[1]))]
        for begin in range(0, len(inputs), STEPS):
            x = torch.from_numpy(inputs[begin : begin + STEPS]).to(device)
            here = np.flatnonzero((steps >= begin) & (steps < begin + STEPS))
            with evaluating(self.model, self.precision):
                readout, state = self.model(x, state)
                if len(here):
                    at = torch.from_numpy(steps[here] - begin).to(device)
                    log_p = self.model.head.log_prob(
                        readout.map(itemgetter(at)), torch.from_numpy(targets[here]).to(device)
                    )
                    parts.append(log_p.double().cpu().numpy() / math.log(2))
        return np.concatenate(parts), state

    def nothing(self, eos_id: int) -> Array:
        """Return log2 p (P,) of the words at the starts after <eos> alone."""
        with evaluating(self.model, self.precision):
            opening = torch.full((1, 1), eos_id, device=self.model.device)
            every: Tensor = self.model.log_probs(opening, self.model.init_state(1))[0][0, 0]  # (V,)
        return np.asarray(every.double().cpu().numpy()[self.text.ids[self.text.starts]] / math.log(2))

    def snapshots(self, report: Report) -> Iterator[tuple[Counts, LMState]]:
        """Read the text into `whole`; give streams, a chunk at a time, and the states with which they begin."""
        text, chunk, states, held = self.text, list[int](), list[LMState](), 0
        total, done = sum(end - begin for begin, end in text.contexts), 0
        for begin, end in text.contexts:
            state, at = self.model.init_state(1), begin
            first, last = np.searchsorted(text.starts, [begin, end])
            for number in (*range(first, last), -1):
                stop = end if number < 0 else int(text.starts[number])
                for piece in range(at, stop, LENGTH):
                    here = slice(piece, min(piece + LENGTH, stop))
                    inputs, targets, steps = text.inputs[here, None], text.ids[here, None], np.arange(here.stop - piece)
                    log_p, state = self.log_p(inputs, targets, steps, state)
                    self.whole[here] = log_p[:, 0]
                done, at = done + stop - at, stop
                if number < 0:
                    break
                chunk.append(number)
                states.append(state.map(Tensor.clone))  # what they are parts of goes
                held += state.nbytes
                if len(chunk) == STREAMS or held > HELD:
                    yield np.array(chunk), LMState.beside(states)
                    report("reading", done, total)
                    chunk, states, held = [], [], 0
        if chunk:
            yield np.array(chunk), LMState.beside(states)

    def changed(self, chunk: Counts, state: LMState, change: Far | None) -> Array:
        """Return log2 p (B, K) of the targets after each length; NaN where a context has ended."""
        text, options, far = self.text, self.options, 0 if change is None else self.options.far
        starts, last = text.starts[chunk], len(text.ids) - 1
        if change is not None:
            words = [text.inputs[np.minimum(np.arange(s, s + far), last)] for s in starts.tolist()]
            draws = [np.random.default_rng([options.seed, s]) for s in starts.tolist()]
            read = np.stack([change(*both) for both in zip(words, draws, strict=True)], 1)
            _, state = self.log_p(read, np.empty((0, len(chunk)), np.int64), np.empty(0, np.int64), state)
        lengths = np.array([n for n in options.lengths if change is None or n <= far])
        inputs = text.inputs[np.minimum(starts + far + np.arange(lengths[-1])[:, None], last)]
        at = starts + far + lengths[:, None] - 1
        log_p, _ = self.log_p(inputs, text.ids[np.minimum(at, last)], lengths - 1, state)
        targets = np.full((len(chunk), len(options.lengths)), np.nan)
        targets[:, : len(lengths)] = np.where(at < text.ends[chunk], log_p, np.nan).T
        return targets


def measure_context(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    protocol: Protocol,
    options: ContextOptions | None = None,
    *,
    counts: Counts | None = None,
    report: Report = quiet,
) -> ContextUse:
    """Measure E(n) of every change, and n*; see the module. `counts` (V,) are of the training text, else of this one.

    Raises:
        InputError: the text is too short.
    """
    options = options or ContextOptions()
    text = _Text(corpus, split, protocol, options)
    counts = np.bincount(text.ids, minlength=len(corpus.vocabulary)) if counts is None else counts
    changes = _changes(model, options, _Replacer(counts, corpus.vocabulary))
    reader = _Reader(model, protocol.precision, text, options)
    changed = {name: np.full((len(text.starts), len(options.lengths)), np.nan) for name in changes}
    for chunk, state in reader.snapshots(report):
        empty = model.init_state(len(chunk))
        for name, change in changes.items():
            encoder, memory = (state if goes_on else empty for goes_on in _GOES_ON.get(name, (True, True)))
            changed[name][chunk] = reader.changed(chunk, LMState(encoder.encoder, memory.memory), change)
    generator = np.random.default_rng(options.seed)
    curves, targets, lengths = {}, np.zeros(len(text.ids), np.bool_), list(options.lengths)
    effective, interval = math.nan, UNKNOWN
    for name, log_p in changed.items():
        at = text.starts[:, None] + (0 if changes[name] is None else options.far) + np.array(lengths) - 1
        at = np.where(np.isnan(log_p), text.starts[:, None], at)
        targets[at[~np.isnan(log_p)]] = True
        excess = reader.whole[at] - log_p
        if name == TRUNCATED:
            nothing = reader.nothing(corpus.vocabulary.eos_id)
            log_p = np.column_stack([nothing, log_p])
            excess = np.column_stack([reader.whole[text.starts] - nothing, excess])
            points, draws = _points(-log_p, excess, [0, *lengths], text, generator)
            sure = [point for point in points if point.sure]
            if sure and sure[0].interval[0] > 0:
                means = np.array([point.excess for point in sure])
                effective, interval = effective_context([point.words for point in sure], means, draws)
        else:
            points, _ = _points(-log_p, excess, lengths, text, generator)
        if points:
            curves[name] = points
    return ContextUse(
        text=f"{corpus.name} {split}",
        protocol=protocol.description(corpus, split),
        bits=-float(reader.whole[targets].mean()),
        curves=curves,
        effective=effective,
        effective_interval=interval,
        blocks=text.blocks.description,
        far=options.far,
    )


def _points(
    bits: Array, excess: Array, words: Sequence[int], text: _Text, generator: np.random.Generator
) -> tuple[list[ContextPoint], Array]:
    """Return a point for each length that has targets, and the draws of E for those that have them in enough blocks."""
    measured, blocks = ~np.isnan(excess), np.unique(text.blocks.of[text.starts], return_inverse=True)[1]
    sums, counts = (np.zeros((int(blocks.max()) + 1, len(words))) for _ in range(2))
    np.add.at(sums, blocks, np.where(measured, excess, 0.0))
    np.add.at(counts, blocks, measured)
    enough = np.flatnonzero((counts > 0).sum(0) >= FEWEST_BLOCKS)
    draws, intervals = np.empty((0, 0)), dict[int, Interval]()
    if len(enough):
        draws = drawn_means(sums[:, enough], counts[:, enough], generator)
        intervals = dict(zip(enough.tolist(), interval_of(draws), strict=True))
    points = [
        ContextPoint(
            words[n],
            int(measured[:, n].sum()),
            float(bits[measured[:, n], n].mean()),
            float(sums[:, n].sum() / counts[:, n].sum()),
            intervals.get(n, UNKNOWN),
        )
        for n in np.flatnonzero(measured.any(0)).tolist()
    ]
    return points, draws


def effective_context(words: Sequence[int], excess: Array, draws: Array) -> tuple[float, Interval]:
    """Return n* and its 95 % interval, of E at K lengths, the first of which is 0, and of its draws (DRAWS, K)."""
    draws = draws[~np.isnan(draws).any(axis=1)]
    surely = np.quantile(draws - LEFT * draws[:, :1], 0.025, axis=0) > 0
    last = int(np.flatnonzero(surely).max(initial=0))
    lengths = np.sort([effective_length(words, draw, last) for draw in draws])
    low, high = lengths[int(0.025 * len(lengths))], lengths[math.ceil(0.975 * len(lengths)) - 1]
    return effective_length(words, excess, last), (float(low), float(high))


def effective_length(words: Sequence[int], excess: Array, last: int) -> float:
    """Return n* of E at lengths, the first of which is 0; infinite if more than `LEFT` of the gain is left at the last.

    `last` is the place of a, the last length at which more is left for sure. Without a gain n* is 0. Between lengths E
    is on a line over log n; from 0 to 1 over n.
    """
    least = LEFT * excess[0]
    above = excess > least
    if excess[0] <= 0:
        return 0.0
    n = int(np.flatnonzero(above[: last + 1])[-1])
    while n + 1 < len(words) and above[n + 1]:
        n += 1
    if n + 1 == len(words):
        return math.inf
    share = (excess[n] - least) / (excess[n] - excess[n + 1])
    if words[n] == 0:
        return float(share * words[n + 1])
    return float(math.exp(math.log(words[n]) + share * math.log(words[n + 1] / words[n])))
