"""`spanlm attend`: a text, a span buffer, and views of one run or several side by side."""

import io
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import spanlm
from spanlm.analysis.lags import PUBLISHED
from spanlm.cli.attend import published_name
from spanlm.cli.options import run_names
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig, NoMemoryConfig, RecurrentMemoryConfig
from tests.cli.conftest import Cli, flat

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


# --- several runs side by side ---


def test_several_runs_read_one_standard_input(
    cli: Cli, tiny_run: Path, words_run: Path, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tiny_corpus / "valid.txt").read_bytes()
    told = []
    for runs in ((tiny_run,), (tiny_run, words_run)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        told.append(
            [line.split()[1] for line in cli("attend", *runs, "--by-lag", "--corpus", "-").done.splitlines()[2:5]]
        )
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["runs/kv"], ["kv"]),
        (["runs/kv", "runs/kvp"], ["kv", "kvp"]),
        (["runs/kv/seed-1", "runs/kvp/seed-1"], ["kv", "kvp"]),
        (["runs/kv/seed-1", "runs/kv/seed-2"], ["seed-1", "seed-2"]),
        (["runs/kv/seed-1", "runs/kv/seed-2", "runs/kvp/seed-1"], ["kv/seed-1", "kv/seed-2", "kvp/seed-1"]),
        (["runs/kv", "runs/kvp/seed-1"], ["kv", "kvp/seed-1"]),
        (["runs/demo", "runs/demo/lstm"], ["demo", "lstm"]),
        (["a/x/b/s", "a/y/c/s"], ["b", "c"]),
        (["a/s", "s"], ["a", "FOLDER"]),
        (["runs/kv/seed-12"], ["kv/seed-12"]),
        (["runs/kv/seed-x"], ["seed-x"]),
        (["x/ng.arpa", "x/ng.arpa.gz"], ["x/ng.arpa", "x/ng.arpa.gz"]),
    ],
    ids=str,
)
def test_runs_are_named_by_what_tells_them_apart(folders: list[str], names: list[str]) -> None:
    assert run_names([Path(folder) for folder in folders]) == [
        name.replace("FOLDER", Path.cwd().name) for name in names
    ]


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (KeyValueConfig(roles=1), "attention"),
        (KeyValueConfig(roles=2), "key-value"),
        (KeyValueConfig(roles=3), "key-value-predict"),
        (RecurrentMemoryConfig(), "RM(+tM-g)"),
        (RecurrentMemoryConfig(temporal=False), None),
        (RecurrentMemoryConfig(composition="linear"), None),
        (NoMemoryConfig(), None),
    ],
)
def test_a_model_stands_beside_the_row_of_its_own_kind(memory: AnyMemoryConfig, name: str | None) -> None:
    assert published_name(RunConfig(model=ModelConfig(memory=memory))) == name
    assert name is None or name in PUBLISHED


SENTENCE = "the cat zebra sat on the mat ."


def test_a_model_of_sentences_reads_one_sentence(cli: Cli, sentence_run: Path) -> None:
    cli("attend", sentence_run, "--sentence", "The cat sat . He ran !").refused("is 2 sentences to a model trained on")


def test_several_runs_and_sentences_are_one_file(cli: Cli, tiny_run: Path, unopened_run: Path) -> None:
    command = ("attend", unopened_run, tiny_run, "--sentence", SENTENCE, "--sentence", "the dog", "--out", "a.json")
    assert cli(*command).done.endswith("wrote a.json\n")
    cli(*command[:-1], "a.html").refused("a.html: a page shows one run")
    cli("attend", tiny_run, "--sentence", SENTENCE, "--sentence", "the dog", "--out", "a.html").done  # noqa: B018
    assert '"zebra"' in Path("a.html").read_text(encoding="utf-8")
    panels = json.loads(Path("a.json").read_bytes())["sentences"]
    assert [[panel["run"] for panel in row] for row in panels] == [["unopened", "tiny"]] * 2


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--sentence", ""], ["at least one word"]),
        (["--sentence", "the <eos> cat"], ["<eos> is reserved"]),
        (["--sentence", "cat " * 121], ["121 words: must be at most 120", "--text"]),
    ],
)
def test_what_is_refused(cli: Cli, tiny_run: Path, arguments: list[str], parts: list[str]) -> None:
    cli("attend", tiny_run, *arguments).refused(*parts)


# --- a model with a span buffer ---


def test_python_records_both_in_one_call(span_run: Path, tiny_run: Path) -> None:
    model, of_words = spanlm.load(span_run), spanlm.load(tiny_run)
    record, same = model.attend(TEXT), model.attend_spans(TEXT)
    assert record.parts is not None and same.parts is not None
    assert record.span == 2 and record.parts.expected == same.parts.expected and model.has_spans
    assert record.expected == record.parts.expected["mixture"] and len(record.expected[0]) == 5
    assert of_words.attend(TEXT).parts is None
    with pytest.raises(InputError, match=r"has no span buffer; attend\(text\)"):
        of_words.attend_spans(TEXT)


