"""Adapters to other libraries; each module needs an extra, and nothing else of the package imports them."""
