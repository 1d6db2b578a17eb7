"""`spanlm sweep`."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import spanlm
from benchmarks.ranks import worker_of
from spanlm.errors import installation
from tests.cli.conftest import Cli, read_rows

SMALL = """
corpus: {corpus}
grid:
  model.embedding_size: 6
  model.encoder.hidden_size: 12
  training.batching: {{batch_size: 4, length: 7}}
  training.epochs: {epochs}
  training.optimizer.lr: {rates}
"""


SPANLM = [sys.executable, "-m", "spanlm"]
HOW: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "check": False}


def wait_for_an_epoch(run: Path, driver: subprocess.Popen[Any]) -> None:
    metrics, until = run / "metrics.jsonl", time.monotonic() + 120
    while not metrics.exists() or b'"valid"' not in metrics.read_bytes():
        assert driver.poll() is None and time.monotonic() < until
        time.sleep(0.05)


def assert_undisturbed(cli: Cli, run: Path) -> None:
    """The run lr=0.01 has the weights of one that nobody killed."""
    alone = cli("sweep", "lr.yaml", "--dry-run").done.partition("the first: spanlm ")[2].split("\n")[0].split()
    whole = [word.replace("runs/lr/lr=0.01", "whole") for word in alone]
    assert subprocess.run([*SPANLM, *whole, "--threads=1"], **HOW).returncode == 0
    assert Path("whole/model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def write(corpus: Path, rates: str = "[0.01, 0.03]", epochs: int = 1, more: str = "") -> Path:
    path = Path("lr.yaml")
    path.write_text(SMALL.format(corpus=corpus, rates=rates, epochs=epochs) + more)
    return path


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ("  training.optimizer.lrr: [1]", ["lr.yaml: unknown field training.optimizer.lrr", "'training.optimizer.lr'"]),
        ("  log_every: [1]", ["unknown field log_every", "'training.log_every'"]),
        ("  training.patience: [3, many]", ["training.patience=many"]),
        ("  model.memory.kind: [none, key_valu]", ["model.memory.kind=key_valu", "key_value"]),
        ("preset: demmo", ["demmo", "demo"]),
        ("  training.log_every: [7, 7]", ["runs 1 and 2 are the same"]),
        ("  model.encoder.layers: 1000000000", ["lr.yaml: model: would take at least"]),
        ("runs: [{data.corpus: no-such}]", ["no-such"]),
        ("match_parameters: LSTM9", ["match_parameters=LSTM9 and model.encoder.hidden_size=12", "twice"]),
    ],
)
def test_every_run_is_checked_before_the_first_starts(cli: Cli, tiny_corpus: Path, more: str, parts: list[str]) -> None:
    cli("sweep", write(tiny_corpus, "0.1", more=more)).refused(*parts)
    assert not Path("runs").exists()


def test_a_dry_run_lists_the_runs_and_the_first_command_is_one(cli: Cli, tiny_corpus: Path) -> None:
    text = cli("sweep", write(tiny_corpus, more="seeds: 2"), "--dry-run").done
    names = re.findall(r"^(lr=\S+) +new$", text, re.MULTILINE)
    assert names == [f"lr={rate}/seed-{seed}" for rate in (0.01, 0.03) for seed in (1, 2)]
    command = text.splitlines()[-1].partition("spanlm ")[2].split()
    assert cli(*command, "--print_config").status == 0 and not Path("runs").exists()


@pytest.mark.slow
def test_perplexities_over_other_tokens_have_no_best(cli: Cli, tiny_corpus: Path) -> None:
    path = write(tiny_corpus, rates="[0.01]")
    path.write_text(path.read_text() + "  data.tokenizer: [whitespace, bytes]\n")
    shown = cli("sweep", path).done
    assert "count different tokens, so that none is the best" in shown and "best by valid" not in shown


@pytest.mark.slow
def test_match_parameters_are_those_of_every_run(cli: Cli, tiny_corpus: Path) -> None:
    file = write(tiny_corpus, "0.01", more="  model.memory.kind: [none, key_value]\nmatch_parameters: LSTM9\n")
    file.write_text(file.read_text().replace("  model.encoder.hidden_size: 12\n", ""))
    shown = cli("sweep", file, "--threads", 1, "--out", "t.tex").done
    configs = [yaml.safe_load(path.read_text()) for path in sorted(Path("runs/lr").glob("*/config.yaml"))]
    assert {config["model"]["memory"]["kind"]: config["model"]["encoder"]["hidden_size"] for config in configs} == {
        "none": 9,
        "key_value": pytest.approx(7, abs=2),
    }
    rows = read_rows(Path("runs/lr/sweep.csv").read_text())
    sizes = [int(row["parameters"]) for row in rows]
    assert max(sizes) < 1.25 * min(sizes) and all(float(row["seconds"]) > 0 for row in rows)
    for row in rows:
        ppl = f"{float(row['valid_perplexity']):.2f}"
        assert f"{row['model.memory.kind'].replace('_', chr(92) + '_')} & {int(row['parameters']):,} & {ppl}" in (
            Path("t.tex").read_text()
        )
        assert ppl in shown
    figure = Path("runs/lr/sweep.svg").read_text()
    assert "memory=key_value" in figure and "valid perplexity" in figure and ">epoch<" not in figure


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [("seeds: 2", "", "lr=0.01: holds a family"), ("", "seeds: 2", "lr=0.01: is one run, not a family of seeds")],
)
def test_seeds_that_come_or_go_are_refused_before_anything_starts(
    cli: Cli, tiny_corpus: Path, tiny_run: Path, before: str, after: str, said: str
) -> None:
    run = Path("runs/lr/lr=0.01") / ("seed-1" if before else "")
    run.mkdir(parents=True)
    shutil.copy(tiny_run / "config.yaml", run)
    cli("sweep", write(tiny_corpus, more=after)).refused(said)


def test_without_ray_it_says_what_to_install(cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = cli("sweep", write(tiny_corpus), "--on", "ray")
    refused.refused("--on=ray: there is no Ray here: ", installation("ray"), out=None)


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_and_a_run_that_fails_stops_no_other(cli: Cli, tiny_corpus: Path) -> None:
    command = ["sweep", write(tiny_corpus, "[0.01, 0.03, 0.1, 0.2]", epochs=6), "--jobs", 2, "--threads", 1]
    blocked, first = Path("runs/lr/lr=0.1"), Path("runs/lr/lr=0.01")
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    words = [*SPANLM, *map(str, command)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as driver:
        wait_for_an_epoch(first, driver)
        driver.send_signal(signal.SIGKILL)
    result = subprocess.run(words, **HOW)
    assert result.returncode == 1 and result.stderr.startswith("spanlm: 1 of 4 runs failed. lr=0.1: runs/lr/lr=0.1")
    assert "(log: runs/lr/.logs/lr=0.1.log)" in result.stderr and Path("runs/lr/.logs/lr=0.1.log").exists()
    rows = read_rows(Path("runs/lr/sweep.csv").read_text())
    done = [row for row in rows if row["valid_perplexity"]]
    assert len(rows) == 4 and len(done) == 3 and Path("runs/lr/sweep.svg").exists()
    best = min(done, key=lambda row: float(row["valid_perplexity"]))
    assert f"best by valid: lr={best['training.optimizer.lr']}, ppl" in result.stdout
    assert f"Test it once: spanlm evaluate {best['folder']} --split test" in result.stdout
    table = result.stdout.partition("\n\n")[2].splitlines()
    assert table[0].split() == ["lr", "θ_M", "valid", "ppl", "best", "epoch", "time"] and max(map(len, table)) <= 80
    assert_undisturbed(cli, first)
    again = subprocess.run(words, **HOW)
    assert "; 3 finished before\n" in again.stdout and again.returncode == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_of_ray_that_was_killed_trains_what_an_undisturbed_run_does(cli: Cli, tiny_corpus: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    words = [*SPANLM, "sweep", str(write(tiny_corpus, epochs=6)), "--on", "ray", "--jobs", "2", "--threads", "1"]
    first = Path("runs/lr/lr=0.01")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
        wait_for_an_epoch(first, driver)
        worker = worker_of(first)
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        said = driver.communicate(timeout=300)[0]
    assert driver.returncode == 0, said
    assert len((first / "provenance.jsonl").read_text().splitlines()) > 1, "it was killed before it had ended"
    assert_undisturbed(cli, first)


@pytest.mark.slow
def test_the_script_for_slurm_trains_a_run_for_each_task(cli: Cli, tiny_corpus: Path) -> None:
    asked = ["sweep", write(tiny_corpus, more="seeds: 2\nout: my runs"), "--print-slurm"]
    for other in (["--dry-run"], ["--on", "ray"]):
        cli(*asked, *other).refused("do not go together", other[0])
    script = cli(*asked).done
    Path("lr.sh").write_text(script)
    subprocess.run(["bash", "-n", "lr.sh"], check=True)
    assert re.search(r"^#SBATCH --array=0-3$", script, re.MULTILINE) and "#SBATCH --signal=TERM@120\n" in script
    assert "\n#SBATCH --output='my runs/.logs/slurm-%a.log'\n" in script
    Path("srun").write_text('#!/bin/bash\necho "$1" > asked\nshift\nexec "$@"\n')  # it takes over no variable
    Path("srun").chmod(0o755)
    environment = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_CPUS_PER_TASK": "1", "PATH": f"{Path.cwd()}:/usr/bin:/bin"}
    subprocess.run(["bash", "lr.sh"], check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    assert Path("asked").read_text() == "--cpus-per-task=1\n"
    assert [path.parent for path in Path("my runs").rglob("model.safetensors")] == [Path("my runs/lr=0.03/seed-1")]


@pytest.mark.slow
def test_the_best_setting_of_several_seeds_is_tested_seed_by_seed(cli: Cli, tiny_corpus: Path) -> None:
    shown = cli("sweep", write(tiny_corpus, "[0.03]", more="seeds: 2\nout: my runs"), "--threads", 1).out
    command = shown.partition("Test it once: ")[2].strip()
    shell = f'spanlm() {{ "{sys.executable}" -m spanlm "$@"; }}; {command}'
    tested = subprocess.run(["bash", "-c", shell], **HOW).stdout
    members = [path.parent for path in Path("my runs").rglob("model.safetensors")]
    assert {path.name for path in members} == {"seed-1", "seed-2"}
    assert all(f"perplexity  {spanlm.load(path).evaluate().perplexity:.2f}" in tested for path in members)
