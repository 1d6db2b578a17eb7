"""Provenance of a file or a run: the command, the code and the machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spanlm.errors import RunError
from spanlm.store import SCHEMA, VERSION, require_schema
from spanlm.store.files import HF, regular, replace_file, written
from spanlm.store.machine import processor_name
from spanlm.store.plain import json_object

if TYPE_CHECKING:
    import torch

PACKAGE = Path(__file__).parents[1]

PROVENANCE = "provenance.jsonl"
"""File with one line for every start of a run: code, machine and command."""

_GIT_SECONDS = 10


def provenance(device: torch.device) -> dict[str, Any]:
    import torch  # takes seconds: `spanlm --version` does without

    return file_provenance() | {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def file_provenance() -> dict[str, Any]:
    (commit, changed), program = commit_of(PACKAGE), Path(sys.argv[0]).name.replace("__main__.py", "spanlm")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([program, *map(_without_folders, sys.argv[1:])]),
        "spanlm": VERSION,
        "commit": commit,
        "changed": changed,
    }


def _without_folders(argument: str) -> str:
    """Reduce an absolute path, also after `--option=` or `hf:`, to its name, since folders differ between machines."""
    option, equals, value = argument.rpartition("=")
    prefix = HF * value.startswith(HF)
    path = value.removeprefix(prefix)
    return f"{option}{equals}{prefix}{Path(path).name}" if os.path.isabs(path) else argument


@cache  # this process does not run a later checkout
def commit_of(package: Path) -> tuple[str | None, bool | None]:
    """Return the checked-out commit and whether the package differs from it; None without a checkout.

    The package must be tracked, since an installed copy may lie in the repository of another project.
    """
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    commit = _git(package, "rev-parse", "HEAD")
    changes = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return commit, None if changes is None else bool(changes)


@cache
def code_version(package: Path = PACKAGE) -> str:
    """Return the commit, with a digest of uncommitted changes; of an installed copy, the version."""
    commit, changed = commit_of(package)
    if not changed:
        return commit or VERSION
    changes = _git(package, "diff", "HEAD", "--no-ext-diff", "--full-index", "--", ".") or ""
    return f"{commit} changed {hashlib.sha256(changes.encode()).hexdigest()}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def record_start(folder: Path, device: torch.device, **facts: Any) -> None:
    """Append this start of a run to its `provenance.jsonl`, with those `facts` that are neither None nor empty.

    `started_from_weights` is the SHA-256 of the weights taken from another run, `texts` the SHA-256 of each split,
    `precision` that of matrix products, `unk` the number of <unk> in the training text, `ranks` the number of
    processes, `validation` the protocol of its perplexities on valid.

    Raises:
        RunError: the disk refused.
    """
    path = folder / PROVENANCE
    with written(path, "Make room, or choose another folder.", "cannot be written"):
        before = regular(path, 2**26).read_bytes() if path.exists() else b""
        known = {name: fact for name, fact in facts.items() if fact is not None and fact != {}}
        start = {"schema": SCHEMA} | provenance(device) | known
        # Python reads an argument that is not UTF-8 as halves of surrogate pairs, which no encoding can write
        line = json.dumps(start, ensure_ascii=False).encode(errors="backslashreplace")
        replace_file(path, before + line + b"\n")


def starts(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run's starts; RunError: a damaged file; InputError: a later version's."""
    path = folder / PROVENANCE
    try:
        # bytes: str.splitlines also cuts at characters that a command may contain
        lines = regular(path, 2**26).read_bytes().splitlines() if path.exists() else []
        rows = [json_object(line) for line in lines]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "damaged: a line is no JSON object"
        raise RunError(f"{path}: {why}. Move it away; the run itself does not need it.") from None
    for row in rows:
        require_schema(row.get("schema", SCHEMA), path)
    return rows


Fact = TypeVar("Fact")


def last_fact(folder: Path, name: str, default: Fact) -> Fact:
    """Return a fact of the last start that has it with the default's type, or the default; raises as `starts` does."""
    facts = (start.get(name) for start in reversed(starts(folder)))
    return next((fact for fact in facts if isinstance(fact, type(default))), default)
