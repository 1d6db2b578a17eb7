"""Lists of n best hypotheses, of speech recognition or of translation: read, scored anew, weighted, written."""
