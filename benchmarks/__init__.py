"""Training steps of this library beside textbook ones and ports of published code, timed in turn. See README.md."""
