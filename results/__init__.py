"""What was measured: records, the pages that show them, and the programs that measured."""
