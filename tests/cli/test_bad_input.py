"""Whatever a user types wrong, or damages: one line that names it and the way out, status 2, and nothing lost."""

import bz2
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanlm.data.text import Text, chunks
from tests.cli.conftest import SMALL, Cli
from tests.cli.test_cloze import BLOCKS
from tests.cli.test_rescore import LISTS, REFERENCES
from tests.data.wikipedia.small import dump, json_lines, made_articles
from tests.scoring.test_arpa import TOY


def rows() -> list[Any]:
    """A case for each line of `refused.txt`."""
    lines = (Path(__file__).parent / "refused.txt").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines if line and not line.startswith("#")]
    return [pytest.param(command, parts, id=command) for command, *parts in cells]


@pytest.fixture
def broken_files(tmp_path: Path) -> None:
    articles = made_articles(40)
    contents = {
        "empty.txt": b"",
        "blank.txt": b"\n",
        "reserved.txt": b"the\ncat <eos> sat\n",
        "two.txt": b"the cat\nsat\n",
        "one.txt": b"the cat\n" * 20,
        "q.txt": "".join(BLOCKS).encode(),
        "n.jsonl": b'{"id": 1, "hyps": [{"text": "cat", "score": -1}]}\n',
        "c.yaml": b"training:\n  epochs: 3\n",
        "n.txt": LISTS.encode(),
        "r.txt": REFERENCES.encode(),
        "p.jsonl": b'{"sentence_good": "a b", "sentence_bad": "a", "r": "c"}\n',
        "same.jsonl": b'{"sentence_good": "a b", "sentence_bad": "a  b"}\n',
        "s.csv": b"item,text\n1,the\n2,zebra\n",
        "word.csv": b"word,xword,text\na,1,the\n",
        "open.tsv": b'id\ttext\n1\t"the cat\n2\tsat\n',
        "broken.yaml": b"training: [",
        "field.yaml": b"training:\n  epoch: 3\n",
        "wiki.jsonl": json_lines(articles),
        "wiki.xml": dump(articles),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()


@pytest.mark.usefixtures("broken_files")
@pytest.mark.parametrize(("command", "parts"), rows())
def test_one_line_and_status_2(
    cli: Cli,
    tiny_run: Path,
    lstm_run: Path,
    span_run: Path,
    unopened_run: Path,
    tmp_path: Path,
    command: str,
    parts: list[str],
) -> None:
    runs = {"RUN": tiny_run, "LSTM": lstm_run, "SPANS": span_run, "UNOPENED": unopened_run}
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    result = cli(*(runs.get(word, word) for word in command.split()))
    result.refused(*parts, out=None if "ngram" in command else "")
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before, "files were left behind"


@pytest.mark.parametrize(
    ("option", "size"),
    [
        ("model.encoder.hidden_size=3000000", "640,002,496,"),  # weights, gradients and two numbers of Adam for each
        (f"model.encoder.hidden_size={10**30}", "2^63 or more"),
        ("model.memory.window=1000000000000", ""),
        ("training.batching.eval_batch_size=1000000000000", ""),
    ],
)
def test_what_is_larger_than_the_memory(cli: Cli, tiny_corpus: Path, option: str, size: str) -> None:
    options = [*SMALL, "--training.batching.kind=streams", f"--{option}"]
    result = cli("train", "demo", "--corpus", tiny_corpus, *options, "--out", "new")
    result.refused(f"model: would take at least {size}", "bytes", "there are", "training.batching", out=None)
    assert not Path("new").exists()


def test_a_refused_run_leaves_its_folder_free(cli: Cli, tiny_corpus: Path) -> None:
    """Nor runs/, which is made for a run without --out."""
    command = ["train", "demo", *SMALL, "--corpus", tiny_corpus]
    for where in ([], ["--out", "run"]):
        cli(*command, *where, "--model.encoder.hidden_size=10").refused("Use 9 or 12.")
    assert not Path("runs").exists() and cli(*command, "--out", "run").status == 0


def test_a_loss_that_is_no_number_is_a_failure_not_bad_input(cli: Cli, tiny_corpus: Path) -> None:
    wild = ["--training.optimizer.kind=sgd", "--training.optimizer.lr=1e38", "--training.optimizer.clip=null"]
    result = cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run", *wild)
    result.refused(
        "is not finite",
        "Start again in another folder with a lower training.optimizer.lr or training.optimizer.clip.",
        status=1,
        out=None,
    )


@pytest.mark.usefixtures("broken_files")
def test_a_cache_that_cannot_be_written_is_a_failure(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tiny_corpus: Path
) -> None:
    monkeypatch.setenv("SPANLM_CACHE", "empty.txt/cache")
    cli("train", "demo", "--corpus", tiny_corpus, "--out", "run").refused(
        "cannot write the cache", "SPANLM_CACHE", status=1
    )


def test_words_of_the_user_are_left_as_they_are(cli: Cli) -> None:
    """Only what an error begins with is an argument of the library."""
    for name in ("x,state=1", "split=valid"):
        cli("score", f"runs/{name}").refused(f"spanlm: runs/{name}: ")
    cli("score", "base=2").refused("spanlm: base=2: is not the folder of a run")


def test_a_text_that_becomes_too_large_is_refused_and_leaves_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten such members a hundred megabytes; what is small may be as even as it likes."""
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path / "cache"))
    member = gzip.compress(b"word " * 2_000_000 + b"\n")
    (tmp_path / "even.txt.gz").write_bytes(member)
    (tmp_path / "bomb.txt.gz").write_bytes(member * 10)
    cli("train", "demo", *SMALL, "--corpus", "bomb.txt.gz", "--out", "run").refused(
        "bomb.txt.gz: inflates", "200 times"
    )
    assert not (tmp_path / "run").exists() and not [path for path in tmp_path.rglob("cache/*") if path.is_file()]
    text = Text(tmp_path / "even.txt.gz")
    assert sum(map(len, chunks(text))) == 10_000_001


TEXT = b"the cat sat on the mat\n" * 60
INPUTS: dict[str, tuple[str, bytes, str]] = {
    "train": ("a.txt", TEXT, f"train demo {' '.join(SMALL)} --corpus FILE --out new"),
    "train ngram": ("a.txt", TEXT, "train ngram --ngram.fallback=[0.5,1,1.5] --corpus FILE --out new"),
    "evaluate": ("a.txt", TEXT, "evaluate RUN --corpus FILE"),
    "ARPA": ("a.arpa", TOY.encode(), "evaluate FILE --corpus plain.txt"),
    "ARPA, by KenLM": ("a.lm", TOY.encode(), "score FILE plain.txt"),
    "score": ("a.txt", TEXT, "score RUN FILE"),
    "a table": ("a.csv", b"item,text\n1,the cat\n2,a mat\n", "score RUN FILE --text text"),
    "attend": ("a.txt", b"the cat sat\n", "attend RUN --file FILE --out a.csv"),
    "cloze": ("a.txt", "\n".join(BLOCKS).encode(), "cloze RUN FILE"),
    "pairs": ("a.jsonl", b'{"sentence_good": "the cat", "sentence_bad": "cat the"}\n', "pairs RUN FILE"),
    "n-best": (
        "a.jsonl",
        b'{"id": 1, "hyps": [{"text": "the cat", "score": -1}]}\n',
        "rescore RUN --nbest FILE --weights words=1",
    ),
    "Wikipedia": ("a.jsonl", json_lines(made_articles(9)), "data wikipedia --source FILE --vocabulary 99 --out wiki"),
}


def stored(content: bytes) -> bytes:
    """Gzip without compression, so that a flipped byte is another letter, which nothing but the checksum tells."""
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(content) + packer.flush()


def flipped(packed: bytes, place: int) -> bytes:
    return packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "flipped early": (".gz", lambda content: flipped(stored(content), 15 + len(content) // 3)),
    "flipped late": (".gz", lambda content: flipped(stored(content), 14 + len(content))),
    "cut": (".gz", lambda content: gzip.compress(content)[:-3]),
    "bzip2 flipped": (".bz2", lambda content: flipped(bz2.compress(content), -3)),
    "bzip2 more": (".bz2", lambda content: bz2.compress(content) + b"behind"),
}


@pytest.mark.parametrize(
    ("verb", "damage"),
    [
        *((verb, "flipped late") for verb in INPUTS),
        *(("score", damage) for damage in DAMAGES if damage != "flipped late"),
        *((verb, "") for verb in INPUTS),
        ("Wikipedia", "cut"),
    ],
)
def test_a_damaged_file_is_refused_and_a_whole_one_read(
    cli: Cli, tiny_run: Path, tmp_path: Path, verb: str, damage: str
) -> None:
    """A whole one has two members."""
    name, content, words = INPUTS[verb]
    if damage:
        suffix, packed = DAMAGES[damage][0], DAMAGES[damage][1](content)
    else:
        pack, suffix = (bz2.compress, ".bz2") if "ARPA" in verb else (gzip.compress, ".gz")
        packed = pack(content[: len(content) // 2]) + pack(content[len(content) // 2 :])
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(packed)
    (tmp_path / "plain.txt").write_text("the cat\n")
    found = cli(*(str({"RUN": tiny_run, "FILE": path}.get(word, word)) for word in words.split()))
    if damage:
        assert found.status == 2 and path.name in found.err and "Traceback" not in found.err, found
        assert found.out.count("\n") <= (verb == "ARPA, by KenLM"), "no number is written"
    else:
        assert found.status == 0, found
