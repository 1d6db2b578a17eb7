"""`spanlm evaluate`: what it prints is what the library says, of one run, with a cache, and of several as one."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

import spanlm
from spanlm.models.counting import count_parameters
from spanlm.scoring.options import CacheConfig
from tests.cli.conftest import Cli, flat
from tests.scoring.test_arpa import TOY

CACHED = ("--cache", "20", "--cache-theta", "0.5", "--cache-lambda", "0.2")
CACHE = CacheConfig(window=20, theta=0.5, lambda_=0.2)


@pytest.fixture
def both(tiny_run: Path, lstm_run: Path) -> list[Path]:
    return [tiny_run, lstm_run]


# --- one run ---


def test_the_table_has_every_number_and_how_it_was_counted(cli: Cli, tiny_run: Path) -> None:
    text, model = flat(cli("evaluate", tiny_run).done), spanlm.load(tiny_run)
    result, count = model.evaluate(), count_parameters(model.model)
    for part in (f"perplexity {result.perplexity:.2f}", result.protocol, f"θ_M {count.model:,}, θ_W+M {count.total:,}"):
        assert part in text, part
    for share in result.shares.values():
        assert f" {share.count:,} {share.nats:.4f} {share.bits:.4f} {share.log10:,.2f} {share.perplexity:.2f} " in text
    text = flat(cli("evaluate", tiny_run, *CACHED, "--state", "line").done)
    cached = model.evaluate(state="line", cache=CACHE)
    assert cached.without_cache is not None and cached.without_cache.salton2017 is not None
    plain = cached.without_cache
    assert f"without cache {plain.perplexity:.2f}, Salton's count {plain.salton2017.perplexity:.2f} " in text


def test_a_perplexity_without_end_is_null_in_json(cli: Cli, tiny_run: Path) -> None:
    """A cache that is all of the mixture gives most words nothing at all."""
    text = cli("evaluate", tiny_run, *CACHED[:-1], "1", "--json").done
    assert "Infinity" not in text and json.loads(text)["perplexity"] is None
    assert any("has probability 0" in note for note in json.loads(text)["notes"])


# --- its text ---


def test_another_corpus_is_read_in_the_models_vocabulary(cli: Cli, tiny_run: Path) -> None:
    Path("other.txt").write_text("the lion\n" * 100)
    found = json.loads(cli("evaluate", tiny_run, "--corpus", "other.txt", "--json").done)
    assert (found["tokens"], found["oov_tokens"], found["oov_share"]) == (300, 100, pytest.approx(1 / 3))
    assert (found["corpus"], found["split"]) == ("other.txt", "text")
    # the whole file's number would stand under the name of a part
    for verb in (["evaluate"], ["attend", "--by-lag"]):
        asked = [verb[0], tiny_run, *verb[1:], "--corpus", "other.txt"]
        cli(*asked, "--split", "valid").refused("--split=valid: other.txt is one file, which is taken whole")
    Path("part").mkdir()
    Path("part/test.txt").write_text("the cat\n" * 10)
    assert json.loads(cli("evaluate", tiny_run, "--corpus", "part", "--json").done)["tokens"] == 30
    cli("evaluate", tiny_run, "--corpus", "part", "--split", "valid").refused("no valid.txt")


def test_the_way_out_is_an_option_of_this_verb(cli: Cli, tiny_run: Path) -> None:
    """A library's message serves every verb: it says which option is whose, and no other."""
    offered = set(re.findall(r"--[\w.-]+", cli("evaluate", tiny_run, "--corpus", "ptb").err))
    own = {option for option in offered if not option.startswith("--data.")}
    assert own == {"--download", "--data-dir"}
    for verb, options in {"evaluate": own, "attend": own, "train": offered - own}.items():
        assert options <= set(re.findall(r"--[\w.-]+", cli(verb, "--help", "all").done)), verb


# --- as other toolkits ---


KENLM = """the=3 2 -0.2\tcat=4 2 -0.4\t</s>=2 2 -0.3\tTotal: -0.90000004 OOV: 0
the=3 2 -0.2\tdog=0 1 -1.2\tcat=4 1 -0.9\t</s>=2 2 -0.3\tTotal: -2.6000001 OOV: 1
Perplexity including OOVs:\t3.1622778461709817
Perplexity excluding OOVs:\t2.41731560245087
OOVs:\t1
Tokens:\t7
"""
SRILM = """file in.txt: 2 sentences, 5 words, 1 OOVs
0 zeroprobs, logprob= -2.3 ppl= 2.41732 ppl1= 3.75837
"""


