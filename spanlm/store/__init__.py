"""Files: run folders, checkpoints, atomic writes, and provenance."""

from spanlm.errors import InputError

VERSION = "0.2.0"
SCHEMA = 1
"""Of config.yaml, provenance.jsonl and checkpoints. Runs of this number, from 0.2.0 on, load for ever."""


def require_schema(number: object, source: object) -> None:
    """Raise InputError unless a file of a run, `source`, has the schema of this version."""
    if number != SCHEMA:
        problem = f"schema={number}: must be {SCHEMA}; another version of spanlm wrote it"
        raise InputError(f"{source}: {problem}")