def test_words_are_numbered_as_the_text_they_are_from(cli: Cli, span_run: Path) -> None:
    """The title's count, not the position in what was read of it; <eos> opens the stretch and is the token before."""
    where = ("--split", "valid", "--from", 40, "--words", 12)
    said, model = cli("attend", span_run, *where).done, spanlm.load(span_run)
    (start, end) = map(int, re.findall(r"tokens (\d+) to (\d+) of", said)[0])
    assert end == start + 11 and 30 < start <= 40
    tokens = model.corpus().splits["valid"].ids
    rows = re.findall(r"% +(\d+)–(\d+) +(.*)", said)
    assert len(rows) == 3 and int(rows[0][1]) < end
    for first, last, words in rows:
        assert [model.vocabulary.word(i) for i in tokens[int(first) - 1 : int(last)]] == words.split()


def test_the_shortest_text_has_nothing_to_look_at(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", "the").done
    assert "the buffer is empty: no span has ended yet" in said
    assert "encoder alone" in said and "buffer alone" not in said and "gate" not in said


def test_what_is_told_of_words_is_refused(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--sentence", "the cat")
    said.refused("--sentence: shows the weights of words", "looks at spans of 2", "--text")
    cli("attend", span_run, "--text", "the", "--out", "a.svg").refused("a.svg: there is no figure of spans", ".html")


def test_by_lag_spans_do_not_stand_beside_words(cli: Cli, span_run: Path, tiny_run: Path, lstm_run: Path) -> None:
    said = cli("attend", span_run, tiny_run, "--by-lag")
    said.refused("by lag: spans looks at spans of 2 words and tiny at words", "name one alone")
    cli("attend", span_run, lstm_run, "--by-lag").refused("attends to nothing")


def test_as_many_words_as_are_asked_for(cli: Cli, span_run: Path, tmp_path: Path) -> None:
    """Of each part, printed and in the data; what shows none refuses to be asked."""
    text = ("--text", "the cat sat on the mat .")
    printed = flat(cli("attend", span_run, *text, "--top", 2).done)
    both = re.search(r"both (.*?);", printed)
    assert both is not None and both[1].count(", ") == 1
    cli("attend", span_run, *text, "--top", 7, "--out", tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert {len(position["mixture"]) for position in content["positions"]} == {7}
    cli("attend", span_run, *text, "--top", 0).refused("--top=0", "at least 1")
    cli("attend", span_run, "--flatness", "--top", 3).refused("--top", "--flatness")


# --- by epoch: from the log of a run, without its model ---


@pytest.fixture
def in_training(span_run: Path, tmp_path: Path) -> Path:
    """A run that has not saved a model yet."""
    folder = tmp_path / "in-training"
    folder.mkdir()
    shutil.copy(span_run / "metrics.jsonl", folder)
    return folder


def test_runs_of_different_lengths_stand_side_by_side(cli: Cli, span_run: Path, in_training: Path) -> None:
    metrics = in_training / "metrics.jsonl"
    last = [line for line in metrics.read_text(encoding="utf-8").splitlines() if '"valid", "step"' in line][-1]
    metrics.write_text(metrics.read_text(encoding="utf-8") + last + "\n", encoding="utf-8")
    *_, row, _ = cli("attend", span_run, in_training, "--by-epoch").done.splitlines()
    assert len(row.split()) == 3, "the first run has no such epoch"


@pytest.mark.parametrize("line", ["{", "5", "\xff", "[" * 10_000], ids=lambda line: line[:3])
def test_a_damaged_line_is_left_out(cli: Cli, in_training: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = cli("attend", in_training, "--by-epoch").done
    with (in_training / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write(line + "\n")
    assert cli("attend", in_training, "--by-epoch").done == shown
    assert "metrics.jsonl: left out 1 row" in caplog.text


def test_what_cannot_be_told_is_refused(cli: Cli, tiny_run: Path, in_training: Path) -> None:
    cli("attend", tiny_run, "--by-epoch").refused("no span buffer to show")
    cli("attend", in_training, "--by-epoch", "--out", "a.html").refused("a.html: cannot write .html")
    cli("attend", in_training, "--by-epoch", "--by-lag").refused("--by-lag and --by-epoch do not go together")
    cli("attend", in_training, "--by-epoch", "--corpus", "ptb").refused("--corpus=ptb: is for", "not for --by-epoch")
    cli("attend", in_training, "--by-epoch", "--split", "test").refused("--split=test: is for", "not for --by-epoch")
    cli("attend", in_training, in_training, "--by-epoch").refused("is named twice")
