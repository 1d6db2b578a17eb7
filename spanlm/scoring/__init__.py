"""Evaluation: one primitive, the log-probability of each token; everything else is a reduction of it."""
