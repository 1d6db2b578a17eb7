"""n-gram models on the command line: estimated, as runs, as ARPA files, in ensembles."""

import json
import math
import random
import shutil
from pathlib import Path

import pytest
import yaml

import spanlm
from spanlm.errors import InputError, installation
from spanlm.runs.ngram import ARPA
from spanlm.scoring.ngram.arpa import read_arpa
from spanlm.store.run_folder import CONFIG
from tests.cli.conftest import Cli

FALLBACK = ("--ngram.fallback", "[0.5, 1, 1.5]")


@pytest.fixture(scope="module")
def kn3(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from spanlm.cli.main import main

    out = tmp_path_factory.mktemp("ngram") / "kn3"
    assert main(["train", "ngram", "--order", "3", *FALLBACK, "--corpus", str(tiny_corpus), "--out", str(out)]) == 0
    return out


def test_a_run_is_measured_as_its_arpa_file_is(cli: Cli, kn3: Path, tiny_corpus: Path) -> None:
    lines = [json.loads(line) for line in (kn3 / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["valid", "test"]
    found = json.loads(cli("evaluate", kn3, "--json").done)
    assert found["perplexity"] == lines[1]["perplexity"]
    text = [line.split() for line in (tiny_corpus / "test.txt").read_text().splitlines()]
    log10 = [value for score in read_arpa(kn3 / ARPA).score(text) for value in score.log10.tolist()]
    assert found["tokens"] == len(log10)
    assert found["perplexity"] == pytest.approx(10 ** -(math.fsum(log10) / len(log10)))
    arpa = json.loads(cli("evaluate", kn3 / ARPA, "--corpus", tiny_corpus, "--state", "line", "--json").done)
    assert arpa["perplexity"] == pytest.approx(found["perplexity"])
    unknown = found["unk_tokens"] * math.log(1000 - len(spanlm.load(kn3).vocabulary) + 1)
    padded = json.loads(cli("evaluate", kn3, "--vocab-pad", 1000, "--json").done)["perplexity_vocab_pad"]
    assert padded == pytest.approx(math.exp((found["nll"] + unknown) / found["tokens"]))
    cli("evaluate", kn3, "--vocab-pad", 2).refused("--vocab-pad=2", "more than the")


def test_kenlm_scores_texts_as_we_do_and_reads_the_file_alone(kn3: Path, tmp_path: Path) -> None:
    pytest.importorskip("kenlm", reason="KenLM is not installed")
    path = tmp_path / "copy.arpa"
    path.write_bytes((kn3 / ARPA).read_bytes())
    draw, ours = random.Random(1), read_arpa(path)
    words = [word for word in ours.words if word not in ("<s>", "</s>")] + ["unheard"]
    texts = [[draw.choice(words) for _ in range(draw.randrange(12))] for _ in range(50)]
    run = spanlm.load(path)
    found, prefixes = run.score_texts([" ".join(text) for text in texts])
    expected = [score.log10.astype(float) * math.log(10) for score in ours.score(texts)]
    assert [each.log_prob for each in found] == [math.fsum(each) for each in expected]
    assert prefixes.tokens == sum(len(text) + 2 for text in texts)
    path.unlink()
    assert run.score_texts(["the cat"])


def test_an_arpa_file_without_unk_says_what_unknown_words_cost(cli: Cli, tmp_path: Path) -> None:
    path, text = tmp_path / "nounk.arpa", tmp_path / "text.txt"
    path.write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-99\t<s>\n-0.3\t</s>\n-0.3\ta\n\n\\end\\\n")
    for words, noted in (("a\n", 0), ("b\n", 1)):
        text.write_text(words)
        out = cli("evaluate", path, "--corpus", text).done
        assert (
            out.count("nounk.arpa does not list <unk>: each unknown word counts with a probability of 10^-100") == noted
        )


def test_kenlms_own_format_is_for_pairs_and_rescore(cli: Cli, kn3: Path, tmp_path: Path) -> None:
    path, pairs = tmp_path / "kn3.klm", tmp_path / "pairs.jsonl"
    path.write_bytes((kn3 / ARPA).read_bytes())  # KenLM looks at what is in it
    pairs.write_text('{"sentence_good": "the cat", "sentence_bad": "cat the unheard"}\n')
    cli("evaluate", path).refused("kn3.klm: KenLM's binary format is for pairs and rescore")
    cli("pairs", path, pairs, "--attention", "none").refused("--attention", "kn3.klm is an n-gram model")
    try:
        import kenlm  # noqa: F401
    except ImportError:
        cli("pairs", path, pairs).refused("only KenLM reads", installation("kenlm"))
        pytest.skip("KenLM is not installed")
    theirs, ours = (json.loads(cli("pairs", run, pairs, "--json").done) for run in (path, kn3))
    assert theirs["pairs"] == ours["pairs"]
    (tmp_path / "list.txt").write_text("a ||| the cat ||| 0 ||| 0\na ||| cat the unheard ||| 0 ||| 0\n")
    options = "--nbest", tmp_path / "list.txt", "--weights", "kn3=1", "--json"
    assert cli("rescore", path, *options).done == cli("rescore", kn3, *options).done
    path.write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0")
    cli("pairs", path, pairs).refused("kn3.klm: KenLM cannot read it")


def test_the_preset_is_seen_after_any_option(cli: Cli) -> None:
    for before in (["--out=runs/kn"], ["--out", "runs/kn"], []):
        assert "ngram:\n  order: 3" in cli("train", *before, "ngram", "--order", 3, "--print_config").done


def test_a_line_that_no_eos_opens_begins_like_any_other(kn3: Path, unopened_run: Path) -> None:
    """Beside a run that never predicts first words, which reads a line without <eos> before it."""
    pair = spanlm.load_ensemble([unopened_run, kn3], weights=[0, 1])
    for line in ("the cat sat", "the dog ran", "a cat sat"):
        _, *rows = pair.score(line, base=10, eos=True)
        (alone,) = read_arpa(kn3 / ARPA).score([line.split()])
        assert [-row.surprisal for row in rows] == pytest.approx(alone.log10[1:].tolist(), abs=1e-5)


def test_a_cache_is_fitted_and_kept(cli: Cli, tiny_corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "cached"
    options = ("--order", 2, "--corpus", tiny_corpus, *FALLBACK, "--out", out)
    assert "cache of the last 30 words" in cli("train", "daniluk2017/kn-5-cache", "--cache", 30, *options).done
    kept = yaml.safe_load((out / CONFIG).read_text())["ngram"]
    assert kept["cache"] == 30 and 0 < kept["cache_share"] < 1
    model = spanlm.load(out)
    assert model.model.cache.share == kept["cache_share"]
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    assert model.evaluate(split="valid").perplexity == first["perplexity"]


@pytest.mark.slow
def test_what_only_weights_can_do_is_refused_by_name(
    cli: Cli, kn3: Path, tiny_run: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    for options in (("--parts",), ("--dynamic", "--tune-dynamic"), ("--gate-temperature", 1), ("--attention", "none")):
        cli("evaluate", kn3, *options).refused(options[0], f"{kn3} is an n-gram model")
    cli("score", kn3, kn3 / ARPA, tiny_corpus / "test.txt", "--attention", "none").refused("attention")
    cli("attend", kn3, "--text", "the cat", "--out", "x.html").refused("attend", "is an n-gram model")
    for options in (["--training.start_from", kn3, "--out", "new"], ["--out", kn3, "--resume", "auto"]):
        cli("train", "demo", "--no-tour", *options).refused(f"{kn3}/", "is of an n-gram model, which has no weights")
    cli("bench", kn3 / "config.yaml").refused("is of an n-gram model")
    cli("export", kn3, "--out", "x").refused("only a single recurrent model")
    cli("evaluate", kn3 / ARPA).refused("name one by --corpus")
    assert list(tmp_path.iterdir()) == []
    # what it cannot do it does not have, as several models have not
    model, mixed = spanlm.load(kn3), spanlm.load_ensemble([tiny_run, kn3])
    own = {name for name in dir(spanlm.TrainedModel) if not name.startswith("_")} - set(dir(mixed)) | {"attend"}
    assert [name for name in own if hasattr(model, name)] == []


def test_an_arpa_file_reads_as_the_runs_beside_it_wherever_it_stands(
    cli: Cli, kn3: Path, tmp_path: Path, tiny_corpus: Path
) -> None:
    words = ("--corpus", tiny_corpus, "--tokenizer", "words", "--out", tmp_path / "words")
    cli("train", "ngram", "--order", 2, *FALLBACK, *words).done  # noqa: B018 (checks)
    (tmp_path / "text.txt").write_text("The cat, the dog.\n")
    arpa, run = kn3 / ARPA, tmp_path / "words"
    first, second = (
        spanlm.load_ensemble(runs).evaluate(str(tmp_path / "text.txt")) for runs in ([arpa, run], [run, arpa])
    )
    assert (first.tokens, first.nll) == (second.tokens, pytest.approx(second.nll)) and first.tokens == 7
    with pytest.raises(InputError, match="were not trained alike"):
        spanlm.load_ensemble([arpa, run, kn3])


def test_a_second_run_and_files_that_do_not_belong(cli: Cli, tmp_path: Path, kn3: Path, tiny_corpus: Path) -> None:
    train = ("train", "ngram", "--order", 3, *FALLBACK, "--corpus", tiny_corpus, "--out")
    cli(*train, kn3).refused("already holds a run", out=None)
    # killed before its configuration was there, which comes last, it begins anew
    unfinished = shutil.copytree(kn3, tmp_path / "unfinished")
    (unfinished / CONFIG).unlink()
    cli(*train, unfinished).done  # noqa: B018 (checks)
    for name in (CONFIG, ARPA, "vocabulary.json"):
        assert (unfinished / name).read_bytes() == (kn3 / name).read_bytes()
    broken, whole = shutil.copytree(kn3, tmp_path / "broken"), (kn3 / ARPA).read_text()
    for text, said in (
        ("".join(whole.splitlines(keepends=True)[:-9]), "cut short"),
        (whole.replace("猫", "cats"), "other words"),
    ):
        (broken / ARPA).write_text(text)
        cli("evaluate", broken).refused(ARPA, said)
    (broken / ARPA).unlink()
    cli("evaluate", broken).refused(ARPA, "no such file")
