"""Grid search for η and λ of dynamic evaluation, on another text than the one to report.

The weights adapt differently at every point, so each point needs its own pass. All points share the statistics. Each
point first reads 30,000 tokens, as in the fast search of the published code. The best few points, the finalists, then
read all of the text, and the best of these is taken. Weights can do well on the first tokens and diverge later: if no
finalist beats the trained weights, the next points read all of the text, too.

A search takes hours at full size. Each finished trial is a line of `trials.jsonl` in the run's folder, and later
searches reuse it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from spanlm.data.corpora import Corpus
from spanlm.errors import RunError, require
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.cache import GridTuning
from spanlm.scoring.dynamic.evaluate import DivergedError, diverged, read_adapting, require_fit
from spanlm.scoring.dynamic.statistics import DynamicStatistics
from spanlm.scoring.options import LENGTH, DynamicConfig
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Report, quiet, read
from spanlm.scoring.tally import Tally, edge_note, perplexity, tally
from spanlm.store.files import own, regular
from spanlm.store.plain import finite, json_object

FIRST_TOKENS = 30_000
"""Tokens read at every point."""

FINALISTS = 4
"""Points that read all of the text; more if none of them beats the trained weights."""

TRIALS = "trials.jsonl"
"""File name of the trials in a run's folder."""


@dataclass(frozen=True)
class GridPoint:
    """A grid point: `first` is the perplexity of the first tokens, infinite from e^700 on.

    `perplexity` is that of all of the text; None if the point read only the first tokens.
    """

    rate: float
    decay: float
    first: float
    perplexity: float | None
    whole: bool


@dataclass(frozen=True)
class DynamicTuning(GridTuning[DynamicConfig, GridPoint]):
    """The result of a search; its `best` is that of all of the text, or without finalists of the first tokens.

    Attributes:
        first_tokens: number of tokens predicted at every point.
        read_before: number of trials taken from `trials.jsonl`.
        seconds_before: time that these trials had taken.
    """

    first_tokens: int
    read_before: int = 0
    seconds_before: float = 0.0

    def to_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in asdict(self).items() if name != "seconds_before"}
        return plain | {"best": self.best.to_json()}


class Trials:
    """The finished trials of a run, one per line of a file.

    A line is reused for a trial with the same settings, weights, text, protocol and `code` (see
    `spanlm.store.provenance.code_version`). Damaged and foreign lines are ignored. If the file cannot be written, a
    warning is logged once, and the search continues. Without a path nothing is kept. `seconds` has the duration of each
    reused trial.
    """

    def __init__(self, path: Path | None = None, code: str = "") -> None:
        self._path, self._code = path, code
        self.seconds: list[float] = []
        self._lines = [] if path is None else _read_lines(path)

    def find(self, key: Mapping[str, Any]) -> Tally | None:
        """Return the sums of the trial with this key; None: the file does not have it."""
        wanted = {**key, "commit": self._code}
        for line in self._lines:
            if line["key"] == wanted:
                self.seconds.append(line["seconds"])
                return _tally_of_json(line["sums"])
        return None

    def add(self, key: Mapping[str, Any], total: Tally, seconds: float) -> None:
        """Append a finished trial to the file."""
        if self._path is None:
            return
        line = {"key": {**key, "commit": self._code}, "seconds": seconds, "sums": finite(asdict(total))}
        line["sha256"] = _digest(line)
        try:
            with own(self._path).open("ab+") as file:
                file.seek(max(0, file.tell() - 1))
                begun = file.read() not in (b"", b"\n")  # a process was killed while writing a line
                file.write(b"\n" * begun + json.dumps(line).encode() + b"\n")
        except OSError as error:
            logging.getLogger("spanlm").warning(
                "note: %s: cannot be written: %s; a search that is stopped will begin anew", self._path, error.strerror
            )
            self._path = None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    with suppress(OSError):
        for line in regular(path, 2**26).read_bytes().splitlines():
            with suppress(ValueError, LookupError):
                record = json_object(line)
                if record.pop("sha256") == _digest(record):
                    lines.append(record)
    return lines


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()


def _tally_of_json(sums: dict[str, Any]) -> Tally:
    """Make a tally of sums from JSON, where numbers that are not finite are null."""

    def numbers(part: dict[str, Any]) -> dict[str, Any]:
        return {name: math.nan if value is None else value for name, value in part.items()}

    return Tally(**numbers(sums) | {"metrics": numbers(sums["metrics"])})


