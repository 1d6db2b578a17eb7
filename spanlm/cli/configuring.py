"""From a preset, a file and `--group.field VALUE` options to one configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanlm.config import (
    PARTS,
    ConfigParser,
    RunConfig,
    Tree,
    config_parser,
    flat,
    kinds_of,
    parsed_config,
    read_yaml,
    upgraded,
    upgraded_options,
)
from spanlm.presets import find_preset

DEFAULT_PRESET = "demo"


def named_config(preset: str | None, config: Path | None) -> RunConfig:
    """Return a preset's configuration, a file's, or a file's over a preset's; with neither, the demo's.

    Raises:
        InputError: no such preset or file, or a file that is no configuration.
    """
    base = find_preset(preset or DEFAULT_PRESET).config
    if config is None:
        return base
    tree = upgraded(read_yaml(config, pipes=True), base)
    return RunConfig.from_tree(tree if preset is None else _overlaid(base.to_tree(), tree), str(config))


def with_options(base: RunConfig, options: list[str]) -> RunConfig:
    """Apply `--group.field value` options.

    Raises:
        InputError: no such field, or a value that it cannot have.
    """
    kinds = {part: getattr(base.model, part).kind for part in PARTS} | _kinds_in(options)
    options = upgraded_options(options, kinds)
    parser = _parser(base, options)
    return parsed_config(parser, parser.parse_args(options))


def print_fields(base: RunConfig, options: list[str]) -> None:
    """Print every field with what it means and would be."""
    parser = _parser(base, options)
    parser.prog, parser.usage = "spanlm train", argparse.SUPPRESS
    parser.print_help()


def _parser(base: RunConfig, options: list[str]) -> ConfigParser:
    """Make the parser of the fields that there are with these options, with `base` as the defaults."""
    changed: Tree = {"model": {part: {"kind": k} for part, k in _kinds_in(options).items()}}
    if value_of("--training.finetune.stages", options) == "0":
        changed["training"] = {"finetune": {"stages": 0}}
    tree = _overlaid(base.to_tree(), changed)
    parser = config_parser(kinds_of(tree))
    parser.set_defaults(flat(tree))
    return parser


def _kinds_in(options: list[str]) -> dict[str, str]:
    found = {part: value_of(f"--model.{part}.kind", options) for part in PARTS}
    return {part: kind for part, kind in found.items() if kind is not None}


def value_of(field: str, options: list[str]) -> str | None:
    """Return what is given for a field, the last time it is; None if it is not."""
    given = None
    for position, option in enumerate(options):
        name, _, value = option.partition("=")
        if name == field:
            given = value or (options[position + 1] if position + 1 < len(options) else "")
    return given


def _overlaid(base: Tree, change: Tree) -> Tree:
    """Put `change` over `base`; a part of another kind, or without stages, takes nothing over from the old one."""
    merged = dict(base)
    for name, value in change.items():
        old = base.get(name)
        if isinstance(value, dict) and isinstance(old, dict) and not _begins_anew(value, old):
            merged[name] = _overlaid(old, value)
        else:
            merged[name] = value
    return merged


def _begins_anew(change: Tree, old: Tree) -> bool:
    """Say whether what was said of a group goes: of a part with its kind, of finetuning with its stages."""
    return change.get("kind", old.get("kind")) != old.get("kind") or change.get("stages") == 0
