"""Back-off n-gram models: ARPA files, log-probabilities, and Kneser-Ney estimation from text.

`model` holds a model in sorted arrays and looks words up; `arpa` reads and writes files; `kneser_ney` estimates;
`kenlm` scores with KenLM instead; `next_word` wraps a model as a `NextWordModel`; `config` configures a run.
"""
