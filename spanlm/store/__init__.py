"""What lies on a disk: run folders, checkpoints, files that appear whole or not at all, and what made them."""

VERSION = "0.2.0"
