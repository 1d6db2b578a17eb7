"""Files: run folders, checkpoints, atomic writes, and provenance."""

VERSION = "0.2.0"
