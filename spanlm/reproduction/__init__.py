"""The published tables, run again: which runs a table needs, running them, and the tables and figures made of them."""
