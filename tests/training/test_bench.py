"""How fast a configuration trains: what is timed, and what takes the time."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from spanlm.config import RunConfig
from spanlm.models.memories import PointerSentinelConfig, SpanBufferConfig
from spanlm.training.bench import BenchOptions, time_training
from tests.conftest import needs_bf16
from tests.training.small import make_config, make_corpus, with_batching

CPU = torch.device("cpu")


@needs_bf16
@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        make_config(kind="sentences", shuffle=False),
        make_config(SpanBufferConfig(buffer_size=6, span_length=3), dropout=0.0, kind="streams", shuffle=False),
        make_config(PointerSentinelConfig(window=4)),
        with_batching(make_config(kind="streams", shuffle=False, batch_size=4), group_size=2),
    ],
    ids=["sentences", "spans", "pointer", "groups"],
)
def test_whatever_can_be_trained_can_be_timed(config: RunConfig) -> None:
    """In both precisions and on the device that was asked for, whatever the configuration has."""
    strange = replace(config, training=replace(config.training, device="cuda", precision="bf16"))
    speeds = time_training("a", strange, make_corpus(), CPU, BenchOptions(rounds=25)).speeds
    assert [speed.precision for speed in speeds] == ["fp32", "bf16"]
    assert all(speed.watched is None and speed.tokens_per_second > 0 for speed in speeds)


MEMORY = """
import torch
from spanlm.training.bench import step_megabytes
CPU = torch.device("cpu")
held = torch.ones(2**23)
print(*(step_megabytes(lambda: torch.ones(n) + 1, CPU) for n in (2**10, 2**23)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_a_step_is_what_it_takes_beside_what_is_there() -> None:
    """In a process of its own: in this one memory that others have freed may serve the step."""
    said = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    small, large = map(float, said.split())
    assert small < 8 and 60 < large < 80
