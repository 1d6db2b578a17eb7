"""What the tests of a span buffer's evaluations share: weights that follow the text, and a look at what is printed."""

from __future__ import annotations

from spanlm.evaluation.dynamic.update import DynamicConfig

GIVEN = ("--dynamic", "--dynamic-rate", "0.002", "--dynamic-decay", "0.01", "--dynamic-epsilon", "0.001")
CONFIG = DynamicConfig(rate=0.002, decay=0.01, epsilon=0.001)


def flat(text: str) -> str:
    """Return a printed table on one line, its words one space apart."""
    return " ".join(text.split())
