r"""How weights follow a text: η, λ and ε of `spanlm.evaluation.dynamic`, in the two conventions in use.

This project's ("mean") is that of the authors' current code. Their first release, and the copies of it that came with
the mixture of softmaxes and its successors ("sum"), took no mean, neither over the n segments in MS nor over the K
tensors in ḡ (Krause et al., 2018, § 5):

    η_mean = η_sum / √n,    ε_mean = ε_sum / √n,    λ_mean = λ_sum / K
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, get_args

from spanlm.errors import require
from spanlm.evaluation.dynamic_statistics import LENGTH
from spanlm.evaluation.lessons import LessonLoss


@dataclass(frozen=True, kw_only=True)
class DynamicConfig:
    """How weights follow a text. The defaults are the published ones, for an AWD-LSTM on Penn Treebank.

    Attributes:
        rate: η.
        decay: λ.
        epsilon: ε.
        length: tokens of a full segment; with another one, η and λ are published in proportion to it.
        loss: what the weights learn from: likelihood, or, with a span buffer, training (temperature of training and
            reward). The statistics are of the likelihood in evaluation either way.
        tuned_on: the text on which η and λ were chosen, if they were.

    Raises:
        InputError: a rate that is negative or not finite, a decay outside [0, 1], an epsilon that is not positive, a
            length below 1, or another loss.
    """

    rate: float = 5e-5
    decay: float = 0.002
    epsilon: float = 2e-5
    length: int = LENGTH
    loss: LessonLoss = "likelihood"
    tuned_on: str | None = None

    def __post_init__(self) -> None:
        require(0 <= self.rate < math.inf, "dynamic.rate", self.rate, "finite and at least 0")
        require(0 <= self.decay <= 1, "dynamic.decay", self.decay, "in [0, 1]")
        require(0 < self.epsilon < math.inf, "dynamic.epsilon", self.epsilon, "positive and finite")
        require(self.length >= 1, "dynamic.length", self.length, "at least 1")
        require(self.loss in get_args(LessonLoss), "dynamic.loss", self.loss, "likelihood or training")

    @staticmethod
    def from_sum_convention(
        *, rate: float, decay: float, epsilon: float, segments: float, tensors: int, length: int = LENGTH
    ) -> DynamicConfig:
        """Convert η, λ and ε of the first release, given n and K of the statistics.

        Raises:
            InputError: a value that is outside its range.
        """
        root = math.sqrt(segments)
        return DynamicConfig(rate=rate / root, decay=decay / tensors, epsilon=epsilon / root, length=length)

    def sum_convention(self, segments: float, tensors: int) -> tuple[float, float, float]:
        """Return η, λ and ε as the first release would have them, given n and K of the statistics."""
        root = math.sqrt(segments)
        return self.rate * root, self.decay * tensors, self.epsilon * root

    @property
    def description(self) -> str:
        """What it is, in a few words, for people."""
        chosen = "" if self.tuned_on is None else f" (tuned on {self.tuned_on})"
        learnt = ", learning from the loss of training" if self.loss == "training" else ""
        return (
            f"dynamic evaluation, weights adapted after every {self.length} tokens, η {self.rate:.3g}, "
            f"λ {self.decay:.3g}, ε {self.epsilon:.3g}{learnt}{chosen}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
