"""How the scripts of this folder write what they measured."""

import json
import os
from pathlib import Path
from typing import Any

from spanlm.store.process import processor_name
from spanlm.store.provenance import file_provenance

_LOAD = os.getloadavg()[0]  # before the script did anything


def write(script: str, what: str, **found: Any) -> None:
    """Write NAME.json beside NAME.py: what it is, what made it, where, beside which load, and what was found."""
    machine = {"machine": f"{os.cpu_count()} cores of {processor_name()}", "load": [_LOAD, os.getloadavg()[0]]}
    text = json.dumps({"what": what, "made": file_provenance(), **machine, **found}, indent=1, ensure_ascii=False)
    Path(script).with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")
