"""What `reproduce` is asked. No torch here."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from spanlm.data.config import CORPORA
from spanlm.options import Precision, option, options


@options()
class Request:
    """What is to be reproduced."""

    paper: str = option("whose tables")
    scale: str = option("smoke, small or paper, as a rule", default="small")
    table: str | None = option("one of them (default: all that the corpus allows)", default=None)
    corpus: str | None = option(
        f"wikipedia (built by `spanlm data wikipedia`), {', '.join(CORPORA)}, a folder or a file (default: the "
        "scale's, demo for smoke; else the table's own)",
        default=None,
    )
    seeds: tuple[int, ...] = option("a run of every row for each (default: 1)", default=(1,))
    rows: tuple[str, ...] | None = option("only these rows, as --dry-run names them", default=None)
    runs: Path = option("where runs are kept", default=Path("runs"))
    out: Path = option("where records and tables go", default=Path("results"))
    device: str = option("auto (the default: a GPU if there is one), cpu, cuda", default="auto")
    precision: Precision | None = option("of the products (default: the scale's)", default=None)
    data_dir: str | None = option("where corpora are (default: $SPANLM_DATA)", default=None)
    questions: tuple[Path, ...] = option("of table 2d (default: the test files of cbt)", default=())

    @property
    def words(self) -> list[str]:
        words = ["reproduce", self.paper, "--scale", self.scale]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value not in (None, field.default):
                values = value if isinstance(value, tuple) else (value,)
                words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
        return words
