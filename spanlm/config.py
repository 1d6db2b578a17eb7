"""RunConfig = data + model + training: to and from YAML, with errors that name the field.

The `kind` of a part (`model.memory.kind: ngram`) selects its class, and so its fields.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from spanlm.data.config import DataConfig
from spanlm.errors import InputError, as_written, nearest
from spanlm.models.encoders import ENCODERS
from spanlm.models.heads import HEADS
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import MEMORIES
from spanlm.options import as_group, kind_of, leaves, options, read_group
from spanlm.store import SCHEMA, require_schema
from spanlm.store.files import regular, replace_file
from spanlm.training.config import TrainingConfig

Tree = dict[str, Any]

OPTIONAL = {"model.encoder.forget_bias", "training.optimizer.clip", "training.patience"}
"""Fields that may be null although their default is not."""

CHANGEABLE = (
    *("training.epochs", "training.patience", "training.finetune.epochs", "training.finetune.stages"),
    *("data.dir", "data.download", "data.pieces", "training.device", "training.graph"),
    "training.keep_at",
)
"""Fields that a resumed run may change: ends of stages that are not over, the folders of the text and of the pieces
(vocabulary and checkpoint identify both), the device's name (the checkpoint knows its kind), how its steps are
started, and which revisions are kept.

With a cosine the rate of every step depends on training.epochs, which then may not change.
All of `finetune` may change as long as the run has no finetune stages: no step depends on it.
"""

REMOVED: dict[str, object] = {
    **{"model.head.adversarial_direction": "own", "model.head.adversarial_gate": "cosine"},
    **{"model.memory:attentive.zero_slot": False, "model.memory:span_buffer.score": "tanh"},
    "model.memory:span_buffer.attention_size": None,
    **{"model.memory:span_buffer.reward.power": 5.0, "model.memory:span_buffer.reward.most": 10.0},
    **{"model.memory:span_buffer.reward.base": 1.0, "model.memory:span_buffer.reward.slope": 3.0},
}
"""Fields of runs of 0.2.0, with the only value still supported; `:kind` restricts a field to that kind of part."""

ADDED: dict[str, object] = {
    **{"data.marks": None, "data.vocabulary_size": None, "data.pieces": None, "training.schedule.milestones": None},
    **{"model.encoder.newest_apart": False, "model.memory.includes_current": False, "model.memory.recency": "none"},
    **{"training.graph": "off", "training.batching.length_multiple": 1, "training.optimizer.beta2": 0.999},
    **{"training.schedule.final_share": 0.1, "training.keep_at": None},
}
"""Fields that the first runs of schema 1 lack, with the value that they then have, which no digest shows."""

LONGEST = 2**20
"""Most bytes of a YAML file."""

PARTS: dict[str, Mapping[str, type]] = {"encoder": ENCODERS, "memory": MEMORIES, "head": HEADS}


@options()
class RunConfig:
    """Everything that determines a run, except its folder and its machine.

    Example:
        >>> config = spanlm.RunConfig.from_tree({"model": {"memory": {"kind": "ngram"}}, "training": {"epochs": 5}})
        >>> config.model.memory.order
        4
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_tree(self) -> Tree:
        """Return the configuration as nested dictionaries of plain values."""
        return asdict(self)

    def to_yaml(self) -> str:
        """Return the configuration as YAML text."""
        return yaml.safe_dump(self.to_tree(), sort_keys=False, allow_unicode=True)

    @staticmethod
    def from_tree(tree: object, source: str = "") -> RunConfig:
        """Build a configuration from nested dictionaries; missing fields get defaults. Errors begin with `source`.

        Raises:
            InputError: an unknown field or kind (with the nearest name), a wrong type, a value out of range.
        """
        try:
            fields = as_group(_plain(tree), "the configuration")
            return read_group(RunConfig, _without(_removed(fields), fields))
        except InputError as error:
            raise error.within(source) from None

    @staticmethod
    def load(path: str | Path, *, whole: bool = False) -> RunConfig:
        """Read a YAML file; `whole` requires every field, as the file of a run has.

        Raises:
            InputError: no such file, not YAML, not a configuration, that of an n-gram model, or not a whole one.
        """
        tree = read_config(Path(path))
        if "ngram" in tree:
            raise InputError(f"{path}: is of an n-gram model, which has no weights to begin or to go on with")
        config = RunConfig.from_tree(tree, str(path))
        # `merge` of an attentive memory was gone for some days after 0.2.0
        written, every = {*flat(tree), *ADDED, "model.memory.merge"}, flat(config.to_tree())
        if whole and (lost := next((name for name in every if name not in written), None)):
            way = f"Put the line back as it was (by default {as_written(every[lost])})."
            raise InputError(f"{path}: lacks {lost}: it was cut, or an unreleased version made it. {way}")
        return config


