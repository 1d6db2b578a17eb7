"""A text of the user's own: how it is named, found again, and what a model of it knows of other words."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from tests.cli.conftest import SMALL, Cli, flat
from tests.conftest import tiny_lines

RUNS = ("plain", "ends", "marks", "kept")
CHANCE = "<unk> was read in training, so the probabilities of unknown words mean nothing"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text whose training part has words that occur once, and no <unk>."""
    lines = [line for line in tiny_lines(120, 3) if line]
    lines[3:3] = ["the hapax sat on the mat .", "it isn’t bound"]
    (tmp_path / "my.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "my.txt"


def config(cli: Cli, *words: object) -> RunConfig:
    return RunConfig.from_tree(spanlm.config.yaml.safe_load(cli("train", *words, "--print_config").done))


@pytest.mark.slow
@pytest.mark.usefixtures("text")
def test_a_text_stands_beside_a_preset_or_alone(cli: Cli, tiny_corpus: Path, tmp_path: Path) -> None:
    assert config(cli, "my.txt") == config(cli, "demo", "my.txt") == config(cli, "demo", "--corpus", "my.txt")
    shutil.copy("my.txt", tmp_path / "demo")
    assert config(cli, "demo").data.corpus == "demo", "a preset wins"


@pytest.mark.slow
def test_a_run_finds_its_text_from_another_folder_and_where_it_was_moved(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cli("train", "my.txt", *SMALL, "--out", "run").done  # noqa: B018 (checks)
    found = cli("evaluate", "run").done.split("perplexity")[1].split("speed")[0]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert found in cli("evaluate", "../run").done
    moved = text.rename(tmp_path / "elsewhere" / text.name)
    cli("evaluate", "../run").refused("my.txt: no such corpus, folder or file", "--data-dir")
    for where in (".", str(moved)):
        assert found in cli("evaluate", "../run", "--data-dir", where).done
    with monkeypatch.context() as patch:
        patch.setenv("SPANLM_DATA", str(moved.parent))
        assert found in cli("evaluate", "../run").done
    again = ["train", "--out", "../run", "--resume", "auto", "--no-tour", "--training.epochs=2"]
    assert "epoch   2" in cli(*again, "--data.dir", ".").done
    monkeypatch.chdir(tmp_path)
    assert "not the text" not in cli("evaluate", "run").done, "the folder is kept, too"
    moved.write_text(moved.read_text().replace("a", "e"))
    assert "not the text that it was" in cli("evaluate", "run").done
    cli("evaluate", "run", "--cache=5", "--tune-cache")
    assert "my.txt valid: not the text that it was" in caplog.text


def test_a_file_is_read_whole_however_it_is_named(
    cli: Cli, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name in a folder of corpora, too, where it was split in three."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "other.txt").write_text("".join(f"{line}\n" for line in tiny_lines(60, 5)))
    found = json.loads(cli("evaluate", tiny_run, "--corpus", "texts/other.txt", "--json").done)
    told = json.loads(cli("evaluate", tiny_run, "--corpus", "other.txt", "--data-dir", "texts", "--json").done)
    monkeypatch.setenv("SPANLM_DATA", "texts")
    named = json.loads(cli("evaluate", tiny_run, "--corpus", "other.txt", "--json").done)
    assert found["nll"] == told["nll"] == named["nll"]


def test_the_text_says_whether_rare_words_are_unknown(text: Path) -> None:
    plain = spanlm.load_corpus(DataConfig(corpus=str(text)))
    assert "hapax" not in plain.vocabulary and any("<unk>" in note for note in plain.notes)
    every = spanlm.load_corpus(DataConfig(corpus=str(text), min_count=1))
    assert "hapax" in every.vocabulary and not any("<unk>" in note for note in every.notes)
    assert spanlm.load_corpus(DataConfig(corpus=str(text), min_count=2)).vocabulary == plain.vocabulary
    text.write_text("a <unk>\n" + text.read_text())
    written = spanlm.load_corpus(DataConfig(corpus=str(text)))
    assert "hapax" in written.vocabulary and not any("<unk>" in note for note in written.notes)


@pytest.mark.slow
def test_a_model_that_never_read_unk_says_so(cli: Cli, text: Path, tmp_path: Path) -> None:
    cli("train", "my.txt", *SMALL, "--data.min_count=1", "--out", "ignorant").done  # noqa: B018 (checks)
    text.write_text("a <unk>\n" + text.read_text())
    cli("train", "my.txt", *SMALL, "--data.min_count=1", "--out", "written").done  # noqa: B018 (checks)
    (tmp_path / "other.txt").write_text("the zebra sat\n")
    for run in ("ignorant", "written"):
        corpus = ("--corpus", "other.txt")
        for command in (("score", run, "other.txt"), ("evaluate", run, *corpus), ("generate", run, "--unk")):
            result = cli(*command)
            assert (result.out + result.err).count(CHANCE) == (run == "ignorant"), (command, result)
        notes = json.loads(cli("evaluate", run, *corpus, "--json").done)["notes"]
        assert any(CHANCE in note for note in notes) == (run == "ignorant")


@pytest.mark.slow
def test_curly_apostrophes_are_apostrophes_in_new_runs_alone(cli: Cli, text: Path) -> None:
    command = ["train", "my.txt", *SMALL, "--data.tokenizer", "words", "--data.min_count=1"]
    cli(*command, "--out", "new").done  # noqa: B018 (checks)
    old = replace(config(cli, *command[1:]).data, corpus=str(text), tokenizer="words", min_count=1)
    spanlm.train(replace(config(cli, *command[1:]), data=old), spanlm.load_corpus(old), Path("old"))
    for run, tokens in (("new", ["it", "isn't"]), ("old", ["it", "isn’t"])):
        model = spanlm.load(run)
        assert model.tokenize("It isn’t") == tokens and tokens[1] in model.vocabulary
        # the command that began a run goes on with it, whatever version began it
        assert "epoch   2" in cli(*command, "--out", run, "--resume", "auto", "--training.epochs=2").done


def test_marks_around_lines_are_left_out_unless_the_run_has_them_as_words(cli: Cli, text: Path) -> None:
    lines = text.read_text().splitlines()
    Path("plain.txt").write_text("".join(f"{line}\n" for line in lines))
    Path("marks.txt").write_text("".join(f"<s> {line} </s>\n" for line in lines))
    Path("ends.txt").write_text("".join(f"{line} <eos>\n" for line in lines))
    order = ["train", "ngram", "--order=2", "--ngram.fallback=[0.5,1,1.5]"]
    for run, name, *verb in (
        ("plain", "plain.txt", "train", *SMALL),
        ("ends", "ends.txt", *order),
        ("marks", "marks.txt", *order),
        ("kept", "marks.txt", "train", *SMALL, "--data.marks=keep"),
    ):
        done = cli(*verb, "--corpus", name, "--out", run)
        said = f"{len(lines)} lines with <eos>" in flat(done.out)
        assert done.status == 0 and said == (run in ("ends", "marks")), run
    vocabularies = {run: json.loads(Path(run, "vocabulary.json").read_text())["words"] for run in RUNS}
    assert vocabularies["plain"] == vocabularies["ends"] == vocabularies["marks"]
    assert {*vocabularies["kept"]} == {"<s>", "</s>", *vocabularies["plain"]}

    def tokens(run: str, name: str) -> list[str]:
        return [row.split("\t")[2] for row in cli("score", run, name, "--eos").out.splitlines()[1:]]

    assert tokens("marks", "marks.txt") == tokens("marks", "ends.txt") == tokens("marks", "plain.txt")
    assert tokens("kept", "marks.txt")[:2] == ["<s>", lines[0].split()[0]]
    # words as written are found where they stand
    words = [line.split("\t") for line in cli("score", "marks", "marks.txt", "--rows", "words").out.splitlines()[1:]]
    assert words[0][2:5] == [lines[0].split()[0], "4", str(4 + len(lines[0].split()[0]))]
    # no words of an ARPA file
    cli("train", "ngram", "marks.txt", "--data.marks=keep", "--out", "no").refused("<s>", "data.marks=drop", out=None)
    # 0.2.0 had no such field, and kept the marks: a run whose vocabulary has them goes on with them
    written, field = Path("plain/config.yaml").read_text(), "  marks: null\n"
    assert field in written
    Path("plain/config.yaml").write_text(written.replace(field, ""))
    assert cli("train", "--out", "plain", "--resume", "auto", "--epochs", "2").status == 0
    assert DataConfig(corpus="x").keeps_marks(vocabularies["kept"]) and not DataConfig(corpus="x").keeps_marks(["the"])
