from __future__ import annotations

import gc
import gzip
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from spanlm.data import corpora as sources
from spanlm.data.config import SPLITS, DataConfig, Split
from spanlm.data.corpora import PublishedCorpus, PublishedFile, findable, load_corpus
from spanlm.errors import InputError, RunError
from tests.data.conftest import MakeCorpus

TEXTS: dict[Split, bytes] = {"train": b"a b <unk>\na\n", "valid": b"a c\n", "test": b"b b\n"}


class Server:
    """A web server on this machine that gives what its tests put in."""

    def __init__(self) -> None:
        self.files = {f"/{split}.txt": text for split, text in TEXTS.items()}
        self.length_lie = 0
        self.requests: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                outer.requests.append(path)
                body = outer.files.get(path, b"<html>not here</html>")
                self.send_response(200 if path in outer.files else 404)
                self.send_header("Content-Length", str(len(body) + outer.length_lie))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def files_of(texts: dict[Split, bytes], url: str = "", stem: str = "{}", **changed: Any) -> dict[Split, PublishedFile]:
    files = {}
    for split, text in texts.items():
        digest = hashlib.sha256(text).hexdigest()
        files[split] = PublishedFile(stem.format(split), digest, url and f"{url}/{split}.txt")
    return {split: file._replace(**changed) for split, file in files.items()}


def published(url: str, **changed: Any) -> PublishedCorpus:
    return PublishedCorpus("a tiny corpus", files_of(TEXTS, url, **changed))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setitem(sources.CORPORA, "tiny", published(server.url))
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    yield server
    server.stop()
    # a download that broke off leaves its socket to the garbage collector
    gc.collect()


