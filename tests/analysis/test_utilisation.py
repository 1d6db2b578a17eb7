"""Use of a span buffer by epoch, in files; what is read of a log is tested by the command line."""

import csv
from pathlib import Path

import pytest

from spanlm.analysis.export import save_utilisation
from spanlm.analysis.utilisation import Utilisation
from spanlm.errors import InputError

ONE = Utilisation("one", (0.5, 0.02, 0.1), (0.3, 0.1, 0.08))
LONG = Utilisation("long", tuple(0.5 / n for n in range(1, 501)), (0.07,) * 500)


def test_data_has_every_epoch_of_every_run(tmp_path: Path) -> None:
    save_utilisation([ONE, LONG], tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], int(row["epoch"])) for row in rows] == [
        (one.name, epoch + 1) for one in (ONE, LONG) for epoch in range(len(one))
    ]
    assert [float(row["utilisation"]) for row in rows] == [*ONE.learned, *LONG.learned]
    with pytest.raises(InputError, match=r"cannot write \.html"):
        save_utilisation([ONE], tmp_path / "a.html")
