"""One stream of scored tokens, which every measurement of a text reads.

    read(model, segments, protocol, *questions) ─► Scored, Scored, Scored …

Only `read` handles padding, lines side by side, segments, the state between segments, precision and devices. It yields
blocks of predicted tokens with the answers of the questions: log p by default, or any function of a readout. A question
with state, such as a neural cache, is an object. Memory is constant, however long the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.models.interfaces import LMState, NextWordModel, Readout, Scores
from spanlm.models.ops.precision import autocast, products
from spanlm.options import Precision
from spanlm.scoring.protocol import STANDARD, Protocol

ROWS = 64
"""Distributions are computed in multiples of this number, and reduced this many at a time: few enough to stay in the
processor's cache. For each other number of rows the library would build a kernel, and it keeps 1,024 of them, some
hundred megabytes."""

STEPS = 16
"""Steps per segment of a text whose beginning may have been read before: after an edit, reading resumes at the last
segment boundary before it."""

DISTRIBUTIONS = 1 << 22
"""Probabilities computed at a time, words times V."""

Report = Callable[[str, int, int], None]
"""Called with the name of the work, the tokens done and the total."""


def quiet(work: str, done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def evaluating(model: NextWordModel, precision: Precision = "fp32") -> Iterator[None]:
    """Switch off dropout and gradients and set `precision`; restore the mode afterwards, also after an error.

    A caller's autocast has no effect inside.
    """
    was_training = model.training
    if was_training:  # setting the mode visits every module and costs as much as a short segment of a small model
        model.eval()
    try:
        with torch.no_grad(), products(model.device, precision), autocast(model.device, precision):
            yield
    finally:
        if was_training:
            model.train()


@dataclass(frozen=True)
class Reading:
    """A segment as read by a model, on the model's device: the input of questions.

    Attributes:
        rows: (N,) indices of the predicted tokens among the T · B places, one stream after the other.
        reset: (B,) streams whose state is reset, on the processor to avoid waiting for a GPU; `fresh`: all are reset.
    """

    model: NextWordModel
    segment: Segment
    readout: Readout
    rows: Tensor
    reset: Tensor

    @property
    def fresh(self) -> bool:
        return bool(self.reset.all())

    @cached_property
    def scores(self) -> Scores:
        """The head's scores of the targets, (T, B); meaningless for targets that are not predicted."""
        return self.model.head.score(self.readout, self.segment.targets)

    def flat(self, x: Tensor) -> Tensor:
        """(T, B, …) -> (N, …)."""
        return x.flatten(0, 1).index_select(0, self.rows)


Question = Callable[[Reading], Mapping[str, Tensor]]
"""Answers with named numbers for every predicted token, (N, …)."""


@dataclass(frozen=True)
class Scored:
    """N predicted tokens, one stream after the other, each in the order of its text.

    Attributes:
        ids: (N,) word ids.
        place: (N,) positions in the text, from 0.
        opens: (N,) bool, whether the token is the first of its context.
        answers: answers to the questions by name, (N, …), on the model's device.
        metrics: further numbers to sum, by name, (N,), see `Scores`.
    """

    ids: Tensor
    place: Tensor
    opens: Tensor
    answers: Mapping[str, Tensor]
    metrics: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def numpy(self, name: str = "log_p") -> NDArray[np.generic]:
        answer: NDArray[np.generic] = self.answers[name].cpu().numpy()
        return answer

    def take(self, tokens: Tensor) -> Scored:

        def some(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: x[tokens.to(x.device)] for name, x in columns.items()}

        parts = self.ids[tokens], self.place[tokens], self.opens[tokens]
        return Scored(*parts, some(self.answers), some(self.metrics))

    @staticmethod
    def joined(blocks: Sequence[Scored]) -> Scored:
        """Concatenate blocks; rows that grow with the text are padded with zeros in front."""
        if len(blocks) == 1:
            return blocks[0]
        first = blocks[0]
        return Scored(
            torch.cat([block.ids for block in blocks]),
            torch.cat([block.place for block in blocks]),
            torch.cat([block.opens for block in blocks]),
            {name: _end_to_end([block.answers[name] for block in blocks]) for name in first.answers},
            {name: torch.cat([block.metrics[name] for block in blocks]) for name in first.metrics},
        )


def _end_to_end(parts: Sequence[Tensor]) -> Tensor:
    if parts[0].dim() == 2:
        widest = max(part.shape[1] for part in parts)
        parts = [torch.nn.functional.pad(part, (widest - part.shape[1], 0)) for part in parts]
    return torch.cat([*parts])


def log_p(reading: Reading) -> Mapping[str, Tensor]:
    """Answer log p(token) in nats."""
    return {"log_p": reading.flat(reading.scores.log_prob)}


