"""Dynamic evaluation: gradient statistics, a rule by which weights follow a text, its perplexity, and a search."""
