"""`--match-parameters`: a hidden size for a budget."""

from __future__ import annotations

import re
from dataclasses import replace

from spanlm.cli.terminal import out
from spanlm.config import RunConfig
from spanlm.errors import InputError
from spanlm.models.counting import count_configured, lstm_budget, match_parameters
from spanlm.models.encoders import AWDLSTMConfig

_BUDGET = re.compile(r"LSTM(?P<units>\d{1,5})|(?P<number>\d{1,15}(\.\d*)?(E\d{1,2})?)(?P<scale>[KM]?)")


def matched(config: RunConfig, wanted: str, vocabulary_size: int) -> RunConfig:
    """Choose the hidden size that meets a budget, and say it.

    Args:
        config: of the model.
        wanted: θ_M as a number (3731200, 3.7M), or LSTMn: that of a one-layer LSTM with n units.
        vocabulary_size: of the corpus.

    Raises:
        InputError: neither, or no hidden size meets it.
    """
    model = match_parameters(config.model, vocabulary_size, _budget(wanted, config, vocabulary_size))
    count = count_configured(model, vocabulary_size)
    field = "last_size" if isinstance(model.encoder, AWDLSTMConfig) else "hidden_size"
    out(
        f"matched to {wanted}: model.encoder.{field}={model.encoder.output_size}, θ_M {count.model:,} "
        f"at a vocabulary of {vocabulary_size:,} words"
    )
    return replace(config, model=model)


def _budget(wanted: str, config: RunConfig, vocabulary_size: int) -> int:
    found = _BUDGET.fullmatch(wanted.upper().replace("_", "").replace(",", ""))
    if found is None:
        raise InputError(
            f"--match-parameters={wanted}: must be a number (3731200, 3.7M) or LSTM and a hidden size (LSTM300)"
        )
    if found["units"]:
        return lstm_budget(int(found["units"]), config.model, vocabulary_size)
    return round(float(found["number"]) * {"": 1, "K": 1e3, "M": 1e6}[found["scale"]])
