"""Files: run folders, checkpoints, atomic writes, and provenance."""

from spanlm.errors import InputError

VERSION = "0.2.0"
SCHEMA = 1
"""Version of config.yaml, provenance.jsonl and checkpoints. All later releases load runs of schema 1 (0.2.0 on)."""


def require_schema(number: object, source: object) -> None:
    """Raise InputError unless `source`, a file of a run, has this version's schema."""
    if number != SCHEMA:
        problem = f"schema={number}: must be {SCHEMA}; another version of spanlm wrote it"
        raise InputError(f"{source}: {problem}")
