"""Trained models: a run folder becomes a `TrainedModel`, several become a `TrainedEnsemble`."""
