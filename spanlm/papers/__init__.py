"""Published tables: one file a paper, with a preset for each row, and how the rows are run again and shown."""
