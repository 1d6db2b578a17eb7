"""Training: one trainer, exact resume."""
