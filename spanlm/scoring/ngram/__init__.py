"""Back-off n-gram models: ARPA files read and written, questions answered, Kneser-Ney estimated from text.

The rooms: `model` holds the model in sorted arrays and answers; `arpa` is the file format; `kneser_ney` estimates;
`kenlm` is KenLM in its place; `next_word` is a `NextWordModel` of it; `config` is that of a run.
"""

from spanlm.scoring.ngram.arpa import open_arpa, read_arpa, write_arpa
from spanlm.scoring.ngram.kneser_ney import KneserNey
from spanlm.scoring.ngram.model import ArpaModel

__all__ = ["ArpaModel", "KneserNey", "open_arpa", "read_arpa", "write_arpa"]