@dataclass(frozen=True)
class Search:
    """A search on a text, never the one to report; the model is not changed, and trials in a file are not repeated."""

    model: NextWordModel
    corpus: Corpus
    split: str
    statistics: DynamicStatistics
    protocol: Protocol = STANDARD
    report: Report = quiet
    trials: Trials = field(default_factory=Trials)

    def tune(
        self, grid: Sequence[DynamicConfig], first_tokens: int = FIRST_TOKENS, finalists: int = FINALISTS
    ) -> DynamicTuning:
        """Try every point of a grid.

        The text is read in one stream, its lines as in training. Every point reads the first tokens; then `finalists`
        points read all of the text, more if none of them helps. With 0 finalists the first tokens decide.

        Raises:
            InputError: there is no such split, the statistics are of other weights or another gate temperature, or the
                loss is that of training and the model has no span buffer.
            DivergedError: the weights diverged at every point; holds the grid.
            RunError: the trained weights give no finite probabilities.
        """
        require(first_tokens >= 1, "dynamic.first_tokens", first_tokens, "at least 1")
        require(finalists >= 0, "dynamic.finalists", finalists, "0 or more")
        require_fit(self.statistics, self.model, grid)
        text = f"{self.corpus.name} {self.split}"
        segments = replace(self.protocol, batch_size=None).batcher(self.corpus, self.split).segments()
        static = tally(read(self.model, segments, self.protocol), self.corpus.vocabulary)
        if not math.isfinite(static.loss):
            raise RunError(f"{text}: the mean NLL of the trained weights is {static.loss}: nothing can help.")
        most = first_tokens if first_tokens < static.tokens else None
        firsts = [self._read(config, most, f"point {number} of {len(grid)}") for number, config in enumerate(grid, 1)]
        finals = dict(enumerate(firsts)) if most is None else {}
        if most is not None and finalists:
            best = sorted(range(len(grid)), key=lambda number: _perplexity(firsts[number]))
            for n, number in enumerate(best, 1):
                if n > finalists and min(map(_perplexity, finals.values())) < _perplexity(static):
                    break
                finals[number] = self._read(grid[number], None, f"finalist {n} of {max(n, min(finalists, len(best)))}")
        return self._summary(static, grid, firsts, finals)

    @cached_property
    def _one_stream(self) -> Protocol:
        return replace(self.protocol, batch_size=1)

    def _read(self, config: DynamicConfig, most: int | None, label: str) -> Tally:
        """Read the text, or its first `most` tokens, with adapting weights, unless the run has that trial."""
        key = {**self._key, "settings": config.to_json() | {"tuned_on": None}, "first_tokens": most}
        if (finished := self.trials.find(key)) is not None:
            return finished
        began, total, label = time.perf_counter(), Tally(), f"{label}, η {config.rate:.3g}, λ {config.decay:.3g}"
        batcher = self._one_stream.batcher(self.corpus, self.split, in_order=True, length=LENGTH)
        settings: dict[str, Any] = {"precision": self.protocol.precision, "most": most}
        for block in read_adapting(self.model, batcher.segments(), self.statistics, config, **settings):
            total = total.plus(block, self.corpus.vocabulary)
            self.report(label, total.tokens, most or batcher.targets)
        self.trials.add(key, total, time.perf_counter() - began)
        return total

    @cached_property
    def _key(self) -> dict[str, Any]:
        """The part of the key that all trials of this search share."""
        return {
            "weights": self.statistics.weights,
            "statistics": self.statistics.digest,
            "gate_temperature": self.statistics.gate_temperature,
            "text": self.corpus.digest(self.split),
            "protocol": asdict(self._one_stream),
        }

    def _summary(
        self, static: Tally, grid: Sequence[DynamicConfig], firsts: Sequence[Tally], finals: Mapping[int, Tally]
    ) -> DynamicTuning:
        """Make the result of the sums over the first tokens (`firsts`) and, for some points, over all of the text."""
        plain, whole = _perplexity(static), {number: _perplexity(total) for number, total in finals.items()}
        results = whole or {number: _perplexity(total) for number, total in enumerate(firsts)}
        best = min(results, key=lambda number: results[number])
        points = [
            GridPoint(config.rate, config.decay, _perplexity(first), whole.get(number), number in whole)
            for number, (config, first) in enumerate(zip(grid, firsts, strict=True))
        ]
        before = len(self.trials.seconds)
        if diverged(finals.get(best, firsts[best]).loss, static.loss, len(self.corpus.vocabulary)):
            details = {"tried": len(grid), "plain": plain, "grid": [asdict(point) for point in points]}
            raise DivergedError(
                "at every point of the grid the weights diverged. Take lower rates.",
                details | ({"read_before": before} if before else {}),
            )
        # without finalists no point is comparable with the trained weights
        notes = ["no point of the grid helps."] if whole and results[best] >= plain else []
        for name in ("rate", "decay"):
            note = edge_note(f"dynamic.{name}", getattr(grid[best], name), [getattr(config, name) for config in grid])
            notes += [note] if note else []
        return DynamicTuning(
            text=f"{self.corpus.name} {self.split}",
            tokens=static.tokens,
            first_tokens=max(total.tokens for total in firsts),
            plain=plain,
            best=replace(grid[best], tuned_on=f"{self.corpus.name} {self.split}"),
            perplexity=results[best],
            grid=points,
            notes=[*notes, *self.protocol.tuning_notes],
            read_before=before,
            seconds_before=sum(self.trials.seconds),
        )


def _perplexity(total: Tally) -> float:
    return perplexity(total.loss)
