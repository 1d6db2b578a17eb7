"""A processor that cannot train in bfloat16: what was asked for in bf16 is computed in fp32, and every record says so.

oneDNN reads when it is loaded which instructions it may use, so these are processes of their own.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from spanlm.config import RunConfig
from spanlm.store.provenance import starts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.cpu._is_avx512_supported() or not torch.backends.mkldnn.is_available(),
        reason="there is no bf16 here that could be taken away",
    ),
]
VERBS = "import sys, json; from spanlm.cli.main import main; sys.exit(max(main(v) for v in json.loads(sys.argv[1])))"
NOTE = "fp32 is used instead"


def spanlm(*verbs: list[object], instructions: str = "AVX2") -> tuple[str, str]:
    """What some verbs of one process, all of which succeed, print, and their notes."""
    found = subprocess.run(
        [sys.executable, "-c", VERBS, json.dumps([[str(word) for word in verb] for verb in verbs])],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": instructions},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout, found.stderr


@pytest.fixture(scope="module")
def fallen(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that was asked for in bf16, and another in fp32, where there is only that."""
    training = replace(tiny_config.training, epochs=2, precision="bf16", device="cpu")
    asked = replace(tiny_config, model=replace(tiny_config.model, input_dropout=0.3), training=training)
    folder = tmp_path_factory.mktemp("config")
    (folder / "c.yaml").write_text(asked.to_yaml())
    train = ["train", "--config", folder / "c.yaml", "--no-tour", "--out"]
    out, notes = spanlm([*train, folder / "asked"], [*train, folder / "plain", "--training.precision", "fp32"])
    assert notes.count(NOTE) == notes.count("\n") == 1
    assert "fp32 on cpu" in out and "bf16 on cpu" not in out
    return folder


def test_a_training_is_that_in_fp32_and_says_so(fallen: Path) -> None:
    asked, plain = (load_file(fallen / run / "model.safetensors") for run in ("asked", "plain"))
    assert all(torch.equal(asked[name], plain[name]) for name in plain)
    assert [start["precision"] for start in starts(fallen / "asked")] == ["fp32"]
    assert RunConfig.load(fallen / "asked" / "config.yaml").training.precision == "bf16"


def test_evaluations_say_what_they_were_computed_in(fallen: Path) -> None:
    how: list[object] = ["--split", "valid", "--json", "--precision"]
    out, notes = spanlm(*(["evaluate", fallen / "asked", *how, precision] for precision in ("bf16", "fp32")))
    assert notes.count(NOTE) == 1
    found = [json.loads(line) for line in out.splitlines()]
    assert [result["precision"] for result in found] == ["fp32"] * 2
    assert found[0]["nll"] == found[1]["nll"]


def test_a_run_that_goes_on_elsewhere_says_that_it_computes_otherwise(fallen: Path, tmp_path: Path) -> None:
    run = shutil.copytree(fallen / "asked", tmp_path / "run")
    more = ["train", "--out", run, "--resume", "auto", "--training.epochs"]
    out, notes = spanlm([*more, 3], instructions="ALL")
    assert (notes, out.count("in fp32 until now, in bf16 from here on")) == ("", 1)
    assert "in bf16 until now, in fp32 from here on" in spanlm([*more, 4])[0]
    assert [start["precision"] for start in starts(run)] == ["fp32", "bf16", "fp32"]