def test_an_arpa_file_prints_what_kenlm_and_srilm_print(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("toy.arpa").write_text(TOY)
    Path("in.txt").write_text("the cat\nthe dog cat\n")
    command = ["evaluate", "toy.arpa", "--corpus", "in.txt", "--format"]
    assert cli(*command, "kenlm").done == KENLM
    assert cli(*command, "srilm").done == SRILM
    words = cli(*command, "srilm", "--debug", "2").done
    assert words.startswith("the cat\n\tp( the | <s> ) \t= [2gram] 0.630957 [ -0.2 ]\n") and words.endswith(SRILM)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\nthe dog cat")))
    assert cli("evaluate", "toy.arpa", "--corpus", "-", "--format", "srilm").done == SRILM.replace("in.txt", "-")
    Path("in.txt").write_text("a <s> b\n")
    cli(*command, "kenlm").refused("holds <s> as a word")


def test_a_run_prints_its_lines_alone_as_the_toolkits_do(cli: Cli, both: list[Path]) -> None:
    Path("in.txt").write_text("the cat zebra\n\n<unk> on\n")
    for runs in (both[:1], both):
        result = spanlm.load_ensemble(runs).evaluate("in.txt", state="line")
        command = ["evaluate", *runs, "--corpus", "in.txt", "--format"]
        *lines, with_oov, without, oovs, tokens = cli(*command, "kenlm").done.splitlines()
        printed = [word.rsplit("=", 1) for line in lines for word in line.split("\t")[:-1]]
        assert [word for word, _ in printed] == ["the", "cat", "zebra", "</s>", "</s>", "<unk>", "on", "</s>"]
        _, lengths, log10 = zip(*(numbers.split() for _, numbers in printed), strict=True)
        assert [int(length) for length in lengths] == [2, 3, 4, 5, 2, 2, 3, 4]
        assert sum(map(float, log10)) == pytest.approx(result.shares["all"].log10, rel=1e-6)
        assert (oovs, tokens) == ("OOVs:\t2", "Tokens:\t8")
        assert float(with_oov.split()[-1]) == pytest.approx(result.perplexity, rel=1e-6)
        assert float(without.split()[-1]) == pytest.approx(result.perplexity_without_unk, rel=1e-6)
        # SRILM knows no blank lines
        assert cli(*command, "srilm").done.startswith("file in.txt: 2 sentences, 5 words, 2 OOVs")


# --- tuning ---


def test_a_cache_is_tuned_on_valid_before_the_split_is_read(cli: Cli, tiny_run: Path) -> None:
    command = ["evaluate", tiny_run, "--cache", "20", "--tune-cache"]
    found, tuning = json.loads(cli(*command, "--json").done), spanlm.load(tiny_run).tune_cache([20])
    assert found["cache"] == tuning.best.to_json() | {"tuned_on": "tiny valid"}
    assert found["tuning"] == json.loads(json.dumps(tuning.to_json()))
    assert found["split"] == "test" and "(tuned on tiny valid)" in found["protocol"]
    assert found["perplexity"] == pytest.approx(spanlm.load(tiny_run).evaluate(cache=tuning.best).perplexity)
    text = flat(cli(*command, "--cache-theta", "0.1", "--cache-lambda", "0.01", "0.02").done)
    tuning = spanlm.load(tiny_run).tune_cache([20], thetas=(0.1,), lambdas=(0.01, 0.02))
    assert f"tuned on tiny valid: θ 0.1, λ {tuning.best.lambda_:g} of 2 pairs; {tuning.perplexity:.2f} there, " in text
    assert "--cache-lambda=0.02 is the largest that was tried: the best may lie beyond." in text
    assert "optimistic" not in text and "optimistic" in cli(*command, "--split", "valid").done


def test_weights_are_tuned_on_valid_before_the_split_is_read(cli: Cli, both: list[Path]) -> None:
    tuned = spanlm.load_ensemble(both).tune_weights(split="valid")
    assert tuned.steps > 0
    found = json.loads(cli("evaluate", *both, "--tune-weights", "--json").done)
    assert found["weights"] == pytest.approx(list(tuned.weights))
    assert found["tuned"] == {"on": "valid", "steps": tuned.steps, "gap": pytest.approx(tuned.gap)}
    right = spanlm.load_ensemble(both, weights=tuned.weights).evaluate_members()
    assert (found["ensemble"]["split"], found["ensemble"]["nll"]) == ("test", pytest.approx(right.ensemble.nll))
    out = cli("evaluate", *both, "--tune-weights", "--split", "valid").done
    assert " ".join(f"{weight:.4f}" for weight in tuned.weights) in out and "so what follows is optimistic" in out
    Path("other.txt").write_text("the cat\n" * 5)
    refused = cli("evaluate", *both, "--corpus", "other.txt", "--tune-weights")
    refused.refused("--tune-weights: other.txt has no valid part to tune on", "--weights")


# --- several runs ---


@pytest.mark.parametrize("cache", [(), CACHED], ids=["plain", "cached"])
def test_each_run_stands_beside_all_as_one(cli: Cli, both: list[Path], cache: tuple[str, ...]) -> None:
    """With a cache, which all have together, each without it."""
    right = spanlm.load_ensemble(both).evaluate_members(state="line")
    command = ["evaluate", *both, *cache, "--state", "line"]
    out = cli(*command).done
    for result in (*right.members, right.ensemble):
        assert any(
            f" {result.perplexity:.2f}" in row and row.endswith(f"{result.nll_per_token:.4f}")
            for row in out.splitlines()
        )
    assert f" {right.oracle_bound.bound:.2f} " in out and "2 runs as one" in out
    found = json.loads(cli(*command, "--json").done)
    found = found["without_cache"] if cache else found
    assert [member["nll"] for member in found["members"]] == [pytest.approx(member.nll) for member in right.members]
    assert found["oracle_bound"] == right.to_json()["oracle_bound"]


def test_the_law_of_a_text_stands_beside_a_model_that_knows_its_words_alone(cli: Cli, tiny_run: Path) -> None:
    source = "synthetic:copy,tokens=600,words=8"
    training = ("--epochs", "1", "--hidden-size", "6", "--batch-size", "4", "--no-tour", "--out", "copied")
    cli("train", "demo", "--corpus", source, *training)
    whole, *parts = json.loads(cli("evaluate", "copied", "--json").done)["excess"]
    assert whole["tokens"] == sum(part["tokens"] for part in parts) and whole["excess"] > 0
    assert "needed word" in cli("evaluate", "copied").done
    # a cache is another model, and a law knows nothing of <unk>
    cached = json.loads(cli("evaluate", "copied", "--json", *CACHED).done)
    other = json.loads(cli("evaluate", tiny_run, "--corpus", source, "--json").done)
    assert "excess" not in cached and "excess" not in other and other["oov_tokens"] > 0
