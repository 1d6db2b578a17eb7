"""Describe runs for people: in headings of pages and figures, and in lists of runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spanlm.data.config import corpus_title
from spanlm.errors import InputError
from spanlm.scoring.tally import perplexity
from spanlm.store.files import run_name
from spanlm.training.card import best_loss

if TYPE_CHECKING:
    from spanlm.runs.model import Model


@dataclass(frozen=True)
class About:
    """The description of a run.

    Attributes:
        run: the name of its folder.
        memory: its memory in a few words.
        paper: the paper that published the memory; None: there is no such paper.
        corpus: the training corpus; None: unknown.
        perplexity: the best validation perplexity in training; None: there is no log.
    """

    run: str
    memory: str
    paper: str | None = None
    corpus: str | None = None
    perplexity: float | None = None

    @property
    def line(self) -> str:
        """Everything but the name, in one line."""
        memory = self.memory[:1].upper() + self.memory[1:] + (f" ({self.paper})" if self.paper else "")
        trained = f"trained on {self.corpus}" if self.corpus else ""
        measured = f"perplexity {self.perplexity:.1f} on valid" if self.perplexity is not None else ""
        return "; ".join(part for part in (memory, ", ".join(filter(None, (trained, measured)))) if part)


def about(model: Model) -> About:
    """Describe a run; an n-gram model has only a name and a kind."""
    try:
        memory = model.config.model.memory
    except InputError:
        return About(run_name(model.folder), model.description)
    data = model.config.data
    return About(
        run_name(model.folder),
        memory.description + model.recency,
        memory.paper or None,
        corpus_title(data.corpus),
        finite_perplexity(best_loss(model.folder)),
    )


def finite_perplexity(loss: object) -> float | None:
    """Return the perplexity of a logged loss in nats; None: the loss is not a number, or too large."""
    value = perplexity(loss) if isinstance(loss, int | float) else math.inf
    return value if math.isfinite(value) else None
