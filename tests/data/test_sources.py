import gc
import gzip
import hashlib
import http.server
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from spanlm.cli.main import main
from spanlm.config import RunConfig
from spanlm.data.config import CORPORA, SPLITS, DataConfig, PublishedCorpus, PublishedFile, Split
from spanlm.data.corpora import load_corpus
from spanlm.data.sources import findable, with_own_tokenizer
from spanlm.errors import InputError, RunError
from tests.data.conftest import MakeCorpus

TEXTS: dict[Split, bytes] = {"train": b"a b <unk>\na\n", "valid": b"a c\n", "test": b"b b\n"}


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


def published(texts: dict[Split, bytes], url: str = "", stem: str = "{}") -> PublishedCorpus:
    digests = {split: hashlib.sha256(text).hexdigest() for split, text in texts.items()}
    files = {split: PublishedFile(stem.format(split), x, url and f"{url}/{split}.txt") for split, x in digests.items()}
    return PublishedCorpus("a tiny corpus", {split: (file,) for split, file in files.items()})


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files a web server on this machine gives."""
    folder = tmp_path / "served"
    folder.mkdir()
    for split, text in TEXTS.items():
        (folder / f"{split}.txt").write_bytes(text)
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setitem(CORPORA, "tiny", published(TEXTS, f"http://127.0.0.1:{server.server_port}"))
        yield folder
        server.shutdown()
        thread.join()
    gc.collect()  # a download that failed leaves its socket to it


@pytest.fixture
def tiny(make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(CORPORA, "tiny", published(TEXTS, "http://127.0.0.1:9"))
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    return make_corpus(dict(TEXTS), name="data/tiny").parent


@pytest.mark.parametrize(("corpus", "download"), [("ptb", False), ("cbt", True)])
def test_a_corpus_that_is_nowhere_is_an_error_that_says_how_to_get_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, corpus: str, download: bool
) -> None:
    monkeypatch.setenv("SPANLM_DATA", str(tmp_path / "nothing"))
    with pytest.raises(InputError) as caught:
        load_corpus(DataConfig(corpus=corpus, download=download))
    for part in (tmp_path / "nothing" / corpus, cache, "data.dir", "SPANLM_DATA", f"{corpus}_valid.txt"[-9:]):
        assert str(part) in str(caught.value)
    assert ("--data.download" in str(caught.value)) is (corpus == "ptb")


@pytest.mark.parametrize("split", SPLITS)
def test_a_file_with_another_hash_or_none_is_refused_by_name(tiny: Path, split: Split) -> None:
    path, config = tiny / "tiny" / f"{split}.txt", DataConfig(corpus="tiny", dir=str(tiny), download=True)
    path.write_bytes(TEXTS[split].replace(b"b", b"c").replace(b"a", b"d"))
    with pytest.raises(InputError, match=rf"tiny/{split}\.txt: not the published tiny {split} text"):
        load_corpus(config)
    path.unlink()
    with pytest.raises(InputError, match=rf"tiny: {split}\.txt missing"):
        load_corpus(config)


def test_a_download_is_asked_for_and_then_kept(served: Path, cache: Path) -> None:
    with pytest.raises(InputError, match=r"--data\.download true"):
        load_corpus(DataConfig(corpus="tiny"))
    corpus = load_corpus(DataConfig(corpus="tiny", download=True))
    assert corpus.vocabulary.words == ("a", "b", "<unk>", "<eos>")
    assert corpus.notes == [f"a tiny corpus: downloaded to {cache / 'corpora' / 'tiny'}"]
    shutil.rmtree(served)
    again = load_corpus(DataConfig(corpus="tiny", download=True))
    assert (again.vocabulary, again.notes) == (corpus.vocabulary, [])


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("content", [None, b"<html>a page</html>"])
def test_a_failed_download_names_the_url_and_leaves_nothing(served: Path, cache: Path, content: bytes | None) -> None:
    whole = (served / "valid.txt").read_bytes()
    (served / "valid.txt").unlink() if content is None else (served / "valid.txt").write_bytes(content)
    with pytest.raises(RunError, match=r"cannot download http://127\.0\.0\.1:\d+/valid\.txt: .+") as caught:
        load_corpus(DataConfig(corpus="tiny", download=True))
    assert "\n" not in str(caught.value)
    assert [path.name for path in (cache / "corpora" / "tiny").iterdir()] == ["train.txt"]
    (served / "valid.txt").write_bytes(whole)
    assert len(load_corpus(DataConfig(corpus="tiny", download=True)).vocabulary) == 4


LINE = b"one two three four two one "
PARTS = {"train": b"one two three fo", "valid": b"ur tw", "test": b"o one "}


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Register `line`, one line whose parts are 16, 5 and 6 bytes; return its archive."""
    monkeypatch.setenv("SPANLM_DATA", str(tmp_path / "data"))
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("line", LINE)
    sha256, zip_sha256 = (hashlib.sha256(data).hexdigest() for data in (LINE, packed.getvalue()))
    address = CORPORA["tiny"].files["train"][0].url.rpartition("/")[0] if "tiny" in CORPORA else "http://127.0.0.1:9"
    file = PublishedFile("line", sha256, f"{address}/line.zip", zip_sha256=zip_sha256)
    line = PublishedCorpus("a line", {split: (file,) for split in SPLITS}, sizes=(16, 5), tokenizer="characters")
    monkeypatch.setitem(CORPORA, "line", line)
    return packed.getvalue()


