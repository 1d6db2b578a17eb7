"""How fast a configuration trains: what is timed, and what takes the time."""

import subprocess
import sys

import pytest

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
