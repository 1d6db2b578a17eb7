"""Tasks of lm_eval give what `spanlm pairs`, `score` and `evaluate` give."""

import importlib.util
import json
import math
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spanlm
from tests.goldens.small import command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs the extra eval"),
    pytest.mark.filterwarnings("ignore"),  # the library's own warnings
]
PAIRS = [
    ("the cat sat on the mat .", "the cat mat the on ."),
    ("a dog ran .", "a ran dog ."),
    ("the zebra sat .", "the giraffe sat ."),  # both <unk>: a tie
    ("He said the name .", "said the He name ."),
]


def model(run: spanlm.TrainedModel, **options: Any) -> Any:
    from spanlm.interop.lm_eval import SpanlmLM

    return SpanlmLM(run, **options)


def request(*arguments: object, doc: int = 0) -> SimpleNamespace:
    return SimpleNamespace(args=arguments, task_name="t", doc_id=doc)


def test_a_local_task_of_pairs_gives_the_accuracy_of_the_verb(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    """By the name of the model, and of a model that is there."""
    file = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in PAIRS]
    file.write_text("\n".join(lines) + "\n")
    task = {
        "task": "local_pairs",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}, "cache_dir": str(tmp_path / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "",
        "target_delimiter": "",
        "doc_to_choice": "{{[sentence_good, sentence_bad]}}",
        "doc_to_target": 0,
        "metric_list": [{"metric": "acc"}],
    }
    import lm_eval  # where it is used: it loads a hundred others

    import spanlm.interop.lm_eval  # makes the name known

    assert spanlm.interop.lm_eval
    told = json.loads(command("pairs", run.folder, file, "--json"))["pairs"]
    assert told["ties"] == 1
    named: dict[str, Any] = {"model": "spanlm", "model_args": f"run={run.folder},ends=True"}
    for how in (named, {"model": model(run, ends=True)}):
        found = lm_eval.simple_evaluate(tasks=[deepcopy(task)], device="cpu", bootstrap_iters=0, **how)
        assert found["results"]["local_pairs"]["acc,none"] == told["accuracy"]


def test_continuations_are_scored_after_their_context(run: spanlm.TrainedModel) -> None:
    asked = [request("the cat", " sat on the mat ."), request("", "the cat"), request("the cat .\nthe", " dog\n")]
    found = model(run).loglikelihood(asked)
    rows = list(run.score("the cat sat on the mat .", base=math.e))
    assert found[0][0] == pytest.approx(-sum(row.surprisal for row in rows[2:]))
    assert found[0][1] == all(row.rank == 1 for row in rows[2:])
    assert found[1][0] == pytest.approx(-sum(row.surprisal for row in rows[:2]))
    stream = list(run.score("the cat .\nthe dog", state="carry", base=math.e, eos=True))
    assert found[2][0] == pytest.approx(-sum(row.surprisal for row in stream[5:]))


def test_a_word_that_begins_in_the_context_counts_with_the_continuation(run: spanlm.TrainedModel) -> None:
    """Cut after as many words as the context has alone, nothing would be left to tell the answers apart."""
    found = model(run).loglikelihood([request("the c", "at"), request("the c", "at sat"), request("the do", "g")])
    cat, dog = (list(run.score(text, base=math.e)) for text in ("the cat sat", "the dog"))
    assert [log_p for log_p, _ in found] == pytest.approx(
        [-cat[1].surprisal, -cat[1].surprisal - cat[2].surprisal, -dog[1].surprisal]
    )


def test_a_whole_text_has_the_likelihood_of_evaluate(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    text = "the cat sat .\n\nhe ran to the dog .\nzebra\n"
    (tmp_path / "text.txt").write_text(text)
    told = run.evaluate(str(tmp_path / "text.txt"), state="carry")
    (found,) = model(run).loglikelihood_rolling([request(text)])
    assert -found == pytest.approx(told.nll, rel=1e-6)


def test_sentences_within_lines_are_counted_once(sentence_run: Path) -> None:
    """A model of sentences: each has an end, a blank line none."""
    trained = spanlm.load(sentence_run)
    rows = list(trained.score(["the cat sat .", "a dog ran ."], state="line", base=math.e, eos=True))
    sums = [-math.fsum(row.surprisal for row in some if row.rank is not None) for some in (rows[5:-1], rows, rows[5:])]
    (found,) = model(trained).loglikelihood([request("the cat sat .\n", "a dog ran .")])
    assert found[0] == pytest.approx(sums[0])
    ended = model(trained, ends=True)
    assert ended.loglikelihood_rolling([request("the cat sat .\na dog ran .")]) == [pytest.approx(sums[1])]
    assert ended.loglikelihood([request("the cat sat .\n", "a dog ran .")])[0][0] == pytest.approx(sums[2])
    assert ended.loglikelihood_rolling([request("")]) == [0.0]


def test_generation_stops_where_it_is_asked_to(run: spanlm.TrainedModel) -> None:
    words = run.generate("the cat", length=12, top_k=1)
    text = "".join("\n" if word == "<eos>" else f" {word}" for word in words).replace("\n ", "\n")
    long, short = model(run).generate_until(
        [request("the cat", {"max_gen_toks": 12}), request("the cat", {"until": [f" {words[2]}"], "max_gen_toks": 12})]
    )
    assert long == text
    assert short == text[: text.index(f" {words[2]}")]
