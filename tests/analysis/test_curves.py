"""Learning curves are those of metrics.jsonl, over tokens, epochs, steps, seconds, of one run and of several seeds."""

import csv
import json
import math
from pathlib import Path

import pytest

from spanlm.analysis.curves import LABELS, By, Utilisation, curve_of
from spanlm.analysis.export import save_utilisation
from spanlm.analysis.figures import curves_figure
from spanlm.cli.main import main
from spanlm.errors import InputError

ONE = Utilisation("one", (0.5, 0.02, 0.1), (0.3, 0.1, 0.08))
LONG = Utilisation("long", tuple(0.5 / n for n in range(1, 501)), (0.07,) * 500)


def log(folder: Path, losses: list[float]) -> Path:
    """Write the log of a run: an epoch takes ten steps, 700 tokens and two minutes."""
    folder.mkdir(parents=True)
    rows = [{"event": "train", "step": 5, "epoch": 1, "loss": 9.0, "time": "2026-01-01T00:01:00+00:00"}]
    for epoch, loss in enumerate(losses, 1):
        time = f"2026-01-01T00:{2 * epoch:02}:00+00:00"
        row = {"event": "valid", "step": 10 * epoch, "epoch": epoch, "train_loss": loss + 1, "loss": loss, "time": time}
        rows.append(row | {"tokens": 700 * epoch})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    ("by", "x"),
    [
        ("tokens", (700, 1400, 2100)),
        ("epochs", (1, 2, 3)),
        ("steps", (10, 20, 30)),
        ("seconds", (120, 240, 360)),
    ],
)
def test_a_run_is_drawn_over_what_is_asked(tmp_path: Path, by: By, x: tuple[float, ...]) -> None:
    curve = curve_of(log(tmp_path / "run", [3.0, 2.0, 1.5]), "run", by)
    assert curve.x == x
    assert curve.valid == (pytest.approx([math.exp(3), math.exp(2), math.exp(1.5)]),)
    assert curve.train[0][0] == pytest.approx(math.exp(4))


def test_seeds_are_one_curve_as_long_as_the_shortest(tmp_path: Path) -> None:
    log(tmp_path / "family/seed-1", [3.0, 2.0, 1.0])
    log(tmp_path / "family/seed-2", [4.0, 3.0])
    log(tmp_path / "family/seed-old", [9.0])  # is none of its seeds
    curve = curve_of(tmp_path / "family", "family")
    assert curve.x == (700, 1400)
    assert [len(run) for run in curve.valid] == [2, 2]


def test_the_verb_draws_and_says_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path / "a", [3.0, 2.0])
    log(tmp_path / "b/seed-1", [3.0, 1.0])
    log(tmp_path / "b/seed-2", [3.0, 1.5])
    arguments = ["plot", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "c.svg")]
    assert main(arguments) == 0
    first = (tmp_path / "c.svg").read_bytes()
    assert main(arguments) == 0
    assert (tmp_path / "c.svg").read_bytes() == first
    printed = capsys.readouterr().out
    assert f"{math.exp(2):.2f} after epoch 2 of the 2 shown" in printed
    assert f"{(math.exp(1) + math.exp(1.5)) / 2:.2f} after epoch 2 of the 2 shown, mean of 2 seeds" in printed


def test_the_axis_names_the_unit_that_is_drawn(tmp_path: Path) -> None:
    folder, out = log(tmp_path / "run", [3.0, 2.0]), tmp_path / "c.svg"
    for by, label in LABELS.items():
        assert main(["plot", str(folder), "--out", str(out), "--by", by]) == 0
        assert f">{label}<" in out.read_text()
    with pytest.raises(InputError, match="others are over epochs"):
        curves_figure([curve_of(folder, "a"), curve_of(folder, "b", "epochs")])


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the folder of a run"):
        curve_of(tmp_path, "none")
    with pytest.raises(InputError, match="no epoch is finished"):
        curve_of(log(tmp_path / "new", []), "new")
    assert main(["plot", str(tmp_path / "new"), "--out", "curves.txt"]) == 2
    (tmp_path / "ngram").mkdir()
    (tmp_path / "ngram/metrics.jsonl").write_text('{"event": "valid", "loss": 4.0, "perplexity": 54.6}\n')
    with pytest.raises(InputError, match="n-gram model"):
        curve_of(tmp_path / "ngram", "ngram")
    log(tmp_path / "some/one", [3.0])
    log(tmp_path / "some/other", [2.0])
    with pytest.raises(InputError, match="name the folder of a run"):  # models, not seeds of one
        curve_of(tmp_path / "some", "some")


def test_a_perplexity_without_end_is_no_point(tmp_path: Path) -> None:
    log(tmp_path / "a", [3.0, 800.0, 2.0])
    assert main(["plot", str(tmp_path / "a"), "--out", str(tmp_path / "a.svg")]) == 0
    log(tmp_path / "b", [800.0])
    assert main(["plot", str(tmp_path / "b"), "--out", str(tmp_path / "b.svg")]) == 2


def test_the_use_of_a_span_buffer_has_every_epoch_of_every_run(tmp_path: Path) -> None:
    """What is read of a log is tested by the command line."""
    save_utilisation([ONE, LONG], tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], int(row["epoch"])) for row in rows] == [
        (one.name, epoch + 1) for one in (ONE, LONG) for epoch in range(len(one))
    ]
    assert [float(row["utilisation"]) for row in rows] == [*ONE.learned, *LONG.learned]
    with pytest.raises(InputError, match=r"cannot write \.html"):
        save_utilisation([ONE], tmp_path / "a.html")
