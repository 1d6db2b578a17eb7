"""What a user may set of torch's arithmetic is told, in whichever way it was set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from spanlm.store.arithmetic import arithmetic


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Set back what a test sets."""
    backends: Any = torch.backends
    owners = (backends.mkldnn.matmul, backends.mkldnn.rnn, backends.cuda.matmul, backends.cudnn.rnn)
    before = [owner.fp32_precision for owner in owners]
    yield
    for owner, value in zip(owners, before, strict=True):
        owner.fp32_precision = value


def set_precision(where: str, value: str) -> Callable[[], None]:
    def change() -> None:
        owner: Any = torch.backends
        for part in where.split("."):
            owner = getattr(owner, part)
        owner.fp32_precision = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_precision("mkldnn.matmul", "bf16"),
        set_precision("mkldnn.rnn", "bf16"),
        set_precision("cuda.matmul", "tf32"),
        set_precision("cudnn.rnn", "ieee"),
    ],
    ids=["products on a CPU", "layers on a CPU", "products on a GPU", "layers on a GPU"],
)
def test_a_mode_that_is_set_is_told(change: Callable[[], None]) -> None:
    before = arithmetic()
    change()
    assert arithmetic() != before


@pytest.mark.filterwarnings("ignore:TF32")
def test_libraries_that_are_switched_off_are_told() -> None:
    before = arithmetic()
    with torch.backends.mkldnn.flags(enabled=False):  # type: ignore[no-untyped-call]
        assert arithmetic() != before
    assert arithmetic() == before


@pytest.mark.parametrize("name", ["ONEDNN_DEFAULT_FPMATH_MODE", "NVIDIA_TF32_OVERRIDE"])
def test_variables_that_the_libraries_read_are_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = arithmetic()
    monkeypatch.setenv(name, "1")
    assert arithmetic() == before | {name: "1"}


def test_every_mode_is_one_that_this_torch_has() -> None:
    assert "None" not in arithmetic().values()
