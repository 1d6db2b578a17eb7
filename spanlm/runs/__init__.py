"""Trained models: a run folder becomes a `Model`, several become a `TrainedEnsemble`."""
