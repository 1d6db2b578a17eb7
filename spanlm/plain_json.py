"""JSON objects as files have them: what comes in may be anything, what goes out is JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: it is not JSON, or JSON but no object.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    return found


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: None for a number that is not finite."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
