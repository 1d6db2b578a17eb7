"""Sweeps: the settings of a sweep.yaml, their names by the fields that differ, and a table of their results."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from spanlm.config import RunConfig, Tree, flat, read_yaml
from spanlm.errors import InputError, as_written, nearest, require
from spanlm.scoring.tally import perplexity
from spanlm.store.files import expanded
from spanlm.store.run_folder import CONFIG, SEED, refuse_family
from spanlm.training.position import Position
from spanlm.training.run import refuse_changes

MOST = 10_000
"""Most runs of a sweep."""

_COLUMNS = ("seed", "valid_perplexity", "best_epoch", "epochs", "folder", "parameters", "seconds")
_LONGEST_NAME = 200  # bytes; file systems allow 255, suffixes of files beside the folder included


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The content of a sweep.yaml; fields have their full names, or are nested as in a configuration.

    Attributes:
        preset: the base of every run; the demo's preset if neither this nor `config` is given.
        config: a YAML file of a configuration, which overrides the preset.
        corpus: short for data.corpus.
        grid: values by field; every combination is trained, and a single value applies to all runs.
        runs: fields and values of each run; with a grid, each is combined with all of the grid.
        match_parameters: θ_M of every run, or LSTMn; it determines the hidden size, as in `spanlm train`.
        seeds: number of runs per setting, from training.seed on, in folders seed-1, seed-2, …
        out: the folder of all runs; by default runs/ and the name of the file.
    """

    preset: str | None = None
    config: str | None = None
    corpus: str | None = None
    grid: Mapping[str, Any] = field(default_factory=dict)
    runs: Sequence[Any] = ()
    match_parameters: str | None = None
    seeds: int | None = None
    out: str | None = None

    @staticmethod
    def load(path: Path) -> Sweep:
        """Read a sweep.yaml.

        Raises:
            InputError: not YAML, an unknown key (the error suggests the nearest), or a value of the wrong type.
        """
        tree, names = read_yaml(path, pipes=True), [field.name for field in fields(Sweep)]
        if not tree:
            raise InputError(f"{path}: is empty; give it a grid of fields and values, or runs, or a preset")
        if "match_parameters" in tree:
            tree["match_parameters"] = str(tree["match_parameters"])  # YAML may give a number
        for name, value in tree.items():
            if name not in names:
                like = nearest(str(name), names)
                raise InputError(
                    f"{path}: unknown key {name}.{like} Fields of the configuration are under grid or runs."
                )
            kinds = {"grid": (dict, "a group of fields and their values"), "runs": (list, "a list of groups of fields")}
            kind, limit = kinds.get(name, (int, "a whole number") if name == "seeds" else (str, "a name or a path"))
            right = isinstance(value, kind) and not isinstance(value, bool)
            right = right and (name != "runs" or all(isinstance(run, dict | None) for run in value))
            require(right, f"{path}: {name}", value, limit)
        require(tree.get("seeds") is None or tree["seeds"] >= 1, f"{path}: seeds", tree.get("seeds"), "at least 1")
        tree = {"out": f"runs/{path.stem}", **tree}
        return Sweep(**tree | {name: str(expanded(tree[name])) for name in ("config", "out") if name in tree})

    def overrides(self) -> Iterator[dict[str, str]]:
        """Yield the fields of each setting by full name, with values as on the command line.

        Raises:
            InputError: a field is in both grid and runs, has no values, or is training.seed although `seeds` is given.
        """
        grid = {name: value if isinstance(value, list) else [value] for name, value in flat(dict(self.grid)).items()}
        for name, values in grid.items():
            require(bool(values), f"grid: {name}", values, "a list of one value or more")
        count = len(self.runs or [{}]) * (self.seeds or 1)
        for values in grid.values():
            count *= len(values)
        require(count <= MOST, "runs of the sweep", count, f"at most {MOST:,}")
        for run in self.runs or [{}]:
            run_fields = flat(run or {})
            for name in run_fields.keys() & grid:
                raise InputError(
                    "runs", limit=f"{name}={as_written(run_fields[name])}: is in grid, too; leave it out of one of them"
                )
            for combination in product(*grid.values()):
                options = {"data.corpus": self.corpus} if self.corpus else {}
                options |= run_fields | dict(zip(grid, combination, strict=True))
                if self.seeds is not None and "training.seed" in options:
                    raise InputError(
                        "training.seed", options["training.seed"], f"leave it out beside seeds: {self.seeds}"
                    )
                yield {name: _as_option(name, value) for name, value in options.items()}


def _as_option(name: str, value: object) -> str:
    """Write a value as on the command line; InputError: YAML made something else of it."""
    if not isinstance(value, str | int | float | list | None):
        raise InputError(name, value, f"is a {type(value).__name__} to YAML", "Put it in quotes")
    return as_written(value)


