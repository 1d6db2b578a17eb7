"""What made a run: the code, the machine and the command of every start, one line each in `provenance.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from spanlm.errors import RunError
from spanlm.evaluation.scoring import Precision
from spanlm.files import regular, replace_file
from spanlm.plain_json import json_object
from spanlm.provenance import provenance
from spanlm.training.warm_start import WarmStart

PROVENANCE = "provenance.jsonl"


def record_start(
    folder: Path,
    device: torch.device,
    started: WarmStart | None = None,
    texts: Mapping[str, str] | None = None,
    precision: Precision = "fp32",
    unk: int | None = None,
) -> None:
    """Add this start to the run's `provenance.jsonl`.

    Args:
        folder: of the run.
        device: what it trains on.
        started: the weights that it took from another run, of which their SHA-256 is kept.
        texts: the SHA-256 of each part of the corpus.
        precision: of the products, as `spanlm.evaluation.scoring.usable` has it.
        unk: how many tokens of the training part are <unk>.

    Raises:
        RunError: the disk refused.
    """
    path = folder / PROVENANCE
    try:
        before = regular(path, 2**26).read_bytes() if path.exists() else b""
        start = provenance(device) | {"precision": precision, "unk": unk} | ({"texts": dict(texts)} if texts else {})
        start |= {} if started is None else {"started_from_weights": started.weights}
        # an argument that is not UTF-8 has halves of surrogate pairs, which no encoding can write
        line = json.dumps(start, ensure_ascii=False).encode(errors="backslashreplace")
        replace_file(path, before + line + b"\n")
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}. Make room, or choose another --out.") from error


def starts(folder: Path) -> list[dict[str, Any]]:
    """Return what was recorded at each start of a run; empty for a run older than the record.

    Raises:
        RunError: the file is not what was written.
    """
    path = folder / PROVENANCE
    try:
        # bytes: of text, splitlines cuts at letters that a command may hold
        lines = regular(path, 2**26).read_bytes().splitlines() if path.exists() else []
        return [json_object(line) for line in lines]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "damaged: a line is no JSON object"
        raise RunError(f"{path}: {why}. Move it away; the run itself does not need it.") from None


def read_precision(folder: Path, otherwise: str) -> str:
    """Return the precision of a run's last start; `otherwise` if that was not recorded, or is damaged."""
    with suppress(RunError):
        return next((str(start["precision"]) for start in reversed(starts(folder)) if "precision" in start), otherwise)
    return otherwise


def read_texts(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each part of the corpus when a run was last started; empty if that was not recorded.

    Raises:
        RunError: see `starts`.
    """
    found = (start.get("texts") for start in reversed(starts(folder)))
    return next((texts for texts in found if isinstance(texts, dict)), {})


def changed_texts(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Return which parts of a corpus are not what they were when a run was last started.

    Raises:
        RunError: see `starts`.
    """
    before = read_texts(folder)
    return [part for part, text in texts.items() if before.get(part, text) != text]
