"""An n-gram model as a NextWordModel: against `ArpaModel.score`, and its cache against a loop."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch

from spanlm.data.vocabulary import Vocabulary
from spanlm.scoring.ngram.kneser_ney import KneserNey
from spanlm.scoring.ngram.model import ArpaModel
from spanlm.scoring.ngram.next_word import NgramModel, UnigramCache
from tests.scoring.reference import numbered

VOCABULARY = Vocabulary(("w2", "<eos>", "w0", "strange", "<unk>", "w1", "w3", "w4", "new", "<s>"))
CACHE = UnigramCache(window=4, share=0.3)
BOTH = pytest.mark.parametrize("cache", [None, CACHE], ids=["alone", "cache"])


def arpa_of(order: int) -> ArpaModel:
    draw = random.Random(order)
    text = [[f"w{min(draw.randrange(5), draw.randrange(5))}" for _ in range(draw.randrange(1, 9))] for _ in range(200)]
    return KneserNey(order, (0.5, 1.0, 1.5)).estimate(*numbered(text))


def stream_of(length: int, streams: int, seed: int = 0) -> torch.Tensor:
    """Ids of lines, each stream opened by <eos>."""
    draw = torch.randint(len(VOCABULARY), (length, streams), generator=torch.Generator().manual_seed(seed))
    draw[0] = VOCABULARY.eos_id
    return draw


@pytest.mark.parametrize("order", range(1, 7))
def test_a_stream_of_lines_has_the_logarithms_of_its_lines_to_the_bit(order: int) -> None:
    arpa = arpa_of(order)
    own = Vocabulary(tuple({"</s>": "<eos>"}.get(word, word) for word in arpa.words if word != "<s>"))
    model, draw = NgramModel(arpa, own), random.Random(1)
    lines = [[draw.choice([*own.words[3:], "<unk>"]) for _ in range(draw.randrange(9))] for _ in range(40)]
    ids = torch.tensor(own.encode(["<eos>", *(word for line in lines for word in [*line, "<eos>"])])).unsqueeze(1)
    log_p, _ = model.log_prob(ids[:-1], ids[1:], model.init_state(1))
    expected = np.concatenate([found.log10 for found in arpa.score(lines)]).astype(np.float64) * math.log(10)
    assert (log_p.squeeze(1).numpy() == expected).all()


@BOTH
@pytest.mark.parametrize("order", [1, 2, 5])
def test_every_distribution_sums_to_one_and_has_the_scored_word(order: int, cache: UnigramCache | None) -> None:
    model, read = NgramModel(arpa_of(order), VOCABULARY, cache), stream_of(30, 3)
    readout, _ = model(read[:-1], model.init_state(3))
    rows = model.head.log_probs(readout)
    assert rows.logsumexp(-1) == pytest.approx(0, abs=2e-5)
    scored = model.head.log_prob(readout, read[1:])
    assert torch.allclose(scored.float(), rows.gather(-1, read[1:].unsqueeze(-1)).squeeze(-1), atol=1e-5)


@BOTH
def test_any_cut_is_the_same_stream_and_streams_are_their_own(cache: UnigramCache | None) -> None:
    model, read = NgramModel(arpa_of(3), VOCABULARY, cache), stream_of(24, 4)
    whole, after = model.log_prob(read[:-1], read[1:], model.init_state(4))
    state, parts = model.init_state(4), []
    for begin, end in ((0, 1), (1, 9), (9, 23)):
        log_p, state = model.log_prob(read[:-1][begin:end], read[1:][begin:end], state)
        parts.append(log_p)
    assert torch.equal(torch.cat(parts), whole)
    assert all(torch.equal(x, state.flat()[name]) for name, x in after.flat().items())
    few = torch.tensor([2, 0])
    chosen, _ = model.log_prob(read[:-1, few], read[1:, few], model.init_state(4).select(few))
    assert torch.equal(chosen, whole[:, few])
    marked = torch.tensor([True, False, True, False])
    anew, _ = model.log_prob(read[:-1], read[1:], after.reset(marked, model.init_state(4)))
    assert torch.equal(anew[:, marked], whole[:, marked])


def test_the_cache_is_kuhns_and_de_moris() -> None:
    """Loop twin: (1 − λ) p + λ count / total over the last C words read, p alone before any."""
    arpa, read = arpa_of(2), stream_of(20, 1)
    plain, cached = (NgramModel(arpa, VOCABULARY, cache) for cache in (None, CACHE))
    own, found = (m.log_prob(read[:-1], read[1:], m.init_state(1))[0].squeeze(1).exp() for m in (plain, cached))
    words = read.squeeze(1).tolist()
    for at, target in enumerate(words[1:], 1):
        held = Counter(words[max(0, at - CACHE.window) : at])
        expected = (1 - CACHE.share) * own[at - 1] + CACHE.share * held[target] / held.total()
        assert found[at - 1] == pytest.approx(expected)