def distribution(reading: Reading, ends: Tensor | None = None) -> Mapping[str, Tensor]:
    """Answer surprisal and entropy (nats, float64) and rank; holds at most `DISTRIBUTIONS` probabilities.

    With `ends`, ids of tokens, also answer `end`, log Σ p of these.
    """
    model, rows, targets = reading.model, reading.rows, reading.segment.targets.flatten()
    padded = torch.cat([rows, rows[:1].expand(-len(rows) % ROWS)])
    values = []
    for chunk in torch.split(padded, max(1, DISTRIBUTIONS // model.vocabulary_size)):
        log_probs = model.head.log_probs(reading.readout.map(partial(as_steps, chunk)))
        row_values = word_values(log_probs.squeeze(1), targets[chunk])
        values.append((*row_values, *([] if ends is None else [log_sum(log_probs.squeeze(1), ends)])))
    columns = (torch.cat(column)[: len(rows)] for column in zip(*values, strict=True))
    return dict(zip(("surprisal", "entropy", "rank", "end"), columns, strict=False))


def log_sum(log_probs: Tensor, ids: Tensor) -> Tensor:
    """Return log Σ p (float64) of tokens under log p of all tokens (N, V)."""
    return log_probs.index_select(-1, ids).double().logsumexp(-1)


def as_steps(rows: Tensor, x: Tensor) -> Tensor:
    """Select rows of (T, B, …) as single steps, (N, 1, …)."""
    return x.flatten(0, 1).index_select(0, rows).unsqueeze(1)


def word_values(log_probs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return surprisal, entropy (nats, float64) and rank of targets (…) under log p of all words (…, V)."""
    parts = zip(torch.split(log_probs.flatten(0, -2), ROWS), torch.split(targets.flatten(), ROWS), strict=True)
    columns = zip(*(_row_values(*part) for part in parts), strict=True)
    surprisal, entropy, rank = (torch.cat(column).view_as(targets) for column in columns)
    return surprisal, entropy, rank


def _row_values(log_probs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    target = log_probs.gather(-1, targets.unsqueeze(-1))
    # counting in floating point is exact below 2²⁴ words, and seven times as fast as summing booleans
    rank = torch.gt(log_probs, target, out=torch.empty_like(log_probs)).sum(-1).long() + 1
    # where p is 0, p log p is 0, not 0 · -inf
    terms = log_probs.clamp(min=torch.finfo(log_probs.dtype).min).mul_(log_probs.exp())
    entropy = terms.double().sum(-1)
    # 0 − x, not −x: a certain word has surprisal and entropy 0, not -0.0
    return 0.0 - target.squeeze(-1).double(), 0.0 - entropy, rank


def read(
    model: NextWordModel, segments: Iterable[Segment], protocol: Protocol = STANDARD, *questions: Question
) -> Iterator[Scored]:
    """Read segments of one batch size in evaluation mode, carrying the state and resetting it where segments say so.

    Without questions the answers are `log_p`. Metrics come from the head, if a question reads its scores.
    """
    state: LMState | None = None
    for segment in segments:
        state = next_state(model, state, segment)
        with evaluating(model, protocol.precision):
            reading, state = reading_of(model, segment, state)
            answers = {name: x for question in questions or (log_p,) for name, x in question(reading).items()}
        scores: Scores | None = vars(reading).get("scores")
        yield scored_of(reading, segment, answers, {} if scores is None else scores.metrics)


def next_state(model: NextWordModel, state: LMState | None, segment: Segment) -> LMState:
    """Return the state before a segment, from the state after the previous segment."""
    if state is not None and not bool(segment.reset.any()):
        return state if segment.after is None else state.select(segment.after.to(model.device))
    initial = model.init_state(len(segment.reset))
    return initial if state is None else state.reset(segment.reset, initial)


def reading_of(model: NextWordModel, segment: Segment, state: LMState) -> tuple[Reading, LMState]:
    """Move a segment to the model's device, read it, and return the state after it."""
    stream, step = torch.nonzero(segment.mask.T, as_tuple=True)
    rows = (step * len(segment.reset) + stream).to(model.device, non_blocking=True)
    moved = segment.to(model.device)
    readout, state = model(moved.inputs, state)
    return Reading(model, moved, readout, rows, segment.reset), state


def scored_of(
    reading: Reading, segment: Segment, answers: Mapping[str, Tensor], metrics: Mapping[str, Tensor]
) -> Scored:
    """Return the tokens of a segment with their answers (N, …) and metrics (T, B)."""
    predicted, first = segment.mask.T, torch.zeros_like(segment.mask)
    first[0] = segment.reset
    ids, place, opens = (x.T[predicted] for x in (segment.targets, segment.place, first))
    return Scored(ids, place, opens, answers, {name: reading.flat(x) for name, x in metrics.items()})


def side_by_side(runs: Sequence[Sequence[int]], places: Sequence[int], *, steps: int, fresh: bool) -> Iterator[Segment]:
    """Cut runs of words into segments of at most `steps` steps; `fresh` runs begin with an empty state.

    The first word of each run is only read; `places` has the position in the text of each run's second word.
    """
    longest = max(map(len, runs))
    read = torch.tensor([[*run, *[0] * (longest - len(run))] for run in runs], dtype=torch.long).T
    lengths, first = torch.tensor([len(run) for run in runs]), torch.tensor(places)
    for start in range(0, longest - 1, steps):
        inputs, targets = (ids[start : start + steps] for ids in (read[:-1], read[1:]))
        at = torch.arange(start, start + len(inputs)).unsqueeze(1)
        reset = torch.full((len(runs),), fresh and start == 0)
        yield Segment(inputs, targets, at < lengths - 1, reset, first + at)


def in_text_order(blocks: Iterable[Scored]) -> Iterator[Scored]:
    """Yield blocks in the order of the text, holding as few as possible; all places together are 0 … N − 1."""
    held: list[Scored] = []
    count, last, done = 0, -1, 0
    for block in filter(len, blocks):
        held.append(block)
        count, last = count + len(block), max(last, int(block.place.max()))
        if done + count == last + 1:
            whole = Scored.joined(held)
            yield whole if bool((whole.place[1:] > whole.place[:-1]).all()) else whole.take(whole.place.argsort())
            held, done, count = [], done + count, 0
    if held:
        yield Scored.joined(held).take(torch.cat([block.place for block in held]).argsort())
