"""The hot spots, each in one place: window attention and the log-probability of a linear softmax."""
