"""What is told of a processor, from what systems say."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanlm.store import process as machine

TWO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 99
model\t\t: 99
model name\t: Another
power management:
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the system tells of its processors; nothing does yet."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_TOLD", path)
    return path


def test_the_first_processor_is_named_with_its_family_and_model(told: Path) -> None:
    told.write_text(TWO)
    assert machine.processor_name() == "AMD EPYC (family 25, model 17)"
    assert machine.processor_fields()["vendor_id"] == "AuthenticAMD"


def test_a_name_without_a_family_is_the_name(told: Path) -> None:
    told.write_text("processor\t: 0\nmodel name\t: A: Processor\n")
    assert machine.processor_name() == "A: Processor"


def test_bytes_that_are_no_text_are_no_error(told: Path) -> None:
    told.write_bytes(b"model name\t: \xff\n")
    assert machine.processor_name() == "\N{REPLACEMENT CHARACTER}"
