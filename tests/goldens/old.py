"""How data/runs was made, by spanlm 0.1.0: kept to be read, not to be run again."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

from tests.goldens.small import killed, make_text, shrunk, trained

LONGER = {"epochs": 15, "log_every": 30}
ROWS = {
    "kvp": ("daniluk2017/kvp-w5", LONGER),
    "kvp-2": ("daniluk2017/kvp-w5", {**LONGER, "seed": 2}),
    "spans": ("li2020/mos-ps-at-snb-ptb", {}),
    "sentences": ("salton2017/combined-ptb", {}),
    "pointer": ("merity2017/pointer-ptb", {}),
}
KILLED = {
    "kvp-unfinished": ("daniluk2017/kvp-w5", {"epochs": 60, "checkpoint_every": 5}, 40),
    "awd-unfinished": ("merity2018/awd-ptb", {"epochs": 40, "checkpoint_every": 3}, 40),
}


def make(folder: Path) -> None:
    """Make the runs there."""
    folder.mkdir(parents=True)
    text = str(make_text(Path("/moved/text")))  # a run keeps the whole path; the text is elsewhere later
    with contextlib.chdir(folder):
        for name, (preset, training) in ROWS.items():
            trained(shrunk(preset, text, **training), Path(name))
            shutil.rmtree(Path(name) / "checkpoints")
        for name, (preset, training, lines) in KILLED.items():
            killed(shrunk(preset, text, **training), Path(name), lines)
        for path in (*folder.rglob(".lock"), *folder.glob("*.yaml")):
            path.unlink()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
