"""Runs on characters, bytes and pieces: every verb reads them, and their sums are those of the written words."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import spanlm
from spanlm.cli.main import main
from spanlm.config import RunConfig
from spanlm.data.cbt import Question
from spanlm.data.pieces_file import learned
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.runs.model import TrainedModel
from spanlm.scoring.attention import attention_record, by_written_word
from spanlm.scoring.options import Context
from spanlm.scoring.pairs import Pair, compare_pairs
from tests.cases import rest_slow

KINDS = ("bpe", "characters", "bytes", "unigram")
TEXT = ["the zebra  <unk> sat", "", " dog ran ", "naïve 猫\tthe", "   ", "the cat ran on the mat"]


@pytest.fixture(scope="module", params=rest_slow(KINDS, always=1))
def config(request: pytest.FixtureRequest, tiny_config: RunConfig) -> RunConfig:
    size = 300 if request.param in ("bpe", "unigram") else None
    data = replace(tiny_config.data, tokenizer=request.param, vocabulary_size=size)
    return replace(tiny_config, data=data, training=replace(tiny_config.training, epochs=2))


@pytest.fixture(scope="module")
def folder(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("subwords") / "run"
    spanlm.train(config, spanlm.load_corpus(config.data), folder)
    return folder


@pytest.fixture
def model(folder: Path) -> TrainedModel:
    model = spanlm.load(folder, "cpu")
    assert isinstance(model, TrainedModel)
    return model


def test_a_resumed_run_has_the_weights_of_one_that_ran_through(config: RunConfig, folder: Path, tmp_path: Path) -> None:
    corpus = spanlm.load_corpus(config.data)
    spanlm.train(replace(config, training=replace(config.training, epochs=1)), corpus, tmp_path / "run")
    spanlm.train(config, corpus, tmp_path / "run", resume=True)
    for name in ("model.safetensors", "tokenizer.json" if corpus.vocabulary.pieces else "vocabulary.json"):
        assert (tmp_path / "run" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("state", ["line", "carry", "document"])
def test_words_sum_to_what_their_tokens_sum_to_in_each_line(model: TrainedModel, state: Context) -> None:
    tokens = list(model.score(TEXT, state=state, eos=True, base=math.e))
    assert "".join(model.texts.tokenizer.readable(token.word for token in tokens)) == "".join(f"{x}\n" for x in TEXT)
    items = list(model.score_items(TEXT, state=state, eos=True, base=math.e))
    for line, words in enumerate(items, 1):
        assert [word.word for word in words] == [*TEXT[line - 1].split(), EOS]
        assert " ".join(word.tokens for word in words).split(" ") == [x.word for x in tokens if x.sentence == line]
        whole = math.fsum(token.surprisal for token in tokens if token.sentence == line)
        assert math.fsum(word.surprisal for word in words) == pytest.approx(whole, abs=1e-9)


def test_the_end_of_a_word_is_counted_with_the_word(model: TrainedModel) -> None:
    vocabulary, tokenizer = model.vocabulary, model.texts.tokenizer
    [score] = next(model.score_items(["the"], base=math.e))
    *tokens, _ = model.score(["the"], eos=True, base=math.e)
    drawn = next(model.draw("the", length=1, unk=True))
    assert tokenizer.word_ends is not None
    texts = [tokenizer.text([vocabulary.words[id]]) for id in tokenizer.word_ends]
    assert {"\n", " ", "\t"} <= {*texts} and all(text[0] in " \t\n\r\v\f" for text in texts)
    end = math.log(drawn.log_p[tokenizer.word_ends].double().exp().sum())
    assert score.surprisal == pytest.approx(math.fsum(token.surprisal for token in tokens) - end, abs=1e-6)


def test_texts_side_by_side_have_the_words_of_items(model: TrainedModel) -> None:
    texts = [text for text in TEXT if text.strip()]
    scores, _ = model.score_texts(texts)
    for text, score, words in zip(texts, scores, model.score_items(texts, eos=True, base=math.e), strict=True):
        assert [*score.words, score.end] == pytest.approx([-word.surprisal for word in words], abs=1e-5)
        assert len(score.words) == len(text.split())
    pair = Pair("the cat ran", "the cat mat", regions=((3, 3), (3, 3)))
    [compared] = compare_pairs([pair], lambda texts: model.score_texts(texts)[0])
    assert compared.good == pytest.approx(model.score_texts(["the cat ran"])[0][0].words[2])


def test_evaluation_counts_every_token_of_the_text(model: TrainedModel) -> None:
    result = model.evaluate(split="test", state="document")
    corpus = model.corpus(split="test")
    assert result.tokens == len(corpus.splits["test"]) and result.oov_share == 0
    scores = list(model.score(corpus.written_lines("test"), state="document", eos=True, base=math.e))
    assert len(scores) == result.tokens
    assert math.fsum(score.surprisal for score in scores) == pytest.approx(result.nll, rel=1e-6)
    lines = [" ".join(line.split()) for line in corpus.written_lines("test")]
    characters, size = (sum(len(x) + 1 for x in texts) for texts in (lines, map(str.encode, lines)))
    assert corpus.written("test") == (sum(len(line.split()) for line in lines), characters, size)


def test_documents_start_where_those_of_words_do(config: RunConfig, model: TrainedModel) -> None:
    words = spanlm.load_corpus(replace(config.data, tokenizer="whitespace", vocabulary_size=None)).splits["train"]
    subwords = spanlm.load_corpus(config.data, model.vocabulary).splits["train"]
    eos = model.vocabulary.eos_id
    lines = [np.flatnonzero(np.asarray(subwords.ids) == eos), subwords.documents]
    known = spanlm.load_corpus(replace(config.data, tokenizer="whitespace", vocabulary_size=None)).vocabulary.eos_id
    expected = [np.flatnonzero(np.asarray(words.ids) == known), words.documents]
    assert len(words.documents) > 3
    assert np.array_equal(np.searchsorted(*lines), np.searchsorted(*expected))


def test_continuations_are_read_and_end_in_whole_characters(model: TrainedModel) -> None:
    words = model.generate("naïve ", length=40, seed=3)
    text = "".join(model.texts.tokenizer.readable(words))
    assert text and not any(0xD800 <= ord(letter) < 0xE000 for letter in text)
    assert next(model.samples(2, "the", length=5, seed=1)) == model.generate("the", length=5, seed=1)


def test_cloze_candidates_are_summed_over_their_tokens(model: TrainedModel) -> None:
    question = Question("f", 1, ("the dog sat",), "the cat", "on the mat", "ran", ("ran", "zebra"))
    [ranked] = model.cloze([question], contexts=["query"])
    expected = [model.score_texts([f"the cat {word} on the mat"])[0][0].log_prob for word in question.candidates]
    assert ranked.sentence == pytest.approx(expected, abs=1e-5)


def test_attention_of_words_sums_that_of_their_tokens(model: TrainedModel) -> None:
    lines = ["the zebra ran ", " cat sat"]
    record = model.attend("\n".join(lines), state="carry")
    assert record.words == [EOS, *model.tokenize(lines[0]), EOS, *model.tokenize(lines[1])] and not record.unknown
    words = by_written_word(record, model.texts.tokenizer)
    assert words.words == [EOS, *lines[0].split(), EOS, *lines[1].split()]
    assert words.targets == [*words.words[1:], EOS]
    items = model.score_items(lines, state="carry", eos=True, base=math.e)
    assert words.surprisal == pytest.approx([word.surprisal for item in items for word in item], abs=1e-5)
    # ran is predicted after the last token of zebra, which its memory of three tokens holds with those before
    at = sum(len(tokens) for tokens in model.texts.cut(lines[0])[:2])
    slots = {at - lag: float(weight) for lag, weight in zip(record.lags, record.weights[at], strict=True)}
    owner = [0, *(1 for _ in model.texts.cut(lines[0])[0]), *(2 for _ in model.texts.cut(lines[0])[1])]
    assert len(owner) == at + 1
    for word in range(3):
        whole = sum(weight for slot, weight in slots.items() if slot >= 0 and owner[slot] == word)
        columns = {lag: float(weight) for lag, weight in zip(words.lags, words.weights[2], strict=True)}
        assert columns.get(2 - word, 0.0) == pytest.approx(whole, abs=1e-6)


def test_words_of_an_excerpt_that_ends_within_a_character(model: TrainedModel) -> None:
    tokens = [EOS, *model.tokenize("the 鴉")[:-1]]
    settings = {"title": "", "predict_first": True, "word_ends": model.texts.tokenizer.word_ends}
    record = attention_record(model.model, model.vocabulary, tokens[1:], **settings)
    words = by_written_word(record, model.texts.tokenizer)
    assert words.words[:2] == [EOS, "the"] and len(words.targets) == 2 and words.targets[-1] != "鴉"


def test_blank_lines_have_no_words(model: TrainedModel) -> None:
    model.texts.batching = replace(model.texts.batching, kind="sentences", predict_first=False)
    assert list(model.score_items(["", ""])) == [[], []]


def test_a_file_of_another_vocabulary_is_refused(folder: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(folder, tmp_path / "copy")
    path = copy / "tokenizer.json"
    if not path.exists():
        path = copy / "vocabulary.json"
    text = path.read_text()
    path.write_text(text.replace('"the', '"teh', 1) if '"the' in text else text.replace("Ġ", "Ġx").replace("▁", "▁x"))
    with pytest.raises(InputError, match=r"another vocabulary|does not match its words"):
        spanlm.load(copy)
    path.unlink()
    with pytest.raises(InputError, match=rf"{path.name}: cannot read the vocabulary .*; restore it"):
        spanlm.load(copy)


def test_a_run_whose_pieces_hold_a_mark_goes_on(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokenizers of RoBERTa have <s> among their pieces, which says nothing about marks around lines."""
    monkeypatch.chdir(tmp_path)
    content = json.loads(learned("bpe", TEXT * 9, 280).pieces)
    for token, (old, new) in zip(content["added_tokens"], ((EOS, "<s>"), ("<unk>", "<pad>")), strict=True):
        token["content"] = new
        content["model"]["vocab"][new] = content["model"]["vocab"].pop(old, token["id"])
    Path("marked.json").write_text(json.dumps(content))
    small = ("--hidden-size", "6", "--model.embedding_size", "6", "--no-tour", "--out", "run")
    begin = ["train", str(tiny_corpus), "--tokenizer", "bpe", "--data.pieces", "marked.json", "--epochs", "1", *small]
    assert main(begin) == 0
    assert "<s>" in spanlm.load("run").vocabulary
    assert main(["train", "--out", "run", "--resume", "auto", "--epochs", "2", "--no-tour"]) == 0


def test_words_and_pieces_are_compared_by_written_word(
    folder: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In either order, and a pair's difference is that of the bits that each has alone."""
    found = {}
    for first, second in ((folder, tiny_run), (tiny_run, folder)):
        assert main(["compare", str(first), str(second), "--split", "test", "--spell-unknown", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["unit"] == "written word"
        found[first] = report["comparisons"][0]["whole"]["difference"]
    assert found[folder] == pytest.approx(-found[tiny_run], abs=1e-9)
