"""The command line: the only rooms that print."""
