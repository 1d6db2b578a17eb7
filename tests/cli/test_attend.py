import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import spanlm
from spanlm.data.corpora import Corpus
from tests.cli.conftest import Cli

TEXT = "the cat zebra sat\non the mat ."


def test_a_file_is_as_its_text(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT + "\n\nthe dog\n", encoding="utf-8")
    cli("attend", tiny_run, "--file", "text.txt", "--out", "a.csv").done  # noqa: B018 (checks)
    cli("attend", tiny_run, "--text", TEXT + "\n\nthe dog", "--out", "b.csv").done  # noqa: B018 (checks)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


@pytest.mark.parametrize("text", ["the cat sat\n" * 8000, "the" + "\n" * 30_000 + "cat\n"], ids=["words", "blanks"])
def test_a_huge_file_is_refused(cli: Cli, tiny_run: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "long.txt").write_text(text)
    cli("attend", tiny_run, "--file", "long.txt", "--out", "a.csv").refused("--file=long.txt", "more than 20,000 words")
    assert not Path("a.csv").exists()


def test_the_file_that_is_read_is_not_written(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    """Nor by the verbs that draw a figure of a text."""
    (tmp_path / "mine.csv").write_text("sentence\nthe cat sat\n")
    asked = ("--file", "mine.csv", "--column", "sentence", "--out", "mine.csv")
    cli("attend", tiny_run, *asked).refused("--out=mine.csv: is the file that is read")
    assert (tmp_path / "mine.csv").read_text() == "sentence\nthe cat sat\n"
    (tmp_path / "t.svg").write_text("the cat sat .\n")
    for verb in (("context",), ("compare", "--attention", "none")):
        cli(*verb, tiny_run, "--corpus", "t.svg", "--as-text", "--out", "t.svg").refused("is the file that is read")


@pytest.mark.parametrize("text", ["", "\n\n", " "])
def test_no_words(cli: Cli, tiny_run: Path, text: str) -> None:
    cli("attend", tiny_run, "--text", text, "--out", "a.html").refused("no words")


def _documents(corpus: Corpus, split: str) -> list[list[str]]:
    tokens = corpus.splits[split]
    words = [corpus.vocabulary.word(i) for i in tokens.ids.tolist()]
    bounds = [*tokens.documents.tolist(), len(words)]
    return [words[start:end] for start, end in itertools.pairwise(bounds)]


def test_a_document_of_the_corpus_is_read_as_in_the_evaluation(cli: Cli, tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    documents = _documents(model.corpus(), "valid")
    assert len(documents) > 2
    out = cli("attend", tiny_run, "--split", "valid", "--document", 2, "--words", 500, "--out", "a.npz").done
    assert out == "wrote a.npz\n"
    with np.load("a.npz") as data:
        assert data["targets"].tolist() == documents[1], "whole, and no line end that the text does not have"
        state = model.model.init_state(1)
        ids = model.vocabulary.encode(["<eos>", *documents[1][:-1]])
        with torch.no_grad():
            readout, _ = model.model(torch.tensor(ids).unsqueeze(1), state)
        np.testing.assert_allclose(data["weights"], readout.attention.weights[:, 0].numpy(), atol=1e-6)
        said = str(data["title"])
    assert said.startswith("tiny, reading tiny valid, document 2 of")


def test_a_stretch_is_as_long_as_asked_for_and_short_unless_asked(cli: Cli, tiny_run: Path) -> None:
    words = spanlm.load(tiny_run).corpus().splits["test"]
    for arguments, length in ((["--words", 7], 7), ([], 60)):
        cli("attend", tiny_run, "--from", 1, *arguments, "--out", "a.npz").done  # noqa: B018 (checks)
        with np.load("a.npz") as data:
            assert len(data["targets"]) == length < len(words)


@pytest.mark.parametrize("state", ["line", "document", "carry", None])
def test_a_stretch_has_the_contexts_of_the_training_or_those_asked_for(cli: Cli, tiny_run: Path, state: str) -> None:
    """A word looks back to the begin of its line, of its document, or of what is read."""
    documents = _documents(spanlm.load(tiny_run).corpus(), "valid")
    words = [word for document in documents for word in document]
    lines = [[*line, "<eos>"] for line in " ".join(words).split(" <eos>")[:-1] for line in [line.split()]]
    chosen = {"line": lines, "document": documents}.get(state or "document", [words])
    length = len(documents[0]) + len(documents[1]) + 3
    how = [] if state is None else ["--state", state]
    cli("attend", tiny_run, "--split", "valid", "--from", 1, "--words", length, *how, "--out", "a.npz").done  # noqa: B018
    begins = list(itertools.accumulate((len(one) for one in chosen), initial=0))
    with np.load("a.npz") as data:
        assert data["targets"].tolist() == words[:length]
        found = (data["weights"] > 0).sum(axis=1).tolist()
    assert found == [min(3, at - max(begin for begin in begins if begin <= at)) for at in range(length)]


def test_the_state_is_for_what_has_lines(cli: Cli, tiny_run: Path, unopened_run: Path) -> None:
    cli("attend", tiny_run, "--by-lag", "--state", "line").refused("--state=line: is for --text", "not for --by-lag")
    cli("attend", unopened_run, "--text", "a\nb", "--state", "document", "--out", "a.csv").refused("--state=document")
    cli("attend", unopened_run, "--text", "the cat\na dog", "--out", "a.csv").done  # noqa: B018 (checks)
