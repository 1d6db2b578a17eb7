"""What a run is, in words for people: headings of pages and figures, and lists of runs."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spanlm.data.config import DEMO
from spanlm.data.corpora import CORPORA
from spanlm.errors import InputError
from spanlm.scoring.tally import perplexity
from spanlm.store.files import run_name
from spanlm.store.run_folder import epoch_rows

if TYPE_CHECKING:
    from spanlm.runs.model import Model


@dataclass(frozen=True)
class About:
    """What a run is.

    Attributes:
        run: its name, that of its folder.
        memory: in a few words.
        paper: where its memory was published; None: it has none, or has not been.
        corpus: what it was trained on; None: it does not say.
        perplexity: the best of valid while it was trained; None: it has no log.
    """

    run: str
    memory: str
    paper: str | None = None
    corpus: str | None = None
    perplexity: float | None = None

    @property
    def line(self) -> str:
        """All but the name, in a line."""
        memory = self.memory[:1].upper() + self.memory[1:] + (f" ({self.paper})" if self.paper else "")
        trained = f"trained on {self.corpus}" if self.corpus else ""
        measured = f"perplexity {self.perplexity:.1f} on valid" if self.perplexity is not None else ""
        return "; ".join(part for part in (memory, ", ".join(filter(None, (trained, measured)))) if part)


def about(model: Model) -> About:
    """Return what a run is; of a file of n-grams only the name and the kind."""
    try:
        memory = model.config.model.memory
    except InputError:
        return About(run_name(model.folder), model.description)
    data = model.config.data
    return About(
        run_name(model.folder), memory.description, memory.paper or None, _corpus(data.corpus), _best(model.folder)
    )


def _corpus(name: str) -> str:
    if name == DEMO:
        return "demo (the help texts of Python)"
    return CORPORA[name].title if name in CORPORA else Path(name).name or name


def _best(folder: Path) -> float | None:
    with suppress(InputError):  # a run without its log is still a run
        perplexities = (finite_perplexity(row.get("loss")) for row in epoch_rows(folder))
        return min((value for value in perplexities if value is not None), default=None)
    return None


def finite_perplexity(loss: object) -> float | None:
    """Return the perplexity of what a log has as a loss in nats; None: it is no number, or too large."""
    value = perplexity(loss) if isinstance(loss, int | float) else math.inf
    return value if math.isfinite(value) else None
