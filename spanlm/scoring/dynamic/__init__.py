"""Dynamic evaluation: gradient statistics, the update rule, perplexity with adapting weights, and tuning."""
