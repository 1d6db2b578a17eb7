"""Back-off n-gram models: ARPA files, log-probabilities, and Kneser-Ney estimation from text.

`model` holds a model in sorted arrays and looks words up; `arpa` reads and writes files; `kneser_ney` estimates;
`kenlm` scores with KenLM instead; `next_word` wraps a model as a `NextWordModel`; `config` configures a run.
"""

from spanlm.scoring.ngram.arpa import open_arpa, read_arpa, write_arpa
from spanlm.scoring.ngram.kneser_ney import KneserNey
from spanlm.scoring.ngram.model import ArpaModel

__all__ = ["ArpaModel", "KneserNey", "open_arpa", "read_arpa", "write_arpa"]
