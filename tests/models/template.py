"""The memory that `docs/memory_template.py` shows: tested as those of the package."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

PATH = Path(__file__).parents[2] / "docs" / "memory_template.py"

_spec = spec_from_file_location("memory_template", PATH)
assert _spec is not None and _spec.loader is not None
sys.modules["memory_template"] = template = module_from_spec(_spec)
_spec.loader.exec_module(template)

MeanConfig, MeanMemory, twin = template.MeanConfig, template.MeanMemory, template.twin
