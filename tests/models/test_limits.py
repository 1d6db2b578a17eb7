"""Every number of every room's configuration has limits, and what is beyond them is refused by name."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from spanlm.errors import InputError
from spanlm.models.encoders import ENCODERS
from spanlm.models.heads import HEADS
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import MEMORIES, KeyValueConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig
from spanlm.training.config import BatchingConfig, OptimizerConfig, ScheduleConfig, TrainingConfig

ROOMS = [ModelConfig, *ENCODERS.values(), *MEMORIES.values(), *HEADS.values(), GateConfig, RewardConfig]
TRAINING = [TrainingConfig, OptimizerConfig, ScheduleConfig, BatchingConfig]


@pytest.mark.parametrize("room", [*ROOMS, *TRAINING])
def test_what_is_beyond_the_limits_is_refused_by_name(room: Any) -> None:
    hints = get_type_hints(room)
    for field in fields(room):
        kinds = {*get_args(hints[field.name]), hints[field.name]}
        values = [-1, 0] if int in kinds else [math.nan, -1.0, math.inf] if float in kinds else []
        values = values[: 1 + (float in kinds)] if room in TRAINING else values  # 0 steps of a warm-up are some
        values += [1.0] if "dropout" in field.name and float in kinds else []
        values = [math.nan, math.inf] if field.name == "forget_bias" else values
        for value in values:
            with pytest.raises(InputError, match=rf"^(model|training)\..*{field.name}={value}: must be "):
                room(**{field.name: value})


@pytest.mark.parametrize(("size", "parts", "use"), [(400, 3, "399 or 402"), (301, 2, "300 or 302"), (2, 3, "3")])
def test_a_size_that_does_not_divide_is_refused_with_those_that_do(size: int, parts: int, use: str) -> None:
    with pytest.raises(InputError, match=rf"^model\.memory\.roles={parts} .* got {size} .* Use {use}\.$"):
        KeyValueConfig(roles=parts).part_size(size, "model.memory.roles")
    for other in use.split(" or "):
        assert KeyValueConfig(roles=parts).part_size(int(other), "model.memory.roles") * parts == int(other)
