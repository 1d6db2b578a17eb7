"""Several runs as one model, and the runs that cannot be one."""

import copy
import math
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.models.memories import NoMemoryConfig
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.model import TrainedModel
from spanlm.scoring.attention import check_attends


@pytest.fixture(scope="module")
def several(tiny_run: Path, lstm_run: Path) -> TrainedEnsemble:
    return spanlm.load_ensemble([tiny_run, lstm_run], weights=[3, 1])


def test_attention_of_several_is_refused(several: TrainedEnsemble) -> None:
    with pytest.raises(InputError, match="several models as one have no attention of their own"):
        check_attends(several.model)


def test_a_run_named_twice_is_refused(tiny_run: Path) -> None:
    with pytest.raises(InputError, match=r"tiny: is named twice; name each run once"):
        spanlm.load_ensemble([tiny_run, tiny_run.parent / "." / "tiny"])
    with pytest.raises(InputError, match="runs=0: must be at least 1 model"):
        spanlm.load_ensemble([])


def test_another_vocabulary_is_refused_with_what_differs(tiny_run: Path) -> None:
    run = spanlm.load(tiny_run)
    words, count = run.vocabulary.words, len(run.vocabulary)
    swapped = (*words[:4], words[5], words[4], *words[6:])
    for others, what, first in (
        ((*words, "lion"), f"{count} and {count + 1} words", f"word {count} is missing and 'lion'"),
        (swapped, "as many words, but not the same", f"word 4 is {words[4]!r} and {words[5]!r}"),
    ):
        other = TrainedModel(run.model, Vocabulary(others), run.config, Path("runs/other"))
        message = f"{tiny_run} and runs/other: have different vocabularies ({what}; the first difference: {first})"
        with pytest.raises(InputError, match=re.escape(message)):
            TrainedEnsemble([run, other])


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
        asks = several.evaluate, several.evaluate_members, several.tune_weights, partial(several.score, "the cat")
        for ask in (*asks, members[0].evaluate):
            with pytest.raises(InputError, match="state=carry: the model remembers everything since the last reset"):
                ask(state="carry")
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


def test_what_several_are_not_is_said_in_a_notebook(tiny_run: Path, lstm_run: Path) -> None:
    run, several = spanlm.load(tiny_run), spanlm.load_ensemble([tiny_run, lstm_run])
    assert str(tiny_run) in repr(run) and run.description in repr(run)
    assert str(tiny_run) in repr(several) and str(lstm_run) in repr(several)
    with pytest.raises(InputError, match=r"dynamic: .+ is several models"):
        several.evaluate(dynamic=spanlm.DynamicConfig())
    assert repr(run.with_attention("none")) != repr(run)
    assert copy.copy(several).runs == several.runs
    wrong: Any
    for wrong in (None, 3, [tiny_run]):
        with pytest.raises(InputError, match=r"^run=.*: must be a path"):
            spanlm.load(wrong)
    wrong = [run, run]
    with pytest.raises(InputError, match=r"^runs=TrainedModel: must be a path"):
        spanlm.load_ensemble(wrong)
