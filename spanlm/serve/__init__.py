"""A server of trained models on one's own machine: a page to play with, and an API (extra `serve`)."""
