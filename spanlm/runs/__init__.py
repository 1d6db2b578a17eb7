"""Trained models: a run folder becomes a `LoadedModel`, several become a `TrainedEnsemble`."""
