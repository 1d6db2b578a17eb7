import copy
import math
from dataclasses import replace

import pytest
import torch

from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.scoring.options import Context
from spanlm.scoring.perplexity import evaluate
from spanlm.scoring.stream import Scored
from spanlm.scoring.tally import Tally, perplexity
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, TARGETS, evaluated, small_model


@pytest.mark.parametrize("memory", reference.MEMORIES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_nll_is_that_of_one_word_at_a_time(context: Context, memory: str) -> None:
    rows = reference.rows(small_model(memory), reference.VOCABULARY, reference.TEXT, context)
    result = evaluated(small_model(memory), context=context)
    assert result.to_json().keys() == vars(result).keys() - {"notes"}
    nll = sum(row.nll for row in rows)
    unknown = [row.nll for row in rows if row.oov or row.word == "<unk>"]
    assert result.tokens == len(rows) == TARGETS
    assert result.nll == pytest.approx(nll, rel=1e-12)
    assert result.nll_per_token == pytest.approx(nll / TARGETS, rel=1e-12)
    assert result.bits_per_token == pytest.approx(nll / TARGETS / math.log(2), rel=1e-12)
    assert result.perplexity == pytest.approx(math.exp(nll / TARGETS), rel=1e-12)
    assert (result.oov_tokens, result.unk_tokens) == (2, 3) == (2, len(unknown))
    assert (result.oov_share, result.unk_share) == (2 / TARGETS, 3 / TARGETS)
    without = math.exp((nll - sum(unknown)) / (TARGETS - 3))
    assert result.perplexity_without_unk == pytest.approx(without, rel=1e-12)
    assert result.perplexity_without_unk != pytest.approx(result.perplexity, rel=1e-3)


@pytest.mark.parametrize("context", CONTEXTS)
def test_each_convention_shares_out_what_it_counts(context: Context) -> None:
    rows = reference.rows(small_model(), CORPUS.vocabulary, reference.TEXT, context)
    assert {row.word for row in rows} >= {"<unk>", EOS}
    kept = {
        "all": rows,
        "without_unk": (known := [row for row in rows if not row.oov and row.word != UNK]),
        "without_eos": [row for row in rows if row.word != EOS],
        "without_unk_and_eos": [row for row in known if row.word != EOS],
    }
    found = evaluated(small_model(), context=context).shares
    assert found.keys() == kept.keys(), "a corpus of ids has no words and characters as written"
    for name, share in found.items():
        nll = math.fsum(row.nll for row in kept[name])
        assert share.count == len(kept[name])
        assert (share.nll, share.nats) == pytest.approx((nll, nll / share.count), rel=1e-12)
        assert (share.bits * math.log(2), share.log10) == pytest.approx((share.nats, -nll / math.log(10)), rel=1e-12)
        assert share.perplexity == pytest.approx(2**share.bits, rel=1e-12)


def test_float32_answers_are_summed_in_float64() -> None:
    """Ten thousand tokens, of which a few are <unk> and come first."""
    shape = (100, 100)
    draw = torch.Generator().manual_seed(0)
    log_p, targets = -10 * torch.rand(shape, generator=draw), torch.randint(5, shape, generator=draw)
    first = torch.zeros(shape, dtype=torch.bool)
    first[0] = True
    ids, values, opens = (x.flatten() for x in (targets, log_p, first))
    block = Scored(ids, torch.arange(10_000), opens, {"log_p": values})
    total = Tally().plus(block, Vocabulary(("a", "b", "c", UNK, EOS)))
    assert total.tokens == 10_000
    sums = (total.nll, log_p), (total.unk_nll, log_p[targets == 3]), (total.first_nll, log_p[0])
    sums = *sums, (total.eos_nll, log_p[targets == 4])
    for found, summed in sums:
        assert found == pytest.approx(-math.fsum(summed.flatten().tolist()), rel=1e-12)


def test_nothing_but_unknown_words_has_no_perplexity_without_them() -> None:
    # every target <unk>: no line end either
    corpus = reference.corpus([["zebra", "<unk>"]])
    ids = corpus.splits["test"].ids[:2]
    corpus = replace(corpus, splits={"test": replace(corpus.splits["test"], ids=ids)}, oov={"test": 1})
    result = evaluate(small_model(), corpus)
    assert (result.tokens, result.unk_tokens, result.unk_share) == (2, 2, 1.0)
    assert result.perplexity_without_unk is None


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    model = small_model()
    model.output_dropout = 0.5
    expected, before = evaluated(model).nll, copy.deepcopy(model.state_dict())
    assert evaluated(model.train(training)).nll == expected, "dropout must be off"
    assert model.training == training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_perplexity_does_not_overflow() -> None:
    assert perplexity(0.0) == 1.0
    assert perplexity(math.log(100)) == pytest.approx(100)
    assert perplexity(699.0) == math.exp(699.0)
    assert perplexity(1e4) == math.inf


@pytest.mark.parametrize("memory", ["none", "attention"])
@pytest.mark.parametrize("opened", [True, False])
def test_against_a_loop_over_the_lines(memory: str, opened: bool) -> None:
    model, rows = small_model(memory), list[float]()
    for ids in reference.pieces("line"):
        read = ids if opened else ids[1:]
        if len(ids) > 2:
            log_p = reference.distributions(model, read[:-1])
            rows += [-row[target] for row, target in zip(log_p, read[1:], strict=True)][opened:]
    result = evaluated(model, context="line", predict_first=opened)
    found = result.salton2017
    assert found is not None
    assert (found.predicted, found.counted) == (TARGETS - len(reference.TEXT), TARGETS)
    assert found.nll == pytest.approx(sum(rows), rel=1e-12)
    assert found.perplexity == pytest.approx(math.exp(sum(rows) / TARGETS))
    assert found.perplexity_per_predicted == pytest.approx(math.exp(sum(rows) / len(rows)))


def test_a_missing_split_is_named() -> None:
    with pytest.raises(InputError, match=r"^split=valid: small has test"):
        evaluate(small_model(), CORPUS, "valid")