@pytest.mark.parametrize("name", ["line/line", "line.zip", "line/line.zip", "line", "line/line.gz"])
def test_one_published_file_is_cut_at_its_bytes(tmp_path: Path, cut: bytes, name: str) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(cut if path.suffix == ".zip" else gzip.compress(LINE) if path.suffix == ".gz" else LINE)
    for _ in range(2):
        corpus = load_corpus("line")
        assert [len(tokens) for tokens in corpus.splits.values()] == [17, 6, 7] and not corpus.notes
        assert {split: b"".join(read()).removesuffix(b"\n") for split, read in corpus.sources.items()} == PARTS
    assert len(load_corpus(DataConfig(corpus="line")).splits["test"]) == 3, "words, if asked for"


def test_one_line_is_trained_on_and_evaluated_by_its_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, run = b"the cat sat " * 100, tmp_path / "run"
    file = PublishedFile("line", hashlib.sha256(text).hexdigest())
    line = PublishedCorpus("a line", {split: (file,) for split in SPLITS}, sizes=(1000, 90), tokenizer="characters")
    monkeypatch.setitem(CORPORA, "line", line)
    (tmp_path / "line").write_bytes(text)
    small = ["--model.memory.kind=none", "--model.encoder.hidden_size=4", "--model.embedding_size=2"]
    train = ["train", "demo", "--corpus=line", f"--data.dir={tmp_path}", "--epochs=1", f"--out={run}", *small]
    assert main(train) == 0 and RunConfig.load(run / "config.yaml").data.tokenizer == "characters"
    capsys.readouterr()
    assert main(["evaluate", str(run), "--split", "test", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == len(text) - 1090 + 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("line", LINE[:-1], "line: not the published line text"),
        ("line", LINE[:12], "line: not the published line text"),
        ("line.zip", b"PK no archive", r"line\.zip: no archive with a whole file line"),
        ("other", LINE, r"data\.corpus=line: no line or line\.zip in .*`spanlm train --data\.download true`"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, cut: bytes, name: str, content: bytes, message: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_corpus("line")


def test_an_archive_is_downloaded_and_unpacked(served: Path, cut: bytes, cache: Path) -> None:
    (served / "line.zip").write_bytes(cut)
    corpus = load_corpus(DataConfig(corpus="line", download=True))
    assert len(corpus.splits["train"]) == 5 and corpus.notes == [f"a line: downloaded to {cache / 'corpora' / 'line'}"]
    (served / "line.zip").unlink()
    assert load_corpus("line").notes == []


@pytest.mark.parametrize(
    ("corpus", "fields", "tokenizer", "expected"),
    [
        ("text8", {"data.corpus"}, "whitespace", "characters"),
        ("enwik8", {"data.corpus"}, "words", "bytes"),
        ("enwik8", {"data.corpus", "data.tokenizer"}, "words", "words"),
        ("enwik8", set(), "whitespace", "whitespace"),
        ("enwik8", {"data.corpus"}, "bpe", "bpe"),
        ("ptb", {"data.corpus"}, "whitespace", "whitespace"),
    ],
)
def test_a_new_run_reads_what_numbers_are_published_for(
    corpus: str, fields: set[str], tokenizer: Any, expected: str
) -> None:
    assert with_own_tokenizer(DataConfig(corpus=corpus, tokenizer=tokenizer), fields).tokenizer == expected


def test_words_are_spelled(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "tiny-char", replace(CORPORA["tiny"], spelled="tiny"))
    corpus = load_corpus(DataConfig(corpus="tiny-char", dir=str(tiny)))
    assert b"".join(corpus.sources["train"]()) == b"a _ b _ < u n k >\na\n"
    assert len(corpus.vocabulary) == 10 and corpus.notes == ["tiny-char: the characters of tiny, with _ for a space"]
    (tiny / "tiny" / "test.txt").write_bytes(b"another\n")
    with pytest.raises(InputError, match=r"not the published tiny test text"):
        load_corpus(DataConfig(corpus="tiny-char", dir=str(tiny)))


BOOK = b"_BOOK_TITLE_ : An_Author___A_Title.txt.out\n"


def test_a_published_corpus_may_have_its_published_names(tiny: Path) -> None:
    folder, config = tiny / "tiny", DataConfig(corpus="tiny", dir=str(tiny))
    for split in SPLITS:
        (folder / f"{split}.txt").rename(folder / f"tiny.{split}.tokens")
    assert load_corpus(config).notes == [", ".join(f"{split} is tiny.{split}.tokens" for split in SPLITS)]
    (folder / "tiny.test.tokens").write_bytes(b"another text\n")
    with pytest.raises(InputError, match=r"tiny\.test\.tokens: not the published tiny test text"):
        load_corpus(config)
    (folder / "other.test.tokens").write_bytes(TEXTS["test"])
    with pytest.raises(InputError, match=r"other\.test\.tokens, tiny\.test\.tokens: name the one"):
        load_corpus(config)


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({}, "tiny:"),
        ({"tokenizer": "words"}, "tiny, retokenised:"),
        ({"lines": "sentences"}, "tiny, cut into sentences:"),
    ],
)
def test_a_published_corpus_with_other_tokens_is_not_called_by_its_name_alone(
    tiny: Path, how: dict[str, Any], name: str
) -> None:
    assert load_corpus(DataConfig(corpus="tiny", dir=str(tiny), **how)).description.startswith(name)


BOOKS: dict[Split, bytes] = {"train": BOOK + b"a b\n" + BOOK + b"b\n", "valid": BOOK + b"a\n", "test": BOOK + b"a b\n"}


def test_books_are_documents_and_the_published_file_goes_before_the_rebuilt_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    files, folder = published(BOOKS, stem="cbt_{}").files, tmp_path / "data" / "cbt"
    rebuilt = files["train"][0]._replace(stem="cbt_train_rebuilt", note="rebuilt")
    books = PublishedCorpus("the books", {**files, "train": (PublishedFile("cbt_train"), rebuilt)}, "book-title")
    monkeypatch.setitem(CORPORA, "cbt", books)
    folder.mkdir(parents=True)
    (folder / "cbt_train_rebuilt.txt.gz").write_bytes(gzip.compress(BOOKS["train"]))
    for split in ("valid", "test"):
        (folder / f"cbt_{split}.txt").write_bytes(BOOKS[split])
    config = DataConfig(corpus="cbt", dir=str(folder.parent))
    corpus = load_corpus(config)
    assert corpus.vocabulary.words == ("a", "b", "<eos>", "<unk>"), "titles are no text"
    assert corpus.splits["train"].ids.tolist() == [0, 1, 2, 1, 2]
    assert corpus.splits["train"].documents.tolist() == [0, 3]
    assert corpus.notes == ["rebuilt"] and load_corpus(config, corpus.vocabulary, ["valid", "test"]).notes == []
    (folder / "cbt_train.txt").write_bytes(BOOK + b"another text\n")
    corpus = load_corpus(config)
    assert corpus.vocabulary.words == ("another", "text", "<eos>", "<unk>")
    assert corpus.notes[0].startswith(f"{folder / 'cbt_train.txt'}: taken as it is; the SHA-256")


def test_a_corpus_is_found_by_dir_or_by_the_environment_or_where_it_is_ones_own(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_dir = load_corpus(DataConfig(corpus="tiny", dir=str(tiny), download=True))  # which is not needed
    assert len(by_dir.vocabulary) == 4
    monkeypatch.setenv("SPANLM_DATA", str(tiny))
    assert load_corpus(DataConfig(corpus="tiny")).vocabulary == by_dir.vocabulary
    (tiny / "tiny").rename(tiny / "mine")
    monkeypatch.chdir(tmp_path)
    assert load_corpus(DataConfig(corpus="mine")).vocabulary == by_dir.vocabulary
    assert findable(DataConfig(corpus="mine")).corpus == str(tiny / "mine")
    with pytest.raises(InputError, match="no such corpus"):
        load_corpus(DataConfig(corpus="mine", dir=str(tmp_path)))
