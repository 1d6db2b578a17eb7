"""What a model makes of the validation part between two epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from spanlm.data.batching import Segment
from spanlm.evaluation.scoring import Precision, Tally, tally
from spanlm.models.next_word_model import NextWordModel


@dataclass(frozen=True)
class Validated:
    """Sums over the predicted tokens of the validation part.

    Attributes:
        tally: tokens and their NLL.
    """

    tally: Tally

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.tally.nll / self.tally.tokens

    @property
    def parts(self) -> dict[str, float]:
        """Of a span buffer, by the names of `PartTally`; empty where there is none."""
        return {} if self.tally.parts is None else asdict(self.tally.parts)


def validated(
    model: NextWordModel,
    segments: Iterable[Segment],
    unk_id: int,
    precision: Precision,
    stop: Callable[[], bool] = lambda: False,
) -> Validated:
    """Score every token of `segments`; `stop` is asked before each of them."""
    return Validated(tally(model, segments, unk_id, precision, stop))