def labels(names: Sequence[str]) -> dict[str, str]:
    """Return a short name for each field: the shortest end of its full name that no other field shares."""
    parts = {name: name.removesuffix(".kind").split(".") for name in names}
    short = {}
    for name, words in parts.items():
        others = [other for key, other in parts.items() if key != name]
        length = next((n for n in range(1, len(words)) if words[-n:] not in [o[-n:] for o in others]), len(words))
        short[name] = ".".join(words[-length:])
    return short


def differences(configs: Sequence[RunConfig], options: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return for each setting the fields, among those in `options`, whose values differ between settings.

    Values are as on the command line. A field that a setting's kind of model lacks is missing.
    """
    trees: list[Tree] = [flat(config.to_tree()) for config in configs]
    names = dict.fromkeys(name for setting in options for name in setting)
    varied = [name for name in names if len({as_written(tree.get(name)) for tree in trees}) > 1]
    return [{name: as_written(tree[name]) for name in varied if name in tree} for tree in trees]


def folder_name(values: Mapping[str, str], short: Mapping[str, str], otherwise: str) -> str:
    """Name a setting's folder by the fields that differ, `lr=0.5,memory=ngram`; without any, `otherwise`."""
    plain = {field: "-".join(re.findall(r"[\w.+-]+", value)) for field, value in values.items()}
    named = ",".join(f"{short[field]}={value}" for field, value in plain.items())
    if len(whole := named.encode()) > _LONGEST_NAME:
        named = f"{whole[:_LONGEST_NAME].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:8]}"
    return named or otherwise


def seeded(config: RunConfig, folder: Path, seeds: int | None) -> dict[Path, RunConfig]:
    """Return a setting's runs by folder: `folder`/seed-S from training.seed on; without `seeds`, `folder` itself."""
    if seeds is None:
        return {folder: config}
    first = config.training.seed
    configs = [replace(config, training=replace(config.training, seed=first + n)) for n in range(seeds)]
    return {folder / f"{SEED}{member.training.seed}": member for member in configs}


def refuse_begun(members: Mapping[Path, RunConfig]) -> None:
    """Refuse runs that began with another configuration, a run in a family's folder, and a family in a run's folder."""
    for folder, config in members.items():
        refuse_family(folder)
        if folder.name.startswith(SEED) and (folder.parent / CONFIG).exists():
            raise InputError(f"{folder.parent}: is one run, not a family of seeds. Choose another folder.")
        if (folder / CONFIG).exists():
            refuse_changes(RunConfig.load(folder / CONFIG, whole=True), config, folder)


@dataclass(frozen=True)
class Setting:
    """One setting of a sweep and its runs: one, or one for each seed.

    Attributes:
        name: the folder's name.
        values: values of the fields that differ between settings.
        options: values of all fields that the sweep sets, as on the command line.
        members: the configuration of each run, by folder.
    """

    name: str
    values: Mapping[str, str]
    options: Mapping[str, str]
    members: Mapping[Path, RunConfig]


@dataclass(frozen=True)
class Result:
    """The validation results of a setting's finished runs; `ended` and `seconds` (of training) are by folder."""

    setting: Setting
    ended: Mapping[Path, Position]
    seconds: Mapping[Path, float] = field(default_factory=dict)
    parameters: int = 0  # θ_M

    @property
    def perplexities(self) -> list[float]:
        return [perplexity(position.best_loss) for position in self.ended.values()]

    @property
    def mean(self) -> float:
        return sum(self.perplexities) / len(self.ended)

    @property
    def complete(self) -> bool:
        return len(self.ended) == len(self.setting.members)


def ranked(results: Sequence[Result]) -> list[Result]:
    """Sort results by their mean, best first; incomplete settings follow, and settings without results come last."""
    return sorted(results, key=lambda x: (not x.ended, not x.complete, x.mean if x.ended else 0.0))


def table_csv(results: Sequence[Result], varied: Sequence[str]) -> bytes:
    """Return CSV with a line for each run: fields that differ, seed, results; unfinished runs have empty results."""
    file = io.StringIO(newline="")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["run", *varied, *_COLUMNS])
    for result in results:
        for folder, config in result.setting.members.items():
            at = result.ended.get(folder)
            reached = [perplexity(at.best_loss), at.best_epoch, at.epoch] if at else ["", "", ""]
            values = [result.setting.values.get(field, "") for field in varied]
            cost = [result.parameters, round(result.seconds.get(folder, 0.0), 1) if at else ""]
            rows.writerow([result.setting.name, *values, config.training.seed, *reached, folder, *cost])
    return file.getvalue().encode()