@pytest.fixture
def tiny(make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with an intact local copy."""
    monkeypatch.setitem(sources.CORPORA, "tiny", published("http://127.0.0.1:9"))
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    return make_corpus(dict(TEXTS), name="data/tiny").parent


def test_a_local_copy_is_found_by_dir_or_by_the_environment(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_dir = load_corpus(DataConfig(corpus="tiny", dir=str(tiny), download=True))  # which is not needed
    assert len(by_dir.vocabulary) == 4
    monkeypatch.setenv("SPANLM_DATA", str(tiny))
    assert load_corpus(DataConfig(corpus="tiny")).vocabulary == by_dir.vocabulary
    monkeypatch.setenv("SPANLM_DATA", str(tiny / "elsewhere"))
    assert load_corpus(DataConfig(corpus="tiny", dir=str(tiny))).vocabulary == by_dir.vocabulary


def test_a_corpus_of_ones_own_is_found_by_its_name(
    make_corpus: MakeCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_corpus(dict(TEXTS), name="data/mine").parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPANLM_DATA", str(folder))
    by_name = load_corpus(DataConfig(corpus="mine"))
    assert by_name.vocabulary == load_corpus(DataConfig(corpus=str(folder / "mine"))).vocabulary
    assert findable(DataConfig(corpus="mine")).corpus == str(folder / "mine")
    with pytest.raises(InputError, match="no such corpus"):
        load_corpus(DataConfig(corpus="mine", dir=str(tmp_path)))


def test_a_text_is_found_from_every_folder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.parent)
    found = findable(DataConfig(corpus="tiny", dir=tiny.name))
    monkeypatch.chdir(tmp_path)
    assert len(load_corpus(found).vocabulary) == 4 and found.corpus == "tiny"


CBT_FILES = "cbt_train.txt or cbt_train_rebuilt.txt, cbt_valid.txt, cbt_test.txt"


@pytest.mark.parametrize(
    ("corpus", "download", "parts"),
    [
        ("ptb", False, ["train.txt, valid.txt, test.txt", "--data.download true"]),
        ("cbt", False, [CBT_FILES, "cannot be downloaded"]),
        ("cbt", True, [CBT_FILES, "cannot be downloaded"]),
    ],
)
def test_a_corpus_that_is_nowhere_is_an_error_that_says_how_to_get_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, corpus: str, download: bool, parts: list[str]
) -> None:
    monkeypatch.setenv("SPANLM_DATA", str(tmp_path / "nothing"))
    with pytest.raises(InputError) as caught:
        load_corpus(DataConfig(corpus=corpus, download=download))
    message = str(caught.value)
    for part in (*parts, tmp_path / "nothing" / corpus, cache, "data.dir", "SPANLM_DATA"):
        assert str(part) in message
    assert "\n" not in message and ("--data.download" in message) is (corpus == "ptb")


@pytest.mark.parametrize("split", SPLITS)
def test_a_file_with_another_hash_or_none_is_refused_by_name(tiny: Path, split: Split) -> None:
    path, config = tiny / "tiny" / f"{split}.txt", DataConfig(corpus="tiny", dir=str(tiny), download=True)
    path.write_bytes(TEXTS[split].replace(b"b", b"c").replace(b"a", b"d"))
    with pytest.raises(InputError, match=rf"tiny/{split}\.txt: not the published tiny {split} text \(SHA-256"):
        load_corpus(config)
    path.unlink()
    with pytest.raises(InputError, match=rf"tiny: {split}\.txt missing"):
        load_corpus(config)


def test_a_download_is_asked_for_and_then_kept(server: Server, cache: Path) -> None:
    with pytest.raises(InputError, match=r"--data\.download true"):
        load_corpus(DataConfig(corpus="tiny"))
    assert server.requests == []
    corpus = load_corpus(DataConfig(corpus="tiny", download=True))
    assert corpus.vocabulary.words == ("a", "b", "<unk>", "<eos>")
    assert corpus.notes == [f"a tiny corpus: downloaded to {cache / 'corpora' / 'tiny'}"]
    assert sorted(server.requests) == ["/test.txt", "/train.txt", "/valid.txt"]
    again = load_corpus(DataConfig(corpus="tiny"))
    assert again.vocabulary == corpus.vocabulary
    assert again.notes == []
    assert len(server.requests) == 3


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("failure", ["404", "another text", "partial", "no server"])
def test_a_failed_download_names_the_url_and_leaves_nothing(server: Server, cache: Path, failure: str) -> None:
    if failure == "404":
        del server.files["/valid.txt"]
    elif failure == "another text":
        server.files["/valid.txt"] = b"<html>a page</html>"
    elif failure == "partial":
        server.length_lie = 1000
    else:
        server.stop()
    got = ["train.txt"] if failure in ("404", "another text") else []
    url = f"{server.url}/{'valid' if got else 'train'}.txt"
    with pytest.raises(RunError, match=f"cannot download {url}: .+") as caught:
        load_corpus(DataConfig(corpus="tiny", download=True))
    assert "\n" not in str(caught.value)
    assert [path.name for path in (cache / "corpora" / "tiny").iterdir()] == got
    if failure != "no server":
        server.files["/valid.txt"], server.length_lie = TEXTS["valid"], 0
        assert len(load_corpus(DataConfig(corpus="tiny", download=True)).vocabulary) == 4


BOOK = b"_BOOK_TITLE_ : An_Author___A_Title.txt.out\n"


def test_a_published_corpus_may_have_its_published_names(tmp_path: Path, server: Server) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for split, text in TEXTS.items():
        (folder / f"tiny.{split}.tokens").write_bytes(text)
    config = DataConfig(corpus="tiny", dir=str(tmp_path))
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
    tmp_path: Path, server: Server, how: dict[str, Any], name: str
) -> None:
    (tmp_path / "tiny").mkdir()
    for split, text in TEXTS.items():
        (tmp_path / "tiny" / f"{split}.txt").write_bytes(text)
    assert load_corpus(DataConfig(corpus="tiny", dir=str(tmp_path), **how)).description.startswith(name)


BOOKS: dict[Split, bytes] = {"train": BOOK + b"a b\n" + BOOK + b"b\n", "valid": BOOK + b"a\n", "test": BOOK + b"a b\n"}


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a collection of books like that of the Children's Book Test, its training part rebuilt."""
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    files = files_of(BOOKS, stem="cbt_{}")
    made = files["train"]._replace(stem="cbt_train_rebuilt")
    rebuilt = PublishedCorpus("the books, one file rebuilt", {**files, "train": made})
    corpus = PublishedCorpus("the books", {**files, "train": PublishedFile("cbt_train")}, rebuilt)
    monkeypatch.setitem(sources.CORPORA, "cbt", corpus)
    folder = tmp_path / "data" / "cbt"
    folder.mkdir(parents=True)
    (folder / "cbt_train_rebuilt.txt.gz").write_bytes(gzip.compress(BOOKS["train"]))
    (folder / "cbt_valid.txt").write_bytes(BOOKS["valid"])
    (folder / "cbt_test.txt").write_bytes(BOOKS["test"])
    return folder


def test_books_are_documents_and_a_rebuilt_file_is_named_as_such_where_it_is_used(books: Path) -> None:
    config = DataConfig(corpus="cbt", dir=str(books.parent))
    corpus = load_corpus(config)
    assert corpus.vocabulary.words == ("a", "b", "<eos>", "<unk>"), "titles are no text"
    assert corpus.splits["train"].ids.tolist() == [0, 1, 2, 1, 2]
    assert corpus.splits["train"].documents.tolist() == [0, 3]
    assert corpus.notes == ["the books, one file rebuilt"]
    assert load_corpus(config, corpus.vocabulary, ["valid", "test"]).notes == []


def test_the_published_file_goes_before_the_rebuilt_one_and_is_taken_as_it_is(books: Path) -> None:
    (books / "cbt_train.txt").write_bytes(BOOK + b"another text\n")
    corpus = load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))
    assert corpus.vocabulary.words == ("another", "text", "<eos>", "<unk>")
    (note,) = corpus.notes
    assert note.startswith(f"{books / 'cbt_train.txt'}: taken as it is; the SHA-256")


def test_books_of_which_one_file_is_missing_are_an_error_that_names_it(books: Path) -> None:
    for missing in ("cbt_train_rebuilt.txt.gz", "cbt_test.txt"):
        (books / missing).rename(books / "elsewhere")
        named = "cbt_train.txt or cbt_train_rebuilt.txt" if "train" in missing else missing
        with pytest.raises(InputError, match=rf"cbt: {named} missing; a corpus needs train, valid, test"):
            load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))
        (books / "elsewhere").rename(books / missing)