def _plain(value: object) -> object:
    """Convert paths and numpy numbers to the types that YAML gives."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return str(value) if isinstance(value, Path) else value.item() if isinstance(value, np.generic) else value


def flat(tree: Tree, prefix: str = "") -> Tree:
    fields: Tree = {}
    for name, value in tree.items():
        fields |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return fields


def with_options(base: RunConfig, options: Mapping[str, str]) -> RunConfig:
    """Set fields by full name to values written as text; a part of another kind starts from its kind's defaults.

    Raises:
        InputError: as `RunConfig.from_tree`.
    """
    fields = flat(nested(options))
    for name in group_names() & fields.keys():
        raise InputError(name, fields[name], "must be a group of fields", f"Give one of them, as --{name}.FIELD VALUE")
    known = option_rows(base, fields)
    refuse_unknown(fields, [name for name, _, _ in known])
    return RunConfig.from_tree(nested({name: value for name, value, _ in known}))


def option_rows(base: RunConfig, options: Mapping[str, str]) -> list[tuple[str, Any, str]]:
    """Return name, value and help of each field of `base` after setting `options`."""
    resets = {f"model.{part}.kind" for part in PARTS} | {"training.finetune.stages"}
    tree = overlaid(base.to_tree(), nested({name: value for name, value in options.items() if name in resets}))
    parts = {part: PARTS[part][kind]() for part, kind in kinds_of(tree).items()}
    values = flat(tree) | dict(options)
    choices = {
        f"model.{part}.kind": f": {', '.join(groups)}; each has fields of its own" for part, groups in PARTS.items()
    }
    rows = leaves(RunConfig(model=replace(ModelConfig(), **parts)))
    return [(name, values.get(name, default), meaning + choices.get(name, "")) for name, default, meaning in rows]


def refuse_unknown(names: Iterable[str], known: Sequence[str]) -> None:
    """Raise InputError, which suggests the nearest `known` name, for a name that is not known."""
    for name in names:
        if name not in known:
            raise InputError(f"unknown field {name}.{nearest(name, known)}")


@cache
def group_names() -> frozenset[str]:
    """Return the full names of all groups of fields, for all kinds of the model's parts."""
    trees = [RunConfig().to_tree()]
    trees += [{"model": {part: asdict(kind())}} for part, kinds in PARTS.items() for kind in kinds.values()]
    fields = (name.split(".") for tree in trees for name in flat(tree))
    return frozenset(".".join(parts[:depth]) for parts in fields for depth in range(1, len(parts)))


def nested(fields: Mapping[str, Any]) -> Tree:
    """Undo `flat`.

    Raises:
        InputError: a name is both a field and a group.
    """
    tree: Tree = {}
    for name, value in fields.items():
        *groups, last = name.split(".")
        group = tree
        for inner in groups:
            group = as_group(group.setdefault(inner, {}), name.rpartition(".")[0])
        group[last] = value
    return tree


def kinds_of(tree: Tree) -> dict[str, str]:
    """Return the kind of each part of the model in `tree`, by default the default's; InputError: an unknown kind."""
    model, default = as_group(tree.get("model", {}), "model"), ModelConfig()
    kinds = {}
    for part, groups in PARTS.items():
        fields, name = as_group(model.get(part, {}), f"model.{part}"), f"model.{part}"
        kind_of(fields, getattr(default, part).kind, groups, name)
        kinds[part] = fields.get("kind", getattr(default, part).kind)
    return kinds


def _removed(tree: Tree) -> Tree:
    """Return the fields of `REMOVED` that belong to the kinds in `tree`, by full name."""
    kinds, removed = kinds_of(tree), {}
    for name, value in REMOVED.items():
        of_one = re.match(r"model\.(\w+):(\w+)", name)
        if of_one is None or kinds[of_one[1]] == of_one[2]:
            removed[re.sub(r":\w+", "", name)] = value
    return removed


def _without(removed: Tree, tree: Tree, prefix: str = "") -> Tree:
    """Drop removed fields; InputError: one has a value that is no longer supported."""
    left = {}
    for name, value in tree.items():
        if (full := f"{prefix}{name}") not in removed:
            left[name] = _without(removed, value, f"{full}.") if isinstance(value, dict) else value
        elif value != removed[full]:
            raise InputError(full, value, f"this version has {as_written(removed[full])} alone")
    return left


def overlaid(base: Tree, change: Tree) -> Tree:
    """Merge `change` into `base`; a group whose kind changes, or whose stages become 0, replaces the old one."""
    merged = dict(base)
    for name, value in change.items():
        old = base.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            anew = value.get("kind", old.get("kind")) != old.get("kind") or value.get("stages") in (0, "0")
            value = value if anew else overlaid(old, value)
        merged[name] = value
    return merged


