"""Several runs as one model, and the runs that cannot be one."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.cloze import RankedQuestion
from spanlm.models.memories import NoMemoryConfig
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.trained_model import TrainedModel
from tests.cli.test_cloze import BLOCKS


@pytest.fixture(scope="module")
def several(tiny_run: Path, lstm_run: Path) -> TrainedEnsemble:
    return spanlm.load_ensemble([tiny_run, lstm_run], weights=[3, 1])


@pytest.mark.parametrize("state", ["carry", "document", "line"])
def test_evaluate_is_of_the_ensemble(several: TrainedEnsemble, state: Any) -> None:
    result, members = several.evaluate(state=state), several.evaluate_members(state=state)
    assert members.ensemble.nll == pytest.approx(result.nll, rel=1e-6)
    for run, member in zip(several.runs, members.members, strict=True):
        assert member.nll == pytest.approx(run.evaluate(state=state).nll, rel=1e-6)
    assert members.oracle_bound.nll < min(result.nll, *(member.nll for member in members.members))
    assert members.weights == (0.75, 0.25)


def test_everything_else_is_one_call(several: TrainedEnsemble, tmp_path: Path) -> None:
    probability = [2**-word.surprisal for word in several.score("the cat sat zebra .")]
    own = [[2**-word.surprisal for word in run.score("the cat sat zebra .")] for run in several.runs]
    assert probability == pytest.approx([0.75 * a + 0.25 * b for a, b in zip(*own, strict=True)], rel=1e-5)
    words = several.generate("the cat", length=9, seed=3)
    assert len(words) == 9 and words == several.generate("the cat", length=9, seed=3)
    (tmp_path / "questions.txt").write_text("".join(BLOCKS), encoding="utf-8")
    ranks = [item for item in several.cloze(tmp_path / "questions.txt") if isinstance(item, RankedQuestion)]
    assert len(ranks) == len(BLOCKS)
    assert not several.model.training


def test_weights_can_be_tuned_and_given(several: TrainedEnsemble) -> None:
    tuned = several.tune_weights()
    best = several.reweighted(tuned.weights)
    assert best.runs == several.runs
    losses = [several.reweighted(w).evaluate(split="valid").nll_per_token for w in (None, [1, 0], [0, 1], [3, 1])]
    found = best.evaluate(split="valid").nll_per_token
    assert found == pytest.approx(-tuned.log_likelihoods[-1], rel=1e-6)
    assert found <= min(losses) + tuned.gap + 1e-6


def test_attention_of_several_is_refused(several: TrainedEnsemble) -> None:
    from spanlm.evaluation.attention import check_attends

    with pytest.raises(InputError, match="several models as one have no attention of their own"):
        check_attends(several.model)


def test_a_run_named_twice_is_refused(tiny_run: Path) -> None:
    with pytest.raises(InputError, match=r"tiny: is named twice; name each run once"):
        spanlm.load_ensemble([tiny_run, tiny_run.parent / "." / "tiny"])
    with pytest.raises(InputError, match="runs=0: must be at least 1 model"):
        spanlm.load_ensemble([])


def with_words(run: TrainedModel, words: tuple[str, ...]) -> TrainedModel:
    return TrainedModel(run.model, Vocabulary(words), run.config, Path("runs/other"))


def test_another_vocabulary_is_refused_with_what_differs(tiny_run: Path) -> None:
    run = spanlm.load(tiny_run)
    words = run.vocabulary.words
    with pytest.raises(
        InputError,
        match=rf"{tiny_run} and runs/other: have different vocabularies \({len(words)} and {len(words) + 1} words; "
        rf"the first difference: word {len(words)} is missing and 'lion'\)",
    ):
        TrainedEnsemble([run, with_words(run, (*words, "lion"))])
    swapped = (*words[:4], words[5], words[4], *words[6:])
    with pytest.raises(
        InputError,
        match=rf"\(as many words, but not the same; the first difference: word 4 is {words[4]!r} and {words[5]!r}\)",
    ):
        TrainedEnsemble([run, with_words(run, swapped)])


def changed(config: RunConfig, field: str, value: Any) -> RunConfig:
    if field.startswith("data."):
        return replace(config, data=replace(config.data, **{field.removeprefix("data."): value}))
    batching = replace(config.training.batching, **{field.rpartition(".")[2]: value})
    return replace(config, training=replace(config.training, batching=batching))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("data.tokenizer", "words", "data.tokenizer is whitespace and words"),
        ("data.documents", "none", "data.documents is blank-line and none"),
        ("data.lines", "sentences", "data.lines is as-written and sentences"),
        ("training.batching.kind", "streams", "training.batching.kind is documents and streams"),
        ("training.batching.kind", "sentences", "training.batching.kind is documents and sentences"),
    ],
)
def test_models_that_read_in_another_way_are_refused(tiny_run: Path, field: str, value: Any, message: str) -> None:
    run = spanlm.load(tiny_run)
    other = TrainedModel(run.model, run.vocabulary, changed(run.config, field, value), Path("runs/other"))
    with pytest.raises(InputError, match=rf"{tiny_run} and runs/other: were not trained alike: {message}"):
        TrainedEnsemble([run, run, other])


def test_a_context_that_one_member_could_not_use_is_refused_in_any_order(unopened_run: Path) -> None:
    """A memory of everything since the last reset, in the first or another member, never goes over a whole text."""
    run = spanlm.load(unopened_run)
    config = changed(run.config, "training.batching.predict_first", True)
    plain = replace(config, model=replace(config.model, memory=NoMemoryConfig()))
    members = [TrainedModel(run.model, run.vocabulary, one, Path(".")) for one in (config, plain)]
    for order in (members, members[::-1]):
        several = TrainedEnsemble(order)
        for ask in (several.evaluate, several.evaluate_members, several.tune_weights):
            with pytest.raises(InputError, match="state=carry: the model remembers everything since the last reset"):
                ask(state="carry")
        with pytest.raises(InputError, match="state=carry: the model remembers everything since the last reset"):
            list(several.score("the cat", state="carry"))
        assert several.evaluate(split="valid").tokens == run.evaluate(split="valid").tokens


def test_what_is_tuned_for_sentences_that_are_not_opened_is_tuned_on_such(unopened_run: Path, tmp_path: Path) -> None:
    run = spanlm.load(shutil.copytree(unopened_run, tmp_path / "run"))
    count = run.evaluate(split="valid").salton2017
    assert count is not None
    expected = pytest.approx(count.perplexity_per_predicted, rel=1e-5)
    assert run.tune_cache([5], thetas=[0.3], lambdas=[0.0]).plain == expected
    assert run.tune_dynamic(rates=[1e-6], decays=[0.0]).plain == expected
    (loss,) = {-one for one in TrainedEnsemble([run, run]).tune_weights().log_likelihoods}
    assert math.exp(loss) == expected


@pytest.mark.parametrize("state", ["carry", "document"])
def test_sentences_that_are_not_opened_have_no_other_context(unopened_run: Path, state: Any) -> None:
    with pytest.raises(InputError, match=rf"state={state}: .* Take line"):
        spanlm.load(unopened_run).evaluate(state=state)
