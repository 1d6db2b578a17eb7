"""n-best lists of speech recognition or translation: read, rescored, weighted and written."""
