"""A local server of trained models: a page to play with, and an API (extra `serve`)."""