def first_difference(old: Tree, new: Tree) -> tuple[str, Any, Any] | None:
    """Return the first field that differs between two trees: its full name and both values; None if they are equal."""
    before, after = flat(old), flat(new)
    values = ((name, before.get(name), after.get(name)) for name in before | after)
    return next((row for row in values if row[1] != row[2]), None)


def fixed_parts(tree: Tree) -> list[Tree]:
    """Return the fields, "any" where a resumed run may change them; the fields of finetune stages are a second tree."""
    every = flat(tree)
    free = {*CHANGEABLE} - {"training.epochs"} if every.get("training.schedule.kind") == "cosine" else {*CHANGEABLE}
    fields = {name: ADDED.get(name, "any") if name in free else value for name, value in every.items()}
    finetune = {name: value for name, value in fields.items() if name.startswith("training.finetune.")}
    parts = [finetune] if every.get("training.finetune.stages") else []
    return [fields | dict.fromkeys(finetune, "any"), *parts]


def config_digest(tree: Tree) -> str:
    """Return the SHA-256 of each of the `fixed_parts`.

    Fields that are null by default are left out while null, and those of `ADDED` while they have its value, so that
    later versions may add fields. Those of `REMOVED` are included, so that digests of 0.2.0 stay valid.
    """
    digests = []
    for fields in fixed_parts(_removed(tree) | flat(tree)):
        known = {name: value for name, value in fields.items() if value is not None or name in OPTIONAL}
        known = {name: x for name, x in known.items() if name not in ADDED or x not in (ADDED[name], "any")}
        # 8 and 8.0 are the same number
        known = {name: int(x) if isinstance(x, float) and x.is_integer() else x for name, x in known.items()}
        digests.append(hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest())
    return " ".join(digests)


def check_config(mark: str, config: str, path: Path) -> None:
    """Compare the `config_digest` in a file of a run with that of config.yaml.

    Raises:
        InputError: they differ; a digest without finetune stages fits any finetune stages.
    """
    if not mark or any(a != b for a, b in zip(mark.split(), config.split(), strict=False)):
        raise InputError(
            f"{path}: belongs to another config.yaml, or that was damaged or edited: put it back as it was (only "
            f"{', '.join(CHANGEABLE)} may change)."
        )


# --- YAML ---


class _Loader(yaml.SafeLoader):
    """Refuses YAML that can fill the memory from a few bytes: aliases, merges, long numbers, too many values."""

    _values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Check the next node, then compose it."""
        event, self._values = self.peek_event(), self._values + 1  # type: ignore[no-untyped-call]
        text = getattr(event, "value", None) or ""
        kind = self.resolve(yaml.ScalarNode, text, event.implicit) if len(text) > 20 else ""  # type: ignore[no-untyped-call]
        fault = "an alias or an anchor" if getattr(event, "anchor", None) else "a merge" if text == "<<" else ""
        fault = "a number of more than 20 digits" if kind.endswith(":int") else fault
        if fault or self._values > 10_000:
            raise yaml.YAMLError(f"line {event.start_mark.line + 1}: {fault or 'more than 10,000 values'}; take it out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a repeated name, whose first value would be lost silently."""
        seen = set[str]()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if name.value in seen:
                line = name.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: {name.value} is there already; put all of it in one place")
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def read_config(path: Path, *, pipes: bool = False) -> Tree:
    """Read a configuration's YAML file; InputError: as `read_yaml`, or a later version of spanlm wrote it."""
    tree = read_yaml(path, pipes=pipes)
    require_schema(tree.pop("schema", SCHEMA), path)
    return tree


def save_config(path: Path, text: str) -> None:
    """Write a run's YAML file; OSError: the disk refused."""
    replace_file(path, f"schema: {SCHEMA}\n{text}".encode())


def read_yaml(path: Path, *, pipes: bool = False) -> Tree:
    """Read a YAML file of nested fields, at most 1 MB; `pipes` also allows pipes, which no run's folder may have.

    Raises:
        InputError: the file cannot be read, is too long, is not YAML, or holds no fields.
    """
    try:
        with (path if pipes else regular(path, LONGEST)).open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise ValueError(f"has more than {LONGEST:,} bytes")
        text = content.decode()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # too long, or no UTF-8
        raise InputError(f"{path}: is not YAML that can be read: {error}") from None
    return yaml_group(text, str(path))


def yaml_group(text: str, name: str) -> Tree:
    """Parse YAML text into nested fields; errors call it `name`.

    Raises:
        InputError: the text is not YAML, or holds no fields.
    """
    try:
        tree = _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
        raise InputError(f"{name}: is not YAML that can be read: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{name}: is nested too deeply; fields are in groups of groups, no deeper") from None
    return {} if tree is None else as_group(tree, name)
