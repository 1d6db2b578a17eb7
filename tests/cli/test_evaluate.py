"""`spanlm evaluate`: what it prints is what the library says, of one run and of several, however."""

import io
import json
import re
import shutil
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import spanlm
from spanlm.errors import InputError
from spanlm.scoring.dynamic.statistics import DYNAMIC
from spanlm.scoring.dynamic.tuning import TRIALS
from spanlm.scoring.options import CacheConfig, DynamicConfig
from tests.cli.conftest import CONFIG, GIVEN, Cli, flat
from tests.cli.test_cloze import make_block
from tests.conftest import TINY_WORDS
from tests.scoring.test_arpa import TOY

CACHED = ("--cache", "20", "--cache-theta", "0.5", "--cache-lambda", "0.2")
CACHE = CacheConfig(window=20, theta=0.5, lambda_=0.2)


@pytest.fixture
def both(tiny_run: Path, lstm_run: Path) -> list[Path]:
    return [tiny_run, lstm_run]


# --- one run ---


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


# --- tuning ---


def test_what_was_tuned_on_the_part_that_is_shown_is_called_optimistic(
    cli: Cli, tiny_run: Path, both: list[Path]
) -> None:
    for command in (("evaluate", tiny_run, "--cache", "20", "--tune-cache"), ("evaluate", *both, "--tune-weights")):
        assert "optimistic" in cli(*command, "--split", "valid").done and "optimistic" not in cli(*command).done


# --- several runs ---


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
    cli("train", "demo", "--corpus", source, "--tokenizer", "characters", *training[:-1], "letters")
    assert "excess" not in json.loads(cli("evaluate", "letters", "--json").done), "a law is one of words"
    with pytest.raises(InputError, match="is read as characters, and its law is one of words"):
        spanlm.load("letters").excess()


TEXT = " ".join(TINY_WORDS[:6])


