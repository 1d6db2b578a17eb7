import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from spanlm.data.corpora import Corpus
from spanlm.training.run import train
from tests.training.small import make_config, make_corpus

MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def single_thread() -> Iterator[None]:
    """Bits are promised for a fixed number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder for runs, in memory where there is such a place: hundreds of runs wait for the disk otherwise."""
    folder = Path(tempfile.mkdtemp(prefix="spanlm-test-", dir=MEMORY if MEMORY.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def corpus() -> Corpus:
    return make_corpus()


@pytest.fixture
def begun(room: Path, corpus: Corpus) -> Path:
    """A run of one epoch."""
    train(make_config(epochs=1), corpus, room / "run")
    return room / "run"


@pytest.fixture
def text_folder(room: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny corpus as text files, for the command line; the cache is the test's own."""
    folder = room / "text"
    folder.mkdir()
    monkeypatch.setenv("SPANLM_CACHE", str(room / "cache"))
    for split, tokens in corpus.splits.items():
        words = " ".join(corpus.vocabulary.word(int(number)) for number in tokens.ids)
        (folder / f"{split}.txt").write_text(words.replace(" <eos> ", "\n").removesuffix("<eos>"))
    return folder
