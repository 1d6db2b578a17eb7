"""What the presets of Merity et al. (2018) to Li et al. (2020) share: a ladder of models, each with one thing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanlm.config import RunConfig
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.presets.preset import Preset, Reported

TABLES = {"ptb": "Table 1", "wt2": "Table 2"}
"""Of Li et al. (2020), who print all rungs, by corpus."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A model without a span buffer, on two corpora.

    Attributes:
        name: of its presets, without the corpus.
        paper: who published it.
        title: what Li et al. (2020) call it.
        configs: by corpus.
        dynamic: settings of dynamic evaluation that its authors published, by corpus.
    """

    name: str
    paper: str
    title: str
    configs: dict[str, RunConfig]
    dynamic: Mapping[str, DynamicConfig] = field(default_factory=dict)

    def row(self, label: str, reported: Reported, remark: str) -> Preset:
        """Return the preset of a corpus."""
        return Preset(
            name=f"{self.name}-{label}",
            paper=self.paper,
            sources=(f"{self.title}, finetuned", f"Li et al. 2020, {TABLES[label]}, {self.title}"),
            config=self.configs[label],
            reported=reported,
            remark=remark,
            dynamic=self.dynamic.get(label),
        )
