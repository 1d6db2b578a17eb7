"""How torch computes in this process, beyond what the machine says: modes that a user may set.

They round otherwise: numbers of two processes are the same bit for bit only where these are. Each mode is read by its
own name: torch's older `get_float32_matmul_precision` raises where the newer ones were set one by one.
"""

from __future__ import annotations

import os

import torch

_MODES = (
    *("fp32_precision", "cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
    *(
        "mkldnn.fp32_precision",
        "mkldnn.matmul.fp32_precision",
        "mkldnn.rnn.fp32_precision",
        "mkldnn.conv.fp32_precision",
    ),
    *("mkldnn.enabled", "mkldnn.deterministic", "cudnn.enabled", "cudnn.deterministic", "cudnn.benchmark"),
    *("cuda.matmul.allow_bf16_reduced_precision_reduction", "cuda.matmul.allow_fp16_reduced_precision_reduction"),
)
"""Of `torch.backends`."""

_LIBRARIES = ("ONEDNN_", "DNNL_", "MKL_", "NVIDIA_TF32_", "CUBLAS_", "CUDNN_")
"""What the names of variables of the environment begin with that these libraries read."""


def arithmetic() -> dict[str, str]:
    """Return every mode by its name, as text; one that this torch does not have is `None`."""
    modes = {name: str(_mode(name)) for name in _MODES}
    modes["deterministic"] = str(torch.are_deterministic_algorithms_enabled())
    modes["instructions"] = torch.backends.cpu.get_cpu_capability()
    return modes | {name: value for name, value in os.environ.items() if name.startswith(_LIBRARIES)}


def _mode(name: str) -> object:
    owner: object = torch.backends
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner
