"""The excess of a model over the law of a text: of the law itself none, by lag and in all, whatever the context."""

import pytest
import torch
from torch import Tensor

from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.synthetic import find_synthetic
from spanlm.models.interfaces import Head, LMState, NextWordModel, Readout, Scores
from spanlm.scoring.excess import excess_by_lag
from spanlm.scoring.protocol import Protocol

NAME = "synthetic:copy,tokens=600,words=8,lag=3"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus(DataConfig(corpus=NAME))


class Lawful(NextWordModel):
    """Predicts by the law, one stream: its state counts what was read."""

    def __init__(self, log_p: list[float], size: int) -> None:
        super().__init__()
        self.vocabulary_size = size
        self.register_buffer("known", torch.tensor(log_p, dtype=torch.float64))
        self.head = _Given()

    def init_state(self, batch_size: int) -> LMState:
        return LMState({}, {"read": torch.zeros(1, batch_size, dtype=torch.long)})

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        start = int(state.memory["read"][0, 0])
        known = self.get_buffer("known")[start : start + len(tokens)]
        return Readout(known[:, None, None]), LMState({}, {"read": state.memory["read"] + len(tokens)})


class _Given(Head):
    def score(self, readout: Readout, targets: Tensor) -> Scores:
        return Scores(readout.features[..., 0])

    def log_probs(self, readout: Readout) -> Tensor:
        raise NotImplementedError


def test_the_law_itself_has_no_excess(corpus: Corpus) -> None:
    law = find_synthetic(NAME)
    known = [each.log_p for line in corpus.written_lines("test") for each in law.law(line.split())]
    found = excess_by_lag(Lawful(known, len(corpus.vocabulary)), corpus, "test", Protocol())
    assert [each.lags for each in found] == [(0, 3), (0, 0), (2, 3)]
    assert found[0].tokens == len(corpus.splits["test"]) == sum(each.tokens for each in found[1:])
    for each in found:
        assert each.excess == pytest.approx(0, abs=1e-12)
