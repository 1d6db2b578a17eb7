"""The count of Salton et al. (2017): by hand, and against a plain loop over the lines."""

from __future__ import annotations

import math

import pytest

from spanlm.evaluation.first_words import first_words_unscored, unopened_sentences
from spanlm.evaluation.perplexity import evaluate
from spanlm.evaluation.scoring import Tally
from spanlm.models.language_model import LanguageModel
from tests.evaluation import reference

TARGETS = sum(len(line) + 1 for line in reference.TEXT)


def test_opened_by_hand() -> None:
    """Four tokens of 10 nats; the two that come first take 3 of them."""
    found = first_words_unscored(Tally(tokens=4, nll=10.0, first_tokens=2, first_nll=3.0))
    assert (found.predicted, found.counted, found.nll) == (2, 4, 7.0)
    assert found.perplexity == pytest.approx(math.exp(7 / 4))
    assert found.perplexity_per_predicted == pytest.approx(math.exp(7 / 2))
    assert found.protocol.endswith("state reset at each line, opened by <eos>")


def test_unopened_by_hand() -> None:
    """What was read holds predicted tokens only: of five counted ones, three."""
    found = unopened_sentences(Tally(tokens=3, nll=6.0, first_tokens=2, first_nll=5.0), counted=5)
    assert (found.predicted, found.counted, found.nll) == (3, 5, 6.0)
    assert found.perplexity == pytest.approx(math.exp(6 / 5))
    assert found.perplexity_per_predicted == pytest.approx(math.exp(2))
    assert found.protocol.endswith("state reset at each line, not opened")


def test_lines_of_one_word_have_nothing_to_predict() -> None:
    found = first_words_unscored(Tally(tokens=2, nll=3.0, first_tokens=2, first_nll=3.0))
    assert (found.predicted, found.perplexity) == (0, 1.0) and math.isnan(found.perplexity_per_predicted)


def nats(model: LanguageModel, inputs: list[int], targets: list[int]) -> list[float]:
    log_p = reference.distributions(model, inputs)
    return [-float(row[target]) for row, target in zip(log_p, targets, strict=True)]


@pytest.mark.parametrize("memory", ["none", "attention"])
@pytest.mark.parametrize("opened", [True, False])
def test_against_a_loop_over_the_lines(memory: str, opened: bool) -> None:
    model, corpus = reference.small_model(memory), reference.corpus(reference.TEXT)
    eos, rows = corpus.vocabulary.eos_id, []
    for line in reference.TEXT:
        ids = corpus.vocabulary.encode([*line, "<eos>"])
        if opened:
            rows += nats(model, [eos, *ids[:-1]], ids)[1:]
        elif len(ids) > 1:
            rows += nats(model, ids[:-1], ids[1:])
    result = evaluate(model, corpus, kind="sentences", predict_first=opened)
    found = result.salton2017
    assert found is not None
    assert (found.predicted, found.counted) == (TARGETS - len(reference.TEXT), TARGETS)
    assert found.nll == pytest.approx(sum(rows), rel=1e-12)
    assert found.perplexity == pytest.approx(math.exp(sum(rows) / TARGETS))
    assert found.perplexity_per_predicted == pytest.approx(math.exp(sum(rows) / len(rows)))


@pytest.mark.parametrize("kind", ["streams", "documents"])
def test_there_is_none_where_lines_do_not_begin_anew(kind: str) -> None:
    result = evaluate(reference.small_model(), reference.corpus(reference.TEXT), kind=kind)  # type: ignore[arg-type]
    assert result.salton2017 is None
