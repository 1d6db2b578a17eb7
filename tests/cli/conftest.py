import csv
import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spanlm.cli.main import main
from spanlm.scoring.options import DynamicConfig

SMALL = (
    "--model.embedding_size=6",
    "--model.encoder.hidden_size=12",
    "--training.batching.batch_size=4",
    "--training.batching.length=7",
    "--training.epochs=1",
)
"""Options of a model that trains in a second."""

GIVEN = ("--dynamic", "--dynamic-rate", "0.002", "--dynamic-decay", "0.01", "--dynamic-epsilon", "0.001")
CONFIG = DynamicConfig(rate=0.002, decay=0.01, epsilon=0.001)
"""Weights that follow the text, and what the library calls that."""


def flat(text: str) -> str:
    """Return a printed table on one line, its words one space apart."""
    return " ".join(text.split())


def read_rows(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Rows as another program reads them that is told of the delimiter, and of nothing else."""
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    def refused(self, *parts: str, status: int = 2, out: str | None = "") -> None:
        """One line on stderr that says all of `parts`; nothing on stdout unless `out` is None."""
        assert self.status == status, self
        assert self.err.startswith("spanlm: ") and self.err.endswith("\n"), self
        assert self.err.count("\n") == 1, self
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err, self
        if out is not None:
            assert self.out == out, self

    @property
    def done(self) -> str:
        """The output of a command that went well and had nothing to complain of."""
        assert (self.status, self.err) == (0, ""), self
        return self.out


Cli = Callable[..., Result]
Typed = Callable[[bytes], None]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `spanlm ARGUMENTS` in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run


@pytest.fixture
def typed() -> Iterator[Typed]:
    """Puts bytes, no more than a pipe holds, at the standard input of this process."""
    kept = os.dup(0)

    def put(content: bytes) -> None:
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        os.dup2(reader, 0)
        os.close(reader)

    yield put
    os.dup2(kept, 0)
    os.close(kept)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that writes where it stands writes into the test's own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPANLM_DATA", raising=False)


@pytest.fixture
def own_span_run(span_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(span_run, tmp_path / "run")