def test_every_verb_has_it_and_says_so(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    how, words = "window=2", "the nearest 2 slots alone"
    option, changed = ("--attention", how), spanlm.load(tiny_run).with_attention(how)
    note = f"note: attention: {how}: {words}; not trained so\n"
    (tmp_path / "t.txt").write_text(f"{TEXT}\n")
    scored = cli("score", tiny_run, "t.txt", *option, "--format", "jsonl")
    rows = [json.loads(line)["surprisal"] for line in scored.out.splitlines()]
    assert (rows, scored.err) == ([word.surprisal for word in changed.score(TEXT)], note)
    (tmp_path / "t.csv").write_text(f"text\n{TEXT}\n")
    assert cli("score", tiny_run, "t.csv", "--text", "text", *option, "--out", "s.csv").status == 0
    assert json.loads((tmp_path / "s.csv.meta.json").read_text())["attention"] == how

    pair = {"sentence_good": TEXT, "sentence_bad": f"{TEXT} {TINY_WORDS[0]}"}
    (tmp_path / "p.jsonl").write_text(json.dumps(pair) + "\n")
    assert cli("pairs", tiny_run, "p.jsonl", *option, "--out", "o").err == note
    answer = json.loads((tmp_path / "o").read_text())
    assert answer["good"] == pytest.approx(changed.compare(*pair.values()).good, abs=1e-9)
    (tmp_path / "q.txt").write_text(make_block(1))
    assert json.loads(cli("cloze", tiny_run, "q.txt", *option, "--json").done)["attention"] == how


def test_a_gate_keeps_its_temperature_in_either_order(span_run: Path) -> None:
    model = spanlm.load(span_run)
    found = {
        (changed.attention, changed.gate_temperature, changed.evaluate().perplexity)
        for changed in (
            model.at_gate_temperature(0.2).with_attention("window=1"),
            model.with_attention("window=1").at_gate_temperature(0.2),
            model.with_attention("none").at_gate_temperature(0.2).with_attention("window=1"),
        )
    }
    assert len(found) == 1 and {each[:2] for each in found} == {("window=1", 0.2)}


def test_what_is_measured_at_another_temperature_says_so(cli: Cli, span_run: Path) -> None:
    few = ("context", span_run, "--lengths", 1, "--far", 0, "--gate-temperature", 0.5)
    assert json.loads(cli(*few, "--json").done)["gate_temperature"] == 0.5
    assert "0.5 in place of the run's 1" in cli(*few).done
    Path("p.jsonl").write_text('{"sentence_good": "the cat", "sentence_bad": "cat the"}\n')
    assert json.loads(cli("pairs", span_run, "p.jsonl", *few[-2:], "--json").done)["gate_temperature"] == 0.5


def test_weights_that_follow_the_text_have_none(tiny_run: Path) -> None:
    model = spanlm.load(tiny_run).with_attention("uniform")
    for refused in (lambda: model.evaluate(dynamic=DynamicConfig()), model.tune_dynamic):
        with pytest.raises(InputError, match="attention=uniform: dynamic evaluation"):
            refused()


def test_statistics_of_another_temperature_are_not_taken_for_those_asked_for(own_span_run: Path) -> None:
    model = spanlm.load(own_span_run)
    tempered, path = model.at_gate_temperature(0.2), own_span_run / DYNAMIC
    expected = tempered.dynamic_statistics().mean
    assert f"({path}: is of temperature 0.2 of a gate, not 1.0)" in model.dynamic_statistics().origin
    found = tempered.dynamic_statistics()
    assert f"gathered anew ({path}: is of temperature 1.0 of a gate, not 0.2)" in found.origin
    assert found.mean == pytest.approx(expected, rel=1e-12)


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def short(tiny_corpus: Path, tmp_path: Path) -> str:
    """The beginnings of the tiny texts, named as they are named here."""
    (tmp_path / "short").mkdir()
    for split in ("valid", "test"):
        lines = (tiny_corpus / f"{split}.txt").read_text(encoding="utf-8").splitlines()
        (tmp_path / "short" / f"{split}.txt").write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    return "short"


def evaluated(cli: Cli, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("evaluate", *arguments, "--json").done)
    return found


def test_the_table_has_both_and_says_where_the_statistics_are_from(cli: Cli, run: Path) -> None:
    flat = " ".join(cli("evaluate", run, *GIVEN).done.split())
    model = spanlm.load(run)
    result, statistics = model.evaluate(dynamic=CONFIG), model.dynamic_statistics()
    assert result.without_dynamic is not None
    assert f"perplexity {result.perplexity:.2f} " in flat
    assert f"without dynamic {result.without_dynamic.perplexity:.2f} " in flat
    assert CONFIG.description in flat
    assert f"statistics {statistics.description}; gathered now, saved in {run / DYNAMIC}" in flat
    again = " ".join(cli("evaluate", run, *GIVEN).done.split())
    assert f"{statistics.description}; read from {run / DYNAMIC}" in again


def test_a_part_of_the_training_text_is_enough_and_the_rest_of_a_folder_is_not_touched(cli: Cli, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = evaluated(cli, run, "--dynamic", "--dynamic-statistics", "1")["dynamic_statistics"]
    assert (found["whole"], found["read"]) == (False, 1)
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after.keys() - before.keys() == {run / DYNAMIC}
    assert all(after[path] == content for path, content in before.items())


@pytest.mark.parametrize("rate", ["1e38", "100"])
def test_weights_that_diverge_end_in_one_line(cli: Cli, run: Path, rate: str) -> None:
    """With the lower one all sums are finite, and the perplexity is not."""
    cli("evaluate", run, "--dynamic", "--dynamic-rate", rate).refused(
        f"--dynamic-rate={float(rate):g}: the weights diverged", "Take a lower rate", status=1
    )


def test_a_best_value_on_the_edge_comes_with_options_to_try(cli: Cli, run: Path, short: str) -> None:
    given = ("--dynamic-rate", "1e-7", "1e-9", "--dynamic-decay", "0.5", "0.01", "--dynamic-epsilon", "0.02")
    how = ("--corpus", short, "--dynamic", "--tune-dynamic", *given)
    best = evaluated(cli, run, *how)["tuning"]["best"]
    text = flat(cli("evaluate", run, *how).done)
    assert "dynamic." not in text.replace("dynamic.safetensors", "") and "optimistic" not in text
    assert "optimistic" in cli("evaluate", run, *how, "--split", "valid").done
    (option,) = re.findall(r"Try --dynamic-rate ([\d.e-]+)", text)
    assert float(option) == best["rate"], "a grid that goes on from the edge"


TUNED = ("--dynamic", "--tune-dynamic", "--dynamic-rate", "0.0005", "0.002", "--dynamic-decay", "0.01")


@pytest.mark.slow
def test_the_same_command_goes_on_with_a_search_that_was_stopped(cli: Cli, run: Path) -> None:
    """Ctrl-C once a trial is kept, whatever else the machine does: the main thread looks, by its process's own time."""

    def stop_when_kept(number: int, frame: FrameType | None) -> None:
        if (run / TRIALS).exists() and (run / TRIALS).read_bytes().endswith(b"\n"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGVTALRM, stop_when_kept)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
    try:
        # more points than are read before the signal is heard
        cli("evaluate", run, *TUNED, *(f"0.0{n}" for n in range(2, 10)), *(f"0.1{n}" for n in range(10))).refused(
            f"kept in {run / TRIALS}, and the same command", status=130, out=None
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    kept = len((run / TRIALS).read_text().splitlines())
    found = evaluated(cli, run, *TUNED)
    assert 1 <= found["tuning"].pop("read_before") <= kept
    assert "resumed 2 trials were read" in " ".join(cli("evaluate", run, *TUNED).done.split())
    (run / TRIALS).unlink()
    expected = evaluated(cli, run, *TUNED)
    assert expected["tuning"].pop("read_before") == 0
    for name in ("nll", "tuning", "dynamic", "protocol"):
        assert found[name] == expected[name]


# --- nearest neighbours ---


def test_neighbours_are_those_of_the_library_with_what_was_searched(cli: Cli, tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    tuned = model.tune_neighbours(k=9)
    result = model.evaluate(neighbours=tuned.best)
    found = json.loads(cli("evaluate", tiny_run, "--neighbours", "9", "--json").done)
    assert found["perplexity"] == result.perplexity < found["without_neighbours"]["perplexity"]
    store = found["neighbours"].pop("datastore")
    assert found["neighbours"] == tuned.best.to_json() and found["tuning"] == tuned.to_json()
    keys, size = model.datastore().keys.shape
    assert (store["keys"], store["size"], store["text"]) == (keys, size, "tiny train")
    assert store["megabytes"] == round(Path(store["file"]).stat().st_size / 1e6, 1)
    chosen = ("--neighbours-temperature", "2", "--neighbours-lambda", "0.1")
    printed = flat(cli("evaluate", tiny_run, "--neighbours", "9", *chosen).done)
    assert f"{keys:,} states of tiny train, {size} numbers each" in printed and "tuned on" not in printed
