"""A span buffer at one word of a text (Li et al., 2020, Figure 5 and Table 4): where it looks, and what it expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from spanlm.analysis.figures import INK, PAPER, clip, finished, sheet, styled
from spanlm.analysis.lags import axis_title, signed
from spanlm.data.config import SPLITS
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.runs.model import TrainedModel
from spanlm.scoring.attention import Expected, Look, attention_record, check_attends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPECTED = 4
"""Words of each part, as in Table 4."""
_SEARCHED = 500  # words of test among which a moment is chosen, once the buffer is full
_STRONGEST, _LETTERS, _PRECEDING = 16, 70, 40  # spans with their words, letters of a span, words before the prediction
_WIDTH, _ROW = 560, 14  # in points


@dataclass(frozen=True)
class Snapshot:
    """The moment after `words[-1]` was read and before `target` was known."""

    source: str  # the place in the corpus, in words
    words: list[str]  # from the oldest of the buffer on
    target: str
    span: int  # words of a span
    looks: list[Look]  # spans by their positions in `words`, oldest first; the weights sum to 1
    expected: Mapping[str, Expected]  # by part, "mixture" the whole model
    chance: Mapping[str, float]  # of the target, by part
    share: float  # of the buffer in the mixture

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"looks": [list(look) for look in self.looks]}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        return cls(**{**tree, "looks": [Look(*look) for look in tree["looks"]]})


def snapshot_of(model: TrainedModel, corpus: Corpus, phrases: Sequence[str]) -> Snapshot:
    """Look at the word after one of the `phrases`, where the corpus has it, test first.

    Else at that of the next words of test, once the buffer is full, at which the buffer's prediction is the farthest
    ahead of the encoder's.

    Raises:
        InputError: the model has no span buffer.
    """
    attention = check_attends(model.model)
    reach = attention.weights.shape[-1] * attention.stride + 1
    place = next(_places(corpus, phrases, reach), None)
    split, first, end = place or ("test", 0, reach + _SEARCHED)
    words = [corpus.vocabulary.word(i) for i in corpus.splits[split].ids[first:end].tolist()]
    predict_first = model.texts.predict_first
    record = attention_record(model.model, model.vocabulary, words, expected=EXPECTED, predict_first=predict_first)
    if (parts := record.parts) is None:
        raise InputError(f"{model.folder}: has no span buffer")
    at = len(record) - 1
    if place is None:
        ahead = np.where(parts.there, np.log(parts.chance["buffer"]) - np.log(parts.chance["encoder"]), -np.inf)
        ahead[: min(reach, at)] = -np.inf
        at = int(ahead.argmax())
    looks = sorted(record.looks(at))
    if not looks:
        raise InputError(f"{corpus.name} {split}: is too short a text for a span of {record.span} words")
    oldest = looks[0].first
    return Snapshot(
        source=f"{corpus.name} {split}, token {first + at + 2 - predict_first:,}",
        words=record.words[oldest : at + 1],
        target=record.targets[at],
        span=record.span,
        looks=[Look(look.first - oldest, look.last - oldest, look.weight) for look in looks],
        expected={part: rows[at] for part, rows in parts.expected.items()},
        chance={part: float(chance[at]) for part, chance in parts.chance.items()},
        share=float(parts.share[at]),
    )


def _places(corpus: Corpus, phrases: Sequence[str], reach: int) -> Iterator[tuple[str, int, int]]:
    """Yield where a phrase stands: the part, its words from those that fill the buffer on to the one after it."""
    for phrase in phrases:
        words = phrase.split()
        if not all(word in corpus.vocabulary for word in words):
            continue
        for split in reversed(SPLITS):
            ids = np.asarray(corpus.splits[split].ids)
            starts = np.arange(len(ids) - len(words))
            for offset, word in enumerate(corpus.vocabulary.encode(words)):
                starts = starts[ids[starts + offset] == word]
            for start in starts.tolist():
                yield split, max(0, start - reach), start + len(words) + 1


@styled()
def snapshot_figure(title: str, snapshot: Snapshot) -> Figure:
    """Draw the weight of every span as a strip, and the words of the strongest, oldest first, above those just read."""
    looks, newest = snapshot.looks, len(snapshot.words) - 1
    strongest = sorted(sorted(looks, key=lambda look: -look.weight)[:_STRONGEST])
    shares = np.array([look.weight for look in looks]) * len(looks)  # 1: the weight of equal attention
    colours = {"cmap": "Blues", "vmin": 0, "vmax": max(2.0, float(shares.max())), "edgecolors": PAPER}
    heights = [3 * _ROW, _ROW * len(strongest)]
    figure, ((strip,), (words,)) = sheet(_WIDTH, sum(heights) + 60, 2, 1, height_ratios=heights)
    edges = [look.first - newest - 1 for look in looks] + [looks[-1].last - newest]
    strip.pcolormesh(edges, [0, 1], shares[None], **{**colours, "edgecolors": "none"})
    strip.set(xlim=(edges[0], edges[-1]), yticks=[])
    strip.set_title(f"all {len(looks):,} spans", loc="left")
    strip.set_xlabel(axis_title(newest - looks[-1].last, snapshot.span))
    cells = np.array([[look.weight * len(looks)] for look in strongest])
    drawn = words.pcolormesh(cells, linewidths=0.75, **colours)
    words.set(xlim=(0, _WIDTH / _ROW), ylim=(len(strongest), 0), xticks=[])  # the cells are squares
    words.set_title(f"the {len(strongest)} with most weight, in the order of the text", loc="left")
    words.set_ylabel("words back", loc="top")
    words.set_yticks(np.arange(len(strongest)) + 0.5, [signed(newest - look.last) for look in strongest])
    for row, look in enumerate(strongest):
        text = clip(" ".join(snapshot.words[look.first : look.last + 1]), _LETTERS)
        words.text(1.4, row + 0.5, f"{100 * look.weight:.1f} %   {text}", color=INK, va="center_baseline")
    for axes in (strip, words):
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    key = figure.colorbar(drawn, ax=[strip, words], location="bottom", shrink=0.4, aspect=24)
    key.set_label("attention, in equal shares of the buffer")
    key.outline.set_visible(False)
    preceding = " ".join(snapshot.words[-_PRECEDING:])
    caption = f"{snapshot.source}. Read last: … {preceding}. Next word: “{snapshot.target}”."
    return finished(figure, title, [], caption)
