"""Adapters to other libraries; each module needs an extra, and the rest of the package imports none at start."""
