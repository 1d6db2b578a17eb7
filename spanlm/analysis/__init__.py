"""Attention one can look at: by word, by lag, on a page, in a figure, as a table."""
