"""One file a paper: its `PRESETS`, `NGRAM_PRESETS` and, if `spanlm reproduce` runs its tables again, its `PAPER`."""
