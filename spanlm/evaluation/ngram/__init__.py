"""Back-off n-gram models: ARPA files read and written, questions answered, Kneser-Ney estimated from text.

The rooms: `model` holds the model in sorted arrays and answers; `arpa` is the file format; `kneser_ney` estimates;
`scorer` chooses KenLM for scoring where it is installed.
"""

from spanlm.evaluation.ngram.arpa import read_arpa, write_arpa
from spanlm.evaluation.ngram.kneser_ney import KneserNey
from spanlm.evaluation.ngram.model import ArpaModel, Columns, SentenceScores
from spanlm.evaluation.ngram.scorer import sentence_scorer

__all__ = ["ArpaModel", "Columns", "KneserNey", "SentenceScores", "read_arpa", "sentence_scorer", "write_arpa"]
